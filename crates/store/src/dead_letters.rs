//! Dead letters: runs that cannot be completed, with everything that is needed to start them again.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use uuid::Uuid;

/// Dead letters. They are written by [`RunStore::commit`](crate::runs::RunStore::commit).
#[async_trait]
pub trait DeadLetterStore: Send + Sync {
    /// Dead letters, newest first, without their payloads.
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>>;

    /// A dead letter, with its payload.
    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>>;

    /// Deletes a dead letter; false if it does not exist. Its run is not changed.
    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool>;

    /// Deletes the dead letters that a list with this filter shows, and returns their number. Their runs are not
    /// changed.
    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64>;
}

/// A dead-lettered run. Its status is `Failed` for good. The same request can be started again as a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id, a UUIDv7.
    pub id: Uuid,
    /// When the run was dead-lettered.
    pub at: Timestamp,
    /// The reason.
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
    /// How often it was claimed since its last commit.
    pub attempts: u32,
    /// The last error, as text for people.
    pub last_error: Option<String>,
    /// The request, as JSON. Empty in lists.
    pub payload: String,
}

/// Why a run was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadReason {
    /// Its trigger cannot be read, or does not fit the schema of its workflow.
    InvalidTrigger,
    /// It was claimed too often without a commit.
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

/// A filter for dead letters, newest first. Fields that are `None` match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Only dead letters with this reason.
    pub reason: Option<DeadReason>,
    /// Only dead letters of this workflow.
    pub workflow_uid: Option<Uuid>,
    /// Only dead letters of this tenant; empty for those without one.
    pub tenant: Option<String>,
    /// Only dead letters older than this one, for paging.
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}
