//! The end of runs that were not stopped, and the context snapshot (spec §8.4).

use super::*;
use crate::plan::{Overflow, SnapshotMode};
use crate::snapshot::{Keep, choose};

fn relaxed() -> PlanBuilder {
    plan().plan(|plan| plan.on_failure = OnFailure::Continue)
}

/// Sets the join of the node added last.
trait Needs {
    fn guard(self) -> Self;
    fn all(self) -> Self;
}

impl Needs for PlanBuilder {
    fn guard(self) -> Self {
        self.with(|node| node.join = Join::Guard("x".to_owned()))
    }
    fn all(self) -> Self {
        self.with(|node| node.join = Join::All)
    }
}

/// `ok` is independent; `next` and the guarded node `iff` depend on `bad`.
fn tasks() -> PlanBuilder {
    relaxed()
        .action("ok", "t")
        .action("bad", "t")
        .then("next")
        .then("iff")
        .action("next", "t")
        .all()
        .action("iff", "t")
        .guard()
}

#[test]
fn failure_that_skips_a_node_fails_the_run_unless_a_guarded_node_ran() {
    for (runs, end) in [(true, "Succeeded -"), (false, "Failed action_failed")] {
        let mut live = Live::start(tasks());
        live.feed_all([ok("ok"), bad("bad"), guarded("iff", runs), ok("iff")]);
        assert_eq!(live.end(), end, "{}", live.states());
    }
}

#[test]
fn guarded_node_that_fails_still_handles_the_failure() {
    let mut live = Live::start(tasks());
    live.feed_all([ok("ok"), bad("bad"), guarded("iff", true), bad("iff")]);
    assert_eq!(live.end(), "Succeeded -", "`iff` failed but skipped nothing");
}

#[test]
fn failure_that_skips_nothing_is_ignored_if_another_node_succeeded() {
    let plan = || relaxed().action("ok", "t").action("bad", "t");
    let mut live = Live::start(plan());
    live.feed_all([ok("ok"), bad("bad")]);
    assert_eq!(live.end(), "Succeeded -");
    let mut live = Live::start(plan());
    live.feed_all([bad("ok"), bad("bad")]);
    assert_eq!(live.end(), "Failed action_failed", "nothing succeeded");
}

#[test]
fn node_skipped_by_its_guard_does_not_fail_the_run() {
    let plan = relaxed()
        .action("ok", "t")
        .action("bad", "t")
        .then("iff")
        .action("iff", "t")
        .guard();
    let mut live = Live::start(plan);
    live.feed_all([ok("ok"), bad("bad"), guarded("iff", false)]);
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn wait_timeout_counts_as_a_failure() {
    let plan = |guard: bool| {
        let plan = relaxed()
            .action("ok", "t")
            .node("w", wait(Some(10)))
            .then("b")
            .action("b", "t");
        if guard { plan.guard() } else { plan.all() }
    };
    let mut live = Live::start(plan(false));
    live.feed(ok("ok"));
    live.at(10).feed(Fact::Tick);
    assert_eq!(live.end(), "Failed action_failed");
    let mut live = Live::start(plan(true));
    live.feed(ok("ok"));
    live.at(10).feed(Fact::Tick);
    live.feed_all([guarded("b", true), ok("b")]);
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn run_with_all_nodes_skipped_succeeds() {
    let mut live = Live::start(relaxed().action("a", "t").guard().then("b").action("b", "t").all());
    live.feed(guarded("a", false));
    assert_eq!(live.states(), "a:skipped b:skipped");
    assert_eq!(live.end(), "Succeeded -");
}

#[test]
fn deadline_fails_a_run_that_continues_on_failure() {
    let mut live = Live::start(relaxed().plan(|plan| plan.timeout_ms = Some(10)).node("w", wait(None)));
    live.at(10).feed(Fact::Tick);
    assert_eq!(live.end(), "Failed timeout");
}

#[test]
fn results_are_the_succeeded_leaves_in_document_order() {
    let plan = relaxed()
        .action("a", "t")
        .then("b")
        .then("c")
        .then("d")
        .action("b", "t")
        .action("c", "t")
        .action("d", "t");
    let mut live = Live::start(plan);
    live.feed_all([ok("a"), ok("d"), bad("c"), ok("b")]);
    let names: Vec<_> = live
        .run
        .result_nodes()
        .map(|ix| live.run.plan().node(ix).id.clone())
        .collect();
    assert_eq!(names, ["b".into(), "d".into()]);
}

fn sized(bytes: u64) -> Output {
    Output {
        bytes,
        shape: Shape::String,
    }
}

/// A run of `a` (40 bytes), `b` (50) and `c` (10), with `d` failed.
fn finished(mode: SnapshotMode, limit: u64, overflow: Overflow, keys: &[&str]) -> Live {
    let nodes = ["a", "b", "c", "d"].into_iter();
    let plan = nodes.fold(relaxed(), |plan, id| plan.action(id, "t")).plan(|plan| {
        plan.context = plan::ContextPolicy {
            mode,
            keys_to_include: keys.iter().map(|key| (*key).to_owned()).collect(),
            max_context_size_bytes: limit,
            overflow_behavior: overflow,
        };
    });
    let mut live = Live::start(plan);
    live.feed(bad("d"));
    for (id, bytes) in [("a", 40), ("b", 50), ("c", 10)] {
        live.feed(returned(id, 1, Ok(sized(bytes))));
    }
    live
}

fn kept(live: &Live) -> Vec<String> {
    let describe = |(id, keep)| match keep {
        Keep::Whole => format!("{id} whole"),
        Keep::Summary(output) => format!("{id} {} {:?}", output.bytes, output.shape),
    };
    choose(&live.run).into_iter().map(describe).collect()
}

#[test]
fn context_limit_is_inclusive() {
    let live = finished(SnapshotMode::Full, 100, Overflow::Fail, &[]);
    assert_eq!(live.end(), "Succeeded -");
    let live = finished(SnapshotMode::Full, 89, Overflow::Fail, &[]);
    let stop = live.run.stop().expect("a stop");
    assert_eq!(
        (stop.reason.as_str(), stop.node.clone()),
        ("context_overflow", Some("b".into()))
    );
    assert_eq!(stop.failure.as_ref().expect("a failure").code, code::CONTEXT_OVERFLOW);
    assert_eq!(live.end(), "Failed context_overflow");
}

#[test]
fn overflow_by_the_last_output_fails_the_run() {
    assert_eq!(
        finished(SnapshotMode::Full, 99, Overflow::Fail, &[]).end(),
        "Failed context_overflow"
    );
}

#[test]
fn pruned_context_does_not_fail_the_run() {
    for overflow in [Overflow::AutoPruneOldest, Overflow::DropOversize] {
        assert_eq!(finished(SnapshotMode::Full, 5, overflow, &[]).end(), "Succeeded -");
    }
}

#[test]
fn snapshot_follows_mode_and_limit() {
    use Overflow::*;
    use SnapshotMode::*;
    const SUMMARY: &[&str] = &["a 40 String", "b 50 String", "c 10 String"];
    const ALL: &[&str] = &["a whole", "b whole", "c whole"];
    type Case<'a> = (SnapshotMode, u64, Overflow, &'a [&'a str], &'a [&'a str]);
    let table: &[Case] = &[
        (SummaryOnly, 100, Fail, &["a"], SUMMARY),
        (SummaryOnly, 1, AutoPruneOldest, &[], SUMMARY),
        (SummaryOnly, 1, DropOversize, &[], SUMMARY),
        (Full, 100, Fail, &[], ALL),
        (Full, 100, AutoPruneOldest, &[], ALL),
        (Full, 99, AutoPruneOldest, &[], &["b whole", "c whole"]),
        (Full, 60, AutoPruneOldest, &[], &["b whole", "c whole"]),
        (Full, 59, AutoPruneOldest, &[], &["c whole"]),
        (Full, 9, AutoPruneOldest, &[], &[]),
        (Full, 100, DropOversize, &[], ALL),
        (Full, 99, DropOversize, &[], &["a whole", "b whole", "c 10 String"]),
        (Full, 60, DropOversize, &[], &["a whole", "b 50 String", "c whole"]),
        (Full, 9, DropOversize, &[], SUMMARY),
        (
            KeysOnly,
            100,
            Fail,
            &["c", "a", "d", "unknown"],
            &["a whole", "c whole"],
        ),
        (KeysOnly, 50, AutoPruneOldest, &["a", "c"], &["a whole", "c whole"]),
        (KeysOnly, 49, AutoPruneOldest, &["a", "c"], &["c whole"]),
        (KeysOnly, 49, DropOversize, &["a", "c"], &["a whole", "c 10 String"]),
        (KeysOnly, 100, Fail, &[], &[]),
    ];
    for row @ (mode, limit, overflow, keys, expected) in table {
        assert_eq!(kept(&finished(*mode, *limit, *overflow, keys)), *expected, "{row:?}");
    }
}
