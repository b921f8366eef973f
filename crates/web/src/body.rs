//! Request bodies: accepted media types, and reading within the limits of size, time and memory.
//!
//! What must stay true: a write needs a media type that a web page cannot send without a CORS preflight, which this server
//! never grants. So a missing type and `text/plain` are refused. Callbacks and empty bodies are exempt.

use crate::{Web, WebConfig, error::ApiError};
use axum::{
    body::{Body, BodyDataStream},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use fermata_runtime::memory::{Share, parsed_size};
use futures::StreamExt;
use std::{panic::resume_unwind, time::Duration};

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

/// The types of a body that is a document, for messages.
pub(crate) const DOCUMENT_TYPES: &str = "`Content-Type: application/json` or `Content-Type: application/yaml`";

/// The types of a body that is an event, for messages.
pub(crate) const EVENT_TYPES: &str = "`Content-Type: application/json`, `application/cloudevents+json` or \
    `application/cloudevents-batch+json`, or any type with the headers `ce-id`, `ce-source`, `ce-type` and `ce-specversion: 1.0`";

/// The error for a missing type, plain text, or a form (the defaults of curl and browsers).
pub(crate) fn media_type(expected: &str) -> ApiError {
    let message = format!("the `Content-Type` of the body is missing or not accepted; send {expected}");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
}

/// The `Content-Length` of the request.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// How long the rest of a refused body is read and dropped, so that the client receives the response before the connection
/// is closed.
const DRAIN: Duration = Duration::from_secs(10);

/// Reads and drops the rest of a refused body in the background, within limits.
pub(crate) fn discard(headers: &HeaderMap, body: Body, config: &WebConfig) {
    // With `Expect: 100-continue` the client has not sent the body yet and waits for the response.
    if !headers.contains_key(header::EXPECT) {
        drain_later(body.into_data_stream(), config);
    }
}

fn drain_later(mut body: BodyDataStream, config: &WebConfig) {
    let most = config.max_body_bytes.saturating_mul(4);
    tokio::spawn(async move { tokio::time::timeout(DRAIN, drain(&mut body, most)).await });
}

/// While a request is handled, its body is in memory several times: as received, parsed, as text, and in the write to the
/// database.
const COPIES: u64 = 5;

/// Bodies up to this size use the budget of small requests.
const SMALL: u64 = 64 * 1024;

/// A body, and its share of the memory budget.
pub(crate) struct Received {
    pub bytes: Bytes,
    pub share: Share,
}

impl Received {
    /// Adds the memory that the parsed body needs.
    pub fn expand(&mut self) -> Result<(), ApiError> {
        let more = parsed_size(&self.bytes).saturating_sub(self.bytes.len() as u64);
        self.share.try_grow(more).then_some(()).ok_or_else(no_memory)
    }
}

fn no_memory() -> ApiError {
    ApiError::busy("the memory for requests is used up by other requests")
}

/// Reads the whole body, within the limits of size, time and memory. A body is not read if its `Content-Length` is too
/// large, or if there is not enough memory at the moment.
pub(crate) async fn read(request: Request, limit: usize, web: &Web) -> Result<Received, ApiError> {
    let (config, memory) = (&web.config, &web.memory);
    let too_large = || {
        let message = format!("the body is larger than the limit of {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
    };
    let length = content_length(request.headers());
    let share = match length {
        Some(length) if length > limit as u64 => Err(too_large()),
        Some(length) if length <= SMALL => memory.small_requests.try_take(length * COPIES).ok_or_else(no_memory),
        // A body of unknown length is counted as it arrives.
        length => {
            let taken = memory.requests.try_take(length.unwrap_or(0) * COPIES);
            taken.ok_or_else(no_memory)
        }
    };
    let share = match share {
        Ok(share) => share,
        Err(error) => {
            let (parts, body) = request.into_parts();
            discard(&parts.headers, body, config);
            return Err(error);
        }
    };
    let mut reading = Reading {
        body: request.into_body().into_data_stream(),
        limit,
        share,
        is_counted: length.is_some(),
    };
    let whole = tokio::time::timeout(config.body_timeout, reading.collect()).await;
    let whole = whole.map_err(|_| {
        let seconds = config.body_timeout.as_secs();
        let message = format!("the body did not arrive completely within {seconds} s");
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message)
    })?;
    let refusal = match whole {
        Ok(bytes) => {
            let share = reading.share;
            return Ok(Received { bytes, share });
        }
        Err(Stop::Broken(error)) => return Err(ApiError::invalid(format!("the body could not be read: {error}"))),
        Err(Stop::TooLarge) => too_large(),
        Err(Stop::NoMemory) => no_memory(),
    };
    drain_later(reading.body, config);
    Err(refusal)
}

struct Reading {
    body: BodyDataStream,
    limit: usize,
    share: Share,
    /// Whether the whole body is counted already.
    is_counted: bool,
}

/// Why reading a body stopped.
enum Stop {
    TooLarge,
    NoMemory,
    Broken(axum::Error),
}

impl Reading {
    async fn collect(&mut self) -> Result<Bytes, Stop> {
        // Small bodies arrive in one piece and are not copied.
        let first = self.piece(0).await?.unwrap_or_default();
        let Some(second) = self.piece(first.len()).await? else {
            return Ok(first);
        };
        let mut whole = BytesMut::from(first);
        let mut piece = Some(second);
        while let Some(bytes) = piece {
            whole.extend_from_slice(&bytes);
            piece = self.piece(whole.len()).await?;
        }
        Ok(whole.freeze())
    }

    async fn piece(&mut self, before: usize) -> Result<Option<Bytes>, Stop> {
        let Some(piece) = self.body.next().await.transpose().map_err(Stop::Broken)? else {
            return Ok(None);
        };
        if before + piece.len() > self.limit {
            return Err(Stop::TooLarge);
        }
        match self.is_counted || self.share.try_grow(piece.len() as u64 * COPIES) {
            true => Ok(Some(piece)),
            false => Err(Stop::NoMemory),
        }
    }
}

/// Completes the work even if the client disconnects: the memory it uses stays counted until it is done.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    share: Share,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = tokio::spawn(async move {
        let done = work.await;
        drop(share);
        done
    });
    match task.await {
        Ok(done) => done,
        // The task is never aborted, so it panicked.
        Err(error) => resume_unwind(error.into_panic()),
    }
}

async fn drain(body: &mut BodyDataStream, mut left: usize) {
    while let Some(Ok(piece)) = body.next().await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            break;
        }
    }
}
