//! Workflows, drafts and versions.
//!
//! What must stay true: a version is never changed and its number never used again; a draft goes when it is published,
//! and publishing what is the newest version already makes no new one.

use super::{columns::get, writer::Tx};
use crate::{
    definitions::{
        Definition, Deleted, Draft, DraftRule, Enablement, Lifecycle, PublishMode, Published, Saved, VersionRow,
        Workflow, WorkflowFilter,
    },
    reads::Page,
};
use fermata_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

const WORKFLOW: &str = "SELECT id, display_name, description, dialect, current_version, latest_version, status,
    is_enabled, created_at, updated_at FROM workflows WHERE id = ?1";

const WORKFLOWS: &str = "SELECT id, display_name, description, dialect, current_version, latest_version, status,
    is_enabled, created_at, updated_at FROM workflows WHERE id > ?1 ORDER BY id";

const DRAFT: &str = "SELECT workflow_id, display_name, description, dialect, definition_source, checksum, updated_at
    FROM workflow_drafts WHERE workflow_id = ?1";

const SAVE_DRAFT: &str = "INSERT INTO workflow_drafts
    (workflow_id, display_name, description, dialect, definition_source, checksum, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (workflow_id) DO UPDATE SET display_name = excluded.display_name,
    description = excluded.description, dialect = excluded.dialect,
    definition_source = excluded.definition_source, checksum = excluded.checksum, updated_at = excluded.updated_at";

/// A new workflow shows its draft; one that has a version shows that until the draft is published.
const SAVE_WORKFLOW: &str = "INSERT INTO workflows (id, display_name, description, dialect, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5)
    ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at,
    display_name = CASE WHEN latest_version IS NULL THEN excluded.display_name ELSE display_name END,
    description = CASE WHEN latest_version IS NULL THEN excluded.description ELSE description END,
    dialect = CASE WHEN latest_version IS NULL THEN excluded.dialect ELSE dialect END";

const DEFINITION: &str = "SELECT workflow_id, version, dialect, definition_source, checksum, created_at
    FROM workflow_definitions WHERE workflow_id = ?1 AND version = ?2";

const INSERT_DEFINITION: &str = "INSERT INTO workflow_definitions
    (workflow_id, version, dialect, definition_source, checksum, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const UPDATE_WORKFLOW: &str = "UPDATE workflows SET display_name = ?2, description = ?3, dialect = ?4,
    current_version = ?5, latest_version = ?6, status = ?7, is_enabled = ?8, updated_at = ?9 WHERE id = ?1";

const MARK: &str = "SELECT latest_version FROM workflow_version_marks WHERE workflow_id = ?1";

const SET_MARK: &str = "INSERT INTO workflow_version_marks (workflow_id, latest_version) VALUES (?1, ?2)
    ON CONFLICT (workflow_id) DO UPDATE SET latest_version = excluded.latest_version";

const HAS_RUNS: &str = "SELECT 1 FROM workflow_executions INDEXED BY ix_executions_workflow
    WHERE workflow_id = ?1 LIMIT 1";

const VERSIONS: &str = "SELECT version, dialect, checksum, created_at FROM workflow_definitions
    WHERE workflow_id = ?1 AND version < ?2 ORDER BY version DESC LIMIT ?3";

/// Saves a draft.
pub(super) fn save_draft(tx: &mut Tx<'_>, new: &Draft) -> rusqlite::Result<Saved> {
    let existing = workflow(tx.connection, &new.id)?;
    match (new.rule, &existing) {
        (DraftRule::NewOrDraft, Some(workflow)) if workflow.status != Lifecycle::Draft => {
            return Ok(Saved::Refused(workflow.status));
        }
        (DraftRule::Existing, None) => return Ok(Saved::NotFound),
        _ => {}
    }
    if let Some(guard) = &new.if_match {
        let there = draft(tx.connection, &new.id)?.map(|draft| draft.checksum);
        if !guard.holds(there.as_deref()) {
            return Ok(Saved::Changed(there));
        }
    }
    let row = params![new.id, new.display_name, new.description, new.dialect, new.at.0];
    tx.connection.prepare_cached(SAVE_WORKFLOW)?.execute(row)?;
    tx.connection.prepare_cached(SAVE_DRAFT)?.execute(params![
        new.id,
        new.display_name,
        new.description,
        new.dialect,
        new.source,
        new.checksum,
        new.at.0,
    ])?;
    Ok(Saved::Saved {
        created: existing.is_none(),
    })
}

/// Publishes the draft with this checksum.
pub(super) fn publish(
    tx: &mut Tx<'_>,
    id: &str,
    checksum: &str,
    mode: PublishMode,
    at: Timestamp,
) -> rusqlite::Result<Published> {
    let Some(mut workflow) = workflow(tx.connection, id)? else {
        return Ok(Published::NotFound);
    };
    if !mode.is_for(workflow.status) {
        return Ok(Published::Refused(workflow.status));
    }
    let newest = match workflow.latest_version {
        Some(version) => definition(tx.connection, id, version)?,
        None => None,
    };
    let same = newest.filter(|newest| newest.checksum == checksum);
    let draft = draft(tx.connection, id)?;
    let (version, created) = match (&draft, same) {
        (Some(draft), _) if draft.checksum != checksum => return Ok(Published::Changed),
        (None, None) => return Ok(Published::NoDraft),
        (_, Some(newest)) => (newest.version, false),
        (Some(draft), None) => {
            let latest = match workflow.latest_version {
                Some(latest) => latest,
                None => mark(tx, id)?,
            };
            let version = latest + 1;
            let row = params![id, version, draft.dialect, draft.source, draft.checksum, at.0];
            tx.connection.prepare_cached(INSERT_DEFINITION)?.execute(row)?;
            (version, true)
        }
    };
    if let Some(draft) = draft.filter(|_| mode != PublishMode::Snapshot) {
        // What people see is the current version, or the newest while there is none.
        if mode == PublishMode::Activate || workflow.current_version.is_none() {
            (workflow.display_name, workflow.description) = (draft.display_name, draft.description);
            workflow.dialect = draft.dialect;
        }
        tx.connection
            .prepare_cached("DELETE FROM workflow_drafts WHERE workflow_id = ?1")?
            .execute([id])?;
    }
    workflow.latest_version = Some(version);
    if mode == PublishMode::Activate {
        workflow.current_version = Some(version);
        (workflow.status, workflow.enabled) = (Lifecycle::Active, true);
    }
    workflow.updated_at = at;
    update_workflow(tx, &workflow)?;
    let status = workflow.status;
    Ok(Published::Version {
        version,
        created,
        status,
    })
}

/// The newest version of a workflow of this id that was deleted.
fn mark(tx: &Tx<'_>, id: &str) -> rusqlite::Result<u32> {
    let mut statement = tx.connection.prepare_cached(MARK)?;
    let mark = statement.query_row([id], |row| row.get(0)).optional()?;
    Ok(mark.unwrap_or(0))
}

/// Removes a workflow that nothing needs.
pub(super) fn delete(tx: &Tx<'_>, id: &str) -> rusqlite::Result<Deleted> {
    let Some(workflow) = workflow(tx.connection, id)? else {
        return Ok(Deleted::NotFound);
    };
    if workflow.status == Lifecycle::Active {
        return Ok(Deleted::Refused(workflow.status));
    }
    if tx.connection.prepare_cached(HAS_RUNS)?.exists([id])? {
        return Ok(Deleted::HasRuns(workflow.status));
    }
    if let Some(latest) = workflow.latest_version {
        tx.connection.prepare_cached(SET_MARK)?.execute(params![id, latest])?;
    }
    for table in [
        "workflow_drafts WHERE workflow_id",
        "workflow_definitions WHERE workflow_id",
        "workflows WHERE id",
    ] {
        let sql = format!("DELETE FROM {table} = ?1");
        tx.connection.prepare_cached(&sql)?.execute([id])?;
    }
    Ok(Deleted::Deleted)
}

/// Changes status or the enabled flag.
pub(super) fn set_enablement(
    tx: &mut Tx<'_>,
    id: &str,
    change: &Enablement,
    at: Timestamp,
) -> rusqlite::Result<Option<(Workflow, bool)>> {
    let Some(mut workflow) = workflow(tx.connection, id)? else {
        return Ok(None);
    };
    if !change.from.contains(&workflow.status) {
        return Ok(Some((workflow, false)));
    }
    workflow.status = change.status.unwrap_or(workflow.status);
    workflow.enabled = change.enabled;
    workflow.updated_at = at;
    update_workflow(tx, &workflow)?;
    Ok(Some((workflow, true)))
}

fn update_workflow(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(UPDATE_WORKFLOW)?.execute(params![
        workflow.id,
        workflow.display_name,
        workflow.description,
        workflow.dialect,
        workflow.current_version,
        workflow.latest_version,
        workflow.status.as_str(),
        workflow.enabled,
        workflow.updated_at.0,
    ])?;
    Ok(())
}

/// A workflow's row.
pub(super) fn workflow(connection: &Connection, id: &str) -> rusqlite::Result<Option<Workflow>> {
    connection
        .prepare_cached(WORKFLOW)?
        .query_row([id], workflow_row)
        .optional()
}

fn workflow_row(row: &Row<'_>) -> rusqlite::Result<Workflow> {
    Ok(Workflow {
        id: row.get(0)?,
        display_name: row.get(1)?,
        description: row.get(2)?,
        dialect: row.get(3)?,
        current_version: row.get(4)?,
        latest_version: row.get(5)?,
        status: get(row, 6)?,
        enabled: row.get(7)?,
        created_at: get(row, 8)?,
        updated_at: get(row, 9)?,
    })
}

/// Workflows by id. The filter is applied here and not in SQL, where "any case" means ASCII only.
pub(super) fn workflows(connection: &Connection, filter: &WorkflowFilter) -> rusqlite::Result<Page<Workflow>> {
    let mut statement = connection.prepare_cached(WORKFLOWS)?;
    let rows = statement.query_map([filter.after.as_deref().unwrap_or("")], workflow_row)?;
    let fitting = rows.filter(|row| row.as_ref().map_or(true, |workflow| filter.fits(workflow)));
    let items = fitting
        .take(filter.limit as usize + 1)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Page::cut(items, filter.limit))
}

/// A workflow's draft.
pub(super) fn draft(connection: &Connection, id: &str) -> rusqlite::Result<Option<Draft>> {
    let mut statement = connection.prepare_cached(DRAFT)?;
    statement
        .query_row([id], |row| {
            Ok(Draft {
                id: row.get(0)?,
                display_name: row.get(1)?,
                description: row.get(2)?,
                dialect: row.get(3)?,
                source: row.get(4)?,
                checksum: row.get(5)?,
                at: get(row, 6)?,
                rule: DraftRule::Existing,
                if_match: None,
            })
        })
        .optional()
}

/// A version.
pub(super) fn definition(connection: &Connection, id: &str, version: u32) -> rusqlite::Result<Option<Definition>> {
    let mut statement = connection.prepare_cached(DEFINITION)?;
    statement
        .query_row((id, version), |row| {
            Ok(Definition {
                workflow_id: row.get(0)?,
                version: row.get(1)?,
                dialect: row.get(2)?,
                source: row.get(3)?,
                checksum: row.get(4)?,
                created_at: get(row, 5)?,
            })
        })
        .optional()
}

/// Versions without their documents, newest first.
pub(super) fn versions(
    connection: &Connection,
    id: &str,
    before: Option<u32>,
    limit: u32,
) -> rusqlite::Result<Page<VersionRow>> {
    let mut statement = connection.prepare_cached(VERSIONS)?;
    let before = before.map_or(i64::MAX, i64::from);
    let rows = statement.query_map(params![id, before, i64::from(limit) + 1], |row| {
        Ok(VersionRow {
            version: row.get(0)?,
            dialect: row.get(1)?,
            checksum: row.get(2)?,
            created_at: get(row, 3)?,
        })
    })?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, limit))
}
