//! The inputs of the conductor. All information from outside reaches a run as one of these facts.

use crate::{Failure, NodeId, Output, Ranges, RefusedItems, Reused, SkippedBy, Timestamp, Verdict};
use serde_json::{Map, Value};

/// A fact and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The time at which the fact became known.
    pub at: Timestamp,
    /// The fact.
    pub fact: Fact,
}

impl Input {
    /// A fact that became known at `at`.
    pub fn new(at: Timestamp, fact: Fact) -> Input {
        Input { at, fact }
    }
}

/// Something that happened. A fact that does not match the state of the run (a late result, a second callback) has no
/// effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The run starts.
    Start {
        /// The configured variables. They do not change during the run.
        vars: Value,
        /// The timeout of this run, if it is not the plan's.
        timeout_ms: Option<u64>,
        /// What the run keeps of an earlier run, if it repeats one in part.
        reused: Option<Box<Reused>>,
    },
    /// An attempt of an action ended. For a request: it was sent, or could not be sent.
    Returned {
        /// The node.
        node: NodeId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The result of the action.
        result: Result<Output, Failure>,
        /// Randomness for the retry delay, a fraction of `u32::MAX`.
        jitter: u32,
        /// How long it waited for a slot, or for a place of its tenant, if that is to be recorded.
        queued_ms: Option<u64>,
    },
    /// The conditions of a node's edges were evaluated.
    Judged {
        /// The node.
        node: NodeId,
        /// One verdict for each edge that was evaluated.
        verdicts: Vec<Verdict>,
    },
    /// The guard of a node was evaluated.
    Guarded {
        /// The node.
        node: NodeId,
        /// The verdict; its edge number is not used.
        verdict: Verdict,
    },
    /// The duration of a sleep was rendered.
    Timed {
        /// The node.
        node: NodeId,
        /// The duration, or why it could not be rendered.
        duration_ms: Result<u64, Failure>,
    },
    /// Time has passed: timers and the deadline up to now are due.
    Tick,
    /// A callback for a wait was received.
    Callback {
        /// The wait node, which may not be open yet.
        node: NodeId,
        /// The size and type of the payload.
        output: Output,
    },
    /// An attempt of a request was answered.
    Answered {
        /// The node.
        node: NodeId,
        /// The attempt that was answered.
        attempt: u32,
        /// The size and type of the output, or the failure that was answered.
        result: Result<Output, Failure>,
        /// The outcome that the answer chose.
        chosen: Option<String>,
        /// Randomness for the retry delay, a fraction of `u32::MAX`.
        jitter: u32,
    },
    /// The list of a node with one child for each item was rendered.
    Listed {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// The number of items, or why there is no list.
        items: Result<u32, Failure>,
        /// Randomness for the retry delay, a fraction of `u32::MAX`.
        jitter: u32,
    },
    /// Children of items ended. Items that ended before are ignored.
    ItemsEnded {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// Items whose child succeeded.
        succeeded: Ranges,
        /// Items whose child failed, was cancelled or could not start.
        failed: Ranges,
        /// Those that could not start.
        refused: Vec<RefusedItems>,
        /// Why the first of the failed items failed.
        failure: Option<Failure>,
        /// Randomness for the retry delay, a fraction of `u32::MAX`.
        jitter: u32,
    },
    /// A cancel was requested.
    Cancel {
        /// The reason, for display.
        reason: String,
    },
    /// A pause was requested.
    Pause {
        /// When.
        at: Timestamp,
    },
    /// A resume was requested.
    Resume {
        /// When.
        at: Timestamp,
    },
    /// A caller skips a node that waits.
    Skip {
        /// The node.
        node: NodeId,
        /// The size and type of the output that the node has instead.
        output: Output,
        /// The outcome that the node chooses, if it is a decision.
        chosen: Option<String>,
        /// Who, and why.
        skipped: SkippedBy,
    },
    /// A caller wants a request that waits for its answer to be sent again.
    Resend {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// When.
        at: Timestamp,
    },
    /// An attempt that was to be aborted did not start, or will not return a result.
    Aborted {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// An attempt whose start must be recorded has an action slot and is about to start.
    Begins {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// No new information: decide what follows from the events so far.
    Settle,
}

impl Fact {
    /// A start without variables.
    pub fn start() -> Fact {
        Fact::Start {
            vars: Value::Object(Map::new()),
            timeout_ms: None,
            reused: None,
        }
    }
}
