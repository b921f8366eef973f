//! The one place that asks what time it is.

use fermata_core::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of time. Waiting is tokio's, so a simulation that pauses tokio's clock is in charge of both.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Tokio's clock from a fixed beginning. With a paused runtime this is simulated time.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    begin: Timestamp,
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `begin` now.
    pub fn starting_at(begin: Timestamp) -> Self {
        TokioClock {
            begin,
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.begin.0.saturating_add(passed))
    }
}

/// How long it is from `now` until `then`, rounded up to what timers can keep.
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(then.micros_since(now))
}
