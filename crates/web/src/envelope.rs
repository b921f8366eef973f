//! What surrounds every request: its correlation id, its errors in the envelope, and its panics caught.
//!
//! The correlation id is the caller's `X-Correlation-Id`, or one that is made here; every response carries it.
//!
//! What must stay true: a path that may hold the token of a callback is neither logged nor sent back.

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

/// Where the correlation id travels.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Longer ones are not taken for correlation ids.
const MAX_CORRELATION_ID: usize = 200;

/// The correlation id that came with the request. One that is empty, too long or not plain text counts as none:
/// a header meant for tracing does not make a request fail.
pub(crate) fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let usable = |value: &&HeaderValue| (1..=MAX_CORRELATION_ID).contains(&value.len()) && value.to_str().is_ok();
    headers.get(CORRELATION_ID).filter(usable)
}

/// Surrounds a request.
pub(crate) async fn wrap(request: Request, next: Next) -> Response {
    let given = given(request.headers()).cloned();
    let call = tracing::enabled!(tracing::Level::DEBUG).then(|| (request.method().clone(), place(&request)));
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied());
            tracing::error!(panic = what.unwrap_or("?"), correlation_id = ?given, "a request panicked");
            ApiError::internal("INTERNAL").into_response()
        }
    };
    // A handler may know a better one than a fresh one.
    let id = given.or_else(|| response.headers().get(CORRELATION_ID).cloned());
    let id = id.unwrap_or_else(fresh);
    if let Some((method, place)) = call {
        tracing::debug!(%method, place, status = response.status().as_u16(), correlation_id = ?id, "answered");
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = written(response, &error, &id);
    }
    response.headers_mut().insert(CORRELATION_ID, id);
    response
}

/// Where a request went, for the log. A path that no route has may hold anything, also the token of a callback whose
/// address was mangled on its way.
fn place(request: &Request) -> String {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match route {
        None => "no route".to_owned(),
        Some(route) if route.starts_with(CALLBACKS) => route.to_owned(),
        Some(_) => request.uri().to_string(),
    }
}

/// Below this stands the token of a callback.
pub(crate) const CALLBACKS: &str = "/wh/";

/// A path to show to whoever asked for it, without the token that may be in it.
pub(crate) fn shown(path: &str) -> Cow<'_, str> {
    match path.find(CALLBACKS) {
        Some(at) => Cow::Owned(format!("{}{{token}}", &path[..at + CALLBACKS.len()])),
        None => Cow::Borrowed(path),
    }
}

fn fresh() -> HeaderValue {
    let id = Uuid::now_v7().to_string();
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// The same response with the error as its body. What headers it has, such as `Allow`, stay.
fn written(response: Response, error: &ApiError, id: &HeaderValue) -> Response {
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
