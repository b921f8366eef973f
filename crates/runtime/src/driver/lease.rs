//! What a driver keeps for as long as it holds its run.

use crate::{action_slots::Arrival, engine::Hold, runner::probation::Probation};
use fermata_core::Timestamp;

/// Guards that are released when they are dropped.
#[derive(Default)]
pub(super) struct Lease {
    /// The run's entry among the held runs.
    pub hold: Option<Hold>,
    /// Set until the run is trusted not to crash its process.
    pub probation: Option<Probation>,
    /// Set from the claim until the run has requested its first slots.
    pub arrival: Option<Arrival>,
}

impl Lease {
    pub fn of(hold: Hold) -> Lease {
        Lease {
            hold: Some(hold),
            ..Lease::default()
        }
    }

    /// Whether the run has executed for long enough to be trusted, which the store must record.
    pub fn is_proven(&self, now: Timestamp) -> bool {
        self.probation.as_ref().is_some_and(|probation| probation.is_over(now))
    }

    /// When that is checked again.
    pub fn proven_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.probation.as_ref().map(|probation| probation.check_at(now))
    }
}
