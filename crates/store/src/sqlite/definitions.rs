//! Workflows, drafts and versions.
//!
//! What must stay true: a version never changes and its number is never used again. Publishing deletes the draft.
//! Publishing the document of the newest version again creates no new version. The key of a workflow is its uid; a name
//! belongs to at most one workflow of a tenant that was not deleted. A soft-deleted workflow can be read by its uid and is never
//! changed.

use super::{
    columns::{get, maybe, uid_key},
    fields, flow, triggers,
    writer::Tx,
};
use crate::{
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Lifecycle, Publication, PublishMode,
        Published, Release, ReleaseRule, Released, Saved, VersionRow, Workflow, WorkflowFilter,
    },
    reads::Page,
    statements::*,
    triggers::statements::DELETE_OF_WORKFLOW,
};
use fermata_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

const HAS_RUNS: &str = "SELECT 1 FROM workflow_executions INDEXED BY ix_executions_workflow
    WHERE workflow_uid = ?1 LIMIT 1";

/// Saves a draft.
pub(super) fn save_draft(
    tx: &mut Tx<'_>,
    new: &Draft,
    rule: DraftRule,
    guard: Option<&DraftGuard>,
) -> rusqlite::Result<Saved> {
    let existing = match rule {
        DraftRule::NewOrDraft { .. } => own(tx.connection, new)?,
        DraftRule::Existing { uid } => live(tx.connection, uid)?,
    };
    let created = existing.is_none();
    let mut workflow = match (existing, rule) {
        (Some(workflow), DraftRule::NewOrDraft { .. }) if workflow.status != Lifecycle::Draft => {
            return Ok(Saved::Refused(workflow.status));
        }
        (Some(workflow), _) => workflow,
        (None, DraftRule::NewOrDraft { most, .. }) if !has_room(tx.connection, &new.tenant, most)? => {
            return Ok(Saved::Full);
        }
        (None, DraftRule::NewOrDraft { uid, .. }) => Workflow::new(new, uid),
        (None, DraftRule::Existing { .. }) => return Ok(Saved::NotFound),
    };
    if let Some(guard) = guard {
        let there = draft(tx.connection, workflow.uid)?.map(|draft| draft.checksum);
        if !guard.holds(there.as_deref()) {
            return Ok(Saved::Changed(there));
        }
    }
    if created {
        create_workflow(tx, &workflow)?;
    } else {
        workflow.has_draft(new);
        update_workflow(tx, &workflow)?;
    }
    tx.connection.prepare_cached(SAVE_DRAFT)?.execute(params![
        uid_key(&workflow.uid),
        new.id,
        new.display_name,
        new.description,
        new.dialect,
        new.source,
        new.checksum,
        new.at.0,
    ])?;
    Ok(Saved::Saved { created })
}

/// Publishes the draft with this checksum.
pub(super) fn publish(
    tx: &mut Tx<'_>,
    uid: Uuid,
    checksum: &str,
    plan: &str,
    mode: PublishMode,
    at: Timestamp,
) -> rusqlite::Result<Published> {
    let Some(workflow) = live(tx.connection, uid)? else {
        return Ok(Published::NotFound);
    };
    if !mode.is_for(workflow.status) {
        return Ok(Published::Refused(workflow.status));
    }
    let draft = draft(tx.connection, uid)?;
    let version = match &draft {
        Some(draft) if draft.checksum != checksum => return Ok(Published::Changed),
        Some(draft) => version_of(tx, &workflow, draft, at)?,
        None => match newest(tx, &workflow, checksum)? {
            Some(version) => (version, false),
            None => return Ok(Published::NoDraft),
        },
    };
    insert_plan(tx, uid, version.0, plan, at)?;
    let before = workflow.current_version;
    let publication = published(tx, workflow, draft.as_ref(), version, mode, at)?;
    if mode.activates() {
        activated(tx, &publication.workflow, before, plan, at)?;
    }
    Ok(Published::Version(publication))
}

/// Makes a document the current version in one step.
pub(super) fn release(tx: &mut Tx<'_>, release: &Release) -> rusqlite::Result<Released> {
    let Release {
        draft,
        rule,
        enabled,
        plan,
    } = release;
    let existing = match rule {
        ReleaseRule::New { .. } => own(tx.connection, draft)?,
        ReleaseRule::Existing { uid, .. } => live(tx.connection, *uid)?,
    };
    let workflow = match (existing, rule) {
        (Some(workflow), ReleaseRule::New { .. }) => return Ok(Released::Exists(workflow.status)),
        (Some(workflow), ReleaseRule::Existing { .. }) if workflow.status == Lifecycle::Archived => {
            return Ok(Released::Refused(workflow.status));
        }
        (Some(workflow), ReleaseRule::Existing { after: Some(after), .. })
            if workflow.latest_version != Some(*after) =>
        {
            return Ok(Released::Changed);
        }
        (Some(workflow), ReleaseRule::Existing { .. }) => workflow,
        (None, ReleaseRule::New { most, .. }) if !has_room(tx.connection, &draft.tenant, *most)? => {
            return Ok(Released::Full);
        }
        (None, ReleaseRule::New { uid, .. }) => Workflow::new(draft, *uid),
        (None, ReleaseRule::Existing { .. }) => return Ok(Released::NotFound),
    };
    if let ReleaseRule::New { .. } = rule {
        create_workflow(tx, &workflow)?;
    }
    let version = version_of(tx, &workflow, draft, draft.at)?;
    insert_plan(tx, workflow.uid, version.0, plan, draft.at)?;
    let mode = PublishMode::Publish(Activation::Activate { enabled: *enabled });
    let before = workflow.current_version;
    let publication = published(tx, workflow, Some(draft), version, mode, draft.at)?;
    activated(tx, &publication.workflow, before, plan, draft.at)?;
    Ok(Released::Version(publication))
}

/// Makes triggers and limits those of this plan, which is current now. `before`: the version that was current.
fn activated(
    tx: &mut Tx<'_>,
    workflow: &Workflow,
    before: Option<u32>,
    current: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let before = match before {
        Some(version) => plan(tx.connection, workflow.uid, version)?,
        None => None,
    };
    triggers::reconcile(tx, workflow, before.as_deref().unwrap_or_default(), current, at)?;
    flow::set_limit(tx, workflow.uid, workflow.current_version.unwrap_or(0), current)
}

/// Whether a tenant may have one more workflow.
fn has_room(connection: &Connection, tenant: &str, most: Option<u32>) -> rusqlite::Result<bool> {
    let Some(most) = most else { return Ok(true) };
    let mut statement = connection.prepare_cached(COUNT_WORKFLOWS)?;
    let own: i64 = statement.query_row([tenant], |row| row.get(0))?;
    Ok(own < i64::from(most))
}

/// The newest version, if it has this checksum.
fn newest(tx: &Tx<'_>, workflow: &Workflow, checksum: &str) -> rusqlite::Result<Option<u32>> {
    let Some(version) = workflow.latest_version else {
        return Ok(None);
    };
    let newest = definition(tx.connection, workflow.uid, version)?;
    Ok(newest
        .is_some_and(|newest| newest.checksum == checksum)
        .then_some(version))
}

/// The version number of a document, and whether the version is new.
fn version_of(tx: &Tx<'_>, workflow: &Workflow, draft: &Draft, at: Timestamp) -> rusqlite::Result<(u32, bool)> {
    if let Some(version) = newest(tx, workflow, &draft.checksum)? {
        return Ok((version, false));
    }
    let latest = match workflow.latest_version {
        Some(latest) => latest,
        None => mark(tx, workflow)?,
    };
    let version = latest + 1;
    tx.connection.prepare_cached(INSERT_DEFINITION)?.execute(params![
        uid_key(&workflow.uid),
        version,
        workflow.id,
        draft.dialect,
        draft.source,
        draft.checksum,
        at.0,
    ])?;
    Ok((version, true))
}

/// Stores the plan of a version that has none.
fn insert_plan(tx: &Tx<'_>, uid: Uuid, version: u32, plan: &str, at: Timestamp) -> rusqlite::Result<()> {
    let mut statement = tx.connection.prepare_cached(ADD_PLAN)?;
    match statement.execute(params![uid.as_bytes().as_slice(), version, plan, at.0])? {
        0 => Ok(()),
        _ => fields::add_tags(tx, uid, version, plan),
    }
}

/// Stores the plan of a version that has none, and returns the plan that it has now.
pub(super) fn add_plan(
    tx: &Tx<'_>,
    uid: Uuid,
    version: u32,
    text: &str,
    at: Timestamp,
) -> rusqlite::Result<Option<String>> {
    insert_plan(tx, uid, version, text, at)?;
    plan(tx.connection, uid, version)
}

/// The plan of a version.
pub(super) fn plan(connection: &Connection, uid: Uuid, version: u32) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(PLAN)?;
    statement
        .query_row((uid.as_bytes().as_slice(), version), |row| row.get(0))
        .optional()
}

/// Updates the workflow and its draft after a publish.
fn published(
    tx: &Tx<'_>,
    mut workflow: Workflow,
    draft: Option<&Draft>,
    (version, created): (u32, bool),
    mode: PublishMode,
    at: Timestamp,
) -> rusqlite::Result<Publication> {
    if mode != PublishMode::Snapshot {
        delete_draft(tx, &workflow)?;
    }
    mode.apply(&mut workflow, draft, version, at);
    update_workflow(tx, &workflow)?;
    Ok(Publication {
        workflow,
        version,
        created,
    })
}

/// The newest version number of deleted workflows with the name of this one.
fn mark(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<u32> {
    let mut statement = tx.connection.prepare_cached(MARK)?;
    let mark = statement
        .query_row([&workflow.tenant, &workflow.id], |row| row.get(0))
        .optional()?;
    Ok(mark.unwrap_or(0))
}

/// Deletes a workflow that has no runs.
pub(super) fn delete(tx: &Tx<'_>, uid: Uuid) -> rusqlite::Result<Deleted> {
    let Some(workflow) = live(tx.connection, uid)? else {
        return Ok(Deleted::NotFound);
    };
    if workflow.status == Lifecycle::Active {
        return Ok(Deleted::Refused(workflow.status));
    }
    if tx.connection.prepare_cached(HAS_RUNS)?.exists([uid_key(&uid)])? {
        return Ok(Deleted::HasRuns(workflow.status));
    }
    set_mark(tx, &workflow)?;
    for sql in DELETE_WORKFLOW {
        tx.connection.prepare_cached(sql)?.execute([uid_key(&uid)])?;
    }
    Ok(Deleted::Deleted)
}

/// Soft-deletes a workflow: its versions and runs are kept.
pub(super) fn soft_delete(tx: &Tx<'_>, uid: Uuid, at: Timestamp) -> rusqlite::Result<bool> {
    let Some(workflow) = live(tx.connection, uid)? else {
        return Ok(false);
    };
    set_mark(tx, &workflow)?;
    delete_draft(tx, &workflow)?;
    tx.connection
        .prepare_cached(DELETE_OF_WORKFLOW)?
        .execute([uid_key(&uid)])?;
    tx.connection
        .prepare_cached(SOFT_DELETE)?
        .execute(params![uid_key(&uid), at.0])?;
    Ok(true)
}

fn delete_draft(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<()> {
    let mut delete = tx.connection.prepare_cached(DELETE_DRAFT)?;
    delete.execute([uid_key(&workflow.uid)])?;
    Ok(())
}

/// Stores the newest version number, so that a later workflow of this name continues from it.
fn set_mark(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<()> {
    if let Some(latest) = workflow.latest_version {
        tx.connection
            .prepare_cached(SET_MARK)?
            .execute(params![workflow.tenant, workflow.id, latest])?;
    }
    Ok(())
}

/// Changes status or the enabled flag.
pub(super) fn set_enablement(
    tx: &mut Tx<'_>,
    uid: Uuid,
    change: &Enablement,
    at: Timestamp,
) -> rusqlite::Result<Option<(Workflow, bool)>> {
    let Some(mut workflow) = live(tx.connection, uid)? else {
        return Ok(None);
    };
    let (before, version_before) = (workflow.status, workflow.current_version);
    let applies = change.apply(&mut workflow, at);
    if applies {
        update_workflow(tx, &workflow)?;
        if let Some(shown) = &change.version {
            let plan = plan(tx.connection, uid, shown.version)?;
            activated(tx, &workflow, version_before, plan.as_deref().unwrap_or_default(), at)?;
        }
        triggers::follow(tx, uid, before, workflow.status, at)?;
    }
    Ok(Some((workflow, applies)))
}

fn create_workflow(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(CREATE_WORKFLOW)?.execute(params![
        workflow.id,
        uid_key(&workflow.uid),
        workflow.display_name,
        workflow.description,
        workflow.dialect,
        workflow.status.as_str(),
        workflow.enabled,
        workflow.created_at.0,
        workflow.updated_at.0,
        workflow.tenant,
    ])?;
    Ok(())
}

fn update_workflow(tx: &Tx<'_>, workflow: &Workflow) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(UPDATE_WORKFLOW)?.execute(params![
        uid_key(&workflow.uid),
        workflow.display_name,
        workflow.description,
        workflow.dialect,
        workflow.current_version,
        workflow.latest_version,
        workflow.status.as_str(),
        workflow.enabled,
        workflow.updated_at.0,
        workflow.paused_at.map(|at| at.0),
    ])?;
    Ok(())
}

/// The workflow that a tenant means by this name.
pub(super) fn workflow(connection: &Connection, tenant: &str, id: &str) -> rusqlite::Result<Option<Workflow>> {
    connection
        .prepare_cached(WORKFLOW)?
        .query_row([tenant, id], workflow_row)
        .optional()
}

/// The workflow of the draft's tenant with the draft's name.
fn own(connection: &Connection, draft: &Draft) -> rusqlite::Result<Option<Workflow>> {
    connection
        .prepare_cached(WORKFLOW_OF_TENANT)?
        .query_row([&draft.tenant, &draft.id], workflow_row)
        .optional()
}

/// The workflow with this uid, including soft-deleted ones.
pub(super) fn workflow_by_uid(connection: &Connection, uid: Uuid) -> rusqlite::Result<Option<Workflow>> {
    connection
        .prepare_cached(WORKFLOW_BY_UID)?
        .query_row([uid_key(&uid)], workflow_row)
        .optional()
}

/// The workflow with this uid, if it was not deleted.
fn live(connection: &Connection, uid: Uuid) -> rusqlite::Result<Option<Workflow>> {
    let workflow = workflow_by_uid(connection, uid)?;
    Ok(workflow.filter(|workflow| workflow.deleted_at.is_none()))
}

fn workflow_row(row: &Row<'_>) -> rusqlite::Result<Workflow> {
    Ok(Workflow {
        id: row.get(0)?,
        uid: get(row, 1)?,
        display_name: row.get(2)?,
        description: row.get(3)?,
        dialect: row.get(4)?,
        current_version: row.get(5)?,
        latest_version: row.get(6)?,
        status: get(row, 7)?,
        enabled: row.get(8)?,
        created_at: get(row, 9)?,
        updated_at: get(row, 10)?,
        deleted_at: maybe(row, 11)?,
        tenant: row.get(12)?,
        paused_at: maybe(row, 13)?,
    })
}

/// Workflows by name. The filter is applied here and not in SQL, where ignoring case works for ASCII only.
pub(super) fn workflows(connection: &Connection, filter: &WorkflowFilter) -> rusqlite::Result<Page<Workflow>> {
    let (id, tenant) = filter.after.clone().unwrap_or_default();
    let (sql, tenant) = match &filter.tenant {
        None => (WORKFLOWS, tenant),
        Some(tenant) => (WORKFLOWS_OF_TENANT, tenant.clone()),
    };
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([id, tenant], workflow_row)?;
    let fitting = rows.filter(|row| row.as_ref().map_or(true, |workflow| filter.fits(workflow)));
    let items = fitting
        .take(filter.limit as usize + 1)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Page::cut(items, filter.limit))
}

/// A workflow's draft.
pub(super) fn draft(connection: &Connection, workflow: Uuid) -> rusqlite::Result<Option<Draft>> {
    let mut statement = connection.prepare_cached(DRAFT)?;
    statement
        .query_row([uid_key(&workflow)], |row| {
            Ok(Draft {
                id: row.get(0)?,
                display_name: row.get(1)?,
                description: row.get(2)?,
                dialect: row.get(3)?,
                source: row.get(4)?,
                checksum: row.get(5)?,
                at: get(row, 6)?,
                tenant: row.get(7)?,
            })
        })
        .optional()
}

/// A version.
pub(super) fn definition(
    connection: &Connection,
    workflow: Uuid,
    version: u32,
) -> rusqlite::Result<Option<Definition>> {
    let mut statement = connection.prepare_cached(DEFINITION)?;
    statement
        .query_row((uid_key(&workflow), version), |row| {
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
    workflow: Uuid,
    before: Option<u32>,
    limit: u32,
) -> rusqlite::Result<Page<VersionRow>> {
    let mut statement = connection.prepare_cached(VERSIONS)?;
    let before = before.map_or(i64::MAX, i64::from);
    let rows = statement.query_map(params![uid_key(&workflow), before, i64::from(limit) + 1], |row| {
        Ok(VersionRow {
            version: row.get(0)?,
            dialect: row.get(1)?,
            checksum: row.get(2)?,
            created_at: get(row, 3)?,
        })
    })?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, limit))
}
