//! Runners: heartbeats, the runs they hold, and which of those have pending messages.
//!
//! What must stay true: a runner may check for pending messages every second, so without messages the check costs one
//! index lookup. A test checks the plans.

use super::{
    SqliteStore,
    columns::{Col, count, get, key, run_id},
    writer::Tx,
};
use crate::{
    ChangeHint, Result,
    clock::{since_boot, wall},
    reads::Page,
    runners::{FORGOTTEN_AFTER, Lease, Runner, RunnerRecord, RunnerStore},
    statements::RETIRE,
};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};
use rusqlite::{Connection, params};
use uuid::Uuid;

#[async_trait]
impl RunnerStore for SqliteStore {
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.clock.learn(since_boot(), wall().0, since_boot());
        let runner = runner.clone();
        self.writer.write_quietly(move |tx| heartbeat(tx, &runner, at)).await
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.writer.write(move |tx| retire(tx, runner)).await
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        self.readers
            .read(move |connection| runners(connection, before, limit))
            .await
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        self.readers
            .read(move |connection| runs_with_messages(connection, runner))
            .await
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        self.readers
            .read(move |connection| held(connection, runner, after, limit))
            .await
    }
}

const BEAT: &str = "INSERT INTO runners (id, heartbeat_at, host, pid, version, role, started_at, public_url)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, role = excluded.role";

const FORGET_OLD: &str = "DELETE FROM runners WHERE heartbeat_at < ?1 AND NOT EXISTS
    (SELECT 1 FROM workflow_executions INDEXED BY ix_executions_claim
     WHERE lease_owner = runners.id AND wake_at IS NOT NULL)";

pub(super) const RUNNERS: &str = "SELECT id, heartbeat_at, host, pid, version, role, started_at, public_url,
    (SELECT COUNT(*) FROM workflow_executions INDEXED BY ix_executions_claim
     WHERE lease_owner = runners.id AND wake_at IS NOT NULL)
    FROM runners WHERE id < ?1 ORDER BY id DESC LIMIT ?2";

pub(super) const UNREAD: &str = "SELECT id FROM workflow_executions INDEXED BY ix_executions_unread
    WHERE lease_owner = ?1 AND lease_owner IS NOT NULL AND inbox_seq > inbox_seen";

/// Held runs are sorted here: an index in the order of ids would be written by every run.
pub(super) const HELD: &str = "SELECT id, lease_epoch FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner = ?1 AND wake_at IS NOT NULL AND id > ?2 ORDER BY id LIMIT ?3";

/// Greater than every id.
const LAST: [u8; 17] = [0xff; 17];

/// Records a heartbeat.
pub(super) fn heartbeat(tx: &Tx<'_>, runner: &Runner, at: Timestamp) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(BEAT)?.execute(params![
        runner.id.0.as_bytes().as_slice(),
        at.0,
        runner.host,
        runner.pid,
        runner.version,
        runner.role,
        runner.started_at.0,
        runner.public_url,
    ])?;
    let long_ago = at.0.saturating_sub(FORGOTTEN_AFTER);
    tx.connection.prepare_cached(FORGET_OLD)?.execute([long_ago])?;
    Ok(())
}

/// Deletes a runner.
pub(super) fn retire(tx: &mut Tx<'_>, runner: RunnerId) -> rusqlite::Result<()> {
    let mut forget = tx.connection.prepare_cached(RETIRE)?;
    forget.execute([runner.0.as_bytes().as_slice()])?;
    tx.hints.push(ChangeHint::Due(Timestamp::default()));
    Ok(())
}

/// Runners, newest first.
pub(super) fn runners(
    connection: &Connection,
    before: Option<RunnerId>,
    limit: u32,
) -> rusqlite::Result<Page<RunnerRecord>> {
    let before = before.map_or(LAST.to_vec(), |before| before.0.as_bytes().to_vec());
    let mut statement = connection.prepare_cached(RUNNERS)?;
    let rows = statement.query_map(params![before, i64::from(limit) + 1], |row| {
        Ok(RunnerRecord {
            runner: Runner {
                id: RunnerId(row.get::<_, Col<Uuid>>(0)?.0),
                host: row.get(2)?,
                pid: row.get(3)?,
                version: row.get(4)?,
                role: row.get(5)?,
                started_at: get(row, 6)?,
                public_url: row.get(7)?,
            },
            heartbeat_at: get(row, 1)?,
            held: count(row, 8)?,
        })
    })?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, limit))
}

/// Held runs with pending messages.
pub(super) fn runs_with_messages(connection: &Connection, runner: RunnerId) -> rusqlite::Result<Vec<RunId>> {
    let mut statement = connection.prepare_cached(UNREAD)?;
    let rows = statement.query_map([runner.0.as_bytes().as_slice()], |row| run_id(row, 0))?;
    rows.collect()
}

/// Held runs, by id.
pub(super) fn held(
    connection: &Connection,
    runner: RunnerId,
    after: Option<RunId>,
    limit: u32,
) -> rusqlite::Result<Vec<Lease>> {
    let after = after.map_or(Vec::new(), |after| key(&after).to_vec());
    let mut statement = connection.prepare_cached(HELD)?;
    let rows = statement.query_map(params![runner.0.as_bytes().as_slice(), after, limit], |row| {
        Ok(Lease {
            run: run_id(row, 0)?,
            epoch: count(row, 1)?,
        })
    })?;
    rows.collect()
}
