//! Health checks: whether this process is alive, and whether it is ready for requests.

use crate::Web;
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use std::time::Duration;

/// A database that does not respond within this time is not ready.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

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
    let database = match tokio::time::timeout(PING_TIMEOUT, web.engine.ping()).await {
        Ok(Ok(())) => "ok",
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready: the database check failed");
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
