//! A commit: what one step of a run writes, and its result.

use crate::{StoreError, dead_letters::DeadLetter, inbox::InboxItem, usage::Usage};
use fermata_core::{Event, NodeId, RunId, RunnerId, Status, Timestamp};
use serde::{Deserialize, Serialize};

/// One step of a run. It is written completely or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCommit {
    /// The run.
    pub run: RunId,
    /// The runner that commits. It must hold the run.
    pub runner: RunnerId,
    /// The epoch of its lease.
    pub epoch: u64,
    /// The seq of its journal row: one more than the last. Ignored if there are no events.
    pub seq: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// The events that were decided. Without events no journal row is written.
    pub events: Vec<Event>,
    /// Attempts that ended.
    pub attempts: Vec<Attempt>,
    /// External resources that were created.
    pub links: Vec<Link>,
    /// Waits to open and to close.
    pub waits: Vec<WaitChange>,
    /// The run has consumed all messages up to this seq; they are deleted.
    pub messages_seen: u64,
    /// Ended children whose ends this commit records: their marks are removed.
    pub children_seen: Vec<RunId>,
    /// The run's status, if it changed.
    pub status: Option<StatusChange>,
    /// The dead letter, if the run is dead-lettered. The commit must then have a terminal status.
    pub dead_letter: Option<Box<DeadLetter>>,
    /// Steps that are counted for the run's tenant.
    pub usage: Option<Usage>,
    /// The cached state, if it changes.
    pub state: Option<CachedState>,
    /// What happens to the lease. A terminal status always releases it.
    pub then: Then,
}

/// The maximum size of system, type and id of a link together, in bytes: PostgreSQL has no larger index keys.
const MAX_LINK_KEY: usize = 2000;

impl RunCommit {
    /// Whether the run ends with it.
    pub(crate) fn ends(&self) -> bool {
        self.status.as_ref().is_some_and(|change| change.status.is_terminal())
    }

    /// Why every store refuses this commit, if so. Data that one database cannot store is refused by all.
    pub(crate) fn rejected(&self) -> Option<String> {
        let too_long = self.links.iter().find(|link| link.key_bytes() > MAX_LINK_KEY)?;
        Some(format!(
            "the resource that node `{}` links has a key of {} bytes; at most {MAX_LINK_KEY} are allowed",
            too_long.node,
            too_long.key_bytes()
        ))
    }
}

/// What happens to the lease after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The runner keeps the run.
    Keep,
    /// The run is released until this time or until a message arrives. If there is an unseen message already, it
    /// is due at once.
    Park {
        /// When it is due; `None` if only a message can wake it.
        wake_at: Option<Timestamp>,
    },
    /// The run was claimed but not advanced, and is released as if it had not been claimed: this claim is not counted
    /// in its `takeovers`. Messages do not make it due before `wake_at`.
    Decline {
        /// When it is due.
        wake_at: Timestamp,
    },
    /// The run was claimed and could not be advanced. It is released, and this claim stays counted in its `takeovers`.
    /// Examined messages do not make it due before `wake_at`; a newer message does.
    GiveUp {
        /// When it is due.
        wake_at: Timestamp,
        /// The seq of the newest message that was examined. It stays stored.
        examined: u64,
    },
}

/// A change to the cached state of a run. The journal and the recorded outputs are what counts; a cached state only spares
/// reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedState {
    /// Replaces the cached state.
    Set(String),
    /// Removes it.
    Remove,
}

/// A change of status.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusChange {
    /// The new status.
    pub status: Status,
    /// Set when it starts.
    pub started_at: Option<Timestamp>,
    /// Set when it ends.
    pub ended_at: Option<Timestamp>,
    /// Why: `action_failed`, `timeout` or another stable word, if it did not succeed; for a cancel, the reason that the caller gave.
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
    /// Its output, as JSON.
    pub outputs: Option<String>,
    /// Why it failed, as JSON.
    pub error: Option<String>,
    /// When it started; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The run that made it, if this one only keeps it. A commit does not set it.
    pub reused_from: Option<RunId>,
}

/// An external resource that a node created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The node.
    pub node: NodeId,
    /// The attempt.
    pub attempt: u32,
    /// The external system, such as `slack`.
    pub system: String,
    /// The type of the resource, such as `message`.
    pub resource_type: String,
    /// The id of the resource in that system.
    pub resource_id: String,
    /// Its address for people.
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
    /// Opens a wait: this attempt of a node accepts one answer with this token.
    Open {
        /// The node.
        node: NodeId,
        /// The attempt; 1 for a plain wait.
        attempt: u32,
        /// The secret in the callback's address.
        token: String,
    },
    /// Sets the deadline of a wait when its node opens: answers at this time or later are refused.
    Limit {
        /// The node.
        node: NodeId,
        /// When the wait times out.
        deadline: Timestamp,
    },
    /// Puts the open wait of an attempt into the inbox, where people and workers find it. A wait that was answered
    /// already is not changed.
    Offer {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// What people and workers see.
        item: InboxItem,
    },
    /// Closes all waits of a node: answers are refused from now on. If the wait has an answer that the run has not seen, the commit
    /// is a [`Conflict::Answered`].
    Close {
        /// The node.
        node: NodeId,
    },
}

/// The result of a commit. After any result except `Committed` and `Rejected`, drop the run from memory and load it
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitAnswer {
    /// The commit is durable. If `message_seq` is greater than what the run has seen, it has pending messages.
    Committed {
        /// The seq of the newest message for the run.
        message_seq: u64,
    },
    /// The runner does not hold the run under this epoch, or the run is terminal. Nothing was written.
    Fenced,
    /// It conflicts with something that is stored. Nothing was written.
    Conflict(Conflict),
    /// It may or may not be durable.
    Unknown(String),
    /// The store refuses the data of the commit and would refuse it again (see [`StoreError::Rejected`]). Nothing was
    /// written. Commits of the run without that data are still possible.
    Rejected(String),
}

impl CommitAnswer {
    /// The result of a commit that failed with an error.
    pub(crate) fn of_error(error: StoreError) -> CommitAnswer {
        match error {
            StoreError::Rejected(what) => CommitAnswer::Rejected(what),
            other => CommitAnswer::Unknown(other.to_string()),
        }
    }
}

/// What a commit conflicts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// The resource is linked to another run.
    Link {
        /// The link that cannot be stored.
        link: Link,
        /// The run that owns the resource.
        owner: RunId,
    },
    /// The wait has an answer; its message is stored.
    Answered {
        /// The node.
        node: NodeId,
    },
    /// The seq is not the next one of the journal.
    Seq,
}
