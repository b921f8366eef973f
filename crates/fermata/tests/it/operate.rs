//! Pause and resume, skip and send again: over the command line, and with a server that is killed.

use crate::{
    runlater::service::{Answer, Call, Service},
    support::{Server, eventually, fermata},
};
use serde_json::{Value, json};

fn calling(service: &Service) -> Value {
    let call = |id: &str, next: &[&str]| {
        json!({ "id": id, "actionType": "http.request",
                "parameters": { "method": "POST", "url": service.at(&format!("/{id}")), "body": {} },
                "policies": { "timeoutMs": 600_000 },
                "edges": next.iter().map(|target| json!({ "targetNode": target })).collect::<Vec<_>>() })
    };
    json!({ "id": "calls", "displayName": "Calls", "startNode": "first",
            "nodes": [call("first", &["second"]), call("second", &[])] })
}

async fn has_event(server: &Server, id: &str, kind: &str) -> Option<()> {
    let (_, run) = server.get(&format!("/api/v1/executions/{id}?include=events")).await;
    let events = run["events"].as_array()?;
    events.iter().any(|event| event["data"]["type"] == kind).then_some(())
}

/// The action that ran when the server was killed is not repeated, and nothing follows, until the run is resumed.
#[tokio::test]
async fn pause_holds_through_kills() {
    let service = Service::start().await;
    service.script("/first", [Answer::ok(&json!({})).held(), Answer::ok(&json!({}))]);
    let mut server = Server::start(&[]);
    server.publish(&calling(&service)).await;
    let id = server.execute("calls", &json!({})).await;
    service.call("/first", 1).await;
    let (status, paused) = server.post(&format!("/api/v1/executions/{id}/pause"), &json!({})).await;
    assert_eq!(status, 200, "{paused}");
    for _ in 0..3 {
        server.kill9();
        server.restart();
        eventually("the pause is recorded", || has_event(&server, &id, "paused")).await;
        let run = server.execution(&id).await;
        assert_eq!(
            (&run["status"], &run["pausedAt"]),
            (&json!("Running"), &paused["pausedAt"])
        );
    }
    // A second run goes through after the restart, so the first one had its chance.
    let other = server.execute("calls", &json!({})).await;
    assert_eq!(server.ended(&other).await["status"], "Succeeded");
    let of = |path: &str| {
        service
            .calls_of(path)
            .into_iter()
            .filter(|call| call.key().starts_with(&id))
            .count()
    };
    assert_eq!((of("/first"), of("/second")), (1, 0), "a paused run starts nothing");
    let (status, _) = server
        .post(&format!("/api/v1/executions/{id}/resume"), &json!({}))
        .await;
    assert_eq!(status, 200);
    server.kill9();
    server.restart();
    let run = server.ended(&id).await;
    assert_eq!((&run["status"], run.get("pausedAt")), (&json!("Succeeded"), None));
    assert_eq!(
        (of("/first"), of("/second")),
        (2, 1),
        "the interrupted call is repeated once"
    );
}

/// A request that is to be sent again is sent even if the server is killed right after it said so: the same request, once more.
#[tokio::test]
async fn request_is_sent_again_although_the_server_is_killed() {
    let service = Service::start().await;
    service.script("/work", [Answer::status(202), Answer::status(202)]);
    let mut server = Server::start(&[]);
    let document = json!({ "workflow_id": "lost", "name": "Lost", "version": "1.0.0", "edges": [],
        "nodes": [{ "id": "work", "type": "task",
                    "executor": { "type": "callback", "config": { "url": service.at("/work") } } }] });
    let (status, created) = server.post("/api/v1/workflows", &document).await;
    assert_eq!(status, 201, "{created}");
    let body = json!({ "workflow_id": "lost", "inputs": { "n": 1 } });
    let (_, started) = server.post("/api/v1/executions", &body).await;
    let id = started["execution_id"].as_str().expect("an id").to_owned();
    let first = service.call("/work", 1).await;
    eventually("the request is recorded", || has_event(&server, &id, "requested")).await;
    let resend = format!("/api/v1/executions/{id}/nodes/work/resend");
    let (status, accepted) = server.post(&resend, &json!({ "reason": "lost" })).await;
    assert_eq!(status, 202, "{accepted}");
    server.kill9();
    server.restart();
    let second = service.call("/work", 2).await;
    let sent = |call: &Call| {
        let mut body = call.json();
        body["callback_url"] = call.callback("callback_url").into(); // the server has another port now
        (call.key().to_owned(), body)
    };
    assert_eq!(sent(&second), sent(&first), "the same request");
    eventually("it is recorded", || has_event(&server, &id, "resent")).await;
    let answer = r#"{"state":{"done":true}}"#;
    let (status, answered) = server.send("POST", &second.callback("callback_url"), answer).await;
    assert_eq!(status, 200, "{answered}");
    assert_eq!(server.ended(&id).await["outputs"], json!({ "done": true }));
}

#[tokio::test]
async fn commands_pause_resume_skip_and_resend() {
    let server = Server::start(&[]);
    let nap = json!({ "id": "naps", "displayName": "Naps", "startNode": "nap", "nodes": [
        { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 86_400_000 }, "edges": [{ "targetNode": "last" }] },
        { "id": "last", "actionType": "core.echo", "parameters": { "n": "{{ context.data.nap.n }}" } },
    ] });
    server.publish(&nap).await;
    let id = server.execute("naps", &json!({})).await;
    let run = |arguments: &[&str]| {
        let all = [&["executions"], arguments, &["--server", &server.url]].concat();
        fermata(&all)
    };
    let paused = run(&["pause", &id]);
    assert!(paused.stdout.contains("is paused"), "{paused:?}");
    let shown = run(&["get", &id]);
    assert!(shown.stdout.contains("paused"), "{shown:?}");
    assert!(run(&["list"]).stdout.contains("paused"));
    let json = run(&["pause", &id, "-o", "json"]).json();
    assert!(json["pausedAt"].is_string(), "{json}");
    let resumed = run(&["resume", &id, "--reason", "looked"]);
    assert!(resumed.stdout.contains("is resumed"), "{resumed:?}");
    let refused = run(&["resend", &id, "nap"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("cannot be sent again"), "{refused:?}");
    let wrong = run(&["skip", &id, "nap", "--reason", "x", "--outputs", "7"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("--outputs"), "{wrong:?}");
    let skipped = run(&["skip", &id, "nap", "--reason", "too long", "--outputs", r#"{"n": 7}"#]);
    assert!(skipped.stdout.contains("is skipped"), "{skipped:?}");
    assert_eq!(server.ended(&id).await["outputs"], json!({ "n": 7 }));
    let events = run(&["events", &id]);
    assert!(events.stdout.contains("nap was skipped"), "{events:?}");
    let shown = run(&["get", &id]);
    assert!(shown.stdout.contains("too long"), "{shown:?}");
    let late = run(&["pause", &id]);
    assert!(late.stderr.contains("is Succeeded"), "{late:?}");
}

/// Runs of a paused workflow wait through kills, and none is lost when it is resumed and the server is killed right then.
#[tokio::test]
async fn pause_of_a_workflow_holds_through_kills() {
    let mut server = Server::start(&[]);
    let hello = json!({ "id": "hello", "displayName": "Hello", "startNode": "a",
                        "nodes": [{ "id": "a", "actionType": "core.echo" }] });
    server.publish(&hello).await;
    let paused = fermata(&["workflows", "pause", "hello", "--server", &server.url]);
    assert!(paused.stdout.contains("is paused"), "{paused:?}");
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(server.execute("hello", &json!({})).await);
    }
    server.kill9();
    server.restart();
    let listed = fermata(&["workflows", "list", "--server", &server.url]);
    assert!(listed.stdout.contains("(paused)"), "{listed:?}");
    for id in &runs {
        let run = server.execution(id).await;
        assert_eq!(
            (&run["status"], &run["waitingFor"]["kind"]),
            (&json!("Pending"), &json!("paused"))
        );
    }
    let resumed = fermata(&["workflows", "resume", "hello", "--server", &server.url]);
    assert!(resumed.stdout.contains("is resumed"), "{resumed:?}");
    server.kill9();
    server.restart();
    for id in &runs {
        assert_eq!(server.ended(id).await["status"], "Succeeded");
    }
}
