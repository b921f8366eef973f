//! Which edges of a finished node are taken.

use super::decide::stopping;
use crate::{Effect, Event, Failure, Node, NodeIx, OnFailure, Outcome, Phase, Route, Run, Status, Verdict, When, code};
use std::collections::BTreeSet;

/// The evaluation a finished node needs before it can be routed, if any.
pub(super) fn judgement(node: &Node, outcome: &Outcome) -> Option<Effect> {
    let edges: Vec<u32> = open_conditions(node, outcome).collect();
    (!edges.is_empty()).then(|| Effect::Judge {
        node: node.id.clone(),
        edges,
        first_only: node.route == Route::FirstMatch,
    })
}

/// The edges whose conditions must be evaluated, in the order of evaluation: `Unhandled` edges last.
pub(super) fn open_conditions(node: &Node, outcome: &Outcome) -> impl Iterator<Item = u32> {
    let fits = |when| match when {
        When::Always => true,
        When::Success => outcome.is_success(),
        When::Failure | When::Unhandled => !outcome.is_success(),
    };
    let first_only = node.route == Route::FirstMatch;
    let of = |unhandled| {
        let edges = (0u32..).zip(&node.edges);
        edges.filter(move |(_, edge)| fits(edge.when) && (edge.when == When::Unhandled) == unhandled)
    };
    // With first-match, an edge without a condition is always taken, so later edges are not needed.
    let reached = of(false)
        .chain(of(true))
        .take_while(move |(_, edge)| !first_only || edge.condition.is_some());
    reached.filter(|(_, edge)| edge.condition.is_some()).map(|(at, _)| at)
}

/// The events that settle the edges of a finished node.
pub(super) fn route(run: &Run, ix: NodeIx, outcome: &Outcome, verdicts: &[Verdict]) -> Vec<Event> {
    let node = run.plan.node(ix);
    let chosen = match &run.node(ix).phase {
        Phase::Finished { chosen, .. } => chosen.as_deref(),
        _ => None,
    };
    let (taken, undecided) = match taken_edges(node, outcome, chosen, verdicts) {
        Ok(taken) => (taken, None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let handled = outcome.is_success() || !taken.is_empty();
    let mut events = vec![Event::Routed {
        node: node.id.clone(),
        taken,
        verdicts: verdicts.to_vec(),
    }];
    if undecided.is_some() {
        let id = Some(node.id.clone());
        events.push(stopping(Status::Failed, "decision_failed", id, undecided));
    } else if let (false, OnFailure::FailFast, Outcome::Failed(failure)) = (handled, run.plan.on_failure, outcome) {
        let id = Some(node.id.clone());
        events.push(stopping(Status::Failed, "action_failed", id, Some(failure.clone())));
    }
    events
}

/// The satisfied edges, restricted by the route policy. An error if a decision does not lead to exactly one.
fn taken_edges(
    node: &Node,
    outcome: &Outcome,
    chosen: Option<&str>,
    verdicts: &[Verdict],
) -> Result<Vec<u32>, Failure> {
    let true_edges: BTreeSet<u32> = verdicts
        .iter()
        .filter(|verdict| verdict.holds())
        .map(|verdict| verdict.edge)
        .collect();
    let holds = |at: u32, condition: &Option<String>| condition.is_none() || true_edges.contains(&at);
    let satisfied = |wanted: &[When]| -> Vec<u32> {
        let edges = (0u32..).zip(&node.edges);
        let fitting = edges.filter(|(at, edge)| wanted.contains(&edge.when) && holds(*at, &edge.condition));
        fitting.map(|(at, _)| at).collect()
    };
    let mut taken = match outcome {
        Outcome::Succeeded(_) => {
            let satisfied = satisfied(&[When::Success, When::Always]);
            match node.route {
                Route::Parallel | Route::FirstMatch => satisfied,
                Route::Outcome => by_outcome(node, satisfied, chosen)?,
                Route::ExactlyOne => exactly_one(node, satisfied, verdicts)?,
            }
        }
        Outcome::Failed(_) => satisfied(&[When::Failure, When::Always]),
    };
    if !outcome.is_success() {
        let by_failure_edge = taken.iter().any(|at| node.edges[*at as usize].when == When::Failure);
        if !by_failure_edge {
            taken.extend(satisfied(&[When::Unhandled]));
        }
    }
    if node.route == Route::FirstMatch {
        taken.truncate(1);
    }
    Ok(taken)
}

/// The one edge for the outcome that was chosen. A node without edges has nothing to decide.
fn by_outcome(node: &Node, satisfied: Vec<u32>, chosen: Option<&str>) -> Result<Vec<u32>, Failure> {
    let fits = |at: &u32| chosen.is_some() && node.edges[*at as usize].outcome.as_deref() == chosen;
    let taken: Vec<u32> = satisfied.into_iter().filter(fits).collect();
    if taken.len() == 1 || node.edges.is_empty() {
        return Ok(taken);
    }
    let number = if taken.is_empty() {
        "no edge"
    } else {
        "more than one edge"
    };
    let outcome = chosen.map_or("no outcome".to_owned(), |chosen| format!("outcome `{chosen}`"));
    let known: Vec<_> = node.edges.iter().filter_map(|edge| edge.outcome.as_deref()).collect();
    let message = format!(
        "{outcome} was chosen, and {number} of `{}` is for it; its edges are for: {}",
        node.id,
        known.join(", ")
    );
    Err(Failure::permanent(code::UNKNOWN_OUTCOME, message))
}

/// The one edge whose condition is true. A node without edges has nothing to decide.
fn exactly_one(node: &Node, satisfied: Vec<u32>, verdicts: &[Verdict]) -> Result<Vec<u32>, Failure> {
    let to = |edge: u32| format!("the edge number {} of `{}`", edge + 1, node.id);
    if let Some((edge, error)) = verdicts
        .iter()
        .find_map(|verdict| Some((verdict.edge, verdict.error.as_ref()?)))
    {
        let message = format!("the condition of {} could not be evaluated: {error}", to(edge));
        return Err(Failure::permanent(code::CONDITION_EVALUATION_ERROR, message));
    }
    match satisfied.as_slice() {
        [_] => Ok(satisfied),
        [] if node.edges.is_empty() => Ok(satisfied),
        [] => {
            let message = format!("none of the conditions of `{}` is true; exactly one must be", node.id);
            Err(Failure::permanent(code::UNKNOWN_OUTCOME, message))
        }
        several => {
            let edges: Vec<_> = several.iter().map(|edge| (edge + 1).to_string()).collect();
            let message = format!(
                "the conditions of the edges number {} of `{}` are true; exactly one must be",
                edges.join(", "),
                node.id
            );
            Err(Failure::permanent(code::CONDITION_EVALUATION_ERROR, message))
        }
    }
}
