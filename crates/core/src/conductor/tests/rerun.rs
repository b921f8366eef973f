//! Repeating a run in part: what is kept, what is repeated, what is refused.

use super::*;
use crate::rerun::{Edits, Repeat, RerunError, edited, reused};
use serde_json::json;
use uuid::Uuid;

const OLD: RunId = RunId(Uuid::from_u128(7));

/// `a` → `b` → `c`.
fn chain() -> PlanBuilder {
    plan()
        .action("a", "t")
        .then("b")
        .action("b", "t")
        .then("c")
        .action("c", "t")
}

/// A run of `plan` after these facts.
fn ran(plan: PlanBuilder, facts: impl IntoIterator<Item = Fact>) -> Live {
    let mut live = Live::start(plan);
    live.feed_all(facts);
    live
}

impl Live {
    fn journal(&self) -> Vec<Event> {
        self.rows
            .iter()
            .flat_map(|row| decode(row).expect("a valid row"))
            .collect()
    }

    /// What a run of `plan` keeps of this one.
    fn kept(&self, plan: PlanBuilder, repeat: Repeat<'_>) -> Result<Option<Box<Reused>>, RerunError> {
        let plan = Arc::new(plan.build().expect("a valid plan"));
        reused(OLD, self.run.plan(), &self.journal(), &plan, repeat)
    }

    /// A run of `plan` that repeats this one, after its start, and the nodes that were opened.
    fn repeated(&self, plan: PlanBuilder, repeat: Repeat<'_>) -> (Live, Vec<String>) {
        let reused = self.kept(plan.clone(), repeat).expect("a legal rerun");
        let mut live = Live::pending(plan);
        live.at(90_000);
        let events = live.events(Fact::Start {
            vars: json!({}),
            timeout_ms: None,
            reused,
        });
        let opened = events.iter().filter(|event| matches!(event, Event::Opened { .. }));
        let opened = opened.filter_map(Event::node).map(NodeId::to_string).collect();
        (live, opened)
    }
}

fn refused(result: Result<Option<Box<Reused>>, RerunError>) -> String {
    result.expect_err("a refusal").to_string()
}

#[test]
fn from_a_node_nothing_before_it_is_opened() {
    let old = ran(chain(), [ok("a"), bad("b")]);
    assert_eq!(old.end(), "Failed action_failed");
    let (mut live, opened) = old.repeated(chain(), Repeat::From("b"));
    assert_eq!(opened, ["b"]);
    assert_eq!(outstanding(&live.run), [execute("b", 1, 90_000)]);
    assert_eq!(live.feed(ok("b")), ["b succeeded with 1", "routed b [0]", "opened c"]);
    live.feed(ok("c"));
    assert_eq!(live.end(), "Succeeded -");
    assert_eq!(live.states(), "a:ok b:ok c:ok");
}

#[test]
fn whole_run_keeps_nothing() {
    let old = ran(chain(), [ok("a"), bad("b")]);
    assert_eq!(old.kept(chain(), Repeat::All), Ok(None));
    let (_, opened) = old.repeated(chain(), Repeat::From("a"));
    assert_eq!(opened, ["a"]);
}

#[test]
fn outcome_route_order_and_attempts_are_kept() {
    let fork = || {
        plan()
            .action("a", "t")
            .edge("b", When::Success, Some("x"))
            .edge("c", When::Success, Some("y"))
            .then("d")
            .action("b", "t")
            .then("e")
            .action("c", "t")
            .then("e")
            .action("d", "t")
            .then("e")
            .action("e", "t")
    };
    let old = ran(
        fork(),
        [ok("a"), judged("a", [(0, true), (1, false)]), ok("d"), flaky("b", 1)],
    );
    let mut old = old;
    old.at(10_000);
    old.feed_all([
        returned(
            "b",
            2,
            Ok(Output {
                bytes: 9,
                ..Output::EMPTY
            }),
        ),
        bad("e"),
    ]);
    let (live, opened) = old.repeated(fork(), Repeat::Failed);
    assert_eq!(opened, ["e"]);
    assert_eq!(live.states(), "a:ok b:ok c:skipped d:ok e:open");
    let completed = |live: &Live| -> Vec<String> {
        let nodes = live.run.completed().iter();
        nodes.map(|ix| live.run.plan().node(*ix).id.to_string()).collect()
    };
    assert_eq!(completed(&live), ["a", "d", "b"]);
    assert_eq!(live.phase("b"), old.phase("b"));
    assert_eq!(live.open("e").sees, 3);
    let kept = old.kept(fork(), Repeat::Failed).unwrap().unwrap();
    let nodes: Vec<_> = kept.nodes().map(NodeId::to_string).collect();
    assert_eq!(nodes, ["a", "c", "d", "b"]);
}

#[test]
fn waits_requests_and_passes_are_kept_without_effects() {
    let asks = || {
        plan()
            .node("w", wait(Some(5_000)))
            .then("r")
            .request("r", "callback", json!({}), AnswerRule::Any)
            .then("p")
            .node("p", Kind::Pass)
            .then("s")
            .node("s", sleep())
            .then("z")
            .action("z", "t")
    };
    let answered = Fact::Answered {
        node: "r".into(),
        attempt: 1,
        result: Ok(Output::EMPTY),
        chosen: None,
        jitter: 0,
    };
    let mut old = ran(asks(), [callback("w"), ok("r"), answered, timed("s", 10)]);
    old.at(10).feed(Fact::Tick);
    old.feed(bad("z"));
    let (live, opened) = old.repeated(asks(), Repeat::From("z"));
    assert_eq!(opened, ["z"]);
    assert_eq!(outstanding(&live.run), [execute("z", 1, 90_000)]);
    // A callback that was received before its wait opened is kept with the wait.
    let early = || {
        plan()
            .action("a", "t")
            .then("w")
            .node("w", wait(None))
            .then("z")
            .action("z", "t")
    };
    let old = ran(early(), [callback("w"), ok("a"), bad("z")]);
    let (live, opened) = old.repeated(early(), Repeat::Failed);
    assert_eq!(
        (opened, live.states().as_str()),
        (vec!["z".to_owned()], "a:ok w:ok z:open")
    );
}

#[test]
fn nodes_interrupted_by_the_stop_are_repeated() {
    let fork = || {
        plan()
            .action("a", "t")
            .then("b")
            .then("c")
            .action("b", "t")
            .action("c", "t")
            .then("d")
            .action("d", "t")
    };
    // `c` succeeds while the run is stopping: it is kept, and its edges are settled now.
    let old = ran(fork(), [ok("a"), bad("b"), ok("c")]);
    assert_eq!(old.states(), "a:ok b:failed c:ok d:skipped");
    let (live, opened) = old.repeated(fork(), Repeat::Failed);
    assert_eq!(opened, ["b", "d"]);
    assert_eq!(live.states(), "a:ok b:open c:ok d:open");
    // `c` is stopped: it is repeated, whatever was chosen.
    let stopped = returned("c", 1, Err(Failure::permanent(code::CANCELLED, "stopped")));
    let old = ran(fork(), [ok("a"), bad("b"), stopped]);
    for repeat in [Repeat::Failed, Repeat::From("b")] {
        let (_, opened) = old.repeated(fork(), repeat);
        assert_eq!(opened, ["b", "c"], "{repeat:?}");
    }
    // A cancelled run continues where it was.
    let old = ran(fork(), [ok("a"), cancel(), aborted("b", 1), aborted("c", 1)]);
    let (_, opened) = old.repeated(fork(), Repeat::Failed);
    assert_eq!(opened, ["b", "c"]);
}

#[test]
fn failure_of_a_node_that_is_not_repeated_fails_the_run() {
    let two = || plan().action("a", "t").action("b", "t");
    let old = ran(two(), [bad("a"), ok("b")]);
    let (mut live, opened) = old.repeated(two(), Repeat::From("b"));
    assert_eq!(opened, ["b"]);
    live.feed(ok("b"));
    assert_eq!(live.end(), "Failed action_failed");
    assert_eq!(live.run.kept_failure().unwrap().node, NodeId::from("a"));
    // The rerun of the rerun still has this failure, and retries the node.
    let (mut last, opened) = live.repeated(two(), Repeat::Failed);
    assert_eq!(opened, ["a"]);
    last.feed(ok("a"));
    assert_eq!(last.end(), "Succeeded -");
}

#[test]
fn decision_that_failed_the_run_is_repeated() {
    let decide = || plan().node("d", Kind::Pass).with(|node| node.route = Route::ExactlyOne);
    let decide = || decide().edge("x", When::Success, Some("c")).action("x", "t");
    let old = ran(decide(), [judged("d", [(0, false)])]);
    assert_eq!(old.end(), "Failed decision_failed");
    let (live, opened) = old.repeated(decide(), Repeat::Failed);
    assert_eq!(opened, ["d"]);
    assert_eq!(outstanding(&live.run), [judge("d", &[0], false)]);
}

#[test]
fn rerun_of_a_rerun_keeps_what_the_first_kept() {
    let old = ran(chain(), [ok("a"), bad("b")]);
    let (mut second, _) = old.repeated(chain(), Repeat::From("b"));
    second.feed_all([ok("b"), bad("c")]);
    let (third, opened) = second.repeated(chain(), Repeat::Failed);
    assert_eq!(opened, ["c"]);
    assert_eq!(third.states(), "a:ok b:ok c:open");
}

#[test]
fn nodes_that_cannot_be_repeated_are_refused() {
    let fork = || {
        plan()
            .action("a", "t")
            .edge("b", When::Failure, None)
            .then("c")
            .action("b", "t")
            .action("c", "t")
            .then("d")
            .action("d", "t")
    };
    let old = ran(fork(), [ok("a"), bad("c")]);
    let from = |node| refused(old.kept(fork(), Repeat::From(node)));
    assert!(from("x").contains("has no node `x`"), "{}", from("x"));
    assert!(from("b").contains("`b` was not reached"), "{}", from("b"));
    // `c` failed and no edge was taken, so no path leads to `d`.
    assert!(from("d").contains("`d` was not reached"), "{}", from("d"));
    let cut = ran(chain(), [ok("a"), cancel(), aborted("b", 1)]);
    let what = refused(cut.kept(chain(), Repeat::From("c")));
    assert!(what.contains("`b`, which is before `c`, was not finished"), "{what}");
    let done = ran(chain(), [ok("a"), ok("b"), ok("c")]);
    assert_eq!(done.kept(chain(), Repeat::Failed), Err(RerunError::NothingLeft));
    let none = Live::pending(chain());
    let what = refused(none.kept(chain(), Repeat::From("c")));
    assert!(what.contains("`a`, which is before `c`, was not finished"), "{what}");
}

#[test]
fn node_of_another_version_is_kept_only_if_nothing_before_it_changed() {
    let old = ran(chain(), [ok("a"), ok("b"), bad("c")]);
    type Change = fn(PlanBuilder) -> PlanBuilder;
    let changed = |at: usize, change: fn(&mut Node)| chain().plan(move |plan| change(&mut plan.nodes[at]));
    let other_action: fn(&mut Node) = |node| {
        node.kind = Kind::Action {
            action: "other".to_owned(),
            parameters: json!({}),
        };
    };
    // A later node, a title and the order of nodes do not matter.
    let (_, opened) = old.repeated(changed(2, other_action), Repeat::From("c"));
    assert_eq!(opened, ["c"]);
    let (_, opened) = old.repeated(changed(0, |node| node.title = Some("A".to_owned())), Repeat::From("c"));
    assert_eq!(opened, ["c"]);
    let turned = plan()
        .action("c", "t")
        .action("b", "t")
        .then("c")
        .action("a", "t")
        .then("b");
    let (live, opened) = old.repeated(turned, Repeat::From("c"));
    assert_eq!(
        (opened, live.states().as_str()),
        (vec!["c".to_owned()], "c:open b:ok a:ok")
    );
    // Whatever changed before the chosen node is refused.
    let edits: [fn(&mut Node); 5] = [
        other_action,
        |node| node.policies.timeout_ms += 1,
        |node| node.join = Join::All,
        |node| node.route = Route::FirstMatch,
        |node| node.merges_into_state = true,
    ];
    for edit in edits {
        for at in [0, 1] {
            for repeat in [Repeat::From("c"), Repeat::Failed] {
                let what = refused(old.kept(changed(at, edit), repeat));
                assert!(what.contains("is not the same in the version"), "{what}");
            }
        }
    }
    let more: [Change; 2] = [
        |plan| plan.action("n", "t").then("b"),
        |plan| plan.plan(|plan| plan.language = Language::Paths),
    ];
    for change in more {
        let what = refused(old.kept(change(chain()), Repeat::From("c")));
        assert!(what.contains("is not the same in the version"), "{what}");
    }
    // From the changed node on, the old version does not matter.
    let (_, opened) = old.repeated(changed(1, other_action), Repeat::From("b"));
    assert_eq!(opened, ["b"]);
}

#[test]
fn changed_nodes_elsewhere_are_repeated() {
    let two = |action: &str| plan().action("a", "t").then("x").action("x", action).action("b", "t");
    let old = ran(two("t"), [ok("a"), ok("x"), bad("b")]);
    let (_, opened) = old.repeated(two("t"), Repeat::From("b"));
    assert_eq!(opened, ["b"]);
    let (live, opened) = old.repeated(two("other"), Repeat::From("b"));
    assert_eq!(opened, ["x", "b"]);
    assert_eq!(live.states(), "a:ok x:open b:open");
}

#[test]
fn parameters_of_repeated_nodes_are_changed() {
    let plan = || {
        plan()
            .action_with("a", "t", json!({ "url": "u", "n": 1 }))
            .then("w")
            .node("w", wait(None))
    };
    let built = plan().build().unwrap();
    let edits = |node: &str| -> Edits {
        let edit = json!({ "n": 2, "new": "{{ x }}" });
        [(NodeId::from(node), edit.as_object().cloned().unwrap())].into()
    };
    let changed = edited(&built, &edits("a"), None).unwrap();
    let Kind::Action { parameters, .. } = &changed.nodes[0].kind else {
        panic!("not an action");
    };
    assert_eq!(*parameters, json!({ "url": "u", "n": 2, "new": "{{ x }}" }));
    let refused = |node: &str, kept: Option<&Reused>| edited(&built, &edits(node), kept).unwrap_err();
    assert_eq!(refused("x", None), RerunError::UnknownNode("x".to_owned()));
    assert_eq!(refused("w", None), RerunError::NoParameters("w".to_owned()));
    let mut old = ran(plan(), [ok("a")]);
    old.feed(cancel());
    let kept = old.kept(plan(), Repeat::From("w")).unwrap();
    assert_eq!(refused("a", kept.as_deref()), RerunError::NotRepeated("a".to_owned()));
}

#[test]
fn reused_events_are_legal_only_at_the_start_and_of_nodes_that_ended() {
    let old = ran(chain(), [ok("a"), bad("b")]);
    let kept = old.kept(chain(), Repeat::From("b")).unwrap().unwrap();
    let event = |events: Vec<Event>| {
        Event::Reused(Box::new(Reused {
            events,
            ..(*kept).clone()
        }))
    };
    let fresh = || {
        let mut run = Run::new(old.run.plan().clone());
        apply(&mut run, &old.journal()[0]).unwrap();
        run
    };
    let check = |run: &Run, event: Event| {
        let mut next = run.clone();
        let refused = apply(&mut next, &event).is_err();
        assert!(!refused || next == *run, "a refused event changes nothing");
        refused
    };
    assert!(!check(&fresh(), event(kept.events.clone())));
    assert!(
        check(&Run::new(old.run.plan().clone()), event(kept.events.clone())),
        "not started"
    );
    assert!(check(&old.run, event(kept.events.clone())), "begun");
    assert!(check(&fresh(), event(kept.events[..1].to_vec())), "a node that is open");
    assert!(
        check(&fresh(), event(vec![old.journal()[0].clone()])),
        "an event of the run"
    );
    let mut other = kept.events.clone();
    other.extend(kept.events.clone());
    assert!(check(&fresh(), event(other)), "a node twice");
}
