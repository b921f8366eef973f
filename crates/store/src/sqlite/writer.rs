//! The writer thread and group commit: all members that wait when the thread is ready share one transaction.
//!
//! What must stay true:
//! * A member is answered only after the `COMMIT` of its transaction returned.
//! * A member that fails is undone alone: the batch is rolled back and its members are tried one by one. So `work` may
//!   run more than once and must change only the database.
//! * The thread survives failures; when there is space again, writing continues.
//! * Nothing is acknowledged while the files under the path of the database are not those that were opened.

use super::{lock::Lock, queue::Group};
use crate::{ChangeHint, Result, StoreError, StoreMetrics};
use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::{broadcast, oneshot};

/// The maximum number of members of a transaction.
const MAX_BATCH: usize = 512;
/// The log is checkpointed (copied into the database) when it has this many pages,
const CHECKPOINT_PAGES: i32 = 4096;
/// or this many when the thread is idle. A short log stays: a checkpoint costs more than it frees.
const IDLE_PAGES: i32 = 256;
/// How long the thread must be idle before it checkpoints the log.
const IDLE: Duration = Duration::from_millis(200);

/// What a member works with: the connection inside a transaction, and the change hints to send once it is durable. The
/// place where the last claim stopped searching is only a hint: it may come from a transaction that was rolled back.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) hints: &'a mut Vec<ChangeHint>,
    pub(super) walked: &'a mut Group,
    /// Changes that [`Writer::writes`] does not count.
    quiet: u64,
    /// Statements that members of this batch have used.
    statements: Vec<(&'static str, CachedStatement<'a>)>,
}

impl<'a> Tx<'a> {
    /// Executes a statement that many members of a batch use.
    pub(super) fn execute(&mut self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.statement(sql)?.execute(params)
    }

    /// The first row of a query that many members of a batch use.
    pub(super) fn query_row<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Option<R>> {
        self.statement(sql)?.query_row(params, read).optional()
    }

    /// The cache of the connection would hash the text of the statement twice for each use.
    fn statement(&mut self, sql: &'static str) -> rusqlite::Result<&mut CachedStatement<'a>> {
        let known = self.statements.iter().position(|(text, _)| *text == sql);
        let at = match known {
            Some(at) => at,
            None => {
                self.statements.push((sql, self.connection.prepare_cached(sql)?));
                self.statements.len() - 1
            }
        };
        Ok(&mut self.statements[at].1)
    }
}

/// Something to be written.
trait Member: Send {
    fn work(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn answer(self: Box<Self>, failure: Option<StoreError>);
}

struct Job<R, F> {
    work: F,
    result: Option<R>,
    reply: oneshot::Sender<Result<R>>,
}

impl<R, F> Member for Job<R, F>
where
    R: Send,
    F: FnMut(&mut Tx<'_>) -> rusqlite::Result<R> + Send,
{
    fn work(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let answer = match (failure, self.result) {
            (Some(failure), _) => Err(failure),
            (None, Some(result)) => Ok(result),
            (None, None) => Err(StoreError::Failed("the write was not attempted".to_owned())),
        };
        // An error means that the caller was dropped; the write stands.
        let _ = self.reply.send(answer);
    }
}

type Batch = Vec<Box<dyn Member>>;

#[derive(Default)]
struct Waiting {
    members: Batch,
    asleep: bool,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to the writer thread. Dropping it closes the database.
pub(super) struct Writer {
    queue: Arc<Queue>,
    failing: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
    metrics: Arc<StoreMetrics>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. It keeps `lock` until the database is closed.
    pub(super) fn start(
        path: String,
        mut connection: Connection,
        lock: Lock,
        receivers: broadcast::Sender<ChangeHint>,
    ) -> Result<Writer> {
        let queue = Arc::new(Queue::default());
        let log_pages = Arc::new(AtomicI32::new(0));
        let failing = Arc::new(AtomicBool::new(false));
        let writes = Arc::new(AtomicU64::new(0));
        let metrics = Arc::new(StoreMetrics::default());
        let seen = Arc::clone(&log_pages);
        let failed = |what: String| StoreError::Unopenable {
            path: path.clone(),
            what,
        };
        connection
            .wal_hook(Some(move |_: &mut _, pages| {
                seen.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|error| failed(error.to_string()))?;
        let thread = Thread {
            path: path.clone(),
            connection,
            log_pages,
            receivers,
            hints: Vec::new(),
            walked: Group::default(),
            lock,
            lost: false,
            failing: failing.clone(),
            writes: writes.clone(),
            metrics: metrics.clone(),
        };
        let theirs = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("fermata-sqlite".to_owned())
            .spawn(move || thread.run(&theirs))
            .map_err(|error| failed(error.to_string()))?;
        Ok(Writer {
            queue,
            failing,
            writes,
            metrics,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs `work` in a transaction and returns its result once that is durable.
    pub(super) async fn write<R, F>(&self, mut work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<R> + Send + 'static,
    {
        let Some(row) = crate::audit::current() else {
            return self.submit(work).await;
        };
        // If the work changes something, the row of the audit trail is part of its transaction.
        let recorded = move |tx: &mut Tx<'_>| {
            let before = tx.connection.total_changes();
            let result = work(tx)?;
            if tx.connection.total_changes() != before {
                super::audit::add(tx, &row)?;
            }
            Ok(result)
        };
        self.submit(recorded).await
    }

    /// The same for a write that changes nothing that is read while nothing happens: a heartbeat, or a sign of life.
    pub(super) async fn write_quietly<R, F>(&self, mut work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<R> + Send + 'static,
    {
        let quiet = move |tx: &mut Tx<'_>| {
            let before = tx.connection.total_changes();
            let result = work(tx)?;
            tx.quiet += tx.connection.total_changes() - before;
            Ok(result)
        };
        self.submit(quiet).await
    }

    async fn submit<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<R> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let member = Box::new(Job {
            work,
            result: None,
            reply,
        });
        {
            let mut waiting = self.queue.lock();
            if waiting.closed {
                return Err(StoreError::Closed);
            }
            waiting.members.push(member);
            if std::mem::take(&mut waiting.asleep) {
                self.queue.wake.notify_one();
            }
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Unknown("the writer stopped".to_owned())))
    }

    /// Whether the last batch that had to grow a file failed because the disk is full or broken. Small writes may still
    /// succeed then, in space that the files have already.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// How many transactions changed something, other than quietly. It grows after a transaction can be read, so a reader that takes
    /// this number first misses nothing that it stands for.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// The batches so far.
    pub(super) fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }

    /// Records that the disk accepts writes again.
    pub(super) fn recovered(&self) {
        self.failing.store(false, Ordering::Relaxed);
    }

    /// Writes the queued members, then closes the database. Blocks until that is done.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the database panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Thread {
    path: String,
    connection: Connection,
    log_pages: Arc<AtomicI32>,
    receivers: broadcast::Sender<ChangeHint>,
    hints: Vec<ChangeHint>,
    walked: Group,
    /// Dropped after the connection.
    lock: Lock,
    /// Whether the last check found the files deleted or replaced.
    lost: bool,
    failing: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
    metrics: Arc<StoreMetrics>,
}

impl Thread {
    fn run(mut self, queue: &Queue) {
        let _closed = CloseOnExit(queue);
        let mut waiting = Vec::new();
        while self.next(queue, &mut waiting) {
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().min(MAX_BATCH));
                self.batch(std::mem::replace(&mut waiting, rest));
                if self.log_pages.load(Ordering::Relaxed) >= CHECKPOINT_PAGES {
                    self.checkpoint("PASSIVE");
                }
            }
        }
        self.checkpoint("TRUNCATE");
        let path = self.path.clone();
        let Thread { connection, lock, .. } = self;
        if let Err((_, error)) = connection.close() {
            tracing::warn!(path, %error, "the database did not close cleanly; it will be recovered when opened");
        }
        drop(lock);
    }

    /// Waits for members. False when the queue is empty and closed.
    fn next(&mut self, queue: &Queue, members: &mut Batch) -> bool {
        let mut waiting = queue.lock();
        loop {
            if !waiting.members.is_empty() {
                std::mem::swap(&mut waiting.members, members);
                return true;
            }
            if waiting.closed {
                return false;
            }
            waiting.asleep = true;
            if self.log_pages.load(Ordering::Relaxed) < IDLE_PAGES {
                waiting = queue.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (guard, time) = queue
                .wake
                .wait_timeout(waiting, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            waiting = guard;
            if time.timed_out() && waiting.members.is_empty() {
                drop(waiting);
                self.checkpoint("PASSIVE");
                waiting = queue.lock();
            }
        }
    }

    fn batch(&mut self, mut batch: Batch) {
        if let Err(what) = self.check_files() {
            for member in batch {
                member.answer(Some(StoreError::Unavailable(what.clone())));
            }
            return;
        }
        let began = Instant::now();
        match self.transaction(&mut batch) {
            Ok(()) => {
                self.metrics.written(batch.len(), began.elapsed());
                // Written, but perhaps to a file that was deleted or replaced.
                if let Err(what) = self.check_files() {
                    for member in batch {
                        member.answer(Some(StoreError::Unknown(what.clone())));
                    }
                    return;
                }
                for hint in self.hints.drain(..) {
                    // An error means that there is no receiver. That is fine: hints may be lost.
                    let _ = self.receivers.send(hint);
                }
                for member in batch {
                    member.answer(None);
                }
            }
            // Only the member that caused the error should fail.
            Err(WriteError::Before(error)) if batch.len() > 1 && is_about_one(&error) => {
                for member in batch {
                    self.batch(vec![member]);
                }
            }
            Err(error) => {
                self.metrics.failed_batches.inc();
                tracing::error!(
                    path = self.path,
                    members = batch.len(),
                    "a batch was not written: {error:?}"
                );
                if error.is_of_disk() {
                    self.failing.store(true, Ordering::Relaxed);
                }
                for member in batch {
                    member.answer(Some(error.explain(&self.path)));
                }
            }
        }
    }

    /// Fails while the files are not those that were opened.
    fn check_files(&mut self) -> Result<(), String> {
        let path = &self.path;
        let checked = self.lock.check();
        if let (Err(what), false) = (&checked, self.lost) {
            tracing::error!(
                path,
                "{what}; nothing is acknowledged any more. Put the files back, or restart"
            );
        }
        if checked.is_ok() && self.lost {
            tracing::warn!(path, "the files of the database are back");
        }
        self.lost = checked.is_err();
        checked.map_err(|what| format!("{path}: {what} while it was open; put it back, or restart"))
    }

    fn transaction(&mut self, batch: &mut Batch) -> Result<(), WriteError> {
        self.hints.clear();
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]))
            .map_err(WriteError::Before)?;
        let changes = self.connection.total_changes();
        let mut tx = Tx {
            quiet: 0,
            connection: &self.connection,
            hints: &mut self.hints,
            walked: &mut self.walked,
            statements: Vec::new(),
        };
        let worked = batch
            .iter_mut()
            .try_for_each(|member| member.work(&mut tx))
            .map_err(WriteError::Before);
        let quiet = tx.quiet;
        drop(tx);
        let done = worked.and_then(|()| {
            let mut commit = self.connection.prepare_cached("COMMIT").map_err(WriteError::Before)?;
            commit.execute([]).map_err(WriteError::AtCommit)
        });
        if let Err(error) = done {
            self.hints.clear();
            if !self.connection.is_autocommit()
                && let Err(error) = self.connection.execute_batch("ROLLBACK")
            {
                tracing::error!(path = self.path, %error, "a transaction could not be rolled back");
            }
            return Err(error);
        }
        if self.connection.total_changes() - changes > quiet {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Checkpoints: copies the log into the database, so that the log restarts at its beginning.
    fn checkpoint(&self, mode: &str) {
        let done = self
            .connection
            .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
        // Also after a failure or a blocking reader: the next commit reports the length of the log.
        self.log_pages.store(0, Ordering::Relaxed);
        if let Err(error) = done {
            tracing::warn!(path = self.path, %error, "the log could not be copied into the database");
        }
    }
}

/// However the thread ends, callers must not wait for it.
struct CloseOnExit<'a>(&'a Queue);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.closed = true;
        waiting.members.clear();
    }
}

/// Where a transaction failed.
#[derive(Debug)]
enum WriteError {
    /// Before `COMMIT`: nothing of it is durable.
    Before(rusqlite::Error),
    /// In `COMMIT`: it may be durable, unless the disk was full.
    AtCommit(rusqlite::Error),
}

impl WriteError {
    /// Whether the disk is full or broken.
    fn is_of_disk(&self) -> bool {
        let (WriteError::Before(error) | WriteError::AtCommit(error)) = self;
        let code = error.sqlite_error_code();
        matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
    }

    fn explain(&self, path: &str) -> StoreError {
        let (WriteError::Before(error) | WriteError::AtCommit(error)) = self;
        match (self, error.sqlite_error_code()) {
            (_, Some(ErrorCode::DiskFull)) => StoreError::Full { path: path.to_owned() },
            (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => StoreError::Locked {
                path: path.to_owned(),
                holder: String::new(),
            },
            (WriteError::Before(_), _) if is_rejection(error) => StoreError::Rejected(error.to_string()),
            (WriteError::Before(_), _) => StoreError::Failed(error.to_string()),
            (WriteError::AtCommit(_), _) => StoreError::Unknown(error.to_string()),
        }
    }
}

/// Whether the data was refused and would be refused again. A key that is in use is not that: it is a conflict.
fn is_rejection(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error, ffi};
    let unique = [ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY];
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::ConstraintViolation => !unique.contains(&failure.extended_code),
            ErrorCode::TooBig | ErrorCode::TypeMismatch => true,
            _ => false,
        },
        Error::ToSqlConversionFailure(_) | Error::NulError(_) => true,
        _ => false,
    }
}

/// Whether an error concerns the data of one member, and not the disk or the file.
fn is_about_one(error: &rusqlite::Error) -> bool {
    use ErrorCode::*;
    !matches!(
        error.sqlite_error_code(),
        Some(
            DiskFull
                | SystemIoFailure
                | DatabaseCorrupt
                | NotADatabase
                | DatabaseBusy
                | DatabaseLocked
                | ReadOnly
                | OutOfMemory
        )
    )
}
