//! The rows of a run's waits: tokens of callbacks and deadlines.

use fermata_core::{Event, Kind, Run};
use fermata_store::runs::WaitChange;
use uuid::Uuid;

/// A token for every wait of a run that starts, so that a callback has its address before its node opens.
pub(crate) fn wait_tokens(run: &Run) -> Vec<WaitChange> {
    let nodes = run.plan().nodes.iter();
    let waits = nodes.filter(|node| matches!(node.kind, Kind::Wait { .. }));
    waits
        .map(|node| WaitChange::Open {
            node: node.id.clone(),
            attempt: 1,
            token: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
        })
        .collect()
}

/// The deadline of a wait that this event opens: its own or the run's, whichever is earlier. Later answers are refused.
pub(crate) fn wait_limit(run: &Run, event: &Event) -> Option<WaitChange> {
    let Event::Opened { node, until, .. } = event else {
        return None;
    };
    let ix = run.plan().find(node.as_str())?;
    if !matches!(run.plan().node(ix).kind, Kind::Wait { .. }) {
        return None;
    }
    let deadline = until.iter().copied().chain(run.deadline()).min()?;
    Some(WaitChange::Limit {
        node: node.clone(),
        deadline,
    })
}
