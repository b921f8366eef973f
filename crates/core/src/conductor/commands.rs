//! Commands of callers: pause and resume, skip a node that waits, send a request again.
//!
//! | command | the run or node | events |
//! | --- | --- | --- |
//! | pause | neither paused nor stopping | `paused` |
//! | resume | paused | `resumed` |
//! | skip | sleeps, waits for an answer or a child, or waits for its next attempt; the run is not stopping | `finished` |
//! | send again | a request that was sent and waits for its answer; the run is not stopping | `resending` |
//!
//! Otherwise nothing follows: the command came too late.

use super::decide::open_attempt;
use crate::{Event, Kind, NodeId, NodeIx, Outcome, Output, Phase, Run, SkippedBy, Timestamp};

pub(super) fn pause(run: &Run, at: Timestamp) -> Vec<Event> {
    match run.goes_on() {
        true => vec![Event::Paused { at }],
        false => Vec::new(),
    }
}

pub(super) fn resume(run: &Run, at: Timestamp) -> Vec<Event> {
    match run.paused_at {
        Some(_) => vec![Event::Resumed { at }],
        None => Vec::new(),
    }
}

/// Whether an open node waits: for its time, its answer, its child, or its next attempt. An attempt that is due may be
/// running, unless the run was paused before.
pub fn waits(run: &Run, ix: NodeIx, at: Timestamp) -> bool {
    let Phase::Open(open) = &run.node(ix).phase else {
        return false;
    };
    let has_failed = open.last_failure.is_some();
    match run.plan.node(ix).kind {
        Kind::Sleep { .. } | Kind::Wait { .. } => true,
        Kind::Request { .. } if open.requested => true,
        Kind::Action { .. } | Kind::Request { .. } => has_failed && (open.due > at || run.paused_at.is_some()),
        Kind::Pass => false,
    }
}

pub(super) fn skip(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    output: Output,
    chosen: Option<&String>,
    skipped: &SkippedBy,
) -> Vec<Event> {
    let waiting = run.plan.find(node.as_str()).filter(|ix| waits(run, *ix, at));
    let open = waiting.map(|ix| &run.node(ix).phase);
    match open {
        Some(Phase::Open(open)) if run.stop.is_none() => vec![Event::Finished {
            node: node.clone(),
            attempt: open.attempt,
            outcome: Outcome::Succeeded(output),
            chosen: chosen.cloned(),
            skipped: Some(skipped.clone()),
            queued_ms: None,
        }],
        _ => Vec::new(),
    }
}

/// A request that is to be sent again already is sent once.
pub(super) fn resend(run: &Run, node: &NodeId, attempt: u32, at: Timestamp) -> Vec<Event> {
    let sent = open_attempt(run, node, attempt).filter(|(ix, open)| {
        let has_items = run.node(*ix).items.is_some();
        open.requested && open.resending.is_none() && !has_items && run.stop.is_none()
    });
    match sent {
        Some(_) => vec![Event::Resending {
            node: node.clone(),
            attempt,
            at,
        }],
        None => Vec::new(),
    }
}
