//! The commit of a step, and its answer.

use super::{
    Driver, Incoming, Report, StepError,
    step::{Step, to_text},
};
use crate::stats::CountedRun;
use crate::{
    compiled::Needs,
    engine::Ended,
    metrics::{FailureReason, between},
};
use fermata_core::{
    Event, Failure, Kind, NodeId, NodeIx, Outcome, Phase, Plan, RunOutputs, Status, plan::Selection, snapshot,
};
use fermata_store::{
    runs::{Attempt, CommitAnswer, Conflict, RunCommit, StatusChange, Then},
    usage::Usage,
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, mem::take, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How far the journal of a run goes.
#[derive(Default)]
pub(super) struct CommitState {
    /// The last journal row.
    pub seq: u32,
    /// Commits in a row whose outcome is not known.
    pub unconfirmed: u32,
    /// How many nodes had written the state when the run was loaded.
    pub writers_at_load: usize,
}

impl CommitState {
    pub fn after(seq: u32) -> CommitState {
        CommitState {
            seq,
            ..CommitState::default()
        }
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
                    self.shared.metrics.commit_answered(&answer, sent.elapsed());
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
                tracing::info!(ExecutionId = %self.meta.id, "another runner holds the lease of a run; its driver ends here");
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
        let (status, missing) = self.status_change(step).await?;
        if let Some(Event::Ended { missing_outputs, .. }) = step.events.last_mut() {
            *missing_outputs = missing;
        }
        let usage = self.usage(&step.attempts);
        let state = self.change_cached_state(step).await;
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
            usage,
            state,
            then: match step.parks {
                Some(wake_at) => Then::Park { wake_at },
                None => Then::Keep,
            },
        })
    }

    /// The HTTP steps to count: those whose first attempt is recorded. Retries are not counted.
    fn usage(&self, attempts: &[Attempt]) -> Option<Usage> {
        let tier = self.shared.settings.tiers.of(&self.meta.tenant)?;
        tier.executions_per_month?;
        let is_started = |attempt: &&Attempt| attempt.attempt == 1 && attempt.started_at.is_some();
        let nodes = attempts.iter().filter(is_started);
        let nodes = nodes.filter_map(|attempt| self.compiled.plan.find(attempt.node.as_str()));
        let steps = nodes.filter(|ix| self.sends_http(*ix)).count();
        (steps > 0).then(|| Usage {
            tenant: self.meta.tenant.to_string(),
            steps: steps as u32,
        })
    }

    /// Whether the action of a node sends an HTTP request.
    pub(super) fn sends_http(&self, ix: NodeIx) -> bool {
        let kind = &self.compiled.plan.node(ix).kind;
        let (Kind::Action { action, parameters } | Kind::Request { action, parameters, .. }) = kind else {
            return false;
        };
        let action = self.shared.registry.get(action);
        action.is_some_and(|action| action.sends_http(parameters))
    }

    /// The change of status, and the declared outputs that are missing from the state of a run that succeeded.
    async fn status_change(&mut self, step: &Step) -> Result<(Option<StatusChange>, Vec<String>), StepError> {
        let started_at = step.events.iter().find_map(|event| match event {
            Event::Started { at, .. } => Some(*at),
            _ => None,
        });
        let Some(end) = self.run.end().cloned() else {
            let change = started_at.map(|at| StatusChange {
                status: self.run.status(),
                started_at: Some(at),
                ended_at: None,
                reason: None,
                error: None,
                outputs: None,
                context_snapshot: None,
            });
            return Ok((change, Vec::new()));
        };
        let end_position = self.run.completed().len() as u32;
        let mut state_bytes = 0;
        let results: Vec<_> = match self.run.plan().outputs {
            RunOutputs::Leaves => self.run.result_nodes().collect(),
            RunOutputs::Changed | RunOutputs::Selected(_) => {
                self.ensure(&Needs::STATE, end_position, step).await?;
                state_bytes = self.payloads.bytes(&Needs::STATE);
                Vec::new()
            }
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
        let bytes = self.payloads.bytes_of(&needed).max(state_bytes);
        let payloads = self.payloads.clone();
        let write = move || {
            let mut missing = Vec::new();
            let outputs = match &plan.outputs {
                RunOutputs::Leaves => outputs(&payloads.entries, &results),
                RunOutputs::Changed => to_text(&payloads.changed_state(end_position)),
                RunOutputs::Selected(selections) => {
                    to_text(&selected(selections, &payloads.state_at(end_position), &mut missing))
                }
            };
            (outputs, missing, snapshot(&plan, &payloads.entries, &kept))
        };
        let (outputs, mut missing, snapshot) = self.shared.offload.run(bytes, write).await;
        if self.run.status() != Status::Succeeded {
            missing.clear(); // it did not get as far as setting them
        }
        let change = StatusChange {
            status: self.run.status(),
            started_at,
            ended_at: Some(end.at),
            reason: end.reason,
            error: self.error(),
            outputs: Some(outputs),
            context_snapshot: Some(snapshot),
        };
        Ok((Some(change), missing))
    }

    /// Why the run failed, and the node: what stopped it, or else the first node that failed.
    pub(super) fn failure(&self) -> Option<(&Failure, Option<&NodeId>)> {
        match self.run.stop() {
            Some(stop) => Some((stop.failure.as_ref()?, stop.node.as_ref())),
            None if self.run.status() == Status::Failed => match self.run.kept_failure() {
                Some(kept) => Some((&kept.failure, Some(&kept.node))),
                None => self.first_failure(),
            },
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

    /// Counts and logs the end of the run, now that it is durable.
    pub(super) fn count_end(&self, ended: &Ended) {
        let took = match (self.run.started_at(), self.run.end()) {
            (Some(started_at), Some(end)) => between(started_at, end.at),
            _ => Duration::ZERO,
        };
        let reason = FailureReason::of(ended.status, ended.reason.as_deref());
        let metrics = &self.shared.metrics;
        metrics.run_ended(&self.compiled.metrics, ended.status, reason, took);
        let now = self.shared.clock.now();
        let numbers = &self.shared.numbers;
        numbers.ended(&self.counted(), now, ended.status, took);
        self.log_end(ended, took);
    }

    /// Counts the start of the run, now that it is durable.
    pub(super) fn count_start(&self) {
        let now = self.shared.clock.now();
        self.shared.numbers.started(&self.counted(), now);
    }

    fn counted(&self) -> CountedRun<'_> {
        CountedRun {
            workflow_uid: self.meta.workflow_uid,
            workflow: &self.compiled.plan.workflow,
            tenant: &self.meta.tenant,
        }
    }

    /// The names of the properties are those of the DataWorkflows specification (§14.1). The reason of a cancel is what the
    /// caller wrote, so it is not logged.
    fn log_end(&self, ended: &Ended, took: Duration) {
        let (meta, took_ms) = (&self.meta, took.as_millis() as u64);
        let tenant = Some(&*meta.tenant).filter(|tenant| !tenant.is_empty());
        if ended.status != Status::Failed {
            tracing::debug!(
                ExecutionId = %meta.id,
                WorkflowId = self.compiled.plan.workflow,
                WorkflowVersion = meta.workflow_version,
                CorrelationId = &*meta.correlation_id,
                TenantId = tenant,
                PrincipalUserId = meta.principal.user_id,
                PrincipalEmail = meta.principal.email,
                status = ended.status.as_str(),
                took_ms,
                "a run ended"
            );
            return;
        }
        let (failure, node) = self.failure().unzip();
        let node = node.flatten();
        let ix = node.and_then(|node| self.compiled.plan.find(node.as_str()));
        tracing::info!(
            ExecutionId = %meta.id,
            WorkflowId = self.compiled.plan.workflow,
            WorkflowVersion = meta.workflow_version,
            NodeId = node.map(NodeId::as_str),
            ActionType = ix.map(|ix| self.compiled.plan.node(ix).kind.action_type()),
            CorrelationId = &*meta.correlation_id,
            TenantId = tenant,
            PrincipalUserId = meta.principal.user_id,
            PrincipalEmail = meta.principal.email,
            code = failure.map(|failure| failure.code.as_str()),
            reason = ended.reason,
            took_ms,
            "a run failed"
        );
    }
}

/// The values of the state that are outputs. One that is missing is `null`.
fn selected(selections: &[Selection], state: &Map<String, Value>, missing: &mut Vec<String>) -> Map<String, Value> {
    let value = |selection: &Selection| {
        let (first, rest) = selection.from.split_first()?;
        rest.iter()
            .try_fold(state.get(first)?, |value, step| value.get(step))
            .cloned()
    };
    let output = |selection: &Selection| {
        let value = value(selection);
        if value.is_none() {
            missing.push(selection.name.clone());
        }
        (selection.name.clone(), value.unwrap_or_default())
    };
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
