//! Reruns over HTTP: the new execution, what is refused and where, and who may change parameters.

use crate::{
    harness::{Server, echo, single},
    keys::{create, send, servers, text},
};
use reqwest::Method;
use serde_json::{Value, json};

fn path(id: &str) -> String {
    format!("/api/v1/executions/{id}/rerun")
}

/// `a`, then `b`, which fails without `trigger.b`.
fn chain(id: &str) -> Value {
    json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n ?? 1 }}" }, "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo", "parameters": { "b": "{{ trigger.b }}", "of": "{{ context.data['a'].n }}" } } ] })
}

async fn failed(server: &Server) -> String {
    server.publish(&chain("chain")).await;
    let id = server.execute("chain", json!({ "trigger": { "n": 5 } })).await;
    let run = server.until(&id, |run| run["status"] == "Failed").await;
    assert_eq!(run["error"]["node"], "b");
    id
}

#[tokio::test]
async fn rerun_is_a_new_execution_that_names_the_old_one() {
    let server = Server::start().await;
    let old = failed(&server).await;
    let body = json!({ "fromNode": "b", "trigger": { "b": 2 }, "spec": { "s": 1 }, "requestId": "again" });
    let accepted = server.post(&path(&old), body.clone()).await.expect(202);
    let new = accepted["executionId"].as_str().unwrap().to_owned();
    let status_url = format!("/api/v1/executions/{new}");
    assert_eq!(
        (&accepted["rerunOf"], &accepted["statusUrl"]),
        (&json!(old), &json!(status_url))
    );
    let run = server.until(&new, |run| run["status"] == "Succeeded").await;
    assert_eq!(
        (&run["rerunOf"], &run["outputs"]),
        (&json!(old), &json!({ "b": 2, "of": 5 }))
    );
    assert_eq!((&run["spec"], &run["requestId"]), (&json!({ "s": 1 }), &json!("again")));
    let again = server.post(&path(&old), body).await.expect(200);
    assert_eq!(again["executionId"], new.as_str());
    let list = server.get("/api/v1/executions?workflowId=chain").await.expect(200);
    let of: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["rerunOf"])
        .collect();
    assert_eq!(of, [&json!(old), &Value::Null]);
    let shown = server
        .get(&format!("{status_url}?include=actions,events"))
        .await
        .expect(200);
    let actions = shown["actions"].as_array().unwrap();
    assert_eq!(
        (
            &actions[0]["nodeId"],
            &actions[0]["reusedFrom"],
            &actions[1]["reusedFrom"]
        ),
        (&json!("a"), &json!(old), &Value::Null)
    );
    let kept = shown["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["data"]["type"] == "reused");
    assert_eq!(
        kept.unwrap()["message"],
        format!("a is not repeated; in execution {old} it succeeded")
    );
    let tasks = server
        .get(&format!("/api/v1/workflows/chain/runs/{new}"))
        .await
        .expect(200);
    assert_eq!(tasks["data"]["tasks"]["a"]["status"], "succeeded", "{tasks}");
    // Everything is repeated without a node; the response waits for the end.
    let whole = server
        .post(
            &format!("{}?wait=20s", path(&old)),
            json!({ "trigger": { "n": 6, "b": 0 } }),
        )
        .await
        .expect(200);
    assert_eq!(
        (&whole["outputs"], &whole["rerunOf"]),
        (&json!({ "b": 0, "of": 6 }), &json!(old))
    );
    // Without a body it is the same again.
    let same = server
        .post_nothing(&format!("{}?wait=20s", path(&old)))
        .await
        .expect(200);
    assert_eq!(
        (&same["status"], &same["trigger"]),
        (&json!("Failed"), &json!({ "n": 5 }))
    );
}

#[tokio::test]
async fn wrong_requests_are_refused_and_say_where() {
    let server = Server::start().await;
    let old = failed(&server).await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let running = server.execute("gated", json!({})).await;
    let refused = server.post(&path(&running), json!({})).await.error(409, "WFENG002");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("is Running") && message.contains("cancel it first"),
        "{message}"
    );
    let missing = "01930c5e-0000-7000-8000-000000000000";
    server
        .post(&path(missing), json!({}))
        .await
        .error(404, "EXECUTION_NOT_FOUND");
    server.post(&path("x"), json!({})).await.error(400, "INVALID_ID");
    for (body, pointer) in [
        (json!({ "fromNode": "x" }), "/fromNode"),
        (json!({ "fromNode": "b", "failedOnly": true }), "/failedOnly"),
        (
            json!({ "fromNode": "b", "parameters": { "a": { "n": 1 } } }),
            "/parameters/a",
        ),
        (json!({ "parameters": { "nö": {} } }), "/parameters/nö"),
        (json!({ "parameters": { "b": { "b": "{{" } } }), "/parameters"),
    ] {
        let error = server.post(&path(&old), body.clone()).await.error(400, "INVALID_RERUN");
        assert_eq!(error["details"][0]["pointer"], pointer, "{body}: {error}");
    }
    for body in [
        json!({ "version": 0 }),
        json!({ "version": "newest" }),
        json!({ "version": 1.5 }),
        json!({ "parameters": [] }),
        json!({ "parameters": { "b": 1 } }),
        json!({ "fromNode": "" }),
        json!({ "requestId": "" }),
        json!({ "from": "b" }),
    ] {
        server.post(&path(&old), body).await.error(400, "INVALID_REQUEST");
    }
    let error = server
        .post(&path(&old), json!({ "version": 7 }))
        .await
        .error(404, "VERSION_NOT_FOUND");
    assert!(error["message"].as_str().unwrap().contains("no version 7"), "{error}");
    let reserved = json!({ "requestId": "fermata:x" });
    server
        .post(&path(&old), reserved)
        .await
        .error(400, "RESERVED_REQUEST_ID");
    let other = json!({ "requestId": "taken" });
    server.publish(&echo("echo")).await;
    server.execute("echo", other.clone()).await;
    server.post(&path(&old), other).await.error(409, "WFENG001");
    let list = server.get("/api/v1/executions?workflowId=chain").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "nothing was stored: {list}");
}

/// Changed parameters decide where secrets go: who may not change the workflow may not change them either.
#[tokio::test]
async fn parameters_are_changed_only_by_those_who_may_change_the_workflow() {
    let (_loose, server, root) = servers().await;
    let key = async |tenant: &str, scopes: Value| {
        let body = json!({ "name": "k", "scopes": scopes, "tenantId": tenant });
        text(&create(&server, &root, body).await.expect(201), "key")
    };
    let runs = key("acme", json!(["workflows:read", "workflows:execute"])).await;
    let manages = key(
        "acme",
        json!(["workflows:read", "workflows:execute", "workflows:manage"]),
    )
    .await;
    let other = key(
        "other",
        json!(["workflows:read", "workflows:execute", "workflows:manage"]),
    )
    .await;
    let post = async |key: &str, path: &str, body: Value| send(&server, key, Method::POST, path, body).await;
    for (key, id) in [(&manages, "own"), (&root, "shared")] {
        post(key, "/api/v1/workflows", chain(id)).await.expect(201);
        post(key, &format!("/api/v1/workflows/{id}/publish"), Value::Null)
            .await
            .expect(200);
    }
    let started = async |id: &str| {
        let body = json!({ "trigger": { "b": 1 } });
        let ended = post(&runs, &format!("/api/v1/workflows/{id}/execute?wait=20s"), body)
            .await
            .expect(200);
        text(&ended, "executionId")
    };
    let (own, shared) = (started("own").await, started("shared").await);
    let edit = json!({ "parameters": { "a": { "n": 9 } } });
    for run in [&own, &shared] {
        post(&runs, &path(run), json!({ "fromNode": "b" })).await.expect(202);
        post(&runs, &path(run), edit.clone()).await.error(403, "FORBIDDEN");
        post(&other, &path(run), json!({}))
            .await
            .error(404, "EXECUTION_NOT_FOUND");
    }
    post(&manages, &path(&shared), edit.clone())
        .await
        .error(403, "SHARED_WORKFLOW");
    let edited = post(&manages, &format!("{}?wait=20s", path(&own)), edit)
        .await
        .expect(200);
    assert_eq!(edited["outputs"], json!({ "b": 1, "of": 9 }));
    assert_eq!(edited["principal"]["userId"], "key:k");
    let audit = send(
        &server,
        &root,
        Method::GET,
        "/api/v1/audit?action=execution.rerun",
        Value::Null,
    )
    .await;
    let rows = audit.expect(200)["items"].as_array().unwrap().clone();
    let outcome = |wanted: &str| rows.iter().filter(|row| row["outcome"] == wanted).count();
    assert_eq!((outcome("requested"), outcome("refused")), (3, 3), "{rows:#?}");
    assert!(rows.iter().all(|row| row["tenantId"] == "acme"), "{rows:#?}");
}
