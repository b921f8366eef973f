//! Webhooks: a provider sends a request, and a workflow starts. The last segment of the path is the credential, together
//! with the signature if the trigger has one.
//!
//! What must stay true:
//! * The occurrence is durable before the response 2xx.
//! * A stranger gets the same response for an unknown, disabled, unsigned and wrongly signed request: [`unknown`].
//! * Everything that is checked before the lookup is the same for every path: the size and depth of the body, and the time
//!   it takes.
//! * The segment is never logged and never part of a response.

use crate::{
    Web,
    body::{is_json, read},
    error::ApiError,
    extract::check_depth,
    views::{JsonText, StatusUrl},
};
use axum::{
    Json,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, Status};
use fermata_runtime::{
    Ended, EngineError, Refusal,
    triggers::{Occurred, Received, WebhookRequest},
};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

/// What became of a request or of a fire.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OccurredView {
    delivery_id: Uuid,
    /// `started`, `pending`, `queued`, `filtered`, `refused` or `skipped`.
    state: &'static str,
    #[schemars(with = "Option<Uuid>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_url: Option<StatusUrl>,
    /// Why nothing was started. Callers of webhooks do not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether the same occurrence was received before.
    is_duplicate: bool,
}

impl OccurredView {
    pub fn new(occurred: Occurred) -> OccurredView {
        OccurredView {
            delivery_id: occurred.delivery,
            state: occurred.state.as_str(),
            execution_id: occurred.run,
            status_url: occurred.run.map(StatusUrl),
            reason: occurred.reason,
            is_duplicate: occurred.is_duplicate,
        }
    }

    /// Without the reason, which may name values that the caller did not send.
    fn for_sender(occurred: Occurred) -> OccurredView {
        OccurredView {
            reason: None,
            ..OccurredView::new(occurred)
        }
    }
}

/// `POST {triggers.webhook_base_path}/{segment}`
pub(crate) async fn receive(
    State(web): State<Web>,
    segment: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    // A base path of its own moves webhooks away from here.
    let is_here = web.webhooks.is_webhook(request.method(), request.uri().path());
    let segment = segment.ok().filter(|_| is_here).map(|Path(segment)| segment);
    let (method, headers) = (request.method().to_string(), request.headers().clone());
    let query = request.uri().query().map(str::to_owned);
    let mut received = read(request, web.config.max_body_bytes, &web).await?;
    received.expand()?;
    // Text may contain any number of brackets.
    let is_text = headers.contains_key(header::CONTENT_TYPE) && !is_json(&headers);
    if !is_text && matches!(received.bytes.trim_ascii_start().first(), Some(b'{' | b'[')) {
        check_depth(&received.bytes)?;
    }
    let request = WebhookRequest {
        method,
        headers,
        query,
        body: received.bytes,
        memory: None,
    };
    let answered = web
        .receive_webhook(segment.unwrap_or_default(), request, received.share)
        .await;
    match answered {
        Ok(Received::Accepted(occurred)) | Ok(Received::Finished(occurred, None)) => Ok(accepted(occurred)),
        Ok(Received::Finished(occurred, Some(ended))) => Ok(result(occurred, &ended)),
        Ok(Received::Challenge(challenge)) => {
            Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], challenge).into_response())
        }
        Err(EngineError::Refused(Refusal::NoWebhook)) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

fn accepted(occurred: Occurred) -> Response {
    (StatusCode::ACCEPTED, Json(OccurredView::for_sender(occurred))).into_response()
}

/// The outputs of a run that succeeded; of one that did not, what became of it.
fn result(occurred: Occurred, ended: &Ended) -> Response {
    match ended.status {
        Status::Succeeded => Json(JsonText(ended.outputs.as_deref().unwrap_or("{}"))).into_response(),
        status => {
            let code = match status {
                Status::Cancelled => StatusCode::CONFLICT,
                _ => StatusCode::BAD_GATEWAY,
            };
            let message = format!("the execution ended as {}", status.as_str());
            let mut response = ApiError::new(code, "EXECUTION_NOT_SUCCEEDED", message).into_response();
            if let Some(run) = occurred.run {
                super::executions::set_correlation_id(&mut response, run);
            }
            response
        }
    }
}

/// The response to every request that no trigger accepts.
fn unknown() -> ApiError {
    ApiError::not_found(
        "WEBHOOK_NOT_FOUND",
        "no webhook accepts this request; check the URL and the signature".to_owned(),
    )
}
