//! Attempts: their numbers, their times, and the context that each of them sees (spec §9.3).

use super::*;

fn retrying(max_attempts: u32, jitter: bool) -> PlanBuilder {
    plan().action("a", "t").with(|node| {
        node.policies.retry = Retry {
            max_attempts,
            base_delay_ms: 2000,
            backoff_factor: 2.0,
            jitter,
        };
    })
}

#[test]
fn attempts_are_counted_and_their_due_times_recorded() {
    let mut live = Live::start(retrying(3, false));
    assert_eq!(outstanding(&live.run), [execute("a", 1, 0)]);
    assert_eq!(live.at(100).feed(flaky("a", 1)), ["retried a after 1 at 2100"]);
    assert_eq!(outstanding(&live.run), [execute("a", 2, 2100)]);
    let last = live.open("a").last_failure.clone().expect("the first attempt failed");
    assert_eq!(last.code, "FLAKY");
    assert_eq!(live.at(2200).feed(flaky("a", 2)), ["retried a after 2 at 6200"]);
    assert_eq!(outstanding(&live.run), [execute("a", 3, 6200)]);
    let summary = live.at(6300).feed(flaky("a", 3));
    assert_eq!(summary[0], "a failed with 3: FLAKY");
    assert_eq!(live.end(), "Failed action_failed");
}

#[test]
fn the_last_attempt_may_succeed() {
    let mut live = Live::start(retrying(2, false));
    live.feed(flaky("a", 1));
    assert_eq!(live.feed(returned("a", 2, Ok(Output::EMPTY)))[0], "a succeeded with 2");
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn permanent_failure_ends_the_node_at_once() {
    let mut live = Live::start(retrying(3, false));
    assert_eq!(live.feed(bad("a"))[0], "a failed with 1: BAD");
}

#[test]
fn jitter_comes_from_the_input() {
    for (jitter, at) in [(0, 0), (u32::MAX / 2, 999), (u32::MAX, 2000)] {
        let mut live = Live::start(retrying(3, true));
        let summary = live.feed(Fact::Returned {
            node: "a".into(),
            attempt: 1,
            result: Err(Failure::retriable("FLAKY", "flaky")),
            jitter,
            queued_ms: None,
        });
        assert_eq!(summary, [format!("retried a after 1 at {at}")]);
    }
}

#[test]
fn time_in_the_queue_is_part_of_the_event_of_its_attempt() {
    let mut live = Live::start(retrying(2, false));
    let returned = |attempt, result, queued_ms| Fact::Returned {
        node: "a".into(),
        attempt,
        result,
        jitter: 0,
        queued_ms,
    };
    let failure = Failure::retriable("FLAKY", "flaky");
    let retried = live.events(returned(1, Err(failure), Some(30)));
    assert!(
        matches!(
            retried[0],
            Event::Retried {
                queued_ms: Some(30),
                ..
            }
        ),
        "{retried:?}"
    );
    let finished = live.events(returned(2, Ok(Output::EMPTY), Some(40)));
    assert!(
        matches!(
            finished[0],
            Event::Finished {
                queued_ms: Some(40),
                ..
            }
        ),
        "{finished:?}"
    );
    assert!(
        live.rows[0].find("queued").is_none(),
        "a start has none: {}",
        live.rows[0]
    );
    assert!(live.rows[1].contains("\"queuedMs\":30"), "{}", live.rows[1]);
}

#[test]
fn results_of_other_attempts_are_ignored() {
    let mut live = Live::start(retrying(4, false));
    live.feed(flaky("a", 1));
    for attempt in [0, 1, 3, u32::MAX] {
        assert!(
            live.feed(returned("a", attempt, Ok(Output::EMPTY))).is_empty(),
            "attempt {attempt}"
        );
        assert!(live.feed(flaky("a", attempt)).is_empty(), "attempt {attempt}");
    }
    assert_eq!(live.open("a").attempt, 2);
}

#[test]
fn result_is_accepted_once() {
    let mut live = Live::start(plan().action("a", "t").then("b").action("b", "t"));
    live.feed(ok("a"));
    assert!(live.feed(ok("a")).is_empty());
    assert!(live.feed(bad("a")).is_empty());
}

#[test]
fn attempts_see_the_context_of_the_opening() {
    // c opens after a; b ends while c is open.
    let plan = plan()
        .action("a", "t")
        .then("c")
        .action("b", "t")
        .action("c", "t")
        .then("d")
        .action("d", "t");
    let mut live = Live::start(plan);
    assert_eq!((live.open("a").sees, live.open("b").sees), (0, 0));
    live.feed(ok("a"));
    assert_eq!(live.open("c").sees, 1);
    live.feed(ok("b"));
    assert_eq!(live.open("c").sees, 1, "nodes that ended later are not visible");
    live.feed(flaky("c", 1));
    assert_eq!(live.open("c").sees, 1, "a retry sees the same context");
    assert!(live.feed(begins("c", 2)).is_empty(), "its start is not recorded");
    live.feed(returned("c", 2, Ok(Output::EMPTY)));
    assert_eq!(live.open("d").sees, 3);
    let names: Vec<_> = live
        .run
        .completed()
        .iter()
        .map(|ix| live.run.plan().node(*ix).id.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn run_waiting_for_a_retry_has_not_ended() {
    let mut live = Live::start(retrying(2, false));
    live.feed_all([flaky("a", 1), Fact::Settle, Fact::Tick]);
    assert_eq!(live.run.status(), Status::Running);
}

#[test]
fn rerendered_attempt_sees_the_context_of_its_start() {
    let plan = plan()
        .action("a", "t")
        .with(|node| node.policies.rerender_on_retry = true)
        .action("b", "t")
        .action("c", "t");
    let mut live = Live::start(plan);
    assert!(
        !live.run.must_record_start(NodeIx(0)),
        "the first attempt sees the opening"
    );
    assert!(live.feed(begins("a", 1)).is_empty());
    live.feed_all([ok("b"), flaky("a", 1)]);
    assert!(live.run.must_record_start(NodeIx(0)));
    live.feed(ok("c"));
    assert_eq!(live.at(2000).feed(begins("a", 2)), ["began a with 2"]);
    assert_eq!(live.open("a").sees, 2, "including nodes that ended while it waited");
    assert!(!live.run.must_record_start(NodeIx(0)));
    assert!(live.feed(begins("a", 2)).is_empty(), "it is recorded once");
    live.feed(flaky("a", 2));
    assert!(
        live.run.must_record_start(NodeIx(0)),
        "the next attempt must be recorded as well"
    );
}

#[test]
fn no_attempt_begins_after_a_stop() {
    let mut live = Live::start(
        retrying(3, false)
            .with(|node| node.policies.rerender_on_retry = true)
            .action("b", "t"),
    );
    live.feed_all([flaky("a", 1), cancel()]);
    assert!(live.feed(begins("a", 2)).is_empty());
}
