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
    let shown = at(&server, &["executions", "get", &run]).stdout;
    assert!(
        shown.contains(&format!("fermata approvals answer {validate} --state")),
        "{shown}"
    );
    let by = ["--by", "ann", "--state", r#"{"score": 0.9}"#];
    let answered = at(&server, &[&["approvals", "answer", &validate], &by[..]].concat());
    assert_eq!(answered.code, Some(0), "{answered:?}");
    killed_and_restarted(&mut server);

    let decision = item(&server, "risk_decision").await;
    let shown = at(&server, &["executions", "get", &run]).stdout;
    assert!(
        shown.contains(&format!("fermata approvals answer {decision} --outcome OUTCOME")),
        "{shown}"
    );
    assert!(shown.contains("an answer (approve, reject)"), "{shown}");
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
    let child = tree["children"][0]["executionId"].as_str().unwrap();
    let drawn = format!("parent  Succeeded  {run}\n└─ call: child  Succeeded  {child}  <\n");
    assert_eq!(at(&server, &["executions", "tree", child]).stdout, drawn);
    let shown = at(&server, &["executions", "get", &run]).stdout;
    assert!(
        shown.contains(&format!("\nTREE\nparent  Succeeded  {run}  <\n└─ call: child ")),
        "{shown}"
    );
}

/// A list of children, killed when some of them have ended: every item has one child, and no end is lost.
#[tokio::test]
async fn list_that_is_half_done_survives_a_kill() {
    let mut server = Server::start(&[]);
    let child = json!({
        "id": "child", "displayName": "Child", "startNode": "nap",
        "nodes": [
            { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.item }}" },
              "edges": [{ "targetNode": "say" }] },
            { "id": "say", "actionType": "core.echo", "parameters": { "slept": "{{ trigger.item }}" } },
        ],
    });
    let parent = json!({
        "id": "parent", "displayName": "Parent", "startNode": "each",
        "nodes": [{ "id": "each", "nodeType": "subworkflow", "workflowId": "child", "maxConcurrency": 5,
                    "forEach": "{{ trigger.items }}" }],
    });
    server.publish(&child).await;
    server.publish(&parent).await;
    let items: Vec<u32> = (0..30).map(|item| if item % 3 == 0 { 400 } else { 10 }).collect();
    let run = server
        .execute("parent", &json!({ "trigger": { "items": items } }))
        .await;
    let view = format!("/api/v1/executions/{run}?include=children&limit=100");
    for ended in [3, 12] {
        eventually("some items", || async {
            let (_, run) = server.get(&view).await;
            let succeeded = run["items"]["each"]["succeeded"].as_u64().unwrap_or(0);
            (succeeded >= ended).then_some(())
        })
        .await;
        killed_and_restarted(&mut server);
    }
    let ended = server.ended(&run).await;
    assert_eq!(ended["outputs"]["count"], 30, "{ended}");
    let slept: Vec<Value> = items.iter().map(|item| json!({ "slept": item })).collect();
    assert_eq!(ended["outputs"]["outputs"], json!(slept));
    let (_, shown) = server.get(&view).await;
    let children = shown["children"].as_array().unwrap();
    let mut indexes: Vec<u64> = children
        .iter()
        .filter_map(|child| child["itemIndex"].as_u64())
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..30).collect::<Vec<u64>>(), "{shown}");
    assert_eq!(
        shown["items"]["each"],
        json!({ "total": 30, "succeeded": 30, "failed": 0 })
    );
}

/// The subworkflow example of the DataWorkflows specification (§15.4) as it stands, with `core.echo` in place of Slack: it starts
/// version 2 of its child, although there is a third one, and the child is answered over HTTP.
#[tokio::test]
async fn the_subworkflow_example_of_the_specification_runs() {
    let server = Server::start(&[]);
    let child = |say: &str| {
        json!({
            "id": "child-workflow", "displayName": "Child", "startNode": "ask",
            "nodes": [
                { "id": "ask", "actionType": "core.wait", "edges": [{ "targetNode": "say" }] },
                { "id": "say", "actionType": "core.echo", "parameters": { "result": say } },
            ],
        })
    };
    server.publish(&child("one")).await;
    for say in ["{{ trigger.input }} {{ context.data['ask'].by }}", "three"] {
        let path = "/api/v1/workflows/child-workflow";
        let (status, saved) = server
            .send("PUT", &format!("{path}/draft"), child(say).to_string())
            .await;
        assert_eq!(status, 200, "{saved}");
        let (status, published) = server
            .post(&format!("{path}/publish?autoActivate=true"), &Value::Null)
            .await;
        assert_eq!(status, 200, "{published}");
    }
    server
        .publish(&json!({
            "id": "parent-workflow", "displayName": "Parent with Child Workflow", "startNode": "invoke-child",
            "nodes": [
                { "id": "invoke-child", "nodeType": "subworkflow", "workflowId": "child-workflow", "workflowVersion": 2,
                  "parameters": { "input": "{{ trigger.data }}" }, "waitForCompletion": true,
                  "edges": [{ "targetNode": "process-result", "when": "success" }] },
                { "id": "process-result", "actionType": "core.echo",
                  "parameters": {
                    "channelId": "{{ trigger.channelId }}",
                    "message": "Child workflow completed with: {{ context.data['invoke-child'].outputs.result }}" } },
            ],
        }))
        .await;
    let trigger = json!({ "trigger": { "data": "approved", "channelId": "C1" } });
    let run = server.execute("parent-workflow", &trigger).await;
    let shown = format!("/api/v1/executions/{run}?include=children");
    let child = eventually("the child", || async {
        let (_, parent) = server.get(&shown).await;
        parent["children"][0]["executionId"].as_str().map(str::to_owned)
    })
    .await;
    let url = eventually("its wait", || async {
        let (_, child) = server.get(&format!("/api/v1/executions/{child}?include=waits")).await;
        child["waits"][0]["callbackUrl"].as_str().map(str::to_owned)
    })
    .await;
    let token = url.rsplit('/').next().expect("a token");
    let (status, answer) = server.post(&format!("/wh/{token}"), &json!({ "by": "by Ada" })).await;
    assert_eq!(status, 200, "{answer}");
    let ended = server.ended(&run).await;
    let expected = json!({ "channelId": "C1", "message": "Child workflow completed with: approved by Ada" });
    assert_eq!(ended["outputs"], expected, "{ended}");
    assert_eq!(server.execution(&child).await["workflowVersion"], 2);
}
