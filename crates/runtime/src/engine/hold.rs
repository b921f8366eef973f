//! The runs that this process holds, and how many more it may take.

use super::{Shared, lock};
use crate::{runner::CLAIM_BATCH, slots::Behalf};
use fermata_core::RunId;
use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard},
};
use tokio::sync::Notify;

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
        self.settings.max_active_runs.saturating_sub(self.held().len())
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
