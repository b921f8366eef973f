//! One batch in two round trips: lock and read, then write and `COMMIT`.
//!
//! What must stay true:
//! * Nobody waits for a run, or for the workflow of a new one: a batch locks those that are free (`FOR NO KEY UPDATE` and
//!   `FOR KEY SHARE`, both `SKIP LOCKED`), and members who need what somebody else has locked are left out. All other
//!   locks are taken in one order, so batches of any number of processes never wait for each other in a circle: places
//!   in unique indexes, requests, then resources, both sorted. Claims never wait while they hold anything, and whoever
//!   changes workflows touches no run.
//! * An application may keep its locks for long, so a batch waits for places for a moment only.
//! * What checks need is read by statements of their own after the locks: a statement that had to wait for a lock
//!   still sees everything else as it was before.
//! * Whatever belongs to a run that is stored here is stored only if the run was: another batch may have come first.

use super::{
    address::Address,
    decide::decide,
    error::{PgError, Remedy},
    facts::Facts,
    hints::Tidings,
    look::{Question, Wish},
    pipeline::{Query, send},
    sql::Statements,
    work::{Fate, Outcome, Work},
};
use crate::runs::Enqueued;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::Client;
use uuid::Uuid;

/// How long a batch waits for the lock of somebody else: about as long as a commit takes on a slow disk.
const LOCK_PATIENCE: &str = "SET lock_timeout = '50ms'";
/// How long the server keeps the plans it made.
const PLANS_LAST: Duration = Duration::from_secs(5);

/// A batch that was not written, or may not have been.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was written.
    Nothing(PgError),
    /// `COMMIT` was sent, and no answer came.
    Unknown(PgError),
}

/// What became of each member, and what to tell of it.
pub(super) type Written = (Vec<Fate>, Tidings);

/// A committer's connection, with its statements prepared.
pub(super) struct Session {
    client: Client,
    task: JoinHandle<()>,
    sql: Statements,
    answer_within: Duration,
    batches: u64,
    planned: Instant,
    #[cfg(test)]
    trips: std::sync::atomic::AtomicU64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    pub(super) async fn connect(address: &Address, answer_within: Duration) -> Result<Session, PgError> {
        let connect = async {
            let (client, task) = address.session().await?;
            client.batch_execute(LOCK_PATIENCE).await?;
            let sql = Statements::prepare(&client).await?;
            Ok(Session {
                client,
                task,
                sql,
                answer_within,
                batches: 0,
                planned: Instant::now(),
                #[cfg(test)]
                trips: Default::default(),
            })
        };
        timeout(answer_within, connect).await.unwrap_or(Err(PgError::Silent))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Writes a batch whose members do not depend on each other.
    pub(super) async fn write(&mut self, batch: &[&Work]) -> Result<Written, Failure> {
        let begin = self.begin();
        let facts = match self.look(begin, batch).await {
            Ok(facts) => facts,
            Err(error) => {
                // If this fails too, the connection is lost, which the next batch will see.
                let _ = timeout(self.answer_within, self.client.batch_execute("ROLLBACK")).await;
                return Err(Failure::Nothing(error));
            }
        };
        let (fates, mut writes) = decide(batch, &facts);
        let tidings = std::mem::take(&mut writes.tidings);
        let queries = writes.queries(&self.sql);
        self.count_trip();
        let commit = send(&self.client, None, &queries, Some("COMMIT"));
        let mut answers = match timeout(self.answer_within, commit).await {
            Ok(Ok(answers)) => answers,
            // An end without a beginning: nothing was to be written.
            Ok(Err(error)) if queries.is_empty() => return Err(Failure::Nothing(error.into())),
            Ok(Err(error)) => return Err(self.judge(error)),
            Err(_) => return Err(Failure::Unknown(PgError::Silent)),
        };
        if writes.runs.is_empty() {
            return Ok((fates, tidings));
        }
        let stored = answers.swap_remove(0);
        let stored: HashSet<Uuid> = stored.iter().filter_map(|row| row.try_get(0).ok()).collect();
        Ok((survivors(batch, fates, &stored), tidings))
    }

    /// Plans are kept, but they were made for tables as small as they were then. Made again now and then, they fit.
    fn begin(&mut self) -> &'static str {
        self.batches += 1;
        match self.batches.is_power_of_two() || self.planned.elapsed() > PLANS_LAST {
            true => {
                self.planned = Instant::now();
                "DISCARD PLANS; BEGIN"
            }
            false => "BEGIN",
        }
    }

    /// The first round trip; and another if something could not be locked, which may be because it is not there.
    async fn look(&self, begin: &str, batch: &[&Work]) -> Result<Facts, PgError> {
        let wish = Wish::of(batch);
        let mut facts = Facts::default();
        self.ask(Some(begin), wish.queries(&self.sql), &mut facts).await?;
        let not_locked = wish.not_locked(&self.sql, &facts);
        self.ask(None, not_locked, &mut facts).await?;
        Ok(facts)
    }

    async fn ask(
        &self,
        begin: Option<&str>,
        queries: Vec<(Query<'_>, Question)>,
        facts: &mut Facts,
    ) -> Result<(), PgError> {
        let (queries, questions): (Vec<_>, Vec<_>) = queries.into_iter().unzip();
        if begin.is_some() || !queries.is_empty() {
            self.count_trip();
        }
        let answers = timeout(self.answer_within, send(&self.client, begin, &queries, None)).await;
        let answers = answers.map_err(|_| PgError::Silent)??;
        for (question, rows) in questions.into_iter().zip(answers) {
            facts.learn(question, &rows)?;
        }
        Ok(())
    }

    /// Whatever is sent together is one round trip.
    fn count_trip(&self) {
        #[cfg(test)]
        self.trips.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// How many round trips were made.
    #[cfg(test)]
    pub(super) fn trips(&self) -> u64 {
        self.trips.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What an error of the second round trip means. The server undoes a transaction in which a statement failed,
    /// whatever comes after it; but when it goes away, `COMMIT` may have been done.
    fn judge(&self, error: tokio_postgres::Error) -> Failure {
        let answered = error.as_db_error().is_some() || !self.client.is_closed();
        let error = PgError::Server(error);
        match answered && error.remedy() != Remedy::Reconnect || error.came_too_late() {
            true => Failure::Nothing(error),
            false => Failure::Unknown(error),
        }
    }
}

/// Takes back what was decided for runs that were not stored after all. Their news are hints that come to nothing.
fn survivors(batch: &[&Work], fates: Vec<Fate>, stored: &HashSet<Uuid>) -> Vec<Fate> {
    let fates = batch.iter().zip(fates).map(|(work, fate)| match fate {
        Fate::Done(Outcome::Enqueued(Enqueued::Created)) if !stored.contains(&work.run().0) => Fate::Beaten,
        fate => fate,
    });
    fates.collect()
}
