//! The outermost layer: sets the correlation id, writes errors into the envelope, and catches panics.
//!
//! The correlation id is the `X-Correlation-Id` of the request, or a new one. Every response has it.
//!
//! What must stay true: a path that may contain the token of a callback is neither logged nor sent back.

use crate::{error::ApiError, error::Detail, time::Iso, webhook_path::TRIGGERS};
use axum::{
    Json,
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use fermata_runtime::{
    clock::{Clock, SystemClock},
    trace::TraceContext,
};
use futures::FutureExt;
use serde::Serialize;
use std::{borrow::Cow, panic::AssertUnwindSafe, time::Instant};
use uuid::Uuid;

/// The header of the correlation id.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The header of W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A longer value is ignored.
const MAX_CORRELATION_ID: usize = 200;

/// The correlation id of the request. A value that is empty, too long or not ASCII is ignored: a header for tracing must
/// not fail a request.
pub(crate) fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let usable = |value: &&HeaderValue| (1..=MAX_CORRELATION_ID).contains(&value.len()) && value.to_str().is_ok();
    headers.get(CORRELATION_ID).filter(usable)
}

/// The position of the caller in its own trace. More than one header, or one that is not valid, counts as none.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<TraceContext> {
    let mut all = headers.get_all(TRACEPARENT).iter();
    let first = all.next().filter(|_| all.next().is_none());
    first?.to_str().ok()?.trim().parse().ok()
}

/// Handles a request inside this layer.
pub(crate) async fn wrap<F>(request: Request, handle: impl FnOnce(Request) -> F) -> Response
where
    F: Future<Output = Response> + Send,
{
    let given = given(request.headers()).cloned();
    let call = tracing::enabled!(tracing::Level::DEBUG).then(|| (request.method().clone(), logged_path(&request)));
    let trace = traceparent(request.headers()).map(|context| u128::from_be_bytes(context.trace));
    let began = Instant::now();
    let mut response = match AssertUnwindSafe(handle(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied());
            tracing::error!(
                panic = what.unwrap_or("?"),
                CorrelationId = given.as_ref().and_then(text),
                TraceId = trace.map(trace_text),
                "a request panicked"
            );
            ApiError::internal("INTERNAL").into_response()
        }
    };
    // A handler may have set one, such as the id of the run.
    let id = given.or_else(|| response.headers().get(CORRELATION_ID).cloned());
    let id = id.unwrap_or_else(new_id);
    if let Some((method, path)) = call {
        tracing::debug!(
            %method,
            path,
            status = response.status().as_u16(),
            took_ms = began.elapsed().as_millis() as u64,
            CorrelationId = text(&id),
            TraceId = trace.map(trace_text),
            "answered"
        );
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = with_body(response, &error, &id, trace);
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
        // The id of a trigger is a credential too.
        Some(route) if route.starts_with(CALLBACKS) || route.contains("{trigger}") => route.to_owned(),
        Some(_) => request.uri().to_string(),
    }
}

/// The path of callbacks; the token follows it.
pub(crate) const CALLBACKS: &str = "/wh/";

/// A path for an error message, without the token that it may contain.
pub(crate) fn without_token(path: &str) -> Cow<'_, str> {
    let begins = [CALLBACKS, TRIGGERS];
    match begins
        .into_iter()
        .find_map(|begin| Some(path.find(begin)? + begin.len()))
    {
        Some(at) => Cow::Owned(format!("{}{{token}}", &path[..at])),
        None => Cow::Borrowed(path),
    }
}

fn text(id: &HeaderValue) -> Option<&str> {
    id.to_str().ok()
}

fn trace_text(id: u128) -> String {
    format!("{id:032x}")
}

fn new_id() -> HeaderValue {
    let id = Uuid::now_v7().to_string();
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// The response with the error as its body. Its headers, such as `Allow`, are kept.
fn with_body(response: Response, error: &ApiError, id: &HeaderValue, trace: Option<u128>) -> Response {
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
        let trace = trace.map(trace_text);
        tracing::error!(
            code = error.code,
            CorrelationId = text(id),
            TraceId = trace,
            "a request failed"
        );
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
