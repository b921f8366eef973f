//! Stopping a run: what happens to its attempts.
//!
//! | cause | attempts without a slot | running actions |
//! | --- | --- | --- |
//! | a cancel, the run's deadline | do not start | their futures are dropped at once |
//! | an unhandled failure, an overflow of the context | do not start | may finish within `stop_grace`, then their futures are dropped |
//!
//! A stopped attempt reports the failure `CANCELLED`, and its slot is free. The grace period is not durable: after a crash no
//! action of the run is running.

use super::Driver;
use fermata_core::{Stop, Timestamp};
use tokio_util::sync::CancellationToken;

/// The signals to the attempts of a run that stops.
#[derive(Default)]
pub(super) struct StopSignals {
    /// Attempts without a slot do not start.
    pub no_new: CancellationToken,
    /// The run is paused: attempts without a slot do not start now.
    pub paused: CancellationToken,
    /// Running actions are stopped.
    pub halt: CancellationToken,
    /// When the grace period of running actions ends.
    grace_ends: Option<Timestamp>,
}

impl Driver {
    /// Starts nothing more. Stops running actions at once, or when their grace period is over.
    pub(super) fn wind_down(&mut self) {
        self.attempts.forget_ready();
        self.stopping.no_new.cancel();
        let now = self.shared.clock.now();
        let grace = self.shared.settings.stop_grace.as_millis() as u64;
        let grace_ends = *self.stopping.grace_ends.get_or_insert_with(|| now.plus_millis(grace));
        let immediate = self.messages.cancelled || self.run.stop().is_some_and(Stop::is_immediate);
        let deadline = self.run.deadline().is_some_and(|deadline| deadline <= now);
        if immediate || deadline || grace_ends <= now {
            self.stopping.halt.cancel();
        }
    }

    /// When running actions of a stopping run are stopped, if they are not yet.
    pub(super) fn halts_at(&self) -> Option<Timestamp> {
        let signals = &self.stopping;
        let grace_ends = signals.grace_ends.filter(|_| !signals.halt.is_cancelled())?;
        let deadline = self.run.deadline();
        Some(deadline.map_or(grace_ends, |deadline| deadline.min(grace_ends)))
    }
}
