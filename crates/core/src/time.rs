//! Timestamps. This crate never reads a clock; times are inputs.

use serde::{Deserialize, Serialize};

/// An instant: microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This instant, `millis` later. Saturates instead of wrapping.
    pub fn plus_millis(self, millis: u64) -> Timestamp {
        let micros = i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1000);
        Timestamp(self.0.saturating_add(micros))
    }

    /// Whole milliseconds since the epoch.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Microseconds from `earlier` to this instant; zero if `earlier` is not earlier.
    pub fn micros_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
