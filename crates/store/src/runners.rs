//! Who runs workflows: processes that say that they live, and what they hold.

use fermata_core::{RunId, RunnerId, Timestamp};

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
