//! The spans of a held run, built from what its commits record.

use super::Driver;
use crate::trace::{Attribute, ExecutionFacts, RunTrace, Span, execution, millis};
use fermata_core::{Event, Kind, NodeId, Outcome, Timestamp};
use fermata_store::runs::{Attempt, AttemptStatus};

/// What an event says about an attempt: its failure, if it failed.
fn outcome_of(event: &Event) -> Option<(&NodeId, u32, Option<&str>)> {
    match event {
        Event::Retried {
            node, attempt, failure, ..
        } => Some((node, *attempt, Some(failure.code.as_str()))),
        Event::Finished {
            node, attempt, outcome, ..
        } => match outcome {
            Outcome::Succeeded(_) => Some((node, *attempt, None)),
            Outcome::Failed(failure) => Some((node, *attempt, Some(failure.code.as_str()))),
        },
        _ => None,
    }
}

impl Driver {
    /// The spans of work that a commit with these events and attempts records as ended.
    pub(super) fn spans(&self, at: Timestamp, events: &[Event], attempts: &[Attempt]) -> Vec<Span> {
        let trace = self.meta.trace;
        if self.shared.tracer_for(&trace).is_none() {
            return Vec::new();
        }
        let mut spans = Vec::new();
        for attempt in attempts {
            spans.extend(self.action_span(&trace, events, attempt));
        }
        for event in events {
            match event {
                Event::Finished { node, attempt, .. } => {
                    let row = attempts.iter().find(|row| row.node == *node && row.attempt == *attempt);
                    let end = row.map_or(at, |row| row.ended_at);
                    spans.extend(self.node_span(&trace, event, end));
                }
                Event::Ended { at, status, .. } => {
                    spans.push(execution(ExecutionFacts {
                        trace,
                        workflow: &self.compiled.plan.workflow,
                        version: self.meta.workflow_version,
                        correlation_id: Some(&self.meta.correlation_id),
                        is_child: self.meta.depth > 0,
                        status: *status,
                        start: self.run.started_at().unwrap_or(*at),
                        end: *at,
                        failure: self.failure().map(|(failure, _)| failure.code.clone()),
                    }));
                }
                _ => {}
            }
        }
        spans
    }

    fn action_span(&self, trace: &RunTrace, events: &[Event], attempt: &Attempt) -> Option<Span> {
        let plan = &self.compiled.plan;
        let kind = &plan.node(plan.find(attempt.node.as_str())?).kind;
        let is_called = matches!(kind, Kind::Action { .. } | Kind::Request { .. });
        let start = attempt
            .started_at
            .filter(|_| is_called && attempt.status != AttemptStatus::Skipped)?;
        let outcomes = events.iter().filter_map(outcome_of);
        let mut failures = outcomes
            .filter(|(node, number, _)| **node == attempt.node && *number == attempt.attempt)
            .filter_map(|(_, _, failure)| failure);
        Some(Span {
            trace: trace.trace_id(),
            id: trace.action_span(&attempt.node, attempt.attempt),
            parent: Some(trace.node_span(&attempt.node)),
            name: attempt.action_type.clone(),
            is_call: matches!(
                attempt.action_type.as_str(),
                "http.request" | "http.task" | "callback" | "event"
            ),
            start,
            end: attempt.ended_at.max(start),
            attributes: vec![
                ("fermata.execution.id", Attribute::Text(trace.run.to_string())),
                ("fermata.node.id", attempt.node.as_str().into()),
                ("fermata.action.type", attempt.action_type.as_str().into()),
                ("fermata.attempt", Attribute::Number(attempt.attempt.into())),
                ("fermata.status", attempt.status.as_str().into()),
                ("fermata.duration_ms", millis(start, attempt.ended_at)),
            ],
            failure: failures.next().map(str::to_owned),
            link: None,
        })
    }

    fn node_span(&self, trace: &RunTrace, event: &Event, end: Timestamp) -> Option<Span> {
        let (node, attempt, failure) = outcome_of(event)?;
        let ix = self.compiled.plan.find(node.as_str())?;
        let start = self.run.node(ix).opened_at?;
        let status = match failure {
            None => AttemptStatus::Succeeded,
            Some(_) => AttemptStatus::Failed,
        };
        Some(Span {
            trace: trace.trace_id(),
            id: trace.node_span(node),
            parent: Some(trace.execution_span()),
            name: format!("node {node}"),
            is_call: false,
            start,
            end: end.max(start),
            attributes: vec![
                ("fermata.execution.id", Attribute::Text(trace.run.to_string())),
                ("fermata.node.id", node.as_str().into()),
                ("fermata.attempts", Attribute::Number(attempt.into())),
                ("fermata.status", status.as_str().into()),
                ("fermata.duration_ms", millis(start, end)),
            ],
            failure: failure.map(str::to_owned),
            link: None,
        })
    }
}
