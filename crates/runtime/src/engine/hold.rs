//! The runs that this process holds, and how many more it may take.

use super::{Shared, lock};
use crate::{memory::Share, runner::CLAIM_BATCH, slots::Behalf};
use fermata_core::RunId;
use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, atomic::Ordering},
};
use tokio::sync::Notify;

/// What the payloads of a run are believed to take at least.
const USUAL_PAYLOAD: u64 = 64 * 1024;

pub(super) struct Held {
    epoch: u64,
    mail: Arc<Notify>,
}

/// A run is held for as long as this lives, also when its driver never comes to drive.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    run: RunId,
    epoch: u64,
    /// Tells of mail.
    pub mail: Arc<Notify>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.let_go(self.run, self.epoch);
    }
}

impl Shared {
    pub(super) fn held(&self) -> MutexGuard<'_, HashMap<RunId, Held>> {
        lock(&self.held)
    }

    /// Whether a new run may be held by this process from its start. While many runs wait for a slot here, new ones wait in
    /// the store, where every process sees them, unless they get a slot at once.
    pub fn may_bear(&self, behalf: Behalf<'_>) -> bool {
        let may_wait = self.settings.max_parallel_actions.max(CLAIM_BATCH);
        self.places() > 0 && (self.turns.waiting() < may_wait || self.turns.has_room_for(behalf))
    }

    /// How many more runs there is memory for, if it is known that this process lives.
    pub fn places(&self) -> usize {
        if !self.settings.role.works() || !self.pulse.is_heard(self.clock.now()) {
            return 0;
        }
        let by_count = self.settings.max_active_runs.saturating_sub(self.held().len());
        by_count.min(self.places_in_memory())
    }

    /// How many more runs fit into the memory for payloads, if they are like those that were claimed lately.
    fn places_in_memory(&self) -> usize {
        let free = self.payloads.free();
        let each = self.largest_claimed.load(Ordering::Relaxed).max(USUAL_PAYLOAD);
        let places = usize::try_from(free / each).unwrap_or(usize::MAX);
        places.max(usize::from(free > 0))
    }

    /// Counts the payloads of a run that was claimed.
    pub fn count_claimed(&self, size: u64) -> Share {
        let newer = |earlier: u64| Some(size.max(earlier - earlier / 8));
        let _ = self
            .largest_claimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
        self.payloads.count(size)
    }

    /// Whether this process holds a run.
    pub(super) fn holds(&self, run: RunId) -> bool {
        self.held().contains_key(&run)
    }

    /// Whether this process holds no run at all.
    pub fn holds_nothing(&self) -> bool {
        self.held().is_empty()
    }

    /// Whether a driver of this process has a run under this epoch.
    pub fn drives(&self, run: RunId, epoch: u64) -> bool {
        self.held().get(&run).is_some_and(|held| held.epoch == epoch)
    }

    /// This process holds a run now.
    pub fn hold(self: &Arc<Self>, run: RunId, epoch: u64) -> Hold {
        let mail = Arc::new(Notify::new());
        let held = Held {
            epoch,
            mail: mail.clone(),
        };
        self.held().insert(run, held);
        Hold {
            shared: self.clone(),
            run,
            epoch,
            mail,
        }
    }

    /// This process no longer holds a run under this epoch.
    fn let_go(&self, run: RunId, epoch: u64) {
        let mut held = self.held();
        if held.get(&run).is_some_and(|entry| entry.epoch == epoch) {
            held.remove(&run);
        }
        drop(held);
        self.look.notify_one();
    }

    /// Tells the driver of a run to look into its inbox; false if the run is not held here.
    pub fn ring(&self, run: RunId) -> bool {
        self.held().get(&run).map(|held| held.mail.notify_one()).is_some()
    }

    /// Tells all drivers to look into their inboxes.
    pub fn ring_all(&self) {
        self.held().values().for_each(|held| held.mail.notify_one());
    }
}
