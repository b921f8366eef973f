//! The raw limit of a PostgreSQL server: the rows of runs by the committers' own statements, and nothing else.
//!
//! For benchmarks. What must stay true: the rows are those that [`PostgresStore`](super::PostgresStore) leaves behind for
//! the same runs, made by the same statements and as durable; but nothing is locked, read, checked or decided, and a
//! transaction is one round trip.

use super::{
    address::Address,
    columns::small,
    error::PgError,
    pipeline::send,
    rows::{RunUpdate, Writes},
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

/// The writes of one run: its birth and its commits, the last of which ends it.
pub struct Script {
    first: Option<(Timestamp, String)>,
    commits: Vec<(RunCommit, Option<String>)>,
}

/// How rows come to transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The birth and each commit in a transaction of its own, as an engine has to do it: what a step leaves behind is
    /// durable before the next one begins.
    StepByStep,
    /// All rows of a run in one.
    AtOnce,
}

impl Script {
    /// Texts are made once: they are the same for all runs.
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

/// A connection that takes rows.
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
    /// Connects to a database that a store has migrated.
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

    /// Writes all rows of these runs. Durable when this returns.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn write(&mut self, runs: &[NewRun], script: &Script, pace: Pace) -> Result<()> {
        match pace {
            Pace::AtOnce => {
                let mut writes = Writes::default();
                bear(runs, script, &mut writes);
                for commit in &script.commits {
                    advance(runs, commit, &mut writes);
                }
                self.send(&writes).await
            }
            Pace::StepByStep => {
                let mut birth = Writes::default();
                bear(runs, script, &mut birth);
                self.send(&birth).await?;
                for commit in &script.commits {
                    let mut step = Writes::default();
                    advance(runs, commit, &mut step);
                    self.send(&step).await?;
                }
                Ok(())
            }
        }
    }

    async fn send(&self, writes: &Writes<'_>) -> Result<()> {
        let queries = writes.queries(&self.sql);
        let sent = send(&self.client, Some("BEGIN"), &queries, Some("COMMIT")).await;
        sent.map(drop)
            .map_err(|error| PgError::Server(error).explain(&self.address.place))
    }
}

/// The birth of these runs.
fn bear<'a>(runs: &'a [NewRun], script: &'a Script, writes: &mut Writes<'a>) {
    writes.runs.extend(runs);
    if let Some((at, text)) = &script.first {
        for run in runs {
            writes.events.push(run.id, 1, *at, text);
        }
    }
}

/// The same commit for all of them.
fn advance<'a>(runs: &[NewRun], (commit, text): &'a (RunCommit, Option<String>), writes: &mut Writes<'a>) {
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
            inbox_seq: 0,
            inbox_seen: 0,
            takeovers: 0,
        }));
    }
}
