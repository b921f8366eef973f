//! Runs in the format of Runlater, for any dialect: trigger, list, read, cancel.

use crate::{
    harness::{Server, assert_time, echo, single},
    service::{Service, keys},
};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

const TRIGGER: &str = "/api/v1/workflows/hello/trigger";
const RUNS: &str = "/api/v1/workflows/hello/runs";

async fn server() -> Server {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server
}

async fn uid(server: &Server, workflow: &str) -> String {
    server
        .store
        .workflow("", workflow)
        .await
        .unwrap()
        .unwrap()
        .uid
        .to_string()
}

#[tokio::test]
async fn triggering_responds_as_in_the_specification() {
    let server = server().await;
    let body = json!({ "say": "hi", "order_id": 123, "token": "sk_live_xxx" });
    let answer = server.post(TRIGGER, body.clone()).await;
    let run = answer.expect(201);
    assert_eq!(keys(&run), ["data"]);
    let data = &run["data"];
    assert_eq!(keys(data), ["run_id", "workflow_id", "status", "started_at"]);
    assert_eq!(data["status"], "running");
    assert_eq!(data["workflow_id"], uid(&server, "hello").await);
    assert_time(&data["started_at"]);
    let id = data["run_id"].as_str().unwrap();
    assert_eq!(id.parse::<Uuid>().unwrap().get_version_num(), 7);
    assert_eq!(answer.header("x-correlation-id"), id);

    let execution = server.until(id, |run| run["status"] == "Succeeded").await;
    assert_eq!(execution["trigger"], body);
    assert_eq!(execution["startedAt"], data["started_at"]);
    assert_eq!(execution["outputs"], json!({ "said": "hi" }));
}

#[tokio::test]
async fn any_json_is_a_trigger() {
    let server = server().await;
    let triggered = async |body: &str| {
        let headers = [("content-type", "application/json"), ("x-correlation-id", "trace-7")];
        let answer = server.send(Method::POST, TRIGGER, &headers, body.to_owned()).await;
        assert_eq!(answer.header("x-correlation-id"), "trace-7");
        let run = answer.expect(201);
        let id = run["data"]["run_id"].as_str().unwrap().to_owned();
        let execution = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
        assert_eq!(execution["correlationId"], "trace-7");
        execution["trigger"].clone()
    };
    for (body, trigger) in [
        ("", json!({})),
        (" ", json!({})),
        ("[1, {\"a\": null}]", json!([1, { "a": null }])),
        ("null", Value::Null),
        ("7", json!(7)),
    ] {
        assert_eq!(triggered(body).await, trigger, "{body}");
    }
    let refused = async |body: String, code: &str| {
        let headers = [("content-type", "application/json")];
        let answer = server.send(Method::POST, TRIGGER, &headers, body).await;
        answer.error(400, code);
    };
    refused("{".to_owned(), "INVALID_JSON").await;
    refused(r#"{"a":1,"a":2}"#.to_owned(), "INVALID_REQUEST").await;
    refused("[".repeat(101) + &"]".repeat(101), "BODY_TOO_DEEP").await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.send(Method::POST, TRIGGER, &form, "a=1").await;
    answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    let all = server.get(RUNS).await.expect(200);
    assert_eq!(
        all["data"].as_array().unwrap().len(),
        5,
        "what is refused is not stored"
    );
}

#[tokio::test]
async fn the_same_idempotency_key_returns_the_same_run() {
    let server = server().await;
    server.publish(&echo("other")).await;
    let send = async |path: &str, key: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        server.send(Method::POST, path, &headers, "{}").await
    };
    let first = send(TRIGGER, "order-1").await.expect(201);
    let id = first["data"]["run_id"].as_str().unwrap();
    server.until(id, |run| run["status"] == "Succeeded").await;
    let mut expected = first.clone();
    expected["data"]["status"] = json!("completed");
    assert_eq!(
        send(TRIGGER, "order-1").await.expect(200),
        expected,
        "with its current status"
    );
    let execution = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(execution["requestId"], "order-1");
    assert_ne!(send(TRIGGER, "order-2").await.expect(201)["data"]["run_id"], id);
    let other = send("/api/v1/workflows/other/trigger", "order-1").await;
    other.error(409, "WFENG001");
    for bad in ["", &"x".repeat(256)] {
        send(TRIGGER, bad).await.error(400, "INVALID_REQUEST");
    }
    send(TRIGGER, "fermata:x").await.error(400, "RESERVED_REQUEST_ID");
    send(TRIGGER, &"x".repeat(255)).await.expect(201);
}

#[tokio::test]
async fn inactive_workflows_are_not_triggered() {
    let server = server().await;
    let missing = server.post_nothing("/api/v1/workflows/missing/trigger").await;
    missing.error(404, "WORKFLOW_NOT_FOUND");
    server.post("/api/v1/workflows", echo("draft")).await.expect(201);
    let draft = server.post_nothing("/api/v1/workflows/draft/trigger").await;
    draft.error(409, "WORKFLOW_NOT_ACTIVE");
    server.post_nothing("/api/v1/workflows/hello/disable").await.expect(200);
    server.post_nothing(TRIGGER).await.error(409, "WORKFLOW_NOT_ACTIVE");
    server.post_nothing("/api/v1/workflows/hello/enable").await.expect(200);
    server.post_nothing(TRIGGER).await.expect(201);
    server.engine.stop();
    let stopping = server.post_nothing(TRIGGER).await;
    stopping.error(503, "STOPPING");
    assert_eq!(stopping.header("retry-after"), "1");
}

#[tokio::test]
async fn runs_and_workflows_are_found_by_each_form_of_their_ids() {
    let server = server().await;
    let uid = uid(&server, "hello").await;
    let mut ids = BTreeSet::new();
    let names = ["hello".to_owned(), uid.clone(), format!("wf_{uid}")];
    for name in &names {
        let run = server
            .post_nothing(&format!("/api/v1/workflows/{name}/trigger"))
            .await
            .expect(201);
        assert_eq!(run["data"]["workflow_id"], json!(uid), "{name}");
        ids.insert(run["data"]["run_id"].as_str().unwrap().to_owned());
    }
    let id = ids.first().unwrap();
    server.until(id, |run| run["status"] == "Succeeded").await;
    let run = server.get(&format!("{RUNS}/{id}")).await.expect(200);
    for name in &names {
        let list = server.get(&format!("/api/v1/workflows/{name}/runs")).await.expect(200);
        let listed = list["data"].as_array().unwrap().iter();
        let listed: BTreeSet<_> = listed.map(|run| run["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(listed, ids, "{name}");
        for id in [id.clone(), format!("run_{id}")] {
            let place = format!("/api/v1/workflows/{name}/runs/{id}");
            assert_eq!(server.get(&place).await.expect(200), run, "{place}");
            assert_eq!(server.post_nothing(&format!("{place}/cancel")).await.expect(200), run);
        }
    }
}

#[tokio::test]
async fn runs_of_other_workflows_are_not_found() {
    let server = server().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let id = server.execute("gated", json!({})).await;
    let theirs = format!("{RUNS}/{id}");
    server.get(&theirs).await.error(404, "EXECUTION_NOT_FOUND");
    let cancel = server.post_nothing(&format!("{theirs}/cancel")).await;
    cancel.error(404, "EXECUTION_NOT_FOUND");
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(run["status"], "Running", "and it is not cancelled");
    server.gate.add_permits(1);
    let missing = "01890000-0000-7000-8000-000000000000";
    server
        .get(&format!("{RUNS}/{missing}"))
        .await
        .error(404, "EXECUTION_NOT_FOUND");
    let elsewhere = format!("/api/v1/workflows/missing/runs/{id}");
    server.get(&elsewhere).await.error(404, "WORKFLOW_NOT_FOUND");
    server
        .get("/api/v1/workflows/missing/runs")
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    for bad in ["7", "run_", "run_run_", "wf_", "%ff", &format!("wf_{id}")] {
        let answer = server.get(&format!("{RUNS}/{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
    }
}

/// A workflow whose document decides the outcome of its runs.
fn with_outcome(service: &Service, outcome: &str) -> Value {
    let (task, most) = match outcome {
        "broken" => (json!({ "url": service.url("/answer/400") }), 3600),
        "slow" => (json!({ "sleep": "1d" }), 1),
        _ => (json!({ "sleep": 0 }), 3600),
    };
    json!({ "name": "outcomes", "tasks": { "only": task }, "max_duration_seconds": most })
}

#[tokio::test]
async fn runs_are_listed_newest_first_and_by_status() {
    let (server, service) = (Server::start().await, Service::start().await);
    server.create(&with_outcome(&service, "well")).await;
    let mut ids = Vec::new();
    for outcome in ["broken", "slow", "well", "broken", "slow", "well", "broken"] {
        let headers = [("content-type", "application/json")];
        let document = with_outcome(&service, outcome).to_string();
        let changed = server.send(Method::PUT, "/api/v1/workflows/outcomes", &headers, document);
        changed.await.expect(200);
        let run = server
            .post_nothing("/api/v1/workflows/outcomes/trigger")
            .await
            .expect(201);
        ids.push((run["data"]["run_id"].as_str().unwrap().to_owned(), outcome));
    }
    ids.reverse();
    for (id, _) in &ids {
        server.until(id, |run| run.get("endedAt").is_some()).await;
    }
    let of = |moods: &[&str]| -> Vec<String> {
        let fitting = ids
            .iter()
            .filter(|(_, outcome)| moods.is_empty() || moods.contains(outcome));
        fitting.map(|(id, _)| id.clone()).collect()
    };
    for (status, moods) in [
        ("", &[][..]),
        ("failed", &["broken"]),
        ("timeout", &["slow"]),
        ("Completed", &["well"]),
        ("timeout,%20failed", &["slow", "broken"]),
        ("failed,completed,running", &["broken", "well"]),
    ] {
        for limit in [1, 2, 3, 100] {
            assert_eq!(walk(&server, status, limit).await, of(moods), "{status} by {limit}");
        }
    }
    for status in ["running", "cancelled", "running,cancelled"] {
        assert_eq!(walk(&server, status, 2).await, Vec::<String>::new());
    }
}

/// All ids of a list, page by page.
async fn walk(server: &Server, status: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    for _ in 0..20 {
        let path = format!("/api/v1/workflows/outcomes/runs?status={status}&limit={limit}{cursor}");
        let page = server.get(&path).await.expect(200);
        let items = page["data"].as_array().unwrap();
        assert!(items.len() <= limit);
        ids.extend(items.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page.get("next_cursor").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
    panic!("the list of {status} never ends");
}

#[tokio::test]
async fn a_list_shows_summaries() {
    let settings = Settings {
        max_active_runs: 0,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    assert_eq!(server.get(RUNS).await.expect(200), json!({ "data": [] }));
    let triggered = server.post_nothing(TRIGGER).await.expect(201)["data"].clone();
    assert_eq!(triggered["status"], "running", "also if it has not started");
    let list = server.get(RUNS).await.expect(200);
    assert_eq!(keys(&list), ["data"], "no more pages");
    let expected = json!({ "id": triggered["run_id"], "status": "running", "started_at": triggered["started_at"] });
    assert_eq!(list["data"], json!([expected]));
    let place = format!("{RUNS}/{}", triggered["run_id"].as_str().unwrap());
    let mut run = expected.clone();
    run["tasks"] = json!({ "only": { "status": "pending" } });
    assert_eq!(server.get(&place).await.expect(200), json!({ "data": run }));

    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "status=Succeeded",
        "status=done",
        "order=asc",
        "offset=1",
    ] {
        let answer = server.get(&format!("{RUNS}?{query}")).await;
        answer.error(400, "INVALID_PARAMETER");
    }
    let answer = server.get(&format!("{RUNS}?cursor=x")).await;
    answer.error(400, "INVALID_CURSOR");
}

#[tokio::test]
async fn cancelling_responds_with_the_run() {
    let server = Server::start().await;
    server
        .publish(&single("gated", "test.gate", json!({ "obeys": true })))
        .await;
    let place = server.trigger("gated", json!({})).await;
    let cancel = format!("{place}/cancel");
    let stopped = server
        .post(&cancel, json!({ "reason": "changed my mind" }))
        .await
        .expect(200);
    assert_eq!(stopped["data"]["status"], "cancelled");
    assert_eq!(
        keys(&stopped["data"]),
        ["id", "status", "started_at", "finished_at", "tasks"]
    );
    assert_eq!(stopped, server.get(&place).await.expect(200));
    let task = &stopped["data"]["tasks"]["only"];
    assert_eq!(
        (&task["status"], &task["error_message"]),
        (&json!("failed"), &json!("cancelled by the run"))
    );
    assert_eq!(
        server.post_nothing(&cancel).await.expect(200),
        stopped,
        "a repeated cancel has the same response"
    );
    let id = stopped["data"]["id"].as_str().unwrap();
    let execution = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(execution["reason"], "changed my mind");

    server.publish(&single("stubborn", "test.gate", json!({}))).await;
    let place = server.trigger("stubborn", json!({})).await;
    // Without the cancel, its task would never end.
    server.post_nothing(&format!("{place}/cancel")).await.expect(200);
    assert_eq!(server.until_over(&place).await["status"], "cancelled");
    let bad = server.post(&format!("{place}/cancel"), json!({ "why": 1 })).await;
    bad.error(400, "INVALID_REQUEST");
}
