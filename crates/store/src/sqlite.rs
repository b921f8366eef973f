//! The embedded store: one SQLite file, one thread that writes, a few connections that read.
//!
//! What must stay true: nothing is answered before it is durable (`synchronous=FULL`, answers after `COMMIT`);
//! journals are encoded by the caller, not by the one thread that writes; the file belongs to one process.

mod claim;
mod columns;
mod commit;
mod dead_letters;
mod definitions;
mod enqueue;
mod inbox;
mod lists;
mod lock;
mod log_check;
mod migrations;
mod open;
mod queue;
mod readers;
mod reads;
mod runners;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
mod writer;

use crate::{
    ChangeHint, Result, Store, StoreError,
    clock::{DatabaseClock, since_boot, wall},
    dead_letters::{DeadLetter, DeadLetterFilter},
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, PublishMode, Published, Release,
        Released, Saved, VersionRow, Workflow, WorkflowFilter,
    },
    reads::{ActionRecord, EventRecord, LinkRecord, Page, RunFilter, RunPage, RunRecord, Window},
    runners::{Lease, Runner, RunnerRecord},
    runs::{
        Answer, Claim, Claimed, CommitAnswer, Delivery, Enqueued, InboxMessage, NewRun, RunCommit, StoredMessage,
        StoredRun, WaitRecord, journal_text, message_text,
    },
    schema::Migrate,
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Timestamp};
use open::Purpose;
use readers::Readers;
use std::{path::Path, sync::Arc};
use tokio::sync::broadcast;
use uuid::Uuid;
use writer::Writer;

/// How many news a slow listener may be behind.
const NEWS: usize = 1024;

/// A store in a SQLite file. Dropping it closes the file.
///
/// ```
/// # async fn example() -> fermata_store::Result<()> {
/// use fermata_store::{Store, sqlite::SqliteStore};
/// let store = SqliteStore::open("data/fermata.db".as_ref())?;
/// store.ping().await?;
/// store.close().await
/// # }
/// ```
pub struct SqliteStore {
    readers: Readers,
    writer: Arc<Writer>,
    news: broadcast::Sender<ChangeHint>,
    clock: Arc<DatabaseClock>,
}

impl SqliteStore {
    /// Opens the file, or creates it and the folders above it. Leases from before are stale: all runners are
    /// forgotten. Reading needs a tokio runtime, opening does not.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::TooNew`], [`StoreError::Damaged`], [`StoreError::Full`] or
    /// [`StoreError::Unopenable`]. The file is then as it was.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        SqliteStore::open_with(path, Migrate::Auto)
    }

    /// The same, where somebody else may have to bring an old file up to date.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] in that case, and as [`SqliteStore::open`].
    pub fn open_with(path: &Path, migrate: Migrate) -> Result<SqliteStore> {
        let opened = open::open(path, Purpose::Store(migrate))?;
        SqliteStore::start(path, opened)
    }

    fn start(path: &Path, opened: open::Opened) -> Result<SqliteStore> {
        let (news, _) = broadcast::channel(NEWS);
        let name = path.display().to_string();
        let real = opened.lock.path.clone();
        let writer = Writer::start(name, opened.connection, opened.lock, news.clone())?;
        Ok(SqliteStore {
            readers: Readers::new(real),
            writer: Arc::new(writer),
            news,
            clock: Arc::new(DatabaseClock::new(since_boot(), wall().0, since_boot())),
        })
    }
}

impl SqliteStore {
    /// Whether the files can grow again, after they could not.
    async fn probe_disk(&self) -> Result<()> {
        for sql in [
            "INSERT INTO meta (key, value) VALUES ('probe', zeroblob(1048576))
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            "DELETE FROM meta WHERE key = 'probe'",
        ] {
            let write = self.writer.write(move |tx| tx.connection.execute(sql, []).map(drop));
            write.await?;
        }
        self.writer.recovered();
        Ok(())
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved> {
        self.writer
            .write(move |tx| definitions::save_draft(tx, &draft, rule, guard.as_ref()))
            .await
    }

    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>> {
        self.readers
            .read(move |connection| definitions::draft(connection, workflow))
            .await
    }

    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published> {
        let (checksum, plan) = (checksum.to_owned(), plan.to_owned());
        self.writer
            .write(move |tx| definitions::publish(tx, workflow, &checksum, &plan, PublishMode::Publish(activation), at))
            .await
    }

    async fn release(&self, release: Release) -> Result<Released> {
        self.writer.write(move |tx| definitions::release(tx, &release)).await
    }

    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published> {
        let (checksum, plan) = (checksum.to_owned(), plan.to_owned());
        self.writer
            .write(move |tx| definitions::publish(tx, workflow, &checksum, &plan, PublishMode::Snapshot, at))
            .await
    }

    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted> {
        self.writer.write(move |tx| definitions::delete(tx, workflow)).await
    }

    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool> {
        self.writer
            .write(move |tx| definitions::soft_delete(tx, workflow, at))
            .await
    }

    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>> {
        self.writer
            .write(move |tx| definitions::set_enablement(tx, workflow, &change, at))
            .await
    }

    async fn workflow(&self, name: &str) -> Result<Option<Workflow>> {
        let name = name.to_owned();
        self.readers
            .read(move |connection| definitions::workflow(connection, &name))
            .await
    }

    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>> {
        self.readers
            .read(move |connection| definitions::workflow_by_uid(connection, uid))
            .await
    }

    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>> {
        self.readers
            .read(move |connection| definitions::workflows(connection, &filter))
            .await
    }

    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>> {
        self.readers
            .read(move |connection| definitions::definition(connection, workflow, version))
            .await
    }

    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>> {
        self.readers
            .read(move |connection| definitions::plan(connection, workflow, version))
            .await
    }

    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>> {
        let plan = plan.to_owned();
        self.writer
            .write(move |tx| definitions::add_plan(tx, workflow, version, &plan, at))
            .await
    }

    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>> {
        self.readers
            .read(move |connection| definitions::versions(connection, workflow, before, limit))
            .await
    }

    async fn enqueue(&self, mut run: NewRun) -> Result<Enqueued> {
        let events = run
            .local_start
            .as_mut()
            .map(|local_start| std::mem::take(&mut local_start.events));
        let first = journal_text(events.unwrap_or_default());
        self.writer
            .write(move |tx| enqueue::enqueue(tx, &run, first.as_deref()))
            .await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.writer.write(move |tx| claim::claim(tx, &claim)).await
    }

    async fn commit(&self, mut commit: RunCommit) -> CommitAnswer {
        if let Some(what) = commit.rejected() {
            return CommitAnswer::Rejected(what);
        }
        let text = journal_text(std::mem::take(&mut commit.events));
        let answer = self
            .writer
            .write(move |tx| commit::commit(tx, &commit, text.as_deref()))
            .await;
        answer.unwrap_or_else(CommitAnswer::of_error)
    }

    async fn deliver(&self, run: RunId, letter: InboxMessage, at: Timestamp) -> Result<Delivery> {
        let letter = message_text(&letter);
        self.writer.write(move |tx| inbox::deliver(tx, run, &letter, at)).await
    }

    async fn answer(&self, token: &str, payload: &str, at: Timestamp) -> Result<Answer> {
        let (token, payload) = (token.to_owned(), payload.to_owned());
        self.writer
            .write(move |tx| inbox::answer(tx, &token, &payload, at))
            .await
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        self.readers.read(move |connection| claim::load(connection, run)).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        self.readers
            .read(move |connection| reads::inbox(connection, run, after))
            .await
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        self.readers.read(move |connection| reads::waits(connection, run)).await
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<ActionRecord>> {
        let nodes = nodes.to_vec();
        self.readers
            .read(move |connection| reads::last_attempts(connection, run, &nodes))
            .await
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<ActionRecord>> {
        let node = node.clone();
        self.readers
            .read(move |connection| reads::attempt(connection, run, &node, attempt))
            .await
    }

    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.clock.learn(since_boot(), wall().0, since_boot());
        let runner = runner.clone();
        self.writer.write(move |tx| runners::heartbeat(tx, &runner, at)).await
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.writer.write(move |tx| runners::retire(tx, runner)).await
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        self.readers
            .read(move |connection| runners::runners(connection, before, limit))
            .await
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        self.readers
            .read(move |connection| runners::runs_with_messages(connection, runner))
            .await
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        self.readers
            .read(move |connection| runners::held(connection, runner, after, limit))
            .await
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        self.readers
            .read(move |connection| dead_letters::list(connection, &filter))
            .await
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        self.readers
            .read(move |connection| dead_letters::one(connection, id))
            .await
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        self.writer.write(move |tx| dead_letters::delete(tx, id)).await
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.writer.write(move |tx| dead_letters::purge(tx, &filter)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.readers.read(move |connection| reads::run(connection, id)).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        self.readers
            .read(move |connection| lists::runs(connection, &filter))
            .await
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        self.readers
            .read(move |connection| lists::children(connection, parent, after, limit))
            .await
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<ActionRecord>, u64)> {
        self.readers
            .read(move |connection| reads::actions(connection, run, window))
            .await
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        self.readers
            .read(move |connection| reads::events(connection, run, window))
            .await
    }

    async fn links(&self, run: RunId) -> Result<Vec<LinkRecord>> {
        self.readers.read(move |connection| reads::links(connection, run)).await
    }

    async fn ping(&self) -> Result<()> {
        if self.writer.is_failing() {
            self.probe_disk().await?;
        }
        // A row has to change, or SQLite would not touch the disk.
        let beat = "INSERT INTO meta (key, value) VALUES ('ping', 1)
             ON CONFLICT (key) DO UPDATE SET value = value + 1";
        self.writer
            .write(move |tx| tx.connection.prepare_cached(beat)?.execute([]).map(|_| ()))
            .await
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    /// Writes do not wait behind reads: the thread that writes has a connection of its own.
    fn control(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SqliteStore {
            readers: self.readers.apart(),
            writer: self.writer.clone(),
            news: self.news.clone(),
            clock: self.clock.clone(),
        }))
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.news.subscribe()
    }

    async fn close(&self) -> Result<()> {
        self.readers.close().await;
        let writer = Arc::clone(&self.writer);
        let closed = tokio::task::spawn_blocking(move || writer.close()).await;
        closed.map_err(|error| StoreError::Failed(error.to_string()))
    }
}
