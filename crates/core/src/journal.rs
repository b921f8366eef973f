//! Events: every decision the conductor takes, as it is written down.
//!
//! A journal row is `{"v":1,"events":[…]}`, the events of one commit. Payloads are not in it: an
//! output is its size and type here, its text stands in the attempt's row. The format only grows:
//! a new field has a default, a new meaning gets a new event, and `v` rises only with an upcast in
//! [`decode`], so journals of every release can be replayed for ever.

use crate::{Failure, NodeId, Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// The run began.
    Started {
        /// When.
        at: Timestamp,
        /// When its time is up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The configured variables, for all its life.
        #[serde(default = "empty_object", skip_serializing_if = "is_empty_object")]
        vars: Value,
    },
    /// A node's join fired; its first attempt is due.
    Opened {
        /// The node.
        node: NodeId,
        /// When.
        at: Timestamp,
        /// For a wait with a limit: when it is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// For a guarded node: what its guard saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    },
    /// A node will not run.
    Skipped {
        /// The node.
        node: NodeId,
        /// Why.
        reason: SkipReason,
        /// For a guarded node: what its guard saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    },
    /// A sleep was given its end.
    Slept {
        /// The node.
        node: NodeId,
        /// When it wakes.
        until: Timestamp,
        /// Whether it fails then, because its time limit comes before its end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        times_out: bool,
    },
    /// An attempt that renders its parameters again starts; it sees what was completed before this event.
    Began {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// When.
        at: Timestamp,
    },
    /// A callback came before its wait was opened, and is kept.
    Answered {
        /// The node.
        node: NodeId,
        /// What came.
        output: Output,
    },
    /// An attempt failed; there will be another.
    Retried {
        /// The node.
        node: NodeId,
        /// The attempt that failed.
        attempt: u32,
        /// How.
        failure: Failure,
        /// When the next one is due, jitter included.
        retry_at: Timestamp,
    },
    /// A node ended, for good.
    Finished {
        /// The node.
        node: NodeId,
        /// The attempt that ended it.
        attempt: u32,
        /// How.
        outcome: Outcome,
    },
    /// A node's outgoing edges were settled.
    Routed {
        /// The node.
        node: NodeId,
        /// The edges taken; all others are dead.
        taken: Vec<u32>,
        /// What the conditions said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verdicts: Vec<Verdict>,
    },
    /// The run is to end; nothing new starts.
    Stopping {
        /// The status it will end with.
        status: Status,
        /// Why, as a stable word: `action_failed`, `timeout`, `cancelled`, `context_overflow`.
        reason: String,
        /// The node that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// The run is over.
    Ended {
        /// When.
        at: Timestamp,
        /// Its final status.
        status: Status,
        /// Why, if it did not succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
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
    /// Well.
    Succeeded(Output),
    /// Badly.
    Failed(Failure),
}

impl Outcome {
    /// Whether it ended well.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Succeeded(_))
    }
}

/// The size and type of an output; its text is elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its length as compact JSON.
    pub bytes: u64,
    /// Its JSON type.
    pub shape: Shape,
}

impl Output {
    /// The output of a node that gives nothing: `{}`.
    pub const EMPTY: Output = Output {
        bytes: 2,
        shape: Shape::Object,
    };

    /// Measures a value that takes `bytes` as JSON.
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

/// Why a node was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SkipReason {
    /// Not enough of its incoming edges were satisfied.
    DeadPath,
    /// Its guard was false.
    Guard,
    /// The run was stopping.
    Stopped,
}

/// What a condition said, and what it saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The edge.
    #[serde(default)]
    pub edge: u32,
    /// True, and only true, satisfies the edge.
    pub value: bool,
    /// Why it could not be evaluated; it counts as false then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The values it read, by path; large ones are cut short.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub saw: Map<String, Value>,
}

impl Verdict {
    /// Whether it satisfies its edge or opens its node: true, and evaluated without error.
    pub fn holds(&self) -> bool {
        self.value && self.error.is_none()
    }

    /// A verdict without particulars.
    pub fn plain(edge: u32, value: bool) -> Verdict {
        Verdict {
            edge,
            value,
            error: None,
            saw: Map::new(),
        }
    }
}

/// An event that does not fit the run it is applied to: a damaged or foreign journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` does not fit {what}")]
pub struct Illegal {
    /// The event's name.
    pub event: &'static str,
    /// The state it met.
    pub what: String,
}

/// The format that [`encode`] writes.
pub const JOURNAL_VERSION: u32 = 1;

/// A journal row that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is not in a known form.
    #[error("a journal row cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It was written by a later program.
    #[error("a journal row has format {0}; this program knows up to {JOURNAL_VERSION}")]
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

/// When the time of a run is up, as its journal recorded at its start. Needs neither the plan nor a format that this
/// program knows: it is asked when a run cannot be advanced.
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
    /// The event's name, as it stands in the journal.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Started { .. } => "started",
            Event::Opened { .. } => "opened",
            Event::Skipped { .. } => "skipped",
            Event::Slept { .. } => "slept",
            Event::Began { .. } => "began",
            Event::Answered { .. } => "answered",
            Event::Retried { .. } => "retried",
            Event::Finished { .. } => "finished",
            Event::Routed { .. } => "routed",
            Event::Stopping { .. } => "stopping",
            Event::Ended { .. } => "ended",
        }
    }

    /// The node it is about.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Event::Opened { node, .. }
            | Event::Skipped { node, .. }
            | Event::Slept { node, .. }
            | Event::Began { node, .. }
            | Event::Answered { node, .. }
            | Event::Retried { node, .. }
            | Event::Finished { node, .. }
            | Event::Routed { node, .. } => Some(node),
            Event::Stopping { node, .. } => node.as_ref(),
            Event::Started { .. } | Event::Ended { .. } => None,
        }
    }
}
