//! Extractors: the parts of a request that handlers use. A failed extraction is an [`ApiError`].

use crate::{
    Web,
    body::{DOCUMENT_TYPES, is_document, is_json, media_type, read},
    envelope,
    error::ApiError,
};
use axum::{
    extract::{
        FromRequest, FromRequestParts, Path, RawPathParams, Request, rejection::PathRejection,
        rejection::QueryRejection,
    },
    http::{StatusCode, request::Parts},
};
use bytes::Bytes;
use fermata_core::RunId;
use fermata_runtime::{memory::Share, trace::TraceContext};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use uuid::Uuid;

/// A name in the path.
pub(crate) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // A fixed route such as `/workflows/validate` has no parameter, but a workflow may have that name.
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

pub(crate) fn run_id(text: &str) -> Result<RunId, ApiError> {
    uuid(text, "an execution").map(RunId)
}

fn uuid(text: &str, of: &str) -> Result<Uuid, ApiError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(60).collect();
        let message = format!("`{shown}` is not the id of {of}: ids are UUIDs");
        ApiError::new(StatusCode::BAD_REQUEST, "INVALID_ID", message)
    })
}

/// The id of a dead letter in the path.
pub(crate) struct DeadLetterId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for DeadLetterId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "a dead letter").map(DeadLetterId)
    }
}

/// The id of an API key in the path.
pub(crate) struct KeyId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for KeyId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "an API key").map(KeyId)
    }
}

/// The id of a bulk job in the path.
pub(crate) struct BulkId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for BulkId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "a bulk job").map(BulkId)
    }
}

/// The id of an item of the inbox in the path.
pub(crate) struct ItemId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for ItemId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "an inbox item").map(ItemId)
    }
}

/// The id of a trigger in the path.
pub(crate) struct TriggerId(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for TriggerId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(bad_path)?;
        uuid(&text, "a trigger").map(TriggerId)
    }
}

/// A trigger and one of its deliveries in the path.
pub(crate) struct DeliveryOf {
    pub trigger: Uuid,
    pub delivery: Uuid,
}

impl<S: Send + Sync> FromRequestParts<S> for DeliveryOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((trigger, delivery)) = path.map_err(bad_path)?;
        Ok(DeliveryOf {
            trigger: uuid(&trigger, "a trigger")?,
            delivery: uuid(&delivery, "a delivery")?,
        })
    }
}

/// A run and one of its nodes in the path.
pub(crate) struct ExecutionNode {
    pub run: RunId,
    pub node: String,
}

impl<S: Send + Sync> FromRequestParts<S> for ExecutionNode {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((run, node)) = path.map_err(bad_path)?;
        Ok(ExecutionNode {
            run: run_id(&run)?,
            node,
        })
    }
}

/// A workflow and one of its runs in the path. The id of the run may have the prefix `run_`.
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

/// A workflow in the path and one of its versions.
pub(crate) struct VersionOf {
    pub workflow: String,
    pub version: u32,
}

impl<S: Send + Sync> FromRequestParts<S> for VersionOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((workflow, version)) = path.map_err(bad_path)?;
        let version = version
            .parse()
            .map_err(|_| ApiError::parameter("a version is a number from 1"))?;
        Ok(VersionOf { workflow, version })
    }
}

/// The `Idempotency-Key` of a request.
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

/// The longest name that a caller can choose, such as a request id, in bytes.
const MAX_NAME: usize = 255;

/// Refuses an invalid name.
pub(crate) fn name(field: &str, text: &str) -> Result<(), ApiError> {
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        let message = format!("`{field}` must have 1 to {MAX_NAME} bytes and no control characters");
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

/// The correlation id of the request.
pub(crate) struct CorrelationId(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for CorrelationId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let given = envelope::given(&parts.headers).and_then(|value| value.to_str().ok());
        Ok(CorrelationId(given.map(str::to_owned)))
    }
}

/// The `traceparent` of the request. One that is not valid is ignored, as the recommendation says.
pub(crate) struct Traceparent(pub Option<TraceContext>);

impl<S: Send + Sync> FromRequestParts<S> for Traceparent {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Traceparent(envelope::traceparent(&parts.headers)))
    }
}

fn bad_path(rejection: PathRejection) -> ApiError {
    ApiError::invalid(rejection.body_text())
}

/// The query. The type that is parsed refuses unknown parameters.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub T);

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        // The cause comes last: `limit: invalid digit found in string`.
        let text = rejection.body_text();
        let what = text
            .rsplit_once("query string: ")
            .map_or(text.as_str(), |(_, what)| what);
        ApiError::parameter(format!("invalid query: {what}"))
    }
}

/// A JSON body, or the default if there is none, and its share of the memory budget.
pub(crate) struct OptionalJson<T>(pub T, pub Share);

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest<Web> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, web: &Web) -> Result<Self, ApiError> {
        let media = is_json(request.headers());
        let mut received = read(request, web.config.max_body_bytes, web).await?;
        if received.bytes.trim_ascii().is_empty() {
            return Ok(OptionalJson(T::default(), received.share));
        }
        if !media {
            return Err(media_type("`Content-Type: application/json`"));
        }
        received.expand()?;
        let length = received.bytes.len();
        let parse = move || {
            check_depth(&received.bytes)?;
            let value = serde_json::from_slice(&received.bytes).map_err(bad_json)?;
            Ok(OptionalJson(value, received.share))
        };
        web.offload().run(length, parse).await
    }
}

/// Refuses JSON that is nested too deeply.
pub(crate) fn check_depth(json: &[u8]) -> Result<(), ApiError> {
    if is_deeper(json, MAX_DEPTH) {
        let message = format!("the body is nested more than {MAX_DEPTH} levels deep");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "BODY_TOO_DEEP", message));
    }
    Ok(())
}

/// The most levels of nesting in a JSON body, the same as in a document.
const MAX_DEPTH: usize = 100;

/// Whether JSON is nested deeper than this. Scans the bytes, before a recursive parser reads them.
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

/// The messages of serde_json end with line and column.
pub(crate) fn bad_json(error: serde_json::Error) -> ApiError {
    match error.classify() {
        serde_json::error::Category::Data => ApiError::invalid(format!("invalid body: {error}")),
        _ => {
            let message = format!("the body is not valid JSON: {error}");
            ApiError::new(StatusCode::BAD_REQUEST, "INVALID_JSON", message)
        }
    }
}

/// The bytes of a workflow document: JSON, JSON with comments, or YAML. The format is detected from the content, not from
/// the media type.
pub(crate) struct DocumentBytes(pub Bytes, pub Share);

impl FromRequest<Web> for DocumentBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, web: &Web) -> Result<Self, ApiError> {
        let media = is_document(request.headers());
        let mut received = read(request, web.config.max_body_bytes, web).await?;
        if received.bytes.trim_ascii().is_empty() {
            return Err(ApiError::invalid("the body is empty; send the workflow document"));
        }
        if !media {
            return Err(media_type(DOCUMENT_TYPES));
        }
        received.expand()?;
        Ok(DocumentBytes(received.bytes, received.share))
    }
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
