//! The runs that this process holds.
//!
//! What must stay true: an entry is removed when its [`Hold`] is dropped, also if its driver never started. A lease that was
//! acquired before a gap in the heartbeats (`runner/lease_gate.rs`) may be lost, so it is not accepted after the gap.

use super::lock;
use crate::runner::lease_gate::LeaseGate;
use fermata_core::RunId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::{sync::Notify, task::AbortHandle};

/// The held runs by id.
pub(crate) struct HeldRuns {
    runs: Mutex<HashMap<RunId, Held>>,
    lease_gate: Arc<LeaseGate>,
    /// Notified when a run is released.
    wake_claims: Arc<Notify>,
}

struct Held {
    epoch: u64,
    wake: Arc<Notify>,
    /// Whether the store has the run. A new run is held before it is stored.
    stored: bool,
    /// Whether another process took the run over.
    lost: bool,
    task: Option<AbortHandle>,
}

/// Keeps a run in the map of held runs until it is dropped.
pub(crate) struct Hold {
    held: Arc<HeldRuns>,
    run: RunId,
    /// Notified when the run has new messages. It also identifies the entry.
    pub wake: Arc<Notify>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.release(self);
    }
}

impl HeldRuns {
    pub fn new(lease_gate: Arc<LeaseGate>, wake_claims: Arc<Notify>) -> Arc<HeldRuns> {
        Arc::new(HeldRuns {
            runs: Mutex::default(),
            lease_gate,
            wake_claims,
        })
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Held>> {
        lock(&self.runs)
    }

    pub fn len(&self) -> usize {
        self.runs().len()
    }

    pub fn is_empty(&self) -> bool {
        self.runs().is_empty()
    }

    pub fn contains(&self, run: RunId) -> bool {
        self.runs().contains_key(&run)
    }

    /// Whether a driver of this process has the run under this epoch.
    pub fn drives(&self, run: RunId, epoch: u64) -> bool {
        self.runs().get(&run).is_some_and(|held| held.epoch == epoch)
    }

    /// Adds a run whose lease was requested when `gaps` gaps had been counted. `None` if there was a gap since then.
    pub fn hold(self: &Arc<Self>, run: RunId, epoch: u64, gaps: u64) -> Option<Hold> {
        self.insert(run, epoch, Some(gaps))
    }

    /// Adds a new run that is not stored yet.
    pub fn hold_new(self: &Arc<Self>, run: RunId, epoch: u64) -> Hold {
        let hold = self.insert(run, epoch, None);
        hold.unwrap_or_else(|| unreachable!("it is not in the store, so it cannot be lost"))
    }

    fn insert(self: &Arc<Self>, run: RunId, epoch: u64, gaps: Option<u64>) -> Option<Hold> {
        let wake = Arc::new(Notify::new());
        let entry = Held {
            epoch,
            wake: wake.clone(),
            stored: gaps.is_some(),
            lost: false,
            task: None,
        };
        let mut runs = self.runs();
        if gaps.is_some_and(|gaps| gaps != self.lease_gate.gaps()) {
            return None;
        }
        // A driver under an older epoch has lost the run.
        let older = runs.insert(run, entry).and_then(|older| older.task);
        drop(runs);
        older.iter().for_each(AbortHandle::abort);
        Some(Hold {
            held: self.clone(),
            run,
            wake,
        })
    }

    /// Marks a new run as stored; its lease was valid when `gaps` gaps had been counted. False if there was a gap since then.
    pub fn mark_stored(&self, run: RunId, epoch: u64, gaps: u64) -> bool {
        let mut runs = self.runs();
        let entry = runs.get_mut(&run).filter(|entry| entry.epoch == epoch);
        let valid = gaps == self.lease_gate.gaps();
        if let Some(entry) = entry.filter(|_| valid) {
            entry.stored = true;
        }
        valid
    }

    /// Sets the task that drives a run.
    pub fn set_task(&self, run: RunId, epoch: u64, task: AbortHandle) {
        let mut runs = self.runs();
        match runs.get_mut(&run).filter(|entry| entry.epoch == epoch && !entry.lost) {
            Some(entry) => entry.task = Some(task),
            // It has ended, or the run was lost meanwhile.
            None => task.abort(),
        }
    }

    /// Whether a run was taken over. Call this after [`LeaseGate::opens`]: a task that is being polled at that moment is
    /// dropped only afterwards.
    pub fn is_lost(&self, run: RunId, epoch: u64) -> bool {
        let runs = self.runs();
        runs.get(&run).is_none_or(|entry| entry.epoch != epoch || entry.lost)
    }

    /// The leases under which this process drives runs that are stored.
    pub fn leases(&self) -> Vec<(RunId, u64)> {
        let runs = self.runs();
        let stored = runs.iter().filter(|(_, entry)| entry.stored);
        let mut leases: Vec<_> = stored.map(|(run, entry)| (*run, entry.epoch)).collect();
        leases.sort_unstable(); // the same order every time, so that a simulation can be repeated
        leases
    }

    /// Aborts the driver of a run that was taken over, with the actions it executes.
    pub fn drop_lost(&self, run: RunId, epoch: u64) {
        let mut runs = self.runs();
        if let Some(entry) = runs.get_mut(&run).filter(|entry| entry.epoch == epoch) {
            entry.lost = true;
            entry.task.iter().for_each(AbortHandle::abort);
        }
    }

    /// Aborts all drivers, with the actions they execute.
    pub fn abort_all(&self) {
        let runs = self.runs();
        let mut tasks: Vec<_> = runs
            .iter()
            .filter_map(|(run, entry)| Some((run, entry.task.as_ref()?)))
            .collect();
        tasks.sort_unstable_by_key(|(run, _)| **run); // the same order every time, so that a simulation can be repeated
        tasks.into_iter().for_each(|(_, task)| task.abort());
    }

    /// Removes the entry of `hold`. A newer hold of the same run, which may have the same epoch, keeps its own.
    fn release(&self, hold: &Hold) {
        let mut runs = self.runs();
        if runs
            .get(&hold.run)
            .is_some_and(|entry| Arc::ptr_eq(&entry.wake, &hold.wake))
        {
            runs.remove(&hold.run);
        }
        drop(runs);
        self.wake_claims.notify_one();
    }

    /// Wakes the driver of a run to read its messages. False if the run is not held here.
    pub fn wake(&self, run: RunId) -> bool {
        self.runs().get(&run).map(|held| held.wake.notify_one()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use std::time::Duration;
    use uuid::Uuid;

    #[test]
    fn dropped_hold_keeps_the_entry_of_a_newer_one() {
        let lease_gate = LeaseGate::new(Duration::from_secs(1), Arc::new(SystemClock));
        let held = HeldRuns::new(Arc::new(lease_gate), Arc::default());
        let run = RunId(Uuid::now_v7());
        let older = held.hold_new(run, 1);
        let newer = held.hold_new(run, 1);
        drop(older);
        assert!(held.drives(run, 1));
        drop(newer);
        assert!(held.is_empty());
    }
}
