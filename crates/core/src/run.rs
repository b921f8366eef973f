//! The state of one run, computed from its journal. No payloads, no clock, no database.

use crate::{Failure, Items, KeptFailure, NodeId, NodeIx, Outcome, Output, Plan, Timestamp, When, code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The status of a run. `Succeeded`, `Failed` and `Cancelled` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Status {
    Pending,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 5] = [
        Status::Pending,
        Status::Running,
        Status::Succeeded,
        Status::Failed,
        Status::Cancelled,
    ];

    /// Whether the run has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Cancelled)
    }

    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "Pending",
            Status::Running => "Running",
            Status::Succeeded => "Succeeded",
            Status::Failed => "Failed",
            Status::Cancelled => "Cancelled",
        }
    }

    /// The status named `word`, case-insensitive.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL
            .into_iter()
            .find(|status| status.as_str().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run in memory. Only [`crate::apply`] changes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) status: Status,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) vars: Arc<Value>,
    pub(crate) nodes: Vec<NodeState>,
    /// Nodes that may need a decision: idle nodes whose incoming edges are settled, and finished nodes without a route.
    pub(crate) agenda: BTreeSet<NodeIx>,
    /// Nodes that are open.
    pub(crate) active: BTreeSet<NodeIx>,
    /// The end times of open sleeps, waits and requests.
    pub(crate) timers: BTreeSet<(Timestamp, NodeIx)>,
    /// Finished nodes in the order in which they ended.
    pub(crate) completed: Vec<NodeIx>,
    pub(crate) context_bytes: u64,
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) stop: Option<Stop>,
    /// A failure that no edge handled, of a node that was not repeated: the run goes on, and ends as failed.
    pub(crate) kept_failure: Option<KeptFailure>,
    pub(crate) end: Option<End>,
}

/// The state of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// Incoming edges that are satisfied or dead.
    pub settled: u32,
    /// Incoming edges that are satisfied.
    pub satisfied: u32,
    /// When it was opened.
    pub opened_at: Option<Timestamp>,
    /// A callback that was received before the wait was opened.
    pub answer: Option<Output>,
    /// The items of the last attempt, if the node runs one child for each item of a list.
    pub items: Option<Box<Items>>,
    /// The phase of the node.
    pub phase: Phase,
}

/// The phase of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Its join has not fired.
    Idle,
    /// An attempt is due, running, sleeping or waiting.
    Open(Open),
    /// It ended.
    Finished {
        /// The outcome.
        outcome: Outcome,
        /// The last attempt.
        attempt: u32,
        /// Its position in the completion order.
        order: u32,
        /// The outcome that the answer of a request chose.
        chosen: Option<String>,
        /// Whether its outgoing edges are settled.
        routed: bool,
    },
    /// It will not run.
    Skipped,
}

/// An open node.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// The attempt that is due or running.
    pub attempt: u32,
    /// When the attempt may start.
    pub due: Timestamp,
    /// When a sleep ends, or a wait or request times out.
    pub until: Option<Timestamp>,
    /// Whether a sleep fails then.
    pub times_out: bool,
    /// How many nodes of the completion order its templates see.
    pub sees: u32,
    /// Whether the start of the attempt is recorded.
    pub began: bool,
    /// Whether the request of the attempt was sent and its answer is awaited.
    pub requested: bool,
    /// Set while the request is to be sent again.
    pub resending: Option<Timestamp>,
    /// The failure of the previous attempt.
    pub last_failure: Option<Failure>,
}

/// Why a run is stopping.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    /// The final status.
    pub status: Status,
    /// Why: `action_failed`, `timeout` or another stable word; for a cancel, the reason that the caller gave.
    pub reason: String,
    /// The node that caused it.
    pub node: Option<NodeId>,
    /// The failure that caused it.
    pub failure: Option<Failure>,
}

impl Stop {
    /// Whether running actions are stopped at once: on a cancel and at the run's deadline. Otherwise they have a grace period.
    pub fn is_immediate(&self) -> bool {
        let at_deadline = |failure: &Failure| failure.code == code::RUN_TIMEOUT;
        self.status == Status::Cancelled || self.failure.as_ref().is_some_and(at_deadline)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// The time of the end.
    pub at: Timestamp,
    /// Why: `action_failed`, `timeout` or another stable word, if it did not succeed; for a cancel, the reason that the caller gave.
    pub reason: Option<String>,
}

impl Run {
    /// A run that has not started.
    pub fn new(plan: Arc<Plan>) -> Run {
        let idle = NodeState {
            settled: 0,
            satisfied: 0,
            opened_at: None,
            answer: None,
            items: None,
            phase: Phase::Idle,
        };
        Run {
            nodes: vec![idle; plan.nodes.len()],
            plan,
            status: Status::Pending,
            started_at: None,
            deadline: None,
            vars: Arc::new(Value::Null),
            agenda: BTreeSet::new(),
            active: BTreeSet::new(),
            timers: BTreeSet::new(),
            completed: Vec::new(),
            context_bytes: 0,
            paused_at: None,
            stop: None,
            kept_failure: None,
            end: None,
        }
    }

    /// The plan of the run.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The time of the start.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// The time at which the run times out.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// The configured variables, as of the start.
    pub fn vars(&self) -> &Arc<Value> {
        &self.vars
    }

    /// The state of a node.
    pub fn node(&self, ix: NodeIx) -> &NodeState {
        &self.nodes[ix.at()]
    }

    /// Whether a node has ended with a success.
    pub fn succeeded(&self, ix: NodeIx) -> bool {
        matches!(&self.node(ix).phase, Phase::Finished { outcome, .. } if outcome.is_success())
    }

    /// The finished nodes in the order in which they ended.
    pub fn completed(&self) -> &[NodeIx] {
        &self.completed
    }

    /// Whether the start of the node's attempt must be recorded before its action is called, because its parameters are
    /// rendered again as of that time.
    pub fn must_record_start(&self, ix: NodeIx) -> bool {
        let rerenders = self.plan.node(ix).policies.rerender_on_retry;
        matches!(&self.node(ix).phase, Phase::Open(open) if rerenders && open.attempt > 1 && !open.began)
    }

    /// Nodes that are open, in document order.
    pub fn active(&self) -> impl Iterator<Item = NodeIx> + '_ {
        self.active.iter().copied()
    }

    /// Whether nodes may be opened and routed: it is neither stopping nor paused.
    pub fn goes_on(&self) -> bool {
        self.stop.is_none() && self.paused_at.is_none()
    }

    /// When the run was paused, if it is paused. A run that stops is not.
    pub fn paused_at(&self) -> Option<Timestamp> {
        self.paused_at
    }

    /// Why the run is stopping, if it is.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// The failure that the run keeps of an earlier run, if it repeats one in part.
    pub fn kept_failure(&self) -> Option<&KeptFailure> {
        self.kept_failure.as_ref()
    }

    /// How the run ended, if it has.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Nodes that succeeded and have no edge for a success, in document order. The outputs of the run
    /// are their outputs, merged in this order, so they do not depend on which of several parallel nodes ended last.
    pub fn result_nodes(&self) -> impl Iterator<Item = NodeIx> + '_ {
        let is_leaf = |ix: NodeIx| {
            let mut edges = self.plan.node(ix).edges.iter();
            edges.all(|edge| matches!(edge.when, When::Failure | When::Unhandled))
        };
        self.plan.indices().filter(move |ix| {
            let succeeded = matches!(&self.node(*ix).phase, Phase::Finished { outcome, .. } if outcome.is_success());
            succeeded && is_leaf(*ix)
        })
    }
}
