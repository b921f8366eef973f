//! Stops: a cancel, the deadline, an unhandled failure, an exceeded context limit. All four stop a run
//! in the same way.

use super::*;

/// A run with nodes in all phases.
///
/// `running` executes, `again` waits for its second attempt, `asks` has finished and its conditions are not evaluated yet,
/// `untimed` and `sleeps` sleep, `waits` waits, `later` is idle, and `cause` will fail.
fn busy() -> Live {
    let retry = Retry {
        max_attempts: 3,
        jitter: false,
        ..Policies::default().retry
    };
    let plan = plan()
        .plan(|plan| plan.timeout_ms = Some(60_000))
        .plan(|plan| plan.context.max_context_size_bytes = 100)
        .action("running", "t")
        .then("later")
        .action("again", "t")
        .with(|node| node.policies.retry = retry)
        .edge("later", When::Always, None)
        .action("asks", "t")
        .edge("later", When::Success, Some("x"))
        .node("untimed", sleep())
        .node("sleeps", sleep())
        .node("waits", wait(Some(5000)))
        .then("later")
        .action("later", "t")
        .action("cause", "t");
    let mut live = Live::start(plan);
    live.feed_all([flaky("again", 1), ok("asks"), timed("sleeps", 1000)]);
    assert_eq!(
        outstanding(&live.run),
        [
            judge("asks", &[0], false),
            execute("running", 1, 0),
            execute("again", 2, 2000),
            Effect::Time { node: "untimed".into() },
            execute("cause", 1, 0),
            wake(1000),
        ]
    );
    live
}

/// The ways to stop `busy`, with the expected end.
fn stops() -> [(Fact, u64, &'static str); 4] {
    let large = Output {
        bytes: 1000,
        shape: Shape::String,
    };
    [
        (cancel(), 0, "Cancelled cancelled"),
        (Fact::Tick, 60_000, "Failed timeout"),
        (bad("cause"), 0, "Failed action_failed"),
        (returned("cause", 1, Ok(large)), 0, "Failed context_overflow"),
    ]
}

#[test]
fn stop_skips_nodes_without_actions_and_aborts_actions() {
    for (fact, at, end) in stops() {
        let mut live = busy();
        let summary = live.at(at).feed(fact);
        let stopping = format!("stopping {end}");
        assert!(summary.iter().any(|line| line.starts_with(&stopping)), "{summary:?}");
        for node in ["untimed", "sleeps", "waits", "later"] {
            assert!(
                summary.contains(&format!("skipped {node} (Stopped)")),
                "{end}: {summary:?}"
            );
        }
        let mut aborts = vec![abort("running", 1), abort("again", 2)];
        if matches!(live.phase("cause"), Phase::Open(_)) {
            aborts.push(abort("cause", 1));
        }
        assert_eq!(outstanding(&live.run), aborts, "{end}");
        assert_eq!(
            live.run.status(),
            Status::Running,
            "{end}: the run waits for its actions"
        );
    }
}

#[test]
fn results_after_a_stop_are_recorded_but_not_routed() {
    for (fact, at, end) in stops() {
        let mut live = busy();
        live.at(at).feed(fact);
        assert_eq!(live.feed(ok("running")), ["running succeeded with 1"]);
        assert_eq!(
            live.feed(aborted("again", 2)).first().unwrap(),
            "again failed with 1: FLAKY"
        );
        live.feed(aborted("cause", 1));
        assert_eq!(live.end(), end);
        assert!(
            !live.states().contains("idle") && !live.states().contains("open"),
            "{}",
            live.states()
        );
    }
}

#[test]
fn failed_attempt_is_not_retried_after_a_stop() {
    let mut live = busy();
    live.feed(cancel());
    assert_eq!(live.feed(flaky("again", 2)), ["again failed with 2: FLAKY"]);
}

#[test]
fn attempt_that_did_not_start_is_skipped() {
    let mut live = busy();
    live.feed(cancel());
    assert_eq!(live.feed(aborted("running", 1)), ["skipped running (Stopped)"]);
    assert!(live.feed(ok("running")).is_empty(), "a skipped node ignores results");
}

#[test]
fn aborted_is_ignored_without_a_stop_or_for_another_attempt() {
    let mut live = busy();
    assert!(live.feed(aborted("running", 1)).is_empty());
    live.feed(cancel());
    assert!(live.feed(aborted("running", 2)).is_empty());
    assert!(live.feed(aborted("again", 1)).is_empty());
}

#[test]
fn stopping_run_ignores_other_facts() {
    let mut live = busy();
    live.feed(cancel());
    let before = live.run.clone();
    live.at(100_000);
    let facts = [
        callback("waits"),
        callback("later"),
        Fact::Tick,
        judged("asks", [(0, true)]),
        timed("untimed", 1),
        cancel(),
        Fact::start(),
        Fact::Settle,
    ];
    assert!(live.feed_all(facts).is_empty());
    assert_eq!(live.run, before);
}

#[test]
fn failure_edge_is_not_followed_after_a_stop() {
    let plan = plan().action("a", "t").edge("b", When::Failure, None).action("b", "t");
    let mut live = Live::start(plan);
    live.feed(cancel());
    assert_eq!(
        live.feed(bad("a")),
        ["a failed with 1: BAD", "ended Cancelled cancelled"]
    );
}

#[test]
fn pending_guard_is_dropped_by_a_stop() {
    let plan = plan()
        .action("a", "t")
        .action("g", "t")
        .with(|node| node.join = Join::Guard("x".to_owned()));
    let mut live = Live::start(plan);
    assert!(outstanding(&live.run).contains(&Effect::Guard { node: "g".into() }));
    assert!(live.feed(cancel()).contains(&"skipped g (Stopped)".to_owned()));
    assert!(live.feed(guarded("g", true)).is_empty());
    assert_eq!(outstanding(&live.run), [abort("a", 1)]);
}

#[test]
fn run_without_open_actions_ends_at_once() {
    let mut live = Live::start(plan().node("w", wait(None)).then("b").action("b", "t"));
    assert_eq!(
        live.feed(cancel()),
        [
            "stopping Cancelled cancelled",
            "skipped w (Stopped)",
            "skipped b (Stopped)",
            "ended Cancelled cancelled"
        ]
    );
}

#[test]
fn pending_run_is_cancelled_at_once() {
    let mut live = Live::pending(plan().action("a", "t"));
    assert!(outstanding(&live.run).is_empty());
    assert_eq!(live.feed(cancel()), ["ended Cancelled cancelled"]);
    assert!(live.feed(Fact::start()).is_empty());
}

#[test]
fn ended_run_ignores_all_facts() {
    let plan = plan()
        .plan(|plan| plan.timeout_ms = Some(1000))
        .action("a", "t")
        .node("w", wait(None));
    let mut live = Live::start(plan);
    live.feed_all([ok("a"), callback("w")]);
    assert_eq!(live.end(), "Succeeded -");
    let before = live.at(5000).run.clone();
    let facts = [
        cancel(),
        Fact::Tick,
        Fact::Settle,
        Fact::start(),
        ok("a"),
        callback("w"),
        aborted("a", 1),
    ];
    assert!(live.feed_all(facts).is_empty());
    assert_eq!(live.run, before);
    assert!(outstanding(&live.run).is_empty());
}

#[test]
fn deadline_counts_from_the_start_and_wakes_the_run() {
    let mut live = Live::pending(plan().plan(|plan| plan.timeout_ms = Some(1000)).action("a", "t"));
    assert!(
        live.at(400).feed(Fact::Tick).is_empty(),
        "a pending run has no deadline"
    );
    assert_eq!(live.at(500).feed(Fact::start()), ["started until 1500", "opened a"]);
    assert_eq!(outstanding(&live.run), [execute("a", 1, 500), wake(1500)]);
    assert!(live.at(1499).feed(Fact::Tick).is_empty());
    assert_eq!(live.at(1500).feed(Fact::Tick), ["stopping Failed timeout"]);
    let failure = live
        .run
        .stop()
        .and_then(|stop| stop.failure.clone())
        .expect("a failure");
    assert_eq!(failure.code, code::RUN_TIMEOUT);
    assert_eq!(failure.message, "the run did not end within its timeout of 1 s");
}

#[test]
fn deadline_comes_before_other_timers() {
    let mut live = Live::start(
        plan()
            .plan(|plan| plan.timeout_ms = Some(1000))
            .node("w", wait(Some(900))),
    );
    let summary = live.at(2000).feed(Fact::Tick);
    assert_eq!(
        summary,
        ["stopping Failed timeout", "skipped w (Stopped)", "ended Failed timeout"]
    );
}
