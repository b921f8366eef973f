//! Saving, publishing, reading and listing workflows.

use crate::harness::{Server, assert_time, echo, single};
use fermata_core::Timestamp;
use fermata_store::definitions::{Enablement, Lifecycle};
use reqwest::Method;
use serde_json::{Value, json};

const WORKFLOWS: &str = "/api/v1/workflows";

#[tokio::test]
async fn a_draft_is_created_then_updated() {
    let server = Server::start().await;
    let mut document = echo("hello");
    document["description"] = json!("Says hello");
    let created = server.post(WORKFLOWS, document.clone()).await.expect(201);
    assert_eq!(created["id"], "hello");
    assert_eq!(created["displayName"], "The hello");
    assert_eq!(created["description"], "Says hello");
    assert_eq!(created["status"], "Draft");
    assert_eq!(created["isEnabled"], true);
    assert_eq!(created["dialect"], "dataworkflows");
    assert_eq!(created["checksum"].as_str().unwrap().len(), 64);
    assert_eq!(created["warnings"], json!([]));
    assert!(created.get("currentVersion").is_none() && created.get("latestVersion").is_none());
    assert_time(&created["createdAt"]);
    assert_time(&created["updatedAt"]);

    document["displayName"] = json!("Another");
    let updated = server.post(WORKFLOWS, document).await.expect(200);
    assert_eq!(updated["displayName"], "Another");
    assert_eq!(updated["createdAt"], created["createdAt"]);
    assert_ne!(updated["checksum"], created["checksum"]);
}

#[tokio::test]
async fn problems_of_a_document_are_listed_with_their_places() {
    let server = Server::start().await;
    let text = r#"{ "id": "bad", "displayName": "Bad", "startNode": "greet",
  "nodes": [{ "id": "greet", "actionType": "core.echo", "edges": [{ "targetNode": "gret" }] }] }"#;
    let headers = [("content-type", "application/json")];
    let answer = server.send(Method::POST, WORKFLOWS, &headers, text).await;
    let error = answer.error(400, "WFENG005");
    let detail = &error["details"][0];
    assert_eq!(detail["code"], "UNKNOWN_NODE");
    assert_eq!(detail["severity"], "error");
    assert_eq!(detail["pointer"], "/nodes/0/edges/0/targetNode");
    assert_eq!(detail["line"], 2);
    assert!(detail["column"].as_u64().unwrap() > 1);
    assert_eq!(detail["suggestion"], "did you mean `greet`?");
    assert!(!detail["message"].as_str().unwrap().is_empty());

    let broken = server.send(Method::POST, WORKFLOWS, &headers, "{ \"id\": ").await;
    assert_eq!(broken.error(400, "WFENG005")["details"][0]["line"], 1);
    server.post_nothing(WORKFLOWS).await.error(400, "INVALID_REQUEST");
}

#[tokio::test]
async fn documents_can_be_json_json_with_comments_or_yaml() {
    let server = Server::start().await;
    let yaml = "# why\nid: in-yaml\ndisplayName: Y\nstartNode: a\nnodes:\n  - id: a\n    actionType: core.echo\n";
    for media in [
        "application/yaml",
        "text/x-yaml",
        "application/vnd.oai.workflows+yaml",
        "TEXT/YAML; charset=utf-8",
    ] {
        let saved = server
            .send(Method::POST, WORKFLOWS, &[("content-type", media)], yaml)
            .await;
        assert!([200, 201].contains(&saved.status), "{media}: {}", saved.text);
    }
    let read = server.get("/api/v1/workflows/in-yaml").await.expect(200);
    assert_eq!(read["source"], yaml);
    assert_eq!(read["definition"]["nodes"][0]["actionType"], "core.echo");

    let jsonc = r#"{ "id": "in-jsonc", /* why */ "displayName": "C", "startNode": "a", "nodes": [{ "id": "a", "actionType": "core.echo" }], }"#;
    let media = [("content-type", "application/jsonc")];
    server.send(Method::POST, WORKFLOWS, &media, jsonc).await.expect(201);
    let read = server.get("/api/v1/workflows/in-jsonc").await.expect(200);
    assert_eq!(read["source"], jsonc);
    assert_eq!(read["definition"]["displayName"], "C");

    let form = [("content-type", "application/x-www-form-urlencoded")];
    let refused = server.send(Method::POST, WORKFLOWS, &form, jsonc).await;
    let error = refused.error(415, "UNSUPPORTED_MEDIA_TYPE");
    assert!(error["message"].as_str().unwrap().contains("application/yaml"));
}

#[tokio::test]
async fn publishing_creates_versions() {
    let server = Server::start().await;
    server.post(WORKFLOWS, echo("staged")).await.expect(201);
    let staged = server
        .post_nothing("/api/v1/workflows/staged/publish?autoActivate=false")
        .await;
    let staged = staged.expect(200);
    let expected = json!({ "workflowId": "staged", "version": 1, "status": "Draft", "created": true, "warnings": [] });
    assert_eq!(staged, expected);
    let read = server.get("/api/v1/workflows/staged").await.expect(200);
    assert_eq!(
        (&read["status"], &read["latestVersion"], &read["version"]),
        (&json!("Draft"), &json!(1), &json!(1))
    );
    assert!(read.get("currentVersion").is_none());

    let mut document = echo("staged");
    document["displayName"] = json!("Second");
    server.post(WORKFLOWS, document.clone()).await.expect(200);
    let active = server
        .post_nothing("/api/v1/workflows/staged/publish")
        .await
        .expect(200);
    assert_eq!((&active["version"], &active["status"]), (&json!(2), &json!("Active")));

    let read = server.get("/api/v1/workflows/staged").await.expect(200);
    assert_eq!(
        (&read["currentVersion"], &read["version"], &read["isEnabled"]),
        (&json!(2), &json!(2), &json!(true))
    );
    assert_eq!(read["definition"], document);
    assert!(read.get("source").is_none(), "plain JSON is its own source");
    let first = server.get("/api/v1/workflows/staged?version=1").await.expect(200);
    assert_eq!((&first["version"], &first["definition"]), (&json!(1), &echo("staged")));
    server
        .get("/api/v1/workflows/staged?version=3")
        .await
        .error(404, "VERSION_NOT_FOUND");
    server
        .get("/api/v1/workflows/staged?version=x")
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get("/api/v1/workflows/staged?versoin=1")
        .await
        .error(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn invalid_publishes_are_refused() {
    let server = Server::start().await;
    let publish = |id: &str| format!("/api/v1/workflows/{id}/publish");
    server
        .post_nothing(&publish("missing"))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    server
        .get("/api/v1/workflows/missing")
        .await
        .error(404, "WORKFLOW_NOT_FOUND");

    let unknown = single("unknown", "core.ecko", json!({}));
    let saved = server.post(WORKFLOWS, unknown).await.expect(201);
    assert_eq!(saved["warnings"][0]["severity"], "warning", "{saved}");
    let error = server.post_nothing(&publish("unknown")).await.error(400, "WFENG005");
    assert!(error["details"].to_string().contains("core.ecko"), "{error}");
    let bad = server.post_nothing(&(publish("unknown") + "?autoActivate=maybe")).await;
    bad.error(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn active_and_archived_workflows_cannot_be_saved() {
    let server = Server::start().await;
    server.publish(&echo("fixed")).await;
    server
        .post(WORKFLOWS, echo("fixed"))
        .await
        .error(400, "WORKFLOW_IMMUTABLE");
    let archive = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    };
    let fixed = server.store.workflow("", "fixed").await.unwrap().unwrap().uid;
    server.store.set_enablement(fixed, archive, Timestamp(0)).await.unwrap();
    server
        .post(WORKFLOWS, echo("fixed"))
        .await
        .error(400, "WORKFLOW_IMMUTABLE");
}

#[tokio::test]
async fn the_list_is_paged_and_filtered() {
    let server = Server::start().await;
    let ids: Vec<String> = (0..7).map(|n| format!("w-{n}")).collect();
    for id in &ids {
        server.post(WORKFLOWS, echo(id)).await.expect(201);
    }
    server.post_nothing("/api/v1/workflows/w-3/publish").await.expect(200);

    let mut seen = Vec::new();
    let mut path = format!("{WORKFLOWS}?limit=3");
    for _ in 0..ids.len() {
        let page = server.get(&path).await.expect(200);
        seen.extend(ids_of(&page));
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("{WORKFLOWS}?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);

    let listed = async |query: &str| ids_of(&server.get(&format!("{WORKFLOWS}?{query}")).await.expect(200));
    assert_eq!(listed("status=Active").await, ["w-3"]);
    assert_eq!(listed("isEnabled=true&status=").await, ids);
    assert!(listed("isEnabled=false").await.is_empty());
    assert_eq!(listed("search=W-5").await, ["w-5"]);
    assert_eq!(listed("status=draft&search=the").await.len(), 6);
    server
        .get(&format!("{WORKFLOWS}?status=Open"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{WORKFLOWS}?cursor=77zz"))
        .await
        .error(400, "INVALID_CURSOR");
    server
        .get(&format!("{WORKFLOWS}?limit=0"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{WORKFLOWS}?limit=1001"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{WORKFLOWS}?colour=red"))
        .await
        .error(400, "INVALID_PARAMETER");
}

fn ids_of(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}
