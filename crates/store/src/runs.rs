//! Writes of runs: enqueue, claim, commit, deliver and answer, with their arguments and results.

mod commit;

use crate::{
    Result,
    children::Parent,
    fields::RunField,
    flow::{Flow, RunFlow},
    triggers::TriggerDelivery,
};
use async_trait::async_trait;
use fermata_core::{Event, NodeId, RunId, RunnerId, Status, Timestamp, encode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use commit::{
    Attempt, AttemptStatus, CachedState, CommitAnswer, Conflict, Link, RunCommit, StatusChange, Then, WaitChange,
};

/// Runs, as runners and the engine advance them. This is the hot path.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Stores a new run, at most one for each (tenant, requestId). With `local_start` the run is stored as held by that
    /// runner, and its first commit is part of the same transaction.
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued>;

    /// Leases runs that are due and free, or whose runner is dead, each under a new epoch. Runs of dead runners go
    /// first; while free runs are due too, they get at most half of the places. Free runs are ordered by due time;
    /// within the places of one workflow, runs of higher priority go first. A runner must have sent a heartbeat before
    /// it claims, or other runners treat it as dead. The claiming runner itself counts as alive.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Advances a run by one journal row and everything that belongs to it. The dead letter of a dead-lettered run is
    /// part of the same commit.
    async fn commit(&self, commit: RunCommit) -> CommitAnswer;

    /// Adds a message for a run and wakes the run.
    async fn deliver(&self, run: RunId, message: RunMessage, at: Timestamp) -> Result<Delivery>;

    /// Answers the wait with this token. Payload, run message and wake-up are one transaction. Answers at or after
    /// the deadline of the wait are refused, even if the run has not processed its timeout yet. `by` names who answered,
    /// if that is known. The lease of a worker is not checked: the token is a right of its own.
    async fn answer(&self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Result<Answer>;

    /// A run with its journal and lease, as a runner needs it to continue.
    async fn load(&self, run: RunId) -> Result<Option<StoredRun>>;

    /// Messages of a run that were not consumed, oldest first; only those after `after`.
    async fn messages(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>>;

    /// The waits of a run, by node, attempt and token.
    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>>;

    /// The last recorded attempt of each of these nodes (all nodes when the list is empty).
    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<Attempt>>;

    /// The cached state of a run, if it has one.
    async fn cached_state(&self, run: RunId) -> Result<Option<String>>;

    /// One recorded attempt.
    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<Attempt>>;
}

/// A new run. JSON texts are compact JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Its id, a UUIDv7.
    pub id: RunId,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_id: String,
    /// The version it follows; it never changes.
    pub workflow_version: u32,
    /// Whether the caller named the version. If not, the version must be the current one, else the answer is `Stale`. A
    /// workflow in `Draft` accepts pinned runs only; the engine decides whether drafts may run at all.
    pub pinned: bool,
    /// Empty for no tenant.
    pub tenant: String,
    /// The caller's idempotency key.
    pub request_id: String,
    /// The trigger payload.
    pub trigger: String,
    /// The structured payload, in addition to the trigger.
    pub spec: Option<String>,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// The request or event that started it, if a trigger did: what expressions see as `request`.
    pub request: Option<String>,
    /// The delivery that starts it. It is stored with the run.
    pub delivery: Option<Box<TriggerDelivery>>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// The `traceparent` of the request that started it, if it had one.
    pub traceparent: Option<String>,
    /// The user that requested it.
    pub principal: Principal,
    /// The run that started it.
    pub parent: Option<Parent>,
    /// The run that it repeats, if it does.
    pub rerun: Option<Box<NewRerun>>,
    /// When it was requested.
    pub created_at: Timestamp,
    /// How it is limited, if it is (see [`crate::flow`]).
    pub flow: Option<Box<Flow>>,
    /// The fields of its trigger that it is found by.
    pub fields: Vec<RunField>,
    /// If set, the run is stored as held by this runner, under epoch 1, together with its first commit. A run that has to
    /// wait is stored without it.
    pub local_start: Option<LocalStart>,
}

/// What a new run has of the run that it repeats.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRerun {
    /// Which run it repeats.
    pub source: RerunOf,
    /// What it keeps and changes, as JSON: a [`fermata_core::Rerun`].
    pub text: String,
    /// The nodes whose recorded attempts are copied.
    pub nodes: Vec<NodeId>,
}

/// The run that another run repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunOf {
    /// The run.
    pub run: RunId,
    /// The first run of the chain. Runs of one chain may link the same resources.
    pub root: RunId,
}

/// The lease and the first commit of a run that starts in the process that accepted it.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalStart {
    /// The runner that holds it.
    pub runner: RunnerId,
    /// The first journal row (seq 1). The status of the run is `Running`.
    pub events: Vec<Event>,
    /// When it started.
    pub started_at: Timestamp,
    /// Tokens of its waits.
    pub waits: Vec<WaitChange>,
}

/// The user that requested a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Principal {
    pub user_id: String,
    pub display_name: Option<String>,
    pub email: Option<String>,
}

impl Default for Principal {
    fn default() -> Self {
        Principal {
            user_id: "system".to_owned(),
            display_name: Some("System".to_owned()),
            email: None,
        }
    }
}

/// The result of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// The run is stored.
    Created,
    /// The run is stored as `Pending` and not held, also if it has a `local_start`: it waits for a place or for its time.
    Waiting,
    /// No place of a key is free, and the run is refused then. Nothing was stored.
    Full,
    /// A run of this workflow with this (tenant, requestId) exists, or a run that owns its unique key, or that took its
    /// payload (`debounce`).
    Existing {
        /// The existing run.
        run: RunId,
        /// Its status.
        status: Status,
    },
    /// A run of another workflow has this (tenant, requestId). That workflow may be a deleted one of the same name.
    OtherWorkflow {
        /// That run.
        run: RunId,
        /// The name of its workflow.
        workflow_id: String,
    },
    /// The parent is over, or its runner has lost the lease under which it starts the child. Nothing was stored.
    ParentLost,
    /// The run that it repeats does not exist any more, or has no payloads any more. Nothing was stored.
    SourceLost,
    /// The workflow is missing, not active or disabled, or its current version has changed. Nothing was stored.
    Stale,
}

/// A request for runs to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The claiming runner.
    pub runner: RunnerId,
    /// At most this many.
    pub limit: u32,
    /// Now.
    pub now: Timestamp,
    /// Claim only these runs, if they are free, even before they are due. If empty: claim any run that is due.
    pub only: Vec<RunId>,
    /// Runners whose last heartbeat is before this time are dead, as are runners without a heartbeat: claim their runs
    /// too.
    pub dead_before: Option<Timestamp>,
}

/// The result of a claim.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The runs, leased to the claiming runner.
    pub runs: Vec<StoredRun>,
    /// When the next free run is due that was not claimed.
    pub next_due: Option<Timestamp>,
}

/// A run as a runner needs it to continue.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// Its id.
    pub id: RunId,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_id: String,
    /// The version it follows.
    pub workflow_version: u32,
    /// Empty for no tenant.
    pub tenant: String,
    /// Its status.
    pub status: Status,
    /// The trigger payload, as JSON.
    pub trigger: String,
    /// The structured payload, in addition to the trigger, as JSON.
    pub spec: Option<String>,
    /// The request or event that started it, if a trigger did, as JSON.
    pub request: Option<String>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// The `traceparent` of the request that started it, if it had one.
    pub traceparent: Option<String>,
    /// The user that requested it.
    pub principal: Principal,
    /// The epoch of the lease.
    pub epoch: u64,
    /// The runner that holds it.
    pub owner: Option<RunnerId>,
    /// Claims since the last commit, this one included.
    pub takeovers: u32,
    /// The seq of the newest message for it.
    pub message_seq: u64,
    /// The seq of the newest message that was consumed.
    pub messages_seen: u64,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// Whether its parent waits for its end.
    pub parent_waits: bool,
    /// 0 without a parent.
    pub depth: u32,
    /// The workflows of its parent, of the parent's parent and so on.
    pub lineage: Vec<Uuid>,
    /// How it is limited, if it is.
    pub flow: Option<Box<RunFlow>>,
    /// What it keeps of the run that it repeats, and what it changes, as JSON: a [`fermata_core::Rerun`].
    pub rerun: Option<String>,
    /// Its journal rows, in order, as [`fermata_core::decode`] reads them. The row at index i has seq i + 1.
    pub journal: Vec<String>,
}

/// A message to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum RunMessage {
    /// Cancel the run.
    Cancel {
        /// The reason.
        reason: String,
    },
    /// The wait of this node was answered. The payload is in the row of the wait.
    Callback {
        /// The node.
        node: NodeId,
        /// The attempt whose wait it was. Messages of older programs do not have it.
        #[serde(default = "first_attempt")]
        attempt: u32,
    },
    /// Awaited children have ended (see [`crate::children`]). Nothing is added while one is unread.
    ChildrenEnded,
    /// Pause the run. Its row says so from the delivery on; nothing is added if it is paused already.
    Pause,
    /// Resume the run. Nothing is added if it is not paused.
    Resume,
    /// Skip a node that waits.
    Skip(SkipNode),
    /// Send the request of this attempt again.
    Resend {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
}

/// The skip of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipNode {
    /// The node.
    pub node: NodeId,
    /// The output that it has instead, as JSON.
    pub outputs: String,
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RunMessage {
    /// Whether it pauses the run (`true`) or resumes it (`false`).
    pub(crate) fn pauses(&self) -> Option<bool> {
        match self {
            RunMessage::Pause => Some(true),
            RunMessage::Resume => Some(false),
            _ => None,
        }
    }
}

/// The same for the stored form of a message.
pub(crate) fn pauses(message: &str) -> Option<bool> {
    match message {
        r#"{"kind":"pause"}"# => Some(true),
        r#"{"kind":"resume"}"# => Some(false),
        _ => None,
    }
}

/// The stored form of [`RunMessage::ChildrenEnded`].
pub(crate) const CHILDREN_ENDED: &str = r#"{"kind":"childrenEnded"}"#;

/// Whether the stored form of a message is a cancel.
pub(crate) fn is_cancel(message: &str) -> bool {
    message.starts_with(r#"{"kind":"cancel""#)
}

fn first_attempt() -> u32 {
    1
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its number among the messages of the run, from 1.
    pub seq: u64,
    /// When it was delivered.
    pub at: Timestamp,
    /// The message.
    pub message: RunMessage,
}

/// The result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The message is stored.
    Delivered {
        /// The status of the run.
        status: Status,
    },
    /// The run is terminal; nothing was written.
    Terminal {
        /// Its status.
        status: Status,
    },
    /// There is no such run.
    NotFound,
}

/// The result of a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer is durable and the run will receive it.
    Accepted {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeId,
    },
    /// The wait was answered before, was closed, or has timed out.
    Closed,
    /// A worker holds the item, and the answer does not carry its lease. Never the result for a token.
    Leased,
    /// The lease that the answer carries has lapsed, or is not the item's. Never the result for a token.
    LeaseLapsed,
    /// No wait has this token, or there is no such item or wait.
    NotFound,
}

/// A wait as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRecord {
    /// The node.
    pub node: NodeId,
    /// The attempt; 1 for a plain wait.
    pub attempt: u32,
    /// The secret in the callback's address.
    pub token: String,
    /// Whether it accepts an answer.
    pub open: bool,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// Who answered, if that is known.
    pub answered_by: Option<String>,
    /// When it was answered. Answers that older programs stored have no time.
    pub answered_at: Option<Timestamp>,
}

/// The text of a journal row, if there are events. It takes the events by value, so that they are encoded and dropped
/// in the task of the caller and not in the shared writer.
pub(crate) fn journal_text(events: Vec<Event>) -> Option<String> {
    (!events.is_empty()).then(|| encode(&events))
}

impl NewRun {
    /// Takes the text of the first journal row, if the run starts locally.
    pub(crate) fn take_first_row(&mut self) -> Option<String> {
        let start = self.local_start.as_mut()?;
        journal_text(std::mem::take(&mut start.events))
    }
}

/// The stored form of a message.
pub(crate) fn message_text(message: &RunMessage) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| unreachable!("messages are always JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_of_a_message_does_not_change() {
        assert_eq!(message_text(&RunMessage::ChildrenEnded), CHILDREN_ENDED);
        let reason = "because".to_owned();
        assert!(is_cancel(&message_text(&RunMessage::Cancel { reason })));
        assert!(!is_cancel(CHILDREN_ENDED));
        for message in [RunMessage::Pause, RunMessage::Resume, RunMessage::ChildrenEnded] {
            assert_eq!(pauses(&message_text(&message)), message.pauses(), "{message:?}");
        }
        let skip = RunMessage::Skip(SkipNode {
            node: "w".into(),
            outputs: "{}".to_owned(),
            reason: "known".to_owned(),
            by: None,
        });
        let text = r#"{"kind":"skip","node":"w","outputs":"{}","reason":"known"}"#;
        assert_eq!(message_text(&skip), text);
        assert_eq!(serde_json::from_str::<RunMessage>(text).unwrap(), skip);
    }

    #[test]
    fn callbacks_of_older_programs_are_of_the_first_attempt() {
        let stored = r#"{"kind":"callback","node":"w"}"#;
        let node = NodeId::from("w");
        let read: RunMessage = serde_json::from_str(stored).unwrap();
        assert_eq!(read, RunMessage::Callback { node, attempt: 1 });
    }
}
