//! Cancelling runs in every status.

use crate::harness::{Server, echo, single};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use serde_json::{Value, json};
use std::time::Duration;

fn path(id: &str) -> String {
    format!("/api/v1/executions/{id}/cancel")
}

fn short(id: &str, status: &str) -> Value {
    json!({ "executionId": id, "status": status, "statusUrl": format!("/api/v1/executions/{id}") })
}

#[tokio::test]
async fn a_running_run_is_cancelled() {
    let server = Server::start().await;
    server
        .publish(&single("gated", "test.gate", json!({ "obeys": true })))
        .await;
    let id = server.execute("gated", json!({})).await;
    let answer = server.post_nothing(&path(&id)).await.expect(200);
    assert_eq!(answer, short(&id, "Cancelled"));
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(
        (&run["status"], &run["reason"]),
        (&json!("Cancelled"), &json!("cancelled"))
    );
}

#[tokio::test]
async fn a_running_run_is_cancelled_at_once() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let id = server.execute("gated", json!({})).await;
    let answer = server.post(&path(&id), json!({ "reason": "changed my mind" })).await;
    assert_eq!(answer.expect(200), short(&id, "Cancelled"));
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(run["reason"], "changed my mind");
}

#[tokio::test]
async fn a_parked_run_is_cancelled() {
    let settings = Settings {
        park_after: Duration::ZERO,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server
        .publish(&single("slow", "core.delay", json!({ "durationMs": 60_000 })))
        .await;
    let id = server.execute("slow", json!({})).await;
    let parked = server.until(&id, |run| run.get("wakeAt").is_some()).await;
    assert_eq!(parked["status"], "Running");
    crate::harness::assert_time(&parked["wakeAt"]);
    assert_eq!(
        server.post_nothing(&path(&id)).await.expect(200),
        short(&id, "Cancelled")
    );
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert!(run.get("wakeAt").is_none(), "{run}");
}

#[tokio::test]
async fn a_pending_run_is_cancelled() {
    let settings = Settings {
        max_active_runs: 0,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    let id = server.execute("hello", json!({})).await;
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(run["status"], "Pending");
    assert!(run.get("startedAt").is_none() && run.get("wakeAt").is_none(), "{run}");
    assert_eq!(
        server.post_nothing(&path(&id)).await.expect(200),
        short(&id, "Cancelled")
    );
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_changed() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let run = server
        .post_nothing("/api/v1/workflows/hello/execute?wait=15s")
        .await
        .expect(200);
    let id = run["id"].as_str().unwrap();
    let answer = server.post(&path(id), json!({ "reason": "too late" })).await;
    assert_eq!(answer.expect(200), short(id, "Succeeded"));
    assert_eq!(server.get(&format!("/api/v1/executions/{id}")).await.expect(200), run);
}

/// A cancel is legal in every status: a run that has ended is not changed. `operate.rs` has the other commands.
#[tokio::test]
async fn a_cancel_in_every_status() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    server.publish(&single("broken", "core.fail", json!({}))).await;
    server
        .publish(&single("gated", "test.gate", json!({ "obeys": true })))
        .await;
    let ended = async |workflow: &str| {
        let path = format!("/api/v1/workflows/{workflow}/execute?wait=15s");
        let run = server.post_nothing(&path).await.expect(200);
        run["id"].as_str().unwrap().to_owned()
    };
    let (succeeded, failed) = (ended("hello").await, ended("broken").await);
    let running = server.execute("gated", json!({})).await;
    let pending = server.execute("hello", json!({})).await;
    let table = [
        (&pending, "Pending", "Cancelled"),
        (&running, "Running", "Cancelled"),
        (&running, "Cancelled", "Cancelled"),
        (&succeeded, "Succeeded", "Succeeded"),
        (&failed, "Failed", "Failed"),
    ];
    for (id, status, next) in table {
        let get = format!("/api/v1/executions/{id}");
        let before = server.get(&get).await.expect(200);
        assert_eq!(before["status"], status);
        let answer = server.post(&path(id), json!({ "reason": "table" })).await;
        assert_eq!(answer.expect(200), short(id, next), "{status}");
        let after = server.get(&get).await.expect(200);
        match status == next {
            true => assert_eq!(after, before, "a run that has ended is not changed"),
            false => assert_eq!((&after["status"], &after["reason"]), (&json!(next), &json!("table"))),
        }
    }
}

#[tokio::test]
async fn invalid_cancels_are_refused() {
    let server = Server::start().await;
    let missing = "01890000-0000-7000-8000-000000000000";
    server
        .post_nothing(&path(missing))
        .await
        .error(404, "EXECUTION_NOT_FOUND");
    server.post_nothing(&path("x")).await.error(400, "INVALID_ID");
    server
        .post(&path(missing), json!({ "because": "x" }))
        .await
        .error(400, "INVALID_REQUEST");
    server
        .post(&path(missing), json!({ "reason": "" }))
        .await
        .error(400, "INVALID_REQUEST");
}
