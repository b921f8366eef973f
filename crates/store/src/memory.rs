//! The store in memory: real, only not durable. For tests, the simulator and throw-away servers.
//!
//! What must stay true: it answers as the SQLite store does; nothing depends on the order of a hash, so that a
//! seeded simulation repeats exactly; whoever was there before a [`MemoryStore::reopen`] can change nothing any more.

mod dead_letters;
mod definitions;
mod queue;
mod reads;
mod runners;
mod runs;

use crate::{ChangeHint, Result, Store, StoreError, dead_letters::DeadLetter, runners::Runner};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::broadcast;
use uuid::Uuid;

/// How many news a slow listener may be behind.
const NEWS: usize = 1024;

/// Everything there is.
#[derive(Default)]
struct State {
    /// Counts the processes, so to say: only handles of the newest may go on.
    generation: u64,
    closed: bool,
    workflows: BTreeMap<Uuid, definitions::Entry>,
    /// The workflows that were not deleted, by name.
    names: BTreeMap<String, Uuid>,
    /// The newest versions of workflows that were deleted, by name.
    version_marks: BTreeMap<String, u32>,
    runs: BTreeMap<RunId, runs::Entry>,
    requests: BTreeMap<(String, String), RunId>,
    by_workflow: BTreeMap<Uuid, BTreeSet<RunId>>,
    /// Runs by the run that started them.
    children: BTreeMap<RunId, BTreeSet<RunId>>,
    /// Free runs that are due at some time.
    free: BTreeSet<(Timestamp, RunId)>,
    /// Those of them with a priority other than 0, by workflow, the highest first.
    prioritised: BTreeMap<Uuid, BTreeSet<(Reverse<i32>, Timestamp, RunId)>>,
    /// Those that are free, by tenant and workflow.
    groups: BTreeMap<(String, Uuid), BTreeSet<(Timestamp, RunId)>>,
    /// The last of these that a search for others came to.
    walked: (String, Uuid),
    /// Held runs, by owner.
    held: BTreeSet<(RunnerId, Timestamp, RunId)>,
    links: BTreeMap<(String, String, String), RunId>,
    tokens: BTreeMap<String, RunId>,
    runners: BTreeMap<RunnerId, (Runner, Timestamp)>,
    dead_letters: BTreeMap<Uuid, DeadLetter>,
    news: Vec<ChangeHint>,
}

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    generation: u64,
    news: broadcast::Sender<ChangeHint>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore {
            state: Arc::default(),
            generation: 0,
            news: broadcast::channel(NEWS).0,
        }
    }

    /// The same data after a restart of the process: all runners are forgotten, so their leases are stale, and
    /// older handles, clones included, fail as if the store had been closed.
    pub fn reopen(&self) -> MemoryStore {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.generation += 1;
        state.closed = false;
        state.runners.clear();
        MemoryStore {
            state: Arc::clone(&self.state),
            generation: state.generation,
            news: broadcast::channel(NEWS).0,
        }
    }

    /// Replaces the plans of all versions, or removes them.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn set_plans(&self, plan: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.workflows.values_mut().for_each(|entry| entry.set_plans(plan));
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> Result<R> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.generation != self.generation {
            return Err(StoreError::Closed);
        }
        let result = work(&mut state);
        for news in state.news.drain(..) {
            // Nobody listening is fine: news are hints.
            let _ = self.news.send(news);
        }
        Ok(result)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn ping(&self) -> Result<()> {
        self.with(|_| ())
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.news.subscribe()
    }

    async fn close(&self) -> Result<()> {
        // Closing twice is as good as once, and what is left of an earlier process closes nothing.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation == self.generation {
            state.closed = true;
        }
        Ok(())
    }
}
