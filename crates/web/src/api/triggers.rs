//! Triggers: create, list, read, change, fire and rotate them, and preview fire times.
//!
//! What must stay true: the id of a trigger is the first path segment of its webhook, and with it a credential. So every route
//! that shows one needs `workflows:manage`.

use super::webhooks::OccurredView;
use crate::{
    Web,
    body::run_to_completion,
    door::As,
    error::ApiError,
    extract::{IdempotencyKey, OptionalJson, Query, TriggerId, name},
    paging,
    strict_json::Strict,
    time::Iso,
    views::PageView,
};
use axum::{Json, extract::State, http::StatusCode};
use fermata_core::{RunId, duration};
use fermata_runtime::triggers::{NewTrigger, Trigger, TriggerList, TriggerType, TriggerUpdate};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use uuid::Uuid;

/// How many fire times a schedule shows.
const SHOWN_TIMES: u32 = 5;
/// The most fire times of a preview.
const MOST_TIMES: u32 = 100;
/// How long the old URL of a rotated webhook is accepted, unless the request says otherwise, and at most.
const GRACE: Duration = Duration::from_secs(24 * 3600);
const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A trigger.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TriggerView {
    id: Uuid,
    workflow_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    trigger_type: &'static str,
    /// Its name in the document that declares it. Such a trigger is changed by publishing.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    is_enabled: bool,
    /// Whether archiving the workflow disabled it.
    disabled_by_archive: bool,
    config_json: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    activation_condition: Option<String>,
    /// Where requests are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_url: Option<String>,
    /// The URL before the last rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_webhook_url: Option<String>,
    /// Until when the old URL is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_webhook_until: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_fire_at: Option<Iso>,
    /// The next fire times, without jitter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next_fire_times: Vec<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_delivery: Option<LastView>,
    created_at: Iso,
    updated_at: Iso,
}

/// The last delivery of a schedule that started a run or will.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LastView {
    occurrence_id: String,
    #[schemars(with = "Uuid")]
    execution_id: RunId,
    at: Iso,
}

impl TriggerView {
    fn new(web: &Web, trigger: Trigger) -> TriggerView {
        let url = |segment: Uuid| web.webhooks.url(&web.settings().public_url, segment);
        let old = trigger.old_segment.filter(|_| trigger.segment.is_some());
        TriggerView {
            id: trigger.id,
            workflow_id: trigger.workflow_id,
            tenant_id: trigger.tenant,
            trigger_type: trigger.kind.as_str(),
            name: trigger.name,
            is_enabled: trigger.enabled,
            disabled_by_archive: trigger.disabled_by_archive,
            config_json: serde_json::from_str(&trigger.config).unwrap_or(Value::Null),
            activation_condition: trigger.condition,
            webhook_url: trigger.segment.map(url),
            old_webhook_url: old.map(|(segment, _)| url(segment)),
            old_webhook_until: old.map(|(_, until)| Iso(until)),
            next_fire_at: trigger.next_fire_at.map(Iso),
            next_fire_times: Vec::new(),
            last_delivery: trigger.last.map(|last| LastView {
                occurrence_id: last.occurrence,
                execution_id: last.run,
                at: Iso(last.at),
            }),
            created_at: Iso(trigger.created_at),
            updated_at: Iso(trigger.updated_at),
        }
    }

    /// With the next fire times of a schedule that is enabled. A trigger is shown even if they cannot be computed.
    fn with_times(web: &Web, session: &fermata_runtime::Session, trigger: Trigger) -> TriggerView {
        let is_due = trigger.kind == TriggerType::Schedule && trigger.enabled;
        let mut view = TriggerView::new(web, trigger);
        if is_due {
            let times = session
                .triggers()
                .preview(TriggerType::Schedule, &view.config_json, SHOWN_TIMES);
            view.next_fire_times = times.unwrap_or_default().into_iter().map(Iso).collect();
        }
        view
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    workflow_id: Option<String>,
    trigger_type: Option<String>,
    is_enabled: Option<bool>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/triggers?workflowId=&triggerType=&isEnabled=`
pub(crate) async fn list(
    State(web): State<Web>,
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<TriggerView>>, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let kind = given(query.trigger_type).map(|word| TriggerType::parse(&word).ok_or_else(unknown_type));
    let filter = TriggerList {
        workflow: given(query.workflow_id),
        kind: kind.transpose()?,
        enabled: query.is_enabled,
        after: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = session.triggers().list(filter).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(PageView {
        next_cursor: last.map(|last| paging::after_id(last.id)),
        items: page
            .items
            .into_iter()
            .map(|trigger| TriggerView::new(&web, trigger))
            .collect(),
    }))
}

fn unknown_type() -> ApiError {
    ApiError::parameter("`triggerType` must be Webhook, Schedule, Event or Manual")
}

/// `GET /api/v1/triggers/{trigger}`, with the next fire times of a schedule.
pub(crate) async fn get(
    State(web): State<Web>,
    As(session): As,
    TriggerId(id): TriggerId,
) -> Result<Json<TriggerView>, ApiError> {
    let trigger = session.triggers().get(id).await?;
    Ok(Json(TriggerView::with_times(&web, &session, trigger)))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CreateBody {
    workflow_id: String,
    trigger_type: String,
    /// An object, or a text with the JSON of one.
    config_json: Option<Strict>,
    activation_condition: Option<String>,
    is_enabled: Option<bool>,
}

/// `POST /api/v1/triggers`. The URL of a webhook works at once.
pub(crate) async fn create(
    State(web): State<Web>,
    As(session): As,
    OptionalJson(body, share): OptionalJson<CreateBody>,
) -> Result<(StatusCode, Json<TriggerView>), ApiError> {
    name("workflowId", &body.workflow_id)?;
    let new = NewTrigger {
        workflow: body.workflow_id,
        kind: kind_of(&body.trigger_type)?,
        config: config_of(body.config_json)?.unwrap_or_else(|| Value::Object(Map::new())),
        condition: body.activation_condition.filter(|condition| !condition.is_empty()),
        enabled: body.is_enabled.unwrap_or(true),
    };
    let create = async move {
        let trigger = session.triggers().create(new).await?;
        Ok::<_, ApiError>((session, trigger))
    };
    let (session, trigger) = run_to_completion(share, create).await?;
    let view = TriggerView::with_times(&web, &session, trigger);
    Ok((StatusCode::CREATED, Json(view)))
}

fn kind_of(word: &str) -> Result<TriggerType, ApiError> {
    TriggerType::parse(word)
        .ok_or_else(|| ApiError::invalid("`triggerType` must be Webhook, Schedule, Event or Manual"))
}

/// The configuration of a body.
fn config_of(given: Option<Strict>) -> Result<Option<Value>, ApiError> {
    match given.map(|given| given.0) {
        Some(Value::String(text)) => match serde_json::from_str::<Strict>(&text) {
            Ok(config) => Ok(Some(config.0)),
            Err(error) => Err(ApiError::invalid(format!("`configJson` is not valid JSON: {error}"))),
        },
        Some(Value::Null) | None => Ok(None),
        other => Ok(other),
    }
}

/// What is absent stays as it is.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct UpdateBody {
    trigger_type: Option<String>,
    /// An object, or a text with the JSON of one.
    config_json: Option<Strict>,
    /// `null` removes the condition.
    #[serde(deserialize_with = "present")]
    activation_condition: Option<Option<String>>,
    is_enabled: Option<bool>,
}

/// A field that is there, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// `PUT /api/v1/triggers/{trigger}`
pub(crate) async fn update(
    State(web): State<Web>,
    As(session): As,
    TriggerId(id): TriggerId,
    OptionalJson(body, share): OptionalJson<UpdateBody>,
) -> Result<Json<TriggerView>, ApiError> {
    let update = TriggerUpdate {
        kind: body.trigger_type.as_deref().map(kind_of).transpose()?,
        config: config_of(body.config_json)?,
        condition: body
            .activation_condition
            .map(|given| given.filter(|condition| !condition.is_empty())),
        enabled: body.is_enabled,
    };
    let update = async move {
        let trigger = session.triggers().update(id, update).await?;
        Ok::<_, ApiError>((session, trigger))
    };
    let (session, trigger) = run_to_completion(share, update).await?;
    Ok(Json(TriggerView::with_times(&web, &session, trigger)))
}

/// `DELETE /api/v1/triggers/{trigger}`
pub(crate) async fn delete(As(session): As, TriggerId(id): TriggerId) -> Result<StatusCode, ApiError> {
    session.triggers().delete(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/v1/triggers/{trigger}/enable`
pub(crate) async fn enable(
    State(web): State<Web>,
    As(session): As,
    TriggerId(id): TriggerId,
) -> Result<Json<TriggerView>, ApiError> {
    let trigger = session.triggers().set_enabled(id, true).await?;
    Ok(Json(TriggerView::with_times(&web, &session, trigger)))
}

/// `POST /api/v1/triggers/{trigger}/disable`
pub(crate) async fn disable(
    State(web): State<Web>,
    As(session): As,
    TriggerId(id): TriggerId,
) -> Result<Json<TriggerView>, ApiError> {
    let trigger = session.triggers().set_enabled(id, false).await?;
    Ok(Json(TriggerView::new(&web, trigger)))
}

/// `POST /api/v1/triggers/{trigger}/fire`: the body is the trigger of the run. `Idempotency-Key` deduplicates.
pub(crate) async fn fire(
    As(session): As,
    TriggerId(id): TriggerId,
    IdempotencyKey(key): IdempotencyKey,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<(StatusCode, Json<OccurredView>), ApiError> {
    let payload = body.map_or_else(|| Value::Object(Map::new()), |body| body.0);
    let fire = async move { session.triggers().fire(id, payload, key).await };
    let occurred = run_to_completion(share, fire).await?;
    Ok((StatusCode::ACCEPTED, Json(OccurredView::new(occurred))))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct RotateBody {
    /// How long the old URL is accepted, such as `24h`; `0s` for not at all.
    grace: Option<String>,
}

/// `POST /api/v1/triggers/{trigger}/rotate`: a new URL for a webhook.
pub(crate) async fn rotate(
    State(web): State<Web>,
    As(session): As,
    TriggerId(id): TriggerId,
    OptionalJson(body, _share): OptionalJson<RotateBody>,
) -> Result<Json<TriggerView>, ApiError> {
    let grace = body.grace.as_deref().map_or(Ok(GRACE), |text| {
        let grace = duration::parse(text).ok().filter(|grace| *grace <= MAX_GRACE);
        grace.ok_or_else(|| ApiError::invalid("`grace` must be a duration such as 24h, at most 30d"))
    })?;
    let trigger = session.triggers().rotate(id, grace).await?;
    Ok(Json(TriggerView::new(&web, trigger)))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PreviewBody {
    trigger_type: Option<String>,
    config_json: Option<Strict>,
    count: Option<u32>,
}

/// The fire times of a configuration.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviewView {
    fire_times: Vec<Iso>,
}

/// `POST /api/v1/triggers/preview`: checks a configuration and shows when it fires next, without saving it.
pub(crate) async fn preview(
    As(session): As,
    OptionalJson(body, _share): OptionalJson<PreviewBody>,
) -> Result<Json<PreviewView>, ApiError> {
    let kind = kind_of(body.trigger_type.as_deref().unwrap_or(TriggerType::Schedule.as_str()))?;
    let count = body.count.unwrap_or(SHOWN_TIMES);
    if !(1..=MOST_TIMES).contains(&count) {
        let message = format!("`count` is {count}; it must be between 1 and {MOST_TIMES}");
        return Err(ApiError::invalid(message));
    }
    let config = config_of(body.config_json)?.unwrap_or_else(|| Value::Object(Map::new()));
    let times = session.triggers().preview(kind, &config, count)?;
    let fire_times = times.into_iter().map(Iso).collect();
    Ok(Json(PreviewView { fire_times }))
}
