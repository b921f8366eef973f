//! Where runs live: one trait; SQLite, PostgreSQL and memory behind it.
//!
//! SQL stands in this crate and nowhere else. The trait is named by intent; what a caller may rely on
//! is written at each method and checked for every store by [`conformance`].
//!
//! What must stay true:
//! * Nothing is answered before it is durable.
//! * A commit is whole or not at all, and one member of a batch never fails another.
//! * A commit under an old epoch, or of a runner that does not hold the run, changes nothing.
//! * No wake-up is lost between a delivery and a parking.

pub mod clock;
#[cfg(any(test, feature = "cluster"))]
pub mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod dead_letters;
pub mod definitions;
mod error;
mod lists;
pub mod memory;
pub mod postgres;
mod priority;
mod program;
pub mod reads;
pub mod runners;
pub mod runs;
pub mod schema;
pub mod sqlite;
mod statements;
pub mod transfer;

use async_trait::async_trait;
use dead_letters::{DeadLetter, DeadLetterFilter};
use definitions::{
    Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Published, Release, Released, Saved,
    VersionRow, Workflow, WorkflowFilter,
};
use fermata_core::{NodeId, RunId, RunnerId, Timestamp};
use reads::{ActionRecord, EventRecord, LinkRecord, Page, RunFilter, RunPage, RunRecord, Window};
use runners::{Lease, Runner, RunnerRecord};
use runs::{
    Answer, Claim, Claimed, CommitAnswer, Delivery, Enqueued, InboxMessage, NewRun, RunCommit, StoredMessage,
    StoredRun, WaitRecord,
};
use std::sync::Arc;
use uuid::Uuid;

pub use error::StoreError;

/// The result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// What a store may tell everyone in this process who cares. A hint: losing one costs time, never truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeHint {
    /// A run may be claimable now or at this time.
    Due(Timestamp),
    /// Something was put into a run's inbox.
    Inbox(RunId),
}

/// A durable home for workflows and runs.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // ── workflows: known by their uid. A name is looked up first ───────────────────────────────────────

    /// Saves a draft, creating the workflow if needed. The rule says which states allow it, the guard what must be
    /// true of the draft that it replaces.
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved>;

    /// The draft of a workflow, if it has one.
    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>>;

    /// Makes the draft with this checksum the newest version, unless the newest already is the same,
    /// and the current one if the activation says so. The draft is gone then; publishing again with the checksum of
    /// the newest version finds that version. An archived workflow is refused.
    ///
    /// The plan is stored with the version. A version that has one keeps it.
    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published>;

    /// Saves a document and makes it the current version of an active workflow, as `save_draft` and `publish` would,
    /// but at once: nobody sees it as a draft. A draft that was there is gone.
    async fn release(&self, release: Release) -> Result<Released>;

    /// Makes the draft with this checksum the newest version of a workflow that is a draft, unless the newest already
    /// is the same. The draft stays as it is: for runs of what is not published. The plan is stored as by `publish`.
    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published>;

    /// Removes a workflow that is a draft or archived and has no runs, with its draft and its versions. Their numbers
    /// are not used again when a workflow of this name is created.
    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted>;

    /// Deletes a workflow in whatever state and leaves its runs in peace: its name is free and it takes no new runs, but
    /// its row and its versions stay, and runs that there are go on. False if there is no such workflow.
    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool>;

    /// Changes status or the enabled flag, if the status now is one of `change.from`.
    /// `None` if there is no such workflow; otherwise the workflow as it is now and whether the change was allowed.
    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>>;

    /// The workflow that has this name now. One that was deleted has none.
    async fn workflow(&self, name: &str) -> Result<Option<Workflow>>;

    /// The workflow with this uid, also one that was soft-deleted: see [`Workflow::deleted_at`].
    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>>;

    /// Workflows by name, without those that were deleted.
    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>>;

    /// An immutable version. Those of workflows that were soft-deleted stay.
    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>>;

    /// The plan of a version, as text; `None` if the version was published before plans were stored.
    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>>;

    /// Stores the plan of a version that has none. Answers the plan that the version has now: another process may have
    /// been first. `None` if there is no such version.
    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>>;

    /// The versions of a workflow, newest first; only those before `before`, if given.
    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>>;

    // ── runs: the hot path ──────────────────────────────────────────────────────────────────────

    /// Stores a new run, once for each (tenant, requestId). With a lease it is born held by that runner and
    /// its first commit is part of the same transaction.
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued>;

    /// Leases runs that are due and free, or whose runner is dead, each under a new epoch. The latter go first, in half of
    /// the places while others are free. Of those that are free who waits longest goes first, but in a workflow's places
    /// its runs of the highest priority do. A runner must have sent a heartbeat before it holds anything, or others take it
    /// for dead; the asker itself is alive.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Advances a run by one journal row and all that belongs to it; a run that is given up leaves its dead letter
    /// with the same commit.
    async fn commit(&self, commit: RunCommit) -> CommitAnswer;

    /// Puts a letter into a run's inbox and wakes the run.
    async fn deliver(&self, run: RunId, letter: InboxMessage, at: Timestamp) -> Result<Delivery>;

    /// Answers the wait behind `token`: payload, inbox row and wake-up are one transaction. Refused from the wait's
    /// deadline on, also while its run has not noticed that it is over.
    async fn answer(&self, token: &str, payload: &str, at: Timestamp) -> Result<Answer>;

    /// A run with its journal and lease, as a runner needs it to go on.
    async fn load(&self, run: RunId) -> Result<Option<StoredRun>>;

    /// Unconsumed mail of a run, oldest first.
    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>>;

    /// The waits of a run.
    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>>;

    /// The last recorded attempt of each of these nodes (all nodes when the list is empty).
    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<ActionRecord>>;

    /// One recorded attempt.
    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<ActionRecord>>;

    // ── runners ─────────────────────────────────────────────────────────────────────────────────

    /// Says that a runner lives, and who it is. Others that were not heard of for a day and hold nothing are forgotten.
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()>;

    /// Says that a runner is gone; what it still holds may be claimed at once, by claims with `dead_before`.
    async fn retire(&self, runner: RunnerId) -> Result<()>;

    /// Runners that were heard of and did not retire, the newest first; only those older than `before`, if given.
    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>>;

    /// The runs that a runner holds and that have letters which were not consumed. Costs as much as it finds, so that
    /// a runner may ask again and again.
    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>>;

    /// The runs that a runner holds, by id, as the store believes; only those after `after`, if given.
    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>>;

    // ── dead letters ────────────────────────────────────────────────────────────────────────────

    /// Dead letters, the newest first, without their payloads.
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>>;

    /// A dead letter, with its payload.
    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>>;

    /// Removes a dead letter; false if there is no such one. Its run stays as it is.
    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool>;

    /// Removes the dead letters that a list with this filter would show; how many. Their runs stay as they are.
    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64>;

    // ── reads ───────────────────────────────────────────────────────────────────────────────────

    /// A run's row.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>>;

    /// Runs by age, without their payloads. Looks at no more than [`reads::MAX_EXAMINED`] runs: what no index rules
    /// out may make a page short or empty, and `next` says where to go on.
    async fn runs(&self, filter: RunFilter) -> Result<RunPage>;

    /// The runs that a run started, oldest first, without their payloads; only those after `after`, if given.
    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>>;

    /// Recorded attempts of a run, in the order in which they ended, and how many there are in all.
    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<ActionRecord>, u64)>;

    /// Journal rows of a run, oldest first, and how many there are in all.
    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)>;

    /// External resources of a run.
    async fn links(&self, run: RunId) -> Result<Vec<LinkRecord>>;

    /// Whether the store can write. For readiness.
    async fn ping(&self) -> Result<()>;

    /// Database time, if the database has a clock that all of its processes go by.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// The same store through connections of its own, so that its calls do not wait behind those of others: for
    /// heartbeats, claims and readiness. `None` if nothing can be in the way. Connections belong to the runtime of the
    /// caller that needs them first.
    fn control(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Hints about changes made through this store in this process.
    fn changes(&self) -> tokio::sync::broadcast::Receiver<ChangeHint>;

    /// Flushes and closes. Later calls fail.
    async fn close(&self) -> Result<()>;
}
