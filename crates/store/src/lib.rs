//! The store: workflows, runs, runners and dead letters. It is implemented by SQLite, PostgreSQL and memory.
//!
//! SQL is in this crate only. [`Store`] is the sum of one trait for each domain. Its methods are named by intent. What
//! a caller may rely on is documented at each method, and [`conformance`] checks it for every store. The rules that
//! decide about starts and commits are in `rules.rs`.
//!
//! What must stay true:
//! * A write is answered only after it is durable.
//! * A commit is atomic, and one member of a batch never fails another.
//! * A commit under an old epoch, or by a runner that does not hold the run, changes nothing.
//! * No wake-up is lost when a message arrives while its run is being parked.

pub mod audit;
pub mod bulk;
pub mod callbacks;
pub mod children;
pub mod clock;
#[cfg(any(test, feature = "cluster"))]
pub mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod dead_letters;
pub mod definitions;
mod error;
pub mod fields;
pub mod flow;
pub mod inbox;
pub mod keys;
mod lists;
pub mod memory;
mod metrics;
pub mod postgres;
mod priority;
mod program;
pub mod reads;
pub mod retention;
mod rules;
pub mod runners;
pub mod runs;
pub mod schema;
pub mod sqlite;
mod statements;
pub mod stats;
pub mod transfer;
pub mod triggers;
pub mod usage;

use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use std::sync::Arc;

pub use audit::AuditStore;
pub use bulk::BulkStore;
pub use callbacks::CallbackStore;
pub use children::ChildStore;
pub use dead_letters::DeadLetterStore;
pub use definitions::WorkflowStore;
pub use error::StoreError;
pub use fields::FieldStore;
pub use flow::FlowStore;
pub use inbox::InboxStore;
pub use keys::KeyStore;
pub use metrics::{PoolUse, StoreMetrics};
pub use reads::ReadStore;
pub use retention::RetentionStore;
pub use runners::RunnerStore;
pub use runs::RunStore;
pub use stats::StatsStore;
pub use triggers::TriggerStore;
pub use usage::UsageStore;

/// The result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A change notification inside this process. It is only a hint: a lost one causes delay, never a wrong result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeHint {
    /// A run may be claimable now or at this time.
    Due(Timestamp),
    /// A message was added for this run.
    Messages(RunId),
    /// An item was put into the queue with this number (see [`inbox::queue_number`]).
    Inbox(u64),
}

/// What a database is, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Its product, with its version if it has one.
    pub kind: String,
    /// Its size, if it is on disk.
    pub bytes: Option<u64>,
    /// The number of its newest migration; 0 if it has no schema.
    pub schema: u32,
}

/// A durable store of workflows and runs.
#[async_trait]
pub trait Store:
    WorkflowStore
    + RunStore
    + ChildStore
    + InboxStore
    + CallbackStore
    + AuditStore
    + KeyStore
    + RunnerStore
    + DeadLetterStore
    + ReadStore
    + RetentionStore
    + TriggerStore
    + UsageStore
    + StatsStore
    + FlowStore
    + FieldStore
    + BulkStore
    + 'static
{
    /// Checks that the store can write. Used for readiness.
    async fn ping(&self) -> Result<()>;

    /// What the database is.
    async fn about(&self) -> Result<Database>;

    /// Database time, if the database has a clock that all its processes use.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// The same store over its own connections, so that its calls do not queue behind other calls. Used for heartbeats,
    /// claims and readiness. `None` if calls never queue. The connections belong to the tokio runtime that uses them
    /// first.
    fn control(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Notifications of changes that were made through this store in this process.
    fn changes(&self) -> tokio::sync::broadcast::Receiver<ChangeHint>;

    /// A number that changes when this process has written something other than heartbeats, so that nothing needs to be read again
    /// while it stays the same. `None` if other processes may write too.
    fn writes(&self) -> Option<u64> {
        None
    }

    /// What the store counts about itself; `None` if it counts nothing.
    fn metrics(&self) -> Option<&StoreMetrics> {
        None
    }

    /// The use of the connections for reads; `None` if there are none.
    fn pool(&self) -> Option<PoolUse> {
        None
    }

    /// Flushes and closes the store. Later calls fail.
    async fn close(&self) -> Result<()>;
}
