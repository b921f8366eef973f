//! The effects that a run still needs. They are computed from its state alone, so they are the same live and after a crash.
//!
//! [`outstanding`] returns all of them, for recovery. A live runner knows which nodes its last events affected and calls
//! the other functions for these nodes, so that the cost of a step does not grow with the number of open nodes.

use super::route::judgement;
use crate::{Effect, Join, Kind, NodeId, NodeIx, Phase, Run, Status, Timestamp};

/// All effects that `run` needs now, in a stable order.
pub fn outstanding(run: &Run) -> Vec<Effect> {
    let mut effects = evaluations(run);
    effects.extend(run.active().filter_map(|ix| effect_of(run, ix)));
    effects.extend(next_wake(run).map(|at| Effect::Wake { at }));
    effects
}

/// The conditions that must be evaluated before the run can continue.
pub fn evaluations(run: &Run) -> Vec<Effect> {
    if run.status != Status::Running || !run.goes_on() {
        return Vec::new();
    }
    run.agenda.iter().filter_map(|ix| evaluation(run, *ix)).collect()
}

fn evaluation(run: &Run, ix: NodeIx) -> Option<Effect> {
    let node = run.plan.node(ix);
    match &run.node(ix).phase {
        Phase::Idle => match node.join {
            Join::Guard(_) => Some(Effect::Guard { node: node.id.clone() }),
            Join::Any | Join::All => None,
        },
        Phase::Finished { outcome, .. } => judgement(node, outcome),
        Phase::Open(_) | Phase::Skipped => None,
    }
}

/// The effect that an open node needs.
pub fn effect_of(run: &Run, ix: NodeIx) -> Option<Effect> {
    let Phase::Open(open) = &run.node(ix).phase else {
        return None;
    };
    let kind = &run.plan.node(ix).kind;
    let node = run.plan.node(ix).id.clone();
    let attempt = open.attempt;
    let is_paused = run.paused_at.is_some();
    match (kind, run.stop.is_some()) {
        (Kind::Request { .. }, false) if open.requested => match open.resending.filter(|_| !is_paused) {
            Some(due) => Some(Effect::Execute { node, attempt, due }),
            None => of_items(run, ix, node, attempt),
        },
        (Kind::Action { .. } | Kind::Request { .. }, false) if is_paused => None,
        (Kind::Action { .. } | Kind::Request { .. }, false) => Some(Effect::Execute {
            node,
            attempt,
            due: open.due,
        }),
        (Kind::Action { .. } | Kind::Request { .. }, true) => Some(Effect::Abort { node, attempt }),
        (Kind::Sleep { .. }, false) if open.until.is_none() => Some(Effect::Time { node }),
        (Kind::Sleep { .. } | Kind::Wait { .. } | Kind::Pass, _) => None,
    }
}

/// The effect that a node with one child for each item of a list needs.
fn of_items(run: &Run, ix: NodeIx, node: NodeId, attempt: u32) -> Option<Effect> {
    let items = run.node(ix).items.as_ref()?;
    let each = run.plan.node(ix).kind.each()?;
    match items.is_complete() {
        true => Some(Effect::Collect { node, attempt }),
        false if run.paused_at.is_some() => None,
        false => Some(Effect::StartItems {
            node,
            attempt,
            items: items.next(each.max_concurrency),
        }),
    }
}

/// The next time at which a timer or the deadline of the run is due. Timers of a paused run wait until it is resumed.
pub fn next_wake(run: &Run) -> Option<Timestamp> {
    if run.status != Status::Running || run.stop.is_some() {
        return None;
    }
    let timer = run.timers.first().filter(|_| run.paused_at.is_none());
    let timer = timer.map(|(at, _)| *at);
    timer.into_iter().chain(run.deadline).min()
}
