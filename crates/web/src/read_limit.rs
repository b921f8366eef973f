//! A limit on concurrent reads, so that slow reads do not block the database for the engine.
//!
//! A read above the limit waits for a short time, so that a burst of fast reads succeeds, and then gets 503. Health checks,
//! starts, callbacks and cancels are not limited.

use crate::{Web, error::ApiError};
use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Runs a read when there is a permit for it.
pub(crate) async fn apply(State(web): State<Web>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let permit = web.reads.acquire();
    match tokio::time::timeout(web.config.read_patience, permit).await {
        Ok(_permit) => next.run(request).await,
        Err(_) => ApiError::busy("too many other reads are in progress").into_response(),
    }
}
