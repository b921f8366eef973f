//! Claims runs for a runner, and loads a run with its journal.
//!
//! What must stay true:
//! * A claim gives a run a new epoch. A leased run always has a `wake_at`.
//! * Claims skip locked rows: they never wait, and two runners never get the same run.
//! * Journals are read by a separate statement after the lease was taken: the snapshot of the statement that takes the
//!   lease may be older than the last commit of the previous owner.
//! * An SQL session that holds runs (`sp_try_acquire_execution`) counts as dead once its connection has ended, as far as
//!   `pg_stat_activity` shows that. It cannot read run messages, so a run with pending messages is taken from it. If a
//!   live session loses a run by mistake, the epoch fences it.
//! * A run with status Running and without a journal was held by an SQL session. It restarts from the beginning, so the
//!   recorded attempts are deleted: they would conflict with the new ones.

use super::{
    columns::{flow, get, lineage, maybe, plain, principal},
    error::PgError,
    queue::{self, Group},
    sessions::commit,
};
use crate::{
    priority,
    runs::{Claim, Claimed, StoredRun},
    statements::STORED_RUN_COLUMNS,
};
use deadpool_postgres::{GenericClient, Object, Transaction};
use fermata_core::{RunId, RunnerId, Status, Timestamp};
use std::{collections::HashMap, sync::Mutex};
use tokio_postgres::Row;
use uuid::Uuid;

/// Runs whose owner has no recent heartbeat or whose SQL session has ended, and runs with pending messages that SQL
/// sessions hold. Each owner is visited once, however many runs it holds. `backend_start` is NULL if this role may not
/// see the session of another role; then the session that has this process id now is taken for the owner.
pub(super) const ORPHANED: &str = "WITH RECURSIVE owners (owner) AS (
      SELECT (SELECT lease_owner FROM workflow_executions WHERE lease_owner IS NOT NULL ORDER BY lease_owner LIMIT 1)
      UNION ALL
      SELECT (SELECT e.lease_owner FROM workflow_executions e WHERE e.lease_owner > o.owner AND e.lease_owner IS NOT NULL
        ORDER BY e.lease_owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL)
    SELECT held.id FROM (SELECT owner, (SELECT r.role = 'sql' FROM runners r WHERE r.id = owner AND r.heartbeat_at >= $2
          AND (r.role <> 'sql' OR EXISTS (SELECT 1 FROM pg_stat_get_activity(r.pid::integer) s
            WHERE s.backend_start IS NULL OR s.backend_start <= to_timestamp(r.started_at / 1000000.0)))) AS living_session
        FROM owners WHERE owner <> $1 OFFSET 0) o
      CROSS JOIN LATERAL (SELECT id FROM workflow_executions WHERE lease_owner = o.owner AND lease_owner IS NOT NULL
        AND (o.living_session IS NULL OR inbox_seq > inbox_seen)
        ORDER BY lease_owner, wake_at, id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) held
    WHERE o.living_session IS NOT false LIMIT $3";

/// Of the listed runs, those that are free, that have messages and belong to an SQL session (which cannot read them), or
/// whose owner has no recent heartbeat.
pub(super) const LISTED: &str = "SELECT id FROM workflow_executions
    WHERE id = ANY($1) AND status NOT IN ('Succeeded', 'Failed', 'Cancelled') AND (lease_owner IS NULL
      OR (inbox_seq > inbox_seen AND EXISTS (SELECT 1 FROM runners r WHERE r.id = lease_owner AND r.role = 'sql'))
      OR ($3::bigint IS NOT NULL AND lease_owner <> $2
        AND NOT EXISTS (SELECT 1 FROM runners r WHERE r.id = lease_owner AND r.heartbeat_at >= $3)))
    ORDER BY id LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED";

pub(super) const NEXT_DUE: &str = "SELECT wake_at FROM workflow_executions
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";

/// A due run that could not be claimed is being claimed by another runner; the next claim follows after this time.
const RETRY_AFTER_MS: u64 = 5;

pub(super) const JOURNALS: &str = "SELECT workflow_execution_id, data FROM execution_events
    WHERE workflow_execution_id = ANY($1) ORDER BY workflow_execution_id, seq";

const DELETE_ATTEMPTS: &str = "DELETE FROM action_executions WHERE workflow_execution_id = ANY($1)";

/// Leases runs that are already locked to the claiming runner.
pub(super) fn lease() -> String {
    format!(
        "UPDATE workflow_executions SET lease_owner = $2, lease_epoch = lease_epoch + 1, takeovers = takeovers + 1,
         wake_at = COALESCE(wake_at, $3) WHERE id = ANY($1) RETURNING {STORED_RUN_COLUMNS}"
    )
}

pub(super) fn load_query() -> String {
    format!(
        "SELECT {STORED_RUN_COLUMNS}, ARRAY(SELECT v.data FROM execution_events v WHERE v.workflow_execution_id = e.id
         ORDER BY v.seq) FROM workflow_executions e WHERE id = $1"
    )
}

/// Leases runs to the claiming runner. `dead_before` is that of the claim, converted to the database's clock.
pub(super) async fn claim(
    session: &mut Object,
    claim: &Claim,
    dead_before: Option<i64>,
    walked: &Mutex<Group>,
) -> Result<Claimed, PgError> {
    let tx = session.transaction().await?;
    let ids = match claim.only.is_empty() {
        false => listed(&tx, claim, dead_before).await?,
        true => due(&tx, claim, dead_before, walked).await?,
    };
    let mut taken = HashMap::new();
    if !ids.is_empty() {
        let lease = tx.prepare_cached(&lease()).await?;
        for row in tx.query(&lease, &[&ids, &claim.runner.0, &claim.now.0]).await? {
            taken.insert(plain::<Uuid>(&row, 0)?, stored_run(&row)?);
        }
    }
    let (journals, next_due) = (tx.prepare_cached(JOURNALS).await?, tx.prepare_cached(NEXT_DUE).await?);
    let journals = async {
        match ids.is_empty() {
            true => Ok(Vec::new()),
            false => tx.query(&journals, &[&ids]).await,
        }
    };
    let (journals, next_due) = futures::try_join!(journals, tx.query_opt(&next_due, &[]))?;
    for row in &journals {
        if let Some(run) = taken.get_mut(&plain::<Uuid>(row, 0)?) {
            run.journal.push(plain(row, 1)?);
        }
    }
    let restarted = taken
        .values()
        .filter(|run| run.status == Status::Running && run.journal.is_empty());
    let restarted: Vec<Uuid> = restarted.map(|run| run.id.0).collect();
    if !restarted.is_empty() {
        tx.execute(DELETE_ATTEMPTS, &[&restarted]).await?;
    }
    let mut next_due = next_due.as_ref().map(|row| get(row, 0)).transpose()?;
    if ids.is_empty() && claim.limit > 0 && next_due.is_some_and(|due: Timestamp| due <= claim.now) {
        next_due = Some(claim.now.plus_millis(RETRY_AFTER_MS));
    }
    commit(tx).await?;
    Ok(Claimed {
        runs: ids.iter().filter_map(|id| taken.remove(id)).collect(),
        next_due,
    })
}

async fn listed(tx: &Transaction<'_>, claim: &Claim, dead_before: Option<i64>) -> Result<Vec<Uuid>, PgError> {
    let statement = tx.prepare_cached(LISTED).await?;
    let runs: Vec<Uuid> = claim.only.iter().map(|run| run.0).collect();
    let limit = i64::from(claim.limit);
    let rows = tx
        .query(&statement, &[&runs, &claim.runner.0, &dead_before, &limit])
        .await?;
    rows.iter().map(|row| plain(row, 0)).collect()
}

/// Runs of dead owners, and free runs that are due; [`crate::priority`] defines their order and shares.
async fn due(
    tx: &Transaction<'_>,
    claim: &Claim,
    dead_before: Option<i64>,
    walked: &Mutex<Group>,
) -> Result<Vec<Uuid>, PgError> {
    let mut ids = match dead_before {
        Some(dead_before) => orphans(tx, claim, dead_before).await?,
        None => Vec::new(),
    };
    let places = Claim {
        limit: priority::left_for_free(claim.limit, ids.len()),
        ..claim.clone()
    };
    let free = queue::free(tx, &places, walked).await?;
    ids.truncate(claim.limit as usize - free.len());
    ids.extend(free);
    Ok(ids)
}

async fn orphans(tx: &Transaction<'_>, claim: &Claim, dead_before: i64) -> Result<Vec<Uuid>, PgError> {
    let orphaned = tx.prepare_cached(ORPHANED).await?;
    let limit = i64::from(claim.limit);
    let rows = tx.query(&orphaned, &[&claim.runner.0, &dead_before, &limit]).await?;
    rows.iter().map(|row| plain(row, 0)).collect()
}

fn stored_run(row: &Row) -> Result<StoredRun, PgError> {
    Ok(StoredRun {
        id: get(row, 0)?,
        workflow_id: plain(row, 1)?,
        workflow_version: get(row, 2)?,
        tenant: plain(row, 3)?,
        status: get(row, 4)?,
        trigger: plain(row, 5)?,
        spec: plain(row, 6)?,
        correlation_id: plain(row, 7)?,
        principal: principal(row, 8)?,
        epoch: get(row, 11)?,
        takeovers: get(row, 12)?,
        message_seq: get(row, 13)?,
        messages_seen: get(row, 14)?,
        priority: plain(row, 15)?,
        owner: plain::<Option<Uuid>>(row, 16)?.map(RunnerId),
        workflow_uid: plain(row, 17)?,
        parent: maybe(row, 18)?,
        parent_waits: plain::<Option<bool>>(row, 19)?.unwrap_or(false),
        depth: maybe(row, 20)?.unwrap_or(0),
        lineage: lineage(row, 21)?,
        traceparent: plain(row, 22)?,
        flow: flow(row, 23)?,
        request: plain(row, 27)?,
        rerun: plain(row, 28)?,
        journal: Vec::new(),
    })
}

/// A run with its journal.
pub(super) async fn load(client: &impl GenericClient, run: RunId) -> Result<Option<StoredRun>, PgError> {
    let statement = client.prepare_cached(&load_query()).await?;
    let Some(row) = client.query_opt(&statement, &[&run.0]).await? else {
        return Ok(None);
    };
    let mut stored = stored_run(&row)?;
    stored.journal = plain(&row, 29)?;
    Ok(Some(stored))
}
