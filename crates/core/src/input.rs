//! What can happen to a run. Everything the conductor knows of the world arrives as one of these.

use crate::{Failure, NodeId, Output, Timestamp, Verdict};
use serde_json::{Map, Value};

/// A fact and the moment it was learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// When.
    pub at: Timestamp,
    /// What.
    pub fact: Fact,
}

impl Input {
    /// A fact learned at `at`.
    pub fn new(at: Timestamp, fact: Fact) -> Input {
        Input { at, fact }
    }
}

/// What was learned. A fact that no longer fits the run (a late result, a second callback) decides nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The run begins. `vars` is the configuration it will see for all its life.
    Start {
        /// The configured variables.
        vars: Value,
    },
    /// An attempt of an action came back.
    Returned {
        /// Of this node.
        node: NodeId,
        /// Its number, from 1.
        attempt: u32,
        /// What it gave.
        result: Result<Output, Failure>,
        /// Randomness for the retry delay, a fraction of `u32::MAX`.
        jitter: u32,
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
        /// The verdict; its edge number means nothing.
        verdict: Verdict,
    },
    /// The duration of a sleep was rendered.
    Timed {
        /// The node.
        node: NodeId,
        /// How long to sleep.
        duration_ms: Result<u64, Failure>,
    },
    /// Time has passed; whatever is due by now is due.
    Tick,
    /// Someone answered a wait.
    Callback {
        /// The node that waits, or will.
        node: NodeId,
        /// The payload's size and type.
        output: Output,
    },
    /// Someone wants the run to stop.
    Cancel {
        /// Why, for people.
        reason: String,
    },
    /// An attempt that the run no longer wants has not begun, or will never come back.
    Aborted {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// An attempt whose start is recorded is about to start: it has its slot.
    Begins {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// Nothing from outside: decide what the events so far imply.
    Settle,
}

impl Fact {
    /// A start without variables.
    pub fn start() -> Fact {
        Fact::Start {
            vars: Value::Object(Map::new()),
        }
    }
}
