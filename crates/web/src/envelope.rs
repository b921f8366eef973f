//! The outermost layer: sets the correlation id, writes errors into the envelope, and catches panics.
//!
//! The correlation id is the `X-Correlation-Id` of the request, or a new one. Every response has it.
//!
//! What must stay true: a path that may contain the token of a callback is neither logged nor sent back.

use crate::{error::ApiError, error::Detail, time::Iso};
use axum::{
    Json,
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use fermata_runtime::clock::{Clock, SystemClock};
use futures::FutureExt;
use serde::Serialize;
use std::{borrow::Cow, panic::AssertUnwindSafe};
use uuid::Uuid;

/// The header of the correlation id.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// A longer value is ignored.
const MAX_CORRELATION_ID: usize = 200;

/// The correlation id of the request. A value that is empty, too long or not ASCII is ignored: a header for tracing must
/// not fail a request.
pub(crate) fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let usable = |value: &&HeaderValue| (1..=MAX_CORRELATION_ID).contains(&value.len()) && value.to_str().is_ok();
    headers.get(CORRELATION_ID).filter(usable)
}

/// Handles a request inside this layer.
pub(crate) async fn wrap(request: Request, next: Next) -> Response {
    let given = given(request.headers()).cloned();
    let call = tracing::enabled!(tracing::Level::DEBUG).then(|| (request.method().clone(), logged_path(&request)));
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied());
            tracing::error!(panic = what.unwrap_or("?"), correlation_id = ?given, "a request panicked");
            ApiError::internal("INTERNAL").into_response()
        }
    };
    // A handler may have set one, such as the id of the run.
    let id = given.or_else(|| response.headers().get(CORRELATION_ID).cloned());
    let id = id.unwrap_or_else(new_id);
    if let Some((method, path)) = call {
        tracing::debug!(%method, path, status = response.status().as_u16(), correlation_id = ?id, "answered");
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = with_body(response, &error, &id);
    }
    response.headers_mut().insert(CORRELATION_ID, id);
    response
}

/// The path of a request, for the log. A path without a route may be a callback URL that was changed on its way, with the
/// token in it, so it is not logged.
fn logged_path(request: &Request) -> String {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match route {
        None => "no route".to_owned(),
        Some(route) if route.starts_with(CALLBACKS) => route.to_owned(),
        Some(_) => request.uri().to_string(),
    }
}

/// The path of callbacks; the token follows it.
pub(crate) const CALLBACKS: &str = "/wh/";

/// A path for an error message, without the token that it may contain.
pub(crate) fn without_token(path: &str) -> Cow<'_, str> {
    match path.find(CALLBACKS) {
        Some(at) => Cow::Owned(format!("{}{{token}}", &path[..at + CALLBACKS.len()])),
        None => Cow::Borrowed(path),
    }
}

fn new_id() -> HeaderValue {
    let id = Uuid::now_v7().to_string();
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// The response with the error as its body. Its headers, such as `Allow`, are kept.
fn with_body(response: Response, error: &ApiError, id: &HeaderValue) -> Response {
    #[derive(Serialize)]
    struct Envelope<'a> {
        error: Body<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        code: &'a str,
        message: &'a str,
        correlation_id: &'a str,
        timestamp: Iso,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        details: &'a [Detail],
    }
    if error.status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(code = error.code, correlation_id = ?id, "a request failed");
    }
    let error = Body {
        code: error.code,
        message: &error.message,
        correlation_id: id.to_str().unwrap_or_default(),
        timestamp: Iso(SystemClock.now()),
        details: &error.details,
    };
    let mut written = Json(Envelope { error }).into_response();
    *written.status_mut() = response.status();
    for (name, value) in response.headers() {
        if name != axum::http::header::CONTENT_LENGTH {
            written.headers_mut().append(name, value.clone());
        }
    }
    written
}
