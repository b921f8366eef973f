//! `enqueue`: one run for each (tenant, requestId), and its first commit with it.

use super::{
    columns::{get, key, run_id},
    inbox::change_wait,
    writer::Tx,
};
use crate::{
    News,
    definitions::Lifecycle,
    runs::{Enqueued, NewRun},
};
use fermata_core::Status;
use rusqlite::{OptionalExtension, params};

const BY_REQUEST: &str = "SELECT id, workflow_id, status FROM workflow_executions
    WHERE tenant_id = ?1 AND workflow_request_id = ?2";

const WORKFLOW_STATE: &str = "SELECT status, is_enabled, current_version, latest_version FROM workflows
    WHERE id = ?1 AND deleted_at IS NULL";

const INSERT_RUN: &str = "INSERT INTO workflow_executions
    (id, status, lease_owner, lease_epoch, wake_at, workflow_id, workflow_version, tenant_id, workflow_request_id,
     priority, correlation_id, parent_execution_id, requester_user_id, requester_email, requester_display_name,
     created_at, start_time, trigger_payload_json, spec_json)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?5, ?16, ?17, ?18)";

/// Adds a row to a journal.
pub(super) const INSERT_EVENT: &str =
    "INSERT INTO execution_events (workflow_execution_id, seq, ts, data) VALUES (?1, ?2, ?3, ?4)";

/// `first` is the text of the first journal row, for a run that is born held.
pub(super) fn enqueue(tx: &mut Tx<'_>, run: &NewRun, first: Option<&str>) -> rusqlite::Result<Enqueued> {
    if let Some(answer) = existing(tx, run)? {
        return Ok(answer);
    }
    if !startable(tx, run)? {
        return Ok(Enqueued::Stale);
    }
    let born = run.born.as_ref();
    let status = if born.is_some() {
        Status::Running
    } else {
        Status::Pending
    };
    tx.connection.prepare_cached(INSERT_RUN)?.execute(params![
        key(&run.id),
        status.as_str(),
        born.map(|born| born.runner.0.as_bytes().as_slice()),
        i64::from(born.is_some()),
        run.created_at.0,
        run.workflow_id,
        run.workflow_version,
        run.tenant,
        run.request_id,
        run.priority,
        run.correlation_id,
        run.parent.as_ref().map(key),
        run.principal.user_id,
        run.principal.email,
        run.principal.display_name,
        born.map(|born| born.started_at.0),
        run.trigger,
        run.spec,
    ])?;
    let Some(born) = born else {
        tx.news.push(News::Due(run.created_at));
        return Ok(Enqueued::Created);
    };
    if let Some(first) = first {
        tx.connection
            .prepare_cached(INSERT_EVENT)?
            .execute(params![key(&run.id), 1, born.started_at.0, first])?;
    }
    for change in &born.waits {
        change_wait(tx, run.id, change)?;
    }
    Ok(Enqueued::Created)
}

fn existing(tx: &Tx<'_>, run: &NewRun) -> rusqlite::Result<Option<Enqueued>> {
    let mut by_request = tx.connection.prepare_cached(BY_REQUEST)?;
    by_request
        .query_row((&run.tenant, &run.request_id), |row| {
            let id = run_id(row, 0)?;
            let workflow_id: String = row.get(1)?;
            if workflow_id != run.workflow_id {
                return Ok(Enqueued::OtherWorkflow { run: id, workflow_id });
            }
            Ok(Enqueued::Existing {
                run: id,
                status: get(row, 2)?,
            })
        })
        .optional()
}

fn startable(tx: &Tx<'_>, run: &NewRun) -> rusqlite::Result<bool> {
    let mut state = tx.connection.prepare_cached(WORKFLOW_STATE)?;
    let startable = state
        .query_row([&run.workflow_id], |row| {
            let status: Lifecycle = get(row, 0)?;
            let enabled: bool = row.get(1)?;
            let (current, latest): (Option<u32>, Option<u32>) = (row.get(2)?, row.get(3)?);
            let version = run.workflow_version;
            let version_fits = if run.pinned {
                version >= 1 && latest.is_some_and(|latest| version <= latest)
            } else {
                current == Some(version)
            };
            let takes_runs = match status {
                Lifecycle::Draft => run.pinned,
                Lifecycle::Active => enabled,
                Lifecycle::Archived => false,
            };
            Ok(takes_runs && version_fits)
        })
        .optional()?;
    Ok(startable.unwrap_or(false))
}
