//! Random plans with random results and crashes, compared with a model of the routing rules.
//!
//! The model (`model/rules.rs`) is written from the specification and does not use the conductor. Given the outcome of each
//! node and the values of conditions, it computes which nodes run. `model/world.rs` performs effects as a runner does, in
//! random order, and sometimes crashes and recovers. Set `PROPTEST_CASES` to run more cases; the default takes a few
//! seconds.

#[path = "model/rules.rs"]
mod rules;
#[path = "model/sketch.rs"]
mod sketch;
#[path = "model/world.rs"]
mod world;

use fermata_core::{
    Event, Fact, Failure, NodeId, Outcome, Output, Phase, RunId, SkipReason, SkippedBy, Status, Timestamp, Verdict,
    rerun::{Repeat, reused},
};
use proptest::prelude::*;
use rules::{Expected, expected};
use sketch::{Sketch, Style};
use world::World;

fn cases() -> u32 {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or(500)
}

/// Mostly small plans, whose failures are easy to read, and some large ones.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1usize..=8, 3 => 9usize..=40, 1 => 41usize..=200]
}

/// Checks what must be true at the end of every run.
fn check_end(world: &World) {
    let run = &world.run;
    assert!(run.status().is_terminal(), "the run ended");
    assert_eq!(world.open_effects(), 0, "no outstanding effects");
    let mut opened = vec![0; world.sketch.nodes.len()];
    for event in &world.journal {
        if let Event::Opened { node, .. } = event {
            opened[world.sketch.at(node)] += 1;
        }
    }
    for (at, times) in opened.into_iter().enumerate() {
        match &run.node(world.sketch.ix(at)).phase {
            Phase::Finished { .. } => assert_eq!(times, 1, "node {at} ran, so its join fired once"),
            Phase::Skipped => assert!(times <= 1, "node {at} was opened {times} times"),
            other => panic!("node {at} ended as {other:?}"),
        }
    }
}

/// Checks that the journal matches the model.
fn check_rules(world: &World) {
    let run = &world.run;
    let sketch = &world.sketch;
    let phase = |at: usize| &run.node(sketch.ix(at)).phase;
    let outcome = |at: usize| match phase(at) {
        Phase::Finished { outcome, .. } => Some(outcome.is_success()),
        _ => None,
    };
    let expected = expected(sketch, outcome);
    for event in &world.journal {
        let Some(at) = event.node().map(|node| sketch.at(node)) else {
            continue;
        };
        match event {
            Event::Opened { .. } => assert!(
                matches!(expected[at], Expected::Runs | Expected::Ran { .. }),
                "{at}: {:?}",
                expected[at]
            ),
            Event::Skipped {
                reason: SkipReason::DeadPath | SkipReason::Guard,
                ..
            } => assert_eq!(expected[at], Expected::Skipped, "{at}"),
            Event::Routed { taken, .. } => match &expected[at] {
                Expected::Ran { taken: expected } => assert_eq!(taken, expected, "{at}"),
                other => panic!("{at} was routed, but the model says {other:?}"),
            },
            Event::Finished {
                outcome: Outcome::Succeeded(_),
                ..
            } => assert_ne!(sketch.nodes[at].will_succeed(), Some(false), "{at}"),
            _ => {}
        }
    }
    let unhandled = |at: usize| outcome(at) == Some(false) && expected[at] == Expected::Ran { taken: vec![] };
    match run.stop() {
        Some(stop) if stop.reason == "action_failed" => {
            let cause = stop.node.as_ref().map(|node| sketch.at(node)).expect("a cause");
            assert!(
                unhandled(cause) && !sketch.relaxed,
                "the failure of {cause} was handled"
            );
            assert_eq!(run.status(), Status::Failed);
        }
        Some(stop) if stop.reason == "decision_failed" => {
            let cause = stop.node.as_ref().map(|node| sketch.at(node)).expect("a cause");
            assert!(
                outcome(cause) == Some(true) && rules::is_undecided(&sketch.nodes[cause]),
                "the decision of {cause} leads to one edge"
            );
            assert_eq!(run.status(), Status::Failed);
        }
        Some(stop) => assert_eq!(run.status(), stop.status),
        None => {
            let undecided = |at: &usize| outcome(*at) == Some(true) && rules::is_undecided(&sketch.nodes[*at]);
            assert_eq!(
                (0..sketch.nodes.len()).find(undecided),
                None,
                "its decision must stop the run"
            );
            let all = 0..sketch.nodes.len();
            for at in all.clone() {
                let skipped = *phase(at) == Phase::Skipped;
                assert_eq!(skipped, expected[at] == Expected::Skipped, "{at}: {:?}", expected[at]);
                if let (Some(success), Some(expected)) = (outcome(at), sketch.nodes[at].will_succeed()) {
                    assert_eq!(success, expected, "{at}: outcome of its attempts");
                }
            }
            let fails = match sketch.relaxed {
                true => rules::relaxed_run_fails(sketch, outcome),
                false => all.into_iter().any(unhandled),
            };
            assert_eq!(run.status() == Status::Failed, fails);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Without faults, a run of any plan follows the rules.
    #[test]
    fn run_follows_the_rules(size in sizes(), seed: u64, relaxed: bool) {
        let style = if relaxed { Style::Relaxed } else { Style::FailFast };
        let mut world = World::new(Sketch::random(size, seed, style), seed);
        world.run_to_end(0);
        check_end(&world);
        check_rules(&world);
        prop_assert!(world.run.stop().is_none_or(|stop| ["action_failed", "decision_failed"].contains(&stop.reason.as_str())));
    }

    /// With pauses, cancels, timeouts, crashes and invalid facts, a run still follows the rules.
    #[test]
    fn run_with_faults_follows_the_rules(size in sizes(), seed: u64, relaxed: bool) {
        let style = if relaxed { Style::Relaxed } else { Style::FailFast };
        let mut world = World::new(Sketch::random(size, seed, style).with_deadline(seed), seed);
        world.run_to_end(20);
        check_end(&world);
        check_rules(&world);
    }

    /// A rerun opens no node that it keeps and none before the chosen one; kept nodes stay as they were; what it may repeat is
    /// the chosen nodes, what they reach, and what had not ended by itself.
    #[test]
    fn rerun_opens_no_kept_node(size in sizes(), seed: u64, relaxed: bool, faults in 0usize..30, chosen: prop::sample::Index, failed: bool) {
        let style = || if relaxed { Style::Relaxed } else { Style::FailFast };
        let sketch = || Sketch::random(size, seed, style()).with_deadline(seed);
        let mut old = World::new(sketch(), seed);
        old.run_to_end(faults);
        let plan = old.run.plan().clone();
        let node = plan.nodes[chosen.index(plan.nodes.len())].id.clone();
        let repeat = if failed { Repeat::Failed } else { Repeat::From(node.as_str()) };
        let Ok(kept) = reused(RunId(uuid::Uuid::nil()), &plan, &old.journal, &plan, repeat) else {
            return Ok(()); // refused: nothing to repeat, or not from there
        };
        let is_kept = |node: &NodeId| kept.as_ref().is_some_and(|kept| kept.nodes().any(|kept| kept == node));
        let mut new = World::new(sketch(), seed.wrapping_add(1));
        let start = Fact::Start { vars: serde_json::json!({}), timeout_ms: None, reused: kept.clone() };
        new.run_from(start, faults);
        prop_assert!(new.run.status().is_terminal());
        for event in &new.journal {
            if let Some(node) = event.node().filter(|_| !matches!(event, Event::Stopping { .. })) {
                let ix = plan.find(node.as_str()).expect("a node");
                // The edges of a node that ended while the old run was stopping are settled now.
                let is_unrouted = matches!(old.run.node(ix).phase, Phase::Finished { routed: false, .. });
                let is_route = is_unrouted && matches!(event, Event::Routed { .. });
                prop_assert!(!is_kept(node) || is_route, "{event:?} of a node that is kept");
            }
        }
        for ix in plan.indices() {
            let id = &plan.node(ix).id;
            if is_kept(id) {
                prop_assert_eq!(ended(&new.run.node(ix).phase), ended(&old.run.node(ix).phase), "{}", id);
            }
            let reaches = plan.node(ix).edges.iter().any(|edge| plan.node(edge.target).id == node);
            prop_assert!(failed || !reaches || is_kept(id), "{id} is before {node}");
        }
        let order = |world: &World| -> Vec<NodeId> {
            let nodes = world.run.completed().iter().map(|ix| plan.node(*ix).id.clone());
            nodes.filter(|node| is_kept(node)).collect()
        };
        prop_assert_eq!(order(&new), order(&old));
    }

    /// No fact, however invalid, breaks a run or prevents its end.
    #[test]
    fn no_fact_breaks_a_run(
        size in 1usize..=30,
        seed: u64,
        facts in prop::collection::vec((fact(), 0u64..5000), 0..60),
    ) {
        let mut world = World::new(Sketch::random(size, seed, Style::FailFast).with_deadline(seed), seed);
        for (fact, later) in facts {
            world.pass(later);
            world.feed(fact);
            world.check_effects();
        }
        world.run_to_end(0);
        if world.run.started_at().is_some() {
            check_end(&world);
        }
        let before = world.run.clone();
        world.pass(1_000_000);
        for fact in [Fact::start(), Fact::Tick, Fact::Settle, Fact::Cancel { reason: "x".to_owned() }] {
            prop_assert!(world.feed(fact).is_empty(), "a terminal run ignores all facts");
        }
        prop_assert!(world.run == before);
    }
}

/// How a node ended: its outcome and last attempt; `None` if it was skipped.
fn ended(phase: &Phase) -> Option<(&Outcome, u32)> {
    match phase {
        Phase::Finished { outcome, attempt, .. } => Some((outcome, *attempt)),
        _ => None,
    }
}

/// Any fact, about nodes that exist and nodes that do not.
fn fact() -> impl Strategy<Value = Fact> {
    let node = || prop_oneof![9 => (0usize..30).prop_map(|at| sketch::name(at).into()), 1 => Just("unknown".into())];
    let output = || {
        any::<u64>().prop_map(|bytes| Output {
            bytes: bytes >> (bytes % 64),
            ..Output::EMPTY
        })
    };
    let failure = || {
        any::<(bool, Option<u64>)>().prop_map(|(retriable, retry_after_ms)| Failure {
            retriable,
            retry_after_ms,
            ..Failure::permanent("X", "x")
        })
    };
    let verdict = || (0u32..6, any::<bool>()).prop_map(|(edge, value)| Verdict::plain(edge, value));
    let attempt = || prop_oneof![4 => Just(1), 3 => 0u32..5, 1 => any::<u32>()];
    prop_oneof![
        1 => Just(Fact::start()),
        9 => (node(), attempt(), prop::result::maybe_ok(output(), failure()), any::<u32>())
            .prop_map(|(node, attempt, result, jitter)| Fact::Returned { node, attempt, result, jitter, queued_ms: None }),
        3 => (node(), prop::collection::vec(verdict(), 0..6))
            .prop_map(|(node, verdicts)| Fact::Judged { node, verdicts }),
        2 => (node(), verdict()).prop_map(|(node, verdict)| Fact::Guarded { node, verdict }),
        2 => (node(), prop::result::maybe_ok(any::<u64>(), failure()))
            .prop_map(|(node, duration_ms)| Fact::Timed { node, duration_ms }),
        2 => Just(Fact::Tick),
        3 => (node(), output()).prop_map(|(node, output)| Fact::Callback { node, output }),
        4 => (node(), attempt(), prop::result::maybe_ok(output(), failure()), prop::option::of("o[0-3]"), any::<u32>())
            .prop_map(|(node, attempt, result, chosen, jitter)| Fact::Answered { node, attempt, result, chosen, jitter }),
        2 => (node(), attempt(), prop::result::maybe_ok(0u32..20, failure()), any::<u32>())
            .prop_map(|(node, attempt, items, jitter)| Fact::Listed { node, attempt, items, jitter }),
        3 => (node(), attempt(), prop::collection::vec(0u32..20, 0..9), prop::collection::vec(0u32..20, 0..3), any::<u32>())
            .prop_map(|(node, attempt, succeeded, failed, jitter)| Fact::ItemsEnded {
                node,
                attempt,
                succeeded: succeeded.into_iter().collect(),
                failed: failed.into_iter().collect(),
                refused: Vec::new(),
                failure: None,
                jitter,
            }),
        1 => Just(Fact::Cancel { reason: "enough".to_owned() }),
        1 => Just(Fact::Pause { at: Timestamp(1) }),
        2 => Just(Fact::Resume { at: Timestamp(2) }),
        2 => (node(), output(), prop::option::of("o[0-3]")).prop_map(|(node, output, chosen)| Fact::Skip {
            node,
            output,
            chosen,
            skipped: SkippedBy { by: None, reason: "x".to_owned() },
        }),
        2 => (node(), attempt()).prop_map(|(node, attempt)| Fact::Resend { node, attempt, at: Timestamp(3) }),
        2 => (node(), attempt()).prop_map(|(node, attempt)| Fact::Aborted { node, attempt }),
        1 => Just(Fact::Settle),
    ]
}
