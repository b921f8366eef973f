//! Facts that do not fit their node decide nothing, so that no outsider can end a node that is not theirs.

use super::*;

fn unmoved(live: &mut Live, facts: impl IntoIterator<Item = Fact>) {
    for fact in facts {
        let told = format!("{fact:?}");
        assert!(live.feed(fact).is_empty(), "{told}");
    }
}

#[test]
fn an_unknown_node_is_nobody() {
    let mut live = Live::start(plan().action("a", "t"));
    let facts = [
        ok("x"),
        flaky("x", 1),
        judged("x", [(0, true)]),
        guarded("x", true),
        timed("x", 1),
        callback("x"),
        aborted("x", 1),
    ];
    unmoved(&mut live, facts.clone());
    live.feed(cancel());
    unmoved(&mut live, facts);
}

#[test]
fn an_action_takes_results_only() {
    let mut live = Live::start(plan().action("a", "t").then("b").action("b", "t"));
    unmoved(
        &mut live,
        [callback("a"), timed("a", 1), guarded("a", true), judged("a", [])],
    );
    unmoved(
        &mut live,
        [
            callback("b"),
            timed("b", 1),
            guarded("b", true),
            judged("b", []),
            ok("b"),
        ],
    );
    assert_eq!(live.states(), "a:open b:idle");
}

#[test]
fn a_sleep_takes_its_duration_only() {
    let mut live = Live::start(plan().node("s", sleep()));
    unmoved(
        &mut live,
        [ok("s"), bad("s"), flaky("s", 1), callback("s"), guarded("s", true)],
    );
}

#[test]
fn a_wait_takes_callbacks_only() {
    let mut live = Live::start(plan().node("w", wait(None)));
    unmoved(
        &mut live,
        [ok("w"), bad("w"), flaky("w", 1), timed("w", 1), guarded("w", true)],
    );
}

#[test]
fn a_pending_run_takes_a_start_or_a_cancel_only() {
    let mut live = Live::pending(plan().action("a", "t").node("w", wait(None)));
    unmoved(
        &mut live,
        [ok("a"), callback("w"), Fact::Tick, Fact::Settle, aborted("a", 1)],
    );
    live.feed(Fact::start());
    unmoved(&mut live, [Fact::start()]);
}

#[test]
fn absurd_sizes_do_not_overflow() {
    let huge = Output {
        bytes: u64::MAX,
        shape: Shape::String,
    };
    let plan = plan().action("a", "t").action("b", "t").action("c", "t").plan(|plan| {
        plan.context.mode = plan::SnapshotMode::Full;
        plan.context.overflow_behavior = plan::Overflow::DropOversize;
    });
    let mut live = Live::start(plan);
    live.feed_all(["a", "b", "c"].map(|node| returned(node, 1, Ok(huge))));
    assert_eq!(live.end(), "Succeeded -");
    assert_eq!(snapshot::choose(&live.run).len(), 3);
}
