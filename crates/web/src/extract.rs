//! What handlers take from a request. Whatever cannot be taken is answered in the envelope.

use crate::{Web, WebConfig, envelope, error::ApiError};
use axum::{
    body::BodyDataStream,
    extract::{
        FromRequest, FromRequestParts, Path, RawPathParams, Request, rejection::PathRejection,
        rejection::QueryRejection,
    },
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use fermata_core::RunId;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::{convert::Infallible, time::Duration};
use uuid::Uuid;

/// A name in the path.
pub(crate) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // A place with a name of its own has no parameter; a workflow may have that name too.
        let params = RawPathParams::from_request_parts(parts, state).await;
        if params.is_ok_and(|params| params.iter().next().is_none()) {
            let last = parts.uri.path().rsplit('/').next().unwrap_or_default();
            return Ok(Name(last.to_owned()));
        }
        let Path(name) = Path::from_request_parts(parts, state).await.map_err(bad_path)?;
        Ok(Name(name))
    }
}

/// The id of a run in the path.
pub(crate) struct ExecutionId(pub RunId);

impl<S: Send + Sync> FromRequestParts<S> for ExecutionId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        run_id(&text).map(ExecutionId)
    }
}

fn run_id(text: &str) -> Result<RunId, ApiError> {
    uuid(text, "an execution").map(RunId)
}

fn uuid(text: &str, of: &str) -> Result<Uuid, ApiError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(60).collect();
        let message = format!("`{shown}` is not the id of {of}; those are UUIDs");
        ApiError::new(StatusCode::BAD_REQUEST, "INVALID_ID", message)
    })
}

/// The id of a dead letter in the path.
pub(crate) struct LetterId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for LetterId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "a dead letter").map(LetterId)
    }
}

/// A workflow in the path and one of its runs, whose id may begin with `run_`.
pub(crate) struct RunOf {
    pub workflow: String,
    pub run: RunId,
}

impl<S: Send + Sync> FromRequestParts<S> for RunOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((workflow, run)) = path.map_err(bad_path)?;
        let run = run_id(run.strip_prefix("run_").unwrap_or(&run))?;
        Ok(RunOf { workflow, run })
    }
}

/// The key under which the same request counts once.
pub(crate) struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get("idempotency-key") else {
            return Ok(IdempotencyKey(None));
        };
        let key = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
        name("Idempotency-Key", key)?;
        Ok(IdempotencyKey(Some(key.to_owned())))
    }
}

/// Names that callers choose, such as request ids, may have this many bytes.
const MAX_NAME: usize = 255;

/// Refuses what is no name that a caller may choose.
pub(crate) fn name(field: &str, text: &str) -> Result<(), ApiError> {
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        let message = format!("`{field}` must have 1 to {MAX_NAME} bytes and no control characters");
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

/// The correlation id that came with the request.
pub(crate) struct CorrelationId(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for CorrelationId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let given = envelope::given(&parts.headers).and_then(|value| value.to_str().ok());
        Ok(CorrelationId(given.map(str::to_owned)))
    }
}

fn bad_path(rejection: PathRejection) -> ApiError {
    ApiError::invalid(rejection.body_text())
}

/// The query, with unknown parameters refused by the type that is read.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub T);

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        // The parser's own words come last: `limit: invalid digit found in string`.
        let text = rejection.body_text();
        let what = text
            .rsplit_once("query string: ")
            .map_or(text.as_str(), |(_, what)| what);
        ApiError::parameter(format!("the query cannot be read: {what}"))
    }
}

/// A JSON body; its default if there is none.
pub(crate) struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Web> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, web: &Web) -> Result<Self, ApiError> {
        let media = is_json(request.headers());
        let bytes = read(request, web.config.max_body_bytes, &web.config).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(OptionalJson(T::default()));
        }
        if !media {
            return Err(media_type("application/json"));
        }
        check_depth(&bytes)?;
        serde_json::from_slice(&bytes).map(OptionalJson).map_err(bad_json)
    }
}

/// Refuses JSON that is nested too deep to be read.
pub(crate) fn check_depth(json: &[u8]) -> Result<(), ApiError> {
    if is_deeper(json, MAX_DEPTH) {
        let message = format!("the body is nested more than {MAX_DEPTH} levels deep");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "BODY_TOO_DEEP", message));
    }
    Ok(())
}

/// Levels of nesting in a JSON body; as many as in a document.
const MAX_DEPTH: usize = 100;

/// Whether JSON is nested deeper than this. Looks at bytes only, before anything that recurses does.
fn is_deeper(json: &[u8], most: usize) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for byte in json {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'[' | b'{') => depth += 1,
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return true;
        }
    }
    false
}

/// The message of serde_json ends with line and column.
pub(crate) fn bad_json(error: serde_json::Error) -> ApiError {
    match error.classify() {
        serde_json::error::Category::Data => ApiError::invalid(format!("the body does not fit: {error}")),
        _ => {
            let message = format!("the body is not JSON: {error}");
            ApiError::new(StatusCode::BAD_REQUEST, "INVALID_JSON", message)
        }
    }
}

/// A workflow document as it was sent: JSON, JSON with comments, or YAML. Its shape tells which.
pub(crate) struct DocumentBytes(pub Bytes);

impl FromRequest<Web> for DocumentBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, web: &Web) -> Result<Self, ApiError> {
        let media = is_document(request.headers());
        let bytes = read(request, web.config.max_body_bytes, &web.config).await?;
        if !media {
            return Err(media_type("application/json or application/yaml"));
        }
        if bytes.trim_ascii().is_empty() {
            return Err(ApiError::invalid("the body is empty; send the workflow document"));
        }
        Ok(DocumentBytes(bytes))
    }
}

/// The media type without its parameters; `None` if it is not told.
fn essence(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or("?");
    Some(value.split(';').next().unwrap_or_default().trim())
}

fn is_json(headers: &HeaderMap) -> bool {
    essence(headers).is_none_or(|media| {
        media.eq_ignore_ascii_case("application/json") || ends_with(media, "+json") || ends_with(media, "/json")
    })
}

fn is_document(headers: &HeaderMap) -> bool {
    let known = |media: &str| {
        let endings = [
            "/yaml",
            "/x-yaml",
            "+yaml",
            "/jsonc",
            "/json5",
            "/plain",
            "/octet-stream",
        ];
        endings.into_iter().any(|ending| ends_with(media, ending))
    };
    is_json(headers) || essence(headers).is_none_or(known)
}

fn ends_with(media: &str, ending: &str) -> bool {
    let start = media.len().checked_sub(ending.len());
    start
        .and_then(|start| media.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// A form, for example, which is what curl and browsers send when they are not told.
fn media_type(expected: &str) -> ApiError {
    let message = format!("this media type is not understood; send `Content-Type: {expected}`");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
}

/// How long somebody who sends too much may go on, so that he hears the answer before the connection ends.
const DRAIN: Duration = Duration::from_secs(2);

/// The whole body, within the limits of size and time. One that says it is too large is not read.
pub(crate) async fn read(request: Request, limit: usize, config: &WebConfig) -> Result<Bytes, ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let asks_first = request.headers().contains_key(header::EXPECT);
    let mut body = request.into_body().into_data_stream();
    let says_more = length.is_some_and(|length| length > limit as u64);
    let whole = match says_more {
        true => Ok(Ok(None)),
        false => tokio::time::timeout(config.body_timeout, collect(&mut body, limit)).await,
    };
    let whole = whole.map_err(|_| {
        let message = "the body did not arrive in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message)
    })??;
    whole.ok_or_else(|| {
        // Who asked whether to send it at all has not sent it.
        if !(says_more && asks_first) {
            let most = limit.saturating_mul(4);
            tokio::spawn(async move { tokio::time::timeout(DRAIN, drain(&mut body, most)).await });
        }
        let message = format!("the body has more than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!is_deeper(nested(100).as_bytes(), 100));
        assert!(is_deeper(nested(101).as_bytes(), 100));
        assert!(
            is_deeper("{\"a\":".repeat(10_000).as_bytes(), 100),
            "also if it never ends"
        );
        let side_by_side = format!("[{}]", vec![nested(99); 500].join(","));
        assert!(!is_deeper(side_by_side.as_bytes(), 100));
        let text = format!(r#"{{"a\"{}":"{}\\", "b":[1]}}"#, "[".repeat(500), "{".repeat(500));
        assert!(!is_deeper(text.as_bytes(), 100));
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}
