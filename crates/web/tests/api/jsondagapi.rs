//! Workflows of the jsondagapi dialect: the responses, changes by intents, versions, analysis, starting.

use crate::{
    harness::{Answer, Server},
    service::keys,
};
use reqwest::Method;
use serde_json::{Value, json};

const WORKFLOWS: &str = "/api/v1/workflows";
const JSON: (&str, &str) = ("content-type", "application/json");

/// The example of the specification, §14.7.
fn onboarding() -> Value {
    let text = include_str!("../../../dialects/testdata/jsondagapi/spec-14-7.json");
    serde_json::from_str(text).unwrap()
}

fn task(id: &str) -> Value {
    json!({ "id": id, "type": "task", "executor": { "type": "callback" } })
}

async fn send(server: &Server, method: Method, path: &str, body: Value, if_match: Option<&str>) -> Answer {
    let mut headers = vec![JSON];
    headers.extend(if_match.map(|version| ("if-match", version)));
    let path = format!("{WORKFLOWS}/user_onboarding{path}");
    server.send(method, &path, &headers, body.to_string()).await
}

async fn created() -> Server {
    let server = Server::start().await;
    server.post(WORKFLOWS, onboarding()).await.expect(201);
    server
}

/// The version of a response that changed the workflow.
fn version(answer: Answer, status: u16) -> String {
    let etag = answer.headers["etag"].to_str().unwrap().to_owned();
    let body = answer.expect(status);
    assert_eq!(keys(&body)[..3], ["workflow_id", "version", "status"]);
    assert_eq!(
        (&body["workflow_id"], &body["status"]),
        (&json!("user_onboarding"), &json!("UPDATED"))
    );
    let version = body["version"].as_str().unwrap().to_owned();
    assert_eq!(etag, format!("\"{version}\""));
    version
}

#[tokio::test]
async fn documents_are_created_replaced_read_and_deleted() {
    let server = Server::start().await;
    let answer = server.post(WORKFLOWS, onboarding()).await.expect(201);
    let expected = json!({ "workflow_id": "user_onboarding", "version": "1.0.0", "status": "CREATED" });
    assert_eq!(answer, expected);
    server.post(WORKFLOWS, onboarding()).await.error(409, "WORKFLOW_EXISTS");

    let place = format!("{WORKFLOWS}/user_onboarding");
    assert_eq!(server.get(&place).await.expect(200), onboarding());
    let mut changed = onboarding();
    changed["name"] = json!("Onboarding");
    changed["version"] = json!("1.0.1");
    assert_eq!(
        version(send(&server, Method::PUT, "", changed.clone(), None).await, 200),
        "1.0.1"
    );
    assert_eq!(server.get(&place).await.expect(200), changed);
    for wanted in ["1.0.0", "1"] {
        let path = format!("{place}?version={wanted}");
        assert_eq!(server.get(&path).await.expect(200), onboarding(), "{wanted}");
    }
    for missing in ["1.0.2", "7", "x"] {
        let path = format!("{place}?version={missing}");
        server.get(&path).await.error(404, "VERSION_NOT_FOUND");
    }

    let deleted = server.send(Method::DELETE, &place, &[], "").await;
    assert_eq!(deleted.status, 204);
    server.get(&place).await.error(404, "WORKFLOW_NOT_FOUND");
}

#[tokio::test]
async fn version_must_increase_enough() {
    let server = created().await;
    for (pointer, value, version, accepted) in [
        ("/name", json!("X"), "1.0.0", false),
        ("/name", json!("X"), "0.9.0", false),
        ("/nodes/0/retry_policy", json!({ "max_attempts": 2 }), "1.0.1", false),
        ("/inputs", json!({ "user": { "type": "string" } }), "1.1.0", false),
        ("/name", json!("X"), "1.0.1", true),
    ] {
        let mut document = onboarding();
        let (owner, key) = pointer.rsplit_once('/').unwrap();
        document.pointer_mut(owner).unwrap()[key] = value;
        document["version"] = json!(version);
        let answer = send(&server, Method::PUT, "", document, None).await;
        match accepted {
            true => drop(answer.expect(200)),
            false => drop(answer.error(409, "VERSION_TOO_LOW")),
        }
    }
    let list = server
        .get(&format!("{WORKFLOWS}/user_onboarding/versions"))
        .await
        .expect(200);
    assert_eq!(
        list["items"].as_array().unwrap().len(),
        2,
        "refused documents are not stored"
    );
    // A draft that is published later follows the same rule.
    let mut draft = onboarding();
    draft["name"] = json!("Y");
    send(&server, Method::PUT, "/draft", draft, None).await.expect(200);
    let publish = format!("{WORKFLOWS}/user_onboarding/publish");
    server.post_nothing(&publish).await.error(409, "VERSION_TOO_LOW");
}

#[tokio::test]
async fn each_change_of_a_part_makes_the_next_version() {
    let server = created().await;
    let node = json!({ "id": "notify", "type": "task", "executor": { "type": "callback" } });
    assert_eq!(
        version(send(&server, Method::POST, "/nodes", node, None).await, 201),
        "1.1.0"
    );
    let edge = json!({ "from": "approve_user", "to": "notify" });
    assert_eq!(
        version(send(&server, Method::POST, "/edges", edge, None).await, 201),
        "1.2.0"
    );
    let name = json!({ "name": "Tell the user" });
    assert_eq!(
        version(send(&server, Method::PUT, "/nodes/notify", name, None).await, 200),
        "1.2.1"
    );
    let executor = json!({ "executor": { "type": "callback", "config": { "timeout_seconds": 5 } }, "name": null });
    assert_eq!(
        version(send(&server, Method::PUT, "/nodes/notify", executor, None).await, 200),
        "1.3.0"
    );
    let path = "/edges?from=approve_user&to=notify";
    assert_eq!(
        version(send(&server, Method::DELETE, path, json!(null), None).await, 200),
        "2.0.0"
    );
    assert_eq!(
        version(
            send(&server, Method::DELETE, "/nodes/notify", json!(null), None).await,
            200
        ),
        "3.0.0"
    );
    let mut expected = onboarding();
    expected["version"] = json!("3.0.0");
    assert_eq!(
        server.get(&format!("{WORKFLOWS}/user_onboarding")).await.expect(200),
        expected
    );

    let intents = json!({ "intents": [
        { "intent": "remove_edge", "from": "risk_decision", "to": "reject_user" },
        { "intent": "add_node", "node": task("manual") },
        { "intent": "add_edge", "edge": { "from": "risk_decision", "to": "manual", "metadata": { "outcome": "manual_review" } } },
        { "intent": "add_edge", "edge": { "from": "manual", "to": "reject_user" } },
    ] });
    assert_eq!(
        version(send(&server, Method::PATCH, "", intents, None).await, 200),
        "4.0.0"
    );
}

#[tokio::test]
async fn changes_that_do_not_fit_change_nothing() {
    let server = created().await;
    let post = |path: &'static str, body: Value| send(&server, Method::POST, path, body, None);
    post("/nodes", task("validate_input"))
        .await
        .error(409, "INTENT_REFUSED");
    post("/nodes", json!([])).await.error(400, "INVALID_REQUEST");
    post("/nodes", json!({ "id": "x", "type": "script" }))
        .await
        .error(400, "WFENG005");
    post("/nodes", json!({ "id": "x", "type": "task", "status": "RUNNING" }))
        .await
        .error(400, "INTENT_FORBIDDEN");
    post("/edges", json!({ "from": "validate_input", "to": "nowhere" }))
        .await
        .error(404, "NODE_OR_EDGE_NOT_FOUND");
    let cycle = json!({ "from": "approve_user", "to": "validate_input" });
    let refused = post("/edges", cycle).await.error(400, "WFENG005");
    let codes = refused["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| &problem["code"]);
    assert!(codes.into_iter().any(|code| code == "CYCLE"), "{refused}");
    let put = |path: &'static str, body: Value| send(&server, Method::PUT, path, body, None);
    put("/nodes/validate_input", json!({ "id": "other" }))
        .await
        .error(400, "INTENT_FORBIDDEN");
    put("/nodes/nothing", json!({ "name": "x" }))
        .await
        .error(404, "NODE_OR_EDGE_NOT_FOUND");
    let delete = |path: &'static str| send(&server, Method::DELETE, path, json!(null), None);
    delete("/nodes/approve_user").await.error(409, "INTENT_REFUSED");
    delete("/edges?from=approve_user&to=reject_user")
        .await
        .error(404, "NODE_OR_EDGE_NOT_FOUND");
    delete("/edges?from=approve_user").await.error(400, "INVALID_PARAMETER");
    let patch = |body: Value| send(&server, Method::PATCH, "", body, None);
    patch(json!([])).await.error(400, "INVALID_REQUEST");
    patch(json!([{ "op": "replace", "path": "/workflow_id", "value": "x" }]))
        .await
        .error(400, "INVALID_REQUEST");
    // The id of a workflow never changes.
    let mut renamed = onboarding();
    renamed["workflow_id"] = json!("other");
    renamed["version"] = json!("2.0.0");
    let refused = send(&server, Method::PUT, "", renamed, None).await;
    assert!((400..500).contains(&refused.status), "{}", refused.status);
    // The first of two would be possible alone.
    let two =
        json!([{ "intent": "add_node", "node": task("x") }, { "intent": "remove_node", "node_id": "approve_user" }]);
    patch(two).await.error(409, "INTENT_REFUSED");
    assert_eq!(
        server.get(&format!("{WORKFLOWS}/user_onboarding")).await.expect(200),
        onboarding()
    );

    let other = json!({ "name": "tasks", "tasks": { "rest": { "sleep": 0 } } });
    server.post(WORKFLOWS, other).await.expect(201);
    let path = format!("{WORKFLOWS}/tasks/nodes");
    server.post(&path, task("x")).await.error(409, "DIALECT_MISMATCH");
    server
        .post(&format!("{WORKFLOWS}/none/nodes"), task("x"))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
}

#[tokio::test]
async fn if_match_guards_against_two_editors() {
    let server = created().await;
    let node = |id: &str| task(id);
    assert_eq!(
        version(
            send(&server, Method::POST, "/nodes", node("a"), Some("\"1.0.0\"")).await,
            201
        ),
        "1.1.0"
    );
    for (method, path, body) in [
        (Method::POST, "/nodes", node("b")),
        (Method::PUT, "/nodes/a", json!({ "name": "A" })),
        (Method::DELETE, "/nodes/a", json!(null)),
        (Method::PATCH, "", json!([{ "intent": "add_node", "node": task("b") }])),
        (Method::PUT, "", onboarding()),
    ] {
        let refused = send(&server, method, path, body, Some("\"1.0.0\"")).await;
        assert_eq!(refused.headers["etag"], "\"1.1.0\"", "{path}");
        refused.error(412, "PRECONDITION_FAILED");
    }
    send(&server, Method::POST, "/nodes", node("b"), Some("W/x"))
        .await
        .error(400, "INVALID_REQUEST");
    assert_eq!(
        version(send(&server, Method::POST, "/nodes", node("b"), Some("*")).await, 201),
        "1.2.0"
    );
}

#[tokio::test]
async fn concurrent_changes_are_all_kept() {
    let server = created().await;
    let changes = (0..8).map(|at| send(&server, Method::POST, "/nodes", task(&format!("n{at}")), None));
    let answers = futures::future::join_all(changes).await;
    let made = answers.into_iter().filter(|answer| answer.status == 201).count();
    assert!(made > 0);
    let document = server.get(&format!("{WORKFLOWS}/user_onboarding")).await.expect(200);
    assert_eq!(document["nodes"].as_array().unwrap().len(), 4 + made);
    assert_eq!(document["version"], format!("1.{made}.0"));
}

#[tokio::test]
async fn analysis_works_for_every_dialect() {
    let server = Server::start().await;
    let validate = "/api/v1/analysis/validate";
    let inspect = "/api/v1/analysis/inspect";
    let valid = json!({ "valid": true, "errors": [], "warnings": [] });
    assert_eq!(server.post(validate, onboarding()).await.expect(200), valid);
    let shape = server.post(inspect, onboarding()).await.expect(200);
    assert_eq!(
        shape,
        json!({
            "workflow_id": "user_onboarding", "dialect": "jsondagapi", "node_count": 4, "edge_count": 3,
            "actions": { "callback": 4 }, "depth": 3, "start_nodes": ["validate_input"],
            "terminal_nodes": ["approve_user", "reject_user"], "decision_nodes": ["risk_decision"],
            "subworkflow_nodes": [],
        })
    );
    let mut cycle = onboarding();
    cycle["edges"][0]["to"] = json!("validate_input");
    let found = server.post(validate, cycle.clone()).await.expect(200);
    assert_eq!(
        (&found["valid"], &found["errors"][0]["code"]),
        (&json!(false), &json!("SELF_LOOP"))
    );
    assert_eq!(
        keys(&found["errors"][0])[..5],
        ["code", "message", "pointer", "line", "column"]
    );
    server.post(inspect, cycle).await.error(400, "WFENG005");
    let tasks = json!({ "name": "t", "tasks": { "a": { "sleep": 0 }, "b": { "sleep": 0, "needs": ["a"] } } });
    let nodes =
        json!({ "id": "d", "displayName": "D", "startNode": "a", "nodes": [{ "id": "a", "actionType": "core.echo" }] });
    for (document, depth) in [(tasks, 2), (nodes, 1)] {
        assert_eq!(server.post(validate, document.clone()).await.expect(200), valid);
        assert_eq!(server.post(inspect, document).await.expect(200)["depth"], depth);
    }
    let list = server.get(WORKFLOWS).await.expect(200);
    assert_eq!(list["items"], json!([]), "nothing is stored");
}

/// A workflow that ends at once: its decision has one edge, which is true.
fn route() -> Value {
    let condition = json!({ "type": "expression", "language": "jsonlogic", "expression": { "==": [{ "var": "currency" }, "EUR"] } });
    json!({
        "workflow_id": "route", "name": "Route", "version": "1.0.0",
        "inputs": { "order": { "type": "string", "required": true }, "currency": { "type": "string", "default": "EUR" } },
        "outputs": { "paid_in": { "from": "currency" }, "order": {}, "missing": {} },
        "nodes": [
            { "id": "check", "type": "decision", "executor": { "type": "callback" } },
            { "id": "again", "type": "decision", "executor": { "type": "callback" } },
            { "id": "ask", "type": "task", "executor": { "type": "callback" } },
        ],
        "edges": [
            { "from": "check", "to": "again", "condition": condition },
            { "from": "again", "to": "ask", "condition": condition },
        ],
    })
}

#[tokio::test]
async fn executions_start_by_workflow_id() {
    let server = created().await;
    server.post(WORKFLOWS, route()).await.expect(201);
    let start = |body: Value| {
        let server = &server;
        async move { server.post("/api/v1/executions", body).await }
    };
    let started =
        start(json!({ "workflow_id": "user_onboarding", "inputs": { "user": "ada" }, "request_id": "r1" })).await;
    let started = started.expect(201);
    assert_eq!(keys(&started), ["execution_id", "status"]);
    let again = start(json!({ "workflow_id": "user_onboarding", "inputs": {}, "request_id": "r1" }))
        .await
        .expect(200);
    assert_eq!(again["execution_id"], started["execution_id"]);

    let pinned = json!({ "workflow_id": "user_onboarding", "workflow_version": "1.0.0" });
    start(pinned).await.expect(201);
    start(json!({ "workflow_id": "user_onboarding", "workflow_version": "9.9.9" }))
        .await
        .error(404, "VERSION_NOT_FOUND");
    start(json!({ "workflow_id": "none" }))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    start(json!({})).await.error(400, "INVALID_REQUEST");
    start(json!({ "workflow_id": "route", "inputs": {} }))
        .await
        .error(400, "WFENG005");
    start(json!({ "workflow_id": "route", "inputs": { "order": 7 } }))
        .await
        .error(400, "WFENG005");
    start(json!({ "workflow_id": "route", "input": {} }))
        .await
        .error(400, "INVALID_REQUEST");

    let run = start(json!({ "workflow_id": "route", "inputs": { "order": "o1" } }))
        .await
        .expect(201);
    let path = format!("/api/v1/executions/{}", run["execution_id"].as_str().unwrap());
    let run = server.get(&path).await.expect(200);
    assert_eq!(
        run["trigger"],
        json!({ "order": "o1", "currency": "EUR" }),
        "defaults are filled in"
    );
}
