//! Bulk jobs: one action on many executions. A job is prepared (the preview), started, read and cancelled.

use crate::{
    body::run_to_completion,
    door::As,
    error::ApiError,
    extract::{BulkId, OptionalJson, Query, name},
    paging,
    time::Iso,
    views::PageView,
};
use axum::{Json, http::StatusCode};
use fermata_core::RunId;
use fermata_runtime::bulk::{BulkAction, BulkItem, BulkJob, ItemState, Selection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "NewBulkBody")]
pub(crate) struct CreateBody {
    /// Which executions: a query, or ids.
    query: Option<String>,
    #[schemars(with = "Option<Vec<Uuid>>")]
    ids: Option<Vec<RunId>>,
    /// What is done to each: `cancel`, `pause`, `resume`, `rerun` or `delete`.
    action: String,
    /// Why, for `cancel`, `pause` and `resume`.
    reason: Option<String>,
    /// For `rerun`: repeat the nodes that failed and all that they reach. Without it, everything is repeated.
    failed_only: Option<bool>,
    /// For `rerun`: `latest`. Each execution is repeated with its own version if it is left out.
    version: Option<String>,
    /// Leave out executions that the action cannot change as they are now. Without it, those that `ids` names get the result `refused`.
    only_fitting: Option<bool>,
}

/// A job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BulkView {
    id: Uuid,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    /// `ready`, `running`, `cancelling`, `cancelled` or `finished`.
    state: &'static str,
    total: u64,
    done: u64,
    refused: u64,
    failed: u64,
    created_at: Iso,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Iso>,
    /// Of a new job: how many executions of the selection it leaves out, because the action cannot change them as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    status_url: String,
}

impl From<BulkJob> for BulkView {
    fn from(job: BulkJob) -> BulkView {
        let action = BulkAction::of(&job);
        let name = action.as_ref().map_or("unknown", BulkAction::name).to_owned();
        let (failed_only, version) = match action {
            Some(BulkAction::Rerun { failed_only, latest }) => (Some(failed_only), latest.then_some("latest")),
            _ => (None, None),
        };
        let reason = match action {
            Some(BulkAction::Cancel { reason } | BulkAction::Pause { reason } | BulkAction::Resume { reason }) => {
                reason
            }
            Some(BulkAction::Rerun { .. } | BulkAction::Delete) | None => None,
        };
        BulkView {
            id: job.id,
            action: name,
            reason,
            failed_only,
            version,
            query: job.query,
            tenant_id: job.tenant,
            state: job.state.as_str(),
            total: job.total,
            done: job.done,
            refused: job.refused,
            failed: job.failed,
            created_at: Iso(job.created_at),
            started_at: job.started_at.map(Iso),
            ended_at: job.ended_at.map(Iso),
            left_out: None,
            status_url: format!("/api/v1/bulk/{}", job.id),
        }
    }
}

/// What became of one execution.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BulkItemView {
    #[schemars(with = "Uuid")]
    execution_id: RunId,
    /// `pending`, `done`, `refused` or `failed`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The execution that was created for it.
    #[schemars(with = "Option<Uuid>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    created_execution_id: Option<RunId>,
}

impl From<BulkItem> for BulkItemView {
    fn from(item: BulkItem) -> BulkItemView {
        BulkItemView {
            execution_id: item.run,
            state: item.state.as_str(),
            code: item.code,
            message: item.message,
            created_execution_id: item.created,
        }
    }
}

fn action_of(body: &CreateBody) -> Result<BulkAction, ApiError> {
    if let Some(reason) = &body.reason {
        name("reason", reason)?;
    }
    let (word, reason) = (body.action.as_str(), body.reason.clone());
    if reason.is_some() && matches!(word, "rerun" | "delete") {
        return Err(ApiError::invalid(
            "`reason` is for the actions cancel, pause and resume",
        ));
    }
    if word != "rerun" && (body.failed_only.is_some() || body.version.is_some()) {
        return Err(ApiError::invalid("`failedOnly` and `version` are for the action rerun"));
    }
    match word {
        "cancel" => Ok(BulkAction::Cancel { reason }),
        "pause" => Ok(BulkAction::Pause { reason }),
        "resume" => Ok(BulkAction::Resume { reason }),
        "rerun" => match body.version.as_deref() {
            version @ (None | Some("latest")) => Ok(BulkAction::Rerun {
                failed_only: body.failed_only.unwrap_or(false),
                latest: version.is_some(),
            }),
            Some(_) => Err(ApiError::invalid(
                "`version` of a bulk job is \"latest\", or is left out",
            )),
        },
        "delete" => Ok(BulkAction::Delete),
        other => {
            let shown: String = other.chars().take(60).collect();
            let message = format!("`{shown}` is not an action; `action` is cancel, pause, resume, rerun or delete");
            Err(ApiError::invalid(message))
        }
    }
}

/// `POST /api/v1/bulk`: finds the executions and stores them with the job. Nothing is done to them.
pub(crate) async fn create(
    As(session): As,
    OptionalJson(body, share): OptionalJson<CreateBody>,
) -> Result<(StatusCode, Json<BulkView>), ApiError> {
    let action = action_of(&body)?;
    let selection = match (body.query, body.ids) {
        (Some(query), None) => Selection::Query(query),
        (None, Some(ids)) => Selection::Runs(ids),
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::invalid("a bulk job has either `query` or `ids`"));
        }
    };
    let only_fitting = body.only_fitting.unwrap_or(false);
    let prepare = async move { session.bulk().prepare(selection, action, only_fitting).await };
    let prepared = run_to_completion(share, prepare).await?;
    let view = BulkView {
        left_out: Some(prepared.left_out),
        ..prepared.job.into()
    };
    Ok((StatusCode::CREATED, Json(view)))
}

/// `POST /api/v1/bulk/{id}/start`: acts on exactly the executions of the job. A second start changes nothing.
pub(crate) async fn start(As(session): As, BulkId(id): BulkId) -> Result<(StatusCode, Json<BulkView>), ApiError> {
    let job = session.bulk().start(id).await?;
    Ok((StatusCode::ACCEPTED, Json(job.into())))
}

/// `POST /api/v1/bulk/{id}/cancel`: what was done stays done.
pub(crate) async fn cancel(As(session): As, BulkId(id): BulkId) -> Result<(StatusCode, Json<BulkView>), ApiError> {
    let job = session.bulk().cancel(id).await?;
    let code = match job.state.is_over() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((code, Json(job.into())))
}

/// `GET /api/v1/bulk/{id}`
pub(crate) async fn get(As(session): As, BulkId(id): BulkId) -> Result<Json<BulkView>, ApiError> {
    Ok(Json(session.bulk().get(id).await?.into()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/bulk`, newest first.
pub(crate) async fn list(
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<BulkView>>, ApiError> {
    let before = query.cursor.as_deref().map(paging::id).transpose()?;
    let page = session.bulk().list(before, paging::limit(query.limit)?).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.id);
    Ok(Json(PageView {
        next_cursor: next.map(paging::after_id),
        items: page.items.into_iter().map(BulkView::from).collect(),
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemsQuery {
    /// Only `pending`, `done`, `refused` or `failed` ones.
    state: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/bulk/{id}/items`: the executions with what became of each, oldest first.
pub(crate) async fn items(
    As(session): As,
    BulkId(id): BulkId,
    Query(query): Query<ItemsQuery>,
) -> Result<Json<PageView<BulkItemView>>, ApiError> {
    let wrong = || ApiError::parameter("`state` must be pending, done, refused or failed");
    let state = query.state.filter(|word| !word.is_empty());
    let state = state
        .map(|word| ItemState::parse(&word).ok_or_else(wrong))
        .transpose()?;
    let after = query.cursor.as_deref().map(paging::run).transpose()?;
    let limit = paging::limit(query.limit)?;
    let page = session.bulk().items(id, state, after, limit).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.run);
    Ok(Json(PageView {
        next_cursor: next.map(paging::after_run),
        items: page.items.into_iter().map(BulkItemView::from).collect(),
    }))
}
