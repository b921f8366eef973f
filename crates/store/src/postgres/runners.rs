//! Runners: heartbeats, the runs they hold, and which of those have pending messages.
//!
//! What must stay true: a runner may check for pending messages every second, so without messages the check costs one
//! index lookup. All times are by the database's clock, so the clocks of machines may differ.

use super::{
    PostgresStore,
    columns::{get, plain, signed},
    error::PgError,
    hints::Notifications,
    sessions::patiently,
};
use crate::{
    Result,
    clock::{DatabaseClock, since_boot},
    reads::Page,
    runners::{FORGOTTEN_AFTER, Lease, Runner, RunnerRecord, RunnerStore},
    statements::{self, dollars},
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use fermata_core::{RunId, RunnerId, Timestamp};
use uuid::Uuid;

#[async_trait]
impl RunnerStore for PostgresStore {
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.hints.register(runner);
        patiently!(self.sessions, |session| heartbeat(&session, runner, at, &self.clock))
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.hints.unregister(runner.0);
        patiently!(self.sessions, |session| retire(&session, runner))?;
        let mut notifications = Notifications::default();
        notifications.due(Timestamp::default());
        self.hints.publish(&notifications);
        Ok(())
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        patiently!(self.sessions, |session| runners(&session, before, limit, &self.clock))
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        patiently!(self.sessions, |session| runs_with_messages(&session, runner))
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        patiently!(self.sessions, |session| held(&session, runner, after, limit))
    }
}

/// A condition that is always true and turns `synchronous_commit` off for the transaction of the statement. Heartbeats
/// need not survive a crash. They must not wait for disks and standbys: while commits hang because a standby is down, no
/// runner may seem dead.
macro_rules! async_commit {
    () => {
        "set_config('synchronous_commit', 'off', true) = 'off'"
    };
}

/// The database's clock.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}

const HEARTBEAT: &str = concat!(
    "INSERT INTO runners (id, heartbeat_at, host, pid, version, role, started_at, public_url)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE ",
    async_commit!(),
    " ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, role = excluded.role RETURNING ",
    clock!()
);

const DELETE_OLD: &str = concat!(
    "DELETE FROM runners WHERE heartbeat_at < $1 AND NOT EXISTS
    (SELECT 1 FROM workflow_executions WHERE lease_owner = runners.id AND lease_owner IS NOT NULL) AND ",
    async_commit!()
);

/// Changes a row, so that a read-only server is detected.
pub(super) const PING: &str = concat!(
    "INSERT INTO fermata_meta (key, value) SELECT 'ping', '1' WHERE ",
    async_commit!(),
    " ON CONFLICT (key) DO UPDATE SET value = (fermata_meta.value::bigint + 1)::text"
);

/// An SQL session is listed as a runner only while it holds runs.
pub(super) const RUNNERS: &str = "SELECT id, heartbeat_at, host, pid, version, role, started_at, public_url,
    (SELECT COUNT(*) FROM workflow_executions WHERE lease_owner = runners.id AND lease_owner IS NOT NULL)
    FROM runners WHERE (id < $1 OR $1 IS NULL) AND (role <> 'sql' OR EXISTS
      (SELECT 1 FROM workflow_executions WHERE lease_owner = runners.id AND lease_owner IS NOT NULL))
    ORDER BY id DESC LIMIT $2";

/// The condition is a range over both columns, so that only the index on (owner, id) of runs with pending messages fits.
/// With a condition on the owner alone, the planner could examine all runs of the owner.
pub(super) const WITH_MESSAGES: &str = "SELECT id FROM workflow_executions
    WHERE lease_owner IS NOT NULL AND inbox_seq > inbox_seen
    AND (lease_owner, id) >= ($1, '00000000-0000-0000-0000-000000000000')
    AND (lease_owner, id) <= ($1, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY lease_owner, id";

/// The runs of a runner are sorted by the query: an index by owner and id would cost a write for every run. `OFFSET 0`
/// keeps the planner from scanning all runs in the order of ids instead.
pub(super) const HELD: &str = "SELECT id, lease_epoch FROM (SELECT id, lease_epoch FROM workflow_executions
      WHERE lease_owner = $1 AND lease_owner IS NOT NULL AND (id > $2 OR $2 IS NULL) OFFSET 0) held
    ORDER BY id LIMIT $3";

const NOW: &str = concat!("SELECT ", clock!());

/// Measures the database's clock for the first time.
pub(super) async fn clock(client: &impl GenericClient) -> Result<DatabaseClock, PgError> {
    let statement = client.prepare_cached(NOW).await?;
    let before = since_boot();
    let theirs: i64 = plain(&client.query_one(&statement, &[]).await?, 0)?;
    Ok(DatabaseClock::new(before, theirs, since_boot()))
}

/// Writes the heartbeat of a runner, deletes old runners, and measures the database's clock.
pub(super) async fn heartbeat(
    session: &Object,
    runner: &Runner,
    at: Timestamp,
    clock: &DatabaseClock,
) -> Result<(), PgError> {
    let heartbeat = session.prepare_cached(HEARTBEAT).await?;
    let (id, at, pid) = (runner.id.0, clock.theirs(at), i64::from(runner.pid));
    let row: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[
        &id,
        &at,
        &runner.host,
        &pid,
        &runner.version,
        &runner.role,
        &runner.started_at.0,
        &runner.public_url,
    ];
    let before = since_boot();
    let theirs: i64 = plain(&session.query_one(&heartbeat, row).await?, 0)?;
    clock.learn(before, theirs, since_boot());
    let delete = session.prepare_cached(DELETE_OLD).await?;
    session.execute(&delete, &[&at.saturating_sub(FORGOTTEN_AFTER)]).await?;
    Ok(())
}

/// Deletes a runner.
pub(super) async fn retire(session: &Object, runner: RunnerId) -> Result<(), PgError> {
    let delete = session.prepare_cached(&dollars(statements::RETIRE)).await?;
    session.execute(&delete, &[&runner.0]).await?;
    Ok(())
}

/// The known runners, newest first.
pub(super) async fn runners(
    client: &impl GenericClient,
    before: Option<RunnerId>,
    limit: u32,
    clock: &DatabaseClock,
) -> Result<Page<RunnerRecord>, PgError> {
    let statement = client.prepare_cached(RUNNERS).await?;
    let before: Option<Uuid> = before.map(|before| before.0);
    let rows = client.query(&statement, &[&before, &(i64::from(limit) + 1)]).await?;
    let records = rows.iter().map(|row| {
        let pid: i64 = plain(row, 3)?;
        Ok(RunnerRecord {
            runner: Runner {
                id: get(row, 0)?,
                host: plain(row, 2)?,
                pid: u32::try_from(pid)
                    .map_err(|_| PgError::UnexpectedValue(format!("{pid} is not a valid process id")))?,
                version: plain(row, 4)?,
                role: plain(row, 5)?,
                started_at: get(row, 6)?,
                public_url: plain(row, 7)?,
            },
            heartbeat_at: clock.ours(get(row, 1)?),
            held: get(row, 8)?,
        })
    });
    Ok(Page::cut(records.collect::<Result<_, PgError>>()?, limit))
}

/// The runs of a runner that have pending messages.
pub(super) async fn runs_with_messages(client: &impl GenericClient, runner: RunnerId) -> Result<Vec<RunId>, PgError> {
    let statement = client.prepare_cached(WITH_MESSAGES).await?;
    let rows = client.query(&statement, &[&runner.0]).await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

/// The runs that a runner holds, ordered by id.
pub(super) async fn held(
    client: &impl GenericClient,
    runner: RunnerId,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<Lease>, PgError> {
    let statement = client.prepare_cached(HELD).await?;
    let after: Option<Uuid> = after.map(|after| after.0);
    let rows = client
        .query(&statement, &[&runner.0, &after, &signed(limit.into())])
        .await?;
    let leases = rows.iter().map(|row| {
        Ok(Lease {
            run: get(row, 0)?,
            epoch: get(row, 1)?,
        })
    });
    leases.collect()
}
