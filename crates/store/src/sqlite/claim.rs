//! `claim`, and loading a run to go on with it.
//!
//! What must stay true: a claim gives a run a new epoch, and a held run always has a `wake_at`, so that it stays
//! in the claim index and is found when its owner dies.

use super::{
    columns::{Col, count, get, key, principal, run_id},
    writer::Tx,
};
use crate::{
    priority::{self, Due, LOOK_AHEAD},
    runs::{Claim, Claimed, StoredRun},
};
use fermata_core::{RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

pub(super) const FREE: &str = "SELECT id FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2";

/// Whether any free run has a priority. While none has, claims do not think of it.
pub(super) const ANY_PRIORITY: &str = "SELECT 1 FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 LIMIT 1";

const WAITING: &str = "SELECT workflow_id, COALESCE(priority, 0), wake_at FROM workflow_executions WHERE id = ?1";

/// The next lower priority in a workflow; asked again and again this visits each once, however many runs sleep there.
pub(super) const NEXT_PRIORITY: &str = "SELECT priority FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE workflow_id = ?1 AND priority > 0 AND priority < ?2
    AND lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 ORDER BY priority DESC LIMIT 1";

pub(super) const OF_PRIORITY: &str = "SELECT id, wake_at FROM workflow_executions INDEXED BY ix_executions_priority
    WHERE workflow_id = ?1 AND priority = ?2 AND wake_at <= ?3
    AND lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0 ORDER BY wake_at LIMIT ?4";

/// A claim looks at no more priorities of a workflow than this.
const MAX_PRIORITIES: usize = 100;

pub(super) const HELD_BY: &str = "SELECT id FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner = ?1 AND wake_at IS NOT NULL ORDER BY wake_at LIMIT ?2";

/// The next owner; asked again and again this visits each owner once, however many runs they hold.
pub(super) const NEXT_OWNER: &str = "SELECT lease_owner FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner > ?1 AND wake_at IS NOT NULL ORDER BY lease_owner LIMIT 1";

pub(super) const NEXT_DUE: &str = "SELECT wake_at FROM workflow_executions INDEXED BY ix_executions_claim
    WHERE lease_owner IS NULL AND wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";

const OWNER_OF: &str = "SELECT lease_owner FROM workflow_executions
    WHERE id = ?1 AND status NOT IN ('Succeeded', 'Failed', 'Cancelled')";

const HEARTBEAT_OF: &str = "SELECT heartbeat_at FROM runners WHERE id = ?1";

const LEASE: &str = "UPDATE workflow_executions SET lease_owner = ?2, lease_epoch = lease_epoch + 1,
    takeovers = takeovers + 1, wake_at = COALESCE(wake_at, ?3) WHERE id = ?1";

const STORED_RUN: &str = "SELECT id, workflow_id, workflow_version, tenant_id, status, trigger_payload_json, spec_json,
    correlation_id, requester_user_id, requester_email, requester_display_name, lease_epoch, takeovers, inbox_seq,
    inbox_seen FROM workflow_executions WHERE id = ?1";

const JOURNAL: &str = "SELECT data FROM execution_events WHERE workflow_execution_id = ?1 ORDER BY seq";

/// Leases runs to the asker.
pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> rusqlite::Result<Claimed> {
    let ids = match claim.only {
        Some(run) => claimable(tx, claim, run)?,
        None => due(tx, claim)?,
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

/// One run, if it is free or its owner is dead.
fn claimable(tx: &Tx<'_>, claim: &Claim, run: RunId) -> rusqlite::Result<Vec<RunId>> {
    let mut owner_of = tx.connection.prepare_cached(OWNER_OF)?;
    let owner = owner_of
        .query_row([key(&run)], |row| row.get::<_, Option<Col<Uuid>>>(0))
        .optional()?;
    let claimable = match owner {
        None => false,
        Some(None) => true,
        Some(Some(Col(owner))) => is_dead(tx, claim, owner)?,
    };
    Ok(if claimable && claim.limit > 0 {
        vec![run]
    } else {
        Vec::new()
    })
}

/// Free runs that are due, oldest first except for their priority; then those of dead owners.
fn due(tx: &Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let mut ids = match tx.connection.prepare_cached(ANY_PRIORITY)?.exists([])? {
        false => ids(tx, FREE, params![claim.now.0, claim.limit])?,
        true => by_priority(tx, claim)?,
    };
    if claim.dead_before.is_none() {
        return Ok(ids);
    }
    let mut after = Vec::new();
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

fn by_priority(tx: &Tx<'_>, claim: &Claim) -> rusqlite::Result<Vec<RunId>> {
    let ahead = claim.limit.saturating_mul(LOOK_AHEAD);
    let mut waiting = Vec::new();
    let mut statement = tx.connection.prepare_cached(WAITING)?;
    for run in ids(tx, FREE, params![claim.now.0, ahead])? {
        waiting.push(statement.query_row([key(&run)], |row| {
            Ok(Due {
                workflow: row.get(0)?,
                priority: row.get(1)?,
                wake_at: get(row, 2)?,
                run,
            })
        })?);
    }
    priority::choose(claim.limit as usize, waiting, |workflow, most| {
        urgent(tx, workflow, claim.now, most)
    })
}

/// Up to `most` runs of a workflow that are due, free and of a priority above 0, the highest first.
fn urgent(tx: &Tx<'_>, workflow: &str, now: Timestamp, most: usize) -> rusqlite::Result<Vec<Due>> {
    let mut next_priority = tx.connection.prepare_cached(NEXT_PRIORITY)?;
    let mut of_priority = tx.connection.prepare_cached(OF_PRIORITY)?;
    let mut urgent: Vec<Due> = Vec::new();
    let mut below = i64::from(i32::MAX) + 1;
    for _ in 0..MAX_PRIORITIES {
        let next = next_priority.query_row(params![workflow, below], |row| row.get::<_, i32>(0));
        let Some(priority) = next.optional()?.filter(|_| urgent.len() < most) else {
            break;
        };
        let room = i64::try_from(most - urgent.len()).unwrap_or(i64::MAX);
        let rows = of_priority.query_map(params![workflow, priority, now.0, room], |row| {
            Ok(Due {
                workflow: workflow.to_owned(),
                priority,
                wake_at: get(row, 1)?,
                run: run_id(row, 0)?,
            })
        })?;
        for row in rows {
            urgent.push(row?);
        }
        below = i64::from(priority);
    }
    Ok(urgent)
}

fn ids(tx: &Tx<'_>, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Vec<RunId>> {
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

/// Whether an owner's runs may be taken. Whoever asks is alive.
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
    let mut stored_run = connection.prepare_cached(STORED_RUN)?;
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
                inbox_seq: count(row, 13)?,
                inbox_seen: count(row, 14)?,
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
