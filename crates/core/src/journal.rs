//! The journal: every decision of the conductor is recorded as an event.
//!
//! A journal row is `{"v":1,"events":[…]}` with the events of one commit. It contains no payloads: an event has only the
//! size and type of an output; the text is in the row of the attempt. The format is only extended: a new field has a
//! default, a new meaning is a new event, and `v` increases only together with an upcast in [`decode`]. So journals of
//! every release can always be replayed.

use crate::{Failure, NodeId, Ranges, RefusedItems, Reused, Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// The run started.
    Started {
        /// The time of the start.
        at: Timestamp,
        /// The time at which the run times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The configured variables. They do not change during the run.
        #[serde(default = "empty_object", skip_serializing_if = "is_empty_object")]
        vars: Value,
    },
    /// Nodes keep what an earlier run recorded for them. Right after `started`, in a run that repeats another one in part.
    Reused(Box<Reused>),
    /// A node's join fired; its first attempt is due.
    Opened {
        /// The node.
        node: NodeId,
        /// The time at which it was opened.
        at: Timestamp,
        /// For a wait with a timeout: when it times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// For a guarded node: the verdict of its guard.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    },
    /// A node will not run.
    Skipped {
        /// The node.
        node: NodeId,
        /// The reason.
        reason: SkipReason,
        /// For a guarded node: the verdict of its guard.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    },
    /// The end of a sleep was determined.
    Slept {
        /// The node.
        node: NodeId,
        /// The time at which it ends.
        until: Timestamp,
        /// Whether it fails then, because its timeout is shorter than the sleep.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        times_out: bool,
    },
    /// An attempt that renders its parameters again has started. It sees the nodes that were completed before this event.
    Began {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// The time of the start.
        at: Timestamp,
    },
    /// The request of an attempt was sent; its answer is awaited.
    Requested {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// The time at which it times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// For a node with one child for each item of a list: the number of items.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        items: Option<u32>,
        /// How long the attempt waited for a slot, or for a place of its tenant, if that was long enough to be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued_ms: Option<u64>,
    },
    /// Children of items ended.
    ItemsEnded {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// Items whose child succeeded.
        #[serde(default, skip_serializing_if = "Ranges::is_empty")]
        succeeded: Ranges,
        /// Items whose child failed, was cancelled or could not start.
        #[serde(default, skip_serializing_if = "Ranges::is_empty")]
        failed: Ranges,
        /// Those that could not start.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<RefusedItems>,
    },
    /// A callback was received before its wait was opened, and is kept.
    Answered {
        /// The node.
        node: NodeId,
        /// The size and type of the payload.
        output: Output,
    },
    /// An attempt failed and will be retried.
    Retried {
        /// The node.
        node: NodeId,
        /// The attempt that failed.
        attempt: u32,
        /// The failure.
        failure: Failure,
        /// The time of the next attempt, including jitter.
        retry_at: Timestamp,
        /// How long the attempt waited for a slot, or for a place of its tenant, if that was long enough to be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued_ms: Option<u64>,
    },
    /// A node ended.
    Finished {
        /// The node.
        node: NodeId,
        /// The last attempt.
        attempt: u32,
        /// The outcome.
        outcome: Outcome,
        /// The outcome that the answer of a request chose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chosen: Option<String>,
        /// Set if a caller skipped the node: its output is the one that the caller gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skipped: Option<SkippedBy>,
        /// How long the attempt waited for a slot, or for a place of its tenant, if that was long enough to be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued_ms: Option<u64>,
    },
    /// A request that waits for its answer is to be sent again: the same attempt, with the same token and key.
    Resending {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// When that was asked for.
        at: Timestamp,
    },
    /// A request was sent again, or could not be. Its answer is still awaited.
    Resent {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// Why it could not be sent again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// The run was paused: nothing new starts until it is resumed.
    Paused {
        /// When that was asked for.
        at: Timestamp,
    },
    /// The run was resumed.
    Resumed {
        /// When that was asked for.
        at: Timestamp,
    },
    /// A node's outgoing edges were settled.
    Routed {
        /// The node.
        node: NodeId,
        /// The edges taken; all others are dead.
        taken: Vec<u32>,
        /// The verdicts of the conditions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verdicts: Vec<Verdict>,
    },
    /// The run is stopping; no new attempts start.
    Stopping {
        /// The final status.
        status: Status,
        /// The reason as a stable word: `action_failed`, `decision_failed`, `timeout`, `cancelled`,
        /// `context_overflow`.
        reason: String,
        /// The node that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
        /// The failure that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// The run ended.
    Ended {
        /// The time of the end.
        at: Timestamp,
        /// The final status.
        status: Status,
        /// The reason, if it did not succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Declared outputs that are missing from the state; they are `null`. The runner adds them: outputs are not part of
        /// a [`crate::Run`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing_outputs: Vec<String>,
    },
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

/// How a node ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It succeeded.
    Succeeded(Output),
    /// It failed.
    Failed(Failure),
}

impl Outcome {
    /// Whether the node succeeded.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Succeeded(_))
    }
}

/// The size and type of an output. Its text is not in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its length as compact JSON.
    pub bytes: u64,
    /// Its JSON type.
    pub shape: Shape,
}

impl Output {
    /// The output of a node without a result: `{}`.
    pub const EMPTY: Output = Output {
        bytes: 2,
        shape: Shape::Object,
    };

    /// The output for a value whose JSON text has `bytes` bytes.
    pub fn of(value: &Value, bytes: usize) -> Output {
        let shape = match value {
            Value::Null => Shape::Null,
            Value::Bool(_) => Shape::Boolean,
            Value::Number(_) => Shape::Number,
            Value::String(_) => Shape::String,
            Value::Array(_) => Shape::Array,
            Value::Object(_) => Shape::Object,
        };
        Output {
            bytes: bytes as u64,
            shape,
        }
    }
}

/// A JSON type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub enum Shape {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

/// Who skipped a node that waited, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedBy {
    /// The caller, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that the caller gave.
    pub reason: String,
}

/// Why a node was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SkipReason {
    /// Its join did not fire: too few incoming edges were satisfied.
    DeadPath,
    /// Its guard was false.
    Guard,
    /// The run was stopping.
    Stopped,
}

/// The result of a condition, and the values that it read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The edge.
    #[serde(default)]
    pub edge: u32,
    /// The result of the condition. Only `true` satisfies the edge.
    pub value: bool,
    /// The error, if the condition could not be evaluated. It then counts as false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The values that the condition read, by path; large values are truncated.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub saw: Map<String, Value>,
}

impl Verdict {
    /// Whether it satisfies its edge or opens its node: true, and evaluated without error.
    pub fn holds(&self) -> bool {
        self.value && self.error.is_none()
    }

    /// A verdict without error and values.
    pub fn plain(edge: u32, value: bool) -> Verdict {
        Verdict {
            edge,
            value,
            error: None,
            saw: Map::new(),
        }
    }
}

/// An event that is not legal in the state of the run: the journal is damaged or belongs to another run or plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` does not fit {what}")]
pub struct Illegal {
    /// The name of the event.
    pub event: &'static str,
    /// A description of the state.
    pub what: String,
}

/// The format that [`encode`] writes.
pub const JOURNAL_VERSION: u32 = 1;

/// A journal row that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The text is not a valid journal row.
    #[error("a journal row cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A newer version of Fermata wrote it.
    #[error("a journal row has format {0}, but this version of Fermata reads only up to format {JOURNAL_VERSION}")]
    TooNew(u32),
}

/// The text of a journal row.
pub fn encode(events: &[Event]) -> String {
    #[derive(Serialize)]
    struct Row<'a> {
        v: u32,
        events: &'a [Event],
    }
    let row = Row {
        v: JOURNAL_VERSION,
        events,
    };
    serde_json::to_string(&row).unwrap_or_else(|error| unreachable!("events are always JSON: {error}"))
}

/// The events of a journal row.
pub fn decode(text: &str) -> Result<Vec<Event>, JournalError> {
    #[derive(Deserialize)]
    struct Row {
        v: u32,
        events: Vec<Event>,
    }
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    match serde_json::from_str::<Row>(text) {
        Ok(row) if row.v <= JOURNAL_VERSION => Ok(row.events),
        Ok(row) => Err(JournalError::TooNew(row.v)),
        Err(error) => match serde_json::from_str::<Version>(text) {
            Ok(Version { v }) if v > JOURNAL_VERSION => Err(JournalError::TooNew(v)),
            _ => Err(error.into()),
        },
    }
}

/// The deadline that the journal of a run recorded at its start. It needs neither the plan nor a known journal format,
/// because it is used for runs that cannot be advanced.
pub fn recorded_deadline(journal: &[String]) -> Option<Timestamp> {
    journal.iter().find_map(|row| {
        let row: Value = serde_json::from_str(row).ok()?;
        let started = row["events"]
            .as_array()?
            .iter()
            .find(|event| event["type"] == "started")?;
        Timestamp::deserialize(&started["deadline"]).ok()
    })
}

impl Event {
    /// The name of the event in the journal.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Started { .. } => "started",
            Event::Reused(_) => "reused",
            Event::Opened { .. } => "opened",
            Event::Skipped { .. } => "skipped",
            Event::Slept { .. } => "slept",
            Event::Began { .. } => "began",
            Event::Requested { .. } => "requested",
            Event::ItemsEnded { .. } => "itemsEnded",
            Event::Answered { .. } => "answered",
            Event::Retried { .. } => "retried",
            Event::Finished { .. } => "finished",
            Event::Resending { .. } => "resending",
            Event::Resent { .. } => "resent",
            Event::Paused { .. } => "paused",
            Event::Resumed { .. } => "resumed",
            Event::Routed { .. } => "routed",
            Event::Stopping { .. } => "stopping",
            Event::Ended { .. } => "ended",
        }
    }

    /// Records how long the attempt that it is about waited before it began.
    pub(crate) fn note_queue(&mut self, waited_ms: Option<u64>) {
        if let Event::Requested { queued_ms, .. }
        | Event::Retried { queued_ms, .. }
        | Event::Finished { queued_ms, .. } = self
        {
            *queued_ms = waited_ms;
        }
    }

    /// Whether it changes the state of its node.
    pub(crate) fn is_of_node(&self) -> bool {
        self.node().is_some() && !matches!(self, Event::Stopping { .. })
    }

    /// The node of the event, if it has one.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Event::Opened { node, .. }
            | Event::Skipped { node, .. }
            | Event::Slept { node, .. }
            | Event::Began { node, .. }
            | Event::Requested { node, .. }
            | Event::ItemsEnded { node, .. }
            | Event::Answered { node, .. }
            | Event::Retried { node, .. }
            | Event::Finished { node, .. }
            | Event::Resending { node, .. }
            | Event::Resent { node, .. }
            | Event::Routed { node, .. } => Some(node),
            Event::Stopping { node, .. } => node.as_ref(),
            Event::Started { .. }
            | Event::Reused(_)
            | Event::Paused { .. }
            | Event::Resumed { .. }
            | Event::Ended { .. } => None,
        }
    }
}
