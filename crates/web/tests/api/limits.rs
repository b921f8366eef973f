//! Limits of the process: reads, connections, and memory for requests and responses.

use crate::harness::{LONG, Server, echo};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

const EXECUTE: &str = "/api/v1/workflows/hello/execute";

async fn server(config: WebConfig) -> Server {
    let server = Server::with(Settings::default(), config).await;
    server.publish(&echo("hello")).await;
    server
}

impl Server {
    fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// A whole response, on a new connection.
    async fn ask_alone(&self, path: &str) -> String {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = timeout(LONG, stream.read_to_string(&mut answer)).await;
        read.expect("it is answered and closed").unwrap();
        answer
    }
}

#[tokio::test]
async fn only_reads_above_the_limit_are_refused() {
    let config = WebConfig {
        max_concurrent_reads: 0,
        read_patience: Duration::from_millis(1),
        ..WebConfig::default()
    };
    let server = server(config).await;
    let accepted = server.post(EXECUTE, json!({})).await.expect(202);
    let run = format!("/api/v1/executions/{}", accepted["executionId"].as_str().unwrap());
    for path in [
        run.as_str(),
        "/api/v1/executions",
        "/api/v1/workflows",
        "/api/v1/workflows/hello",
        "/api/v1/runners",
        "/api/v1/admin/dead-letters",
    ] {
        let answer = server.get(path).await;
        answer.error(503, "BUSY");
        assert_eq!(answer.header("retry-after"), "1");
    }
    server.post_nothing(&format!("{run}/cancel")).await.expect(200);
    server
        .post_nothing("/wh/nothing")
        .await
        .error(404, "CALLBACK_NOT_FOUND");
    server.get("/health/live").await.expect(200);
    server.get("/health/ready").await.expect(200);
}

#[tokio::test]
async fn only_large_bodies_above_the_budget_are_refused() {
    let config = WebConfig {
        request_bytes: 1_000_000,
        ..WebConfig::default()
    };
    let server = server(config).await;
    let json = [("content-type", "application/json")];
    let body = format!("{{\"trigger\": \"{}\"}}", "x".repeat(100_000));

    // Half of this body has arrived, and all of it is counted.
    let mut slow = server.connect().await;
    let (first, rest) = body.split_at(50_000);
    let head = format!(
        "POST {EXECUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{first}",
        body.len()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let deadline = Instant::now() + LONG;
    let refused = loop {
        let answer = server.send(Method::POST, EXECUTE, &json, body.clone()).await;
        if answer.status != 202 {
            break answer;
        }
        assert!(Instant::now() < deadline, "the slow request is never counted");
    };
    refused.error(503, "BUSY");
    assert_eq!(refused.header("retry-after"), "1");
    let unknown_length = || {
        let pieces: Vec<_> = body.as_bytes().chunks(10_000).map(<[u8]>::to_vec).collect();
        reqwest::Body::wrap_stream(futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)))
    };
    let refused = server.send(Method::POST, EXECUTE, &json, unknown_length()).await;
    refused.error(503, "BUSY");
    server.post(EXECUTE, json!({ "trigger": "small" })).await.expect(202);

    slow.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LONG, slow.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    server
        .send(Method::POST, EXECUTE, &json, body.clone())
        .await
        .expect(202);
    server
        .send(Method::POST, EXECUTE, &json, unknown_length())
        .await
        .expect(202);
}

#[tokio::test]
async fn clients_that_do_not_read_use_up_a_budget_and_are_disconnected() {
    const SIZE: usize = 4_800_000;
    let config = WebConfig {
        answer_bytes: 3 * SIZE as u64,
        write_timeout: Duration::from_millis(300),
        ..WebConfig::default()
    };
    let server = server(config).await;
    let id = server
        .execute("hello", json!({ "trigger": { "x": "y".repeat(SIZE) } }))
        .await;
    let path = format!("/api/v1/executions/{id}");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let whole = server.get(&path).await;
    assert!(whole.expect(200)["trigger"]["x"].as_str().unwrap().len() == SIZE);
    assert_eq!(whole.header("content-length"), whole.text.len().to_string());

    let mut silent = Vec::new();
    for _ in 0..4 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address().parse().unwrap()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let deadline = Instant::now() + LONG;
    let mut was_refused = false;
    while !was_refused {
        assert!(Instant::now() < deadline, "the silent ones are never counted");
        let answer = server.get(&path).await;
        was_refused = answer.status == 503;
        if was_refused {
            answer.error(503, "BUSY");
        }
    }
    // Small responses still work, and large ones again after the silent clients are disconnected.
    server.get("/api/v1/executions").await.expect(200);
    while server.get(&path).await.status != 200 {
        assert!(Instant::now() < deadline, "the silent ones are never disconnected");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for mut stream in silent {
        let mut rest = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut rest))
            .await
            .expect("it was closed");
    }
}

#[tokio::test]
async fn health_checks_work_above_the_connection_limit() {
    let config = WebConfig {
        max_connections: 2,
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(server.connect().await);
    }
    let live = server.ask_alone("/health/live").await;
    assert!(
        live.starts_with("HTTP/1.1 200") && live.contains("connection: close"),
        "{live}"
    );
    let ready = server.ask_alone("/health/ready").await;
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains("\"ready\""),
        "{ready}"
    );
    let other = server.ask_alone("/api/v1/workflows").await;
    assert!(other.starts_with("HTTP/1.1 503") && other.contains("BUSY"), "{other}");
    assert!(other.contains("retry-after: 1"), "{other}");

    drop(idle);
    let deadline = Instant::now() + LONG;
    while server
        .client
        .get(format!("{}/api/v1/workflows", server.base))
        .send()
        .await
        .unwrap()
        .status()
        != 200
    {
        assert!(Instant::now() < deadline, "permits are never released");
    }
}

/// With a shorter backlog, the kernel drops some of them and clients retry after a second.
#[tokio::test]
async fn a_thousand_connections_wait_to_be_accepted() {
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let listener = fermata_web::listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || timeout(LONG, TcpStream::connect(address));
    let connected = futures::future::join_all((0..1000.min(most)).map(|_| connect())).await;
    let connected: Result<Vec<_>, _> = connected.into_iter().collect();
    let connected = connected.expect("none has to wait for another to be accepted");
    assert!(connected.iter().all(Result::is_ok));
}
