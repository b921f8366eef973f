//! Registered callbacks: registering, listing, removing, and the documents that name them.

use crate::{
    harness::{LONG, Server},
    service::keys,
};
use fermata_core::RunId;
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};

const CALLBACKS: &str = "/api/v1/callbacks";
const REGISTER: &str = "/api/v1/callbacks/register";
const WORKFLOWS: &str = "/api/v1/workflows";

fn billing(base_url: &str) -> Value {
    json!({ "service_name": "billing", "environment": "test", "base_url": base_url,
            "callbacks": { "billing.charge": { "path": "/charge" }, "billing.refund": { "path": "/refund" } } })
}

fn task(config: Value) -> Value {
    json!({ "workflow_id": "pay", "name": "Pay", "version": "1.0.0", "edges": [],
            "nodes": [{ "id": "charge", "type": "task", "executor": { "type": "callback", "config": config } }] })
}

async fn delete(server: &Server, id: &str) -> crate::harness::Answer {
    server.send(Method::DELETE, &format!("{CALLBACKS}/{id}"), &[], "").await
}

#[tokio::test]
async fn callbacks_are_registered_listed_and_removed() {
    let server = Server::start().await;
    let registered = server.post(REGISTER, billing("https://billing.example/v1/")).await;
    let items = registered.expect(200)["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 2);
    let expected = [
        "callback_id",
        "service_name",
        "environment",
        "base_url",
        "path",
        "url",
        "registered_at",
    ];
    assert_eq!(keys(&items[0]), expected);
    assert_eq!(items[0]["url"], "https://billing.example/v1/charge");

    let page = server.get(&format!("{CALLBACKS}?limit=1")).await.expect(200);
    assert_eq!(page["items"], json!([items[0]]));
    let next = page["nextCursor"].as_str().unwrap();
    let page = server.get(&format!("{CALLBACKS}?cursor={next}")).await.expect(200);
    assert_eq!(page, json!({ "items": [items[1]] }));

    let other = json!({ "service_name": "other", "base_url": "https://evil.example",
                        "callbacks": { "a": { "path": "/" }, "billing.charge": { "path": "/" } } });
    let taken = server.post(REGISTER, other).await.error(409, "CALLBACK_TAKEN");
    assert!(taken["message"].as_str().unwrap().contains("`billing`"), "{taken}");
    let page = server.get(CALLBACKS).await.expect(200);
    assert_eq!(page["items"], items, "nothing was registered");

    assert_eq!(delete(&server, "billing.refund").await.status, 204);
    delete(&server, "billing.refund")
        .await
        .error(404, "CALLBACK_NOT_REGISTERED");
    delete(&server, "x%00y").await.error(404, "CALLBACK_NOT_REGISTERED");
    let page = server.get(CALLBACKS).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn wrong_registrations_are_refused() {
    let server = Server::start().await;
    let with = |pointer: &str, value: Value| {
        let mut body = billing("https://billing.example");
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    let many: serde_json::Map<String, Value> = (0..501).map(|n| (n.to_string(), json!({ "path": "/" }))).collect();
    for body in [
        json!({}),
        with("/service_name", json!("")),
        with("/service_name", json!(7)),
        with("/base_url", json!("ftp://billing.example")),
        with("/base_url", json!("https://a:b@billing.example")),
        with("/callbacks", json!({})),
        with("/callbacks", json!({ "a b": { "path": "/" } })),
        with("/callbacks", json!({ "a": { "path": "x" } })),
        with("/callbacks", json!({ "a": {} })),
        with("/callbacks", json!({ "a": { "path": "/", "url": "/" } })),
        with("/callbacks", Value::Object(many)),
    ] {
        server.post(REGISTER, body).await.error(400, "INVALID_REQUEST");
    }
    assert_eq!(server.get(CALLBACKS).await.expect(200), json!({ "items": [] }));
    server
        .get(&format!("{CALLBACKS}?cursor=x"))
        .await
        .error(400, "INVALID_CURSOR");
}

/// A document may name registered callbacks only, and keeps them from being removed while its workflow is active.
#[tokio::test]
async fn documents_name_registered_callbacks() {
    let server = Server::start().await;
    let document = task(json!({ "callback_id": "billing.charge" }));
    let refused = server.post(WORKFLOWS, document.clone()).await.error(400, "WFENG005");
    let detail = &refused["details"][0];
    assert_eq!(
        (&detail["code"], &detail["pointer"]),
        (
            &json!("CALLBACK_NOT_REGISTERED"),
            &json!("/nodes/0/executor/config/callback_id")
        )
    );
    let condition = json!({ "type": "callback", "decision_key": "k", "callback": { "callback_id": "who" } });
    let decision = json!({ "workflow_id": "d", "name": "D", "version": "1.0.0",
        "nodes": [{ "id": "ask", "type": "decision", "executor": { "type": "callback", "config": {} } },
                  { "id": "end", "type": "task", "executor": { "type": "callback" } }],
        "edges": [{ "from": "ask", "to": "end", "condition": condition }] });
    let refused = server.post(WORKFLOWS, decision).await.error(400, "WFENG005");
    assert_eq!(
        refused["details"][0]["pointer"],
        "/edges/0/condition/callback/callback_id"
    );
    let template = task(json!({ "callback_id": "{{ service }}" }));
    let refused = server.post(WORKFLOWS, template).await.error(400, "WFENG005");
    assert_eq!(refused["details"][0]["code"], "INVALID_VALUE");

    server
        .post(REGISTER, billing("https://billing.example"))
        .await
        .expect(200);
    server.post(WORKFLOWS, document).await.expect(201);
    let in_use = delete(&server, "billing.charge").await.error(409, "CALLBACK_IN_USE");
    assert!(in_use["message"].as_str().unwrap().contains("pay"), "{in_use}");
    assert_eq!(delete(&server, "billing.refund").await.status, 204, "not named");
    let mut changed = task(json!({}));
    changed["version"] = json!("1.1.0");
    let json = [("content-type", "application/json")];
    let path = format!("{WORKFLOWS}/pay");
    let put = server.send(Method::PUT, &path, &json, changed.to_string());
    put.await.expect(200);
    assert_eq!(delete(&server, "billing.charge").await.status, 204, "no longer named");
}

/// With `callbacks.require_registered` a URL is refused when publishing, and when it is called.
#[tokio::test]
async fn plain_urls_can_be_forbidden() {
    let home = std::sync::Arc::new(fermata_store::conformance::home::Home::new(
        fermata_store::conformance::home::Kind::Memory,
    ));
    let before = Server::on(&home, Settings::default(), WebConfig::default()).await;
    let document = task(json!({ "url": "http://127.0.0.1:9/charge" }));
    before.post(WORKFLOWS, document.clone()).await.expect(201);
    before.engine.stop();
    before.working.await.unwrap();

    let mut settings = Settings::default();
    settings.dialects.require_registered_callbacks = true;
    let server = Server::on(&home, settings, WebConfig::default()).await;
    let checked = server.post("/api/v1/analysis/validate", document).await.expect(200);
    assert_eq!(
        (&checked["valid"], &checked["errors"][0]["code"]),
        (&json!(false), &json!("CALLBACK_NOT_REGISTERED"))
    );
    let start = json!({ "workflow_id": "pay", "inputs": {} });
    let run = server.post("/api/v1/executions", start).await.expect(201)["execution_id"].clone();
    let run: RunId = RunId(run.as_str().unwrap().parse().unwrap());
    let ended = server.engine.wait(run, LONG).await.unwrap().expect("it ends");
    let error: Value = serde_json::from_str(ended.error.as_deref().unwrap_or("null")).unwrap();
    assert_eq!(error["code"], "CALLBACK_NOT_REGISTERED", "{error}");
    server
        .post(WORKFLOWS, {
            let mut inbox = task(json!({ "queue": "q" }));
            inbox["workflow_id"] = json!("inbox");
            inbox
        })
        .await
        .expect(201);
}
