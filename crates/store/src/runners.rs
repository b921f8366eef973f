//! Who runs workflows: processes that say that they live, and what they hold.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};

/// Runners: their heartbeats and the leases that they hold.
#[async_trait]
pub trait RunnerStore: Send + Sync {
    /// Says that a runner lives, and who it is. Others that were not heard of for a day and hold nothing are forgotten.
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()>;

    /// Says that a runner is gone; what it still holds may be claimed at once, by claims with `dead_before`.
    async fn retire(&self, runner: RunnerId) -> Result<()>;

    /// Runners that were heard of and did not retire, the newest first; only those older than `before`, if given.
    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>>;

    /// The runs that a runner holds and that have letters which were not consumed. Costs as much as it finds, so that
    /// a runner may ask again and again.
    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>>;

    /// The runs that a runner holds, by id, as the store believes; only those after `after`, if given.
    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>>;
}

/// A runner that was not heard of for this long, and holds nothing, is forgotten. In microseconds.
pub(crate) const FORGOTTEN_AFTER: i64 = 24 * 60 * 60 * 1_000_000;

/// A process that runs workflows, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// New for each process.
    pub id: RunnerId,
    /// The machine it is on.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// What it is there for, in a word.
    pub role: String,
    /// Where callbacks come, as it tells services; empty if it tells nothing.
    pub public_url: String,
    /// When it began.
    pub started_at: Timestamp,
}

/// A runner as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerRecord {
    /// Who it is.
    pub runner: Runner,
    /// When it last said that it lives.
    pub heartbeat_at: Timestamp,
    /// How many runs it holds.
    pub held: u64,
}

/// A run that a runner holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run: RunId,
    /// The epoch under which it is held.
    pub epoch: u64,
}
