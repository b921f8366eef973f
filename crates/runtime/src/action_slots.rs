//! Action slots: how many actions a process executes at the same time, and the runs that wait for a slot.
//!
//! A process executes at most `max_parallel_actions` actions at the same time. Further attempts wait, and slots are shared
//! fairly ([`crate::slots`]). The counts kept here decide the size of claims (`runner/claim_size.rs`): free slots, runs that
//! wait for one, and claimed runs that have not requested one yet.

use crate::slots::{Behalf, Slot, Slots};
use fermata_core::RunId;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::Notify;

/// The slots of this process.
pub(crate) struct ActionSlots {
    slots: Arc<Slots>,
    waiting: Mutex<Waiting>,
    arriving: AtomicUsize,
    arrived: AtomicUsize,
    /// Notified when a slot becomes free, or a run stops waiting or arriving.
    wake_claims: Arc<Notify>,
}

#[derive(Default)]
struct Waiting {
    /// How many attempts of each run wait.
    runs: BTreeMap<RunId, usize>,
    /// Runs that stopped waiting since this was last read.
    vacated: usize,
}

/// A claimed run that may request a slot soon.
pub(crate) struct Arrival(Arc<ActionSlots>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Relaxed);
        self.0.arrived.fetch_add(1, Relaxed);
        self.0.wake_claims.notify_one();
    }
}

impl ActionSlots {
    pub fn new(slots: usize, wake_claims: Arc<Notify>) -> Arc<ActionSlots> {
        Arc::new(ActionSlots {
            slots: Slots::new(slots, wake_claims.clone()),
            waiting: Mutex::default(),
            arriving: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            wake_claims,
        })
    }

    /// Waits for a slot for an attempt of this run.
    pub async fn take(&self, run: RunId, behalf: Behalf<'_>) -> Slot {
        match self.slots.take(behalf) {
            Ok(slot) => slot,
            Err(waiter) => {
                let _waits = self.wait(run);
                waiter.slot().await
            }
        }
    }

    fn wait(&self, run: RunId) -> Waits<'_> {
        *self.waits().runs.entry(run).or_default() += 1;
        Waits { slots: self, run }
    }

    /// How many runs wait for a slot.
    pub fn waiting(&self) -> usize {
        self.waits().runs.len()
    }

    /// Counts a run as arriving until the result is dropped.
    pub fn expect(self: &Arc<Self>) -> Arrival {
        self.arriving.fetch_add(1, Relaxed);
        Arrival(self.clone())
    }

    /// How many runs are arriving.
    pub fn arriving(&self) -> usize {
        self.arriving.load(Relaxed)
    }

    /// How many runs have arrived since this was last called.
    pub fn arrived(&self) -> usize {
        self.arrived.swap(0, Relaxed)
    }

    /// How many slots are in use; more than there are while the reserve is used.
    pub fn used(&self) -> usize {
        self.slots.used()
    }

    /// How many slots are free.
    pub fn idle(&self) -> usize {
        self.slots.idle()
    }

    /// Whether an attempt would get a slot at once.
    pub fn has_room_for(&self, behalf: Behalf<'_>) -> bool {
        self.slots.has_room_for(behalf)
    }

    /// How many runs stopped waiting since this was last called.
    pub fn vacated(&self) -> usize {
        std::mem::take(&mut self.waits().vacated)
    }

    fn waits(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an attempt of a run as waiting until this is dropped.
struct Waits<'a> {
    slots: &'a ActionSlots,
    run: RunId,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut waiting = self.slots.waits();
        let is_last = waiting.runs.get_mut(&self.run).is_none_or(|attempts| {
            *attempts -= 1;
            *attempts == 0
        });
        if is_last {
            waiting.runs.remove(&self.run);
            waiting.vacated += 1;
            drop(waiting);
            self.slots.wake_claims.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use uuid::Uuid;

    #[test]
    fn waiting_run_is_counted_once_for_all_its_attempts() {
        let wake_claims = Arc::new(Notify::new());
        let slots = ActionSlots::new(1, wake_claims.clone());
        let behalf = Behalf {
            tenant: "",
            workflow: "w",
            priority: 0,
        };
        let one = RunId(Uuid::now_v7());
        let held = slots.take(one, behalf).now_or_never().expect("free");
        let mut waiting: Vec<_> = [one, one, RunId(Uuid::now_v7())]
            .map(|run| Box::pin(slots.take(run, behalf)))
            .into();
        for take in &mut waiting {
            assert!(take.now_or_never().is_none());
        }
        assert_eq!(slots.waiting(), 2);
        drop(held);
        let held = waiting
            .remove(0)
            .now_or_never()
            .expect("the attempt that waited longest is served first");
        assert_eq!(slots.waiting(), 2, "another attempt of the run waits");
        assert!(wake_claims.notified().now_or_never().is_none());
        drop(waiting.remove(0));
        assert_eq!(slots.waiting(), 1);
        assert!(wake_claims.notified().now_or_never().is_some());
        drop(held);
        drop(waiting);
        assert_eq!((slots.waiting(), slots.vacated(), slots.vacated()), (0, 2, 0));
        assert_eq!(slots.idle(), 1);
    }
}
