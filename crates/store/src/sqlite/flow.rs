//! Flow control (see [`crate::flow`]): rows of keys, places that are handed over, and runs that ask at their first claim.
//!
//! What must stay true: a member reads and decides before its first write. The writer is alone, so no row is locked.

use super::{
    SqliteStore,
    columns::{flow, get, key, maybe, run_id, uid_key},
    writer::Tx,
};
use crate::{
    ChangeHint, Result,
    flow::{
        Admission, Admit, FIRST_WAITING, FORGET_RATES, FORGET_REQUESTS, Flow, FlowStore, KEPT_REQUESTS_MS, MAX_AHEAD,
        MERGED, NEXT_WAITING, RELEASED_AT_ONCE, RunFlow, SET_LIMIT, Swept, UNFREED, awaited_by, paused_key,
        paused_workflow, places_of,
        rules::{self, Asked, Granted, KeyRow, KeyRows},
    },
    rules::ExistingRun,
    runs::NewRun,
};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Status, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

pub(super) const KEY: &str = "SELECT held, most, version, workflow_execution_id, begin_at, counted, expires_at,
    EXISTS (SELECT 1 FROM workflow_executions WHERE waiting_key = ?1) FROM flow_keys WHERE key = ?1";

const PUT_KEY: &str = "INSERT INTO flow_keys
    (key, held, most, version, workflow_execution_id, begin_at, counted, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (key) DO UPDATE SET held = excluded.held, most = excluded.most, version = excluded.version,
    workflow_execution_id = excluded.workflow_execution_id, begin_at = excluded.begin_at, counted = excluded.counted,
    expires_at = excluded.expires_at";

const DELETE_KEY: &str = "DELETE FROM flow_keys WHERE key = ?1";

/// Whether a run that a debounce key names has not begun.
const MERGEABLE: &str = "SELECT 1 FROM workflow_executions
    WHERE id = ?1 AND status = 'Pending' AND lease_owner IS NULL AND flow_step = 'debounce' AND inbox_seq = inbox_seen";

const HAND_OVER: &str = "UPDATE workflow_executions SET waiting_key = NULL, flow_held = flow_held + 1,
    wake_at = MIN(COALESCE(wake_at, ?2), ?2) WHERE id = ?1";

const SET_FLOW: &str =
    "UPDATE workflow_executions SET flow_json = ?2, flow_step = ?3, flow_held = ?4, waiting_key = ?5,
    wake_at = CASE WHEN lease_owner IS NULL THEN ?6 ELSE wake_at END WHERE id = ?1";

/// The same for a run that asked at its first claim and is released.
const RELEASE: &str = "UPDATE workflow_executions SET flow_json = ?2, flow_step = ?3, flow_held = ?4, waiting_key = ?5,
    wake_at = ?6, lease_owner = NULL, takeovers = 0 WHERE id = ?1";

const CLEAR: &str =
    "UPDATE workflow_executions SET flow_json = NULL, flow_step = NULL, flow_held = NULL, waiting_key = NULL
    WHERE id = ?1";

const OF_RUN: &str = "SELECT flow_json, flow_step, flow_held, waiting_key FROM workflow_executions WHERE id = ?1";

const ASKING: &str = "SELECT flow_json, flow_step, flow_held, waiting_key, status, lease_owner, lease_epoch,
    wake_at, trigger_payload_json, spec_json, request_json FROM workflow_executions WHERE id = ?1";

const MERGE: &str =
    "UPDATE workflow_executions SET trigger_payload_json = ?2, spec_json = ?3, wake_at = ?4, request_json = ?5
    WHERE id = ?1";

const KEEP_REQUEST: &str = "INSERT INTO merged_requests
    (tenant_id, workflow_request_id, workflow_execution_id, created_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (tenant_id, workflow_request_id) DO NOTHING";

pub(super) const WAKE_WAITING: &str = "UPDATE workflow_executions SET wake_at = ?4 WHERE id IN
    (SELECT id FROM workflow_executions INDEXED BY ix_executions_waiting
    WHERE waiting_key > ?1 AND waiting_key < ?2 AND workflow_uid = ?3 AND wake_at IS NULL LIMIT ?5)";

const STATUS: &str = "SELECT status FROM workflow_executions WHERE id = ?1";

const IS_PAUSED: &str = "SELECT 1 FROM workflows WHERE uid = ?1 AND paused_at IS NOT NULL AND deleted_at IS NULL";

pub(super) const RELEASE_PAUSED: &str = "UPDATE workflow_executions SET waiting_key = NULL,
    wake_at = MIN(COALESCE(wake_at, ?3), ?3) WHERE id IN (SELECT id FROM workflow_executions WHERE waiting_key = ?1
    ORDER BY COALESCE(priority, 0) DESC, id LIMIT ?2)";

const WAITS_FOR: &str = "SELECT waiting_key FROM workflow_executions WHERE id = ?1";

#[async_trait]
impl FlowStore for SqliteStore {
    async fn admit(&self, request: Admit) -> Result<Admission> {
        self.writer.write(move |tx| admit(tx, &request)).await
    }

    async fn wake_waiting(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.writer
            .write(move |tx| wake_waiting(tx, workflow, limit, now))
            .await
    }

    async fn ahead(&self, run: RunId) -> Result<Option<u32>> {
        self.readers.read(move |connection| ahead(connection, run)).await
    }

    async fn release_paused(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.writer.write(move |tx| release(tx, workflow, limit, now)).await
    }

    async fn sweep_flow(&self, after: Option<String>, limit: u32, now: Timestamp) -> Result<Swept> {
        self.writer
            .write(move |tx| sweep(tx, after.as_deref().unwrap_or(""), limit, now))
            .await
    }
}

/// What becomes of a new run. Reads only, except that a merged start is written.
pub(super) enum Entry {
    /// It is stored like this, with these rows of its keys.
    Stored(Granted, KeyRows),
    /// This run has its key or has taken its payload.
    Existing { run: RunId, status: Status },
    /// It is refused.
    Full,
}

/// Asks for a new run with flow control.
pub(super) fn enter(tx: &mut Tx<'_>, run: &NewRun, flow: &Flow, paused: Option<String>) -> rusqlite::Result<Entry> {
    let mut rows = rows(tx, flow)?;
    match rules::ask(flow, run.id, None, !run.pinned, paused, run.created_at, &mut rows) {
        Asked::Stored(granted) => Ok(Entry::Stored(granted, rows)),
        Asked::Full => Ok(Entry::Full),
        Asked::Existing(owner) => existing(tx, run, owner),
        Asked::Merge { run: into, wake_at } => {
            let merge = params![key(&into), run.trigger, run.spec, wake_at.0, run.request];
            tx.execute(MERGE, merge)?;
            tx.hints.push(ChangeHint::Due(wake_at));
            existing(tx, run, into)
        }
    }
}

/// Another run answers this start; its requestId is kept.
fn existing(tx: &mut Tx<'_>, run: &NewRun, other: RunId) -> rusqlite::Result<Entry> {
    let kept = params![run.tenant, run.request_id, key(&other), run.created_at.0];
    tx.execute(KEEP_REQUEST, kept)?;
    let status = tx.query_row(STATUS, [key(&other)], |row| get(row, 0))?;
    Ok(Entry::Existing {
        run: other,
        status: status.unwrap_or(Status::Pending),
    })
}

/// The run that answered an earlier start with this requestId.
pub(super) fn merged(tx: &mut Tx<'_>, run: &NewRun) -> rusqlite::Result<Option<ExistingRun>> {
    tx.query_row(MERGED, (&run.tenant, &run.request_id), |row| {
        Ok(ExistingRun {
            run: run_id(row, 0)?,
            workflow_id: row.get(1)?,
            status: get(row, 2)?,
            workflow_uid: get(row, 3)?,
        })
    })
}

/// The rows of the keys of a run. A debounce key whose run has begun has no owner.
fn rows(tx: &mut Tx<'_>, flow: &Flow) -> rusqlite::Result<KeyRows> {
    let mut rows = KeyRows::new();
    for name in flow.keys() {
        if let Some(row) = key_row(tx, name)? {
            rows.insert(name.to_owned(), row);
        }
    }
    if let Some(debounce) = &flow.debounce
        && let Some(row) = rows.get_mut(&debounce.key.key)
        && let Some(pending) = row.run
        && tx.query_row(MERGEABLE, [key(&pending)], |_| Ok(()))?.is_none()
    {
        (row.run, row.begin) = (None, None);
    }
    Ok(rows)
}

fn key_row(tx: &mut Tx<'_>, name: &str) -> rusqlite::Result<Option<KeyRow>> {
    tx.query_row(KEY, [name], |row| {
        Ok(KeyRow {
            held: row.get(0)?,
            most: row.get(1)?,
            version: row.get(2)?,
            run: maybe::<Uuid>(row, 3)?.map(RunId),
            begin: maybe(row, 4)?,
            counted: row.get(5)?,
            expires_at: maybe(row, 6)?,
            has_waiters: row.get(7)?,
        })
    })
}

/// Writes rows of keys, and hands over places that are free while runs wait. Returns how many.
pub(super) fn put_rows(tx: &mut Tx<'_>, rows: KeyRows, at: Timestamp) -> rusqlite::Result<u32> {
    let mut handed = 0;
    for (name, mut row) in rows {
        for _ in 0..row.spare() {
            if !hand_over(tx, &name, at)? {
                break;
            }
            (row.held, handed) = (row.held + 1, handed + 1);
        }
        put_row(tx, &name, &row)?;
    }
    Ok(handed)
}

fn put_row(tx: &mut Tx<'_>, name: &str, row: &KeyRow) -> rusqlite::Result<()> {
    if row.is_free() {
        tx.execute(DELETE_KEY, [name])?;
        return Ok(());
    }
    let run = row.run.as_ref().map(key);
    let (begin, expires_at) = (row.begin.map(|at| at.0), row.expires_at.map(|at| at.0));
    let params = params![
        name,
        row.held,
        row.most,
        row.version,
        run,
        begin,
        row.counted,
        expires_at
    ];
    tx.execute(PUT_KEY, params)?;
    Ok(())
}

/// Gives a place to the first run that waits for it. False if no run waits.
fn hand_over(tx: &mut Tx<'_>, name: &str, at: Timestamp) -> rusqlite::Result<bool> {
    let Some(first) = tx.query_row(FIRST_WAITING, params![name, 1], |row| run_id(row, 0))? else {
        return Ok(false);
    };
    tx.execute(HAND_OVER, params![key(&first), at.0])?;
    tx.hints.push(ChangeHint::Due(at));
    Ok(true)
}

/// A run that was ended by SQL or by an older program: its places go to runs that wait, or are freed.
fn end(tx: &mut Tx<'_>, run: RunId, at: Timestamp) -> rusqlite::Result<()> {
    let Some(stored) = of_run(tx, run)? else {
        return Ok(());
    };
    tx.execute(CLEAR, [key(&run)])?;
    free(tx, run, &stored, at)
}

/// Frees what a run had. It has ended, and its columns are cleared, so it does not get its own place.
pub(super) fn free(tx: &mut Tx<'_>, run: RunId, stored: &RunFlow, at: Timestamp) -> rusqlite::Result<()> {
    for name in rules::freed(stored) {
        if let Some(mut row) = key_row(tx, name)? {
            row.held = row.held.saturating_sub(1);
            put_rows(tx, KeyRows::from([(name.to_owned(), row)]), at)?;
        }
    }
    for name in stored.flow.owned() {
        if let Some(mut row) = key_row(tx, name)?.filter(|row| row.run == Some(run)) {
            (row.run, row.begin) = (None, None);
            put_row(tx, name, &row)?;
        }
    }
    Ok(())
}

/// What admission needs to know of a run.
struct Asking {
    status: Status,
    owner: Option<RunnerId>,
    epoch: u64,
    wake_at: Option<Timestamp>,
    trigger: String,
    spec: Option<String>,
    request: Option<String>,
}

/// The flow control of a run, if it has one.
pub(super) fn of_run(tx: &mut Tx<'_>, run: RunId) -> rusqlite::Result<Option<Box<RunFlow>>> {
    Ok(tx.query_row(OF_RUN, [key(&run)], |row| flow(row, 0))?.flatten())
}

fn asking(tx: &mut Tx<'_>, run: RunId) -> rusqlite::Result<Option<(Option<Box<RunFlow>>, Asking)>> {
    tx.query_row(ASKING, [key(&run)], |row| {
        let asking = Asking {
            status: get(row, 4)?,
            owner: maybe(row, 5)?.map(RunnerId),
            epoch: super::columns::count(row, 6)?,
            wake_at: maybe(row, 7)?,
            trigger: row.get(8)?,
            spec: row.get(9)?,
            request: row.get(10)?,
        };
        Ok((flow(row, 0)?, asking))
    })
}

fn admit(tx: &mut Tx<'_>, request: &Admit) -> rusqlite::Result<Admission> {
    let run = request.run;
    let Some((stored, asking)) = asking(tx, run)? else {
        return Ok(Admission::Fenced);
    };
    let holds = asking.owner == Some(request.runner) && asking.epoch == request.epoch;
    if !holds || asking.status != Status::Pending {
        return Ok(Admission::Fenced);
    }
    let flow = &request.in_force(stored.as_deref());
    let paused = is_paused(tx, request.workflow)?.then(|| paused_key(request.workflow));
    let mut rows = rows(tx, flow)?;
    let before = stored.as_deref().map(|stored| (stored, asking.wake_at));
    match rules::ask(flow, run, before, false, paused, request.at, &mut rows) {
        Asked::Full => Ok(Admission::Full),
        Asked::Existing(into) => Ok(Admission::Merged { into }),
        Asked::Merge { run: into, wake_at } => {
            tx.execute(
                MERGE,
                params![key(&into), asking.trigger, asking.spec, wake_at.0, asking.request],
            )?;
            tx.hints.push(ChangeHint::Due(wake_at));
            Ok(Admission::Merged { into })
        }
        Asked::Stored(granted) => {
            let begins = granted.begins();
            let wake_at = granted.wake_at(request.at);
            let params = params![
                key(&run),
                flow.text(),
                granted.step.as_str(),
                granted.held,
                granted.waiting,
                wake_at.map(|at| at.0)
            ];
            tx.execute(if begins { SET_FLOW } else { RELEASE }, params)?;
            if !begins {
                tx.hints.extend(wake_at.map(ChangeHint::Due));
            }
            put_rows(tx, rows, request.at)?;
            Ok(if begins { Admission::Admitted } else { Admission::Waits })
        }
    }
}

fn is_paused(tx: &mut Tx<'_>, workflow: Uuid) -> rusqlite::Result<bool> {
    let paused = tx.query_row(IS_PAUSED, [uid_key(&workflow)], |_| Ok(()))?;
    Ok(paused.is_some())
}

/// Makes runs due that wait for the resume of a workflow that is not paused.
fn release(tx: &mut Tx<'_>, workflow: Uuid, limit: u32, now: Timestamp) -> rusqlite::Result<u32> {
    if is_paused(tx, workflow)? {
        return Ok(0);
    }
    let released = tx.execute(RELEASE_PAUSED, params![paused_key(workflow), limit, now.0])?;
    if released > 0 {
        tx.hints.push(ChangeHint::Due(now));
    }
    Ok(u32::try_from(released).unwrap_or(u32::MAX))
}

fn wake_waiting(tx: &mut Tx<'_>, workflow: Uuid, limit: u32, now: Timestamp) -> rusqlite::Result<u32> {
    let mut woken = 0;
    for (first, last) in awaited_by(workflow) {
        let wake = params![first, last, uid_key(&workflow), now.0, limit - woken];
        woken += u32::try_from(tx.execute(WAKE_WAITING, wake)?)
            .unwrap_or(limit)
            .min(limit - woken);
    }
    if woken > 0 {
        tx.hints.push(ChangeHint::Due(now));
    }
    Ok(woken)
}

/// Gives the keys of a workflow the limit of this plan, which is current now. The sweep hands over places that are free then.
pub(super) fn set_limit(tx: &mut Tx<'_>, workflow: Uuid, version: u32, plan: &str) -> rusqlite::Result<()> {
    let (first, last) = places_of(workflow);
    tx.execute(SET_LIMIT, params![first, last, rules::limit_of(plan), version])?;
    Ok(())
}

fn ahead(connection: &Connection, run: RunId) -> rusqlite::Result<Option<u32>> {
    let waits_for = connection
        .prepare_cached(WAITS_FOR)?
        .query_row([key(&run)], |row| row.get::<_, Option<String>>(0))
        .optional()?;
    let Some(Some(waiting)) = waits_for else {
        return Ok(None);
    };
    let mut first = connection.prepare_cached(FIRST_WAITING)?;
    let first = first.query_map(params![waiting, MAX_AHEAD], |row| run_id(row, 0))?;
    let mut ahead = 0;
    for other in first {
        if other? == run {
            break;
        }
        ahead += 1;
    }
    Ok(Some(ahead))
}

fn sweep(tx: &mut Tx<'_>, after: &str, limit: u32, now: Timestamp) -> rusqlite::Result<Swept> {
    let unfreed = super::claim::ids(tx, UNFREED, [limit])?;
    for run in unfreed {
        end(tx, run, now)?;
    }
    tx.execute(FORGET_RATES, params![now.0, limit])?;
    let kept_since = now.0.saturating_sub(KEPT_REQUESTS_MS as i64 * 1000);
    tx.execute(FORGET_REQUESTS, params![kept_since, limit])?;
    let (mut after, mut handed) = (after.to_owned(), 0);
    for _ in 0..limit {
        let next = tx.query_row(NEXT_WAITING, [&after], |row| row.get::<_, String>(0))?;
        let Some(name) = next else {
            return Ok(Swept { next: None, handed });
        };
        if let Some(workflow) = paused_workflow(&name) {
            handed += release(tx, workflow, RELEASED_AT_ONCE, now)?;
            after = name;
            continue;
        }
        let row = key_row(tx, &name)?.unwrap_or(KeyRow {
            most: 1,
            has_waiters: true,
            ..KeyRow::default()
        });
        if row.spare() > 0 {
            handed += put_rows(tx, KeyRows::from([(name.clone(), row)]), now)?;
        }
        after = name;
    }
    let next = Some(after);
    Ok(Swept { next, handed })
}
