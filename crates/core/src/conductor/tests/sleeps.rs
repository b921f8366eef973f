//! Sleep nodes.

use super::*;

fn with_sleep() -> PlanBuilder {
    plan()
        .node("s", sleep())
        .then("b")
        .edge("rescue", When::Failure, None)
        .action("b", "t")
        .action("rescue", "t")
}

#[test]
fn sleep_ends_at_its_tick() {
    let mut live = Live::start(with_sleep());
    assert_eq!(outstanding(&live.run), [Effect::Time { node: "s".into() }]);
    assert!(
        live.at(1_000_000).feed(Fact::Tick).is_empty(),
        "its duration is not known yet"
    );
    assert_eq!(live.at(50).feed(timed("s", 1000)), ["slept s until 1050"]);
    assert_eq!(outstanding(&live.run), [wake(1050)]);
    assert!(live.feed(timed("s", 1)).is_empty(), "a second duration is ignored");
    assert!(live.at(1049).feed(Fact::Tick).is_empty());
    let summary = live.at(1050).feed(Fact::Tick);
    assert_eq!(summary[..3], ["s succeeded with 1", "routed s [0]", "opened b"]);
}

#[test]
fn invalid_duration_fails_the_node() {
    let mut live = Live::start(with_sleep());
    let summary = live.feed(Fact::Timed {
        node: "s".into(),
        duration_ms: Err(Failure::permanent(code::TEMPLATE_ERROR, "no such value")),
    });
    assert_eq!(summary[..2], ["s failed with 1: TEMPLATE_ERROR", "routed s [1]"]);
}

#[test]
fn zero_sleep_ends_at_the_next_tick() {
    let mut live = Live::start(with_sleep());
    live.feed(timed("s", 0));
    assert_eq!(live.feed(Fact::Tick)[0], "s succeeded with 1");
}

#[test]
fn longest_sleep_does_not_overflow() {
    let mut live = Live::start(with_sleep());
    live.feed(timed("s", u64::MAX));
    assert_eq!(live.open("s").until, Some(Timestamp(i64::MAX)));
    assert!(live.at(u64::MAX / 4000).feed(Fact::Tick).is_empty());
}

#[test]
fn one_tick_ends_all_due_timers() {
    let plan = plan().node("s", sleep()).node("w", wait(Some(10))).node("t", sleep());
    let mut live = Live::start(plan.plan(|plan| plan.on_failure = OnFailure::Continue));
    live.feed_all([timed("s", 10), timed("t", 20)]);
    let summary = live.at(15).feed(Fact::Tick);
    assert_eq!(summary[..2], ["s succeeded with 1", "w failed with 1: WAIT_TIMEOUT"]);
    assert_eq!(outstanding(&live.run), [wake(20)]);
}

#[test]
fn sleep_longer_than_its_timeout_fails_at_the_timeout() {
    let limited = |limit| {
        with_sleep().node(
            "t",
            Kind::Sleep {
                action: "core.delay".to_owned(),
                parameters: serde_json::json!({}),
                timeout_ms: Some(limit),
            },
        )
    };
    let mut live = Live::start(limited(300));
    assert_eq!(live.at(50).feed(timed("t", 1000)), ["slept t until 350 to time out"]);
    assert!(live.at(349).feed(Fact::Tick).is_empty());
    assert_eq!(live.at(350).feed(Fact::Tick)[0], "t failed with 1: TIMEOUT");
    let mut live = Live::start(limited(300));
    assert_eq!(live.feed(timed("t", 300)), ["slept t until 300"]);
    assert_eq!(live.at(300).feed(Fact::Tick)[0], "t succeeded with 1");
}
