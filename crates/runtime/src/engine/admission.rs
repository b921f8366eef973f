//! Admission: how many runs and actions this process takes, and whether it may start anything at all.
//!
//! A run is held only while there is a place for it (`max_active_runs`, memory for payloads) and the lease gate is open. An
//! action executes only in a slot.

use super::HeldRuns;
use crate::{
    action_slots::ActionSlots,
    memory::{Budget, Share},
    runner::{CLAIM_BATCH, lease_gate::LeaseGate, probation},
    settings::Settings,
    slots::Behalf,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{Notify, Semaphore};

/// The least memory that the payloads of a run are assumed to need.
const USUAL_PAYLOAD: u64 = 64 * 1024;

/// The limits of this process and what of them is in use.
pub(crate) struct Admission {
    /// Whether this process works on runs.
    works: bool,
    max_active_runs: usize,
    /// New runs start here while fewer runs wait for a slot.
    max_waiting: usize,
    held: Arc<HeldRuns>,
    pub action_slots: Arc<ActionSlots>,
    pub lease_gate: Arc<LeaseGate>,
    /// Memory for the payloads of held runs.
    pub payloads: Arc<Budget>,
    /// Memory for the responses of services.
    pub responses: Arc<Budget>,
    /// About the memory of the largest run that was claimed recently.
    largest_claimed: AtomicU64,
    /// Places for runs that may crash this process.
    pub probation: Arc<Semaphore>,
}

impl Admission {
    pub fn new(
        settings: &Settings,
        held: Arc<HeldRuns>,
        lease_gate: Arc<LeaseGate>,
        wake_claims: Arc<Notify>,
    ) -> Admission {
        Admission {
            works: settings.role.works(),
            max_active_runs: settings.max_active_runs,
            max_waiting: settings.max_parallel_actions.max(CLAIM_BATCH),
            held,
            action_slots: ActionSlots::new(settings.max_parallel_actions, wake_claims),
            lease_gate,
            payloads: Budget::new(settings.payload_bytes),
            responses: Budget::new(settings.response_bytes),
            largest_claimed: AtomicU64::new(0),
            probation: Arc::new(Semaphore::new(probation::PLACES as usize)),
        }
    }

    /// Whether a new run may be held by this process from its start. While many runs wait for a slot here, new ones wait in
    /// the store, where every process can claim them, unless they get a slot at once.
    pub fn can_start_here(&self, behalf: Behalf<'_>) -> bool {
        self.places() > 0 && (self.action_slots.waiting() < self.max_waiting || self.action_slots.has_room_for(behalf))
    }

    /// How many more runs this process may hold; 0 while nothing may start here.
    pub fn places(&self) -> usize {
        if !self.works || !self.lease_gate.is_open() {
            return 0;
        }
        let by_count = self.max_active_runs.saturating_sub(self.held.len());
        by_count.min(self.places_in_memory())
    }

    /// Whether one run may be held beyond the limits, for its message: a cancel takes effect also while there is no place.
    pub fn has_spare_place(&self) -> bool {
        self.works && self.lease_gate.is_open() && self.held.len() <= self.max_active_runs
    }

    /// How many more runs fit into the memory for payloads if they are as large as those that were claimed recently.
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
}
