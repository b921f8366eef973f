//! Starting runs: bodies, idempotency, waiting, refusals.

use crate::harness::{LONG, Server, echo, single};
use fermata_core::Timestamp;
use fermata_runtime::Settings;
use fermata_store::{
    definitions::{Enablement, Lifecycle},
    reads::RunFilter,
};
use fermata_web::WebConfig;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

const EXECUTE: &str = "/api/v1/workflows/hello/execute";

async fn server() -> Server {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server
}

#[tokio::test]
async fn an_empty_body_is_enough() {
    let server = server().await;
    let answer = server.post_nothing(EXECUTE).await;
    let accepted = answer.expect(202);
    let id = accepted["executionId"].as_str().unwrap();
    assert_eq!(accepted["statusUrl"], format!("/api/v1/executions/{id}"));
    assert!(["Pending", "Running"].contains(&accepted["status"].as_str().unwrap()));
    assert_eq!(accepted.as_object().unwrap().len(), 3);
    assert_eq!(
        answer.header("x-correlation-id"),
        id,
        "a run without one correlates under its own id"
    );

    let run = server.until(id, |run| run["status"] == "Succeeded").await;
    assert_eq!(run["trigger"], json!({}));
    assert_eq!(run["principal"], json!({ "userId": "system", "displayName": "System" }));
    assert_eq!(run["correlationId"], id);
    assert!(!run["requestId"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn everything_in_the_body_reaches_the_run() {
    let server = server().await;
    let body = json!({
        "requestId": "ext-1", "trigger": { "say": "hi", "nothing": null }, "priority": 5, "tenantId": "acme",
        "spec": { "a": [1, 2.50] }, "principal": { "userId": "U1", "displayName": "Doug", "email": "d@example.com" },
    });
    let headers = [
        ("content-type", "application/json"),
        ("x-correlation-id", "trace \"7\""),
    ];
    let answer = server.send(Method::POST, EXECUTE, &headers, body.to_string()).await;
    let accepted = answer.expect(202);
    assert_eq!(answer.header("x-correlation-id"), "trace \"7\"");
    let id = accepted["executionId"].as_str().unwrap();
    let run = server.until(id, |run| run["status"] == "Succeeded").await;
    for field in ["requestId", "trigger", "priority", "tenantId", "spec", "principal"] {
        assert_eq!(run[field], body[field], "{field}");
    }
    assert_eq!(run["correlationId"], "trace \"7\"");
    assert_eq!(run["outputs"], json!({ "said": "hi" }));
}

#[tokio::test]
async fn a_request_id_makes_one_run() {
    let server = server().await;
    let body = json!({ "requestId": "once" });
    let first = server.post(EXECUTE, body.clone()).await.expect(202);
    let again = server.post(EXECUTE, body.clone()).await.expect(200);
    assert_eq!(first["executionId"], again["executionId"]);
    assert_eq!(first["statusUrl"], again["statusUrl"]);

    server.publish(&echo("other")).await;
    let error = server.post("/api/v1/workflows/other/execute", body).await;
    let error = error.error(409, "WFENG001");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains(first["executionId"].as_str().unwrap())
    );
    let elsewhere = json!({ "requestId": "once", "tenantId": "acme" });
    server
        .post("/api/v1/workflows/other/execute", elsewhere)
        .await
        .expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_requests_with_one_request_id_creates_a_run() {
    let server = server().await;
    let calls = (0..32).map(|_| server.post(EXECUTE, json!({ "requestId": "crowd" })));
    let answers = join_all(calls).await;
    let new = answers.iter().filter(|answer| answer.status == 202).count();
    let known = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((new, known), (1, 31));
    let ids: BTreeSet<String> = answers
        .iter()
        .map(|answer| serde_json::from_str::<Value>(&answer.text).unwrap()["executionId"].to_string())
        .collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn waiting_responds_with_the_finished_run() {
    let server = server().await;
    for wait in ["30s", "20000ms", "1m", "15"] {
        let path = format!("{EXECUTE}?wait={wait}");
        let finished = server.post(&path, json!({ "trigger": { "say": wait } })).await;
        let finished = finished.expect(200);
        assert_eq!(
            (&finished["status"], &finished["outputs"]["said"]),
            (&json!("Succeeded"), &json!(wait))
        );
        let id = finished["id"].as_str().unwrap();
        assert_eq!(
            server.get(&format!("/api/v1/executions/{id}")).await.expect(200),
            finished
        );
    }
    let body = json!({ "requestId": "r" });
    let first = server
        .post(&format!("{EXECUTE}?wait=30s"), body.clone())
        .await
        .expect(200);
    let again = server.post(&format!("{EXECUTE}?wait=30s"), body).await.expect(200);
    assert_eq!(first, again);

    server
        .publish(&single("broken", "core.fail", json!({ "message": "no" })))
        .await;
    let failed = server
        .post_nothing("/api/v1/workflows/broken/execute?wait=30s")
        .await
        .expect(200);
    assert_eq!(failed["status"], "Failed");
    assert_eq!(failed["error"]["code"], "FAILED_ON_PURPOSE");
    assert!(failed["reason"].is_string());
}

#[tokio::test]
async fn waiting_is_limited() {
    let server = server().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let body = json!({ "requestId": "slow" });
    for _ in 0..2 {
        let answer = server
            .post("/api/v1/workflows/gated/execute?wait=20ms", body.clone())
            .await;
        let short = answer.expect(202);
        assert_eq!(short.as_object().unwrap().len(), 3);
        assert_eq!(short["status"], "Running");
    }
    server.gate.add_permits(1);
    let done = server
        .post("/api/v1/workflows/gated/execute?wait=15s", body)
        .await
        .expect(200);
    assert_eq!(done["status"], "Succeeded");
    for bad in ["", "soon", "-1s", "1h", "6m", "301"] {
        let answer = server.post_nothing(&format!("{EXECUTE}?wait={bad}")).await;
        answer.error(400, "INVALID_PARAMETER");
    }
    server
        .post_nothing(&format!("{EXECUTE}?wiat=1s"))
        .await
        .error(400, "INVALID_PARAMETER");
}

/// The run is durable, so an error would make the client start a second one.
#[tokio::test]
async fn accepted_run_is_202_if_the_store_fails_while_its_end_is_awaited() {
    let settings = Settings {
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let request = server.post_nothing("/api/v1/workflows/gated/execute?wait=15s");
    let close = async {
        let filter = RunFilter {
            limit: 1,
            ..RunFilter::default()
        };
        while server.store.runs(filter.clone()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
        server.store.close().await.unwrap();
    };
    let (answer, closed) = tokio::join!(request, tokio::time::timeout(LONG, close));
    closed.expect("the run is stored");
    assert_eq!(answer.expect(202)["status"], "Running");
}

#[tokio::test]
async fn inactive_workflows_are_not_started() {
    let server = server().await;
    let missing = server.post_nothing("/api/v1/workflows/missing/execute").await;
    missing.error(404, "WORKFLOW_NOT_FOUND");
    server.post("/api/v1/workflows", echo("draft")).await.expect(201);
    let draft = server.post_nothing("/api/v1/workflows/draft/execute").await;
    draft.error(409, "WORKFLOW_NOT_ACTIVE");
    server.post_nothing(EXECUTE).await.expect(202);
    let disable = Enablement {
        from: vec![Lifecycle::Active],
        status: None,
        enabled: Some(false),
        version: None,
        paused: None,
    };
    let hello = server.store.workflow("", "hello").await.unwrap().unwrap().uid;
    server.store.set_enablement(hello, disable, Timestamp(0)).await.unwrap();
    let error = server.post_nothing(EXECUTE).await.error(409, "WORKFLOW_NOT_ACTIVE");
    assert!(error["message"].as_str().unwrap().contains("disabled"));
}

#[tokio::test]
async fn a_trigger_must_match_its_schema() {
    let server = server().await;
    let mut document = echo("strict");
    document["triggerSchema"] = json!({
        "type": "object", "required": ["say"], "properties": { "say": { "type": "string" }, "n": { "type": "integer" } }
    });
    server.publish(&document).await;
    let path = "/api/v1/workflows/strict/execute";
    let error = server
        .post(path, json!({ "trigger": { "n": "x" } }))
        .await
        .error(400, "WFENG005");
    let details = error["details"].as_array().unwrap();
    let pointers: BTreeSet<&str> = details
        .iter()
        .map(|detail| detail["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, BTreeSet::from(["/trigger", "/trigger/n"]));
    assert!(
        details
            .iter()
            .all(|detail| detail["message"].is_string() && detail["code"] == "INVALID_TRIGGER")
    );
    server.post_nothing(path).await.error(400, "WFENG005");
    server
        .post(path, json!({ "trigger": { "say": "x" } }))
        .await
        .expect(202);
    let all = server.get("/api/v1/executions?workflowId=strict").await.expect(200);
    assert_eq!(
        all["items"].as_array().unwrap().len(),
        1,
        "what was refused is not stored"
    );
}

#[tokio::test]
async fn a_repeated_request_returns_its_run_after_the_schema_became_stricter() {
    let server = server().await;
    server.publish(&echo("other")).await;
    let asked = |tenant: &str| json!({ "requestId": "r-1", "tenantId": tenant, "trigger": { "say": "hi" } });
    let first = server.post(EXECUTE, asked("")).await.expect(202);
    let mut stricter = echo("hello");
    stricter["triggerSchema"] = json!({ "type": "object", "required": ["volume"] });
    server
        .send(
            Method::PUT,
            "/api/v1/workflows/hello/draft",
            &[("content-type", "application/json")],
            stricter.to_string(),
        )
        .await
        .expect(200);
    server.post_nothing("/api/v1/workflows/hello/publish").await.expect(200);

    let again = server.post(EXECUTE, asked("")).await.expect(200);
    assert_eq!(again["executionId"], first["executionId"]);
    server.post(EXECUTE, asked("acme")).await.error(400, "WFENG005");
    let new = json!({ "requestId": "r-2", "trigger": { "say": "hi" } });
    server.post(EXECUTE, new).await.error(400, "WFENG005");

    let of_other = json!({ "requestId": "r-3" });
    let other = "/api/v1/workflows/other/execute";
    server.post(other, of_other.clone()).await.expect(202);
    server.post(EXECUTE, of_other).await.error(409, "WFENG001");
}

#[tokio::test]
async fn invalid_bodies_are_refused() {
    let server = server().await;
    let json = [("content-type", "application/json")];
    let bad = async |body: String, code: &str| {
        let answer = server.send(Method::POST, EXECUTE, &json, body).await;
        answer.error(400, code)["message"].as_str().unwrap().to_owned()
    };
    let message = bad("{\n  \"trigger\": }".to_owned(), "INVALID_JSON").await;
    assert!(message.contains("line 2 column 14"), "{message}");
    bad("{".to_owned(), "INVALID_JSON").await;
    bad("\u{feff}{}".to_owned(), "INVALID_JSON").await;
    bad(
        format!("{{\"trigger\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)),
        "BODY_TOO_DEEP",
    )
    .await;
    let message = bad(json!({ "triger": {} }).to_string(), "INVALID_REQUEST").await;
    assert!(message.contains("triger") && message.contains("requestId"), "{message}");
    for body in [
        json!([1]),
        json!({ "priority": "high" }),
        json!({ "priority": 1.5 }),
        json!({ "requestId": 7 }),
        json!({ "requestId": "" }),
        json!({ "requestId": "x".repeat(256) }),
        json!({ "requestId": "a\u{0}b" }),
        json!({ "principal": { "displayName": "missing" } }),
        json!({ "principal": { "userId": "U", "admin": true } }),
    ] {
        bad(body.to_string(), "INVALID_REQUEST").await;
    }
    bad(json!({ "requestId": "fermata:x" }).to_string(), "RESERVED_REQUEST_ID").await;
    let utf16 = server.send(Method::POST, EXECUTE, &json, vec![b'{', 0xff, b'}']).await;
    utf16.error(400, "INVALID_JSON");

    let long = "x".repeat(256);
    for principal in [
        json!({ "userId": "" }),
        json!({ "userId": long }),
        json!({ "userId": "u", "displayName": long }),
        json!({ "userId": "u", "email": long }),
        json!({ "userId": "u", "email": "a\nb" }),
    ] {
        let refused = server.post(EXECUTE, json!({ "principal": principal })).await;
        let error = refused.error(400, "INVALID_REQUEST");
        assert!(error["message"].as_str().unwrap().contains("`principal."), "{error}");
    }

    let nulls = json!({ "requestId": null, "trigger": null, "spec": null, "tenantId": null, "principal": null });
    server.post(EXECUTE, nulls).await.expect(202);
    let named = json!({ "requestId": "x".repeat(255), "tenantId": "" });
    server.post(EXECUTE, named).await.expect(202);
}

#[tokio::test]
async fn a_body_must_be_declared_as_json() {
    let server = server().await;
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/yaml",
        "multipart/form-data",
    ] {
        let answer = server
            .send(Method::POST, EXECUTE, &[("content-type", media)], "{}")
            .await;
        answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
        let empty = server.send(Method::POST, EXECUTE, &[("content-type", media)], "").await;
        empty.expect(202);
    }
    for media in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/cloudevents+json",
    ] {
        server
            .send(Method::POST, EXECUTE, &[("content-type", media)], "{}")
            .await
            .expect(202);
    }
    let undeclared = server.send(Method::POST, EXECUTE, &[], "{}").await;
    undeclared.error(415, "UNSUPPORTED_MEDIA_TYPE");
    let piece = futures::stream::iter([Ok::<_, std::io::Error>("{}")]);
    let of_unknown_length = reqwest::Body::wrap_stream(piece);
    let undeclared = server.send(Method::POST, EXECUTE, &[], of_unknown_length).await;
    undeclared.error(415, "UNSUPPORTED_MEDIA_TYPE");
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let config = WebConfig {
        max_body_bytes: 1000,
        ..WebConfig::default()
    };
    let server = Server::with(Default::default(), config).await;
    server.publish(&echo("hello")).await;
    let padded = |size: usize| format!("{{}}{}", " ".repeat(size - 2));
    let json = [("content-type", "application/json")];
    server
        .send(Method::POST, EXECUTE, &json, padded(1000))
        .await
        .expect(202);
    for size in [1001, 4000, 1_000_000] {
        let answer = server.send(Method::POST, EXECUTE, &json, padded(size)).await;
        answer.error(413, "BODY_TOO_LARGE");
    }
    let document = server
        .send(Method::POST, "/api/v1/workflows", &json, padded(1001))
        .await;
    document.error(413, "BODY_TOO_LARGE");
    // Many small pieces without `Content-Length` are counted too.
    let pieces = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100])));
    let body = reqwest::Body::wrap_stream(pieces);
    server
        .send(Method::POST, EXECUTE, &json, body)
        .await
        .error(413, "BODY_TOO_LARGE");
    let pieces = futures::stream::iter((0..10).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100])));
    let body = reqwest::Body::wrap_stream(pieces);
    server.send(Method::POST, EXECUTE, &json, body).await.expect(202);
}
