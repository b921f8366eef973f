//! Child runs, as the driver of their parent sees them: their ends, and their cancels.

use super::{
    Driver, StepError,
    items::{FailedItem, ItemRuns},
    step::Step,
};
use crate::engine::child_request_id;
use fermata_core::{Failure, NodeIx, Phase, Ranges, RunId, Status, Timestamp, code};
use fermata_store::children::{EndedChild, NodeAttempt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Ends of children that are read at once.
const READ_AT_ONCE: u32 = 500;

#[derive(Default)]
pub(super) struct ChildRuns {
    /// Whether ended children must be read after the commit: no new message is stored while one is unread.
    pub read_again: bool,
    /// Nodes that run one child for each item of a list.
    pub items: ItemRuns,
    /// A run that waits for a child stays in memory until then.
    linger_until: Option<Timestamp>,
}

impl Driver {
    pub(super) fn is_child(&self, ix: NodeIx) -> bool {
        self.compiled.plan.node(ix).kind.awaits_children()
    }

    /// Whether a node waits for its child.
    pub(super) fn awaits_children(&self) -> bool {
        let requested = |ix| matches!(&self.run.node(ix).phase, Phase::Open(open) if open.requested);
        self.run.active().any(|ix| self.is_child(ix) && requested(ix))
    }

    /// Decides the ends of awaited children that the run has not seen. Their marks are removed with the commit.
    pub(super) async fn take_ended_children(&mut self, step: &mut Step) -> Result<(), StepError> {
        let ended = self.shared.store.ended_children(self.meta.id, READ_AT_ONCE).await;
        let ended = ended.map_err(|error| self.read_failed(&error, step))?;
        self.children.read_again |= !ended.is_empty();
        let seen: BTreeSet<_> = step.children_seen.iter().copied().collect();
        let mut items: BTreeMap<(NodeIx, u32), (Ranges, Vec<FailedItem>)> = BTreeMap::new();
        for child in ended.into_iter().filter(|child| !seen.contains(&child.run)) {
            step.children_seen.push(child.run);
            let ix = self.compiled.plan.find(child.node.as_str());
            let Some(ix) = ix.filter(|ix| self.is_child(*ix) && self.is_open(*ix, child.attempt)) else {
                continue; // the node timed out, or its run is stopping
            };
            if let Some(item) = child.item {
                let (succeeded, failed) = items.entry((ix, child.attempt)).or_default();
                match result_of(&child, false) {
                    Ok(_) => succeeded.insert(item),
                    Err(failure) => failed.push(FailedItem {
                        item,
                        failure,
                        refused: false,
                    }),
                }
                continue;
            }
            let merges = self.compiled.plan.node(ix).merges_into_state;
            let fact = self
                .answered(ix, child.attempt, result_of(&child, merges), None, step)
                .await?;
            self.advance(fact, None, step).await?;
        }
        for ((ix, attempt), (succeeded, failed)) in items {
            self.items_ended(ix, attempt, succeeded, failed, step).await?;
        }
        Ok(())
    }

    /// Cancels the child of an attempt, if it was started; all children if there is one for each item of a list.
    pub(super) async fn cancel_child(&mut self, ix: NodeIx, attempt: u32, step: &Step) -> Result<(), StepError> {
        let node = self.compiled.plan.node(ix).id.clone();
        let shared = self.shared.clone();
        let cancelled = match self.each(ix).is_some() {
            true => {
                let of = NodeAttempt {
                    run: self.meta.id,
                    node,
                    attempt,
                };
                shared.cancel_children_of(&of, "parent_ended").await
            }
            false => {
                let request_id = child_request_id(self.meta.id, &node, attempt, None);
                shared.cancel_child(&self.meta.tenant, request_id, "parent_ended").await
            }
        };
        cancelled.map_err(|error| self.read_failed(&error, step))
    }

    /// Notes that a child was started at `now`.
    pub(super) fn linger(&mut self, now: Timestamp) {
        let pause = self.shared.settings.park_after.as_millis() as u64;
        self.children.linger_until = Some(now.plus_millis(pause));
    }

    /// Until when the run stays in memory because it waits for a child. This time may have passed during a slow commit: then
    /// the run must be decided again, or it would never be parked.
    pub(super) fn lingers_until(&self) -> Option<Timestamp> {
        let until = self.children.linger_until?;
        self.awaits_children().then_some(until)
    }

    /// Ends the time in memory, if it has passed.
    pub(super) fn stop_lingering(&mut self, now: Timestamp) {
        self.children.linger_until = self.children.linger_until.filter(|until| *until > now);
    }
}

/// The output of a node whose child has succeeded with these outputs.
pub(crate) fn output_of_child(child: RunId, outputs: Value, merges: bool) -> Value {
    match merges {
        true => outputs,
        false => json!({ "executionId": child.to_string(), "outputs": outputs }),
    }
}

/// The output of a node whose child has ended, or its failure.
pub(super) fn result_of(child: &EndedChild, merges: bool) -> Result<Value, Failure> {
    let parse = |text: &Option<String>| -> Value {
        text.as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    };
    if child.status == Status::Succeeded {
        let outputs = Some(parse(&child.outputs))
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({}));
        return Ok(output_of_child(child.run, outputs, merges));
    }
    let error = parse(&child.error);
    let (usual, how) = match child.status {
        Status::Cancelled => (code::CANCELLED, "was cancelled"),
        _ => (code::CHILD_FAILED, "failed"),
    };
    let why = error["message"]
        .as_str()
        .map_or(String::new(), |message| format!(": {message}"));
    let code = error["code"].as_str().unwrap_or(usual);
    let message = format!("the child run {} {how}{why}", child.run);
    // Another attempt starts another child, if the node has a retry policy.
    Err(Failure {
        retriable: child.status == Status::Failed,
        ..Failure::permanent(code, message)
    })
}
