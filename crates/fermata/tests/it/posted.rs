//! Requests that are sent to services: signed, retried and answered over HTTP; events; registered callbacks; and a server
//! that is killed in between.

use crate::{
    runlater::service::{Answer, Call, Service},
    support::Server,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use std::path::Path;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The example of the specification, with a service for each node and quick retries.
fn onboarding(service: &Service) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jsondagapi/user-onboarding.json");
    let text = std::fs::read_to_string(path).expect("the example");
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    for node in document["nodes"].as_array_mut().expect("nodes") {
        let url = service.at(&format!("/{}", node["id"].as_str().expect("an id")));
        node["executor"]["config"]["url"] = url.into();
    }
    document["policies"] = json!({ "retry_policy": { "max_attempts": 3, "base_delay_ms": 10, "jitter": false } });
    document
}

/// One task, with this executor.
fn single(id: &str, executor: &Value) -> Value {
    json!({ "workflow_id": id, "name": id, "version": "1.0.0", "edges": [],
            "nodes": [{ "id": "work", "type": "task", "executor": executor }] })
}

async fn create(server: &Server, document: &Value) {
    let (status, created) = server.post("/api/v1/workflows", document).await;
    assert_eq!(status, 201, "{created}");
}

async fn start(server: &Server, workflow: &str, inputs: Value) -> String {
    let body = json!({ "workflow_id": workflow, "inputs": inputs });
    let (status, started) = server.post("/api/v1/executions", &body).await;
    assert_eq!(status, 201, "{started}");
    started["execution_id"].as_str().expect("an id").to_owned()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// Whether the request is signed as Standard Webhooks define it.
fn is_signed(call: &Call) -> bool {
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    let (id, timestamp) = (call.header("webhook-id"), call.header("webhook-timestamp"));
    mac.update(format!("{id}.{timestamp}.{}", call.body).as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    !id.is_empty() && timestamp.parse::<i64>().is_ok() && call.header("webhook-signature") == expected
}

#[tokio::test]
async fn services_are_asked_and_answer_over_http() {
    let service = Service::start().await;
    service.script("/validate_input", [Answer::status(503), Answer::status(202)]);
    let server = Server::start_with(&[], &[("FERMATA_CALLBACKS__SIGNING_SECRET", SECRET)]);
    create(&server, &onboarding(&service)).await;
    let run = start(&server, "user_onboarding", json!({ "user": "ann" })).await;

    let refused = service.call("/validate_input", 1).await;
    let asked = service.call("/validate_input", 2).await;
    assert_eq!(
        keys(&asked.json()),
        ["callback_url", "execution_id", "node_id", "state"]
    );
    let body = asked.json();
    assert_eq!(
        (&body["execution_id"], &body["node_id"], &body["state"]),
        (&json!(run), &json!("validate_input"), &json!({ "user": "ann" }))
    );
    assert!(
        body["callback_url"]
            .as_str()
            .is_some_and(|url| url.starts_with(&server.url)),
        "{body}"
    );
    assert_eq!(refused.header("webhook-id"), format!("{run}:validate_input:1"));
    assert_eq!(asked.header("webhook-id"), format!("{run}:validate_input:2"));
    assert_eq!(asked.header("content-type"), "application/json");
    let (status, old) = server
        .send("POST", &refused.callback("callback_url"), r#"{"state":{"score":0}}"#)
        .await;
    assert_eq!(status, 409, "every attempt has its own token: {old}");
    let (status, answer) = server
        .send("POST", &asked.callback("callback_url"), r#"{"state":{"score":0.9}}"#)
        .await;
    assert_eq!(status, 200, "{answer}");

    let decision = service.call("/risk_decision", 1).await;
    let body = decision.json();
    assert_eq!(
        keys(&body),
        ["callback_url", "execution_id", "node_id", "possible_outcomes", "state"]
    );
    assert_eq!(
        (&body["possible_outcomes"], &body["state"]),
        (&json!(["approve", "reject"]), &json!({ "user": "ann", "score": 0.9 }))
    );
    let address = decision.callback("callback_url");
    let (status, _) = server.get(&address).await;
    assert_eq!(status, 405, "a GET decides nothing");
    let (status, answer) = server.send("POST", &address, r#"{"outcome":"approve"}"#).await;
    assert_eq!(status, 200, "{answer}");
    let (status, again) = server.send("POST", &address, r#"{"outcome":"reject"}"#).await;
    assert_eq!(status, 409, "{again}");

    let task = service.call("/approve_user", 1).await;
    let (status, _) = server
        .send("POST", &task.callback("callback_url"), r#"{"state":{"approved":true}}"#)
        .await;
    assert_eq!(status, 200);
    let ended = server.ended(&run).await;
    assert_eq!(ended["status"], "Succeeded", "{ended}");
    assert_eq!(ended["outputs"], json!({ "score": 0.9, "approved": true }));
    assert!(service.calls_of("/reject_user").is_empty());
    for call in service.calls() {
        assert!(is_signed(&call), "{call:?}");
    }
}

/// A service that refuses the request for good fails the node; one that never responds times out. Both are retried by policy.
#[tokio::test]
async fn requests_that_fail_are_retried_by_policy() {
    let service = Service::start().await;
    service.script("/gone", [Answer::status(410)]);
    service.script("/down", [Answer::status(503)]);
    let server = Server::start(&[]);
    let retry = json!({ "max_attempts": 3, "base_delay_ms": 1 });
    for (path, calls) in [("/gone", 1), ("/down", 3)] {
        let config = json!({ "url": service.at(path), "retry_policy": retry });
        let id = &path[1..];
        create(&server, &single(id, &json!({ "type": "callback", "config": config }))).await;
        let run = start(&server, id, json!({})).await;
        let ended = server.ended(&run).await;
        assert_eq!(ended["status"], "Failed", "{ended}");
        assert_eq!(service.calls_of(path).len(), calls, "{path}: {ended}");
    }
}

#[tokio::test]
async fn events_are_sent_as_cloudevents() {
    let service = Service::start().await;
    service.script("/price", [Answer::ok(&json!({ "state": { "price": 7 }, "other": 1 }))]);
    let server = Server::start(&[]);
    let event = |path: &str, config: Value| {
        let mut config = config;
        config["url"] = service.at(path).into();
        json!({ "type": "event", "config": config })
    };
    let node = |id: &str, kind: &str, executor: Value| json!({ "id": id, "type": kind, "executor": executor });
    let document = json!({
        "workflow_id": "orders", "name": "Orders", "version": "1.0.0",
        "nodes": [
            node("placed", "task", event("/events", json!({ "event_type": "order.placed", "source": "/shop" }))),
            node("packed", "tool", event("/wait", json!({ "await": true }))),
            node("priced", "task", json!({ "type": "http", "config": { "url": service.at("/price") } })),
        ],
        "edges": [{ "from": "placed", "to": "packed" }, { "from": "packed", "to": "priced" }],
    });
    create(&server, &document).await;
    let run = start(&server, "orders", json!({ "order": 7 })).await;

    let waits = service.call("/wait", 1).await;
    let sent = service.call("/events", 1).await;
    assert!(sent.header("content-type").starts_with("application/cloudevents+json"));
    let event = sent.json();
    assert_eq!(
        keys(&event),
        [
            "data",
            "datacontenttype",
            "id",
            "source",
            "specversion",
            "subject",
            "type"
        ]
    );
    assert_eq!(
        event,
        json!({ "specversion": "1.0", "id": format!("{run}:placed"), "source": "/shop", "type": "order.placed",
                "subject": run, "datacontenttype": "application/json",
                "data": { "execution_id": run, "node_id": "placed", "state": { "order": 7 } } })
    );
    let event = waits.json();
    assert_eq!(
        (&event["type"], &event["source"]),
        (&json!("orders.packed"), &json!("/workflows/orders"))
    );
    let url = event["data"]["callback_url"].as_str().expect("an address");
    let (status, answer) = server
        .send("POST", &url[server.url.len()..], r#"{"state":{"packed":true}}"#)
        .await;
    assert_eq!(status, 200, "{answer}");
    let ended = server.ended(&run).await;
    assert_eq!(ended["outputs"], json!({ "packed": true, "price": 7 }), "{ended}");
    let price = service.call("/price", 1).await.json();
    assert_eq!(
        price,
        json!({ "execution_id": run, "node_id": "priced", "state": { "order": 7, "packed": true } })
    );
}

/// A service registers its address and moves; the next request goes to the new one.
#[tokio::test]
async fn registered_callbacks_are_called_where_they_are_now() {
    let service = Service::start().await;
    let mut server = Server::start_with(&[], &[("FERMATA_CALLBACKS__REQUIRE_REGISTERED", "true")]);
    let register = |base: String| {
        json!({ "service_name": "billing", "environment": "test", "base_url": base,
                "callbacks": { "billing.charge": { "path": "/charge" } } })
    };
    let path = "/api/v1/callbacks/register";
    let by_id = single(
        "pay",
        &json!({ "type": "callback", "config": { "callback_id": "billing.charge" } }),
    );
    let (status, refused) = server.post("/api/v1/workflows", &by_id).await;
    assert_eq!(
        (status, &refused["error"]["details"][0]["code"]),
        (400, &json!("CALLBACK_NOT_REGISTERED"))
    );
    assert_eq!(server.post(path, &register(service.at("/v1"))).await.0, 200);
    create(&server, &by_id).await;
    let by_url = single(
        "plain",
        &json!({ "type": "callback", "config": { "url": service.at("/charge") } }),
    );
    assert_eq!(server.post("/api/v1/workflows", &by_url).await.0, 400);

    for version in ["/v1", "/v2"] {
        assert_eq!(server.post(path, &register(service.at(version))).await.0, 200);
        server.kill9(); // what was registered is durable
        server.restart();
        let run = start(&server, "pay", json!({})).await;
        let call = service.call(&format!("{version}/charge"), 1).await;
        assert_eq!(call.json()["execution_id"], json!(run));
        let (status, _) = server
            .send("POST", &call.callback("callback_url"), r#"{"state":{"paid":true}}"#)
            .await;
        assert_eq!(status, 200);
        assert_eq!(server.ended(&run).await["status"], "Succeeded");
    }
    let callback = "/api/v1/callbacks/billing.charge";
    assert_eq!(server.send("DELETE", callback, "").await.0, 409, "a workflow names it");
    assert_eq!(server.send("DELETE", "/api/v1/workflows/pay", "").await.0, 204);
    assert_eq!(server.send("DELETE", callback, "").await.0, 204);
}

/// No request reaches an address that the guard refuses, whichever way it got into the request.
#[tokio::test]
async fn refused_addresses_are_not_called() {
    let service = Service::start().await;
    let server = Server::start_with(&[], &[("FERMATA_HTTP__ALLOW_PRIVATE_NETWORKS", "false")]);
    let registered = json!({ "service_name": "s", "base_url": service.url, "callbacks": { "c": { "path": "/c" } } });
    assert_eq!(server.post("/api/v1/callbacks/register", &registered).await.0, 200);
    let executor = |kind: &str, config: Value| json!({ "type": kind, "config": config });
    for (id, executor) in [
        ("callback", executor("callback", json!({ "url": service.at("/a") }))),
        ("template", executor("callback", json!({ "url": "{{ target }}" }))),
        ("registered", executor("callback", json!({ "callback_id": "c" }))),
        ("event", executor("event", json!({ "url": service.at("/b") }))),
        ("http", executor("http", json!({ "url": service.at("/d") }))),
    ] {
        create(&server, &single(id, &executor)).await;
        let run = start(&server, id, json!({ "target": service.at("/t") })).await;
        let ended = server.ended(&run).await;
        assert_eq!(ended["status"], "Failed", "{id}: {ended}");
        let message = ended["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("private address"), "{id}: {ended}");
    }
    assert!(service.calls().is_empty(), "{:?}", service.calls());
}

/// A request carries the token of its own run, and an answer that is too large is not accepted in part.
#[tokio::test]
async fn answers_reach_their_own_run_whole_or_not_at_all() {
    let service = Service::start().await;
    let server = Server::start(&[]);
    create(
        &server,
        &single(
            "work",
            &json!({ "type": "callback", "config": { "url": service.at("/work") } }),
        ),
    )
    .await;
    let mut runs = Vec::new();
    for number in 0..3 {
        runs.push(start(&server, "work", json!({ "number": number })).await);
        service.call("/work", number + 1).await;
    }
    let calls = service.calls();
    let of = |run: &String| {
        calls
            .iter()
            .find(|call| call.json()["execution_id"] == json!(run))
            .expect("a request")
    };
    let large = json!({ "state": { "text": "x".repeat(300 * 1024) } }).to_string();
    // The last run is answered first.
    for run in runs.iter().rev() {
        let call = of(run);
        let address = call.callback("callback_url");
        let (status, refused) = server.send("POST", &address, large.clone()).await;
        assert_eq!(status, 413, "{refused}");
        let answer = json!({ "state": { "for": call.json()["state"]["number"] } }).to_string();
        let (status, answer) = server.send("POST", &address, answer).await;
        assert_eq!(status, 200, "{answer}");
    }
    for (number, run) in runs.iter().enumerate() {
        let ended = server.ended(run).await;
        assert_eq!(ended["outputs"], json!({ "for": number }), "{ended}");
    }
}

/// The server is killed when a service has accepted a request, before, while or after that is recorded. The request may be sent
/// again, with the same id, body and address, and its answer counts.
#[tokio::test]
async fn killed_between_the_response_of_a_service_and_the_next_step() {
    let service = Service::start().await;
    service.script("/work", [Answer::status(202).held()]);
    let mut server = Server::start(&[]);
    create(
        &server,
        &single(
            "work",
            &json!({ "type": "callback", "config": { "url": service.at("/work") } }),
        ),
    )
    .await;
    for round in 0..6_u64 {
        let before = service.calls().len();
        let run = start(&server, "work", json!({ "round": round })).await;
        let first = service.call("/work", before + 1).await;
        service.release("/work");
        tokio::time::sleep(std::time::Duration::from_millis(round * 2)).await; // the moment of the kill varies
        server.kill9();
        for _ in 0..3 {
            service.release("/work"); // of requests that are sent again
        }
        server.restart();
        let path = first.callback("callback_url");
        let (status, answer) = server.send("POST", &path, r#"{"state":{"done":true}}"#).await;
        assert_eq!(status, 200, "{answer}");
        let ended = server.ended(&run).await;
        assert_eq!(ended["outputs"], json!({ "done": true }), "{ended}");
        let (status, again) = server.send("POST", &path, r#"{"state":{"done":false}}"#).await;
        assert_eq!(status, 409, "{again}");
        for call in service.calls_after(before) {
            let part = |call: &Call| {
                let body = call.json();
                (
                    call.key().to_owned(),
                    body["state"].clone(),
                    call.callback("callback_url"),
                )
            };
            assert_eq!(part(&call), part(&first), "a repeated request is the same");
        }
    }
}

/// The server is killed about when a child ends: before, while or after its parent records that.
#[tokio::test]
async fn killed_between_the_end_of_a_child_and_the_next_step_of_its_parent() {
    let service = Service::start().await;
    let mut server = Server::start(&[]);
    let call = |id: &str, path: &str, seen: &str| {
        json!({ "id": id, "actionType": "http.request",
                "parameters": { "url": service.at(path), "method": "POST", "body": { "seen": seen } } })
    };
    let child = json!({ "id": "child", "displayName": "Child", "startNode": "last",
                        "nodes": [call("last", "/last", "{{ trigger.round }}")] });
    let mut parent = json!({ "id": "parent", "displayName": "Parent", "startNode": "call", "nodes": [
        { "id": "call", "nodeType": "subworkflow", "workflowId": "child", "waitForCompletion": true,
          "parameters": { "round": "{{ trigger.round }}" }, "edges": [{ "targetNode": "next" }] },
    ] });
    let next = call("next", "/next", "{{ context.data['call'].outputs.body.round }}");
    parent["nodes"].as_array_mut().expect("nodes").push(next);
    server.publish(&child).await;
    server.publish(&parent).await;
    for round in 0..8_u64 {
        service.script("/last", [Answer::ok(&json!({ "round": round })).held()]);
        let before = service.calls_of("/last").len();
        let run = server
            .execute("parent", &json!({ "trigger": { "round": round } }))
            .await;
        service.call("/last", before + 1).await;
        service.release("/last");
        tokio::time::sleep(std::time::Duration::from_millis(round * 2)).await; // the moment of the kill varies
        server.kill9();
        for _ in 0..3 {
            service.release("/last");
        }
        server.restart();
        let ended = server.ended(&run).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
        let (_, tree) = server.get(&format!("/api/v1/executions/{run}/hierarchy")).await;
        assert_eq!(tree["children"].as_array().map_or(0, Vec::len), 1, "{tree}");
        assert_eq!(tree["children"][0]["status"], "Succeeded", "{tree}");
        let calls = service.calls_of("/next");
        let last = calls.last().expect("the next step").json();
        assert_eq!(last["seen"], json!(round), "the end of the child was read");
    }
}
