//! Invalid requests to a real server: each gets a 4xx with a clear message, nothing is stored, and the server works as
//! before.

use crate::harness::{LONG, Server, echo, single};
use fermata_dialects::Stage;
use fermata_runtime::{EngineError, Refusal, Request, Settings};
use fermata_store::{definitions::WorkflowFilter, reads::RunFilter};
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const WORKFLOWS: &str = "/api/v1/workflows";
const EXECUTE: &str = "/api/v1/workflows/hello/execute";

/// Everything the store holds, as text.
async fn contents(server: &Server) -> String {
    let workflows = WorkflowFilter {
        limit: 1000,
        ..Default::default()
    };
    let runs = RunFilter {
        limit: 1000,
        ..Default::default()
    };
    let workflows = server.store.workflows(workflows).await.unwrap();
    let runs = server.store.runs(runs).await.unwrap();
    let hello = server.store.workflow("", "hello").await.unwrap();
    let draft = match hello {
        Some(hello) => server.store.draft(hello.uid).await.unwrap(),
        None => None,
    };
    format!("{workflows:?} {runs:?} {draft:?}")
}

async fn still_works(server: &Server) {
    server.get("/health/ready").await.expect(200);
    let run = server.post_nothing(&format!("{EXECUTE}?wait=15s")).await.expect(200);
    assert_eq!(run["status"], "Succeeded");
}

/// Nothing was stored since the store held `before`, and the server works.
async fn still_works_with(server: &Server, before: String) {
    assert_eq!(contents(server).await, before);
    still_works(server).await;
}

fn with_node(change: impl FnOnce(&mut Value)) -> String {
    let mut document = echo("hello");
    change(&mut document);
    document.to_string()
}

fn nested(open: &str, close: &str, inner: &str) -> String {
    open.repeat(10_000) + inner + &close.repeat(10_000)
}

fn many_nodes(count: usize) -> String {
    let mut text = r#"{"id":"hello","displayName":"H","startNode":"n0","nodes":["#.to_owned();
    for n in 0..count {
        let comma = if n == 0 { "" } else { "," };
        text.push_str(&format!(r#"{comma}{{"id":"n{n}","actionType":"core.echo"}}"#));
    }
    text + "]}"
}

/// Invalid documents, each with a code that must be among the details of the error.
fn documents() -> Vec<(String, &'static str)> {
    let list = |item: &str| format!("[{}]", [item; 9].join(","));
    let bomb = format!(
        "id: hello\nstartNode: a\na: &a {}\nb: &b {}\nc: &c {}\nd: &d {}\ne: &e {}\nf: &f {}\ng: &g {}\nh: &h {}\n",
        list("lol"),
        list("*a"),
        list("*b"),
        list("*c"),
        list("*d"),
        list("*e"),
        list("*f"),
        list("*g"),
    );
    let two = |second: Value| {
        let edges = json!([{ "targetNode": "b" }]);
        let first = json!({ "id": "a", "actionType": "core.echo", "edges": edges });
        json!({ "id": "hello", "displayName": "H", "startNode": "a", "nodes": [first, second] }).to_string()
    };
    let cycle = json!({ "id": "b", "actionType": "core.echo", "edges": [{ "targetNode": "a" }] });
    vec![
        ("{ \"id\": ".to_owned(), "SYNTAX"),
        ("id: [hello".to_owned(), "SYNTAX"),
        ("id: hello\n\tstartNode: a\n".to_owned(), "SYNTAX"),
        ("just words".to_owned(), "UNKNOWN_DIALECT"),
        ("[1, 2]".to_owned(), "UNKNOWN_DIALECT"),
        (nested("[", "]", ""), "TOO_DEEP"),
        (format!("{{\"id\":{}}}", nested("{\"a\":", "}", "1")), "TOO_DEEP"),
        (format!("{{\"id\":{}", "[".repeat(1_000_000)), "TOO_DEEP"),
        (format!("id: {}", nested("[", "]", "")), "TOO_DEEP"),
        (format!("id: {}", "- ".repeat(10_000)), ""),
        (
            (0..10_000).map(|n| format!("{}a:\n", " ".repeat(n % 400))).collect(),
            "",
        ),
        (
            r#"{"id":"hello","id":"hello","startNode":"a"}"#.to_owned(),
            "DUPLICATE_KEY",
        ),
        ("id: hello\nstartNode: a\nid: other\n".to_owned(), "DUPLICATE_KEY"),
        (many_nodes(100_000), ""),
        (bomb, ""),
        (with_node(|document| document["colour"] = json!("red")), "UNKNOWN_FIELD"),
        (with_node(|document| document["nodes"] = json!("none")), "WRONG_TYPE"),
        (with_node(|document| document["id"] = json!(7)), "WRONG_TYPE"),
        (
            with_node(|document| document["startNode"] = json!("nowhere")),
            "UNKNOWN_NODE",
        ),
        (two(cycle), "CYCLE"),
        (two(json!({ "id": "c", "actionType": "core.echo" })), "UNKNOWN_NODE"),
        (
            with_node(|document| {
                let node = json!({ "id": "next", "actionType": "core.echo" });
                document["nodes"].as_array_mut().unwrap().push(node);
                let edge = json!({ "targetNode": "next", "condition": "trigger.a ===== )" });
                document["nodes"][0]["edges"] = json!([edge]);
            }),
            "CONDITION_SYNTAX",
        ),
        (
            with_node(|document| document["nodes"][0]["parameters"] = json!({ "a": "{{ trigger. }}" })),
            "TEMPLATE_SYNTAX",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_documents_are_refused() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    for (text, code) in documents() {
        let shown: String = text.chars().take(80).collect();
        let places = [
            (Method::POST, WORKFLOWS),
            (Method::PUT, "/api/v1/workflows/hello/draft"),
        ];
        for (method, path) in places {
            let headers = [("content-type", "application/yaml")];
            let answer = server.send(method, path, &headers, text.clone()).await;
            let error = answer.error(400, "WFENG005");
            let details = error["details"].as_array().unwrap();
            let codes: Vec<&str> = details.iter().map(|detail| detail["code"].as_str().unwrap()).collect();
            assert!(
                code.is_empty() || codes.contains(&code),
                "{shown}: {code} is not in {codes:?}"
            );
            assert!(
                details.iter().all(|detail| detail["line"].as_u64() >= Some(1)),
                "each problem has a place: {shown}: {error}"
            );
        }
        let yaml = [("content-type", "application/yaml")];
        let looked_at = server
            .send(Method::POST, "/api/v1/workflows/validate", &yaml, text)
            .await;
        assert_eq!(looked_at.expect(200)["valid"], false, "{shown}");
    }
    still_works_with(&server, before).await;
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    let bodies = [
        ("{", "INVALID_JSON"),
        ("{\"trigger\": tru}", "INVALID_JSON"),
        ("trigger: yaml", "INVALID_JSON"),
        ("{} {}", "INVALID_JSON"),
        (&format!("{{\"trigger\":{}}}", nested("[", "]", "")), "BODY_TOO_DEEP"),
        (
            &format!("{{\"spec\":{}}}", nested("{\"a\":", "}", "1")),
            "BODY_TOO_DEEP",
        ),
        (&"[".repeat(1_000_000), "BODY_TOO_DEEP"),
        (r#"{"trigger":{},"trigger":{}}"#, "INVALID_REQUEST"),
        (r#"{"trigger":{"a":[{"b":1,"b":2}]}}"#, "INVALID_REQUEST"),
        (r#"{"spec":{"b":1,"b":1}}"#, "INVALID_REQUEST"),
        (r#"{"trigger":{},"colour":"red"}"#, "INVALID_REQUEST"),
        (r#"{"priority":"high"}"#, "INVALID_REQUEST"),
        (r#"{"priority":99999999999}"#, "INVALID_REQUEST"),
        (r#"{"principal":"me"}"#, "INVALID_REQUEST"),
        ("[]", "INVALID_REQUEST"),
        ("nil", "INVALID_JSON"),
    ];
    let json = [("content-type", "application/json")];
    for (body, code) in bodies {
        let answer = server.send(Method::POST, EXECUTE, &json, body.to_owned()).await;
        answer.error(400, code);
    }
    let missing = "01890000-0000-7000-8000-000000000000";
    let lost = [
        (Method::POST, "/api/v1/workflows/missing/execute".to_owned(), 404),
        (Method::GET, format!("/api/v1/executions/{missing}"), 404),
        (Method::GET, format!("/api/v1/executions/{missing}/hierarchy"), 404),
        (Method::POST, format!("/api/v1/executions/{missing}/cancel"), 404),
        (Method::GET, "/api/v1/executions/1".to_owned(), 400),
        (Method::GET, "/api/v1/executions?cursor=abc".to_owned(), 400),
        (Method::GET, "/api/v1/workflows?cursor=%F0%9F%8E%B5".to_owned(), 400),
        (
            Method::GET,
            "/api/v1/workflows/hello/versions?cursor=00".to_owned(),
            400,
        ),
        (Method::GET, "/api/v1/workflows/hello?version=99".to_owned(), 404),
        (Method::GET, "/api/v1/workflows/hello?version=-1".to_owned(), 400),
        (Method::GET, "/api/v1/workflows/%FF".to_owned(), 400),
        (Method::PATCH, "/api/v1/workflows/hello".to_owned(), 400),
        (Method::PATCH, "/api/v1/executions".to_owned(), 405),
        (Method::GET, "/api/v2/workflows".to_owned(), 404),
    ];
    for (method, path, status) in lost {
        let answer = server.send(method, &path, &[], "").await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let body: Value = serde_json::from_str(&answer.text).unwrap();
        answer.error(status, body["error"]["code"].as_str().unwrap());
    }
    still_works_with(&server, before).await;
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap()
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
    // A reset after the response counts as a close.
    let _ = read.expect("the server ends it");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    for path in [EXECUTE, WORKFLOWS] {
        for extra in ["", "expect: 100-continue\r\n"] {
            let mut stream = connect(&server).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{extra}content-length: 20000000\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut start = [0; 12];
            let read = tokio::time::timeout(LONG, stream.read_exact(&mut start)).await;
            read.expect("an answer without a body").unwrap();
            assert_eq!(&start, b"HTTP/1.1 413", "nothing of the body was sent");
        }
        // Without `Content-Length`, the bytes are counted.
        let pieces = futures::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1_000_000])));
        let body = reqwest::Body::wrap_stream(pieces);
        let json = [("content-type", "application/json")];
        let answer = server.send(Method::POST, path, &json, body).await;
        answer.error(413, "BODY_TOO_LARGE");
    }
    still_works_with(&server, before).await;
}

/// The head of a request to execute `hello`, with a body of this length.
fn execute_head(length: usize) -> String {
    format!(
        "POST {EXECUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Fifty connections, each of which has sent this text and goes on slowly.
async fn slow_connections(server: &Server, text: &str) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(server).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for stream in &mut slow {
        let _ = stream.write_all(b"a").await;
    }
    slow
}

#[tokio::test]
async fn requests_that_are_cut_off_change_nothing() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    let body = json!({ "requestId": "cut" }).to_string();
    // One byte is missing, and what came is a whole object.
    let whole = execute_head(body.len() + 1) + &body;
    // Cut in the head, after the head, in the body.
    for length in [5, 40, whole.len() - body.len(), whole.len() - 1, whole.len()] {
        let mut stream = connect(&server).await;
        stream.write_all(&whole.as_bytes()[..length]).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("202 Accepted"), "{answer}");
    }
    still_works_with(&server, before).await;
}

#[tokio::test]
async fn bodies_that_never_arrive_get_408_and_do_not_block_others() {
    let config = WebConfig {
        body_timeout: Duration::from_millis(300),
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    let slow = slow_connections(&server, &(execute_head(1000) + "{\"trigger\": [")).await;
    server.get("/health/ready").await.expect(200);
    for mut stream in slow {
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    still_works_with(&server, before).await;
}

#[tokio::test]
async fn heads_that_never_end_are_disconnected_and_do_not_block_others() {
    let config = WebConfig {
        // Long enough for a busy machine to receive a whole head in time.
        head_timeout: Duration::from_secs(3),
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    server.publish(&echo("hello")).await;
    let before = contents(&server).await;
    let slow = slow_connections(&server, "GET /health/live HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    server.get("/health/ready").await.expect(200);
    for mut stream in slow {
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    still_works_with(&server, before).await;
}

#[tokio::test]
async fn a_workflow_that_keeps_changing_is_refused() {
    let server = Server::start().await;
    let document = single("w", "core.echo", json!({}));
    server.publish(&document).await;
    // A version that this process has cached and the store does not have.
    let workflows = server.engine.workflows();
    let (_, compiled) = workflows
        .check(document.to_string().as_bytes(), "request", Stage::Run)
        .unwrap();
    let uid = server.engine.reads().workflow("w").await.unwrap().uid;
    workflows.install(uid, compiled.plan, 5).unwrap();
    let request = Request {
        workflow_id: "w".to_owned(),
        version: Some(5),
        ..Request::default()
    };
    let error = server.engine.start(request).await.unwrap_err();
    assert!(
        matches!(&error, EngineError::Refused(Refusal::KeepsChanging(id)) if id == "w"),
        "{error}"
    );
}
