//! The commit of a step, and its answer.

use super::{
    Driver, Incoming, Report, StepError,
    step::{Step, to_text},
};
use crate::{engine::Ended, state::merged_nodes};
use fermata_core::{
    Event, Failure, NodeId, NodeIx, Outcome, Phase, Plan, RunOutputs, Status, plan::Selection, snapshot,
};
use fermata_store::runs::{CommitAnswer, Conflict, RunCommit, StatusChange, Then};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, mem::take, sync::Arc};
use tokio::time::Instant;

/// How far the journal of a run goes.
#[derive(Default)]
pub(super) struct CommitState {
    /// The last journal row.
    pub seq: u32,
    /// Commits in a row whose outcome is not known.
    pub unconfirmed: u32,
}

impl CommitState {
    pub fn after(seq: u32) -> CommitState {
        CommitState { seq, unconfirmed: 0 }
    }
}

impl Driver {
    /// Sends a commit and collects the reports that come in meanwhile.
    pub(super) async fn commit(&mut self, commit: RunCommit) -> (CommitAnswer, Vec<Arc<Report>>) {
        let sent = Instant::now();
        let mut sending = self.shared.store.commit(commit);
        let mut reports = Vec::new();
        loop {
            tokio::select! {
                biased;
                answer = &mut sending => {
                    if let CommitAnswer::Committed { .. } = answer {
                        self.shared.health.committed(self.meta.id, sent.elapsed());
                    }
                    return (answer, reports);
                }
                report = self.attempts.next_report() => reports.push(Arc::new(report)),
            }
        }
    }

    /// Takes note of a commit's answer. Returns the newest message if the commit is durable.
    pub(super) fn settle(
        &mut self,
        answer: CommitAnswer,
        step: &Step,
        next: &mut Vec<Incoming>,
    ) -> Result<u64, StepError> {
        let undecided = |next: &mut Vec<Incoming>| {
            let later = next.drain(..).filter_map(Incoming::into_report);
            step.reports.iter().cloned().chain(later).collect::<Vec<_>>()
        };
        match answer {
            CommitAnswer::Committed { message_seq } => {
                self.messages.seen = step.messages_seen;
                self.commits.unconfirmed = 0;
                self.lease.probation = None;
                Ok(message_seq)
            }
            CommitAnswer::Fenced => {
                tracing::info!(run = %self.meta.id, "another runner holds the lease of a run; its driver ends here");
                Err(StepError::Lost)
            }
            CommitAnswer::Conflict(Conflict::Link { link, owner }) => {
                let mut reports = undecided(next);
                for report in &mut reports {
                    if self.compiled.plan.node(report.node).id == link.node && report.attempt == link.attempt {
                        *report = Arc::new(report.with_link_conflict(&link, owner));
                    }
                }
                Err(StepError::Reload(reports))
            }
            CommitAnswer::Conflict(Conflict::Answered { .. } | Conflict::Seq) => {
                Err(StepError::Reload(undecided(next)))
            }
            CommitAnswer::Unknown(what) => {
                let health = &self.shared.health;
                health.retried(
                    Some(self.meta.id),
                    &what,
                    "a commit was not confirmed; the run is loaded again",
                );
                self.commits.unconfirmed += 1;
                Err(StepError::Reload(undecided(next)))
            }
            CommitAnswer::Rejected(what) => {
                let nodes = step
                    .reports
                    .iter()
                    .map(|report| &self.compiled.plan.node(report.node).id);
                let nodes: Vec<String> = nodes.take(3).map(|id| format!("`{id}`")).collect();
                let of = match nodes.is_empty() {
                    true => String::new(),
                    false => format!(" after node {}", nodes.join(", ")),
                };
                Err(StepError::Rejected(format!("the step{of} cannot be stored: {what}")))
            }
        }
    }

    /// Everything the store must write for `step`, moved out of it.
    pub(super) async fn build(&mut self, step: &mut Step) -> Result<RunCommit, StepError> {
        let status = self.status_change(step).await?;
        Ok(RunCommit {
            run: self.meta.id,
            runner: self.shared.runner.id,
            epoch: self.meta.epoch,
            seq: self.commits.seq + 1,
            at: step.at,
            events: take(&mut step.events),
            attempts: take(&mut step.attempts),
            links: take(&mut step.links),
            waits: take(&mut step.waits),
            children_seen: take(&mut step.children_seen),
            messages_seen: step.messages_seen,
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
        let end_position = self.run.completed().len() as u32;
        let results: Vec<_> = match self.run.plan().outputs {
            RunOutputs::Leaves => self.run.result_nodes().collect(),
            RunOutputs::Changed | RunOutputs::Selected(_) => merged_nodes(&self.run, end_position).collect(),
        };
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
        let payloads = self.payloads.clone();
        let write = move || {
            let outputs = match &plan.outputs {
                RunOutputs::Leaves => outputs(&payloads.entries, &results),
                RunOutputs::Changed => to_text(&payloads.changed_state(end_position)),
                RunOutputs::Selected(selections) => to_text(&selected(selections, &payloads.state_at(end_position))),
            };
            (outputs, snapshot(&plan, &payloads.entries, &kept))
        };
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

    /// Why the run failed, and the node: what stopped it, or else the first node that failed.
    fn failure(&self) -> Option<(&Failure, Option<&NodeId>)> {
        match self.run.stop() {
            Some(stop) => Some((stop.failure.as_ref()?, stop.node.as_ref())),
            None if self.run.status() == Status::Failed => self.first_failure(),
            None => None,
        }
    }

    fn error(&self) -> Option<String> {
        let (failure, node) = self.failure()?;
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

    /// Notifies the waiters of the run, now that its end is durable, and logs a failure.
    pub(super) fn notify_end(&self, ended: Ended) {
        if ended.status == Status::Failed {
            let (failure, node) = self.failure().unzip();
            tracing::warn!(
                run = %self.meta.id,
                workflow = self.compiled.plan.workflow,
                node = node.flatten().map(NodeId::as_str),
                code = failure.map(|failure| failure.code.as_str()),
                reason = ended.reason,
                "a run failed"
            );
        }
        self.shared.waiters.notify(self.meta.id, ended);
    }
}

/// The values of the state that are outputs.
fn selected(selections: &[Selection], state: &Map<String, Value>) -> Map<String, Value> {
    let value = |selection: &Selection| {
        let (first, rest) = selection.from.split_first()?;
        rest.iter()
            .try_fold(state.get(first)?, |value, step| value.get(step))
            .cloned()
    };
    let output = |selection: &Selection| (selection.name.clone(), value(selection).unwrap_or_default());
    selections.iter().map(output).collect()
}

/// The shallow merge of the outputs of the leaves, in document order.
fn outputs(entries: &BTreeMap<NodeIx, Arc<Value>>, results: &[NodeIx]) -> String {
    let given: Vec<_> = results.iter().filter_map(|ix| entries.get(ix)?.as_object()).collect();
    if let [only] = given[..] {
        return to_text(only);
    }
    let mut merged = Map::new();
    for object in given {
        merged.extend(object.clone());
    }
    to_text(&merged)
}

/// The context snapshot.
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
