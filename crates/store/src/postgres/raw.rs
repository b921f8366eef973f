//! For benchmarks: writes the rows of runs with the committers' statements and nothing else, to measure the limit of a
//! PostgreSQL server.
//!
//! What must stay true: the rows are those that [`PostgresStore`](super::PostgresStore) writes for the same runs, written
//! with the same statements and as durably. But nothing is locked, read, checked or decided, and a transaction is one
//! round trip.

use super::{
    address::Address,
    columns::small,
    error::PgError,
    pipeline::send,
    rows::{InsertedRun, Queries, RunUpdate, Writes},
    settings::PostgresSettings,
    sql::Statements,
};
use crate::{
    Result,
    runs::{NewRun, RunCommit, journal_text},
};
use fermata_core::Timestamp;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// The writes of one run: its start and its commits. The last commit ends the run.
pub struct Script {
    first: Option<(Timestamp, String)>,
    commits: Vec<(RunCommit, Option<String>)>,
}

/// How rows are divided into transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The start and each commit in its own transaction, as an engine must do it: the rows of a step are durable before
    /// the next step begins.
    StepByStep,
    /// All rows of a run in one transaction.
    AtOnce,
}

impl Script {
    /// Serializes the journal rows once: they are the same for all runs.
    pub fn new(run: &NewRun, commits: &[RunCommit]) -> Script {
        let first = run.local_start.as_ref();
        let first =
            first.and_then(|local_start| Some((local_start.started_at, journal_text(local_start.events.clone())?)));
        let commits = commits.iter().map(|commit| {
            let text = journal_text(commit.events.clone());
            (commit.clone(), text)
        });
        Script {
            first,
            commits: commits.collect(),
        }
    }
}

/// A connection that writes rows.
pub struct RawWriter {
    address: Address,
    client: Client,
    task: JoinHandle<()>,
    sql: Statements,
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RawWriter {
    /// Connects to a database whose schema is up to date.
    ///
    /// # Errors
    /// [`StoreError::Unopenable`](crate::StoreError::Unopenable) if it cannot be reached.
    pub async fn connect(url: &str) -> Result<RawWriter> {
        let address = Address::parse(url, &PostgresSettings::default())?;
        let refused = |error| address.unopenable(&PgError::Server(error));
        let (client, task) = address.session().await.map_err(refused)?;
        let sql = Statements::prepare(&client).await.map_err(refused)?;
        Ok(RawWriter {
            address,
            client,
            task,
            sql,
        })
    }

    /// Writes all rows of these runs. They are durable when this returns.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn write(&mut self, runs: &[NewRun], script: &Script, pace: Pace) -> Result<()> {
        match pace {
            Pace::AtOnce => {
                let mut writes = Writes::default();
                add_starts(runs, script, &mut writes);
                for commit in &script.commits {
                    add_commit(runs, commit, &mut writes);
                }
                self.send(&writes).await
            }
            Pace::StepByStep => {
                let mut start = Writes::default();
                add_starts(runs, script, &mut start);
                self.send(&start).await?;
                for commit in &script.commits {
                    let mut step = Writes::default();
                    add_commit(runs, commit, &mut step);
                    self.send(&step).await?;
                }
                Ok(())
            }
        }
    }

    async fn send(&self, writes: &Writes<'_>) -> Result<()> {
        let Queries { queries, .. } = writes.queries(&self.sql);
        let sent = send(&self.client, Some("BEGIN"), &queries, Some("COMMIT")).await;
        sent.map(drop)
            .map_err(|error| PgError::Server(error).explain(&self.address.place))
    }
}

/// Adds the rows that are written when runs start.
fn add_starts<'a>(runs: &'a [NewRun], script: &'a Script, writes: &mut Writes<'a>) {
    writes.runs.extend(runs.iter().map(|run| InsertedRun {
        run,
        local_start: run.local_start.as_ref(),
        wake_at: None,
        flow: None,
    }));
    if let Some((at, text)) = &script.first {
        for run in runs {
            writes.events.push(run.id, 1, *at, text);
        }
    }
}

/// Adds the rows of one commit, the same for all runs.
fn add_commit<'a>(runs: &[NewRun], (commit, text): &'a (RunCommit, Option<String>), writes: &mut Writes<'a>) {
    for run in runs {
        if let Some(text) = text {
            writes.events.push(run.id, small(commit.seq), commit.at, text);
        }
        let attempts = commit.attempts.iter().map(|attempt| (run.id, attempt));
        writes.attempts.extend(attempts);
        writes.updates.extend(commit.status.as_ref().map(|change| RunUpdate {
            run: run.id.0,
            change: Some(change),
            released: true,
            wake_at: None,
            message_seq: 0,
            messages_seen: 0,
            takeovers: 0,
            flow: None,
        }));
    }
}
