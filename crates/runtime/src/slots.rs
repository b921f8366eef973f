//! Slots that are shared fairly: the action slots of a process, and its sandbox processes.
//!
//! Each request for a slot belongs to two groups, a tenant and a workflow. A workflow is one group for all its tenants, so that
//! a caller cannot get a larger share by inventing tenant ids. Requests of the same tenant and workflow form a line.
//!
//! What must stay true:
//! * A slot is never free while a request waits.
//! * A free slot goes to the line whose busier group holds the fewest slots, then to the line that was served least recently;
//!   within a line to the highest priority, then to the oldest request. So a tenant or workflow that holds half of the slots
//!   gets no more while a request of a smaller one waits. While no other waits, it may hold all slots.
//! * Slots are not revoked. So that a group that holds all slots does not exclude the others until one of its slots becomes
//!   free, there is a *reserve* beyond the slots ([`reserve_of`]): its first half is for a tenant or a workflow that holds
//!   no slot, the rest for requests of which neither the tenant nor the workflow holds one. When all slots are taken, such a
//!   group gets one at once.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

/// Slots that are shared fairly.
pub(crate) struct Slots {
    state: Mutex<State>,
    count: usize,
    reserve: usize,
    hasher: RandomState,
    /// Notified when a slot is free and nothing waits for it.
    freed: Arc<Notify>,
}

/// One slot. Released when this is dropped.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    groups: Groups,
}

/// On whose behalf a slot is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behalf<'a> {
    pub tenant: &'a str,
    pub workflow: &'a str,
    pub priority: i32,
}

/// A tenant and a workflow, each by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Groups {
    tenant: u64,
    workflow: u64,
}

#[derive(Default)]
struct State {
    used: usize,
    /// Counts requests and grants, to order them.
    clock: u64,
    tenants: HashMap<u64, Group>,
    workflows: HashMap<u64, Group>,
    lines: BTreeMap<Groups, Line>,
}

/// A tenant or a workflow that holds slots or waits for one.
#[derive(Default)]
struct Group {
    holds: usize,
    waits: usize,
    /// When it last got a slot, or was added.
    served: u64,
}

/// The waiting requests of one tenant and workflow, in order.
type Line = BTreeMap<Place, oneshot::Sender<Slot>>;
type Place = (Reverse<i32>, u64);

/// How many slots there are beyond `count`, for groups that hold none. Zero if `count` is one.
pub(crate) fn reserve_of(count: usize) -> usize {
    (count / 10).max(2).min(count / 2)
}

impl Slots {
    pub fn new(count: usize, freed: Arc<Notify>) -> Arc<Slots> {
        let count = count.max(1);
        Arc::new(Slots {
            state: Mutex::default(),
            count,
            reserve: reserve_of(count),
            hasher: RandomState::new(),
            freed,
        })
    }

    /// A slot at once, or a place in line.
    pub fn take(self: &Arc<Self>, behalf: Behalf<'_>) -> Result<Slot, Waiter> {
        let groups = self.groups(behalf);
        let mut state = self.state();
        state.clock += 1;
        // No request waits while a slot is free, or while the reserve has room for it.
        if state.used < self.room(&state, groups) {
            state.give(groups);
            drop(state);
            return Ok(self.slot(groups));
        }
        let (give, given) = oneshot::channel();
        let place = (Reverse(behalf.priority), state.clock);
        state.appear(groups, |group| group.waits += 1);
        state.lines.entry(groups).or_default().insert(place, give);
        drop(state);
        let slots = self.clone();
        Err(Waiter {
            slots,
            groups,
            place,
            given,
        })
    }

    /// How many slots are in use, those of the reserve included.
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// How many slots are free, without the reserve.
    pub fn idle(&self) -> usize {
        self.count.saturating_sub(self.state().used)
    }

    /// Whether a slot would be granted at once.
    pub fn has_room_for(&self, behalf: Behalf<'_>) -> bool {
        let groups = self.groups(behalf);
        let state = self.state();
        state.used < self.room(&state, groups)
    }

    /// These groups get a slot while fewer slots than this are in use.
    fn room(&self, state: &State, groups: Groups) -> usize {
        let (tenant, workflow) = state.holds(groups);
        match (tenant, workflow) {
            (0, 0) => self.count + self.reserve,
            (0, _) | (_, 0) => self.count + self.reserve.div_ceil(2),
            _ => self.count,
        }
    }

    fn slot(self: &Arc<Self>, groups: Groups) -> Slot {
        let slots = self.clone();
        Slot { slots, groups }
    }

    fn groups(&self, behalf: Behalf<'_>) -> Groups {
        Groups {
            tenant: self.hasher.hash_one(behalf.tenant),
            workflow: self.hasher.hash_one(behalf.workflow),
        }
    }

    /// A slot was released: the next request gets it, or it is free.
    fn release(self: &Arc<Self>, groups: Groups) {
        let mut state = self.state();
        state.used -= 1;
        state.leave(groups, |group| group.holds -= 1);
        let mut given = Vec::new();
        while let Some(next) = state.next(self) {
            given.push(next);
        }
        let is_idle = state.used < self.count;
        drop(state);
        if is_idle {
            self.freed.notify_one();
        }
        for (groups, give) in given {
            // If the waiter was dropped just now, its slot is dropped here and released again.
            let _ = give.send(self.slot(groups));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many slots the tenant and the workflow hold.
    fn holds(&self, groups: Groups) -> (usize, usize) {
        let holds = |group: Option<&Group>| group.map_or(0, |group| group.holds);
        (
            holds(self.tenants.get(&groups.tenant)),
            holds(self.workflows.get(&groups.workflow)),
        )
    }

    /// The order of lines: the smallest rank is served first.
    fn rank(&self, groups: Groups) -> impl Ord + use<> {
        let served = |group: Option<&Group>| group.map_or(0, |group| group.served);
        let (tenant, workflow) = (
            served(self.tenants.get(&groups.tenant)),
            served(self.workflows.get(&groups.workflow)),
        );
        let holds = self.holds(groups);
        (
            (holds.0.max(holds.1), holds.0 + holds.1),
            (tenant.max(workflow), tenant, workflow),
        )
    }

    /// Removes the next request that may have a slot, and counts the slot as granted.
    fn next(&mut self, slots: &Slots) -> Option<(Groups, oneshot::Sender<Slot>)> {
        let may = |groups: &&Groups| self.used < slots.room(self, **groups);
        let groups = *self.lines.keys().filter(may).min_by_key(|groups| self.rank(**groups))?;
        let line = self.lines.get_mut(&groups)?;
        let (_, give) = line.pop_first()?;
        if line.is_empty() {
            self.lines.remove(&groups);
        }
        self.clock += 1;
        self.give(groups);
        self.leave(groups, |group| group.waits -= 1);
        Some((groups, give))
    }

    fn give(&mut self, groups: Groups) {
        self.used += 1;
        let clock = self.clock;
        self.appear(groups, |group| {
            group.holds += 1;
            group.served = clock;
        });
    }

    /// Changes both groups, adding them if they are new.
    fn appear(&mut self, groups: Groups, change: impl Fn(&mut Group)) {
        let new = Group {
            served: self.clock,
            ..Group::default()
        };
        change(self.tenants.entry(groups.tenant).or_insert(new));
        let new = Group {
            served: self.clock,
            ..Group::default()
        };
        change(self.workflows.entry(groups.workflow).or_insert(new));
    }

    /// Changes both groups, and removes one that neither holds a slot nor waits.
    fn leave(&mut self, groups: Groups, change: impl Fn(&mut Group)) {
        for (all, key) in [
            (&mut self.tenants, groups.tenant),
            (&mut self.workflows, groups.workflow),
        ] {
            if let Some(group) = all.get_mut(&key) {
                change(group);
                if group.holds + group.waits == 0 {
                    all.remove(&key);
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.release(self.groups);
    }
}

/// A place in line. Removed when this is dropped.
pub(crate) struct Waiter {
    slots: Arc<Slots>,
    groups: Groups,
    place: Place,
    given: oneshot::Receiver<Slot>,
}

impl Waiter {
    /// Waits for the slot.
    pub async fn slot(mut self) -> Slot {
        (&mut self.given)
            .await
            .unwrap_or_else(|_| unreachable!("the sender stays in its line until it sends"))
    }

    /// The slot, if it was granted already.
    #[cfg(test)]
    pub fn try_slot(&mut self) -> Option<Slot> {
        self.given.try_recv().ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        let Some(line) = state.lines.get_mut(&self.groups) else {
            return;
        };
        // A request that was granted is no longer in line; its slot is dropped with the receiver, or was taken.
        if line.remove(&self.place).is_some() {
            if line.is_empty() {
                state.lines.remove(&self.groups);
            }
            state.leave(self.groups, |group| group.waits -= 1);
        }
    }
}

#[cfg(test)]
mod tests;
