//! The inbox: requests that wait for the answer of a person or a worker. Workers claim them under leases.
//!
//! What must stay true:
//! * An answer is durable before the response 2xx.
//! * A GET never answers anything.
//! * Answers are read by the engine (`Engine::inbox`); nothing here knows what a node accepts.

use super::executions::wait_time;
use crate::{
    Web,
    body::run_to_completion,
    door::{As, Credential},
    error::{ApiError, Detail},
    extract::{ExecutionNode, ItemId, OptionalJson, Query, name},
    paging,
    strict_json::Strict,
    time::Iso,
    views::PageView,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, duration};
use fermata_runtime::{
    EngineError, Refusal, Session,
    inbox::{Given, Reply, Task, TaskClaim},
    memory::Share,
};
use fermata_store::{
    StoreError,
    inbox::{Heartbeat, ItemFilter, ItemStatus, StoredItem, WaitRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

/// The lease of a claim without `lease`, and the longest one.
const LEASE: Duration = Duration::from_secs(60);
const MAX_LEASE: Duration = Duration::from_secs(24 * 3600);

/// The most tasks of one claim.
const MAX_CLAIM: u32 = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    status: Option<String>,
    queue: Option<String>,
    tenant_id: Option<String>,
    execution_id: Option<Uuid>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// An item of the inbox.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemView {
    id: Uuid,
    kind: &'static str,
    status: &'static str,
    queue: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    workflow_id: String,
    #[schemars(with = "Uuid")]
    execution_id: RunId,
    node_id: String,
    attempt: u32,
    /// Title, description, fields and outcomes.
    #[serde(flatten)]
    details: Map<String, Value>,
    created_at: Iso,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_at: Option<Iso>,
}

/// The newest lease of an item. Its id is a credential, which only its worker gets.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LeaseView {
    worker: String,
    until: Iso,
}

/// An item with what is needed to work on it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView {
    #[serde(flatten)]
    item: ItemView,
    state: Value,
    idempotency_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<Uuid>,
}

/// The members of an item's details that are shown.
const SHOWN: [&str; 4] = ["title", "description", "fields", "outcomes"];

impl From<StoredItem> for ItemView {
    fn from(stored: StoredItem) -> ItemView {
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let details: Map<String, Value> = serde_json::from_str(&stored.item.details).unwrap_or_default();
        ItemView {
            id: stored.item.id,
            kind: stored.item.kind.as_str(),
            status: stored.status.as_str(),
            queue: stored.item.queue,
            tenant_id: stored.item.tenant,
            workflow_id: stored.item.workflow_id,
            execution_id: stored.run,
            node_id: stored.node.to_string(),
            attempt: stored.attempt,
            details: details
                .into_iter()
                .filter(|(name, _)| SHOWN.contains(&name.as_str()))
                .collect(),
            created_at: Iso(stored.created_at),
            deadline: stored.deadline.map(Iso),
            lease: stored.lease.map(|lease| LeaseView {
                worker: lease.worker,
                until: Iso(lease.until),
            }),
            progress: json(stored.progress),
            answer: json(stored.payload),
            answered_by: stored.answered_by,
            answered_at: stored.answered_at.map(Iso),
        }
    }
}

impl TaskView {
    fn new(task: Task, with_lease: bool) -> TaskView {
        let lease_id = task.item.lease.as_ref().map(|lease| lease.id);
        TaskView {
            lease_id: lease_id.filter(|_| with_lease),
            state: task.state,
            idempotency_key: task.idempotency_key,
            item: task.item.into(),
        }
    }
}

/// `GET /api/v1/inbox`, oldest first.
pub(crate) async fn list(As(session): As, Query(query): Query<ListQuery>) -> Result<Response, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let unknown = || ApiError::parameter("`status` must be pending, answered or closed");
    let status = given(query.status).map(|word| ItemStatus::parse(&word).ok_or_else(unknown));
    let filter = ItemFilter {
        status: status.transpose()?,
        queue: given(query.queue),
        tenant: given(query.tenant_id),
        run: query.execution_id.map(RunId),
        after: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = session.inbox().list(filter).await?;
    let view = PageView {
        next_cursor: page.next.map(paging::after_id),
        items: page.items.into_iter().map(ItemView::from).collect(),
    };
    Ok(Json(view).into_response())
}

/// `GET /api/v1/inbox/{id}`, with the state that the node sees.
pub(crate) async fn get(As(session): As, ItemId(id): ItemId) -> Result<Json<TaskView>, ApiError> {
    let task = session.inbox().get(id).await?;
    let task = task.ok_or_else(|| no_item(id))?;
    Ok(Json(TaskView::new(task, false)))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ClaimBody {
    queue: String,
    worker: String,
    limit: Option<u32>,
    lease: Option<String>,
    wait: Option<String>,
    tenant_id: Option<String>,
}

/// The tasks that a worker got.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Claimed {
    items: Vec<TaskView>,
}

/// `POST /api/v1/inbox/claim`. With `wait` it responds when there is a task, or after that time. A credential that is revoked while
/// it waits gets no task.
pub(crate) async fn claim(
    State(web): State<Web>,
    As(session): As,
    credential: Credential,
    OptionalJson(body, _share): OptionalJson<ClaimBody>,
) -> Result<Json<Claimed>, ApiError> {
    name("queue", &body.queue)?;
    name("worker", &body.worker)?;
    let limit = body.limit.unwrap_or(1);
    if !(1..=MAX_CLAIM).contains(&limit) {
        let message = format!("`limit` is {limit}; it must be between 1 and {MAX_CLAIM}");
        return Err(ApiError::invalid(message));
    }
    let wait = body
        .wait
        .map(|text| wait_time(&text, web.config.max_wait))
        .transpose()?;
    let claim = TaskClaim {
        queue: body.queue,
        tenant: body.tenant_id.filter(|tenant| !tenant.is_empty()),
        worker: body.worker,
        limit,
        lease: lease_time(body.lease)?,
        wait: wait.unwrap_or_default(),
    };
    let (door, caller, sent) = (&web, &session, &credential);
    let may_claim = || async move { door.still_admits(caller, sent).await.is_ok() };
    let Some(tasks) = session.inbox().claim_while(claim, may_claim).await? else {
        web.still_admits(&session, &credential).await?;
        return Ok(Json(Claimed { items: Vec::new() }));
    };
    let items = tasks.into_iter().map(|task| TaskView::new(task, true)).collect();
    Ok(Json(Claimed { items }))
}

fn lease_time(text: Option<String>) -> Result<Duration, ApiError> {
    let Some(text) = text else { return Ok(LEASE) };
    let lease = match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => duration::parse(&text).ok(),
    };
    let fits = |lease: &Duration| *lease >= Duration::from_millis(100) && *lease <= MAX_LEASE;
    lease
        .filter(fits)
        .ok_or_else(|| ApiError::invalid("`lease` must be a duration such as 30s or 5m, from 100ms to 24h"))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct HeartbeatBody {
    lease_id: Option<Uuid>,
    lease: Option<String>,
    progress: Option<Strict>,
    tenant_id: Option<String>,
}

/// `POST /api/v1/inbox/{id}/heartbeat`
pub(crate) async fn heartbeat(
    As(session): As,
    ItemId(id): ItemId,
    OptionalJson(body, _share): OptionalJson<HeartbeatBody>,
) -> Result<Json<Value>, ApiError> {
    let lease = body.lease_id.ok_or_else(no_lease)?;
    let (extend, progress) = (lease_time(body.lease)?, body.progress.map(|progress| progress.0));
    let inbox = session.inbox();
    let beat = inbox.heartbeat(id, lease, body.tenant_id, extend, progress.as_ref());
    match beat.await? {
        (Heartbeat::Extended, until) => Ok(Json(json!({ "leaseUntil": Iso(until) }))),
        (Heartbeat::Closed, _) => Err(closed()),
        (Heartbeat::LeaseLapsed, _) => Err(lapsed()),
        (Heartbeat::NotFound, _) => Err(no_item(id)),
    }
}

/// An answer, and the members of its body that say whose it is.
struct AnswerBody {
    lease: Option<Uuid>,
    by: Option<String>,
    tenant: Option<String>,
    /// The answer itself: `state`, `outcome` and so on.
    answer: Map<String, Value>,
}

impl AnswerBody {
    fn parse(body: Option<Strict>) -> Result<AnswerBody, ApiError> {
        let Some(Strict(Value::Object(mut answer))) = body else {
            return Err(ApiError::invalid("the body must be a JSON object with the answer"));
        };
        let mut word = |field: &str| match answer.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => name(field, &text).map(|()| Some(text)),
            Some(_) => Err(ApiError::invalid(format!("`{field}` must be a text"))),
        };
        let (lease, by, tenant) = (word("leaseId")?, word("answeredBy")?, word("tenantId")?);
        let lease = lease.map(|text| Uuid::try_parse(&text)).transpose();
        Ok(AnswerBody {
            lease: lease.map_err(|_| ApiError::invalid("`leaseId` must be a UUID"))?,
            by,
            tenant,
            answer,
        })
    }

    fn reply(self, item: Uuid) -> Reply {
        Reply {
            of: WaitRef::Item(item),
            lease: self.lease,
            tenant: self.tenant,
            payload: Value::Object(self.answer),
            is_json: true,
            by: self.by,
        }
    }
}

/// `POST /api/v1/inbox/{id}/complete`: the answer of a worker, under its lease.
pub(crate) async fn complete(
    As(session): As,
    ItemId(id): ItemId,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Json<Value>, ApiError> {
    let reply = AnswerBody::parse(body)?.reply(id);
    if reply.lease.is_none() {
        return Err(no_lease());
    }
    respond(give(&session, reply, share).await?, || no_item(id))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct FailBody {
    lease_id: Option<Uuid>,
    error: Option<Strict>,
    retriable: Option<bool>,
    tenant_id: Option<String>,
    answered_by: Option<String>,
}

/// `POST /api/v1/inbox/{id}/fail`: the attempt failed.
pub(crate) async fn fail(
    As(session): As,
    ItemId(id): ItemId,
    OptionalJson(body, share): OptionalJson<FailBody>,
) -> Result<Json<Value>, ApiError> {
    let lease = Some(body.lease_id.ok_or_else(no_lease)?);
    let wrong = || ApiError::invalid("`error` must be an object with the texts `code` and `message`");
    let Some(Strict(Value::Object(mut error))) = body.error else {
        return Err(wrong());
    };
    if !["code", "message"]
        .iter()
        .all(|member| error.get(*member).is_some_and(Value::is_string))
    {
        return Err(wrong());
    }
    error.extend(
        body.retriable
            .map(|retriable| ("retriable".to_owned(), retriable.into())),
    );
    let reply = Reply {
        of: WaitRef::Item(id),
        lease,
        tenant: body.tenant_id,
        payload: json!({ "error": error }),
        is_json: true,
        by: body.answered_by,
    };
    respond(give(&session, reply, share).await?, || no_item(id))
}

/// `POST /api/v1/inbox/{id}/answer`: the answer of a person.
pub(crate) async fn answer(
    As(session): As,
    ItemId(id): ItemId,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Json<Value>, ApiError> {
    let reply = AnswerBody::parse(body)?.reply(id);
    respond(give(&session, reply, share).await?, || no_item(id))
}

/// `POST /api/v1/executions/{id}/nodes/{node}/callback`: the same bodies as for the callback URL.
pub(crate) async fn callback(
    As(session): As,
    place: ExecutionNode,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Json<Value>, ApiError> {
    let payload = body.map_or(Value::Null, |body| body.0);
    let given = give(&session, place.reply(payload), share).await?;
    respond(given, || place.no_execution())
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompleteNodeBody {
    status: String,
    outputs: Option<Strict>,
    error: Option<Strict>,
}

/// `POST /api/v1/executions/{id}/nodes/{node}/complete`
pub(crate) async fn complete_node(
    As(session): As,
    place: ExecutionNode,
    OptionalJson(body, share): OptionalJson<CompleteNodeBody>,
) -> Result<Json<Value>, ApiError> {
    let payload = match body.status.as_str() {
        "COMPLETED" => json!({ "state": body.outputs.map_or_else(|| json!({}), |outputs| outputs.0) }),
        "FAILED" => json!({ "error": body.error.map_or(Value::Null, |error| error.0) }),
        _ => return Err(ApiError::invalid("`status` must be COMPLETED or FAILED")),
    };
    let given = give(&session, place.reply(payload), share).await?;
    respond(given, || place.no_execution())
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DecideBody {
    outcome: Option<Strict>,
    metadata: Option<Strict>,
}

/// `POST /api/v1/executions/{id}/decisions/{node}`
pub(crate) async fn decide(
    As(session): As,
    place: ExecutionNode,
    OptionalJson(body, share): OptionalJson<DecideBody>,
) -> Result<Json<Value>, ApiError> {
    let mut payload = Map::new();
    payload.extend(body.outcome.map(|outcome| ("outcome".to_owned(), outcome.0)));
    payload.extend(body.metadata.map(|metadata| ("metadata".to_owned(), metadata.0)));
    let given = give(&session, place.reply(Value::Object(payload)), share).await?;
    respond(given, || place.no_execution())
}

impl ExecutionNode {
    fn reply(&self, payload: Value) -> Reply {
        let (run, node) = (self.run, self.node.as_str().into());
        Reply {
            of: WaitRef::Node { run, node },
            lease: None,
            tenant: None,
            payload,
            is_json: true,
            by: None,
        }
    }

    fn no_execution(&self) -> ApiError {
        EngineError::from(Refusal::RunNotFound(self.run)).into()
    }
}

/// Stores an answer even if the client goes away meanwhile.
async fn give(session: &Session, reply: Reply, share: Share) -> Result<Given, ApiError> {
    let session = session.clone();
    let given = run_to_completion(share, async move { session.inbox().answer(reply).await });
    given.await.map_err(not_given)
}

/// The error for an answer that was not stored.
pub(super) fn not_given(error: EngineError) -> ApiError {
    match error {
        error @ EngineError::Store(StoreError::Unknown(_)) => ApiError {
            message: "the database did not confirm the answer; send it again. If the response is 409, the item is closed: read it to see whether this answer was stored".into(),
            ..error.into()
        },
        error => error.into(),
    }
}

/// The response to an answer. An answer that fails the node is stored too: the response names the code.
pub(super) fn respond(given: Given, missing: impl FnOnce() -> ApiError) -> Result<Json<Value>, ApiError> {
    match given {
        Given::Accepted { failure: None, .. } => Ok(Json(json!({ "data": { "status": "received" } }))),
        Given::Accepted {
            failure: Some((code, message)),
            ..
        } => Ok(Json(
            json!({ "data": { "status": "received", "code": code, "message": message } }),
        )),
        Given::Refused { why, problems } => Err(refused(why, problems)),
        Given::Closed => Err(closed()),
        Given::Leased => Err(ApiError::conflict(
            "ITEM_LEASED",
            "a worker holds this task; wait for its answer, or until its lease has lapsed".to_owned(),
        )),
        Given::LeaseLapsed => Err(lapsed()),
        Given::NotFound => Err(missing()),
        Given::NotWaiting { has_node } => Err(ApiError::not_found(
            "NODE_NOT_WAITING",
            match has_node {
                true => "this node does not wait for an answer: it has not sent its request, or it is not a node that sends a request",
                false => "the workflow of this execution has no such node",
            }
            .to_owned(),
        )),
    }
}

fn refused(why: String, problems: Vec<(String, String)>) -> ApiError {
    let details = problems.into_iter().map(|(pointer, message)| Detail::Trigger {
        code: "INVALID_ANSWER",
        severity: "error",
        message,
        pointer,
    });
    ApiError {
        details: details.collect(),
        ..ApiError::new(StatusCode::BAD_REQUEST, "INVALID_ANSWER", why)
    }
}

fn no_item(id: Uuid) -> ApiError {
    ApiError::not_found("ITEM_NOT_FOUND", format!("the inbox has no item {id}"))
}

fn no_lease() -> ApiError {
    ApiError::invalid("`leaseId` is missing; it is in the response to the claim")
}

fn closed() -> ApiError {
    ApiError::conflict(
        "ITEM_CLOSED",
        "this request was already answered, or it has ended (timed out, cancelled or tried again)".to_owned(),
    )
}

fn lapsed() -> ApiError {
    ApiError::conflict(
        "LEASE_LAPSED",
        "this lease has lapsed, or the task was claimed again; claim it again".to_owned(),
    )
}
