//! Ids and random numbers of this process.

use super::lock;
use crate::clock::Clock;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
use uuid::{ContextV7, Uuid};

/// Generates ids and jitter.
pub(crate) struct Ids {
    clock: Arc<dyn Clock>,
    rng: AtomicU64,
    /// Keeps ids of the same millisecond in the order in which they were generated.
    context: Mutex<ContextV7>,
}

impl Ids {
    /// With a seed the jitter is the same each time; without one it is random.
    pub fn new(clock: Arc<dyn Clock>, seed: Option<u64>) -> Ids {
        Ids {
            clock,
            rng: AtomicU64::new(seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0)),
            context: Mutex::new(ContextV7::new()),
        }
    }

    /// A UUIDv7 with database time: lists are sorted by id.
    pub fn next(&self) -> Uuid {
        let now = u64::try_from(self.clock.now().0).unwrap_or_default();
        let (seconds, nanos) = (now / 1_000_000, (now % 1_000_000) as u32 * 1000);
        Uuid::new_v7(uuid::Timestamp::from_unix(&*lock(&self.context), seconds, nanos))
    }

    /// Jitter for retry delays: a splitmix64 sequence.
    pub fn jitter(&self) -> u32 {
        let mut z = self.rng.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}
