//! Whose turn it is to act.
//!
//! A process executes `max_parallel_actions` at the same time; attempts beyond that wait here. A turn that becomes free
//! goes to the tenants one after another, within a tenant to its workflows one after another, and within a workflow to
//! the highest priority, then to who waits longest. So nobody waits for somebody else's backlog.

use fermata_core::RunId;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::{Notify, oneshot};

/// The turns of this process.
pub(crate) struct Turns {
    state: Mutex<State>,
    arriving: AtomicUsize,
    arrived: AtomicUsize,
    /// Told when a turn is free, or a run no longer waits or arrives.
    look: Arc<Notify>,
}

/// The right to execute one action, for as long as this lives.
pub(crate) struct Turn(Arc<Turns>);

/// A run was claimed, and may ask for a turn soon.
pub(crate) struct Arrival(Arc<Turns>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Relaxed);
        self.0.arrived.fetch_add(1, Relaxed);
        self.0.look.notify_one();
    }
}

/// On whose behalf an attempt waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behalf<'a> {
    pub tenant: &'a str,
    pub workflow: &'a str,
    pub priority: i32,
    pub run: RunId,
}

struct State {
    /// Turns that nobody has. While there is one, nobody waits.
    free: usize,
    tickets: u64,
    tenants: Rota<Rota<Line>>,
    /// How many attempts of each run wait.
    runs: BTreeMap<RunId, usize>,
    /// Runs that no longer wait, since somebody asked.
    vacated: usize,
}

/// Those who wait for the same workflow, in the order of their turns.
type Line = BTreeMap<(Reverse<i32>, u64), Waiting>;

struct Waiting {
    run: RunId,
    give: oneshot::Sender<Turn>,
}

impl Turns {
    pub fn new(turns: usize, look: Arc<Notify>) -> Arc<Turns> {
        let state = State {
            free: turns,
            tickets: 0,
            tenants: Rota::default(),
            runs: BTreeMap::new(),
            vacated: 0,
        };
        Arc::new(Turns {
            state: Mutex::new(state),
            arriving: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            look,
        })
    }

    /// A turn, when it comes.
    pub async fn take(self: &Arc<Self>, behalf: Behalf<'_>) -> Turn {
        match self.take_or_wait(behalf) {
            Ok(turn) => turn,
            Err(given) => given
                .await
                .unwrap_or_else(|_| unreachable!("who waits is given a turn")),
        }
    }

    fn take_or_wait(self: &Arc<Self>, behalf: Behalf<'_>) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Turn(self.clone()));
        }
        let (give, given) = oneshot::channel();
        state.tickets += 1;
        let place = (Reverse(behalf.priority), state.tickets);
        *state.runs.entry(behalf.run).or_default() += 1;
        let line = state.tenants.of(behalf.tenant).of(behalf.workflow);
        line.insert(place, Waiting { run: behalf.run, give });
        Err(given)
    }

    /// How many runs have something to do and wait for a turn.
    pub fn waiting(&self) -> usize {
        self.state().runs.len()
    }

    /// A run arrives, for as long as this lives.
    pub fn expect(self: &Arc<Self>) -> Arrival {
        self.arriving.fetch_add(1, Relaxed);
        Arrival(self.clone())
    }

    /// How many runs arrive.
    pub fn arriving(&self) -> usize {
        self.arriving.load(Relaxed)
    }

    /// How many runs have arrived, since this was asked.
    pub fn arrived(&self) -> usize {
        self.arrived.swap(0, Relaxed)
    }

    /// How many turns nobody has.
    pub fn idle(&self) -> usize {
        self.state().free
    }

    /// How many runs no longer wait, since this was asked.
    pub fn vacated(&self) -> usize {
        std::mem::take(&mut self.state().vacated)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    /// Gives the turn to the next who still wants it.
    fn drop(&mut self) {
        loop {
            let mut state = self.0.state();
            let Some(waiting) = state.tenants.pop() else {
                state.free += 1;
                drop(state);
                self.0.look.notify_one();
                return;
            };
            let left = state.forget(waiting.run);
            drop(state);
            if left {
                self.0.look.notify_one();
            }
            if !waiting.give.is_closed() {
                let _ = waiting.give.send(Turn(self.0.clone())); // who left just now gives it back
                return;
            }
        }
    }
}

impl State {
    /// One attempt less of a run waits; whether it was the last.
    fn forget(&mut self, run: RunId) -> bool {
        let last = self.runs.get_mut(&run).is_none_or(|attempts| {
            *attempts -= 1;
            *attempts == 0
        });
        if last {
            self.runs.remove(&run);
            self.vacated += 1;
        }
        last
    }
}

/// Groups that are served one after another. An empty one is not kept.
struct Rota<G> {
    groups: BTreeMap<String, G>,
    served: String,
}

impl<G> Default for Rota<G> {
    fn default() -> Self {
        Rota {
            groups: BTreeMap::new(),
            served: String::new(),
        }
    }
}

impl<G: Default> Rota<G> {
    fn of(&mut self, name: &str) -> &mut G {
        if !self.groups.contains_key(name) {
            self.groups.insert(name.to_owned(), G::default());
        }
        self.groups.get_mut(name).expect("it is there now")
    }
}

/// Somewhere the next who waits is found.
trait Waits {
    fn pop(&mut self) -> Option<Waiting>;
    fn is_empty(&self) -> bool;
}

impl Waits for Line {
    fn pop(&mut self) -> Option<Waiting> {
        self.pop_first().map(|(_, waiting)| waiting)
    }

    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}

impl<G: Waits> Waits for Rota<G> {
    fn pop(&mut self) -> Option<Waiting> {
        let after = (Excluded(self.served.as_str()), Unbounded);
        let next = self.groups.range::<str, _>(after).next().or(self.groups.iter().next());
        self.served = next?.0.clone();
        let group = self.groups.get_mut(&self.served)?;
        let waiting = group.pop();
        if group.is_empty() {
            self.groups.remove(&self.served);
        }
        waiting
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use uuid::Uuid;

    fn turns(count: usize) -> Arc<Turns> {
        Turns::new(count, Arc::default())
    }

    fn behalf<'a>(tenant: &'a str, workflow: &'a str, priority: i32) -> Behalf<'a> {
        let run = RunId(Uuid::now_v7());
        Behalf {
            tenant,
            workflow,
            priority,
            run,
        }
    }

    /// The order in which those who wait have their turns, when there is only one turn.
    fn order(waiting: &[(&str, &str, i32)]) -> Vec<usize> {
        let turns = turns(1);
        let mut held = turns.take(behalf("", "", 0)).now_or_never();
        let mut receivers: Vec<_> = waiting
            .iter()
            .map(|(tenant, workflow, priority)| turns.take_or_wait(behalf(tenant, workflow, *priority)).err())
            .collect();
        let mut order = Vec::new();
        while order.len() < waiting.len() {
            drop(held.take().expect("somebody had a turn"));
            for (index, receiver) in receivers.iter_mut().enumerate() {
                if let Some(turn) = receiver.as_mut().and_then(|given| given.try_recv().ok()) {
                    held = Some(turn);
                    *receiver = None;
                    order.push(index);
                }
            }
        }
        order
    }

    #[test]
    fn who_waits_longest_is_next() {
        assert_eq!(order(&[("", "w", 0), ("", "w", 0), ("", "w", 0)]), [0, 1, 2]);
    }

    #[test]
    fn priority_counts_within_a_workflow_only() {
        let waiting = [("", "a", 0), ("", "a", -1), ("", "a", 9), ("", "b", -9), ("", "b", -9)];
        assert_eq!(order(&waiting), [2, 3, 0, 4, 1]);
    }

    #[test]
    fn workflows_of_a_tenant_take_turns() {
        let waiting = [("", "a", 0), ("", "a", 0), ("", "a", 0), ("", "b", 0), ("", "c", 0)];
        assert_eq!(order(&waiting), [0, 3, 4, 1, 2]);
    }

    #[test]
    fn a_tenant_with_many_workflows_has_no_more_turns_than_another() {
        let waiting = [
            ("t", "a", 0),
            ("t", "b", 0),
            ("t", "c", 0),
            ("u", "a", 0),
            ("u", "a", 0),
        ];
        assert_eq!(order(&waiting), [0, 3, 1, 4, 2]);
    }

    #[test]
    fn a_turn_that_nobody_takes_goes_on() {
        let turns = turns(1);
        let first = turns.take(behalf("", "w", 0)).now_or_never().expect("free");
        let leave = (0..100_000).map(|_| turns.take_or_wait(behalf("", "w", 0)).err().expect("not free"));
        let leave: Vec<_> = leave.collect();
        let stays = turns.take_or_wait(behalf("", "w", 0)).err().expect("not free");
        assert_eq!(turns.waiting(), 100_001);
        drop(leave);
        drop(first);
        assert_eq!(turns.waiting(), 0);
        // It was given and never looked at: that counts as done with it.
        drop(stays);
        assert!(turns.take(behalf("", "w", 0)).now_or_never().is_some());
    }

    #[test]
    fn a_run_waits_once_however_many_of_its_attempts_do() {
        let look = Arc::new(Notify::new());
        let turns = Turns::new(1, look.clone());
        let mut one = behalf("", "w", 0);
        let held = turns.take(one).now_or_never().expect("free");
        let two = turns.take_or_wait(one).err().expect("not free");
        let three = turns.take_or_wait(one).err().expect("not free");
        one.run = RunId(Uuid::now_v7());
        let four = turns.take_or_wait(one).err().expect("not free");
        assert_eq!(turns.waiting(), 2);
        drop(held);
        assert_eq!(turns.waiting(), 2);
        assert!(look.notified().now_or_never().is_none());
        drop(two);
        assert_eq!(turns.waiting(), 1);
        assert!(look.notified().now_or_never().is_some());
        drop((three, four));
        assert_eq!((turns.waiting(), turns.vacated(), turns.vacated()), (0, 2, 0));
    }
}
