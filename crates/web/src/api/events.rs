//! Events: `POST /api/v1/events` takes CloudEvents 1.0 in every HTTP form, and plain JSON.
//!
//! What must stay true: all events of a request, and the deliveries of all triggers that they match, are durable before the
//! response 202, or none of them is.

use crate::{
    Web,
    body::{read, run_to_completion},
    door::As,
    error::ApiError,
    extract::{Query, check_depth, name},
};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
};
use fermata_runtime::triggers::EventAnswer;
use fermata_triggers::{
    Headers,
    cloud_events::{EventError, events_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishQuery {
    tenant_id: Option<String>,
}

/// What became of an event.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventView {
    id: String,
    source: String,
    /// Whether an event with this source and id was received within the last seven days. Nothing was stored then.
    is_duplicate: bool,
    /// How many triggers it matched.
    matched: u32,
}

impl From<EventAnswer> for EventView {
    fn from(answer: EventAnswer) -> EventView {
        EventView {
            id: answer.id,
            source: answer.source,
            is_duplicate: answer.is_duplicate,
            matched: answer.matched,
        }
    }
}

/// One entry for each event, in the order of the request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PublishedEvents {
    items: Vec<EventView>,
}

/// `POST /api/v1/events`
pub(crate) async fn publish(
    State(web): State<Web>,
    As(session): As,
    Query(query): Query<PublishQuery>,
    request: Request,
) -> Result<(StatusCode, Json<PublishedEvents>), ApiError> {
    let tenant = query.tenant_id.filter(|tenant| !tenant.is_empty());
    if let Some(tenant) = &tenant {
        name("tenantId", tenant)?;
    }
    let pairs = request.headers().iter();
    let headers = Headers::new(pairs.map(|(name, value)| (name.as_str(), value.as_bytes())));
    let mut received = read(request, web.config.max_body_bytes, &web).await?;
    received.expand()?;
    let (bytes, share) = (received.bytes, received.share);
    let length = bytes.len();
    let parse = move || {
        // Data that is not JSON may contain any number of brackets.
        if headers.get("content-type").is_some_and(|media| media.contains("json")) {
            check_depth(&bytes)?;
        }
        events_of(&headers, &bytes, &mut || Uuid::now_v7().to_string()).map_err(refused)
    };
    let events = web.offload().run(length, parse).await?;
    let publish = async move { session.triggers().publish(events, tenant.as_deref()).await };
    let answers = run_to_completion(share, publish).await?;
    let items = answers.into_iter().map(EventView::from).collect();
    Ok((StatusCode::ACCEPTED, Json(PublishedEvents { items })))
}

fn refused(error: EventError) -> ApiError {
    match error {
        EventError::UnsupportedType(_) => ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            error.to_string(),
        ),
        EventError::Invalid(_) => ApiError::new(StatusCode::BAD_REQUEST, "INVALID_EVENT", error.to_string()),
    }
}
