//! Answers that are being written: counted against a budget until the client took them, and handed out in parts.
//!
//! What must stay true: a read whose answer does not fit into the budget is answered 503; the answer to a write is always
//! given, because the write has happened.

use crate::{Web, error::ApiError};
use axum::{
    body::{Body, HttpBody, to_bytes},
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use fermata_runtime::memory::Share;
use hyper::body::{Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

/// Smaller answers are not counted, and larger ones are written in parts of this size.
const PART: usize = 64 * 1024;

/// Counts the answer of a request.
pub(crate) async fn count(State(web): State<Web>, request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let response = next.run(request).await;
    let Some(size) = response.body().size_hint().exact().filter(|size| *size > PART as u64) else {
        return response;
    };
    let share = match web.memory.answers.try_take(size) {
        Some(share) => share,
        None if is_read => {
            return ApiError::busy("too many large answers are being read by other clients").into_response();
        }
        None => web.memory.answers.count(size),
    };
    let (parts, body) = response.into_parts();
    // The bodies of all answers are in memory, so this does not wait.
    match to_bytes(body, usize::MAX).await {
        Ok(rest) => Response::from_parts(parts, Body::new(Parts { rest, _share: share })),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            ApiError::internal("INTERNAL").into_response()
        }
    }
}

/// A body that is handed out in parts. Each is a copy: the last one, which the connection keeps until it is written, must
/// not keep all of it in memory.
struct Parts {
    rest: Bytes,
    _share: Share,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PART);
        let part = Bytes::copy_from_slice(&self.rest.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
