//! The store in memory: complete, but not durable. For tests, the simulator and throw-away servers.
//!
//! What must stay true: it gives the same answers as the SQLite store; nothing depends on hash order, so that a seeded
//! simulation repeats exactly; handles from before a [`MemoryStore::reopen`] can change nothing.

mod audit;
mod bulk;
mod callbacks;
mod children;
mod dead_letters;
mod definitions;
mod fields;
mod flow;
mod inbox;
mod keys;
mod queue;
mod reads;
mod retention;
mod runners;
mod runs;
mod stats;
mod triggers;
mod usage;

use crate::{
    ChangeHint, Database, Result, Store, StoreError, audit::AuditRow, callbacks::RegisteredCallback,
    dead_letters::DeadLetter, flow::rules::KeyRow, keys::ApiKey, runners::Runner, stats::StatsRow,
};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::broadcast;
use uuid::Uuid;

/// The number of change hints that are kept for a slow receiver.
const HINT_BUFFER: usize = 1024;

/// All data.
#[derive(Default)]
struct State {
    /// The number of simulated restarts. Only handles of the newest generation work.
    generation: u64,
    closed: bool,
    workflows: BTreeMap<Uuid, definitions::Entry>,
    /// Workflows that were not deleted, by name and tenant.
    names: BTreeMap<(String, String), Uuid>,
    /// The newest version numbers of deleted workflows, by name and tenant.
    version_marks: BTreeMap<(String, String), u32>,
    runs: BTreeMap<RunId, runs::Entry>,
    requests: BTreeMap<(String, String), RunId>,
    by_workflow: BTreeMap<Uuid, BTreeSet<RunId>>,
    /// Child runs, by parent.
    children: BTreeMap<RunId, BTreeSet<RunId>>,
    /// Awaited children that have ended and that their parent has not seen, by parent.
    ended_children: BTreeSet<(RunId, RunId)>,
    /// Free runs with a wake time.
    free: BTreeSet<(Timestamp, RunId)>,
    /// The free runs with a priority other than 0, by workflow, highest first.
    prioritised: BTreeMap<Uuid, BTreeSet<(Reverse<i32>, Timestamp, RunId)>>,
    /// The free runs, by tenant and workflow.
    groups: BTreeMap<(String, Uuid), BTreeSet<(Timestamp, RunId)>>,
    /// The group at which the last search for other groups stopped.
    walked: (String, Uuid),
    /// Held runs, by owner.
    held: BTreeSet<(RunnerId, Timestamp, RunId)>,
    links: BTreeMap<(String, String, String), RunId>,
    tokens: BTreeMap<String, RunId>,
    /// The tokens of items, by id.
    items: BTreeMap<Uuid, String>,
    /// Items by queue, end of the lease (0 without one) and id. See `inbox.rs`.
    queues: BTreeSet<(String, Timestamp, Uuid)>,
    runners: BTreeMap<RunnerId, (Runner, Timestamp)>,
    dead_letters: BTreeMap<Uuid, DeadLetter>,
    /// By id and tenant.
    callbacks: BTreeMap<(String, String), RegisteredCallback>,
    keys: BTreeMap<Uuid, ApiKey>,
    audit: BTreeMap<Uuid, AuditRow>,
    hints: Vec<ChangeHint>,
    /// Triggers, deliveries and events.
    triggers: triggers::Tables,
    /// The rows of keys (see `flow.rs`).
    flow_keys: BTreeMap<String, KeyRow>,
    /// The runs that wait for a place, by key, highest priority and age.
    waiting: BTreeSet<(String, Reverse<i32>, RunId)>,
    /// Requests that were answered with the run of another one, and when.
    merged_requests: BTreeMap<(String, String), (RunId, Timestamp)>,
    /// Bulk jobs.
    bulks: BTreeMap<Uuid, bulk::Entry>,
    /// Counted steps, by tenant and month.
    usage: BTreeMap<(String, u32), u64>,
    /// Numbers of runs, by minute, process, workflow and tenant.
    stats: BTreeMap<(i64, RunnerId, Uuid, String), StatsRow>,
}

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    generation: u64,
    hints: broadcast::Sender<ChangeHint>,
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
            hints: broadcast::channel(HINT_BUFFER).0,
        }
    }

    /// The same data after a restart of the process: all runners are deleted, so their leases are stale, and
    /// older handles, clones included, fail as if the store had been closed.
    pub fn reopen(&self) -> MemoryStore {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.generation += 1;
        state.closed = false;
        state.runners.clear();
        MemoryStore {
            state: Arc::clone(&self.state),
            generation: state.generation,
            hints: broadcast::channel(HINT_BUFFER).0,
        }
    }

    /// Replaces the plans of all versions, or removes them.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn set_plans(&self, plan: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.workflows.values_mut().for_each(|entry| entry.set_plans(plan));
    }

    /// The same for work that may be recorded: if it changed something, the row of the audit trail is added.
    fn change<R>(&self, work: impl FnOnce(&mut State) -> R, changed: impl FnOnce(&R) -> bool) -> Result<R> {
        self.with(|state| {
            let result = work(state);
            if let Some(row) = crate::audit::current().filter(|_| changed(&result)) {
                state.audit.entry(row.id).or_insert(row);
            }
            result
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> Result<R> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.generation != self.generation {
            return Err(StoreError::Closed);
        }
        let result = work(&mut state);
        for hint in state.hints.drain(..) {
            // An error means that there is no receiver. That is fine: hints may be lost.
            let _ = self.hints.send(hint);
        }
        Ok(result)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn ping(&self) -> Result<()> {
        self.with(|_| ())
    }

    async fn about(&self) -> Result<Database> {
        self.with(|_| Database {
            kind: "memory".to_owned(),
            bytes: None,
            schema: 0,
        })
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.hints.subscribe()
    }

    async fn close(&self) -> Result<()> {
        // Closing twice is allowed. A handle of an older generation closes nothing.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation == self.generation {
            state.closed = true;
        }
        Ok(())
    }
}
