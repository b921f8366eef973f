//! The span of an execution, and the queue of spans.

use super::{Attribute, RunTrace, Span, Tracer};
use crate::engine::Shared;
use fermata_core::{Status, Timestamp};

/// What the span of an execution shows.
pub(crate) struct ExecutionFacts<'a> {
    pub trace: RunTrace,
    pub workflow: &'a str,
    pub version: u32,
    pub correlation_id: Option<&'a str>,
    pub is_child: bool,
    pub status: Status,
    pub start: Timestamp,
    pub end: Timestamp,
    /// The code of the failure.
    pub failure: Option<String>,
}

/// The span of an execution that has ended.
pub(crate) fn execution(facts: ExecutionFacts<'_>) -> Span {
    let trace = facts.trace;
    let mut attributes = vec![
        ("fermata.execution.id", Attribute::Text(trace.run.to_string())),
        ("fermata.workflow.id", facts.workflow.into()),
        ("fermata.workflow.version", Attribute::Number(facts.version.into())),
        ("fermata.status", facts.status.as_str().into()),
        ("fermata.duration_ms", millis(facts.start, facts.end)),
    ];
    let correlation_id = facts.correlation_id.map(|id| ("fermata.correlation_id", id.into()));
    attributes.extend(correlation_id);
    let failure = match facts.status {
        Status::Succeeded => None,
        status => Some(facts.failure.unwrap_or_else(|| status.as_str().to_owned())),
    };
    Span {
        trace: trace.trace_id(),
        id: trace.execution_span(),
        parent: trace.given.map(|given| given.span),
        name: format!("execution {}", facts.workflow),
        is_call: false,
        start: facts.start,
        end: facts.end.max(facts.start),
        attributes,
        failure,
        link: trace.given.filter(|_| facts.is_child),
    }
}

pub(crate) fn millis(start: Timestamp, end: Timestamp) -> Attribute {
    Attribute::Number(end.0.saturating_sub(start.0).max(0) / 1000)
}

impl Shared {
    /// The tracer, if the spans of this run are kept.
    pub(crate) fn tracer_for(&self, trace: &RunTrace) -> Option<&Tracer> {
        self.settings.tracer.as_ref().filter(|tracer| tracer.samples(trace))
    }

    /// Queues spans of work that is durable.
    pub(crate) fn emit(&self, spans: impl IntoIterator<Item = Span>) {
        let Some(tracer) = &self.settings.tracer else { return };
        for span in spans {
            if !tracer.emit(span) {
                self.metrics.spans.dropped.inc();
            }
        }
    }
}
