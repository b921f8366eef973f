//! Callbacks: early, late, repeated and concurrent ones, their size limit, and the secrecy of their tokens.

use super::{Run, Stage, service::Answer, task_statuses};
use crate::support::{Server, Signal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const PAYLOAD_LIMIT: usize = 256 * 1024;

/// Sends the callback URL to the service, waits for the callback, and sends its payload to the service.
fn callback_tasks(stage: &Stage) -> Value {
    json!({
        "ask": { "url": stage.service.at("/ask"), "body": { "callback": "{{wait.reply.url}}" } },
        "reply": { "needs": ["ask"], "wait_for_webhook": { "timeout": "1h" } },
        "use": { "needs": ["reply"], "url": stage.service.at("/use"),
                 "body": { "status": "{{tasks.reply.status}}", "got": "{{tasks.reply.body}}" } },
    })
}

/// Starts a run that waits. Returns the run and the path of its callback. `number` counts from 1.
async fn waiting(stage: &Stage, number: usize) -> (Run, String) {
    let run = stage.server.trigger("under-test", &json!({})).await;
    let callback = stage.service.call("/ask", number).await.callback("callback");
    stage.server.until(&run, "reply", "waiting").await;
    (run, callback)
}

async fn stage() -> Stage {
    let stage = Stage::start().await;
    let document = json!({ "name": "under-test", "tasks": callback_tasks(&stage) });
    stage.server.add(&document).await;
    stage
}

fn received() -> (u16, Value) {
    (200, json!({ "data": { "status": "received" } }))
}

async fn refused(server: &Server, callback: &str, status: u16, code: &str) {
    let (found, answer) = server.post(callback, &json!({ "late": true })).await;
    assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
}

#[tokio::test]
async fn callback_is_accepted_once_and_its_payload_is_used() {
    let stage = stage().await;
    let (run, callback) = waiting(&stage, 1).await;
    let payload = json!({ "status": "paid", "items": [1, null, { "a": "ü" }] });
    assert_eq!(stage.server.post(&callback, &payload).await, received());
    refused(&stage.server, &callback, 409, "CALLBACK_CLOSED").await;
    let view = stage.server.over(&run).await;
    assert_eq!(
        (&view["status"], task_statuses(&view)["reply"]),
        (&json!("completed"), "received")
    );
    assert_eq!(
        stage.service.call("/use", 1).await.json(),
        json!({ "status": "received", "got": payload })
    );
    // It stays closed after the run has ended.
    refused(&stage.server, &callback, 409, "CALLBACK_CLOSED").await;
    assert_eq!(stage.server.run(&run).await, view, "nothing has changed");
    assert_eq!(stage.service.calls_of("/use").len(), 1);
}

#[tokio::test]
async fn early_callback_is_kept_until_its_step_waits() {
    let stage = stage().await;
    stage.service.script("/ask", [Answer::ok(&json!({})).held()]);
    let run = stage.server.trigger("under-test", &json!({})).await;
    let callback = stage.service.call("/ask", 1).await.callback("callback");
    let view = stage.server.run(&run).await;
    assert_eq!(
        (task_statuses(&view)["ask"], task_statuses(&view)["reply"]),
        ("running", "pending")
    );
    assert_eq!(stage.server.post(&callback, &json!("early")).await, received());
    refused(&stage.server, &callback, 409, "CALLBACK_CLOSED").await;
    assert_eq!(
        task_statuses(&stage.server.run(&run).await)["reply"],
        "pending",
        "the step does not wait yet"
    );
    stage.service.release("/ask");
    let view = stage.server.over(&run).await;
    assert_eq!(
        (&view["status"], task_statuses(&view)["reply"]),
        (&json!("completed"), "received")
    );
    assert_eq!(
        stage.service.call("/use", 1).await.json(),
        json!({ "status": "received", "got": "early" })
    );
}

#[tokio::test]
async fn early_callback_for_a_skipped_step_changes_nothing() {
    let stage = stage().await;
    stage.service.script("/ask", [Answer::status(422).held()]);
    let run = stage.server.trigger("under-test", &json!({})).await;
    let callback = stage.service.call("/ask", 1).await.callback("callback");
    assert_eq!(stage.server.post(&callback, &json!("early")).await, received());
    stage.service.release("/ask");
    let view = stage.server.over(&run).await;
    assert_eq!(
        (&view["status"], task_statuses(&view)["reply"]),
        (&json!("failed"), "skipped")
    );
    assert!(stage.service.calls_of("/use").is_empty());
}

#[tokio::test]
async fn late_callback_is_refused() {
    let stage = stage().await;
    // After a cancel.
    let (run, callback) = waiting(&stage, 1).await;
    stage.server.post(&format!("{}/cancel", run.path()), &json!({})).await;
    assert_eq!(stage.server.over(&run).await["status"], "cancelled");
    refused(&stage.server, &callback, 409, "CALLBACK_CLOSED").await;

    // After a timeout, while the run continues.
    let mut tasks = callback_tasks(&stage);
    tasks["reply"]["wait_for_webhook"] = json!({ "timeout": "50ms" });
    tasks["then"] =
        json!({ "needs": ["reply"], "if": "tasks.reply.status == 'timeout'", "url": stage.service.at("/then") });
    stage.service.script("/then", [Answer::ok(&json!({})).held()]);
    stage.server.add(&json!({ "name": "brief", "tasks": tasks })).await;
    let run = stage.server.trigger("brief", &json!({})).await;
    let callback = stage.service.call("/ask", 2).await.callback("callback");
    stage.service.call("/then", 1).await;
    refused(&stage.server, &callback, 409, "CALLBACK_CLOSED").await;
    stage.service.release("/then");
    let view = stage.server.over(&run).await;
    assert_eq!(
        (&view["status"], task_statuses(&view)["reply"]),
        (&json!("completed"), "timeout")
    );

    // An unknown token.
    refused(
        &stage.server,
        &format!("/wh/{}", "0".repeat(64)),
        404,
        "CALLBACK_NOT_FOUND",
    )
    .await;
    assert!(stage.service.calls_of("/use").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_callbacks_is_accepted() {
    const CALLBACKS: usize = 25;
    let stage = stage().await;
    for round in 1..=6 {
        // In every other round the callbacks arrive before the step waits.
        let is_early = round % 2 == 0;
        let script = Answer::ok(&json!({}));
        stage
            .service
            .script("/ask", [if is_early { script.held() } else { script }]);
        let run = stage.server.trigger("under-test", &json!({})).await;
        let callback = stage.service.call("/ask", round).await.callback("callback");
        if !is_early {
            stage.server.until(&run, "reply", "waiting").await;
        }
        let payloads: Vec<Value> = (0..CALLBACKS).map(|number| json!({ "number": number })).collect();
        let posts = payloads.iter().map(|payload| stage.server.post(&callback, payload));
        let answers = futures::future::join_all(posts).await;
        let accepted = |(at, (status, _)): (usize, &(u16, Value))| (*status == 200).then_some(at);
        let accepted: Vec<usize> = answers.iter().enumerate().filter_map(accepted).collect();
        assert_eq!(accepted.len(), 1, "round {round}: {answers:?}");
        let others = answers.iter().filter(|(status, _)| *status != 200);
        assert!(
            others.clone().all(|(status, _)| *status == 409),
            "{:?}",
            others.collect::<Vec<_>>()
        );
        if is_early {
            stage.service.release("/ask");
        }
        assert_eq!(stage.server.over(&run).await["status"], "completed");
        let used = stage.service.call("/use", round).await;
        assert_eq!(
            used.json()["got"],
            payloads[accepted[0]],
            "round {round}: the accepted payload is used"
        );
    }
    assert_eq!(stage.service.calls_of("/use").len(), 6, "each run continues once");
}

#[tokio::test]
async fn payloads_are_json_or_text_and_have_a_limit() {
    let stage = stage().await;
    let sent = [
        (r#" {"a": [1.5, true]} "#, json!({ "a": [1.5, true] })),
        ("status=paid&id=7", json!("status=paid&id=7")),
        ("", Value::Null),
        (
            "{{trigger.body.secret}} <not a template>",
            json!("{{trigger.body.secret}} <not a template>"),
        ),
    ];
    for (number, (body, payload)) in (1..).zip(&sent) {
        let (run, callback) = waiting(&stage, number).await;
        assert_eq!(stage.server.send("POST", &callback, *body).await, received());
        stage.server.over(&run).await;
        assert_eq!(stage.service.call("/use", number).await.json()["got"], *payload);
    }

    let number = sent.len() + 1;
    let (run, callback) = waiting(&stage, number).await;
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let (status, answer) = stage.server.send("POST", &callback, text(PAYLOAD_LIMIT + 1)).await;
    assert_eq!((status, &answer["error"]["code"]), (413, &json!("BODY_TOO_LARGE")));
    for bad in [&b"caf\xe9"[..], b"{\"a\":1,\"a\":2}"] {
        assert_eq!(stage.server.send("POST", &callback, bad).await.0, 400);
    }
    // A request with a `content-length` above the limit is refused before its body is read.
    let mut stream = TcpStream::connect(stage.server.url.trim_start_matches("http://"))
        .await
        .expect("a connection");
    let head = format!("POST {callback} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 99999999\r\n\r\n");
    stream
        .write_all(head.as_bytes())
        .await
        .expect("the request can be sent");
    let mut line = [0; 12];
    let read = tokio::time::timeout(crate::support::PATIENCE, stream.read_exact(&mut line)).await;
    read.expect("a response arrives").expect("the response can be read");
    assert_eq!(&line, b"HTTP/1.1 413");
    // None of these requests answered the wait.
    assert_eq!(task_statuses(&stage.server.run(&run).await)["reply"], "waiting");
    assert_eq!(
        stage.server.send("POST", &callback, text(PAYLOAD_LIMIT)).await,
        received()
    );
    assert_eq!(stage.server.over(&run).await["status"], "completed");
    let got = &stage.service.call("/use", number).await.json()["got"];
    assert_eq!(got.as_str().map(str::len), Some(PAYLOAD_LIMIT - 2));
}

#[tokio::test]
async fn callback_urls_start_with_the_public_url() {
    let stage = stage().await;
    let callback_url = |stage: &Stage| {
        stage.service.calls_of("/ask")[0].json()["callback"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let (_, callback) = waiting(&stage, 1).await;
    assert_eq!(
        callback_url(&stage),
        format!("{}{callback}", stage.server.url),
        "by default the address of the server"
    );
    let token = callback.trim_start_matches("/wh/");
    assert!(
        token.len() * 4 >= 128 && token.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "at least 128 bits"
    );

    let stage = Stage::with(&[("FERMATA_SERVER__PUBLIC_URL", "https://flows.example/fermata/")]).await;
    let run = stage.trigger_tasks(callback_tasks(&stage), json!({})).await;
    stage.server.until(&run, "reply", "waiting").await;
    let url = callback_url(&stage);
    assert!(url.starts_with("https://flows.example/fermata/wh/"), "{url}");
}

#[tokio::test]
async fn tokens_are_never_logged() {
    // Tokens must not be logged even if the configuration names the log target of the database driver.
    let mut stage = Stage::with(&[("RUST_LOG", "trace,tokio_postgres::query=trace")]).await;
    let document = json!({ "name": "under-test", "tasks": callback_tasks(&stage) });
    stage.server.add(&document).await;
    let mut tokens = BTreeSet::new();
    for number in 1..=3 {
        let (run, callback) = waiting(&stage, number).await;
        let token = callback.trim_start_matches("/wh/").to_owned();
        assert_eq!(stage.server.get(&callback).await.0, 405);
        assert_eq!(
            stage
                .server
                .send("POST", &callback, "x".repeat(PAYLOAD_LIMIT + 1))
                .await
                .0,
            413
        );
        assert_eq!(stage.server.send("POST", &callback, "[".repeat(500)).await.0, 400);
        for path in [
            format!("{callback}/"),
            format!("{callback}x"),
            format!("/x{callback}"),
            format!("/{token}"),
            format!("/wh%2F{token}"),
        ] {
            assert_eq!(stage.server.post(&path, &json!({})).await.0, 404, "{path}");
        }
        let (status, _) = stage
            .server
            .post(&format!("{callback}?again={token}"), &json!({ "n": number }))
            .await;
        assert_eq!(status, 200);
        assert_eq!(stage.server.post(&callback, &json!({})).await.0, 409);
        stage.server.over(&run).await;
        tokens.insert(token);
    }
    // Recovery reads tokens too.
    let (run, callback) = waiting(&stage, 4).await;
    let first = stage.server.process().log();
    stage.server.restart();
    assert_eq!(stage.server.post(&callback, &json!({})).await.0, 200);
    stage.server.over(&run).await;
    tokens.insert(callback.trim_start_matches("/wh/").to_owned());
    stage.server.process().signal(Signal::TERM);
    stage.server.wait();
    let second = stage.server.process().log();

    let log = format!("{first}\n{second}");
    for level in ["TRACE", "DEBUG", "INFO"] {
        assert!(log.contains(level), "the log is not complete: no {level}");
    }
    assert!(log.contains("/wh/{token}"), "the route is logged");
    for token in tokens {
        let found = log.lines().find(|line| line.contains(&token));
        assert_eq!(found, None, "a token is in the log");
    }
}
