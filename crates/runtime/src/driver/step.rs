//! Deciding: what happened becomes events and their rows.

use super::{Driver, Incoming, Report, StepError, judge::Judged};
use crate::{
    entry::NodeResult,
    wait_rows::{takes_answer, wait_changes, wait_tokens},
};
use fermata_core::{
    Effect, Event, Fact, Input, Kind, NodeId, NodeIx, Outcome, Output, Ranges, RunId, Status, Timestamp, advance,
    conductor,
};
use fermata_store::runs::{Attempt, AttemptStatus, Link, WaitChange};
use serde_json::{Value, json};
use std::{collections::VecDeque, sync::Arc};

/// The content of one commit.
pub(super) struct Step {
    pub at: Timestamp,
    pub events: Vec<Event>,
    pub attempts: Vec<Attempt>,
    pub links: Vec<Link>,
    pub waits: Vec<WaitChange>,
    pub messages_seen: u64,
    /// Child runs whose ends were decided.
    pub children_seen: Vec<RunId>,
    /// The reports that were decided, in case they must be decided again.
    pub reports: Vec<Arc<Report>>,
    /// Whether the run leaves memory, and when it is due again.
    pub parks: Option<Option<Timestamp>>,
    /// Whether messages were consumed, which the store must record.
    pub read_messages: bool,
    /// Whether the run has executed for long enough to be trusted again, which the store must record.
    proven: bool,
}

impl Step {
    pub fn nothing(at: Timestamp) -> Step {
        Step {
            at,
            events: Vec::new(),
            attempts: Vec::new(),
            links: Vec::new(),
            waits: Vec::new(),
            messages_seen: 0,
            children_seen: Vec::new(),
            reports: Vec::new(),
            parks: None,
            read_messages: false,
            proven: false,
        }
    }

    pub fn is_worth_a_commit(&self) -> bool {
        let seen = self.read_messages || !self.children_seen.is_empty();
        !self.events.is_empty() || self.parks.is_some() || seen || self.proven
    }
}

impl Driver {
    /// Decides everything that came in, and evaluates the conditions that this requires.
    pub(super) async fn decide(&mut self, incoming: Vec<Incoming>, touched: Vec<NodeIx>) -> Result<Step, StepError> {
        let mut step = Step {
            messages_seen: self.messages.seen,
            ..Step::nothing(self.shared.clock.now())
        };
        let mut incoming = incoming;
        incoming.sort_by_key(Incoming::rank);
        let mut queue: VecDeque<Incoming> = incoming.into();
        if self.run.deadline().is_some_and(|deadline| deadline <= step.at) {
            queue.push_front(Incoming::Tick); // the deadline is decided before everything else
        }
        let mut touched = touched;
        let mut examined = 0;
        loop {
            while let Some(incoming) = queue.pop_front() {
                if let Err(error) = self.take(incoming, &mut step).await {
                    return Err(error.with(queue));
                }
            }
            touched.extend(self.touched_by(&step.events[examined..]));
            examined = step.events.len();
            queue.extend(self.plan_work(&touched, step.at));
            touched.clear();
            if !self.evaluate(&mut step).await? && queue.is_empty() {
                break;
            }
        }
        self.follow_pause();
        step.parks = self.parks(step.at);
        step.proven = self.lease.is_proven(step.at);
        Ok(step)
    }

    async fn take(&mut self, incoming: Incoming, step: &mut Step) -> Result<(), StepError> {
        let fact = match incoming {
            Incoming::Start => {
                let vars = Value::Object(self.shared.settings.vars.clone());
                let reused = self.meta.reused.clone();
                step.waits.extend(wait_tokens(&self.run, reused.as_deref()));
                let timeout_ms = self.meta.timeout_ms(&self.compiled.plan, &self.shared.settings);
                Fact::Start {
                    vars,
                    timeout_ms,
                    reused,
                }
            }
            Incoming::Archived => Fact::Cancel {
                reason: "workflow_archived".to_owned(),
            },
            Incoming::Verdicts(fact) => {
                self.evaluations.finished(&fact);
                fact
            }
            Incoming::Tick => {
                self.attempts.wake_delayed(step.at);
                self.stop_lingering(step.at);
                self.recall_timed_out(step).await?;
                Fact::Tick
            }
            Incoming::Children => return self.take_ended_children(step).await,
            Incoming::ItemsRefused(ix, attempt, refused) => {
                return self.items_ended(ix, attempt, Ranges::default(), refused, step).await;
            }
            Incoming::StoredMessage(message) => match self.take_message(message, step).await? {
                // A run that was paused before its start starts now.
                Some(fact @ Fact::Resume { .. }) if self.run.status() == Status::Pending => {
                    self.advance(fact, None, step).await?;
                    return Box::pin(self.take(Incoming::Start, step)).await;
                }
                Some(fact) => fact,
                None => return Ok(()),
            },
            // A request was answered while it waited for its slot.
            Incoming::Slot(ix, attempt, _) if !self.is_open(ix, attempt) => return Ok(()),
            Incoming::Slot(ix, attempt, slot) => match slot.filter(|_| self.run.goes_on()) {
                Some(slot) => {
                    self.attempts.keep_slot(ix, attempt, slot);
                    let node = self.compiled.plan.node(ix).id.clone();
                    Fact::Begins { node, attempt }
                }
                None => {
                    let report = Arc::new(Report::never_started(ix, attempt, step.at));
                    return Box::pin(self.take(Incoming::Report(report), step)).await;
                }
            },
            // It waited for its slot when this process began to stop, and the next process starts it; or the run was paused.
            Incoming::Report(report) if report.is_left_undone(&self.run) => {
                self.plan_work(&[report.node], step.at); // nothing is aborted: the run is not stopping
                return Ok(());
            }
            Incoming::Report(report) => {
                let node = self.compiled.plan.node(report.node).id.clone();
                let attempt = report.attempt;
                if report.result.is_none() && self.run.stop().is_some() && self.is_child(report.node) {
                    self.cancel_child(report.node, attempt, step).await?;
                }
                let fact = match &report.result {
                    None => Fact::Aborted { node, attempt },
                    Some(result) => Fact::Returned {
                        node,
                        attempt,
                        result: match result {
                            Ok(success) => Ok(Output::of(&success.outputs, success.text.len())),
                            Err(failed) => Err(failed.failure.clone()),
                        },
                        jitter: self.shared.ids.jitter(),
                        queued_ms: report.long_queue_ms(),
                    },
                };
                step.reports.push(report.clone());
                return self.advance(fact, Some(&report), step).await;
            }
        };
        self.advance(fact, None, step).await
    }

    pub(super) fn read_failed(&self, error: &fermata_store::StoreError, step: &Step) -> StepError {
        let health = &self.shared.health;
        health.retried(
            Some(self.meta.id),
            error,
            "a payload cannot be read; the run is loaded again",
        );
        StepError::Reload(step.reports.clone())
    }

    /// Advances the run and records the rows of its events.
    pub(super) async fn advance(
        &mut self,
        fact: Fact,
        report: Option<&Report>,
        step: &mut Step,
    ) -> Result<(), StepError> {
        let input = Input::new(step.at, fact);
        let events = match advance(&mut self.run, input) {
            Ok(events) => events,
            Err(illegal) => {
                return Err(StepError::Stuck(format!(
                    "the conductor decided an illegal event: {illegal}"
                )));
            }
        };
        for event in events {
            let changes = wait_changes(&self.run, &event);
            self.learn_tokens(&changes);
            step.waits.extend(changes);
            self.record(&event, report, step).await?;
            step.events.push(event);
        }
        Ok(())
    }

    async fn record(&mut self, event: &Event, report: Option<&Report>, step: &mut Step) -> Result<(), StepError> {
        let (node, attempt, outcome) = match event {
            Event::Skipped { node, .. } => (node, 1, None),
            Event::Retried {
                node, attempt, failure, ..
            } => (node, *attempt, Some(Err((failure, true)))),
            Event::Finished {
                node, attempt, outcome, ..
            } => match outcome {
                Outcome::Succeeded(_) => (node, *attempt, Some(Ok(()))),
                Outcome::Failed(failure) => (node, *attempt, Some(Err((failure, false)))),
            },
            Event::Requested { .. } => {
                self.record_request(event, report, step);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Some(ix) = self.compiled.plan.find(node.as_str()) else {
            return Ok(());
        };
        let kind = &self.compiled.plan.node(ix).kind;
        let is_wait = matches!(kind, Kind::Wait { .. });
        let is_action = matches!(kind, Kind::Action { .. });
        let is_request = matches!(kind, Kind::Request { .. });
        let is_skipped = matches!(event, Event::Finished { skipped: Some(_), .. });
        let aborted = report.is_some_and(|report| report.result.is_none());
        let report = report.filter(|report| report.node == ix && report.attempt == attempt && report.result.is_some());
        let sent = self.requests.take_sent(ix, attempt);
        if is_request {
            self.attempts.stop_request(ix, attempt);
        }
        let mut row = Attempt {
            node: node.clone(),
            attempt,
            action_type: kind.action_type().to_owned(),
            status: AttemptStatus::Skipped,
            parameters: match (report, &sent) {
                (Some(report), _) => report.parameters.clone(),
                (None, sent) => sent.as_ref().and_then(|sent| sent.parameters.clone()),
            },
            outputs: None,
            error: None,
            started_at: match report {
                Some(report) => report.started_at,
                None => sent.as_ref().and_then(|sent| sent.started_at),
            },
            ended_at: report.map_or(step.at, |report| report.ended_at),
            reused_from: None,
        };
        let mut is_recorded = false;
        match outcome {
            None => {}
            Some(Ok(())) => {
                row.status = AttemptStatus::Succeeded;
                row.started_at = row.started_at.or(self.run.node(ix).opened_at);
                let (value, text) = match report.and_then(Report::success) {
                    Some(success) => {
                        let links = success.links.iter().map(|link| link.for_node(node, attempt));
                        step.links.extend(links);
                        (success.outputs.clone(), success.text.clone())
                    }
                    None if is_skipped || is_request => self.requests.take_answer(ix).unwrap_or_default(),
                    None if is_wait => self.answer_of(ix, step).await?,
                    None => (Arc::new(json!({})), "{}".to_owned()),
                };
                self.learn(ix, NodeResult::Succeeded(value), text.len());
                row.outputs = Some(text);
            }
            Some(Err((failure, again))) => {
                row.status = if again {
                    AttemptStatus::RetriableFailure
                } else {
                    AttemptStatus::Failed
                };
                row.error = Some(to_text(failure));
                let outputs = report
                    .and_then(Report::failed)
                    .and_then(|failed| failed.outputs.as_ref());
                row.outputs = outputs.map(Value::to_string);
                if !again {
                    let bytes = row.outputs.as_ref().map_or(0, String::len);
                    self.learn(ix, NodeResult::Failed(failure, outputs), bytes);
                }
                // If no attempt ran, the node ends with a failure that was recorded before.
                is_recorded = report.is_none() && (is_action || (is_request && aborted));
            }
        }
        // A retry closes the wait of its attempt when it opens the next one (`wait_rows.rs`).
        let is_answered = matches!(outcome, Some(Ok(()))) && !is_skipped;
        let is_over = !matches!(event, Event::Retried { .. }) && !is_answered;
        if is_over && (is_wait || takes_answer(&self.compiled.plan, node)) {
            step.waits.push(WaitChange::Close { node: node.clone() });
        }
        if !is_recorded {
            step.attempts.push(row);
        }
        Ok(())
    }

    /// The nodes that may have work after these events.
    fn touched_by(&self, events: &[Event]) -> Vec<NodeIx> {
        let is_of_all = |event: &Event| matches!(event, Event::Stopping { .. } | Event::Resumed { .. });
        if events.iter().any(is_of_all) {
            return self.run.active().collect();
        }
        let opened = events.iter().filter_map(|event| match event {
            Event::Opened { node, .. }
            | Event::Retried { node, .. }
            | Event::Began { node, .. }
            | Event::Requested { node, .. }
            | Event::Resending { node, .. }
            | Event::ItemsEnded { node, .. } => self.compiled.plan.find(node.as_str()),
            _ => None,
        });
        opened.collect()
    }

    /// Evaluates conditions and durations. True if at least one was decided at once.
    async fn evaluate(&mut self, step: &mut Step) -> Result<bool, StepError> {
        let untimed = self.evaluations.take_untimed();
        let mut any = false;
        for effect in conductor::evaluations(&self.run) {
            let (Effect::Judge { node, .. } | Effect::Guard { node }) = &effect else {
                continue;
            };
            let node = node.clone();
            if self.evaluations.is_pending(&node) {
                continue;
            }
            let judged = match effect {
                Effect::Judge {
                    node,
                    edges,
                    first_only,
                } => self.judge(node, edges, first_only, step).await?,
                _ => self.guard(node.clone(), step).await?,
            };
            any |= self.take_judged(node, judged, step).await?;
        }
        for ix in untimed {
            let node = self.compiled.plan.node(ix).id.clone();
            let judged = self.time(ix, step).await?;
            any |= self.take_judged(node, judged, step).await?;
        }
        for ix in self.children.items.take_complete() {
            if let Some(fact) = self.collect(ix, step).await? {
                self.advance(fact, None, step).await?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Decides the result of an evaluation, or keeps it running. True if it was decided.
    async fn take_judged(&mut self, node: NodeId, judged: Judged, step: &mut Step) -> Result<bool, StepError> {
        match judged {
            Judged::Now(fact) => {
                self.advance(fact, None, step).await?;
                Ok(true)
            }
            Judged::Later(fact) => {
                self.evaluations.start(node, fact);
                Ok(false)
            }
        }
    }

    /// Whether the run can leave memory, and when it is due again.
    fn parks(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        if self.run.status().is_terminal() || self.attempts.any_running() || self.children.read_again {
            return None;
        }
        let due = self.next_due();
        let unfinished =
            self.attempts.any_ready() || !self.evaluations.is_empty() || self.children.items.any_to_start();
        if self.shared.shutdown.is_stopping() {
            return Some(if unfinished { Some(now) } else { due });
        }
        let soon = now.plus_millis(self.shared.settings.park_after.as_millis() as u64);
        let idle = !unfinished && due.is_none_or(|due| due > soon) && self.lingers_until().is_none();
        idle.then_some(due)
    }
}

pub(super) fn to_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| json!({ "unprintable": error.to_string() }).to_string())
}
