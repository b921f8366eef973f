//! Failures: failure edges, `onFailure`, fail-fast (spec §9.4).

use super::*;

/// `a` with a failure edge, an always edge and `onFailure`, the first two conditional.
fn rescue(route: Route) -> PlanBuilder {
    plan()
        .action("a", "t")
        .with(|node| node.route = route)
        .edge("fail", When::Failure, Some("x"))
        .edge("always", When::Always, Some("y"))
        .edge("rescue", When::Unhandled, None)
        .action("fail", "t")
        .action("always", "t")
        .action("rescue", "t")
}

#[test]
fn on_failure_handles_failures_without_a_satisfied_failure_edge() {
    use Route::{FirstMatch, Parallel};
    let table = [
        // route, failure edge, always edge, taken
        (Parallel, false, false, "[2]"),
        (Parallel, false, true, "[1, 2]"),
        (Parallel, true, false, "[0]"),
        (Parallel, true, true, "[0, 1]"),
        (FirstMatch, false, false, "[2]"),
        (FirstMatch, false, true, "[1]"),
        (FirstMatch, true, false, "[0]"),
        (FirstMatch, true, true, "[0]"),
    ];
    for row @ (route, failure, always, taken) in table {
        let mut live = Live::start(rescue(route));
        live.feed(bad("a"));
        let judge_all = judge("a", &[0, 1], route == FirstMatch);
        assert_eq!(outstanding(&live.run), [judge_all], "{row:?}");
        let summary = live.feed(judged("a", [(0, failure), (1, always)]));
        assert_eq!(summary[0], format!("routed a {taken}"), "{row:?}");
        assert!(live.run.stop().is_none(), "a taken route handles the failure");
    }
}

#[test]
fn on_failure_is_not_taken_on_success() {
    for route in [Route::Parallel, Route::FirstMatch] {
        let mut live = Live::start(rescue(route));
        live.feed(ok("a"));
        assert_eq!(outstanding(&live.run), [judge("a", &[1], route == Route::FirstMatch)]);
        assert_eq!(live.feed(judged("a", [(1, false)]))[0], "routed a []");
        assert_eq!(live.end(), "Succeeded -");
    }
}

#[test]
fn on_failure_is_evaluated_last() {
    for condition in [None, Some("z")] {
        let plan = plan()
            .action("a", "t")
            .with(|node| node.route = Route::FirstMatch)
            .edge("rescue", When::Unhandled, condition)
            .edge("fail", When::Failure, Some("x"))
            .action("rescue", "t")
            .action("fail", "t");
        let mut live = Live::start(plan);
        live.feed(bad("a"));
        let evaluated = if condition.is_some() { vec![1, 0] } else { vec![1] };
        assert_eq!(outstanding(&live.run), [judge("a", &evaluated, true)]);
        assert_eq!(live.feed(judged("a", [(1, true)]))[0], "routed a [1]");
    }
}

#[test]
fn handled_failure_lets_the_run_succeed() {
    let plan = plan()
        .action("a", "t")
        .edge("b", When::Unhandled, None)
        .action("b", "t");
    let mut live = Live::start(plan);
    assert_eq!(
        live.feed(bad("a")),
        ["a failed with 1: BAD", "routed a [0]", "opened b"]
    );
    live.feed(ok("b"));
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn unhandled_failure_stops_the_run_and_records_its_cause() {
    let mut live = Live::start(plan().action("a", "t").then("b").action("b", "t"));
    assert_eq!(
        live.feed(bad("a")),
        [
            "a failed with 1: BAD",
            "routed a []",
            "stopping Failed action_failed by a",
            "skipped b (Stopped)",
            "ended Failed action_failed"
        ]
    );
    let stop = live.run.stop().expect("a stop");
    assert_eq!(stop.failure.as_ref().map(|failure| failure.code.as_str()), Some("BAD"));
}

#[test]
fn failure_of_the_last_node_fails_the_run() {
    let mut live = Live::start(plan().action("a", "t"));
    live.feed(bad("a"));
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn continue_skips_only_the_paths_after_the_failure() {
    let plan = plan()
        .plan(|plan| plan.on_failure = OnFailure::Continue)
        .action("a", "t")
        .then("b")
        .action("b", "t")
        .action("c", "t")
        .then("d")
        .action("d", "t");
    let mut live = Live::start(plan);
    live.feed_all([bad("a"), ok("c")]);
    assert_eq!(live.states(), "a:failed b:skipped c:ok d:open");
    assert!(live.run.stop().is_none());
}

#[test]
fn only_the_first_of_two_failures_stops_the_run() {
    let mut live = Live::start(plan().action("a", "t").action("b", "t"));
    live.feed(bad("a"));
    assert_eq!(
        live.feed(bad("b")),
        ["b failed with 1: BAD", "ended Failed action_failed"]
    );
    assert_eq!(live.run.stop().and_then(|stop| stop.node.clone()), Some("a".into()));
}
