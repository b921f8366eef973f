//! A cap on concurrent reads, so that slow ones leave the database to the engine.
//!
//! A read beyond the cap waits for a moment, which makes a burst of quick reads no problem, and is answered 503 then. Health,
//! starts, callbacks and cancels are not reads.

use crate::{Web, error::ApiError};
use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Runs a read while there is a place for it.
pub(crate) async fn apply(State(web): State<Web>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let place = web.reads.acquire();
    match tokio::time::timeout(web.config.read_patience, place).await {
        Ok(_place) => next.run(request).await,
        Err(_) => ApiError::busy("too many reads are being answered").into_response(),
    }
}
