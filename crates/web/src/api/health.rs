//! Whether this process lives, and whether it should get requests.

use crate::Web;
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use std::time::Duration;

/// A store that does not answer for this long is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub(crate) struct Live {
    status: &'static str,
}

#[derive(Serialize)]
pub(crate) struct Ready {
    status: &'static str,
    checks: Checks,
}

#[derive(Serialize)]
struct Checks {
    database: &'static str,
    runner: &'static str,
    registry: &'static str,
}

/// `GET /health/live`
pub(crate) async fn live() -> Json<Live> {
    Json(Live { status: "live" })
}

/// `GET /health/ready`
pub(crate) async fn ready(State(web): State<Web>) -> (StatusCode, Json<Ready>) {
    let database = match tokio::time::timeout(PATIENCE, web.engine.ping()).await {
        Ok(Ok(())) => "ok",
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready: the store failed");
            "failed"
        }
        Err(_) => "timeout",
    };
    let stopping = web.engine.is_stopping();
    let checks = Checks {
        database,
        runner: if stopping { "stopping" } else { "ok" },
        registry: match web.engine.registry().infos().next() {
            Some(_) => "ok",
            None => "empty",
        },
    };
    let (code, status) = match (stopping, database) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (false, "ok") if checks.registry == "ok" => (StatusCode::OK, "ready"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
    };
    (code, Json(Ready { status, checks }))
}
