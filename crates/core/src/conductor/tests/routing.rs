//! Which edges are taken (spec §4.3).

use super::*;

/// `a` with the given edges to `b`, `c`, …
fn branches(route: Route, edges: &[(When, Option<&str>)]) -> PlanBuilder {
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
fn edge_depends_on_outcome_and_condition() {
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
            let mut live = Live::start(branches(route, &[(when, condition.map(|_| "x"))]));
            live.feed(if succeeded { ok("a") } else { bad("a") });
            let evaluated = outstanding(&live.run)
                .iter()
                .any(|effect| matches!(effect, Effect::Judge { .. }));
            let fits = when == Always || (when == Success) == succeeded;
            assert_eq!(evaluated, fits && condition.is_some(), "{row:?}: evaluated");
            if evaluated {
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
    let mut live = Live::start(branches(Route::Parallel, &edges));
    assert_eq!(live.feed(ok("a")), ["a succeeded with 1"]);
    // The failure edge does not apply, so its condition is not evaluated.
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
fn first_match_evaluates_up_to_the_first_unconditional_edge() {
    let edges = [
        (When::Failure, None),
        (When::Success, Some("x")),
        (When::Always, None),
        (When::Success, Some("y")),
    ];
    let mut live = Live::start(branches(Route::FirstMatch, &edges));
    live.feed(ok("a"));
    assert_eq!(outstanding(&live.run), [judge("a", &[1], true)]);
    let before = live.run.clone();
    assert_eq!(live.feed(judged("a", [(1, false)]))[0], "routed a [2]");
    live.run = before;
    live.rows.pop();
    assert_eq!(live.feed(judged("a", [(1, true)]))[0], "routed a [1]");
}

#[test]
fn first_match_uses_document_order() {
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
        let mut live = Live::start(branches(Route::FirstMatch, &edges));
        live.feed(ok("a"));
        let verdicts: Vec<_> = verdicts
            .into_iter()
            .map(|(edge, value)| Verdict::plain(edge, value))
            .collect();
        let summary = live.feed(Fact::Judged {
            node: "a".into(),
            verdicts,
        });
        assert_eq!(summary[0], format!("routed a [{taken}]"));
    }
}

#[test]
fn edge_with_condition_error_is_not_taken_and_records_it() {
    let mut live = Live::start(branches(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Success, None)],
    ));
    live.feed(ok("a"));
    let verdict = Verdict {
        edge: 0,
        value: true, // ignored because of the error
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
fn condition_without_a_verdict_is_false() {
    let mut live = Live::start(branches(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Success, None)],
    ));
    live.feed(ok("a"));
    assert_eq!(live.feed(judged("a", [(7, true)]))[0], "routed a [1]");
}

#[test]
fn verdicts_are_accepted_once() {
    let mut live = Live::start(branches(Route::Parallel, &[(When::Success, Some("x"))]));
    assert!(live.feed(judged("a", [(0, true)])).is_empty(), "before the node ended");
    live.feed(ok("a"));
    live.feed(judged("a", [(0, true)]));
    assert!(live.feed(judged("a", [(0, false)])).is_empty());
    assert_eq!(live.states(), "a:ok b:open");
}

#[test]
fn success_without_satisfied_edges_ends_the_run() {
    let mut live = Live::start(branches(
        Route::Parallel,
        &[(When::Success, Some("x")), (When::Failure, None)],
    ));
    live.feed_all([ok("a"), judged("a", [(0, false)])]);
    assert_eq!(live.end(), "Succeeded -");
    assert_eq!(live.states(), "a:ok b:skipped c:skipped");
}
