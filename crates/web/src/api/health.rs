//! Health checks: whether this process is alive, and whether it is ready for requests.
//!
//! What must stay true: a reason says what is wrong and what follows from it, without addresses or other details of the
//! database, because health checks need no authentication. The details are in the log.

use crate::Web;
use axum::{Json, extract::State, http::StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A database that does not respond within this time is not ready.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize, JsonSchema)]
pub(crate) struct Live {
    status: &'static str,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Ready {
    status: &'static str,
    checks: Checks,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct Checks {
    database: &'static str,
    queue: &'static str,
    runner: &'static str,
    registry: &'static str,
}

/// `GET /health/live`
pub(crate) async fn live() -> Json<Live> {
    Json(Live { status: "live" })
}

/// `GET /health/ready`
pub(crate) async fn ready(State(web): State<Web>) -> (StatusCode, Json<Ready>) {
    let mut reasons = Vec::new();
    let database = match tokio::time::timeout(PING_TIMEOUT, web.ping()).await {
        Ok(Ok(())) => "ok",
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready: the database check failed");
            reasons.push("the database cannot write; the log of this process has the error");
            "failed"
        }
        Err(_) => {
            reasons.push("the database did not answer within 2 s");
            "timeout"
        }
    };
    let queue = match web.may_start() {
        true => "ok",
        false => {
            reasons.push(
                "the heartbeats of this process are not confirmed by the database, so it starts no runs and actions",
            );
            "waiting"
        }
    };
    let runner = match web.is_stopping() {
        false => "ok",
        true => {
            reasons.push("this process is stopping; it finishes running actions and accepts no new runs");
            "stopping"
        }
    };
    let registry = match web.has_actions() {
        true => "ok",
        false => {
            reasons.push("this program has no actions");
            "empty"
        }
    };
    let checks = Checks {
        database,
        queue,
        runner,
        registry,
    };
    let is_ready = reasons.is_empty();
    let status = match (runner, is_ready) {
        ("stopping", _) => "stopping",
        (_, true) => "ready",
        (_, false) => "unready",
    };
    let code = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let ready = Ready {
        status,
        checks,
        reasons,
    };
    (code, Json(ready))
}
