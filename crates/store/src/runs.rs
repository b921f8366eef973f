//! What is written of runs: enqueue, claim, commit, deliver, and their answers.

use crate::{Result, StoreError, dead_letters::DeadLetter, reads::ActionRecord};
use async_trait::async_trait;
use fermata_core::{Event, NodeId, RunId, RunnerId, Status, Timestamp, encode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Runs, as runners and the engine advance them. This is the hot path.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Stores a new run, once for each (tenant, requestId). With a lease it is born held by that runner and
    /// its first commit is part of the same transaction.
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued>;

    /// Leases runs that are due and free, or whose runner is dead, each under a new epoch. The latter go first, in half of
    /// the places while others are free. Of those that are free who waits longest goes first, but in a workflow's places
    /// its runs of the highest priority do. A runner must have sent a heartbeat before it holds anything, or others take it
    /// for dead; the asker itself is alive.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Advances a run by one journal row and all that belongs to it; a run that is given up leaves its dead letter
    /// with the same commit.
    async fn commit(&self, commit: RunCommit) -> CommitAnswer;

    /// Puts a letter into a run's inbox and wakes the run.
    async fn deliver(&self, run: RunId, letter: InboxMessage, at: Timestamp) -> Result<Delivery>;

    /// Answers the wait behind `token`: payload, inbox row and wake-up are one transaction. Refused from the wait's
    /// deadline on, also while its run has not noticed that it is over.
    async fn answer(&self, token: &str, payload: &str, at: Timestamp) -> Result<Answer>;

    /// A run with its journal and lease, as a runner needs it to go on.
    async fn load(&self, run: RunId) -> Result<Option<StoredRun>>;

    /// Unconsumed mail of a run, oldest first.
    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>>;

    /// The waits of a run.
    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>>;

    /// The last recorded attempt of each of these nodes (all nodes when the list is empty).
    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<ActionRecord>>;

    /// One recorded attempt.
    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<ActionRecord>>;
}

/// A run to be stored. JSON texts are compact JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Its id, a UUIDv7.
    pub id: RunId,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_id: String,
    /// The version it will follow for all its life.
    pub workflow_version: u32,
    /// Whether the version was asked for by number. If not, it must be the current one, else the answer is `Stale`.
    /// A workflow that is a draft takes pinned runs only; whether drafts run at all is the engine's to say.
    pub pinned: bool,
    /// Empty for no tenant.
    pub tenant: String,
    /// The caller's idempotency key.
    pub request_id: String,
    /// The trigger payload.
    pub trigger: String,
    /// The structured payload beside it.
    pub spec: Option<String>,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// Who asked for it.
    pub principal: Principal,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// With a runner, the run is born held by it, under epoch 1, and `first` is committed with it.
    pub local_start: Option<LocalStart>,
}

/// The lease and first commit of a run that starts where it was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalStart {
    /// Who holds it.
    pub runner: RunnerId,
    /// The first journal row (seq 1) and its waits. The run is `Running` from then on.
    pub events: Vec<Event>,
    /// When it started.
    pub started_at: Timestamp,
    /// Tokens of its waits.
    pub waits: Vec<WaitChange>,
}

/// Who asked for a run.
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

/// What became of a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is stored.
    Created,
    /// This (tenant, requestId) has a run of this workflow already.
    Existing {
        /// The run there is.
        run: RunId,
        /// Where it stands.
        status: Status,
    },
    /// This (tenant, requestId) belongs to a run of another workflow, which may be one of the same name that was deleted.
    OtherWorkflow {
        /// That run.
        run: RunId,
        /// The name of its workflow.
        workflow_id: String,
    },
    /// The workflow is missing, not active, disabled, or has another current version by now. Nothing was stored.
    Stale,
}

/// A wish for runs to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub runner: RunnerId,
    /// At most this many.
    pub limit: u32,
    /// Now.
    pub now: Timestamp,
    /// Only these runs (if they are free, whenever they are due). Whatever is due, if there are none.
    pub only: Vec<RunId>,
    /// Runners whose heartbeat is older than this are dead, as are those never heard of: take over what they hold.
    pub dead_before: Option<Timestamp>,
}

/// What was claimed.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The runs, leased to the asker.
    pub runs: Vec<StoredRun>,
    /// When the next free run that was not claimed is due.
    pub next_due: Option<Timestamp>,
}

/// A run as a runner needs it to go on.
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
    /// Where it stands.
    pub status: Status,
    /// The trigger payload, as JSON.
    pub trigger: String,
    /// The structured payload beside it, as JSON.
    pub spec: Option<String>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// Who asked for it.
    pub principal: Principal,
    /// The lease's epoch.
    pub epoch: u64,
    /// Who holds it.
    pub owner: Option<RunnerId>,
    /// Claims since the last commit, this one included.
    pub takeovers: u32,
    /// The newest letter in its inbox.
    pub inbox_seq: u64,
    /// The newest letter that was consumed.
    pub inbox_seen: u64,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// Its journal rows, in order, as [`fermata_core::decode`] reads them. The row at index i has seq i + 1.
    pub journal: Vec<String>,
}

/// One step of a run, whole or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCommit {
    /// The run.
    pub run: RunId,
    /// Who makes it. Must hold the run,
    pub runner: RunnerId,
    /// under this epoch.
    pub epoch: u64,
    /// The place of its journal row: one more than the last. Unused if there are no events.
    pub seq: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// What was decided. Without events no journal row is written.
    pub events: Vec<Event>,
    /// Attempts that ended.
    pub attempts: Vec<Attempt>,
    /// External resources that were created.
    pub links: Vec<Link>,
    /// Waits to open and to close.
    pub waits: Vec<WaitChange>,
    /// All letters up to this one are consumed and may go.
    pub inbox_seen: u64,
    /// The run's status, if it changed.
    pub status: Option<StatusChange>,
    /// If the run is given up, which a terminal status must say: what is left of it.
    pub dead_letter: Option<Box<DeadLetter>>,
    /// What becomes of the lease. A terminal status releases it whatever this says.
    pub then: Then,
}

/// The most bytes of a link's system, type and id together: PostgreSQL has no larger keys in an index.
const MAX_LINK_KEY: usize = 2000;

impl RunCommit {
    /// Why no store takes this commit, if so: what one database cannot store is refused by all of them.
    pub(crate) fn rejected(&self) -> Option<String> {
        let too_long = self.links.iter().find(|link| link.key_bytes() > MAX_LINK_KEY)?;
        Some(format!(
            "the resource that node `{}` links has a key of {} bytes; at most {MAX_LINK_KEY} are allowed",
            too_long.node,
            too_long.key_bytes()
        ))
    }
}

/// What becomes of the lease after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The runner goes on with the run.
    Keep,
    /// The run leaves the runner until this time, or until mail comes; at once if unseen mail is there already.
    Park {
        /// When it is due; `None` if only mail can wake it.
        wake_at: Option<Timestamp>,
    },
    /// The run was claimed but not touched, and leaves the runner: as if it had not been claimed, so that this claim is
    /// not counted in its `takeovers`. Mail that is there already does not make it due before its time.
    Decline {
        /// When it is due.
        wake_at: Timestamp,
    },
    /// The run was claimed and could not be advanced, and leaves the runner: this claim stays counted in its
    /// `takeovers`. Messages that were looked at do not make it due before its time; a newer one does.
    GiveUp {
        /// When it is due.
        wake_at: Timestamp,
        /// The newest message that was looked at. It stays in the inbox.
        examined: u64,
    },
}

/// A change of status.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusChange {
    /// The new one.
    pub status: Status,
    /// Set when it starts.
    pub started_at: Option<Timestamp>,
    /// Set when it ends.
    pub ended_at: Option<Timestamp>,
    /// A stable word, if it did not succeed.
    pub reason: Option<String>,
    /// `{"code", "message", "node"?}` as JSON, if it failed.
    pub error: Option<String>,
    /// The run's outputs, as JSON.
    pub outputs: Option<String>,
    /// The context snapshot, as JSON.
    pub context_snapshot: Option<String>,
}

/// The status of a recorded attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum AttemptStatus {
    Succeeded,
    Failed,
    RetriableFailure,
    Skipped,
}

impl AttemptStatus {
    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptStatus::Succeeded => "Succeeded",
            AttemptStatus::Failed => "Failed",
            AttemptStatus::RetriableFailure => "RetriableFailure",
            AttemptStatus::Skipped => "Skipped",
        }
    }

    /// The status called `word`.
    pub fn parse(word: &str) -> Option<AttemptStatus> {
        use AttemptStatus::*;
        [Succeeded, Failed, RetriableFailure, Skipped]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// An attempt that ended. Written once, key (run, node, attempt).
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The node.
    pub node: NodeId,
    /// From 1.
    pub attempt: u32,
    /// The action.
    pub action_type: String,
    /// How it ended.
    pub status: AttemptStatus,
    /// The parameters it was called with, as JSON.
    pub parameters: Option<String>,
    /// What it gave, as JSON.
    pub outputs: Option<String>,
    /// Why it failed, as JSON.
    pub error: Option<String>,
    /// When it started; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// An external resource that a node created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The node.
    pub node: NodeId,
    /// The attempt.
    pub attempt: u32,
    /// Such as `slack`.
    pub system: String,
    /// Such as `message`.
    pub resource_type: String,
    /// Its id there.
    pub resource_id: String,
    /// Where people find it.
    pub url: Option<String>,
}

impl Link {
    fn key_bytes(&self) -> usize {
        self.system.len() + self.resource_type.len() + self.resource_id.len()
    }
}

/// A change to a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitChange {
    /// A callback may come for this node, under this token.
    Open {
        /// The node.
        node: NodeId,
        /// The secret in the callback's address.
        token: String,
    },
    /// The node has opened: an answer that comes at this time or later is too late.
    Limit {
        /// The node.
        node: NodeId,
        /// When the wait is over.
        deadline: Timestamp,
    },
    /// Nobody may answer any more. If somebody has, and the run has not seen it, the commit is a
    /// [`Conflict::Answered`].
    Close {
        /// The node.
        node: NodeId,
    },
}

/// What became of a commit. Anything but `Committed` and `Rejected` means: drop the run in memory and load it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitAnswer {
    /// It is durable. If `inbox_seq` is beyond what the run has seen, there is mail.
    Committed {
        /// The newest letter in the run's inbox.
        inbox_seq: u64,
    },
    /// The lease is not this runner's, or not under this epoch any more, or the run is over. Nothing was written.
    Fenced,
    /// It contradicts what others did. Nothing was written.
    Conflict(Conflict),
    /// It may or may not be durable.
    Unknown(String),
    /// The store refuses what is in it, and would refuse it again (see [`StoreError::Rejected`]). Nothing was written. Other
    /// commits of the run, without the refused data, are still possible.
    Rejected(String),
}

impl CommitAnswer {
    /// The answer to a commit that failed.
    pub(crate) fn of_error(error: StoreError) -> CommitAnswer {
        match error {
            StoreError::Rejected(what) => CommitAnswer::Rejected(what),
            other => CommitAnswer::Unknown(other.to_string()),
        }
    }
}

/// What a commit collided with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// The resource is linked to another run.
    Link {
        /// The link that cannot be made.
        link: Link,
        /// The run that has it.
        owner: RunId,
    },
    /// The wait was answered; the answer is in the inbox.
    Answered {
        /// The node.
        node: NodeId,
    },
    /// The journal has a row at this place already.
    Seq,
}

/// Something from outside for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum InboxMessage {
    /// Stop.
    Cancel {
        /// Why.
        reason: String,
    },
    /// The wait of this node was answered; the payload stands with the wait.
    Callback {
        /// The node.
        node: NodeId,
    },
}

/// A letter in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its place, from 1.
    pub seq: u64,
    /// When it came.
    pub at: Timestamp,
    /// What it says.
    pub letter: InboxMessage,
}

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It is in the inbox.
    Delivered {
        /// Where the run stands.
        status: Status,
    },
    /// The run is over; nothing was written.
    Terminal {
        /// How.
        status: Status,
    },
    /// There is no such run.
    NotFound,
}

/// What became of a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is durable and the run will see it.
    Accepted {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeId,
    },
    /// Somebody answered before, or the wait is over.
    Closed,
    /// There is no such token.
    NotFound,
}

/// A wait as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRecord {
    /// The node.
    pub node: NodeId,
    /// The secret in the callback's address.
    pub token: String,
    /// Whether it can still be answered.
    pub open: bool,
    /// The answer, as JSON.
    pub payload: Option<String>,
}

/// The text of a journal row, if there is anything to write. Takes the events so that they are also dropped here, by
/// the caller and not by whoever writes for all.
pub(crate) fn journal_text(events: Vec<Event>) -> Option<String> {
    (!events.is_empty()).then(|| encode(&events))
}

/// A letter as it is stored.
pub(crate) fn message_text(letter: &InboxMessage) -> String {
    serde_json::to_string(letter).unwrap_or_else(|error| unreachable!("letters are always JSON: {error}"))
}
