//! Requests and child runs on a real server, which is killed while they wait.

use crate::support::{Output, Process, Server, eventually, text};
use serde_json::{Value, json};
use std::path::Path;

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

/// The id of the pending inbox item of a node.
async fn item(server: &Server, node: &str) -> String {
    eventually(node, || async {
        let (_, page) = server.get("/api/v1/inbox?status=pending").await;
        let items = page["items"].as_array()?;
        let item = items.iter().find(|item| item["nodeId"] == node)?;
        item["id"].as_str().map(str::to_owned)
    })
    .await
}

fn killed_and_restarted(server: &mut Server) {
    server.kill9();
    server.restart();
}

/// The example of the specification: published and answered by a person, a worker and a service. The server is killed while a
/// decision waits, after an answer was accepted, and while a worker holds a task.
#[tokio::test]
async fn the_example_of_the_specification_survives_kills() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jsondagapi/user-onboarding.json");
    let mut server = Server::start(&[]);
    let published = at(&server, &["workflows", "publish", text(&example)]);
    assert_eq!(
        published.stdout, "published user_onboarding as version 1\n",
        "{published:?}"
    );
    let start = json!({ "workflow_id": "user_onboarding", "inputs": { "user": "ann" } });
    let (status, started) = server.post("/api/v1/executions", &start).await;
    assert_eq!(status, 201, "{started}");
    let run = started["execution_id"].as_str().unwrap().to_owned();

    let validate = item(&server, "validate_input").await;
    let by = ["--by", "ann", "--state", r#"{"score": 0.9}"#];
    let answered = at(&server, &[&["approvals", "answer", &validate], &by[..]].concat());
    assert_eq!(answered.code, Some(0), "{answered:?}");
    killed_and_restarted(&mut server);

    item(&server, "risk_decision").await;
    killed_and_restarted(&mut server);
    let path = format!("/api/v1/executions/{run}/decisions/risk_decision");
    let (status, answer) = server.post(&path, &json!({ "outcome": "approve" })).await;
    assert_eq!(status, 200, "{answer}");
    killed_and_restarted(&mut server);
    let (status, again) = server.post(&path, &json!({ "outcome": "reject" })).await;
    assert!((400..500).contains(&status), "a second answer: {status} {again}");

    item(&server, "approve_user").await;
    let claim = json!({ "queue": "user_onboarding", "worker": "w", "limit": 1, "lease": "60s" });
    let (_, claimed) = server.post("/api/v1/inbox/claim", &claim).await;
    let task = &claimed["items"][0];
    assert_eq!(task["state"], json!({ "user": "ann", "score": 0.9 }), "{claimed}");
    killed_and_restarted(&mut server);
    let path = format!("/api/v1/inbox/{}/complete", task["id"].as_str().unwrap());
    let completed = json!({ "leaseId": task["leaseId"], "state": { "approved": true } });
    let (status, answer) = server.post(&path, &completed).await;
    assert_eq!(status, 200, "{answer}");

    let ended = server.ended(&run).await;
    assert_eq!(ended["status"], "Succeeded", "{ended}");
    assert_eq!(ended["outputs"], json!({ "score": 0.9, "approved": true }), "{ended}");
}

/// A parent and its child, killed while the parent waits: the child is not started again, and its end reaches the parent.
#[tokio::test]
async fn parent_that_waits_for_its_child_survives_a_kill() {
    let mut server = Server::start(&[]);
    let child = json!({
        "id": "child", "displayName": "Child", "startNode": "nap",
        "nodes": [
            { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 1500 },
              "edges": [{ "targetNode": "say" }] },
            { "id": "say", "actionType": "core.echo", "parameters": { "result": "{{ trigger.input }}!" } },
        ],
    });
    let parent = json!({
        "id": "parent", "displayName": "Parent", "startNode": "call",
        "nodes": [
            { "id": "call", "nodeType": "subworkflow", "workflowId": "child", "waitForCompletion": true,
              "parameters": { "input": "{{ trigger.data }}" }, "edges": [{ "targetNode": "tell" }] },
            { "id": "tell", "actionType": "core.echo",
              "parameters": { "message": "{{ context.data['call'].outputs.result }}" } },
        ],
    });
    server.publish(&child).await;
    server.publish(&parent).await;
    let run = server
        .execute("parent", &json!({ "trigger": { "data": "hello" } }))
        .await;
    let hierarchy = format!("/api/v1/executions/{run}/hierarchy");
    let children = |tree: &Value| tree["children"].as_array().map_or(0, Vec::len);
    eventually("the child", || async {
        let (_, tree) = server.get(&hierarchy).await;
        (children(&tree) == 1).then_some(())
    })
    .await;
    killed_and_restarted(&mut server);
    let ended = server.ended(&run).await;
    assert_eq!(ended["outputs"], json!({ "message": "hello!" }), "{ended}");
    let (_, tree) = server.get(&hierarchy).await;
    assert_eq!(children(&tree), 1, "{tree}");
}
