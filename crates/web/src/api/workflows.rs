//! Workflows: create, replace, publish, read, list.
//!
//! `{id}` is the id, or the uid with or without `wf_`. A workflow with a Runlater document is shown in the format of the
//! Runlater specification, one with a jsondagapi document as in [`super::jsondagapi`]; lists have one format for all workflows.

use super::{
    drafts,
    jsondagapi::{self, expected_version, is_jsondagapi},
};
use crate::{
    Web,
    body::run_to_completion,
    door::As,
    error::{ApiError, etag},
    extract::{DocumentBytes, Name, Query},
    paging,
    runlater_views::{DocumentFields, WorkflowResponse},
    views::{DefinitionView, PageView, PublishedView, SavedView, VersionView, WorkflowView, WorkflowWithDefinition},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use fermata_dialects::{Dialect, Document};
use fermata_runtime::{Added, PublishedWorkflow, Refusal, SavedWorkflow};
use fermata_store::definitions::{Lifecycle, Workflow, WorkflowFilter};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// `POST /api/v1/workflows`: the body is the document itself. With `If-None-Match: *` an existing draft is not replaced.
pub(crate) async fn add(
    State(web): State<Web>,
    As(session): As,
    headers: HeaderMap,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Response, ApiError> {
    let guard = drafts::guard(&headers)?;
    run_to_completion(share, async move {
        match session.workflows().add(&source, "request", guard).await? {
            Added::Draft(saved) if saved.created => Ok(saved_response(StatusCode::CREATED, saved)),
            Added::Draft(saved) => Ok(saved_response(StatusCode::OK, saved)),
            Added::Published(published) => published_response(&web, StatusCode::CREATED, published, &source, "CREATED"),
        }
    })
    .await
}

/// `PUT /api/v1/workflows/{id}`: the body is the document itself. For dialects without drafts.
pub(crate) async fn replace(
    State(web): State<Web>,
    As(session): As,
    Name(reference): Name,
    headers: HeaderMap,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Response, ApiError> {
    run_to_completion(share, async move {
        let workflows = session.workflows();
        let workflow = session.reads().workflow(&reference).await?;
        let expected = match is_jsondagapi(&workflow.dialect) {
            true => expected_version(&headers)?,
            false => None,
        };
        let published = workflows.replace_expecting(&reference, &source, "request", expected.as_deref());
        published_response(&web, StatusCode::OK, published.await?, &source, "UPDATED")
    })
    .await
}

/// The response for a version that was published without a draft.
fn published_response(
    web: &Web,
    status: StatusCode,
    published: PublishedWorkflow,
    source: &[u8],
    word: &str,
) -> Result<Response, ApiError> {
    if is_jsondagapi(&published.workflow.dialect) {
        return Ok(jsondagapi::changed(
            status,
            &published,
            read(web, source)?.value(),
            word,
        ));
    }
    if is_runlater(&published.workflow.dialect) {
        let json = json(web, source)?;
        if let Some(fields) = DocumentFields::read(&json) {
            let view = WorkflowResponse::new(&published.workflow, &fields, &published.warnings);
            return Ok((status, Json(view)).into_response());
        }
    }
    Ok((status, Json(PublishedView::from(published))).into_response())
}

fn is_runlater(dialect: &str) -> bool {
    Dialect::parse(dialect) == Some(Dialect::Runlater)
}

/// A document as JSON. A JSON document is not changed.
fn json<'a>(web: &Web, source: &'a [u8]) -> Result<Cow<'a, str>, ApiError> {
    if let Ok(raw) = serde_json::from_slice::<&RawValue>(source) {
        return Ok(Cow::Borrowed(raw.get()));
    }
    Ok(Cow::Owned(read(web, source)?.value().to_string()))
}

fn read(web: &Web, source: &[u8]) -> Result<Document, ApiError> {
    let limits = &web.settings().dialects.document;
    Ok(Document::parse(source, "request", limits).map_err(Refusal::InvalidDocument)?)
}

/// The response for a saved draft, with its ETag.
pub(super) fn saved_response(status: StatusCode, saved: SavedWorkflow) -> Response {
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

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishQuery {
    #[serde(default = "default_true")]
    auto_activate: bool,
}

fn default_true() -> bool {
    true
}

/// `POST /api/v1/workflows/{id}/publish?autoActivate=true`
pub(crate) async fn publish(
    As(session): As,
    Name(reference): Name,
    Query(query): Query<PublishQuery>,
) -> Result<Json<PublishedView>, ApiError> {
    let workflows = session.workflows();
    let published = workflows.publish(&reference, query.auto_activate).await?;
    Ok(Json(published.into()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    status: Option<String>,
    is_enabled: Option<bool>,
    search: Option<String>,
    dialect: Option<String>,
    tenant_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/workflows`, ordered by id. With `tenantId` those that the tenant sees: its own and the shared ones.
pub(crate) async fn list(As(session): As, Query(query): Query<ListQuery>) -> Result<Response, ApiError> {
    let status = query.status.filter(|word| !word.is_empty());
    let filter = WorkflowFilter {
        status: status.as_deref().map(lifecycle).transpose()?,
        enabled: query.is_enabled,
        search: query.search.filter(|text| !text.is_empty()),
        dialect: query.dialect.filter(|text| !text.is_empty()),
        tenant: query.tenant_id.filter(|tenant| !tenant.is_empty()),
        after: query.cursor.as_deref().map(paging::name).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = session.reads().workflows(filter).await?;
    let last = page.items.last().filter(|_| page.more);
    let view = PageView {
        next_cursor: last.map(|workflow| paging::after_name(&workflow.id, &workflow.tenant)),
        items: page.items.iter().map(WorkflowView::from).collect(),
    };
    Ok(Json(view).into_response())
}

fn lifecycle(word: &str) -> Result<Lifecycle, ApiError> {
    let unknown = || ApiError::parameter("`status` must be Draft, Active or Archived");
    Lifecycle::parse(word).ok_or_else(unknown)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GetQuery {
    version: Option<String>,
    format: Option<GetFormat>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum GetFormat {
    /// The same format for the documents of all dialects.
    Definition,
}

/// `GET /api/v1/workflows/{id}?version=n`: that version, by default the current one, or the draft if there is none. A version
/// is a number, or for jsondagapi documents also their own version.
pub(crate) async fn get(
    State(web): State<Web>,
    As(session): As,
    Name(reference): Name,
    Query(query): Query<GetQuery>,
) -> Result<Response, ApiError> {
    let reads = session.reads();
    let workflow = reads.workflow(&reference).await?;
    let wanted = match query.version {
        Some(label) if is_jsondagapi(&workflow.dialect) => {
            Some(session.workflows().version_number(&workflow, &label).await?)
        }
        Some(number) => Some(
            number
                .parse()
                .map_err(|_| ApiError::parameter("invalid query: version: a version is a number from 1"))?,
        ),
        None => None,
    };
    let draft = match wanted.or(workflow.current_version) {
        Some(_) => None,
        None => reads.draft(&workflow).await?,
    };
    // A workflow that was published but never activated has versions, but neither a draft nor a current version.
    let version = wanted.or(workflow.current_version).or(workflow.latest_version);
    let (source, checksum, version, dialect) = match (draft, version) {
        (Some(draft), _) => (draft.source, draft.checksum, None, draft.dialect),
        (None, Some(version)) => {
            let definition = reads.definition(&workflow, version).await?;
            (
                definition.source,
                definition.checksum,
                Some(version),
                definition.dialect,
            )
        }
        (None, None) => return Err(Refusal::NoDraft(workflow.id).into()),
    };
    let is_uniform = query.format == Some(GetFormat::Definition);
    if is_jsondagapi(&dialect) && !is_uniform {
        return Ok(jsondagapi::document_response(read(&web, &source)?.value()));
    }
    if is_runlater(&dialect) && !is_uniform {
        let json = json(&web, &source)?;
        if let Some(fields) = DocumentFields::read(&json) {
            return Ok(Json(WorkflowResponse::with_document(&workflow, &fields)).into_response());
        }
    }
    definition_response(&web, &workflow, version, &source, &checksum)
}

/// The response for a workflow with one of its documents.
pub(super) fn definition_response(
    web: &Web,
    workflow: &Workflow,
    version: Option<u32>,
    source: &[u8],
    checksum: &str,
) -> Result<Response, ApiError> {
    let as_sent = serde_json::from_slice(source).ok();
    let definition = match as_sent {
        Some(raw) => DefinitionView::AsSent(raw),
        None => DefinitionView::Read(read(web, source)?.value().clone()),
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

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct VersionsQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/workflows/{id}/versions`, newest first.
pub(crate) async fn versions(
    As(session): As,
    Name(reference): Name,
    Query(query): Query<VersionsQuery>,
) -> Result<Response, ApiError> {
    let before = query.cursor.as_deref().map(paging::version).transpose()?;
    let limit = paging::limit(query.limit)?;
    let page = session.reads().versions(&reference, before, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    let view = PageView {
        next_cursor: last.map(|row| paging::after_version(row.version)),
        items: page.items.iter().map(VersionView::from).collect(),
    };
    Ok(Json(view).into_response())
}
