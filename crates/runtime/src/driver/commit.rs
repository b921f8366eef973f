//! From a step to the commit that makes it durable.

use super::{
    Driver, StepError,
    step::{Step, to_text},
};
use crate::engine::Ended;
use fermata_core::{Event, Failure, NodeId, NodeIx, Outcome, Phase, Plan, Status, snapshot};
use fermata_store::runs::{RunCommit, StatusChange, Then};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, mem::take, sync::Arc};

impl Driver {
    /// Everything the store must write for `step`, moved out of it.
    pub(super) async fn build(&mut self, step: &mut Step) -> Result<RunCommit, StepError> {
        let status = self.status_change(step).await?;
        Ok(RunCommit {
            run: self.meta.id,
            runner: self.shared.runner.id,
            epoch: self.meta.epoch,
            seq: self.seq + 1,
            at: step.at,
            events: take(&mut step.events),
            attempts: take(&mut step.attempts),
            links: take(&mut step.links),
            waits: take(&mut step.waits),
            inbox_seen: step.inbox_seen,
            status,
            dead_letter: None,
            then: match step.parks {
                Some(wake_at) => Then::Park { wake_at },
                None => Then::Keep,
            },
        })
    }

    async fn status_change(&mut self, step: &Step) -> Result<Option<StatusChange>, StepError> {
        let started_at = step.events.iter().find_map(|event| match event {
            Event::Started { at, .. } => Some(*at),
            _ => None,
        });
        let Some(end) = self.run.end().cloned() else {
            return Ok(started_at.map(|at| StatusChange {
                status: self.run.status(),
                started_at: Some(at),
                ended_at: None,
                reason: None,
                error: None,
                outputs: None,
                context_snapshot: None,
            }));
        };
        let results: Vec<_> = self.run.result_nodes().collect();
        let kept = snapshot::choose(&self.run);
        let whole = kept.iter().filter(|(_, keep)| *keep == snapshot::Keep::Whole);
        let whole = whole.filter_map(|(id, _)| self.run.plan().find(id.as_str()));
        let needed: Vec<_> = results.iter().copied().chain(whole).collect();
        let absent = |ix: &NodeIx| !self.payloads.entries.contains_key(ix);
        let missing: Vec<_> = needed.iter().copied().filter(absent).collect();
        if !missing.is_empty() {
            self.fetch(missing, step).await?;
        }
        let plan = self.run.plan().clone();
        let bytes = self.payloads.bytes_of(&needed);
        let entries = self.payloads.entries.clone();
        let write = move || (outputs(&entries, &results), snapshot(&plan, &entries, &kept));
        let (outputs, snapshot) = self.shared.offload.run(bytes, write).await;
        Ok(Some(StatusChange {
            status: self.run.status(),
            started_at,
            ended_at: Some(end.at),
            reason: end.reason,
            error: self.error(),
            outputs: Some(outputs),
            context_snapshot: Some(snapshot),
        }))
    }

    /// What the run failed of: what stopped it, or else the first node that failed.
    fn error(&self) -> Option<String> {
        let (failure, node) = match self.run.stop() {
            Some(stop) => (stop.failure.as_ref()?, stop.node.as_ref()),
            None if self.run.status() == Status::Failed => self.first_failure()?,
            None => return None,
        };
        let mut error = Map::new();
        error.insert("code".to_owned(), failure.code.clone().into());
        error.insert("message".to_owned(), failure.message.clone().into());
        if let Some(node) = node {
            error.insert("node".to_owned(), node.as_str().into());
            if let Some(Phase::Finished { attempt, .. }) =
                self.run.plan().find(node.as_str()).map(|ix| &self.run.node(ix).phase)
            {
                error.insert("attempt".to_owned(), (*attempt).into());
            }
        }
        Some(to_text(&error))
    }

    fn first_failure(&self) -> Option<(&Failure, Option<&NodeId>)> {
        let completed = self.run.completed().iter().copied();
        let mut failures = completed.filter_map(|ix| match &self.run.node(ix).phase {
            Phase::Finished {
                outcome: Outcome::Failed(failure),
                ..
            } => Some((failure, Some(&self.run.plan().node(ix).id))),
            _ => None,
        });
        failures.next()
    }

    /// Tells whoever waits for the end, now that it is durable.
    pub(super) fn tell_end(&self, change: StatusChange) {
        let ended = Ended {
            status: change.status,
            reason: change.reason,
            error: change.error,
            outputs: change.outputs,
        };
        self.shared.tell_end(self.meta.id, ended);
    }
}

/// The shallow merge of the outputs of the leaves, in document order.
fn outputs(entries: &BTreeMap<NodeIx, Arc<Value>>, results: &[NodeIx]) -> String {
    let given = results.iter().filter_map(|ix| entries.get(ix)?.as_object());
    let mut merged = Map::new();
    for object in given {
        merged.extend(object.clone());
    }
    to_text(&merged)
}

/// What is kept of the context.
fn snapshot(plan: &Plan, entries: &BTreeMap<NodeIx, Arc<Value>>, kept: &[(NodeId, snapshot::Keep)]) -> String {
    let entry = |(id, keep): &(NodeId, snapshot::Keep)| {
        let value = match keep {
            snapshot::Keep::Summary(output) => json!({ "bytes": output.bytes, "type": output.shape }),
            snapshot::Keep::Whole => {
                let ix = plan.find(id.as_str())?;
                entries.get(&ix)?.as_ref().clone()
            }
        };
        Some((id.to_string(), value))
    };
    to_text(&kept.iter().filter_map(entry).collect::<Map<_, _>>())
}
