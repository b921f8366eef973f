//! Request bodies: which media types are understood, and reading within the limits of size and time.
//!
//! What must stay true: a write needs a media type that a web page cannot send without asking first (a CORS preflight,
//! which this server never answers), so a missing type and `text/plain` are refused. Callbacks and empty bodies are exempt.

use crate::{WebConfig, error::ApiError};
use axum::{
    body::{Body, BodyDataStream},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use std::time::Duration;

/// The media type without its parameters; `None` if there is none.
fn essence(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

fn has_ending(headers: &HeaderMap, endings: &[&str]) -> bool {
    essence(headers).is_some_and(|media| endings.iter().any(|ending| ends_with(media, ending)))
}

/// Whether a body is declared to be JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    has_ending(headers, &["/json", "+json"])
}

/// Whether a body is declared to be JSON, JSON with comments, or YAML.
pub(crate) fn is_document(headers: &HeaderMap) -> bool {
    is_json(headers) || has_ending(headers, &["/yaml", "/x-yaml", "+yaml", "/jsonc", "/json5"])
}

fn ends_with(media: &str, ending: &str) -> bool {
    let start = media.len().checked_sub(ending.len());
    start
        .and_then(|start| media.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// A missing type, plain text, or a form, which is what curl and browsers send by default.
pub(crate) fn media_type(expected: &str) -> ApiError {
    let message = format!("this media type is not accepted; send `Content-Type: {expected}`");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
}

/// How many bytes the client announced; `None` if it did not.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// How long the rest of a refused body is read and dropped, so that the client gets the answer before the connection
/// ends.
const DRAIN: Duration = Duration::from_secs(2);

/// Reads and drops the rest of a refused body in the background, within limits.
pub(crate) fn discard(headers: &HeaderMap, body: Body, config: &WebConfig) {
    // With `Expect: 100-continue` the client has not sent it and waits for the answer.
    if !headers.contains_key(header::EXPECT) {
        drain_later(body.into_data_stream(), config);
    }
}

fn drain_later(mut body: BodyDataStream, config: &WebConfig) {
    let most = config.max_body_bytes.saturating_mul(4);
    tokio::spawn(async move { tokio::time::timeout(DRAIN, drain(&mut body, most)).await });
}

/// The whole body, within the limits of size and time. One that says it is too large is not read.
pub(crate) async fn read(request: Request, limit: usize, config: &WebConfig) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("the body has more than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
    };
    if announced(request.headers()).is_some_and(|length| length > limit as u64) {
        let (parts, body) = request.into_parts();
        discard(&parts.headers, body, config);
        return Err(too_large());
    }
    let mut body = request.into_body().into_data_stream();
    let whole = tokio::time::timeout(config.body_timeout, collect(&mut body, limit)).await;
    let whole = whole.map_err(|_| {
        let message = "the body did not arrive in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message)
    })??;
    whole.ok_or_else(|| {
        drain_later(body, config);
        too_large()
    })
}

/// `None` if there is more than `limit`.
async fn collect(body: &mut BodyDataStream, limit: usize) -> Result<Option<Bytes>, ApiError> {
    // Small bodies come in one piece and are not copied.
    let first = body.next().await.transpose().map_err(broken)?.unwrap_or_default();
    if first.len() > limit {
        return Ok(None);
    }
    let Some(second) = body.next().await.transpose().map_err(broken)? else {
        return Ok(Some(first));
    };
    let mut whole = BytesMut::from(first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        if whole.len() + bytes.len() > limit {
            return Ok(None);
        }
        whole.extend_from_slice(&bytes);
        piece = body.next().await.transpose().map_err(broken)?;
    }
    Ok(Some(whole.freeze()))
}

async fn drain(body: &mut BodyDataStream, mut left: usize) {
    while let Some(Ok(piece)) = body.next().await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            break;
        }
    }
}

fn broken(error: axum::Error) -> ApiError {
    ApiError::invalid(format!("the body could not be read: {error}"))
}
