//! What a run still needs done, from its state alone: the same live and after a crash.

use super::decide::judgement;
use crate::{Effect, Join, Kind, NodeIx, Open, Phase, Run, Status};

/// Everything to be done or kept going for `run`, in a stable order.
pub fn outstanding(run: &Run) -> Vec<Effect> {
    if run.status != Status::Running {
        return Vec::new();
    }
    let mut effects = Vec::new();
    if run.stop.is_none() {
        effects.extend(run.agenda.iter().filter_map(|ix| evaluation(run, *ix)));
    }
    let mut wake = run.deadline.filter(|_| run.stop.is_none());
    for ix in run.active.iter().copied() {
        let Phase::Open(open) = &run.node(ix).phase else {
            continue;
        };
        if let Some(until) = open.until {
            wake = Some(wake.map_or(until, |at| at.min(until)));
        }
        effects.extend(keep_going(run, ix, open));
    }
    effects.extend(wake.map(|at| Effect::Wake { at }));
    effects
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

fn keep_going(run: &Run, ix: NodeIx, open: &Open) -> Option<Effect> {
    let node = run.plan.node(ix);
    let id = node.id.clone();
    let attempt = open.attempt;
    match (&node.kind, run.stop.is_some()) {
        (Kind::Action { .. }, false) => Some(Effect::Execute {
            node: id,
            attempt,
            due: open.due,
        }),
        (Kind::Action { .. }, true) => Some(Effect::Abort { node: id, attempt }),
        (Kind::Sleep { .. }, false) if open.until.is_none() => Some(Effect::Time { node: id }),
        (Kind::Sleep { .. } | Kind::Wait { .. }, _) => None,
    }
}
