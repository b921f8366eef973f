//! Triggers end to end: webhook → execution, schedule → executions, event → executions, kill -9 after the acknowledgement,
//! and the commands.

use crate::support::{Server, eventually, fermata, http_client};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::{BTreeMap, BTreeSet};

const SECRET: (&str, &str) = ("FERMATA_SECRET_GITHUB_WEBHOOK", "It's a Secret to Everybody");

/// A workflow with these triggers. Its outputs are what it was started with.
pub(super) fn workflow(id: &str, triggers: Value) -> Value {
    json!({ "id": id, "displayName": id, "startNode": "a", "triggers": triggers, "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "trigger": "{{ trigger }}", "request": "{{ request }}" } } ] })
}

/// The only trigger of a workflow.
pub(super) async fn trigger(server: &Server, workflow: &str) -> Value {
    let (status, page) = server.get(&format!("/api/v1/triggers?workflowId={workflow}")).await;
    assert_eq!(
        (status, page["items"].as_array().map(Vec::len)),
        (200, Some(1)),
        "{page}"
    );
    page["items"][0].clone()
}

/// All executions of a workflow.
pub(super) async fn executions(server: &Server, workflow: &str) -> Vec<Value> {
    let (status, page) = server
        .get(&format!("/api/v1/executions?workflowId={workflow}&limit=1000"))
        .await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().unwrap().clone()
}

/// The path of a webhook. The URL has the port that the server had when it was started first.
pub(super) fn path_of(trigger: &Value) -> String {
    let url = trigger["webhookUrl"].as_str().unwrap();
    let segment = url.rsplit('/').next().unwrap();
    format!("/api/v1/triggers/{segment}")
}

/// Sends a request as GitHub does; status and body.
async fn push(server: &Server, path: &str, delivery: &str, body: &str, secret: &str) -> (u16, Value) {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(body.as_bytes());
    let signature: String = mac
        .finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let request = http_client()
        .post(format!("{}{path}", server.url))
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", format!("sha256={signature}"))
        .body(body.to_owned());
    let response = request.send().await.expect("the server answers");
    let status = response.status().as_u16();
    (status, response.json().await.expect("JSON"))
}

#[tokio::test]
async fn a_signed_webhook_starts_an_execution() {
    let server = Server::start_with(&[], &[SECRET]);
    let config = json!({ "signature": { "scheme": "github", "secret": "GITHUB_WEBHOOK" } });
    server
        .publish(&workflow(
            "build",
            json!([{ "name": "push", "type": "webhook", "config": config }]),
        ))
        .await;
    let path = path_of(&trigger(&server, "build").await);
    let (status, accepted) = push(&server, &path, "d1", r#"{"ref":"main"}"#, SECRET.1).await;
    assert_eq!(
        (status, accepted["state"].as_str()),
        (202, Some("started")),
        "{accepted}"
    );
    let run = server.ended(accepted["executionId"].as_str().unwrap()).await;
    assert_eq!(run["status"], "Succeeded");
    assert_eq!(run["outputs"]["trigger"], json!({ "ref": "main" }));
    assert_eq!(run["outputs"]["request"]["headers"]["x-github-event"], "push");
    assert!(!run.to_string().contains("sha256="), "{run}");
    let (status, again) = push(&server, &path, "d1", r#"{"ref":"main"}"#, SECRET.1).await;
    assert_eq!((status, &again["executionId"]), (202, &accepted["executionId"]));
    let (status, _) = push(&server, &path, "d2", r#"{"ref":"main"}"#, "another secret").await;
    assert_eq!(status, 404);
    assert_eq!(executions(&server, "build").await.len(), 1);
    assert!(!server.process().log().contains("Everybody"));
}

#[tokio::test]
async fn a_schedule_starts_executions_periodically() {
    let server = Server::start(&[]);
    server
        .publish(&workflow(
            "tick",
            json!([{ "name": "second", "type": "schedule", "config": { "every": "1s" } }]),
        ))
        .await;
    let runs = eventually("three executions", || async {
        let runs = executions(&server, "tick").await;
        let over = runs.iter().filter(|run| run["status"] == "Succeeded").count();
        (over >= 3).then_some(runs)
    })
    .await;
    let mut times = BTreeSet::new();
    for run in &runs {
        let run = server.ended(run["id"].as_str().unwrap()).await;
        let at = run["outputs"]["trigger"]["scheduledAt"].as_str().unwrap().to_owned();
        assert!(times.insert(at.clone()), "{at} fired twice");
    }
    let id = trigger(&server, "tick").await["id"].as_str().unwrap().to_owned();
    let (_, page) = server.get(&format!("/api/v1/triggers/{id}/deliveries")).await;
    assert!(page["items"].as_array().unwrap().len() >= 3, "{page}");
}

#[tokio::test]
async fn an_event_starts_every_workflow_that_it_matches() {
    let server = Server::start(&[]);
    let of = |config: Value| json!([{ "name": "paid", "type": "event", "config": config }]);
    server
        .publish(&workflow("ship", of(json!({ "type": "order.paid" }))))
        .await;
    server
        .publish(&workflow(
            "thank",
            of(json!({ "type": "order.*", "match": { "country": "DE" } })),
        ))
        .await;
    server
        .publish(&workflow("other", of(json!({ "type": "order.sent" }))))
        .await;
    for duplicate in [false, true] {
        let published = fermata(&[
            "events",
            "publish",
            "order.paid",
            "--server",
            &server.url,
            "--id",
            "1",
            "--source",
            "/shop",
            "--data",
            "country=DE",
            "--json",
        ]);
        assert_eq!(published.json()["items"][0]["isDuplicate"], duplicate, "{published:?}");
    }
    for workflow in ["ship", "thank"] {
        let runs = eventually(workflow, || async {
            Some(executions(&server, workflow).await).filter(|runs| !runs.is_empty())
        })
        .await;
        let run = server.ended(runs[0]["id"].as_str().unwrap()).await;
        assert_eq!(run["outputs"]["trigger"], json!({ "country": "DE" }));
        assert_eq!(run["outputs"]["request"]["type"], "order.paid");
        assert_eq!(executions(&server, workflow).await.len(), 1);
    }
    assert!(executions(&server, "other").await.is_empty());
}

/// Requests are acknowledged before their condition, which needs the sandbox, is judged. A server that is killed right after
/// an acknowledgement must start each run once, after its restart.
#[tokio::test]
async fn acknowledged_webhooks_survive_kill_9() {
    let mut server = Server::start(&[]);
    let condition = "/^ord/.test(payload.kind)";
    let triggers =
        json!([{ "name": "in", "type": "webhook", "condition": condition, "config": { "dedupe": "trigger.id" } }]);
    server.publish(&workflow("order", triggers)).await;
    let path = path_of(&trigger(&server, "order").await);
    let mut acknowledged = BTreeMap::new();
    for round in 0..4 {
        for number in 0..8 {
            let id = format!("{round}-{number}");
            let (status, answer) = server.post(&path, &json!({ "id": id, "kind": "order" })).await;
            assert_eq!(status, 202, "{answer}");
            acknowledged.insert(id, answer["deliveryId"].clone());
        }
        server.kill9();
        server.restart();
    }
    let (status, answer) = server.post(&path, &json!({ "id": "filtered", "kind": "other" })).await;
    assert_eq!(status, 202, "{answer}");
    let runs = eventually("all executions", || async {
        let runs = executions(&server, "order").await;
        (runs.len() >= acknowledged.len()).then_some(runs)
    })
    .await;
    let mut started = BTreeSet::new();
    for run in &runs {
        let run = server.ended(run["id"].as_str().unwrap()).await;
        let id = run["outputs"]["trigger"]["id"].as_str().unwrap().to_owned();
        assert!(started.insert(id.clone()), "{id} started two runs");
    }
    assert_eq!(started, acknowledged.keys().cloned().collect::<BTreeSet<_>>());
}

#[tokio::test]
async fn an_acknowledged_event_survives_kill_9() {
    let mut server = Server::start(&[]);
    let triggers = json!([{ "name": "paid", "type": "event", "config": { "type": "order.*" } }]);
    server.publish(&workflow("order", triggers)).await;
    let mut acknowledged = BTreeSet::new();
    for number in 0..6 {
        let id = format!("e{number}");
        let event = json!({ "type": "order.paid", "source": "/shop", "id": id, "data": { "id": id } });
        let (status, answer) = server.post("/api/v1/events", &event).await;
        assert_eq!(status, 202, "{answer}");
        acknowledged.insert(id);
        if number % 2 == 1 {
            server.kill9();
            server.restart();
        }
    }
    let runs = eventually("all executions", || async {
        let runs = executions(&server, "order").await;
        (runs.len() >= acknowledged.len()).then_some(runs)
    })
    .await;
    let mut started = BTreeSet::new();
    for run in &runs {
        let run = server.ended(run["id"].as_str().unwrap()).await;
        assert!(
            started.insert(run["outputs"]["trigger"]["id"].as_str().unwrap().to_owned()),
            "{run}"
        );
    }
    assert_eq!(started, acknowledged);
}

#[tokio::test]
async fn triggers_are_managed_from_the_command_line() {
    let server = Server::start(&[]);
    server.publish(&workflow("job", json!([]))).await;
    let call = |arguments: &[&str]| {
        let mut all = vec!["triggers"];
        all.extend(arguments);
        all.extend(["--server", server.url.as_str()]);
        fermata(&all)
    };
    let made = call(&[
        "create",
        "job",
        "--type",
        "webhook",
        "--condition",
        "payload.total > 100",
        "--json",
    ])
    .json();
    let id = made["id"].as_str().unwrap().to_owned();
    let made = call(&[
        "create",
        "job",
        "--type",
        "schedule",
        "--set",
        "cron=0 9 * * *",
        "--disabled",
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let wrong = call(&["create", "job", "--type", "schedule", "--set", "cron=0 0 30 2 *"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("never fires"), "{}", wrong.stderr);
    let listed = call(&["list", "--workflow", "job"]);
    assert!(
        listed.stdout.contains(&id) && listed.stdout.contains("cron 0 9 * * *"),
        "{}",
        listed.stdout
    );
    assert_eq!(
        call(&["list", "--enabled", "--json"]).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let times = call(&[
        "preview",
        "--set",
        "every=1h",
        "--set",
        "startAt=2100-01-01T00:00:00Z",
        "--count",
        "2",
    ]);
    assert_eq!(times.stdout, "2100-01-01T00:00:00.000Z\n2100-01-01T01:00:00.000Z\n");
    let fired = call(&["fire", &id, "--input", "total=120", "--request-id", "one"]);
    assert!(fired.stdout.starts_with("started: run "), "{fired:?}");
    let again = call(&["fire", &id, "--input", "total=120", "--request-id", "one", "--json"]).json();
    assert_eq!(again["isDuplicate"], true);
    let filtered = call(&["fire", &id, "--input", "total=5"]);
    assert!(filtered.stdout.starts_with("filtered: "), "{filtered:?}");
    let deliveries = call(&["deliveries", &id, "--json"]).json();
    assert_eq!(deliveries["items"].as_array().unwrap().len(), 2, "{deliveries}");
    let delivery = again["deliveryId"].as_str().unwrap();
    let shown = call(&["deliveries", &id, delivery]);
    assert!(shown.stdout.contains("\"total\": 120"), "{shown:?}");
    let replayed = call(&["replay", &id, delivery]);
    assert!(replayed.stdout.starts_with("started: run "), "{replayed:?}");
    let rotated = call(&["rotate", &id, "--grace", "1h"]);
    assert!(
        rotated.stdout.starts_with("http://") && !rotated.stdout.contains(&id),
        "{rotated:?}"
    );
    let updated = call(&["update", &id, "--condition", "", "--json"]).json();
    assert!(updated.get("activationCondition").is_none(), "{updated}");
    // Ids may be shortened, and a declared trigger has the name of its workflow and its own.
    let short = call(&["get", &id[..8], "--json"]).json();
    assert_eq!(short["id"], id.as_str());
    let none = call(&["get", if id.starts_with("ffff") { "0000" } else { "ffff" }]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(
        none.stderr.contains("no trigger has an id that begins with"),
        "{none:?}"
    );
    assert_eq!(call(&["get", "x"]).code, Some(2));
    server
        .publish(&workflow("other", json!([{ "name": "hand", "type": "manual" }])))
        .await;
    let declared = call(&["get", "other/hand", "--json"]).json();
    assert_eq!(
        (&declared["name"], &declared["workflowId"]),
        (&json!("hand"), &json!("other"))
    );
    let disabled = call(&["disable", "other/hand", "--json"]).json();
    assert_eq!(
        (&disabled["id"], &disabled["isEnabled"]),
        (&declared["id"], &json!(false))
    );
    let unknown = call(&["get", "other/foot"]);
    assert!(
        unknown.code == Some(2) && unknown.stderr.contains("no document declares"),
        "{unknown:?}"
    );
    for (command, code) in [("disable", 0), ("enable", 0), ("delete", 0), ("get", 1)] {
        assert_eq!(call(&[command, &id]).code, Some(code), "{command}");
    }
}
