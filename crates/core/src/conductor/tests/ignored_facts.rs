//! Facts that do not match the kind or phase of their node have no effect.

use super::*;

fn ignored(live: &mut Live, facts: impl IntoIterator<Item = Fact>) {
    for fact in facts {
        let text = format!("{fact:?}");
        assert!(live.feed(fact).is_empty(), "{text}");
    }
}

#[test]
fn facts_for_unknown_nodes_are_ignored() {
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
    ignored(&mut live, facts.clone());
    live.feed(cancel());
    ignored(&mut live, facts);
}

#[test]
fn action_accepts_only_results() {
    let mut live = Live::start(plan().action("a", "t").then("b").action("b", "t"));
    ignored(
        &mut live,
        [callback("a"), timed("a", 1), guarded("a", true), judged("a", [])],
    );
    ignored(
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
fn sleep_accepts_only_its_duration() {
    let mut live = Live::start(plan().node("s", sleep()));
    ignored(
        &mut live,
        [ok("s"), bad("s"), flaky("s", 1), callback("s"), guarded("s", true)],
    );
}

#[test]
fn wait_accepts_only_callbacks() {
    let mut live = Live::start(plan().node("w", wait(None)));
    ignored(
        &mut live,
        [ok("w"), bad("w"), flaky("w", 1), timed("w", 1), guarded("w", true)],
    );
}

#[test]
fn pending_run_accepts_only_start_and_cancel() {
    let mut live = Live::pending(plan().action("a", "t").node("w", wait(None)));
    ignored(
        &mut live,
        [ok("a"), callback("w"), Fact::Tick, Fact::Settle, aborted("a", 1)],
    );
    live.feed(Fact::start());
    ignored(&mut live, [Fact::start()]);
}

#[test]
fn huge_sizes_do_not_overflow() {
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
