//! Dry runs over HTTP: nothing is stored, and no effect leaves the process.

use crate::{
    harness::{Server, echo},
    service::Service,
};
use serde_json::{Value, json};

const DRY_RUN: &str = "/api/v1/workflows/dry-run";

fn order(url: &str) -> Value {
    json!({ "id": "order", "displayName": "Order", "startNode": "charge", "nodes": [
        { "id": "charge", "actionType": "http.request", "parameters": { "url": format!("{url}/answer/200"), "method": "POST" },
          "edges": [{ "targetNode": "pause", "condition": "context.data.charge.body.ok" }] },
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 1_123_200_000u64 }, "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo", "parameters": { "for": "{{ trigger.customer }}", "plan": "{{ spec.plan }}" } } ] })
}

#[tokio::test]
async fn the_route_is_shown_and_nothing_is_called_or_stored() {
    let service = Service::start().await;
    let server = Server::start().await;
    let body = json!({ "document": order(&service.base), "trigger": { "customer": "ada" }, "spec": { "plan": "gold" },
                       "mocks": { "charge": { "outputs": { "body": { "ok": true } } } } });
    let report = server.post(DRY_RUN, body).await.expect(200);
    assert_eq!(report["status"], "Succeeded", "{report}");
    assert_eq!(report["virtualDurationMs"], 1_123_200_000u64);
    assert_eq!(report["outputs"], json!({ "for": "ada", "plan": "gold" }));
    assert_eq!(report["warnings"], json!([]));
    let charge = &report["nodes"][0];
    assert_eq!(
        (&charge["nodeId"], &charge["mock"], &charge["attempts"]),
        (&json!("charge"), &json!("given"), &json!(1))
    );
    let edge = &charge["edges"][0];
    assert_eq!(
        (&edge["to"], &edge["taken"], &edge["verdict"]),
        (&json!("pause"), &json!(true), &json!(true))
    );
    assert_eq!(edge["condition"], "context.data.charge.body.ok");
    assert!(
        edge["values"]
            .as_object()
            .is_some_and(|values| values.values().any(|value| *value == json!(true))),
        "{edge}"
    );
    assert_eq!(service.bodies(), Vec::<Value>::new(), "the service must not be called");

    // As YAML, without a mock.
    let yaml =
        "id: y\ndisplayName: Y\nstartNode: a\nnodes:\n  - id: a\n    actionType: core.echo\n    parameters: { n: 1 }\n";
    let report = server.post(DRY_RUN, json!({ "document": yaml })).await.expect(200);
    assert_eq!(report["outputs"], json!({ "n": 1 }));
    for path in ["/api/v1/workflows", "/api/v1/executions"] {
        assert_eq!(
            server.get(path).await.expect(200)["items"],
            json!([]),
            "nothing is stored"
        );
    }
}

#[tokio::test]
async fn stored_workflows_are_run_by_version_or_draft() {
    let server = Server::start().await;
    let numbered = |n: u32| {
        let mut document = echo("w");
        document["nodes"][0]["parameters"] = json!({ "n": n });
        document
    };
    server.post("/api/v1/workflows", numbered(1)).await.expect(201);
    let run = async |body: Value| server.post(DRY_RUN, body).await;
    let draft = run(json!({ "workflowId": "w" })).await.expect(200);
    assert_eq!(
        draft["outputs"],
        json!({ "n": 1 }),
        "a draft, because there is no version"
    );
    server.post_nothing("/api/v1/workflows/w/publish").await.expect(200);
    let json = [("content-type", "application/json")];
    let put = server
        .send(
            reqwest::Method::PUT,
            "/api/v1/workflows/w/draft",
            &json,
            numbered(2).to_string(),
        )
        .await;
    put.expect(200);
    server.post_nothing("/api/v1/workflows/w/publish").await.expect(200);
    assert_eq!(
        run(json!({ "workflowId": "w" })).await.expect(200)["outputs"],
        json!({ "n": 2 })
    );
    let first = run(json!({ "workflowId": "w", "version": 1 })).await.expect(200);
    assert_eq!(first["outputs"], json!({ "n": 1 }));
    run(json!({ "workflowId": "w", "version": 9 }))
        .await
        .error(404, "VERSION_NOT_FOUND");
    run(json!({ "workflowId": "none" }))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    let runs = server.get("/api/v1/executions").await.expect(200);
    assert_eq!(runs["items"], json!([]), "nothing is stored");
}

#[tokio::test]
async fn wrong_requests_are_refused_with_their_places() {
    let server = Server::start().await;
    let bad = json!({ "id": "bad", "displayName": "Bad", "startNode": "b", "nodes": [{ "id": "a", "actionType": "core.ecko" }] });
    let refused = server.post(DRY_RUN, json!({ "document": bad })).await;
    let details = refused.error(400, "WFENG005")["details"].clone();
    assert!(
        details
            .as_array()
            .is_some_and(|list| list.iter().any(|detail| detail["pointer"] == "/startNode")),
        "{details}"
    );

    let mocks = json!({ "gret": { "outputs": {} } });
    let mut document = echo("w");
    document["nodes"][0]["id"] = json!("greet");
    document["startNode"] = json!("greet");
    let refused = server
        .post(DRY_RUN, json!({ "document": document, "mocks": mocks }))
        .await;
    let details = refused.error(400, "INVALID_MOCKS")["details"].clone();
    assert_eq!(details[0]["pointer"], "/mocks/gret");
    assert_eq!(details[0]["message"], "there is no node `gret`; did you mean `greet`?");

    let mut strict = document.clone();
    strict["triggerSchema"] = json!({ "type": "object", "required": ["id"] });
    let refused = server.post(DRY_RUN, json!({ "document": strict })).await;
    assert_eq!(refused.error(400, "WFENG005")["details"][0]["code"], "INVALID_TRIGGER");
    for body in [
        json!({}),
        json!({ "document": document, "workflowId": "w" }),
        json!({ "document": 7 }),
        json!({ "document": document, "version": 1 }),
        json!({ "workflowId": "w", "version": [] }),
        json!({ "document": document, "mock": {} }),
    ] {
        let refused = server.post(DRY_RUN, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
    }
    // A workflow may have the name of the route.
    server.publish(&echo("dry-run")).await;
    assert_eq!(server.get(DRY_RUN).await.expect(200)["id"], "dry-run");
}
