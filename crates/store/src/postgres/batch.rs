//! Writes one batch in two round trips: lock and read, then write and `COMMIT`. A batch with keys of flow control has a third
//! one, before the write: it locks the rows of the keys, which it knows from the rows of the runs.
//!
//! What must stay true:
//! * A batch never waits for a row lock on a run, or on the workflow of a new run. It locks the rows that are free
//!   (`FOR NO KEY UPDATE` and `FOR KEY SHARE`, both `SKIP LOCKED`) and leaves out the members whose rows another
//!   transaction has locked.
//! * All other locks are taken in one global order, so batches of any number of processes cannot deadlock: keys of flow
//!   control (new ones as entries in their index, others with `SKIP LOCKED`), then entries in unique indexes, first of requests
//!   and then of resources, then the counters of tenants, last merged requests, all sorted. Claims hold no lock while they wait, and
//!   changes of workflows lock no run.
//! * Retention deletes rows of runs that have ended, and may wait for a batch that waits for it. It is ended by the same
//!   `lock_timeout`, and tries again.
//! * An application may hold its locks for long, so a batch waits for an index entry only for a short `lock_timeout`.
//! * Checks use data read by separate statements after the locks were taken: a statement that had to wait for a lock
//!   still sees its old snapshot of all other rows.
//! * Rows that belong to a new run are inserted only if the run was inserted: another batch may have stored the same
//!   request first.

use super::{
    address::Address,
    batch_reads::{BatchReads, ReadKind},
    decide::decide,
    error::{PgError, Remedy},
    facts::Facts,
    hints::Notifications,
    pipeline::{Query, send},
    rows::{Queries, Writes},
    sql::Statements,
    work::{MemberResult, Outcome, Work},
};
use crate::runs::Enqueued;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio::{
    task::JoinHandle,
    time::{error::Elapsed, timeout},
};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// How long a batch waits for a lock of another transaction: about as long as a commit takes on a slow disk.
const SET_LOCK_TIMEOUT: &str = "SET lock_timeout = '50ms'";
/// How long cached query plans are used before `DISCARD PLANS`.
const PLAN_LIFETIME: Duration = Duration::from_secs(5);

/// Why a batch was not confirmed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was written.
    NotWritten(PgError),
    /// `COMMIT` was sent, but its response was not received: the batch may or may not be written.
    Unknown(PgError),
}

/// The result of each member, and the notifications to send.
pub(super) type Written = (Vec<MemberResult>, Notifications);

/// A committer's connection, with its statements prepared.
pub(super) struct Session {
    client: Client,
    task: JoinHandle<()>,
    sql: Statements,
    response_timeout: Duration,
    batches: u64,
    planned_at: Instant,
    #[cfg(test)]
    round_trips: std::sync::atomic::AtomicU64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    pub(super) async fn connect(address: &Address, response_timeout: Duration) -> Result<Session, PgError> {
        let connect = async {
            let (client, task) = address.session().await?;
            client.batch_execute(SET_LOCK_TIMEOUT).await?;
            let sql = Statements::prepare(&client).await?;
            Ok(Session {
                client,
                task,
                sql,
                response_timeout,
                batches: 0,
                planned_at: Instant::now(),
                #[cfg(test)]
                round_trips: Default::default(),
            })
        };
        timeout(response_timeout, connect)
            .await
            .unwrap_or(Err(PgError::Timeout))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Writes a batch whose members do not depend on each other.
    pub(super) async fn write(&mut self, batch: &[&Work]) -> Result<Written, Failure> {
        let begin = self.begin();
        let facts = match self.lock_and_read(begin, batch).await {
            Ok(facts) => facts,
            Err(error) => {
                // If this fails as well, the connection is lost; the next batch detects that and reconnects.
                let _ = timeout(self.response_timeout, self.client.batch_execute("ROLLBACK")).await;
                return Err(Failure::NotWritten(error));
            }
        };
        let (results, mut writes) = decide(batch, &facts);
        let mut notifications = std::mem::take(&mut writes.notifications);
        let Queries { queries, returning } = writes.queries(&self.sql);
        let answers = match self.round_trip(None, &queries, Some("COMMIT")).await {
            Ok(Ok(answers)) => answers,
            // The transaction contained no writes, so nothing can have been written.
            Ok(Err(error)) if queries.is_empty() => return Err(Failure::NotWritten(error.into())),
            Ok(Err(error)) => return Err(self.classify_commit_error(error)),
            Err(_) => return Err(Failure::Unknown(PgError::Timeout)),
        };
        let ids = |at: Option<usize>| -> HashSet<Uuid> {
            let rows = at.and_then(|at| answers.get(at)).into_iter().flatten();
            rows.filter_map(|row| row.try_get(0).ok()).collect()
        };
        let handed = returning.handed.and_then(|at| answers.get(at));
        if handed.is_some_and(|rows| !rows.is_empty()) {
            notifications.due(writes.handed_at);
        }
        let results = match returning.inserted {
            Some(_) => recheck_created(batch, results, &ids(returning.inserted)),
            None => results,
        };
        let results = match returning.merged {
            Some(_) => recheck_merged(&writes, results, &ids(returning.merged)),
            None => results,
        };
        Ok((results, notifications))
    }

    /// Cached plans were made for the table sizes of that time. They are discarded regularly, so that new plans fit the
    /// current sizes.
    fn begin(&mut self) -> &'static str {
        self.batches += 1;
        match self.batches.is_power_of_two() || self.planned_at.elapsed() > PLAN_LIFETIME {
            true => {
                self.planned_at = Instant::now();
                "DISCARD PLANS; BEGIN"
            }
            false => "BEGIN",
        }
    }

    /// The first round trip. If rows could not be locked, a second one finds out whether they are locked by another
    /// transaction or do not exist.
    async fn lock_and_read(&self, begin: &str, batch: &[&Work]) -> Result<Facts, PgError> {
        let reads = BatchReads::of(batch);
        let mut facts = Facts::default();
        self.run_reads(Some(begin), reads.queries(&self.sql), &mut facts)
            .await?;
        let existence = reads.existence_queries(&self.sql, &facts);
        self.run_reads(None, existence, &mut facts).await?;
        let keys = BatchReads::key_queries(batch, &facts, &self.sql);
        if !keys.is_empty() {
            self.run_reads(None, keys, &mut facts).await?;
            facts.find_locked_keys(batch);
        }
        Ok(facts)
    }

    async fn run_reads(
        &self,
        begin: Option<&str>,
        queries: Vec<(Query<'_>, ReadKind)>,
        facts: &mut Facts,
    ) -> Result<(), PgError> {
        let (queries, kinds): (Vec<_>, Vec<_>) = queries.into_iter().unzip();
        if begin.is_none() && queries.is_empty() {
            return Ok(());
        }
        let answers = self.round_trip(begin, &queries, None).await;
        let answers = answers.map_err(|_| PgError::Timeout)??;
        for (kind, rows) in kinds.into_iter().zip(answers) {
            facts.add(kind, &rows)?;
        }
        Ok(())
    }

    /// Sends statements together and waits for their answers. A batch sends nothing else.
    async fn round_trip(
        &self,
        first: Option<&str>,
        queries: &[Query<'_>],
        last: Option<&str>,
    ) -> Result<Result<Vec<Vec<Row>>, tokio_postgres::Error>, Elapsed> {
        #[cfg(test)]
        self.round_trips.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        timeout(self.response_timeout, send(&self.client, first, queries, last)).await
    }

    #[cfg(test)]
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Decides whether an error of the second round trip leaves the outcome unknown. The server rolls back a transaction
    /// in which a statement failed. If the connection was lost instead, `COMMIT` may have been executed.
    fn classify_commit_error(&self, error: tokio_postgres::Error) -> Failure {
        let answered = error.as_db_error().is_some() || !self.client.is_closed();
        let error = PgError::Server(error);
        match answered && error.remedy() != Remedy::Reconnect || error.is_idle_timeout() {
            true => Failure::NotWritten(error),
            false => Failure::Unknown(error),
        }
    }
}

/// Corrects the result of members whose payload was not taken, because the run began meanwhile: they are tried again.
fn recheck_merged(writes: &Writes<'_>, mut results: Vec<MemberResult>, merged: &HashSet<Uuid>) -> Vec<MemberResult> {
    for merge in writes.merges.iter().filter(|merge| !merged.contains(&merge.into.0)) {
        results[merge.member] = MemberResult::KeyLocked;
    }
    results
}

/// Corrects the result of new runs that were not inserted because of a conflict. Notifications about them are hints and
/// do no harm.
fn recheck_created(batch: &[&Work], results: Vec<MemberResult>, stored: &HashSet<Uuid>) -> Vec<MemberResult> {
    let results = batch.iter().zip(results).map(|(work, result)| match result {
        MemberResult::Done(Outcome::Enqueued(Enqueued::Created | Enqueued::Waiting))
            if !stored.contains(&work.run().0) =>
        {
            MemberResult::InsertConflict
        }
        result => result,
    });
    results.collect()
}
