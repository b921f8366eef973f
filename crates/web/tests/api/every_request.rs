//! What applies to every request: correlation ids, health, unknown paths, server errors, shutdown.

use crate::harness::{LONG, Server, echo, single};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::json;
use std::{sync::atomic::Ordering, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn correlation_ids_are_returned() {
    let server = Server::start().await;
    for path in ["/health/live", "/nowhere", "/api/v1/executions/x"] {
        let answer = server
            .send(Method::GET, path, &[("x-correlation-id", "abc-123")], "")
            .await;
        assert_eq!(answer.header("x-correlation-id"), "abc-123");
    }
    let made = server.get("/health/live").await;
    assert_eq!(made.header("x-correlation-id").len(), 36);
    for odd in ["", &"x".repeat(201)] {
        let answer = server
            .send(Method::GET, "/nowhere", &[("x-correlation-id", odd)], "")
            .await;
        answer.error(404, "NOT_FOUND");
        assert_eq!(answer.header("x-correlation-id").len(), 36);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let server = Server::start().await;
    for path in [
        "/",
        "/api/v1/workflow",
        "/api/v1/workflows/",
        "/wh",
        "/wh/a/b",
        "/api/v1/executions/x/y/z",
    ] {
        server.get(path).await.error(404, "NOT_FOUND");
    }
    let answer = server.send(Method::DELETE, "/api/v1/workflows", &[], "").await;
    answer.error(405, "METHOD_NOT_ALLOWED");
    let allowed = answer.header("allow");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    server
        .get("/api/v1/workflows/x/execute")
        .await
        .error(405, "METHOD_NOT_ALLOWED");
}

#[tokio::test]
async fn health_shows_the_state_of_the_process() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/health/live").await.expect(200),
        json!({ "status": "live" })
    );
    let ready = server.get("/health/ready").await.expect(200);
    assert_eq!(ready["status"], "ready");
    assert_eq!(
        ready["checks"],
        json!({ "database": "ok", "queue": "ok", "runner": "ok", "registry": "ok" })
    );
    assert!(ready.get("reasons").is_none(), "{ready}");
    server.store.close().await.unwrap();
    let unready = server.get("/health/ready").await.expect(503);
    assert_eq!(
        (&unready["status"], &unready["checks"]["database"]),
        (&json!("unready"), &json!("failed"))
    );
    let reasons = unready["reasons"].as_array().unwrap();
    assert!(
        reasons[0].as_str().unwrap().contains("the database cannot write"),
        "{unready}"
    );
    assert_eq!(server.get("/health/live").await.expect(200)["status"], "live");
}

#[tokio::test]
async fn a_stopping_server_accepts_no_runs() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server.engine.stop();
    let stopping = server.get("/health/ready").await.expect(503);
    assert_eq!(
        (&stopping["status"], &stopping["checks"]["runner"]),
        (&json!("stopping"), &json!("stopping"))
    );
    assert!(stopping["reasons"].to_string().contains("is stopping"), "{stopping}");
    let answer = server.post_nothing("/api/v1/workflows/hello/execute").await;
    answer.error(503, "STOPPING");
    assert_eq!(answer.header("retry-after"), "1");
}

#[tokio::test]
async fn a_failing_store_is_a_server_error() {
    let server = Server::start().await;
    server.store.close().await.unwrap();
    for path in ["/api/v1/workflows", "/api/v1/executions", "/api/v1/workflows/x"] {
        let answer = server.get(path).await;
        answer.error(503, "STORAGE_UNAVAILABLE");
        assert!(!answer.header("retry-after").is_empty());
    }
}

#[tokio::test]
async fn a_panic_gets_a_response_and_the_server_continues() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server.clock.0.store(true, Ordering::Relaxed);
    let headers = [("x-correlation-id", "find-me"), ("content-type", "application/json")];
    let answer = server
        .send(
            Method::POST,
            "/api/v1/workflows/hello/execute",
            &headers,
            "{}".to_owned(),
        )
        .await;
    let error = answer.error(500, "INTERNAL");
    assert_eq!(error["correlationId"], "find-me");
    assert!(!answer.text.contains("clock"), "the cause is only in the log");
    server.clock.0.store(false, Ordering::Relaxed);
    server.post("/api/v1/workflows", echo("other")).await.expect(201);
}

#[tokio::test]
async fn open_requests_finish_when_the_server_shuts_down() {
    let mut server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let path = format!("{}/api/v1/workflows/gated/execute?wait=15s", server.base);
    let open = tokio::spawn(server.client.post(path).send());
    let deadline = tokio::time::Instant::now() + LONG;
    while server.get("/api/v1/executions").await.expect(200)["items"] == json!([]) {
        assert!(tokio::time::Instant::now() < deadline, "the request never arrived");
    }
    server.shutdown.take().unwrap().send(()).unwrap();
    let refused = async {
        while tokio::net::TcpStream::connect(server.base.trim_start_matches("http://"))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, refused)
        .await
        .expect("new connections are refused");
    assert!(!server.serving.is_finished());
    server.gate.add_permits(1);
    let answer = tokio::time::timeout(LONG, open).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("Succeeded"));
    tokio::time::timeout(LONG, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn shutdown_waits_for_the_grace_period_only() {
    let config = WebConfig {
        shutdown_grace: Duration::from_millis(50),
        ..WebConfig::default()
    };
    let mut server = Server::with(Settings::default(), config).await;
    let mut idle = tokio::net::TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();
    idle.write_all(b"POST /api/v1/workflows HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{")
        .await
        .unwrap();
    server.get("/health/live").await.expect(200);
    server.shutdown.take().unwrap().send(()).unwrap();
    tokio::time::timeout(LONG, &mut server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LONG, idle.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn missing_heads_and_bodies_time_out() {
    let config = WebConfig {
        body_timeout: Duration::from_millis(50),
        head_timeout: Duration::from_millis(50),
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let raw = async |text: &str| {
        let mut stream = tokio::net::TcpStream::connect(server.base.trim_start_matches("http://"))
            .await
            .unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LONG, stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        answer
    };
    let answer = raw("POST /api/v1/workflows HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{").await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("REQUEST_TIMEOUT"),
        "{answer}"
    );
    assert!(!raw("GET /health/live HTTP/1.1\r\nhost:").await.contains("200 OK"));
}

#[tokio::test]
async fn a_client_that_reads_late_gets_the_response_to_a_body_that_is_too_large() {
    let config = WebConfig {
        max_body_bytes: 10_000_000,
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let mut stream = tokio::net::TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();
    let head = "POST /api/v1/workflows HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 40000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; 40_000_000]).await.unwrap();
    let mut answer = String::new();
    let read = tokio::time::timeout(LONG, stream.read_to_string(&mut answer)).await;
    read.unwrap().unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("BODY_TOO_LARGE"),
        "{answer}"
    );
}
