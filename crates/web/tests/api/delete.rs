//! Deleting executions.

use crate::harness::{Answer, Server, echo, single};
use fermata_core::Timestamp;
use fermata_store::{
    clock::wall,
    retention::{Ages, PruneBatch, Retention},
};
use reqwest::Method;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

async fn delete(server: &Server, id: &str) -> Answer {
    let path = format!("/api/v1/executions/{id}");
    server.send(Method::DELETE, &path, &[], Vec::new()).await
}

/// A server with a run that has ended, the body of the request that started it, and its id.
async fn with_ended_run() -> (Server, Value, String) {
    let server = Server::start().await;
    server.publish(&echo("quick")).await;
    let body = json!({ "requestId": "r-1", "trigger": { "n": 1 } });
    let ended = server
        .post("/api/v1/workflows/quick/execute?wait=15s", body.clone())
        .await
        .expect(200);
    let id = ended["executionId"].as_str().unwrap().to_owned();
    (server, body, id)
}

#[track_caller]
fn assert_deleted(answer: &Answer) {
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
}

#[tokio::test]
async fn finished_executions_are_deleted() {
    let (server, body, id) = with_ended_run().await;
    assert_deleted(&delete(&server, &id).await);
    server
        .get(&format!("/api/v1/executions/{id}"))
        .await
        .error(404, "EXECUTION_NOT_FOUND");
    delete(&server, &id).await.error(404, "EXECUTION_NOT_FOUND");
    // Its requestId is free again.
    let again = server
        .post("/api/v1/workflows/quick/execute?wait=15s", body)
        .await
        .expect(200);
    assert_ne!(again["executionId"], json!(id));
}

#[tokio::test]
async fn running_executions_are_not_deleted() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let id = server.execute("gated", json!({})).await;
    delete(&server, &id).await.error(409, "EXECUTION_NOT_FINISHED");
    server
        .post_nothing(&format!("/api/v1/executions/{id}/cancel"))
        .await
        .expect(200);
    assert_deleted(&delete(&server, &id).await);
}

/// Of an execution whose key is kept, the row is shown without payloads, and the requestId still leads to it.
#[tokio::test]
async fn emptied_executions_are_shown_without_payloads() {
    let (server, body, id) = with_ended_run().await;
    let retention = Retention {
        ages: Ages {
            succeeded: Some(Duration::ZERO),
            ..Ages::default()
        },
        keys: Some(Duration::from_secs(86_400)),
        ..Retention::default()
    };
    let batch = PruneBatch {
        retention: Arc::new(retention),
        now: Timestamp(wall().0 + 60_000_000),
        after: None,
        limit: 10,
        dry_run: false,
    };
    assert_eq!(server.store.prune(batch).await.unwrap().emptied, 1);
    let shown = server
        .get(&format!("/api/v1/executions/{id}?include=actions,events"))
        .await
        .expect(200);
    assert_eq!(
        (&shown["status"], &shown["trigger"]),
        (&json!("Succeeded"), &Value::Null)
    );
    assert_eq!((&shown["actions"], &shown["events"]), (&json!([]), &json!([])));
    let again = server.post("/api/v1/workflows/quick/execute", body).await.expect(200);
    assert_eq!(again["executionId"], json!(id));
}
