//! Bulk jobs: one action on many runs. The runs are chosen first and stored with the job; nothing else is acted on.
//!
//! | state | meaning | next |
//! | --- | --- | --- |
//! | `ready` | the runs are stored, nothing was done | `running`, `cancelled` |
//! | `running` | processes take slices of runs and act on them | `finished`, `cancelling` |
//! | `cancelling` | a process may still act on the slice that it took before | `cancelled` |
//! | `cancelled`, `finished` | nothing more happens | |
//!
//! What must stay true:
//! * A job and its runs are stored in one transaction, and no run is ever added.
//! * A job that is running or cancelling has a `retry_at`: a process that dies loses none. One process holds a job at a time, under
//!   an epoch; results under an older epoch are not recorded.
//! * The next slice is given out in the transaction that records the results of the slice before, and only while the job is
//!   `running`. So a job that is `cancelled` or `finished` has no slice in the hands of its holder.
//! * The result of a run is recorded once, and the counts are those of the recorded results.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use std::time::Duration;
use uuid::Uuid;

/// How long jobs are kept after they were made. A job that is running is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// Bulk jobs.
#[async_trait]
pub trait BulkStore: Send + Sync {
    /// Stores a job in the state `ready`, with its runs.
    async fn add_bulk(&self, job: BulkJob, runs: Vec<RunId>) -> Result<()>;

    /// Starts or cancels a job. `None` if there is no such job; otherwise the job after the call.
    async fn change_bulk(&self, id: Uuid, change: BulkChange, at: Timestamp) -> Result<Option<BulkJob>>;

    /// One job.
    async fn bulk(&self, id: Uuid) -> Result<Option<BulkJob>>;

    /// Jobs, newest first; of one tenant, if given, and only those before `before`.
    async fn bulks(&self, tenant: Option<&str>, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>>;

    /// The runs of a job with their results, by id; only those in this state and after `after`, if given.
    async fn bulk_items(
        &self,
        id: Uuid,
        state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>>;

    /// When a job can be taken next.
    async fn next_bulk(&self) -> Result<Option<Timestamp>>;

    /// Takes a job that is due at `now`, under a new epoch: no other process takes it before `until`.
    async fn take_bulk(&self, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>>;

    /// Records results, and returns the next runs to act on. `None` if there is nothing more to do: the job is over, or another
    /// process holds it.
    async fn advance_bulk(&self, step: BulkStep) -> Result<Option<Vec<RunId>>>;

    /// Removes jobs that were made before this time and are not running, in steps of at most `limit` rows. Returns how many rows
    /// were removed.
    async fn prune_bulks(&self, before: Timestamp, limit: u32) -> Result<u64>;
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkJob {
    /// Its id, a UUIDv7.
    pub id: Uuid,
    /// The tenant of the caller that made it; empty for none.
    pub tenant: String,
    /// What is done, as JSON.
    pub action: String,
    /// The query that found the runs, if there was one.
    pub query: Option<String>,
    /// In whose name it acts, as JSON.
    pub caller: String,
    /// Its state.
    pub state: BulkState,
    /// How many runs it has.
    pub total: u64,
    /// How many were acted on.
    pub done: u64,
    /// How many could not be acted on in the state that they had.
    pub refused: u64,
    /// How many failed.
    pub failed: u64,
    /// Increases when a process takes it.
    pub epoch: u64,
    /// When another process may take it.
    pub retry_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it was cancelled or finished.
    pub ended_at: Option<Timestamp>,
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $name {
            $($variant),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word used in the API and the database.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }

            /// The one called `word`, in any case.
            pub fn parse(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.as_str().eq_ignore_ascii_case(word))
            }
        }
    };
}

words! {
    /// The state of a job.
    BulkState { Ready = "ready", Running = "running", Cancelling = "cancelling", Cancelled = "cancelled", Finished = "finished" }
}

words! {
    /// What became of a run.
    ItemState { Pending = "pending", Done = "done", Refused = "refused", Failed = "failed" }
}

impl BulkState {
    /// Whether nothing more happens.
    pub fn is_over(self) -> bool {
        matches!(self, BulkState::Cancelled | BulkState::Finished)
    }
}

/// What a caller asks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BulkChange {
    Start,
    Cancel,
}

/// A run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkItem {
    /// The run.
    pub run: RunId,
    /// What became of it.
    pub state: ItemState,
    /// The code of an error.
    pub code: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// The run that was created for it.
    pub created: Option<RunId>,
}

/// One step of the process that holds a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkStep {
    /// The job.
    pub job: Uuid,
    /// The epoch under which it is held.
    pub epoch: u64,
    /// What became of runs of the last slice. None is pending.
    pub results: Vec<BulkItem>,
    /// How many runs the next slice has at most.
    pub limit: u32,
    /// Now.
    pub now: Timestamp,
    /// When another process may take the job.
    pub until: Timestamp,
}

impl BulkJob {
    /// Starts or cancels it. False if nothing changes: each takes effect once.
    pub(crate) fn change(&mut self, change: BulkChange, at: Timestamp) -> bool {
        match (change, self.state) {
            (BulkChange::Start, BulkState::Ready) => {
                self.state = BulkState::Running;
                (self.started_at, self.retry_at) = (Some(at), Some(at));
                true
            }
            (BulkChange::Cancel, BulkState::Ready) => {
                self.end(BulkState::Cancelled, at);
                true
            }
            (BulkChange::Cancel, BulkState::Running) => {
                self.state = BulkState::Cancelling;
                true
            }
            (BulkChange::Start | BulkChange::Cancel, _) => false,
        }
    }

    /// Gives it to a process.
    pub(crate) fn take(&mut self, until: Timestamp) {
        self.epoch += 1;
        self.retry_at = Some(until);
    }

    /// Whether a step of its holder is still allowed.
    pub(crate) fn is_held(&self, epoch: u64) -> bool {
        self.epoch == epoch && matches!(self.state, BulkState::Running | BulkState::Cancelling)
    }

    pub(crate) fn count(&mut self, state: ItemState) {
        match state {
            ItemState::Pending => {}
            ItemState::Done => self.done += 1,
            ItemState::Refused => self.refused += 1,
            ItemState::Failed => self.failed += 1,
        }
    }

    /// After the results of a step were recorded: whether its holder gets this slice.
    pub(crate) fn continues(&mut self, slice: &[RunId], step: &BulkStep) -> bool {
        match self.state {
            BulkState::Running if !slice.is_empty() => {
                self.retry_at = Some(step.until);
                true
            }
            BulkState::Running => {
                self.end(BulkState::Finished, step.now);
                false
            }
            _ => {
                self.end(BulkState::Cancelled, step.now);
                false
            }
        }
    }

    fn end(&mut self, state: BulkState, at: Timestamp) {
        self.state = state;
        (self.retry_at, self.ended_at) = (None, Some(at));
    }
}

macro_rules! job_columns {
    () => {
        "id, tenant_id, action_json, query, caller_json, state, total, done, refused, failed, epoch, retry_at, created_at,
        started_at, ended_at"
    };
}

pub(crate) const ADD_JOB: &str = concat!(
    "INSERT INTO bulk_jobs (",
    job_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
);
pub(crate) const JOB: &str = concat!("SELECT ", job_columns!(), " FROM bulk_jobs WHERE id = ?1");
pub(crate) const PUT_JOB: &str = "UPDATE bulk_jobs SET state = ?2, done = ?3, refused = ?4, failed = ?5, epoch = ?6,
    retry_at = ?7, started_at = ?8, ended_at = ?9 WHERE id = ?1";
pub(crate) const DUE_JOB: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM bulk_jobs WHERE retry_at <= ?1 ORDER BY retry_at LIMIT 1"
);
pub(crate) const NEXT_JOB: &str = "SELECT retry_at FROM bulk_jobs WHERE retry_at IS NOT NULL ORDER BY retry_at LIMIT 1";
pub(crate) const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM bulk_jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2"
);
pub(crate) const JOBS_OF_TENANT: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM bulk_jobs WHERE tenant_id = ?3 AND tenant_id <> '' AND id < ?1 ORDER BY id DESC LIMIT ?2"
);
/// Jobs that are running have a `retry_at`.
pub(crate) const OLD_JOB: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM bulk_jobs WHERE id < ?1 AND retry_at IS NULL ORDER BY id LIMIT 1"
);
pub(crate) const DELETE_JOB: &str = "DELETE FROM bulk_jobs WHERE id = ?1";
pub(crate) const SLICE: &str =
    "SELECT run_id FROM bulk_items WHERE job_id = ?1 AND state = 'pending' ORDER BY run_id LIMIT ?2";
pub(crate) const SETTLE: &str = "UPDATE bulk_items SET state = ?3, code = ?4, message = ?5, created_run_id = ?6
    WHERE job_id = ?1 AND run_id = ?2 AND state = 'pending'";
pub(crate) const ITEMS: &str = "SELECT run_id, state, code, message, created_run_id FROM bulk_items
    WHERE job_id = ?1 AND run_id > ?2 ORDER BY run_id LIMIT ?3";
pub(crate) const ITEMS_IN_STATE: &str = "SELECT run_id, state, code, message, created_run_id FROM bulk_items
    WHERE job_id = ?1 AND state = ?4 AND run_id > ?2 ORDER BY run_id LIMIT ?3";
pub(crate) const DELETE_ITEMS: &str = "DELETE FROM bulk_items WHERE job_id = ?1 AND run_id IN
    (SELECT run_id FROM bulk_items WHERE job_id = ?1 ORDER BY run_id LIMIT ?2)";
