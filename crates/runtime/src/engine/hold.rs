//! The runs that this process holds, and how many more it may take.

use super::{Shared, lock};
use crate::{memory::Share, runner::CLAIM_BATCH, slots::Behalf};
use fermata_core::RunId;
use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, atomic::Ordering},
};
use tokio::{sync::Notify, task::AbortHandle};

/// What the payloads of a run are believed to take at least.
const USUAL_PAYLOAD: u64 = 64 * 1024;

pub(super) struct Held {
    epoch: u64,
    mail: Arc<Notify>,
    /// Whether the store has it: not yet, if it is a new run.
    stored: bool,
    /// Whether it was taken over by another process.
    lost: bool,
    task: Option<AbortHandle>,
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
    pub fn can_start_here(&self, behalf: Behalf<'_>) -> bool {
        let may_wait = self.settings.max_parallel_actions.max(CLAIM_BATCH);
        self.places() > 0 && (self.action_slots.waiting() < may_wait || self.action_slots.has_room_for(behalf))
    }

    /// How many more runs there is memory for, if something may start here.
    pub fn places(&self) -> usize {
        if !self.settings.role.works() || !self.lease_gate.is_open() {
            return 0;
        }
        let by_count = self.settings.max_active_runs.saturating_sub(self.held().len());
        by_count.min(self.places_in_memory())
    }

    /// Whether one run may be held beyond the limits, for its message: a cancel takes effect also while there is no room.
    pub fn has_spare_place(&self) -> bool {
        self.settings.role.works() && self.lease_gate.is_open() && self.held().len() <= self.settings.max_active_runs
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

    /// This process drives a run now whose lease it asked for when there had been so many gaps (`lease_gate.rs`). `None` if
    /// there was one since then: the lease may be lost.
    pub fn hold(self: &Arc<Self>, run: RunId, epoch: u64, gaps: u64) -> Option<Hold> {
        self.hold_as(run, epoch, Some(gaps))
    }

    /// The same of a new run that the store does not have yet.
    pub fn hold_new(self: &Arc<Self>, run: RunId, epoch: u64) -> Hold {
        let hold = self.hold_as(run, epoch, None);
        hold.unwrap_or_else(|| unreachable!("it is not in the store, so it cannot be lost"))
    }

    fn hold_as(self: &Arc<Self>, run: RunId, epoch: u64, gaps: Option<u64>) -> Option<Hold> {
        let mail = Arc::new(Notify::new());
        let entry = Held {
            epoch,
            mail: mail.clone(),
            stored: gaps.is_some(),
            lost: false,
            task: None,
        };
        let mut held = self.held();
        if gaps.is_some_and(|gaps| gaps != self.lease_gate.gaps()) {
            return None;
        }
        // A driver under an older epoch has lost the run.
        let older = held.insert(run, entry).and_then(|older| older.task);
        drop(held);
        older.iter().for_each(AbortHandle::abort);
        Some(Hold {
            shared: self.clone(),
            run,
            epoch,
            mail,
        })
    }

    /// The store has a new run, and its lease was valid when there had been so many gaps. False if there was one since.
    pub fn is_stored(&self, run: RunId, epoch: u64, gaps: u64) -> bool {
        let mut held = self.held();
        let entry = held.get_mut(&run).filter(|entry| entry.epoch == epoch);
        let valid = gaps == self.lease_gate.gaps();
        if let Some(entry) = entry.filter(|_| valid) {
            entry.stored = true;
        }
        valid
    }

    /// Which task drives a run.
    pub fn is_driven_by(&self, run: RunId, epoch: u64, task: AbortHandle) {
        let mut held = self.held();
        // It may be over already.
        if let Some(entry) = held.get_mut(&run).filter(|entry| entry.epoch == epoch) {
            if entry.lost {
                task.abort();
            }
            entry.task = Some(task);
        }
    }

    /// Whether a run was taken over. To be asked after [`LeaseGate::opens`](crate::runner::lease_gate::LeaseGate::opens): a task that
    /// executes at that moment is dropped only afterwards.
    pub fn is_lost(&self, run: RunId, epoch: u64) -> bool {
        let held = self.held();
        held.get(&run).is_none_or(|entry| entry.epoch != epoch || entry.lost)
    }

    /// The leases under which this process drives runs that the store has.
    pub fn leases(&self) -> Vec<(RunId, u64)> {
        let held = self.held();
        let stored = held.iter().filter(|(_, entry)| entry.stored);
        let mut leases: Vec<_> = stored.map(|(run, entry)| (*run, entry.epoch)).collect();
        leases.sort_unstable(); // the same every time, so that a simulation repeats
        leases
    }

    /// Drops the driver of a run that was taken over, and what it executes.
    pub fn drop_lost(&self, run: RunId, epoch: u64) {
        let mut held = self.held();
        if let Some(entry) = held.get_mut(&run).filter(|entry| entry.epoch == epoch) {
            entry.lost = true;
            entry.task.iter().for_each(AbortHandle::abort);
        }
    }

    /// This process no longer holds a run under this epoch.
    fn let_go(&self, run: RunId, epoch: u64) {
        let mut held = self.held();
        if held.get(&run).is_some_and(|entry| entry.epoch == epoch) {
            held.remove(&run);
        }
        drop(held);
        self.wake_claims.notify_one();
    }

    /// Tells the driver of a run to look into its inbox; false if the run is not held here.
    pub fn ring(&self, run: RunId) -> bool {
        self.held().get(&run).map(|held| held.mail.notify_one()).is_some()
    }
}
