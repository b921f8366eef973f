//! `claim`, and loading a run so that a runner can continue it.
//!
//! What must stay true: a claim gives a run a new epoch. A held run always has a `wake_at`, so that it stays in the
//! claim index and is found when its owner dies.

use super::{
    columns::{Col, count, flow, get, key, lineage, maybe, principal, run_id},
    queue,
    writer::Tx,
};
use crate::{
    priority,
    runs::{Claim, Claimed, StoredRun},
    statements::STORED_RUN_COLUMNS,
};
use fermata_core::{RunId, RunnerId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

pub(super) const HELD_BY: &str = "SELECT id FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner = ?1 AND wake_at IS NOT NULL ORDER BY wake_at LIMIT ?2";

/// The next owner. Repeated, this visits each owner once, independent of the number of their runs.
pub(super) const NEXT_OWNER: &str = "SELECT lease_owner FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner > ?1 AND wake_at IS NOT NULL ORDER BY lease_owner LIMIT 1";

pub(super) const NEXT_DUE: &str = "SELECT wake_at FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";

const OWNER_OF: &str = "SELECT lease_owner FROM workflow_executions
    WHERE id = ?1 AND status NOT IN ('Succeeded', 'Failed', 'Cancelled')";

const HEARTBEAT_OF: &str = "SELECT heartbeat_at FROM runners WHERE id = ?1";

const LEASE: &str = "UPDATE workflow_executions SET lease_owner = ?2, lease_epoch = lease_epoch + 1,
    takeovers = takeovers + 1, wake_at = COALESCE(wake_at, ?3) WHERE id = ?1";

const JOURNAL: &str = "SELECT data FROM execution_events WHERE workflow_execution_id = ?1 ORDER BY seq";

/// Leases runs to the claiming runner.
pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> rusqlite::Result<Claimed> {
    let ids = match claim.only.is_empty() {
        false => claimable(tx, claim)?,
        true => due(tx, claim)?,
    };
    let mut runs = Vec::with_capacity(ids.len());
    for id in ids {
        let lease = params![key(&id), claim.runner.0.as_bytes().as_slice(), claim.now.0];
        tx.connection.prepare_cached(LEASE)?.execute(lease)?;
        runs.extend(load(tx.connection, id)?);
    }
    let mut next_due = tx.connection.prepare_cached(NEXT_DUE)?;
    let next_due = next_due.query_row([], |row| get(row, 0)).optional()?;
    Ok(Claimed { runs, next_due })
}

/// Those of the requested runs that are free or whose owners are dead.
fn claimable(tx: &Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let mut owner_of = tx.connection.prepare_cached(OWNER_OF)?;
    let mut ids = Vec::new();
    for run in &claim.only {
        if ids.len() >= claim.limit as usize {
            break;
        }
        let owner = owner_of
            .query_row([key(run)], |row| row.get::<_, Option<Col<Uuid>>>(0))
            .optional()?;
        let claimable = match owner {
            None => false,
            Some(None) => true,
            Some(Some(Col(owner))) => is_dead(tx, claim, owner)?,
        };
        ids.extend(claimable.then_some(*run));
    }
    Ok(ids)
}

/// Runs of dead owners, and free runs that are due, in the order and with the shares of [`crate::priority`].
fn due(tx: &mut Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let mut ids = match claim.dead_before {
        Some(_) => orphans(tx, claim)?,
        None => Vec::new(),
    };
    let places = Claim {
        limit: priority::left_for_free(claim.limit, ids.len()),
        ..claim.clone()
    };
    let free = queue::free(tx, &places)?;
    ids.truncate(claim.limit as usize - free.len());
    ids.extend(free);
    Ok(ids)
}

fn orphans(tx: &Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let (mut ids, mut after) = (Vec::new(), Vec::new());
    while let Some(owner) = next_owner(tx, &after)? {
        let room = claim.limit.saturating_sub(u32::try_from(ids.len()).unwrap_or(u32::MAX));
        if room == 0 {
            break;
        }
        if is_dead(tx, claim, owner)? {
            ids.extend(self::ids(tx, HELD_BY, params![owner.as_bytes().as_slice(), room])?);
        }
        after = owner.as_bytes().to_vec();
    }
    Ok(ids)
}

pub(super) fn ids(tx: &Tx<'_>, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Vec<RunId>> {
    tx.connection
        .prepare_cached(sql)?
        .query_map(params, |row| run_id(row, 0))?
        .collect()
}

fn next_owner(tx: &Tx<'_>, after: &[u8]) -> rusqlite::Result<Option<Uuid>> {
    tx.connection
        .prepare_cached(NEXT_OWNER)?
        .query_row([after], |row| get(row, 0))
        .optional()
}

/// Whether the runs of an owner may be claimed. The claiming runner itself is alive.
fn is_dead(tx: &Tx<'_>, claim: &Claim, owner: Uuid) -> rusqlite::Result<bool> {
    let Some(dead_before) = claim.dead_before else {
        return Ok(false);
    };
    if owner == claim.runner.0 {
        return Ok(false);
    }
    let mut heartbeat_of = tx.connection.prepare_cached(HEARTBEAT_OF)?;
    let heartbeat: Option<Timestamp> = heartbeat_of
        .query_row([owner.as_bytes().as_slice()], |row| get(row, 0))
        .optional()?;
    Ok(heartbeat.is_none_or(|at| at < dead_before))
}

/// A run with its journal.
pub(super) fn load(connection: &Connection, run: RunId) -> rusqlite::Result<Option<StoredRun>> {
    let sql = format!("SELECT {STORED_RUN_COLUMNS} FROM workflow_executions WHERE id = ?1");
    let mut stored_run = connection.prepare_cached(&sql)?;
    let stored = stored_run
        .query_row([key(&run)], |row| {
            Ok(StoredRun {
                id: run_id(row, 0)?,
                workflow_id: row.get(1)?,
                workflow_version: row.get(2)?,
                tenant: row.get(3)?,
                status: get(row, 4)?,
                trigger: row.get(5)?,
                spec: row.get(6)?,
                correlation_id: row.get(7)?,
                principal: principal(row, 8)?,
                epoch: count(row, 11)?,
                takeovers: row.get(12)?,
                message_seq: count(row, 13)?,
                messages_seen: count(row, 14)?,
                priority: row.get(15)?,
                owner: row.get::<_, Option<Col<Uuid>>>(16)?.map(|Col(owner)| RunnerId(owner)),
                workflow_uid: get(row, 17)?,
                parent: maybe::<Uuid>(row, 18)?.map(RunId),
                parent_waits: row.get::<_, Option<bool>>(19)?.unwrap_or(false),
                depth: row.get::<_, Option<u32>>(20)?.unwrap_or(0),
                lineage: lineage(row, 21)?,
                traceparent: row.get(22)?,
                flow: flow(row, 23)?,
                request: row.get(27)?,
                rerun: row.get(28)?,
                journal: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut stored) = stored else {
        return Ok(None);
    };
    let mut journal = connection.prepare_cached(JOURNAL)?;
    stored.journal = journal
        .query_map([key(&run)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(stored))
}
