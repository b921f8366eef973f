//! Workflows, drafts and versions.
//!
//! What must stay true: as in the SQLite store, a version is never changed, its number is never reused, and a
//! soft-deleted workflow is never changed. A lock on the workflow's row (`FOR NO KEY UPDATE`) serializes changes. New runs
//! take a weaker lock on it (`FOR KEY SHARE`), which conflicts only with the removal of the workflow.

use super::{
    columns::{get, maybe, plain, small, text},
    error::PgError,
    fields, flow,
    sessions::commit,
    triggers,
};
use crate::{
    definitions::{
        Activation, Definition, Deleted, Draft, DraftGuard, DraftRule, Enablement, Lifecycle, Publication, PublishMode,
        Published, Release, ReleaseRule, Released, Saved, VersionRow, Workflow, WorkflowFilter,
    },
    reads::Page,
    statements::{self, dollars},
    triggers::statements::DELETE_OF_WORKFLOW,
    usage::COUNT,
};
use deadpool_postgres::{GenericClient, Object, Transaction};
use fermata_core::Timestamp;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

/// How many workflows a list reads per query while it applies the filter.
const PAGE: i64 = 500;

pub(super) const HAS_RUNS: &str = "SELECT 1 FROM workflow_executions WHERE workflow_uid = $1 LIMIT 1";

const LOCK_NAMED: &str = concat!(statements::workflow_of_tenant!(), " FOR NO KEY UPDATE");
const LOCK_KNOWN: &str = concat!(statements::workflow_columns!(), "WHERE uid = ?1 FOR NO KEY UPDATE");

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) async fn rows(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<Vec<Row>, PgError> {
    let statement = client.prepare_cached(&dollars(sql)).await?;
    Ok(client.query(&statement, params).await?)
}

pub(super) async fn row(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<Option<Row>, PgError> {
    Ok(rows(client, sql, params).await?.pop())
}

pub(super) async fn execute(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<u64, PgError> {
    let statement = client.prepare_cached(&dollars(sql)).await?;
    Ok(client.execute(&statement, params).await?)
}

/// How a workflow is identified.
#[derive(Clone, Copy)]
enum Which<'a> {
    Named(&'a Draft),
    Known(Uuid),
}

/// Locks a workflow until the transaction ends, and returns it unless it was deleted.
async fn locked(tx: &Transaction<'_>, which: Which<'_>) -> Result<Option<Workflow>, PgError> {
    let row = match which {
        Which::Named(draft) => row(tx, LOCK_NAMED, &[&draft.tenant, &draft.id]).await?,
        Which::Known(uid) => row(tx, LOCK_KNOWN, &[&uid]).await?,
    };
    let workflow = row.as_ref().map(workflow_row).transpose()?;
    Ok(workflow.filter(|workflow| workflow.deleted_at.is_none()))
}

/// Saves a draft.
pub(super) async fn save_draft(
    session: &mut Object,
    new: &Draft,
    rule: DraftRule,
    guard: Option<&DraftGuard>,
) -> Result<Saved, PgError> {
    let tx = session.transaction().await?;
    let (which, most) = match rule {
        DraftRule::NewOrDraft { most, .. } => (Which::Named(new), most),
        DraftRule::Existing { uid } => (Which::Known(uid), None),
    };
    lock_room(&tx, &new.tenant, most).await?;
    let existing = locked(&tx, which).await?;
    let created = existing.is_none();
    let mut workflow = match (existing, rule) {
        (Some(workflow), DraftRule::NewOrDraft { .. }) if workflow.status != Lifecycle::Draft => {
            return Ok(Saved::Refused(workflow.status));
        }
        (Some(workflow), _) => workflow,
        (None, DraftRule::NewOrDraft { most, .. }) if !has_room(&tx, &new.tenant, most).await? => {
            return Ok(Saved::Full);
        }
        (None, DraftRule::NewOrDraft { uid, .. }) => Workflow::new(new, uid),
        (None, DraftRule::Existing { .. }) => return Ok(Saved::NotFound),
    };
    if let Some(guard) = guard {
        let existing = draft(&tx, workflow.uid).await?.map(|draft| draft.checksum);
        if !guard.holds(existing.as_deref()) {
            return Ok(Saved::Changed(existing));
        }
    }
    if created {
        create_workflow(&tx, &workflow).await?;
    } else {
        workflow.has_draft(new);
        update_workflow(&tx, &workflow).await?;
    }
    let (source, at) = (new.source.as_slice(), new.at.0);
    let (name, description) = (text(&new.display_name), new.description.as_deref().map(text));
    let row: Params<'_> = &[
        &workflow.uid,
        &new.id,
        &name,
        &description,
        &new.dialect,
        &source,
        &new.checksum,
        &at,
    ];
    execute(&tx, statements::SAVE_DRAFT, row).await?;
    commit(tx).await?;
    Ok(Saved::Saved { created })
}

/// Publishes the draft with this checksum.
pub(super) async fn publish(
    session: &mut Object,
    uid: Uuid,
    checksum: &str,
    plan: &str,
    mode: PublishMode,
    at: Timestamp,
) -> Result<Published, PgError> {
    let tx = session.transaction().await?;
    let Some(workflow) = locked(&tx, Which::Known(uid)).await? else {
        return Ok(Published::NotFound);
    };
    if !mode.is_for(workflow.status) {
        return Ok(Published::Refused(workflow.status));
    }
    let draft = draft(&tx, uid).await?;
    let version = match &draft {
        Some(draft) if draft.checksum != checksum => return Ok(Published::Changed),
        Some(draft) => version_of(&tx, &workflow, draft, at).await?,
        None => match newest(&tx, &workflow, checksum).await? {
            Some(version) => (version, false),
            None => return Ok(Published::NoDraft),
        },
    };
    insert_plan(&tx, uid, version.0, plan, at).await?;
    let before = workflow.current_version;
    let publication = published(&tx, workflow, draft.as_ref(), version, mode, at).await?;
    if mode.activates() {
        activated(&tx, &publication.workflow, before, plan, at).await?;
    }
    commit(tx).await?;
    Ok(Published::Version(publication))
}

/// Stores a document and makes it the current version in one transaction.
pub(super) async fn release(session: &mut Object, release: &Release) -> Result<Released, PgError> {
    let Release {
        draft,
        rule,
        enabled,
        plan,
    } = release;
    let tx = session.transaction().await?;
    let (which, most) = match rule {
        ReleaseRule::New { most, .. } => (Which::Named(draft), *most),
        ReleaseRule::Existing { uid, .. } => (Which::Known(*uid), None),
    };
    lock_room(&tx, &draft.tenant, most).await?;
    let workflow = match (locked(&tx, which).await?, rule) {
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
        (None, ReleaseRule::New { most, .. }) if !has_room(&tx, &draft.tenant, *most).await? => {
            return Ok(Released::Full);
        }
        (None, ReleaseRule::New { uid, .. }) => Workflow::new(draft, *uid),
        (None, ReleaseRule::Existing { .. }) => return Ok(Released::NotFound),
    };
    if let ReleaseRule::New { .. } = rule {
        create_workflow(&tx, &workflow).await?;
    }
    let version = version_of(&tx, &workflow, draft, draft.at).await?;
    insert_plan(&tx, workflow.uid, version.0, plan, draft.at).await?;
    let mode = PublishMode::Publish(Activation::Activate { enabled: *enabled });
    let before = workflow.current_version;
    let publication = published(&tx, workflow, Some(draft), version, mode, draft.at).await?;
    activated(&tx, &publication.workflow, before, plan, draft.at).await?;
    commit(tx).await?;
    Ok(Released::Version(publication))
}

/// Makes triggers and limits those of this plan, which is current now. `before`: the version that was current. The workflow is locked.
async fn activated(
    tx: &Transaction<'_>,
    workflow: &Workflow,
    before: Option<u32>,
    current: &str,
    at: Timestamp,
) -> Result<(), PgError> {
    let before = match before {
        Some(version) => plan(tx, workflow.uid, version).await?,
        None => None,
    };
    triggers::reconcile(tx, workflow, before.as_deref().unwrap_or_default(), current, at).await?;
    flow::set_limit(tx, workflow.uid, workflow.current_version.unwrap_or(0), current).await
}

/// The row of a tenant's usage that serialises the creation of its workflows. No month has this number.
const CREATION: i32 = 1;

/// If the workflows of a tenant are limited, waits until no other transaction creates one. It is the first lock of its transaction.
async fn lock_room(tx: &Transaction<'_>, tenant: &str, most: Option<u32>) -> Result<(), PgError> {
    if most.is_some() {
        execute(tx, COUNT, &[&tenant, &CREATION, &0i64]).await?;
    }
    Ok(())
}

/// Whether a tenant may have one more workflow.
async fn has_room(tx: &Transaction<'_>, tenant: &str, most: Option<u32>) -> Result<bool, PgError> {
    let Some(most) = most else { return Ok(true) };
    let count = row(tx, statements::COUNT_WORKFLOWS, &[&tenant]).await?;
    let own: i64 = count.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    Ok(own < i64::from(most))
}

/// The number of the newest version if it has this checksum.
async fn newest(tx: &Transaction<'_>, workflow: &Workflow, checksum: &str) -> Result<Option<u32>, PgError> {
    let Some(version) = workflow.latest_version else {
        return Ok(None);
    };
    let newest = definition(tx, workflow.uid, version).await?;
    let same = newest.is_some_and(|newest| newest.checksum == checksum);
    Ok(same.then_some(version))
}

/// The version number of a document, and whether the version is new.
async fn version_of(
    tx: &Transaction<'_>,
    workflow: &Workflow,
    draft: &Draft,
    at: Timestamp,
) -> Result<(u32, bool), PgError> {
    if let Some(version) = newest(tx, workflow, &draft.checksum).await? {
        return Ok((version, false));
    }
    let latest = match workflow.latest_version {
        Some(latest) => latest,
        None => match row(tx, statements::MARK, &[&workflow.tenant, &workflow.id]).await? {
            Some(mark) => get(&mark, 0)?,
            None => 0,
        },
    };
    let version = latest + 1;
    let (number, source) = (small(version), draft.source.as_slice());
    let row: Params<'_> = &[
        &workflow.uid,
        &number,
        &workflow.id,
        &draft.dialect,
        &source,
        &draft.checksum,
        &at.0,
    ];
    execute(tx, statements::INSERT_DEFINITION, row).await?;
    Ok((version, true))
}

/// Stores the plan of a version, unless it already has one.
async fn insert_plan(
    client: &impl GenericClient,
    uid: Uuid,
    version: u32,
    plan: &str,
    at: Timestamp,
) -> Result<(), PgError> {
    let row: Params<'_> = &[&uid, &small(version), &plan, &at.0];
    match execute(client, statements::ADD_PLAN, row).await? {
        0 => Ok(()),
        _ => fields::add_tags(client, uid, version, plan).await,
    }
}

/// Stores the plan of a version unless it already has one, and returns the stored plan.
pub(super) async fn add_plan(
    client: &impl GenericClient,
    uid: Uuid,
    version: u32,
    text: &str,
    at: Timestamp,
) -> Result<Option<String>, PgError> {
    insert_plan(client, uid, version, text, at).await?;
    plan(client, uid, version).await
}

/// The plan of a version.
pub(super) async fn plan(client: &impl GenericClient, uid: Uuid, version: u32) -> Result<Option<String>, PgError> {
    let row = row(client, statements::PLAN, &[&uid, &small(version)]).await?;
    row.as_ref().map(|row| plain(row, 0)).transpose()
}

/// Updates the workflow and deletes its draft after a version was published.
async fn published(
    tx: &Transaction<'_>,
    mut workflow: Workflow,
    draft: Option<&Draft>,
    (version, created): (u32, bool),
    mode: PublishMode,
    at: Timestamp,
) -> Result<Publication, PgError> {
    if mode != PublishMode::Snapshot {
        execute(tx, statements::DELETE_DRAFT, &[&workflow.uid]).await?;
    }
    mode.apply(&mut workflow, draft, version, at);
    update_workflow(tx, &workflow).await?;
    Ok(Publication {
        workflow,
        version,
        created,
    })
}

/// Removes a workflow that is not active and has no runs.
pub(super) async fn delete(session: &mut Object, uid: Uuid) -> Result<Deleted, PgError> {
    let tx = session.transaction().await?;
    // Waits for transactions that insert runs of it; the next statement sees those runs.
    execute(&tx, "SELECT 1 FROM workflows WHERE uid = ?1 FOR UPDATE", &[&uid]).await?;
    let workflow = workflow_by_uid(&tx, uid).await?;
    let Some(workflow) = workflow.filter(|workflow| workflow.deleted_at.is_none()) else {
        return Ok(Deleted::NotFound);
    };
    if workflow.status == Lifecycle::Active {
        return Ok(Deleted::Refused(workflow.status));
    }
    if row(&tx, HAS_RUNS, &[&uid]).await?.is_some() {
        return Ok(Deleted::HasRuns(workflow.status));
    }
    set_mark(&tx, &workflow).await?;
    for sql in statements::DELETE_WORKFLOW {
        execute(&tx, sql, &[&uid]).await?;
    }
    commit(tx).await?;
    Ok(Deleted::Deleted)
}

/// Marks a workflow as deleted; its versions and runs stay.
pub(super) async fn soft_delete(session: &mut Object, uid: Uuid, at: Timestamp) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let Some(workflow) = locked(&tx, Which::Known(uid)).await? else {
        return Ok(false);
    };
    set_mark(&tx, &workflow).await?;
    execute(&tx, statements::DELETE_DRAFT, &[&uid]).await?;
    execute(&tx, DELETE_OF_WORKFLOW, &[&uid]).await?;
    execute(&tx, statements::SOFT_DELETE, &[&uid, &at.0]).await?;
    commit(tx).await?;
    Ok(true)
}

/// Stores the newest version number, so that a later workflow with the same name continues from it.
async fn set_mark(tx: &Transaction<'_>, workflow: &Workflow) -> Result<(), PgError> {
    if let Some(latest) = workflow.latest_version {
        let mark: Params<'_> = &[&workflow.tenant, &workflow.id, &small(latest)];
        execute(tx, statements::SET_MARK, mark).await?;
    }
    Ok(())
}

/// Changes the status, the enabled flag or the current version.
pub(super) async fn set_enablement(
    session: &mut Object,
    uid: Uuid,
    change: &Enablement,
    at: Timestamp,
) -> Result<Option<(Workflow, bool)>, PgError> {
    let tx = session.transaction().await?;
    let Some(mut workflow) = locked(&tx, Which::Known(uid)).await? else {
        return Ok(None);
    };
    let (before, version_before) = (workflow.status, workflow.current_version);
    if !change.apply(&mut workflow, at) {
        return Ok(Some((workflow, false)));
    }
    update_workflow(&tx, &workflow).await?;
    if let Some(shown) = &change.version {
        let plan = plan(&tx, uid, shown.version).await?;
        activated(&tx, &workflow, version_before, plan.as_deref().unwrap_or_default(), at).await?;
    }
    triggers::follow(&tx, uid, before, workflow.status, at).await?;
    commit(tx).await?;
    Ok(Some((workflow, true)))
}

/// Fails with [`PgError::Collision`] if another process created the same workflow; the call is then retried.
async fn create_workflow(tx: &Transaction<'_>, workflow: &Workflow) -> Result<(), PgError> {
    let status = workflow.status.as_str();
    let (name, description) = (text(&workflow.display_name), workflow.description.as_deref().map(text));
    let row: Params<'_> = &[
        &workflow.id,
        &workflow.uid,
        &name,
        &description,
        &workflow.dialect,
        &status,
        &workflow.enabled,
        &workflow.created_at.0,
        &workflow.updated_at.0,
        &workflow.tenant,
    ];
    match execute(tx, statements::CREATE_WORKFLOW, row).await? {
        0 => Err(PgError::Collision),
        _ => Ok(()),
    }
}

async fn update_workflow(tx: &Transaction<'_>, workflow: &Workflow) -> Result<(), PgError> {
    let status = workflow.status.as_str();
    let (current, latest) = (workflow.current_version.map(small), workflow.latest_version.map(small));
    let paused_at = workflow.paused_at.map(|at| at.0);
    let (name, description) = (text(&workflow.display_name), workflow.description.as_deref().map(text));
    let row: Params<'_> = &[
        &workflow.uid,
        &name,
        &description,
        &workflow.dialect,
        &current,
        &latest,
        &status,
        &workflow.enabled,
        &workflow.updated_at.0,
        &paused_at,
    ];
    execute(tx, statements::UPDATE_WORKFLOW, row).await?;
    Ok(())
}

/// The workflow that a tenant currently means by this name.
pub(super) async fn workflow(client: &impl GenericClient, tenant: &str, id: &str) -> Result<Option<Workflow>, PgError> {
    let row = row(client, statements::WORKFLOW, &[&tenant, &id]).await?;
    row.as_ref().map(workflow_row).transpose()
}

/// The workflow with this uid, even if it was soft-deleted.
pub(super) async fn workflow_by_uid(client: &impl GenericClient, uid: Uuid) -> Result<Option<Workflow>, PgError> {
    let row = row(client, statements::WORKFLOW_BY_UID, &[&uid]).await?;
    row.as_ref().map(workflow_row).transpose()
}

fn workflow_row(row: &Row) -> Result<Workflow, PgError> {
    Ok(Workflow {
        id: plain(row, 0)?,
        uid: plain(row, 1)?,
        display_name: plain(row, 2)?,
        description: plain(row, 3)?,
        dialect: plain(row, 4)?,
        current_version: maybe(row, 5)?,
        latest_version: maybe(row, 6)?,
        status: get(row, 7)?,
        enabled: plain(row, 8)?,
        created_at: get(row, 9)?,
        updated_at: get(row, 10)?,
        deleted_at: maybe(row, 11)?,
        tenant: plain(row, 12)?,
        paused_at: maybe(row, 13)?,
    })
}

/// Workflows ordered by name. The filter is applied in Rust, so that case-insensitive search works the same in every
/// store.
pub(super) async fn workflows(client: &impl GenericClient, filter: &WorkflowFilter) -> Result<Page<Workflow>, PgError> {
    let sql = match filter.tenant {
        None => statements::WORKFLOWS,
        Some(_) => statements::WORKFLOWS_OF_TENANT,
    };
    let sql = format!("{sql} LIMIT ?3");
    let wanted = filter.limit as usize + 1;
    // PostgreSQL cannot compare with a text that contains NUL. No name sorts between the part before the NUL and the
    // whole text, so that part is equivalent.
    let before_nul = |text: &str| text.split('\0').next().unwrap_or_default().to_owned();
    let (id, tenant) = filter.after.as_ref().map_or(("", ""), |(id, tenant)| (id, tenant));
    let (mut id, mut tenant) = (before_nul(id), before_nul(tenant));
    let mut items = Vec::new();
    loop {
        let page = rows(client, &sql, &[&id, filter.tenant.as_ref().unwrap_or(&tenant), &PAGE]).await?;
        for row in &page {
            let workflow = workflow_row(row)?;
            id.clone_from(&workflow.id);
            tenant.clone_from(&workflow.tenant);
            if filter.fits(&workflow) {
                items.push(workflow);
            }
        }
        if items.len() >= wanted || (page.len() as i64) < PAGE {
            return Ok(Page::cut(items, filter.limit));
        }
    }
}

/// The draft of a workflow.
pub(super) async fn draft(client: &impl GenericClient, workflow: Uuid) -> Result<Option<Draft>, PgError> {
    let Some(row) = row(client, statements::DRAFT, &[&workflow]).await? else {
        return Ok(None);
    };
    Ok(Some(Draft {
        id: plain(&row, 0)?,
        display_name: plain(&row, 1)?,
        description: plain(&row, 2)?,
        dialect: plain(&row, 3)?,
        source: plain(&row, 4)?,
        checksum: plain(&row, 5)?,
        at: get(&row, 6)?,
        tenant: plain(&row, 7)?,
    }))
}

/// A version with its document.
pub(super) async fn definition(
    client: &impl GenericClient,
    workflow: Uuid,
    version: u32,
) -> Result<Option<Definition>, PgError> {
    let Some(row) = row(client, statements::DEFINITION, &[&workflow, &small(version)]).await? else {
        return Ok(None);
    };
    Ok(Some(Definition {
        workflow_id: plain(&row, 0)?,
        version: get(&row, 1)?,
        dialect: plain(&row, 2)?,
        source: plain(&row, 3)?,
        checksum: plain(&row, 4)?,
        created_at: get(&row, 5)?,
    }))
}

/// Versions without their documents, newest first.
pub(super) async fn versions(
    client: &impl GenericClient,
    workflow: Uuid,
    before: Option<u32>,
    limit: u32,
) -> Result<Page<VersionRow>, PgError> {
    let before = before.map_or(i32::MAX, small);
    let params: Params<'_> = &[&workflow, &before, &(i64::from(limit) + 1)];
    let rows = rows(client, statements::VERSIONS, params).await?;
    let versions = rows.iter().map(|row| {
        Ok(VersionRow {
            version: get(row, 0)?,
            dialect: plain(row, 1)?,
            checksum: plain(row, 2)?,
            created_at: get(row, 3)?,
        })
    });
    Ok(Page::cut(versions.collect::<Result<_, PgError>>()?, limit))
}
