//! Executions (runs): start, read, cancel.

use crate::{
    Web,
    door::{As, Credential},
    envelope::CORRELATION_ID,
    error::ApiError,
    extract::{CorrelationId, ExecutionId, Name, OptionalJson, Query, Traceparent, name},
    paging,
    strict_json::Strict,
    views::{AcceptedView, ActionView, EventView, Included, ResourceView, RunRow, RunView, WaitView},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, Status, duration};
use fermata_runtime::{Request, Scope, Session};
use fermata_store::{reads::Window, runs::Principal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long a cancel request waits for the run to end before it answers 202.
const CANCEL_WAIT: Duration = Duration::from_millis(300);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartQuery {
    pub(super) wait: Option<String>,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartBody {
    request_id: Option<String>,
    principal: Option<PrincipalBody>,
    trigger: Option<Strict>,
    priority: Option<i32>,
    tenant_id: Option<String>,
    spec: Option<Strict>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PrincipalBody {
    user_id: String,
    display_name: Option<String>,
    email: Option<String>,
}

/// `POST /api/v1/workflows/{id}/execute`. With `?wait=30s` it responds when the run ends, or after that time.
pub(crate) async fn start(
    State(web): State<Web>,
    As(session): As,
    Name(reference): Name,
    Query(query): Query<StartQuery>,
    (CorrelationId(correlation_id), Traceparent(traceparent)): (CorrelationId, Traceparent),
    credential: Credential,
    OptionalJson(body, share): OptionalJson<StartBody>,
) -> Result<Response, ApiError> {
    let wait = query
        .wait
        .map(|text| wait_time(&text, web.config.max_wait))
        .transpose()?;
    let has_correlation_id = correlation_id.is_some();
    let (mut request, principal) = request_of(reference, correlation_id, body)?;
    request.traceparent = traceparent;
    request.memory = Some(Arc::new(share));
    let (accepted, ended) = match wait {
        None => (session.start(request, principal).await?, None),
        Some(limit) => session.start_and_wait(request, principal, limit).await?,
    };
    // The run is durable. After an error the client would start a second one, so the response does not depend on this read.
    let shown = match ended {
        // The credential may have been revoked while this waited.
        Some(_) if web.still_admits(&session, &credential).await.is_ok() => {
            run_response(&session, accepted.run).await.ok()
        }
        Some(_) | None => None,
    };
    let mut response = shown.unwrap_or_else(|| {
        let code = match accepted.created || wait.is_some() {
            true => StatusCode::ACCEPTED,
            false => StatusCode::OK,
        };
        let status = ended.map_or(accepted.status, |ended| ended.status);
        (code, Json(AcceptedView::new(accepted.run, status))).into_response()
    });
    if !has_correlation_id {
        set_correlation_id(&mut response, accepted.run);
    }
    Ok(response)
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewExecutionBody")]
pub(crate) struct CreateBody {
    workflow_id: Option<String>,
    workflow_version: Option<Value>,
    inputs: Option<Strict>,
    request_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedExecutionView")]
pub(crate) struct CreatedView {
    execution_id: String,
    #[schemars(with = "String")]
    status: Status,
}

/// `POST /api/v1/executions`: starts a workflow of any dialect. Names are in snake_case.
pub(crate) async fn create(
    As(session): As,
    CorrelationId(correlation_id): CorrelationId,
    Traceparent(traceparent): Traceparent,
    OptionalJson(body, share): OptionalJson<CreateBody>,
) -> Result<Response, ApiError> {
    let missing = || ApiError::invalid("invalid body: missing field `workflow_id`");
    let reference = body.workflow_id.ok_or_else(missing)?;
    let has_correlation_id = correlation_id.is_some();
    let start = StartBody {
        request_id: body.request_id,
        trigger: body.inputs,
        ..StartBody::default()
    };
    let (mut request, principal) = request_of(reference, correlation_id, start)?;
    if let Some(version) = body.workflow_version.filter(|version| !version.is_null()) {
        let workflow = session.reads().workflow(&request.workflow_id).await?;
        let label = match &version {
            Value::String(label) => label.clone(),
            version => version.to_string(),
        };
        request.version = Some(session.workflows().version_number(&workflow, &label).await?);
    }
    request.traceparent = traceparent;
    request.memory = Some(Arc::new(share));
    let accepted = session.start(request, principal).await?;
    let status = match accepted.created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let view = CreatedView {
        execution_id: accepted.run.to_string(),
        status: accepted.status,
    };
    let mut response = (status, Json(view)).into_response();
    if !has_correlation_id {
        set_correlation_id(&mut response, accepted.run);
    }
    Ok(response)
}

/// If the request has no correlation id, the run id is the correlation id of the run and of the response.
pub(super) fn set_correlation_id(response: &mut Response, run: RunId) {
    if let Ok(id) = HeaderValue::try_from(run.to_string()) {
        response.headers_mut().insert(CORRELATION_ID, id);
    }
}

/// The request, and the principal that the body names. The tenant and the principal are checked when the run is started.
fn request_of(
    workflow_id: String,
    correlation_id: Option<String>,
    body: StartBody,
) -> Result<(Request, Option<Principal>), ApiError> {
    if let Some(id) = &body.request_id {
        name("requestId", id)?;
    }
    if let Some(tenant) = body.tenant_id.as_ref().filter(|tenant| !tenant.is_empty()) {
        name("tenantId", tenant)?;
    }
    let principal = principal_of(body.principal)?;
    let request = Request {
        workflow_id,
        request_id: body.request_id,
        trigger: body
            .trigger
            .map_or_else(|| Value::Object(Map::new()), |trigger| trigger.0),
        spec: body.spec.map(|spec| spec.0),
        priority: body.priority,
        tenant: body.tenant_id.unwrap_or_default(),
        correlation_id,
        ..Request::default()
    };
    Ok((request, principal))
}

/// The principal that a body names.
pub(super) fn principal_of(named: Option<PrincipalBody>) -> Result<Option<Principal>, ApiError> {
    let Some(principal) = named else {
        return Ok(None);
    };
    name("principal.userId", &principal.user_id)?;
    // These may be empty strings.
    for (field, text) in [
        ("principal.displayName", &principal.display_name),
        ("principal.email", &principal.email),
    ] {
        let given = text.as_ref().filter(|text| !text.is_empty());
        given.map_or(Ok(()), |text| name(field, text))?;
    }
    Ok(Some(Principal {
        user_id: principal.user_id,
        display_name: principal.display_name,
        email: principal.email,
    }))
}

/// `30s`, `500ms`, `2m`, or a number of seconds.
pub(super) fn wait_time(text: &str, most: Duration) -> Result<Duration, ApiError> {
    let asked = match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => duration::parse(text).ok(),
    };
    asked.filter(|asked| *asked <= most).ok_or_else(|| {
        let most = most.as_secs();
        ApiError::parameter(format!(
            "`wait` must be a duration such as 500ms, 30s or 2m, at most {most} seconds"
        ))
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetQuery {
    include: Option<String>,
    limit: Option<u32>,
    offset: Option<u32>,
    /// Only children after this one.
    #[serde(rename = "childrenAfter")]
    #[schemars(with = "Option<uuid::Uuid>")]
    children_after: Option<RunId>,
}

/// The parts that `include` adds to a run.
#[derive(Default)]
struct Include {
    actions: bool,
    events: bool,
    resources: bool,
    children: bool,
    waits: bool,
}

impl Include {
    fn parse(words: &str) -> Result<Include, ApiError> {
        let mut include = Include::default();
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "actions" => include.actions = true,
                "events" => include.events = true,
                "resources" => include.resources = true,
                "children" => include.children = true,
                "waits" => include.waits = true,
                _ => {
                    let shown: String = word.chars().take(60).collect();
                    let message = format!(
                        "`{shown}` cannot be included; `include` takes actions, children, events, resources and waits"
                    );
                    return Err(ApiError::parameter(message));
                }
            }
        }
        Ok(include)
    }
}

/// `GET /api/v1/executions/{id}?include=actions,children,events,resources,waits&limit=100&offset=0&childrenAfter={id}`
pub(crate) async fn get(
    State(web): State<Web>,
    As(session): As,
    ExecutionId(id): ExecutionId,
    Query(query): Query<GetQuery>,
) -> Result<Response, ApiError> {
    let include = Include::parse(query.include.as_deref().unwrap_or_default())?;
    let window = Window {
        limit: paging::limit(query.limit)?,
        offset: query.offset.unwrap_or(0),
    };
    let reads = session.reads();
    let run = reads.run(id).await?;
    let mut included = Included::default();
    let actions = match include.actions {
        true => Some(reads.actions(id, window).await?),
        false => None,
    };
    if let Some((actions, total)) = &actions {
        included.actions = Some(actions.iter().map(ActionView::from).collect());
        included.actions_total = Some(*total);
    }
    if include.events {
        let (events, total) = reads.events(&run, window).await?;
        included.events = Some(events.into_iter().map(EventView::from).collect());
        included.events_total = Some(total);
    }
    let links = match include.resources {
        true => Some(reads.links(id, window).await?),
        false => None,
    };
    if let Some((links, total)) = &links {
        included.resources = Some(links.iter().map(ResourceView::from).collect());
        included.resources_total = Some(*total);
    }
    let children = match include.children {
        true => Some(reads.children(id, query.children_after, window.limit).await?),
        false => None,
    };
    if include.waits {
        let base = web.settings().public_url.trim_end_matches('/').to_owned();
        let waits = reads.waits(id).await?;
        // Who may not answer does not get the address of the answer.
        let may_answer = session.caller().has(Scope::Execute);
        let view = |wait| WaitView::new(wait, may_answer.then_some(base.as_str()));
        included.waits = Some(waits.iter().map(view).collect());
    }
    if let Some(page) = &children {
        included.children = Some(page.items.iter().map(RunRow::from).collect());
        included.more_children = page.more.then_some(true);
        let items = reads.items(id).await?;
        let items = items.into_iter().map(|(node, items)| (node.to_string(), items.into()));
        included.items = Some(items.collect()).filter(|items: &BTreeMap<_, _>| !items.is_empty());
    }
    let ahead = reads.ahead(&run).await?;
    Ok(Json(RunView::new(&run, ahead, included)).into_response())
}

/// The response of a GET without `include`.
pub(super) async fn run_response(session: &Session, id: RunId) -> Result<Response, ApiError> {
    let reads = session.reads();
    let run = reads.recent_run(id).await?;
    let ahead = reads.ahead(&run).await?;
    Ok(Json(RunView::new(&run, ahead, Included::default())).into_response())
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelBody {
    reason: Option<String>,
}

/// `POST /api/v1/executions/{id}/cancel`: 200 if the run has ended, 202 while it stops.
pub(crate) async fn cancel(
    As(session): As,
    ExecutionId(id): ExecutionId,
    OptionalJson(body, _share): OptionalJson<CancelBody>,
) -> Result<Response, ApiError> {
    let status = cancel_and_wait(&session, id, body).await?;
    let code = match status.is_terminal() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((code, Json(AcceptedView::new(id, status))).into_response())
}

/// Cancels a run and waits a short time for it to end.
pub(super) async fn cancel_and_wait(session: &Session, id: RunId, body: CancelBody) -> Result<Status, ApiError> {
    if let Some(reason) = &body.reason {
        name("reason", reason)?;
    }
    let reason = body.reason.as_deref().unwrap_or("cancelled");
    let status = session.cancel(id, reason).await?;
    if status.is_terminal() {
        return Ok(status);
    }
    // The cancel is durable, so the response does not depend on these reads.
    let ended = session.wait(id, CANCEL_WAIT).await.ok().flatten();
    Ok(ended.map_or(status, |ended| ended.status))
}

/// `DELETE /api/v1/executions/{id}`: removes an execution that has ended, with the executions that it started.
pub(crate) async fn delete(As(session): As, ExecutionId(id): ExecutionId) -> Result<StatusCode, ApiError> {
    session.delete_run(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_times_have_units_and_a_maximum() {
        let most = Duration::from_secs(300);
        let read = |text| wait_time(text, most).ok().map(|time| time.as_millis());
        for (text, millis) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("7", 7_000),
            ("0", 0),
            ("5m", 300_000),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
        ] {
            assert_eq!(read(text), Some(millis), "{text}");
        }
        for text in [
            "",
            "s",
            "-1",
            "1h",
            "301",
            "6m",
            "99999999999999999999",
            "18446744073709551615m",
            "1é",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
