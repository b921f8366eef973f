//! What a store counts about itself: the batches of its group commit, and the use of its connections.

use fermata_metrics::{Buckets, Counter, Histogram};
use std::time::Duration;

/// 1 to 512 members, the most of a batch.
static BATCH_SIZES: Buckets = Buckets {
    bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    per_unit: 1,
};

/// 0.5 ms to 10 s.
static BATCH_TIMES: Buckets = Buckets {
    bounds: &[
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
        10_000_000,
    ],
    per_unit: 1_000_000,
};

/// Batches of the group commit, since the store was opened.
#[derive(Debug)]
pub struct StoreMetrics {
    /// The members of each batch that was written.
    pub batch_size: Histogram,
    /// How long each of them took, from its first statement until its `COMMIT` was confirmed.
    pub batch_seconds: Histogram,
    /// Batches that were not written, or whose outcome is unknown.
    pub failed_batches: Counter,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        StoreMetrics {
            batch_size: Histogram::new(&BATCH_SIZES),
            batch_seconds: Histogram::new(&BATCH_TIMES),
            failed_batches: Counter::default(),
        }
    }
}

impl StoreMetrics {
    pub(crate) fn written(&self, members: usize, took: Duration) {
        self.batch_size.observe(members as u64);
        self.batch_seconds.observe_time(took);
    }
}

/// The use of a pool of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// The most connections.
    pub size: usize,
    /// Connections that are in use.
    pub used: usize,
    /// Calls that wait for a connection, if that is known.
    pub waiting: usize,
}
