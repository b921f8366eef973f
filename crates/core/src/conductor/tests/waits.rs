//! Nodes that wait for a callback.

use super::*;

fn held(timeout_ms: Option<u64>) -> PlanBuilder {
    plan()
        .node("w", wait(timeout_ms))
        .then("b")
        .edge("late", When::Failure, None)
        .action("b", "t")
        .action("late", "t")
}

fn of(bytes: u64) -> Fact {
    Fact::Callback {
        node: "w".into(),
        output: Output {
            bytes,
            shape: Shape::String,
        },
    }
}

fn answer(live: &Live) -> u64 {
    match live.phase("w") {
        Phase::Finished {
            outcome: Outcome::Succeeded(output),
            ..
        } => output.bytes,
        other => panic!("not answered but {other:?}"),
    }
}

#[test]
fn callback_ends_the_wait_with_its_payload() {
    let mut live = Live::start(held(Some(1000)));
    assert_eq!(outstanding(&live.run), [wake(1000)]);
    let summary = live.feed(of(7));
    assert_eq!(
        summary,
        [
            "w succeeded with 1",
            "routed w [0]",
            "opened b",
            "skipped late (DeadPath)"
        ]
    );
    assert_eq!(answer(&live), 7);
}

#[test]
fn second_callback_is_ignored() {
    let mut live = Live::start(held(None));
    live.feed(of(7));
    assert!(live.feed(of(8)).is_empty());
    assert_eq!(answer(&live), 7);
}

#[test]
fn wait_times_out_without_a_callback() {
    let mut live = Live::start(held(Some(1000)));
    assert!(live.at(999).feed(Fact::Tick).is_empty());
    let summary = live.at(1000).feed(Fact::Tick);
    let expected = [
        "w failed with 1: WAIT_TIMEOUT",
        "routed w [1]",
        "skipped b (DeadPath)",
        "opened late",
    ];
    assert_eq!(summary, expected);
    let Phase::Finished {
        outcome: Outcome::Failed(failure),
        ..
    } = live.phase("w")
    else {
        panic!("{:?}", live.phase("w"));
    };
    assert_eq!(failure.message, "the wait timed out after 1 s without a callback");
    assert!(live.feed(of(7)).is_empty(), "too late");
}

#[test]
fn wait_without_timeout_ends_at_the_deadline() {
    let mut live = Live::start(held(None).plan(|plan| plan.timeout_ms = Some(5000)));
    assert_eq!(outstanding(&live.run), [wake(5000)]);
    assert!(live.at(4999).feed(Fact::Tick).is_empty());
    assert_eq!(live.at(5000).feed(Fact::Tick)[0], "stopping Failed timeout");
    assert_eq!(live.end(), "Failed timeout");
}

#[test]
fn early_callback_is_kept_and_used() {
    let mut live = Live::start(
        plan()
            .action("a", "t")
            .then("w")
            .node("w", wait(Some(10)))
            .then("b")
            .action("b", "t"),
    );
    assert_eq!(live.feed(of(7)), ["answered w"]);
    assert!(live.feed(of(8)).is_empty(), "the first answer counts");
    assert_eq!(
        live.feed(ok("a")),
        [
            "a succeeded with 1",
            "routed a [0]",
            "opened w until 10",
            "w succeeded with 1",
            "routed w [0]",
            "opened b"
        ]
    );
    assert_eq!(answer(&live), 7);
}

#[test]
fn early_callback_does_not_open_a_skipped_node() {
    let plan = plan()
        .action("a", "t")
        .edge("w", When::Failure, None)
        .node("w", wait(None));
    let mut live = Live::start(plan);
    live.feed_all([callback("w"), ok("a")]);
    assert_eq!(live.states(), "a:ok w:skipped");
}

#[test]
fn early_callback_waits_for_the_guard() {
    let mut live = Live::start(
        plan()
            .node("w", wait(None))
            .with(|node| node.join = Join::Guard("x".to_owned())),
    );
    assert_eq!(live.feed(callback("w")), ["answered w"]);
    assert_eq!(outstanding(&live.run), [Effect::Guard { node: "w".into() }]);
    let summary = live.feed(guarded("w", true));
    assert_eq!(
        summary,
        ["opened w", "w succeeded with 1", "routed w []", "ended Succeeded -"]
    );
}

#[test]
fn wait_timeout_counts_from_the_opening() {
    let mut live = Live::start(plan().action("a", "t").then("w").node("w", wait(Some(1000))));
    assert_eq!(live.at(300).feed(ok("a"))[2], "opened w until 1300");
    assert_eq!(outstanding(&live.run), [wake(1300)]);
}

#[test]
fn run_wakes_for_the_earliest_timer() {
    let plan = plan()
        .plan(|plan| plan.timeout_ms = Some(700))
        .node("v", wait(Some(900)))
        .node("w", wait(Some(800)));
    assert_eq!(outstanding(&Live::start(plan.clone()).run), [wake(700)]);
    let plan = plan.plan(|plan| plan.timeout_ms = Some(1000));
    assert_eq!(outstanding(&Live::start(plan).run), [wake(800)]);
}
