//! Joins: when incoming edges open a node, and how dead paths are skipped.

use super::*;

/// `a`, `b` and `c` are roots that lead to `j`.
fn diamond(join: Join) -> PlanBuilder {
    let roots = ["a", "b", "c"].into_iter();
    let plan = roots.fold(plan(), |plan, id| {
        plan.action(id, "t").then("j").edge("rescue", When::Failure, None)
    });
    plan.action("j", "t")
        .with(|node| node.join = join)
        .action("rescue", "t")
}

#[test]
fn joins_fire_only_when_all_edges_are_settled() {
    // How many of three parents succeeded; whether `Any` and `All` fire.
    for (successes, any, all) in [(0, false, false), (1, true, false), (2, true, false), (3, true, true)] {
        for (join, fires) in [(Join::Any, any), (Join::All, all)] {
            let mut live = Live::start(diamond(join.clone()));
            for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
                assert_eq!(*live.phase("j"), Phase::Idle, "{join:?} fired before {id} ended");
                live.feed(if at < successes { ok(id) } else { bad(id) });
            }
            let opened = matches!(live.phase("j"), Phase::Open(_));
            assert_eq!(opened, fires, "{join:?} with {successes}");
            assert_eq!(*live.phase("j") == Phase::Skipped, !fires, "{join:?} with {successes}");
        }
    }
}

#[test]
fn guard_decides_once_all_edges_are_settled() {
    for successes in 0..=3 {
        for value in [true, false] {
            let mut live = Live::start(diamond(Join::Guard("x".to_owned())));
            assert!(live.feed(guarded("j", true)).is_empty(), "too early");
            for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
                let evaluated = outstanding(&live.run).contains(&Effect::Guard { node: "j".into() });
                assert!(!evaluated, "evaluated before {id} ended");
                live.feed(if at < successes { ok(id) } else { bad(id) });
            }
            assert!(outstanding(&live.run).contains(&Effect::Guard { node: "j".into() }));
            let summary = live.feed(guarded("j", value));
            let expected = if value { "opened j" } else { "skipped j (Guard)" };
            assert_eq!(summary[0], expected);
            assert!(
                live.feed(guarded("j", !value)).is_empty(),
                "a second verdict is ignored"
            );
        }
    }
}

#[test]
fn guard_verdict_is_recorded() {
    let verdict = Verdict {
        edge: 0,
        value: false,
        error: Some("no such path".to_owned()),
        saw: [("tasks.a.status".to_owned(), "failed".into())].into_iter().collect(),
    };
    let mut live = Live::start(
        plan()
            .action("g", "t")
            .with(|node| node.join = Join::Guard("x".to_owned())),
    );
    let events = live.events(Fact::Guarded {
        node: "g".into(),
        verdict: verdict.clone(),
    });
    let skipped = Event::Skipped {
        node: "g".into(),
        reason: SkipReason::Guard,
        verdict: Some(verdict),
    };
    assert_eq!(events[0], skipped);
    assert_eq!(live.end(), "Succeeded -", "a run whose nodes are all skipped succeeds");
}

#[test]
fn guard_with_error_is_false() {
    let mut live = Live::start(
        plan()
            .action("g", "t")
            .with(|node| node.join = Join::Guard("x".to_owned())),
    );
    let verdict = Verdict {
        error: Some("over a limit".to_owned()),
        ..Verdict::plain(0, true)
    };
    live.feed(Fact::Guarded {
        node: "g".into(),
        verdict,
    });
    assert_eq!(live.states(), "g:skipped");
}

#[test]
fn roots_open_at_the_start_with_any_join() {
    for join in [Join::Any, Join::All] {
        let live = Live::start(plan().action("a", "t").with(|node| node.join = join));
        assert_eq!(live.states(), "a:open");
    }
}

#[test]
fn two_edges_from_one_node_fire_a_join_once() {
    let mut live = Live::start(
        plan()
            .action("a", "t")
            .then("b")
            .edge("b", When::Always, None)
            .action("b", "t"),
    );
    assert_eq!(
        live.feed(ok("a")),
        ["a succeeded with 1", "routed a [0, 1]", "opened b"]
    );
}

#[test]
fn dead_edge_does_not_block_a_join() {
    // a → b → j, a → c → j; the edge to c is not taken.
    let plan = plan()
        .action("a", "t")
        .then("b")
        .edge("c", When::Success, Some("x"))
        .action("b", "t")
        .then("j")
        .action("c", "t")
        .then("j")
        .action("j", "t");
    let mut live = Live::start(plan);
    live.feed_all([ok("a"), judged("a", [(0, true), (1, false)])]);
    assert_eq!(live.states(), "a:ok b:open c:skipped j:idle");
    live.feed(ok("b"));
    assert_eq!(live.states(), "a:ok b:ok c:skipped j:open");
}

#[test]
fn long_dead_path_is_skipped_in_one_step() {
    const LENGTH: usize = 5000;
    let mut plan = plan().action("a", "t").edge("0", When::Success, Some("x")).then("last");
    for at in 0..LENGTH {
        let next = (at + 1).to_string();
        plan = plan
            .action(&at.to_string(), "t")
            .then(if at + 1 == LENGTH { "last" } else { &next });
    }
    let mut live = Live::start(plan.action("last", "t"));
    live.feed(ok("a"));
    let summary = live.feed(judged("a", [(0, false)]));
    assert_eq!(summary.len(), LENGTH + 2);
    assert_eq!(summary[0], "routed a [1]");
    assert!(summary[1..=LENGTH].iter().all(|line| line.ends_with("(DeadPath)")));
    assert_eq!(summary[LENGTH + 1], "opened last");
}
