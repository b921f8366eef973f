//! Workflows: save a draft, publish it, look at it, list them.

use crate::{
    Web,
    error::{ApiError, etag},
    extract::{DocumentBytes, Name, Query},
    paging,
    views::{DefinitionView, PageView, PublishedView, SavedView, VersionView, WorkflowView, WorkflowWithDefinition},
};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use fermata_dialects::Document;
use fermata_runtime::{Refusal, SavedWorkflow};
use fermata_store::definitions::{Lifecycle, Workflow, WorkflowFilter};
use serde::Deserialize;

/// `POST /api/v1/workflows`: the body is the document itself.
pub(crate) async fn save(State(web): State<Web>, DocumentBytes(source): DocumentBytes) -> Result<Response, ApiError> {
    let saved = web.engine.workflows().save(&source, "request").await?;
    let status = match saved.created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(written(status, saved))
}

/// A draft that was saved, with its ETag.
pub(super) fn written(status: StatusCode, saved: SavedWorkflow) -> Response {
    let view = SavedView {
        workflow: (&saved.workflow).into(),
        checksum: &saved.checksum,
        warnings: saved.warnings,
    };
    let mut response = (status, Json(view)).into_response();
    if let Some(etag) = etag(&saved.checksum) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishQuery {
    #[serde(default = "yes")]
    auto_activate: bool,
}

fn yes() -> bool {
    true
}

/// `POST /api/v1/workflows/{id}/publish?autoActivate=true`
pub(crate) async fn publish(
    State(web): State<Web>,
    Name(id): Name,
    Query(query): Query<PublishQuery>,
) -> Result<Json<PublishedView>, ApiError> {
    let published = web.engine.workflows().publish(&id, query.auto_activate).await?;
    Ok(Json(PublishedView {
        workflow_id: published.workflow.id,
        version: published.version,
        status: published.workflow.status.as_str(),
        created: published.created,
        warnings: published.warnings,
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    status: Option<String>,
    is_enabled: Option<bool>,
    search: Option<String>,
    dialect: Option<String>,
    /// Taken and not looked at: workflows belong to no tenant, runs do.
    #[serde(rename = "tenantId")]
    _tenant_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/workflows`, by id.
pub(crate) async fn list(State(web): State<Web>, Query(query): Query<ListQuery>) -> Result<Response, ApiError> {
    let status = query.status.filter(|word| !word.is_empty());
    let filter = WorkflowFilter {
        status: status.as_deref().map(lifecycle).transpose()?,
        enabled: query.is_enabled,
        search: query.search.filter(|text| !text.is_empty()),
        dialect: query.dialect.filter(|text| !text.is_empty()),
        after: query.cursor.as_deref().map(paging::name).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = web.engine.store().workflows(filter).await?;
    let last = page.items.last().filter(|_| page.more);
    let view = PageView {
        next_cursor: last.map(|workflow| paging::after_name(&workflow.id)),
        items: page.items.iter().map(WorkflowView::from).collect(),
    };
    Ok(Json(view).into_response())
}

fn lifecycle(word: &str) -> Result<Lifecycle, ApiError> {
    let unknown = || ApiError::parameter("`status` must be Draft, Active or Archived");
    Lifecycle::parse(word).ok_or_else(unknown)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GetQuery {
    version: Option<u32>,
}

/// `GET /api/v1/workflows/{id}?version=n`: that version; else the current one; else the draft.
pub(crate) async fn get(
    State(web): State<Web>,
    Name(id): Name,
    Query(query): Query<GetQuery>,
) -> Result<Response, ApiError> {
    let workflows = web.engine.workflows();
    let workflow = workflows.get(&id).await?;
    let draft = match query.version.or(workflow.current_version) {
        Some(_) => None,
        None => web.engine.store().draft(&id).await?,
    };
    // Published but never activated: there may be versions, and no draft and no current one.
    let version = query.version.or(workflow.current_version).or(workflow.latest_version);
    let (source, checksum, version) = match (draft, version) {
        (Some(draft), _) => (draft.source, draft.checksum, None),
        (None, Some(version)) => {
            let definition = workflows.definition(&id, version).await?;
            (definition.source, definition.checksum, Some(version))
        }
        (None, None) => return Err(Refusal::NoDraft(id).into()),
    };
    shown(&web, &workflow, version, &source, &checksum)
}

/// A workflow with one of its documents.
pub(super) fn shown(
    web: &Web,
    workflow: &Workflow,
    version: Option<u32>,
    source: &[u8],
    checksum: &str,
) -> Result<Response, ApiError> {
    let as_sent = serde_json::from_slice(source).ok();
    let definition = match as_sent {
        Some(raw) => DefinitionView::AsSent(raw),
        None => {
            let limits = &web.engine.settings().dialects.document;
            let document = Document::parse(source, "request", limits).map_err(Refusal::InvalidDocument)?;
            DefinitionView::Read(document.value().clone())
        }
    };
    let view = WorkflowWithDefinition {
        workflow: workflow.into(),
        version,
        checksum,
        source: match definition {
            DefinitionView::AsSent(_) => None,
            DefinitionView::Read(_) => std::str::from_utf8(source).ok(),
        },
        definition,
    };
    Ok(Json(view).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct VersionsQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/workflows/{id}/versions`, newest first.
pub(crate) async fn versions(
    State(web): State<Web>,
    Name(id): Name,
    Query(query): Query<VersionsQuery>,
) -> Result<Response, ApiError> {
    let before = query.cursor.as_deref().map(paging::version).transpose()?;
    let limit = paging::limit(query.limit)?;
    let page = web.engine.workflows().versions(&id, before, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    let view = PageView {
        next_cursor: last.map(|row| paging::after_version(row.version)),
        items: page.items.iter().map(VersionView::from).collect(),
    };
    Ok(Json(view).into_response())
}
