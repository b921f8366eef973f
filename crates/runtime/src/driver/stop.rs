//! Stopping a run: what becomes of its attempts.
//!
//! | cause | attempts without a slot | running actions |
//! | --- | --- | --- |
//! | a cancel, the run's deadline | do not start | their futures are dropped at once |
//! | an unhandled failure, an overflow of the context | do not start | may finish within `stop_grace`, then their futures are dropped |
//!
//! An attempt that is stopped reports the failure `CANCELLED`, and its slot is free. The grace period is this process's alone: after a
//! crash no action runs any more.

use super::Driver;
use fermata_core::{Stop, Timestamp};

impl Driver {
    /// Nothing starts any more; running actions are stopped at once, or when their grace period is over.
    pub(super) fn wind_down(&mut self) {
        self.ready.clear();
        self.slots.clear();
        self.unwanted.cancel();
        let now = self.shared.clock.now();
        let grace = self.shared.settings.stop_grace.as_millis() as u64;
        let grace_ends = *self.halt_at.get_or_insert_with(|| now.plus_millis(grace));
        let immediate = self.cancel_asked || self.run.stop().is_some_and(Stop::is_immediate);
        let deadline = self.run.deadline().is_some_and(|deadline| deadline <= now);
        if immediate || deadline || grace_ends <= now {
            self.halt.cancel();
        }
    }

    /// When running actions of a stopping run are stopped, if they are not yet.
    pub(super) fn halts_at(&self) -> Option<Timestamp> {
        let grace_ends = self.halt_at.filter(|_| !self.halt.is_cancelled())?;
        Some(
            self.run
                .deadline()
                .map_or(grace_ends, |deadline| deadline.min(grace_ends)),
        )
    }
}
