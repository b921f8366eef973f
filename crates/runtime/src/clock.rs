//! The clocks: what time it is for the engine, and what the machine's own clocks show.
//!
//! The engine goes by database time ([`Store::now`]), so that processes on machines whose clocks differ agree on when a
//! sleep ends and whether a wait has timed out. The machine's own clocks say how long this process was away.

use fermata_core::Timestamp;
use fermata_store::{Store, clock};
use std::{sync::Arc, time::Duration};

/// The clocks of a machine. Waiting is tokio's, so a simulation that pauses tokio's clock is in charge of both.
pub trait Clock: Send + Sync + 'static {
    /// What the wall clock shows. It may be wrong, and it may be set.
    fn now(&self) -> Timestamp;

    /// How long the machine runs, in microseconds, also while it was suspended. This clock is never set.
    fn since_boot(&self) -> i64;
}

/// The clocks of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        clock::wall()
    }

    fn since_boot(&self) -> i64 {
        clock::since_boot()
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
        Timestamp(self.begin.0.saturating_add(self.since_boot()))
    }

    fn since_boot(&self) -> i64 {
        i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// What time it is for the engine: the database's time; the machine's where the database has none.
pub(crate) struct EngineClock {
    pub store: Arc<dyn Store>,
    pub machine: Arc<dyn Clock>,
}

impl Clock for EngineClock {
    fn now(&self) -> Timestamp {
        self.store.now().unwrap_or_else(|| self.machine.now())
    }

    fn since_boot(&self) -> i64 {
        self.machine.since_boot()
    }
}

/// How long it is from `now` until `then`, rounded up to what timers can keep.
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(then.micros_since(now))
}
