//! Runs that cannot be run: dead_lettered with all that is needed to start them again.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use uuid::Uuid;

/// Dead letters. They are written by [`RunStore::commit`](crate::runs::RunStore::commit).
#[async_trait]
pub trait DeadLetterStore: Send + Sync {
    /// Dead letters, the newest first, without their payloads.
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>>;

    /// A dead letter, with its payload.
    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>>;

    /// Removes a dead letter; false if there is no such one. Its run stays as it is.
    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool>;

    /// Removes the dead letters that a list with this filter would show; how many. Their runs stay as they are.
    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64>;
}

/// A run that was given up. It is Failed for good; what was asked for can be asked for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id, a UUIDv7.
    pub id: Uuid,
    /// When the run was given up.
    pub at: Timestamp,
    /// Why.
    pub reason: DeadReason,
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow_uid: Uuid,
    /// The workflow's name.
    pub workflow_id: String,
    /// The version it followed.
    pub workflow_version: u32,
    /// Empty for no tenant.
    pub tenant: String,
    /// How often it was tried since it last got anywhere.
    pub attempts: u32,
    /// What went wrong at last, for people.
    pub last_error: Option<String>,
    /// What was asked for, as JSON. Empty in lists.
    pub payload: String,
}

/// Why a run was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadReason {
    /// Its trigger cannot be read, or does not fit the schema of its workflow.
    InvalidTrigger,
    /// Runners took it again and again, and none of them came to a commit.
    Poison,
    /// The database refuses what the run has to record.
    Rejected,
}

impl DeadReason {
    /// All reasons.
    pub const ALL: [DeadReason; 3] = [DeadReason::InvalidTrigger, DeadReason::Poison, DeadReason::Rejected];

    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::InvalidTrigger => "INVALID_TRIGGER",
            DeadReason::Poison => "POISON",
            DeadReason::Rejected => "COMMIT_REJECTED",
        }
    }

    /// The reason called `word`.
    pub fn parse(word: &str) -> Option<DeadReason> {
        DeadReason::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// Which dead letters, the newest first. What is left empty fits every one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Only with this reason.
    pub reason: Option<DeadReason>,
    /// Only of this workflow.
    pub workflow_uid: Option<Uuid>,
    /// Only older than this one.
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}
