//! Runners: processes that run workflows, their heartbeats and their leases.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};

/// Runners: their heartbeats and the leases that they hold.
#[async_trait]
pub trait RunnerStore: Send + Sync {
    /// Records a heartbeat of a runner, with its description. Other runners without a heartbeat for a day and without
    /// leases are deleted.
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()>;

    /// Deletes a runner that stops. Its remaining runs can be claimed at once, by claims with `dead_before`.
    async fn retire(&self, runner: RunnerId) -> Result<()>;

    /// Runners with a heartbeat that did not retire, newest first; only those older than `before`, if given.
    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>>;

    /// The runs that a runner holds and that have messages which were not consumed. The cost depends only on the number
    /// of runs found, so it can be polled.
    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>>;

    /// The runs that a runner holds according to the store, by id; only those after `after`, if given.
    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>>;
}

/// A runner without a heartbeat for this long, and without leases, is deleted. In microseconds.
pub(crate) const FORGOTTEN_AFTER: i64 = 24 * 60 * 60 * 1_000_000;

/// A process that runs workflows, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// Its id, new for each process.
    pub id: RunnerId,
    /// The host name.
    pub host: String,
    /// The process id on that host.
    pub pid: u32,
    /// The version of Fermata.
    pub version: String,
    /// Its role, one word.
    pub role: String,
    /// The base address of callbacks that it sends to services; empty if none is configured.
    pub public_url: String,
    /// When the process started.
    pub started_at: Timestamp,
}

/// A runner as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerRecord {
    /// Its description.
    pub runner: Runner,
    /// Its last heartbeat.
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
