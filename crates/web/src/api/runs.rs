//! Runs in the format of the Runlater specification: snake_case below `data`, with their tasks. For workflows of any
//! dialect. The rest of this API shows the same runs as executions.

use super::executions::{CancelBody, cancel_and_wait, set_correlation_id};
use crate::{
    door::As,
    error::ApiError,
    extract::{CorrelationId, IdempotencyKey, Name, OptionalJson, Query, RunOf, Traceparent},
    paging,
    run_views::{DataPage, DataView, RunStatus, RunWithTasks, ShortRun, TriggeredRun},
    strict_json::Strict,
};
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, Status};
use fermata_runtime::{Accepted, Refusal, Request, Session};
use fermata_store::reads::{RunFilter, RunPage, RunRecord};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use uuid::Uuid;

/// The trigger of a run: any JSON value.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Trigger(Strict);

impl Default for Trigger {
    fn default() -> Self {
        Trigger(Strict(Value::Object(Map::new())))
    }
}

/// No query parameters are allowed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// `POST /api/v1/workflows/{id}/trigger`: the body is the trigger.
pub(crate) async fn trigger(
    As(session): As,
    Name(reference): Name,
    Query(NoQuery {}): Query<NoQuery>,
    CorrelationId(correlation_id): CorrelationId,
    Traceparent(traceparent): Traceparent,
    IdempotencyKey(request_id): IdempotencyKey,
    OptionalJson(Trigger(Strict(trigger)), share): OptionalJson<Trigger>,
) -> Result<Response, ApiError> {
    let has_correlation_id = correlation_id.is_some();
    let request = Request {
        workflow_id: reference,
        request_id,
        trigger,
        correlation_id,
        traceparent,
        memory: Some(Arc::new(share)),
        ..Request::default()
    };
    let accepted = session.start(request, None).await?;
    // The run is durable. After an error the client would start a second one, so the response does not depend on this read.
    let run = row(&session, accepted.run).await.ok();
    let (code, data) = triggered(&accepted, run.as_ref());
    let mut response = (code, Json(DataView { data })).into_response();
    if !has_correlation_id {
        set_correlation_id(&mut response, accepted.run);
    }
    Ok(response)
}

/// The response for a run that was accepted; `run` is `None` if it could not be read.
fn triggered(accepted: &Accepted, run: Option<&RunRecord>) -> (StatusCode, TriggeredRun) {
    // A new run is reported as running, even if it has ended already.
    let (code, status) = match (accepted.created, run) {
        (true, _) => (StatusCode::CREATED, RunStatus::Running),
        (false, Some(run)) => (StatusCode::OK, RunStatus::of(run)),
        (false, None) => (StatusCode::OK, accepted.status.into()),
    };
    let data = match run {
        Some(run) => TriggeredRun::new(run, status),
        None => TriggeredRun::unread(accepted, status),
    };
    (code, data)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    status: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/workflows/{id}/runs?status=running&limit=100&cursor=…`, newest first.
pub(crate) async fn list(
    As(session): As,
    Name(reference): Name,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let words = parse_statuses(query.status.as_deref().unwrap_or_default())?;
    let limit = paging::limit(query.limit)?;
    let before = query.cursor.as_deref().map(paging::run).transpose()?;
    let workflow = workflow_of_runs(&session, &reference).await?;
    let page = runs(&session, workflow, &words, before, limit).await?;
    let view = DataPage {
        data: page.items.iter().map(ShortRun::from).collect(),
        next_cursor: page.next.map(paging::after_run),
    };
    Ok(Json(view).into_response())
}

/// Statuses separated by commas.
fn parse_statuses(text: &str) -> Result<Vec<RunStatus>, ApiError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let unknown = || {
        ApiError::parameter(
            "`status` must be running, completed, failed, timeout or cancelled, or several of them separated by commas",
        )
    };
    words.map(|word| RunStatus::parse(word).ok_or_else(unknown)).collect()
}

/// The store does not distinguish `timeout` from `failed`, so runs that do not match are dropped here and more are read, at
/// most this many times. A page that is short for this reason has a cursor.
const MAX_READS: usize = 10;

async fn runs(
    session: &Session,
    workflow: Uuid,
    words: &[RunStatus],
    before: Option<RunId>,
    limit: u32,
) -> Result<RunPage, ApiError> {
    let fits = |run: &RunRecord| words.is_empty() || words.contains(&RunStatus::of(run));
    let is_exact = words.contains(&RunStatus::Failed) == words.contains(&RunStatus::Timeout);
    let mut statuses: Vec<Status> = words.iter().flat_map(|word| word.statuses()).copied().collect();
    statuses.sort();
    statuses.dedup();
    let mut filter = RunFilter {
        workflows: vec![workflow],
        statuses,
        before,
        limit,
        ..RunFilter::default()
    };
    let wanted = limit as usize;
    let mut items = Vec::new();
    for _ in 0..if is_exact { 1 } else { MAX_READS } {
        let page = session.reads().runs(filter.clone()).await?;
        items.extend(page.items.into_iter().filter(fits));
        filter.before = page.next;
        if filter.before.is_none() || items.len() >= wanted {
            break;
        }
    }
    if items.len() > wanted {
        items.truncate(wanted);
        filter.before = items.last().map(|run| run.id);
    }
    Ok(RunPage {
        items,
        next: filter.before,
    })
}

/// `GET /api/v1/workflows/{id}/runs/{run_id}`
pub(crate) async fn get(As(session): As, place: RunOf) -> Result<Response, ApiError> {
    let run = run_of_workflow(&session, place).await?;
    run_response(&session, run.id).await
}

/// `POST /api/v1/workflows/{id}/runs/{run_id}/cancel`
pub(crate) async fn cancel(
    As(session): As,
    place: RunOf,
    OptionalJson(body, _share): OptionalJson<CancelBody>,
) -> Result<Response, ApiError> {
    let run = run_of_workflow(&session, place).await?;
    let status = cancel_and_wait(&session, run.id, body).await?;
    // The cancel is durable, so the response does not depend on this read.
    run_response(&session, run.id).await.or_else(|_| {
        let run = RunRecord { status, ..run };
        let data = TriggeredRun::new(&run, RunStatus::of(&run));
        Ok((StatusCode::ACCEPTED, Json(DataView { data })).into_response())
    })
}

/// The workflow whose runs are requested. A deleted workflow is found by its uid.
async fn workflow_of_runs(session: &Session, reference: &str) -> Result<Uuid, ApiError> {
    let workflow = session.reads().find_workflow(reference).await?;
    let uid = workflow.map(|workflow| workflow.uid);
    uid.ok_or_else(|| Refusal::WorkflowNotFound(reference.to_owned()).into())
}

/// A run without its payloads.
async fn row(session: &Session, id: RunId) -> Result<RunRecord, ApiError> {
    let run = session.reads().run_row(id).await?;
    run.ok_or_else(|| Refusal::RunNotFound(id).into())
}

/// The run, if it belongs to that workflow.
async fn run_of_workflow(session: &Session, place: RunOf) -> Result<RunRecord, ApiError> {
    let workflow = workflow_of_runs(session, &place.workflow).await?;
    let run = row(session, place.run).await?;
    match run.workflow_uid == workflow {
        true => Ok(run),
        false => Err(Refusal::RunNotFound(run.id).into()),
    }
}

async fn run_response(session: &Session, run: RunId) -> Result<Response, ApiError> {
    let overview = session.reads().overview(run).await?;
    let data = RunWithTasks::new(&overview, session.now());
    Ok(Json(DataView { data }).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accepted_run_that_cannot_be_read_is_reported_as_accepted() {
        for (created, status, expected) in [
            (true, Status::Pending, (201, "running")),
            (false, Status::Cancelled, (200, "cancelled")),
        ] {
            let accepted = Accepted {
                run: RunId(Uuid::now_v7()),
                workflow_uid: Uuid::now_v7(),
                status,
                created,
            };
            let (code, run) = triggered(&accepted, None);
            let view = json!({ "run_id": accepted.run, "workflow_id": accepted.workflow_uid, "status": expected.1 });
            assert_eq!((code.as_u16(), json!(run)), (expected.0, view));
        }
    }
}
