//! Dead letters: executions that were given up, with their requests. They can be requeued or deleted.

use super::list::workflow_uid;
use crate::{
    door::As,
    error::ApiError,
    extract::{DeadLetterId, Query},
    paging,
    time::Iso,
    views::{AcceptedView, PageView},
};
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fermata_core::RunId;
use fermata_runtime::{Again, Session};
use fermata_store::dead_letters::{DeadLetter, DeadLetterFilter, DeadReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    reason: Option<String>,
    workflow_id: Option<String>,
    tenant_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PurgeQuery {
    reason: Option<String>,
    workflow_id: Option<String>,
    tenant_id: Option<String>,
    all: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequeueQuery {
    version: Option<String>,
}

/// An execution that was given up.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterView {
    id: Uuid,
    enqueued_at: Iso,
    reason: &'static str,
    #[schemars(with = "Uuid")]
    execution_id: RunId,
    workflow_uid: Uuid,
    workflow_id: String,
    workflow_version: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// The original request; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
}

impl From<DeadLetter> for DeadLetterView {
    fn from(letter: DeadLetter) -> DeadLetterView {
        DeadLetterView {
            id: letter.id,
            enqueued_at: Iso(letter.at),
            reason: letter.reason.as_str(),
            execution_id: letter.run,
            workflow_uid: letter.workflow_uid,
            workflow_id: letter.workflow_id,
            workflow_version: letter.workflow_version,
            tenant_id: letter.tenant,
            attempts: letter.attempts,
            last_error: letter.last_error,
            payload: RawValue::from_string(letter.payload).ok(),
        }
    }
}

/// How many dead letters were deleted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PurgedView {
    removed: u64,
}

async fn filter(
    session: &Session,
    reason: Option<String>,
    workflow_id: Option<String>,
    tenant_id: Option<String>,
) -> Result<DeadLetterFilter, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let unknown = || {
        let words = DeadReason::ALL.map(DeadReason::as_str).join(" or ");
        ApiError::parameter(format!("`reason` must be {words}"))
    };
    let reason = given(reason).map(|word| DeadReason::parse(&word).ok_or_else(unknown));
    let tenant = given(tenant_id);
    let workflow_uid = match given(workflow_id) {
        Some(reference) => Some(workflow_uid(session, tenant.as_deref(), &reference).await?),
        None => None,
    };
    Ok(DeadLetterFilter {
        reason: reason.transpose()?,
        workflow_uid,
        tenant,
        ..DeadLetterFilter::default()
    })
}

/// `GET /api/v1/admin/dead-letters`, the newest first.
pub(crate) async fn list(
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<DeadLetterView>>, ApiError> {
    let filter = DeadLetterFilter {
        before: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: paging::limit(query.limit)?,
        ..filter(&session, query.reason, query.workflow_id, query.tenant_id).await?
    };
    let page = session.reads().dead_letters(filter).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.id);
    Ok(Json(PageView {
        next_cursor: next.map(paging::after_id),
        items: page.items.into_iter().map(DeadLetterView::from).collect(),
    }))
}

/// `GET /api/v1/admin/dead-letters/{id}`, with the original request.
pub(crate) async fn get(As(session): As, DeadLetterId(id): DeadLetterId) -> Result<Json<DeadLetterView>, ApiError> {
    Ok(Json(session.reads().dead_letter(id).await?.into()))
}

/// `POST /api/v1/admin/dead-letters/{id}/requeue`: a new execution, of the current version or with `?version=same`.
pub(crate) async fn requeue(
    As(session): As,
    DeadLetterId(id): DeadLetterId,
    Query(query): Query<RequeueQuery>,
) -> Result<Response, ApiError> {
    let version = match query.version.as_deref() {
        None | Some("" | "current") => Again::Current,
        Some("same") => Again::Same,
        Some(_) => return Err(ApiError::parameter("`version` must be current or same")),
    };
    let accepted = session.requeue(id, version).await?;
    let status = match accepted.created {
        true => StatusCode::ACCEPTED,
        false => StatusCode::OK,
    };
    Ok((status, Json(AcceptedView::new(accepted.run, accepted.status))).into_response())
}

/// `DELETE /api/v1/admin/dead-letters/{id}`
pub(crate) async fn delete(As(session): As, DeadLetterId(id): DeadLetterId) -> Result<StatusCode, ApiError> {
    session.delete_dead_letter(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/v1/admin/dead-letters`: those that match the filters, or `?all=true`.
pub(crate) async fn purge(As(session): As, Query(query): Query<PurgeQuery>) -> Result<Json<PurgedView>, ApiError> {
    let filter = filter(&session, query.reason, query.workflow_id, query.tenant_id).await?;
    let narrowed = filter.reason.is_some() || filter.workflow_uid.is_some() || filter.tenant.is_some();
    if narrowed == query.all.unwrap_or(false) {
        let message = "choose the dead letters to delete with `reason`, `workflowId` and `tenantId`, or delete all of them with `all=true`";
        return Err(ApiError::parameter(message));
    }
    let removed = session.purge(filter).await?;
    Ok(Json(PurgedView { removed }))
}
