//! A limit on concurrent reads, so that slow reads do not block the database for the engine.
//!
//! A read above the limit waits for a short time, so that a burst of fast reads succeeds, and then gets 503. Health checks,
//! starts, callbacks and cancels are not limited.

use crate::{Web, error::ApiError};
use tokio::sync::SemaphorePermit;

/// A permit for one read.
pub(crate) async fn permit(web: &Web) -> Result<SemaphorePermit<'_>, ApiError> {
    match tokio::time::timeout(web.config.read_patience, web.reads.acquire()).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(ApiError::busy("too many other reads are in progress")),
    }
}
