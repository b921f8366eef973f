//! The clocks: database time for the engine, and the machine's own clocks.
//!
//! The engine uses database time ([`Store::now`]), so that processes on machines whose clocks differ agree on when a sleep
//! ends and whether a wait has timed out. The machine's own clocks measure for how long this process was suspended.

use fermata_core::Timestamp;
use fermata_store::{Store, clock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// The clocks of a machine. Timers are tokio's, so a simulation that pauses tokio's clock controls both.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock. It may be wrong, and it may be set.
    fn now(&self) -> Timestamp;

    /// Microseconds since the machine booted, suspended time included. This clock is never set.
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

/// Tokio's clock with a fixed start. In a paused runtime this is simulated time.
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

/// A wall clock that stands still until it is moved. For dry runs: a sleep takes no time, and the times of a run are exact.
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicI64,
}

impl VirtualClock {
    /// A clock that shows `begin`.
    pub fn starting_at(begin: Timestamp) -> Self {
        VirtualClock {
            now: AtomicI64::new(begin.0),
        }
    }

    /// Moves the clock forward to `at`. It never moves back.
    pub fn advance_to(&self, at: Timestamp) {
        self.now.fetch_max(at.0, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> i64 {
        clock::since_boot()
    }
}

/// The time of the engine: the database's; the machine's if the database has none.
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

/// The time from `now` until `then`; zero if that has passed.
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(then.micros_since(now))
}
