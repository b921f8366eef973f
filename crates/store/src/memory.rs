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

use crate::{
    ChangeHint, Result, Store, StoreError,
    dead_letters::{DeadLetter, DeadLetterFilter},
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, PublishMode, Published, Release,
        Released, Saved, VersionRow, Workflow, WorkflowFilter,
    },
    reads::{ActionRecord, EventRecord, LinkRecord, Page, RunFilter, RunPage, RunRecord, Window},
    runners::{Lease, Runner, RunnerRecord},
    runs::{
        Answer, Claim, Claimed, CommitAnswer, Delivery, Enqueued, InboxMessage, NewRun, RunCommit, StoredMessage,
        StoredRun, WaitRecord,
    },
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Timestamp, encode};
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
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        self.with(|state| state.save_draft(draft, rule, guard.as_ref()))
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        self.with(|state| state.draft(workflow))
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        self.with(|state| state.publish(workflow, checksum, plan, PublishMode::Publish(activation), at))
    }

    async fn release(&self, release: Release) -> Result<Released> {
        self.with(|state| state.release(release))
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        self.with(|state| state.publish(workflow, checksum, plan, PublishMode::Snapshot, at))
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        self.with(|state| state.delete_workflow(workflow))
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        self.with(|state| state.soft_delete_workflow(workflow, at))
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        self.with(|state| state.set_enablement(workflow, &change, at))
    }

    async fn workflow(&self, name: &str) -> Result<Option<Workflow>> {
        self.with(|state| state.workflow(name))
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        self.with(|state| state.workflow_by_uid(uid))
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        self.with(|state| state.list_workflows(&filter))
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        self.with(|state| state.definition(workflow, version))
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        self.with(|state| state.plan(workflow, version))
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, _at: Timestamp) -> Result<Option<String>> {
        self.with(|state| state.add_plan(workflow, version, plan))
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        self.with(|state| state.versions(workflow, before, limit))
    }

    async fn enqueue(&self, run: NewRun) -> Result<Enqueued> {
        let local_start = run
            .local_start
            .as_ref()
            .filter(|local_start| !local_start.events.is_empty());
        let first = local_start.map(|local_start| encode(&local_start.events));
        self.with(|state| state.enqueue(run, first))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.with(|state| state.claim(&claim))
    }

    async fn commit(&self, commit: RunCommit) -> CommitAnswer {
        if let Some(what) = commit.rejected() {
            return CommitAnswer::Rejected(what);
        }
        let text = (!commit.events.is_empty()).then(|| encode(&commit.events));
        let answer = self.with(|state| state.commit(commit, text));
        answer.unwrap_or_else(CommitAnswer::of_error)
    }

    async fn deliver(&self, run: RunId, letter: InboxMessage, at: Timestamp) -> Result<Delivery> {
        self.with(|state| state.deliver(run, letter, at))
    }

    async fn answer(&self, token: &str, payload: &str, at: Timestamp) -> Result<Answer> {
        self.with(|state| state.answer(token, payload, at))
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        self.with(|state| state.runs.get(&run).map(runs::Entry::stored))
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        self.with(|state| state.inbox(run, after))
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        self.with(|state| state.waits(run))
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<ActionRecord>> {
        self.with(|state| state.last_attempts(run, nodes))
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<ActionRecord>> {
        self.with(|state| {
            state
                .runs
                .get(&run)
                .and_then(|run| run.attempts.get(&(node.clone(), attempt)).cloned())
        })
    }

    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.with(|state| state.heartbeat(runner, at))
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.with(|state| {
            state.runners.remove(&runner);
            state.news.push(ChangeHint::Due(Timestamp::default()));
        })
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        self.with(|state| state.list_runners(before, limit))
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        self.with(|state| state.runs_with_messages(runner))
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        self.with(|state| state.held_by(runner, after, limit))
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        self.with(|state| state.list_dead_letters(&filter))
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        self.with(|state| state.dead_letters.get(&id).cloned())
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        self.with(|state| state.dead_letters.remove(&id).is_some())
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.with(|state| state.purge_dead_letters(&filter))
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.with(|state| state.runs.get(&id).map(runs::Entry::record))
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        self.with(|state| state.list_runs(&filter))
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        self.with(|state| state.children_of(parent, after, limit))
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<ActionRecord>, u64)> {
        self.with(|state| state.actions(run, window))
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        self.with(|state| state.events(run, window))
    }

    async fn links(&self, run: RunId) -> Result<Vec<LinkRecord>> {
        self.with(|state| state.links_of(run))
    }

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
