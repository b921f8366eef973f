//! Callbacks: early, late, repeated and concurrent ones; their payloads; and that their tokens are not logged.

use crate::{
    harness::{LONG, Server},
    service::Service,
};
use fermata_runtime::Settings;
use fermata_store::conformance::home::{Home, Kind};
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn received() -> Value {
    json!({ "data": { "status": "received" } })
}

/// Starts a run that waits for its callback. Returns the path of the run and the path of the callback.
async fn waiting(server: &Server, service: &Service) -> (String, String) {
    server.create(&service.checkout("/answer/200")).await;
    let place = server.trigger("checkout", json!({})).await;
    server.until_task(&place, "payment-result", "waiting").await;
    (place, service.callback(0).await)
}

#[tokio::test]
async fn a_callback_completes_its_wait() {
    let (server, service) = (Server::start().await, Service::start().await);
    let (place, callback) = waiting(&server, &service).await;
    let paid = json!({ "status": "paid", "payment_id": "p-7" });
    assert_eq!(server.call_back(&callback, paid.clone()).await.expect(200), received());
    let run = server.until_over(&place).await;
    assert_eq!(run["status"], "completed");
    let status = |name: &str| run["tasks"][name]["status"].clone();
    assert_eq!(
        (status("payment-result"), status("fulfill-order")),
        (json!("received"), json!("success"))
    );
    assert_eq!(status("handle-timeout"), "skipped");
    assert_eq!(service.bodies()[1], json!({ "payment": paid }));
    let late = server.call_back(&callback, json!({})).await;
    late.error(409, "CALLBACK_CLOSED");
    assert_eq!(server.until_over(&place).await, run, "and nothing has changed");
}

#[tokio::test]
async fn open_waits_are_shown_with_their_callback_urls() {
    let (server, service) = (Server::start().await, Service::start().await);
    let (place, callback) = waiting(&server, &service).await;
    let id = place.rsplit('/').next().unwrap();
    let shown = format!("/api/v1/executions/{id}?include=waits");
    let run = server.get(&shown).await.expect(200);
    let url = format!("http://127.0.0.1:7070{callback}");
    let open = json!([{ "nodeId": "payment-result", "isOpen": true, "callbackUrl": url }]);
    assert_eq!(run["waits"], open);
    server
        .call_back(&callback, json!({ "status": "paid" }))
        .await
        .expect(200);
    server.until_over(&place).await;
    let run = server.get(&shown).await.expect(200);
    assert_eq!(run["waits"], json!([{ "nodeId": "payment-result", "isOpen": false }]));
    let without = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(without.get("waits"), None);
}

#[tokio::test]
async fn an_early_callback_is_kept_and_a_second_refused() {
    let (server, service) = (Server::start().await, Service::start().await);
    server.create(&service.checkout("/held")).await;
    let place = server.trigger("checkout", json!({})).await;
    let callback = service.callback(0).await;
    let run = server.get(&place).await.expect(200);
    assert_eq!(run["data"]["tasks"]["payment-result"], json!({ "status": "pending" }));
    let paid = json!({ "status": "paid", "n": 1 });
    assert_eq!(server.call_back(&callback, paid.clone()).await.expect(200), received());
    let second = server.call_back(&callback, json!({ "status": "paid", "n": 2 })).await;
    second.error(409, "CALLBACK_CLOSED");
    service.state.gate.add_permits(1);
    assert_eq!(server.until_over(&place).await["status"], "completed");
    assert_eq!(service.bodies()[1], json!({ "payment": paid }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_callbacks_is_accepted() {
    let (server, service) = (Server::start().await, Service::start().await);
    let (place, callback) = waiting(&server, &service).await;
    let calls = (0..20).map(|n| {
        let request = server.client.post(format!("{}{callback}", server.base));
        let request = request.body(json!({ "status": "paid", "n": n }).to_string());
        tokio::spawn(async move { (n, request.send().await.unwrap().status().as_u16()) })
    });
    let mut taken = Vec::new();
    for answer in futures::future::join_all(calls.collect::<Vec<_>>()).await {
        match answer.unwrap() {
            (n, 200) => taken.push(n),
            (_, status) => assert_eq!(status, 409),
        }
    }
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(server.until_over(&place).await["status"], "completed");
    let payment = json!({ "payment": { "status": "paid", "n": taken[0] } });
    assert_eq!(service.bodies()[1..], [payment], "the one that got 200");
}

#[tokio::test]
async fn callbacks_after_a_cancel_or_a_timeout_are_refused() {
    let (server, service) = (Server::start().await, Service::start().await);
    let (place, callback) = waiting(&server, &service).await;
    let stopped = server.post_nothing(&format!("{place}/cancel")).await.expect(200);
    assert_eq!(stopped["data"]["status"], "cancelled");
    server
        .call_back(&callback, json!({}))
        .await
        .error(409, "CALLBACK_CLOSED");

    let service = Service::start().await;
    let mut document = service.checkout("/answer/200");
    document["name"] = json!("brief");
    document["tasks"]["payment-result"]["wait_for_webhook"] = json!({ "timeout": "1s" });
    server.create(&document).await;
    let place = server.trigger("brief", json!({})).await;
    let run = server.until_over(&place).await;
    assert_eq!(run["tasks"]["payment-result"]["status"], "timeout");
    assert_eq!(run["tasks"]["handle-timeout"]["status"], "success");
    let late = server.call_back(&service.callback(0).await, json!({})).await;
    late.error(409, "CALLBACK_CLOSED");
}

#[tokio::test]
async fn unknown_tokens_are_refused() {
    let server = Server::start().await;
    for token in [
        "x",
        &"0".repeat(64),
        "%ff",
        "%00",
        "a%2Fb",
        "%27%3B--",
        &"0".repeat(129),
        &"0".repeat(7000),
    ] {
        let answer = server.post_nothing(&format!("/wh/{token}")).await;
        let error = answer.error(404, "CALLBACK_NOT_FOUND");
        assert_eq!(
            error["message"], "no wait has this callback token; check the URL",
            "whatever was sent"
        );
    }
    server.store.close().await.unwrap();
    let asked = server.post_nothing(&format!("/wh/{}", "0".repeat(128))).await;
    asked.error(503, "STORAGE_UNAVAILABLE");
    let absurd = server.post_nothing(&format!("/wh/{}", "0".repeat(129))).await;
    absurd.error(404, "CALLBACK_NOT_FOUND");
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = server.send(method, "/wh/secret-token", &[], "").await;
        let error = answer.error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.header("allow"), "POST");
        assert!(error["message"].as_str().unwrap().contains("/wh/{token}"), "{error}");
    }
    for path in ["/wh/secret-token/", "/wh/secret-token/x", "/fermata/wh/secret-token"] {
        let answer = server.post_nothing(path).await;
        answer.error(404, "NOT_FOUND");
        assert!(!answer.text.contains("secret"), "{}", answer.text);
    }
}

/// A workflow that sends its callback URL to the service, and then the payload of the callback.
fn passing(service: &Service) -> Value {
    let (url, tell) = (
        service.url("/answer/200"),
        json!({ "callback_url": "{{wait.answer.url}}" }),
    );
    json!({
        "name": "passing",
        "tasks": {
            "tell": { "url": url, "body": tell },
            "answer": { "needs": ["tell"], "wait_for_webhook": {} },
            "pass-on": { "needs": ["answer"], "url": url, "body": { "got": "{{tasks.answer.body}}" } },
        }
    })
}

/// Starts a run of it. Returns the path of the run and the path of the callback.
async fn passes(server: &Server, service: &Service) -> (String, String) {
    let calls = service.bodies().len();
    let place = server.trigger("passing", json!({})).await;
    (place, service.callback(calls).await)
}

#[tokio::test]
async fn payloads_are_json_or_text() {
    let (server, service) = (Server::start().await, Service::start().await);
    server.create(&passing(&service)).await;
    let form = "application/x-www-form-urlencoded";
    for (media, body, payload) in [
        ("application/json", "{\"a\": [1, null]}", json!({ "a": [1, null] })),
        ("text/plain", " [1]\n", json!([1])),
        (form, "status=paid&id=7", json!("status=paid&id=7")),
        ("application/json", "größe", json!("größe")),
        ("application/json", "", Value::Null),
        ("application/xml", "<paid/>", json!("<paid/>")),
    ] {
        let (place, callback) = passes(&server, &service).await;
        let answer = server
            .send(Method::POST, &callback, &[("content-type", media)], body)
            .await;
        assert_eq!(answer.expect(200), received());
        let run = server.until_over(&place).await;
        assert_eq!(run["status"], "completed", "{run}");
        assert_eq!(service.bodies().last(), Some(&json!({ "got": payload })));
    }
    let (_, callback) = passes(&server, &service).await;
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    for (body, code) in [
        (b"caf\xe9".to_vec(), "INVALID_REQUEST"),
        (br#"{"a":1,"a":2}"#.to_vec(), "INVALID_REQUEST"),
        (deep.into_bytes(), "BODY_TOO_DEEP"),
    ] {
        let answer = server.send(Method::POST, &callback, &[], body).await;
        answer.error(400, code);
    }
    // None of these completed the wait.
    server
        .send(Method::POST, &callback, &[], "no media type")
        .await
        .expect(200);
}

#[tokio::test]
async fn payloads_have_a_limit_of_their_own() {
    let config = WebConfig {
        max_callback_bytes: 1000,
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let service = Service::start().await;
    server.create(&passing(&service)).await;
    let (_, callback) = passes(&server, &service).await;
    for size in [1001, 100_000] {
        let answer = server.send(Method::POST, &callback, &[], "x".repeat(size)).await;
        answer.error(413, "BODY_TOO_LARGE");
    }
    let pieces = |count: usize| {
        let pieces = futures::stream::iter((0..count).map(|_| Ok::<_, io::Error>(vec![b'x'; 100])));
        reqwest::Body::wrap_stream(pieces)
    };
    let answer = server.send(Method::POST, &callback, &[], pieces(11)).await;
    answer.error(413, "BODY_TOO_LARGE");

    // A `Content-Length` above the limit is refused before the body is sent.
    let mut stream = tokio::net::TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();
    let head =
        format!("POST {callback} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1001\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = tokio::time::timeout(LONG, stream.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");

    let answer = server.send(Method::POST, &callback, &[], pieces(10)).await;
    assert_eq!(answer.expect(200), received());
}

/// Everything that this process logs after the first call of this function.
fn log() -> &'static Mutex<Vec<u8>> {
    struct Lines;
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            log().lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    static LOG: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let log = LOG.get_or_init(Mutex::default);
    INSTALLED.get_or_init(|| {
        let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        let lines = lines.with_ansi(false).with_writer(|| Lines).finish();
        tracing::subscriber::set_global_default(lines).unwrap();
    });
    log
}

#[tokio::test]
async fn no_token_is_logged() {
    log();
    let config = WebConfig {
        max_callback_bytes: 1000,
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let service = Service::start().await;
    let (place, callback) = waiting(&server, &service).await;
    let token = callback.trim_start_matches("/wh/");
    let send = async |method: Method, path: &str, body: String| server.send(method, path, &[], body).await.status;
    assert_eq!(send(Method::GET, &callback, String::new()).await, 405);
    assert_eq!(send(Method::POST, &callback, "x".repeat(1001)).await, 413);
    assert_eq!(send(Method::POST, &callback, "[".repeat(500)).await, 400);
    for path in [
        format!("{callback}x"),
        format!("{callback}%ff"),
        format!("{callback}{callback}"),
    ] {
        assert_eq!(send(Method::POST, &path, String::new()).await, 404, "{path}");
    }
    for path in [
        format!("/fermata{callback}"),
        format!("/wh%2F{token}"),
        format!("/%77h/{token}"),
        format!("/{token}"),
    ] {
        assert_eq!(send(Method::POST, &path, String::new()).await, 404, "{path}");
    }
    let query = format!("{callback}?again={token}");
    assert_eq!(
        send(Method::POST, &query, json!({ "status": "paid" }).to_string()).await,
        200
    );
    assert_eq!(send(Method::POST, &callback, String::new()).await, 409);
    server.until_over(&place).await;
    server.store.close().await.unwrap();
    assert_eq!(send(Method::POST, &callback, String::new()).await, 503);

    let log = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    let answered = |status: u16| {
        let line = |line: &str| line.contains("/wh/{token}") && line.contains(&format!("status={status}"));
        log.lines().any(line)
    };
    for status in [200, 400, 404, 405, 409, 413, 503] {
        assert!(answered(status), "{status} is not in the log");
    }
    assert!(log.contains(&place), "other paths are logged");
    let found = log.lines().find(|line| line.contains(token));
    assert_eq!(found, None);
}

#[tokio::test]
async fn an_accepted_callback_survives_a_restart() {
    let home = Arc::new(Home::new(Kind::Sqlite));
    let open = async || Server::on(&home, Settings::default(), WebConfig::default()).await;
    let service = Service::start().await;
    let mut first = open().await;
    let (place, callback) = waiting(&first, &service).await;
    first.engine.stop();
    let working = tokio::time::timeout(LONG, &mut first.working).await;
    working.unwrap().unwrap();
    // The engine has stopped and does not consume messages, but the server still accepts the callback.
    let paid = json!({ "status": "paid", "payment_id": "p-7" });
    assert_eq!(first.call_back(&callback, paid.clone()).await.expect(200), received());
    first
        .call_back(&callback, json!({}))
        .await
        .error(409, "CALLBACK_CLOSED");
    let run = first.get(&place).await.expect(200);
    assert_eq!(run["data"]["tasks"]["payment-result"]["status"], "waiting");
    let _ = first.shutdown.take().unwrap().send(());
    let serving = tokio::time::timeout(LONG, &mut first.serving).await;
    serving.unwrap().unwrap().unwrap();
    first.store.close().await.unwrap();
    drop(first);

    let second = open().await;
    second
        .call_back(&callback, json!({}))
        .await
        .error(409, "CALLBACK_CLOSED");
    let run = second.until_over(&place).await;
    assert_eq!(run["status"], "completed");
    assert_eq!(run["tasks"]["payment-result"]["status"], "received");
    assert_eq!(service.bodies()[1..], [json!({ "payment": paid })]);
    second.store.close().await.unwrap();
}
