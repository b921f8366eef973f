//! Where runs live: one trait; SQLite, PostgreSQL and memory behind it.
//!
//! SQL stands in this crate and nowhere else. The trait is named by intent; what a caller may rely on
//! is written at each method and checked for every store by [`conformance`].
//!
//! What must stay true:
//! * Nothing is answered before it is durable.
//! * A commit is whole or not at all, and one member of a batch never fails another.
//! * A commit under an old epoch, or of a runner that does not hold the run, changes nothing.
//! * No wake-up is lost between a delivery and a parking.

pub mod clock;
#[cfg(any(test, feature = "cluster"))]
pub mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod dead_letters;
pub mod definitions;
mod error;
mod lists;
pub mod memory;
pub mod postgres;
mod priority;
mod program;
pub mod reads;
mod rules;
pub mod runners;
pub mod runs;
pub mod schema;
pub mod sqlite;
mod statements;
pub mod transfer;

use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use std::sync::Arc;

pub use dead_letters::DeadLetterStore;
pub use definitions::WorkflowStore;
pub use error::StoreError;
pub use reads::ReadStore;
pub use runners::RunnerStore;
pub use runs::RunStore;

/// The result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// What a store may tell everyone in this process who cares. A hint: losing one costs time, never truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeHint {
    /// A run may be claimable now or at this time.
    Due(Timestamp),
    /// Something was put into a run's inbox.
    Inbox(RunId),
}

/// A durable home for workflows and runs.
#[async_trait]
pub trait Store: WorkflowStore + RunStore + RunnerStore + DeadLetterStore + ReadStore + 'static {
    /// Whether the store can write. For readiness.
    async fn ping(&self) -> Result<()>;

    /// Database time, if the database has a clock that all of its processes go by.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// The same store through connections of its own, so that its calls do not wait behind those of others: for
    /// heartbeats, claims and readiness. `None` if nothing can be in the way. Connections belong to the runtime of the
    /// caller that needs them first.
    fn control(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Hints about changes made through this store in this process.
    fn changes(&self) -> tokio::sync::broadcast::Receiver<ChangeHint>;

    /// Flushes and closes. Later calls fail.
    async fn close(&self) -> Result<()>;
}
