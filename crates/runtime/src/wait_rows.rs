//! The rows of everything in a run that accepts one answer: waits and requests.

use fermata_core::{Event, Kind, NodeId, Plan, Reused, Run, Timestamp};
use fermata_store::runs::WaitChange;
use std::collections::HashSet;
use uuid::Uuid;

/// A token for every wait of a run that starts, so that a callback has its address before its node opens. Waits that the run
/// keeps of an earlier run are over and have none.
pub(crate) fn wait_tokens(run: &Run, reused: Option<&Reused>) -> Vec<WaitChange> {
    let kept: HashSet<&NodeId> = reused.iter().flat_map(|reused| reused.nodes()).collect();
    let nodes = run.plan().nodes.iter();
    let waits = nodes.filter(|node| matches!(node.kind, Kind::Wait { .. }) && !kept.contains(&node.id));
    waits.map(|node| opened(&node.id, 1)).collect()
}

fn opened(node: &NodeId, attempt: u32) -> WaitChange {
    WaitChange::Open {
        node: node.clone(),
        attempt,
        token: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
    }
}

/// The rows that an event opens and limits. Every attempt of a request has its own token; only answers to the last one count.
/// The deadline of a row is its own or the run's, whichever is earlier. Later answers are refused.
pub(crate) fn wait_changes(run: &Run, event: &Event) -> Vec<WaitChange> {
    let plan = run.plan();
    let limit = |node: &NodeId, until: &Option<Timestamp>| {
        let deadline = until.iter().copied().chain(run.deadline()).min();
        deadline.map(|deadline| WaitChange::Limit {
            node: node.clone(),
            deadline,
        })
    };
    match event {
        Event::Opened { node, until, .. } if is_wait(plan, node) => limit(node, until).into_iter().collect(),
        Event::Opened { node, .. } if takes_answer(plan, node) => vec![opened(node, 1)],
        Event::Retried { node, attempt, .. } if takes_answer(plan, node) => {
            vec![WaitChange::Close { node: node.clone() }, opened(node, attempt + 1)]
        }
        Event::Requested { node, until, .. } if takes_answer(plan, node) => limit(node, until).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether the node waits for a callback and sends nothing.
pub(crate) fn is_wait(plan: &Plan, node: &NodeId) -> bool {
    let ix = plan.find(node.as_str());
    ix.is_some_and(|ix| matches!(plan.node(ix).kind, Kind::Wait { .. }))
}

/// Whether the node is a request that is answered from outside. A child run answers without a token.
pub(crate) fn takes_answer(plan: &Plan, node: &NodeId) -> bool {
    let ix = plan.find(node.as_str());
    ix.is_some_and(|ix| matches!(&plan.node(ix).kind, Kind::Request { answer, .. } if !answer.is_child()))
}
