//! Limits of a real process: its memory under a load of large payloads, and many clients at the same moment.
//!
//! All clients are on loopback and do a fixed number of requests.

use crate::support::{PATIENCE, Server, http_client};
use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

const CLIENTS: usize = 200;
const LARGE: usize = 4_800_000;
const MIB: u64 = 1 << 20;

/// Small enough that a process without budgets is far beyond them.
const BUDGETS: [(&str, &str, u64); 4] = [
    ("FERMATA_MEMORY__REQUEST_BYTES", "134217728", 128 * MIB),
    ("FERMATA_MEMORY__ANSWER_BYTES", "67108864", 64 * MIB),
    ("FERMATA_MEMORY__PAYLOAD_BYTES", "67108864", 64 * MIB),
    ("FERMATA_MEMORY__RESPONSE_BYTES", "33554432", 32 * MIB),
];

/// What docs/operations.md states beside the budgets: the program and its connections, and 25 MB for each of 6 reads.
const BESIDE_BUDGETS: u64 = 300 * MIB;

/// The most memory that a process had, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn echo() -> serde_json::Value {
    json!({ "id": "hello", "displayName": "Hello", "startNode": "greet", "nodes": [
        { "id": "greet", "actionType": "core.echo", "parameters": { "said": "{{ trigger.say ?? 'nothing' }}" } } ] })
}

#[tokio::test]
async fn memory_stays_within_the_budgets() {
    let environment: Vec<_> = BUDGETS.iter().map(|(name, value, _)| (*name, *value)).collect();
    let server = Server::start_with(&[], &environment);
    server.publish(&echo()).await;
    let client = http_client();
    let body = format!(r#"{{"trigger":{{"say":"hi","x":"{}"}}}}"#, "x".repeat(LARGE));
    let body: &'static str = body.leak(); // one copy for all clients

    // Large starts, all at once.
    let start = || {
        let request = client.post(format!("{}/api/v1/workflows/hello/execute", server.url));
        request.header("content-type", "application/json").body(body).send()
    };
    let mut accepted = Vec::new();
    for answer in join_all((0..CLIENTS).map(|_| start())).await {
        // The server may close a connection whose body it does not read; the client sees that as an error at times.
        let Ok(answer) = answer else { continue };
        match answer.status() {
            StatusCode::SERVICE_UNAVAILABLE => assert!(answer.headers().contains_key("retry-after")),
            StatusCode::ACCEPTED => {
                let run: serde_json::Value = answer.json().await.unwrap();
                accepted.push(run["executionId"].as_str().unwrap().to_owned());
            }
            status => panic!("{status}"),
        }
    }
    assert!(!accepted.is_empty(), "some are accepted");
    for id in &accepted {
        assert_eq!(
            server.ended(id).await["status"],
            "Succeeded",
            "what was accepted is done"
        );
    }

    // Clients that ask for a large answer and never read it.
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    let request = format!(
        "GET /api/v1/executions/{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        accepted[0]
    );
    let ask = async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream: TcpStream = socket.connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        // Its answer has begun, whatever it is.
        let mut begin = [0; b"HTTP/1.1 200".len()];
        let _ = tokio::time::timeout(PATIENCE, stream.read_exact(&mut begin)).await;
        (stream, begin == *b"HTTP/1.1 200")
    };
    let silent = join_all((0..CLIENTS).map(|_| ask())).await;
    let answers = silent.iter().filter(|(_, is_answered)| *is_answered).count() as u64;
    let fitting = BUDGETS[1].2 / LARGE as u64;
    assert!(
        (1..=fitting).contains(&answers),
        "{answers} answers are in memory, {fitting} fit"
    );
    let (status, _) = server.get("/health/live").await;
    assert_eq!(status, 200);
    server.execute("hello", &json!({})).await;

    let bound = BUDGETS.iter().map(|(_, _, bytes)| bytes).sum::<u64>() + BESIDE_BUDGETS;
    let peak = peak_memory(server.process().id());
    assert!(
        peak <= bound,
        "{} MiB were used, {} are allowed",
        peak / MIB,
        bound / MIB
    );
    drop(silent);
}

/// Each has a connection of its own. That none of them loses its first packet, which costs a second, is shown by
/// `a_thousand_connections_wait_to_be_accepted` in fermata-web.
#[tokio::test]
async fn a_thousand_simultaneous_clients_are_served() {
    let server = Server::start(&[]);
    server.publish(&echo()).await;
    let address = server.url.trim_start_matches("http://").to_owned();
    let request = "POST /api/v1/workflows/hello/execute HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\
                   connection: close\r\n\r\n";
    let client = async || {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    };
    let all = join_all((0..1000).map(|_| client()));
    tokio::time::timeout(PATIENCE, all).await.expect("all are served");
}
