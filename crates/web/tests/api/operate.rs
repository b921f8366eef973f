//! Commands on executions in flight: pause and resume, skip a node that waits, send a request again.

use crate::harness::{Server, assert_time, echo, single};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use serde_json::{Value, json};

fn path(id: &str, command: &str) -> String {
    format!("/api/v1/executions/{id}/{command}")
}

/// A wait, and a step after it.
fn waiting() -> Value {
    json!({ "id": "waiting", "displayName": "Waiting", "startNode": "w", "nodes": [
        { "id": "w", "actionType": "core.wait", "edges": [{ "targetNode": "last" }] },
        { "id": "last", "actionType": "core.echo", "parameters": { "got": "{{ context.data.w.total }}" } },
    ] })
}

#[tokio::test]
async fn an_execution_is_paused_and_resumed() {
    let server = Server::start().await;
    server.publish(&waiting()).await;
    let id = server.execute("waiting", json!({})).await;
    let paused = server
        .post(&path(&id, "pause"), json!({ "reason": "look first" }))
        .await
        .expect(200);
    assert_eq!((&paused["id"], &paused["status"]), (&json!(id), &json!("Running")));
    assert_time(&paused["pausedAt"]);
    let again = server.post_nothing(&path(&id, "pause")).await.expect(200);
    assert_eq!(
        again["pausedAt"], paused["pausedAt"],
        "a paused execution is not changed"
    );
    let listed = server.get("/api/v1/executions").await.expect(200);
    assert_eq!(listed["items"][0]["pausedAt"], paused["pausedAt"]);

    let callback = format!("/api/v1/executions/{id}/nodes/w/callback");
    server.post(&callback, json!({ "total": 3 })).await.expect(200);
    server
        .post(&callback, json!({ "total": 4 }))
        .await
        .error(409, "ITEM_CLOSED");
    let seen = |run: &Value| {
        let events = run["events"].as_array().unwrap();
        events
            .iter()
            .any(|event| event["data"]["type"] == "finished" && event["data"]["node"] == "w")
    };
    let events = format!("{id}?include=events");
    let run = server.until(&events, seen).await;
    assert_eq!(
        run["status"], "Running",
        "the callback is kept, and nothing follows from it"
    );
    let messages: Vec<&str> = run["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["message"].as_str())
        .collect();
    assert!(
        messages.contains(&"the run is paused: nothing new starts"),
        "{messages:?}"
    );

    let resumed = server.post_nothing(&path(&id, "resume")).await.expect(200);
    assert!(resumed.get("pausedAt").is_none(), "{resumed}");
    let ended = server.until(&id, |run| run["status"] == "Succeeded").await;
    assert_eq!(ended["outputs"], json!({ "got": 3 }));
    let audit = server.get("/api/v1/audit").await.expect(200);
    let rows: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| Some((row["action"].as_str()?, row["detail"].as_str().unwrap_or_default())))
        .collect();
    assert!(rows.contains(&("execution.pause", "look first")), "{rows:?}");
    assert!(rows.contains(&("execution.resume", "")), "{rows:?}");
}

#[tokio::test]
async fn every_command_in_every_status() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    server.publish(&single("broken", "core.fail", json!({}))).await;
    server
        .publish(&single("gated", "test.gate", json!({ "obeys": true })))
        .await;
    let ended = async |workflow: &str| {
        let path = format!("/api/v1/workflows/{workflow}/execute?wait=15s");
        let run = server.post_nothing(&path).await.expect(200);
        run["id"].as_str().unwrap().to_owned()
    };
    let (succeeded, failed) = (ended("hello").await, ended("broken").await);
    let running = server.execute("gated", json!({})).await;
    let pending = server.execute("hello", json!({})).await;
    let skip = json!({ "reason": "table" });
    for (id, status) in [(&pending, "Pending"), (&running, "Running")] {
        for _ in 0..2 {
            let paused = server.post_nothing(&path(id, "pause")).await.expect(200);
            assert_eq!(
                (&paused["status"], paused["pausedAt"].is_string()),
                (&json!(status), true)
            );
        }
        let refused = server.post(&path(id, "nodes/only/skip"), skip.clone()).await;
        refused.error(409, "WFENG002");
    }
    for _ in 0..2 {
        let resumed = server.post_nothing(&path(&running, "resume")).await.expect(200);
        assert_eq!((&resumed["status"], resumed.get("pausedAt")), (&json!("Running"), None));
    }
    server.post_nothing(&path(&running, "cancel")).await.expect(200);
    for (id, status) in [(&succeeded, "Succeeded"), (&failed, "Failed"), (&running, "Cancelled")] {
        let before = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
        assert_eq!(before["status"], status);
        for command in ["pause", "resume", "nodes/x/resend"] {
            let refused = server.post_nothing(&path(id, command)).await.error(409, "WFENG002");
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(status), "{command}: {message}");
        }
        server
            .post(&path(id, "nodes/x/skip"), skip.clone())
            .await
            .error(409, "WFENG002");
        assert_eq!(
            server.get(&format!("/api/v1/executions/{id}")).await.expect(200),
            before
        );
    }
}

#[tokio::test]
async fn a_node_that_waits_is_skipped() {
    let server = Server::start().await;
    server.publish(&waiting()).await;
    let id = server.execute("waiting", json!({})).await;
    let skip = path(&id, "nodes/w/skip");
    server.post_nothing(&skip).await.error(400, "INVALID_REQUEST");
    server
        .post(&skip, json!({ "reason": "" }))
        .await
        .error(400, "INVALID_REQUEST");
    server
        .post(&skip, json!({ "reason": "x", "outputs": [1] }))
        .await
        .error(400, "INVALID_REQUEST");
    server
        .post(&skip, json!({ "reason": "x", "output": {} }))
        .await
        .error(400, "INVALID_REQUEST");
    let reason = json!({ "reason": "x" });
    server
        .post(&path(&id, "nodes/none/skip"), reason.clone())
        .await
        .error(404, "NODE_NOT_FOUND");
    let refused = server
        .post(&path(&id, "nodes/last/skip"), reason.clone())
        .await
        .error(409, "WFENG002");
    assert!(
        refused["message"].as_str().unwrap().contains("it has not begun"),
        "{refused}"
    );
    let missing = "01890000-0000-7000-8000-000000000000";
    server
        .post(&path(missing, "nodes/w/skip"), reason)
        .await
        .error(404, "EXECUTION_NOT_FOUND");

    let body = json!({ "outputs": { "total": 5 }, "reason": "known by phone" });
    let accepted = server.post(&skip, body).await.expect(202);
    assert_eq!(accepted["executionId"], json!(id));
    let ended = server
        .until(&format!("{id}?include=events,actions"), |run| {
            run["status"] == "Succeeded"
        })
        .await;
    assert_eq!(ended["outputs"], json!({ "got": 5 }));
    let finished = |event: &&Value| event["data"]["type"] == "finished" && event["data"]["node"] == "w";
    let event = ended["events"].as_array().unwrap().iter().find(finished).unwrap();
    assert_eq!(event["data"]["skipped"]["reason"], "known by phone");
    assert_eq!(ended["actions"][0]["outputs"], json!({ "total": 5 }));
    let late = format!("/api/v1/executions/{id}/nodes/w/callback");
    server.post(&late, json!({})).await.error(409, "ITEM_CLOSED");
    let audit = server.get("/api/v1/audit").await.expect(200);
    let rows = audit["items"].as_array().unwrap();
    let wanted = |row: &&Value| row["action"] == "execution.skip" && row["detail"] == "w: known by phone";
    assert!(rows.iter().any(|row| wanted(&row)), "{audit}");
}

#[tokio::test]
async fn only_requests_that_were_posted_are_sent_again() {
    let server = Server::start().await;
    server.publish(&waiting()).await;
    let id = server.execute("waiting", json!({})).await;
    let refused = server
        .post_nothing(&path(&id, "nodes/w/resend"))
        .await
        .error(409, "WFENG002");
    assert!(
        refused["message"].as_str().unwrap().contains("sends nothing"),
        "{refused}"
    );
    let approval = single("ask", "core.approval", json!({ "title": "Well?" }));
    server.publish(&approval).await;
    let id = server.execute("ask", json!({})).await;
    let node = approval["nodes"][0]["id"].as_str().unwrap();
    let resend = path(&id, &format!("nodes/{node}/resend"));
    let refused = server.post_nothing(&resend).await.error(409, "WFENG002");
    assert!(refused["message"].as_str().unwrap().contains("inbox"), "{refused}");
    server
        .post_nothing(&path(&id, "nodes/none/resend"))
        .await
        .error(404, "NODE_NOT_FOUND");
}

#[tokio::test]
async fn executions_of_a_paused_workflow_wait() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let paused = server
        .post("/api/v1/workflows/hello/pause", json!({ "reason": "look" }))
        .await
        .expect(200);
    assert_time(&paused["pausedAt"]);
    let shown = server.get("/api/v1/workflows/hello").await.expect(200);
    assert_eq!(shown["pausedAt"], paused["pausedAt"]);
    let id = server.execute("hello", json!({})).await;
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(run["status"], "Pending");
    assert_eq!(
        run["waitingFor"],
        json!({ "kind": "paused", "scope": "workflow", "ahead": 0 })
    );
    let resumed = server.post_nothing("/api/v1/workflows/hello/resume").await.expect(200);
    assert!(resumed.get("pausedAt").is_none(), "{resumed}");
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let missing = server.post_nothing("/api/v1/workflows/none/pause").await;
    missing.error(404, "WORKFLOW_NOT_FOUND");
    server.post_nothing("/api/v1/workflows/hello/archive").await.expect(200);
    let refused = server.post_nothing("/api/v1/workflows/hello/pause").await;
    refused.error(409, "ILLEGAL_LIFECYCLE_TRANSITION");
    let audit = server.get("/api/v1/audit").await.expect(200);
    let rows = audit["items"].as_array().unwrap();
    let wanted = |row: &Value| row["action"] == "workflow.pause" && row["detail"] == "look";
    assert!(rows.iter().any(wanted), "{audit}");
}
