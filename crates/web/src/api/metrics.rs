//! Metrics for Prometheus.

use crate::{
    door::{As, Web},
    error::ApiError,
};
use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use fermata_metrics::Text;

/// `GET /metrics`
pub(crate) async fn get(State(web): State<Web>, As(session): As) -> Result<Response, ApiError> {
    if !web.counts() {
        let message = "this process counts nothing, because `telemetry.metrics` is false";
        return Err(ApiError::not_found("NOT_FOUND", message.to_owned()));
    }
    let Some(mut text) = session.metrics().await else {
        let message = "metrics are of the whole installation; callers that belong to a tenant cannot read them";
        return Err(ApiError::not_found("NOT_FOUND", message.to_owned()));
    };
    web.metrics.write(&mut text);
    Ok(([(CONTENT_TYPE, Text::CONTENT_TYPE)], text.into_string()).into_response())
}
