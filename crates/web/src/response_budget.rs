//! Responses count against a memory budget until the client has read them, and are written in parts.
//!
//! What must stay true: a read whose response exceeds the budget gets 503; the response to a write is always sent, because
//! the write has happened.

use crate::{Web, error::ApiError};
use axum::{
    body::{Body, HttpBody, to_bytes},
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

/// Smaller responses are not counted; larger ones are written in parts of this size.
const PART: usize = 64 * 1024;

/// Counts the response to a request.
pub(crate) async fn count(web: &Web, is_read: bool, response: Response) -> Response {
    let Some(size) = response.body().size_hint().exact().filter(|size| *size > PART as u64) else {
        return response;
    };
    let share = match web.memory.answers.try_take(size) {
        Some(share) => share,
        None if is_read => {
            return ApiError::busy("the memory for responses is used up by large responses to other clients")
                .into_response();
        }
        None => web.memory.answers.count(size),
    };
    let (parts, body) = response.into_parts();
    // All bodies are in memory, so this does not wait.
    match to_bytes(body, usize::MAX).await {
        Ok(rest) => Response::from_parts(parts, Body::new(Parts { rest, _share: share })),
        Err(error) => {
            tracing::error!(%error, "a response body could not be read");
            ApiError::internal("INTERNAL").into_response()
        }
    }
}

/// A body that is written in parts. Each part is a copy, because the connection keeps the last part until it is written,
/// and a slice would keep the whole body in memory.
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
