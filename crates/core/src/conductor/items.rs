//! Decisions about nodes that run one child for each item of a list.

use super::decide::{failed, open_attempt};
use crate::{Event, Failure, Kind, NodeId, NodeIx, OnItemFailure, Open, Ranges, RefusedItems, Run, Timestamp, code};

/// The list was rendered: its length is recorded, the list itself is not.
pub(super) fn listed(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    attempt: u32,
    items: &Result<u32, Failure>,
    jitter: u32,
) -> Vec<Event> {
    let unsent = |ix: NodeIx, open: &Open| run.plan.node(ix).kind.each().is_some() && !open.requested;
    let Some((ix, open)) = open_attempt(run, node, attempt).filter(|(ix, open)| unsent(*ix, open)) else {
        return Vec::new();
    };
    let timeout_ms = match run.plan.node(ix).kind {
        Kind::Request { timeout_ms, .. } => timeout_ms,
        _ => None,
    };
    vec![match items {
        Ok(count) => Event::Requested {
            node: node.clone(),
            attempt,
            until: timeout_ms.map(|millis| at.plus_millis(millis)),
            items: Some(*count),
            queued_ms: None,
        },
        Err(failure) => failed(run, at, ix, open, failure, jitter),
    }]
}

/// Items whose children ended.
pub(super) struct EndedItems<'a> {
    pub succeeded: &'a Ranges,
    pub failed: &'a Ranges,
    pub refused: &'a [RefusedItems],
    pub failure: Option<&'a Failure>,
}

/// One event for all items. Unless the node continues after failures, the first failed item ends the attempt.
pub(super) fn items_ended(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    attempt: u32,
    ended: &EndedItems<'_>,
    jitter: u32,
) -> Vec<Event> {
    let Some((ix, open)) = open_attempt(run, node, attempt) else {
        return Vec::new();
    };
    let (Some(each), Some(items)) = (run.plan.node(ix).kind.each(), &run.node(ix).items) else {
        return Vec::new();
    };
    let is_new = |item: &u32| *item < items.count && !items.has_ended(*item);
    let new = |ranges: &Ranges| ranges.iter().filter(is_new).collect::<Ranges>();
    let (succeeded, failed_items) = (new(ended.succeeded), new(ended.failed));
    if !items.accepts(&succeeded, &failed_items) {
        return Vec::new();
    }
    let refused = ended.refused.iter().map(|refused| RefusedItems {
        items: new(&refused.items),
        failure: refused.failure.clone(),
    });
    let refused = refused.filter(|refused| !refused.items.is_empty()).collect();
    let fails = each.on_item_failure == OnItemFailure::Fail && !failed_items.is_empty();
    let mut events = vec![Event::ItemsEnded {
        node: node.clone(),
        attempt,
        succeeded,
        failed: failed_items,
        refused,
    }];
    if fails {
        let unknown = || Failure::permanent(code::CHILD_FAILED, "the child run of an item failed");
        let failure = ended.failure.cloned().unwrap_or_else(unknown);
        events.push(failed(run, at, ix, open, &failure, jitter));
    }
    events
}
