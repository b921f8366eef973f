//! Which edges are taken (spec §4.3, semantics 9).

use super::*;

/// `a` with edges to `b`, `c`, … as given.
fn fan(route: Route, edges: &[(When, Option<&str>)]) -> PlanBuilder {
    let names = ["b", "c", "d", "e"];
    let mut plan = plan().action("a", "t").with(|node| node.route = route);
    for (name, (when, condition)) in names.iter().zip(edges) {
        plan = plan.edge(name, *when, *condition);
    }
    names[..edges.len()]
        .iter()
        .fold(plan, |plan, name| plan.action(name, "t"))
}

#[test]
fn when_condition_and_outcome_decide_an_edge() {
    use When::*;
    let table = [
        // when, condition, succeeded, taken
        (Success, None, true, true),
        (Success, None, false, false),
        (Success, Some(true), true, true),
        (Success, Some(false), true, false),
        (Success, Some(true), false, false),
        (Success, Some(false), false, false),
        (Failure, None, true, false),
        (Failure, None, false, true),
        (Failure, Some(true), true, false),
        (Failure, Some(false), true, false),
        (Failure, Some(true), false, true),
        (Failure, Some(false), false, false),
        (Always, None, true, true),
        (Always, None, false, true),
        (Always, Some(true), true, true),
        (Always, Some(false), true, false),
        (Always, Some(true), false, true),
        (Always, Some(false), false, false),
        (Unhandled, None, true, false),
        (Unhandled, None, false, true),
        (Unhandled, Some(true), true, false),
        (Unhandled, Some(false), true, false),
        (Unhandled, Some(true), false, true),
        (Unhandled, Some(false), false, false),
    ];
    for route in [Route::Parallel, Route::FirstMatch] {
        for row @ (when, condition, succeeded, taken) in table {
            let mut live = Live::start(fan(route, &[(when, condition.map(|_| "x"))]));
            live.feed(if succeeded { ok("a") } else { bad("a") });
            let asked = outstanding(&live.run)
                .iter()
                .any(|effect| matches!(effect, Effect::Judge { .. }));
            let fits = when == Always || (when == Success) == succeeded;
            assert_eq!(asked, fits && condition.is_some(), "{row:?}: asked");
            if asked {
                live.feed(judged("a", [(0, condition == Some(true))]));
            }
            let state = match taken {
                true => "open",
                false => "skipped",
            };
            assert!(live.states().ends_with(state), "{row:?}: {}", live.states());
            assert_eq!(live.run.stop().is_some(), !succeeded && !taken, "{row:?}: stopped");
        }
    }
}

#[test]
fn parallel_takes_every_satisfied_edge() {
    let edges = [
        (When::Success, None),
        (When::Success, Some("x")),
        (When::Failure, Some("y")),
        (When::Always, Some("z")),
    ];
    let mut live = Live::start(fan(Route::Parallel, &edges));
    assert_eq!(live.feed(ok("a")), ["a succeeded with 1"]);
    // The condition of the failure edge does not matter, so nobody is asked for it.
    assert_eq!(outstanding(&live.run), [judge("a", &[1, 3], false)]);
    assert_eq!(
        live.feed(judged("a", [(1, false), (3, true)])),
        [
            "routed a [0, 3]",
            "opened b",
            "skipped c (DeadPath)",
            "skipped d (DeadPath)",
            "opened e"
        ]
    );
    assert_eq!(outstanding(&live.run), [execute("b", 1, 0), execute("e", 1, 0)]);
}

#[test]
fn first_match_takes_one_and_asks_no_further_than_an_unconditional_edge() {
    let edges = [
        (When::Failure, None),
        (When::Success, Some("x")),
        (When::Always, None),
        (When::Success, Some("y")),
    ];
    let mut live = Live::start(fan(Route::FirstMatch, &edges));
    live.feed(ok("a"));
    assert_eq!(outstanding(&live.run), [judge("a", &[1], true)]);
    let before = live.run.clone();
    assert_eq!(live.feed(judged("a", [(1, false)]))[0], "routed a [2]");
    live.run = before;
    live.rows.pop();
    assert_eq!(live.feed(judged("a", [(1, true)]))[0], "routed a [1]");
}

#[test]
fn first_match_is_in_document_order() {
    let edges = [
        (When::Success, Some("x")),
        (When::Success, Some("y")),
        (When::Success, None),
    ];
    for (verdicts, taken) in [
        (vec![(0, true)], 0),
        (vec![(0, false), (1, true)], 1),
        (vec![(0, false), (1, false)], 2),
        (vec![(0, true), (1, true)], 0),
    ] {
        let mut live = Live::start(fan(Route::FirstMatch, &edges));
        live.feed(ok("a"));
        let verdicts: Vec<_> = verdicts
            .into_iter()
            .map(|(edge, value)| Verdict::plain(edge, value))
            .collect();
        let story = live.feed(Fact::Judged {
            node: "a".into(),
            verdicts,
        });
        assert_eq!(story[0], format!("routed a [{taken}]"));
    }
}

#[test]
fn an_edge_whose_condition_failed_is_not_taken_and_says_why() {
    let mut live = Live::start(fan(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Success, None)],
    ));
    live.feed(ok("a"));
    let verdict = Verdict {
        edge: 0,
        value: true, // whatever came of it: with an error it is not true
        error: Some("over the limit of 500 statements".to_owned()),
        saw: serde_json::Map::new(),
    };
    let events = live.events(Fact::Judged {
        node: "a".into(),
        verdicts: vec![verdict.clone()],
    });
    let recorded = Event::Routed {
        node: "a".into(),
        taken: vec![1],
        verdicts: vec![verdict],
    };
    assert_eq!(events[0], recorded);
}

#[test]
fn a_condition_nobody_answered_is_false() {
    let mut live = Live::start(fan(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Success, None)],
    ));
    live.feed(ok("a"));
    assert_eq!(live.feed(judged("a", [(7, true)]))[0], "routed a [1]");
}

#[test]
fn verdicts_are_taken_once() {
    let mut live = Live::start(fan(Route::Parallel, &[(When::Success, Some("x"))]));
    assert!(live.feed(judged("a", [(0, true)])).is_empty(), "before the node ended");
    live.feed(ok("a"));
    live.feed(judged("a", [(0, true)]));
    assert!(live.feed(judged("a", [(0, false)])).is_empty());
    assert_eq!(live.states(), "a:ok b:open");
}

#[test]
fn a_success_that_satisfies_no_edge_ends_the_run_well() {
    let mut live = Live::start(fan(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Failure, None)],
    ));
    live.feed_all([ok("a"), judged("a", [(0, false)])]);
    assert_eq!(live.end(), "Succeeded -");
    assert_eq!(live.states(), "a:ok b:skipped c:skipped");
}
