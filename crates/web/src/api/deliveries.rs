//! Deliveries of a trigger: what arrived in the last seven days, what became of it, and sending it again.

use super::webhooks::OccurredView;
use crate::{
    door::As,
    error::ApiError,
    extract::{DeliveryOf, Query, TriggerId},
    paging,
    time::Iso,
    views::PageView,
};
use axum::{Json, http::StatusCode};
use fermata_core::RunId;
use fermata_runtime::{
    Refusal, Session,
    triggers::{DeliveryList, DeliveryState, TriggerDelivery},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A delivery.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryView {
    id: Uuid,
    trigger_id: Uuid,
    /// What deduplicates it: the provider's delivery id, the fire time, the event, or an id that was made for it.
    occurrence_id: String,
    received_at: Iso,
    state: &'static str,
    #[schemars(with = "Option<Uuid>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<RunId>,
    /// Why nothing was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The values that a condition saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    saw: Option<Value>,
    /// When a delivery that is not settled is looked at again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
}

impl From<TriggerDelivery> for DeliveryView {
    fn from(delivery: TriggerDelivery) -> DeliveryView {
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let is_run = matches!(
            delivery.state,
            DeliveryState::Started | DeliveryState::Pending | DeliveryState::Queued
        );
        DeliveryView {
            id: delivery.id,
            trigger_id: delivery.trigger,
            occurrence_id: delivery.occurrence,
            received_at: Iso(delivery.received_at),
            state: delivery.state.as_str(),
            execution_id: is_run.then_some(delivery.run),
            reason: delivery.reason,
            saw: json(delivery.saw),
            retry_at: delivery.retry_at.map(Iso),
            payload: json(delivery.payload),
            request: json(delivery.request),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    state: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/triggers/{trigger}/deliveries`, newest first, without payloads.
pub(crate) async fn list(
    As(session): As,
    TriggerId(trigger): TriggerId,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<DeliveryView>>, ApiError> {
    let unknown = || ApiError::parameter("`state` must be pending, queued, started, filtered, refused or skipped");
    let state = query.state.filter(|word| !word.is_empty());
    let state = state.map(|word| DeliveryState::parse(&word).ok_or_else(unknown));
    let filter = DeliveryList {
        state: state.transpose()?,
        before: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = session.triggers().deliveries(trigger, filter).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(PageView {
        next_cursor: last.map(|last| paging::after_id(last.id)),
        items: page.items.into_iter().map(DeliveryView::from).collect(),
    }))
}

/// `GET /api/v1/triggers/{trigger}/deliveries/{delivery}`, with payload and request.
pub(crate) async fn get(As(session): As, of: DeliveryOf) -> Result<Json<DeliveryView>, ApiError> {
    let delivery = delivery(&session, &of).await?;
    Ok(Json(delivery.into()))
}

/// `POST /api/v1/triggers/{trigger}/deliveries/{delivery}/replay`: a new occurrence with the same payload and request.
pub(crate) async fn replay(As(session): As, of: DeliveryOf) -> Result<(StatusCode, Json<OccurredView>), ApiError> {
    delivery(&session, &of).await?;
    let replay = tokio::spawn(async move { session.triggers().replay(of.delivery).await });
    let occurred = replay.await.map_err(|_| ApiError::internal("INTERNAL"))??;
    Ok((StatusCode::ACCEPTED, Json(OccurredView::new(occurred))))
}

/// The delivery, if it belongs to the trigger of the path.
async fn delivery(session: &Session, of: &DeliveryOf) -> Result<TriggerDelivery, ApiError> {
    let delivery = session.triggers().delivery(of.delivery).await?;
    match delivery.trigger == of.trigger {
        true => Ok(delivery),
        false => Err(Refusal::DeliveryNotFound(of.delivery).into()),
    }
}
