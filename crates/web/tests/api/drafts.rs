//! Drafts: concurrent edits, ETags, and validation without storing.

use crate::harness::{Answer, Server, echo, single};
use reqwest::Method;
use serde_json::{Value, json};

const DRAFT: &str = "/api/v1/workflows/w/draft";

fn document(n: u32) -> Value {
    single("w", "core.echo", json!({ "n": n }))
}

async fn put(server: &Server, document: &Value, headers: &[(&str, &str)]) -> Answer {
    let mut headers = headers.to_vec();
    headers.push(("content-type", "application/json"));
    server.send(Method::PUT, DRAFT, &headers, document.to_string()).await
}

#[tokio::test]
async fn the_second_of_two_concurrent_edits_is_refused() {
    let server = Server::start().await;
    server.publish(&document(1)).await;
    server.get(DRAFT).await.error(404, "NO_DRAFT");
    put(&server, &document(2), &[("if-match", "*")])
        .await
        .error(412, "PRECONDITION_FAILED");
    let first = put(&server, &document(2), &[("if-none-match", "*")]).await;
    let saved = first.expect(200);
    let etag = first.header("etag").to_owned();
    assert_eq!(etag, format!("\"{}\"", saved["checksum"].as_str().unwrap()));
    assert_eq!(
        (&saved["status"], &saved["currentVersion"]),
        (&json!("Active"), &json!(1))
    );
    let read = server.get(DRAFT).await;
    assert_eq!(read.header("etag"), etag);
    assert_eq!(read.expect(200)["definition"], document(2));
    assert!(read.expect(200).get("version").is_none());

    let second = put(&server, &document(3), &[("if-match", &etag)]).await;
    second.expect(200);
    let late = put(&server, &document(4), &[("if-match", &etag)]).await;
    late.error(412, "PRECONDITION_FAILED");
    assert_eq!(late.header("etag"), second.header("etag"), "it has the current ETag");
    let absent = put(&server, &document(4), &[("if-none-match", "*")]).await;
    absent.error(412, "PRECONDITION_FAILED");
    let weak = format!("W/{}", second.header("etag"));
    put(&server, &document(4), &[("if-match", &weak)])
        .await
        .error(412, "PRECONDITION_FAILED");
    assert_eq!(server.get(DRAFT).await.expect(200)["definition"], document(3));
    put(&server, &document(4), &[("if-match", "nonsense")])
        .await
        .error(400, "INVALID_REQUEST");
    let both = [("if-match", "*"), ("if-none-match", "*")];
    put(&server, &document(4), &both).await.error(400, "INVALID_REQUEST");

    server.post_nothing("/api/v1/workflows/w/publish").await.expect(200);
    server.get(DRAFT).await.error(404, "NO_DRAFT");
    let gone = put(&server, &document(4), &[("if-match", second.header("etag"))]).await;
    gone.error(412, "PRECONDITION_FAILED");
    assert_eq!(gone.header("etag"), "");
    let now = server.get("/api/v1/workflows/w").await.expect(200);
    assert_eq!((&now["version"], &now["definition"]), (&json!(2), &document(3)));
}

#[tokio::test]
async fn a_draft_belongs_to_its_workflow() {
    let server = Server::start().await;
    server.publish(&document(1)).await;
    let error = put(&server, &echo("other"), &[]).await.error(400, "ID_MISMATCH");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`other`") && message.contains("`w`"), "{message}");
    server
        .get("/api/v1/workflows/other")
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    let json = [("content-type", "application/json")];
    let missing = server
        .send(
            Method::PUT,
            "/api/v1/workflows/missing/draft",
            &json,
            echo("missing").to_string(),
        )
        .await;
    missing.error(404, "WORKFLOW_NOT_FOUND");
    server
        .get("/api/v1/workflows/missing/draft")
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    let mut bad = document(2);
    bad["startNode"] = json!("nowhere");
    put(&server, &bad, &[]).await.error(400, "WFENG005");
    server.get(DRAFT).await.error(404, "NO_DRAFT");
}

#[tokio::test]
async fn documents_can_be_validated_without_storing() {
    let server = Server::start().await;
    let path = "/api/v1/workflows/validate";
    let mut fine = echo("fine");
    fine["triggerSchema"] = json!({ "type": "object" });
    let answer = server.post(path, fine).await.expect(200);
    assert_eq!((&answer["valid"], &answer["problems"]), (&json!(true), &json!([])));
    let plan = &answer["plan"];
    assert_eq!(
        (&plan["workflowId"], &plan["nodes"], &plan["edges"]),
        (&json!("fine"), &json!(1), &json!(0))
    );
    assert_eq!(plan["actionTypes"], json!(["core.echo"]));
    assert_eq!(plan["hasTriggerSchema"], true);
    assert_eq!(plan["checksum"].as_str().unwrap().len(), 64);

    let answer = server
        .post(path, single("bad", "core.ecko", json!({})))
        .await
        .expect(200);
    assert_eq!(answer["valid"], false, "validation makes the checks of publishing");
    assert_eq!(answer["problems"][0]["severity"], "error");
    assert!(answer["problems"][0]["line"].is_u64() && answer.get("plan").is_none());
    let json = [("content-type", "application/json")];
    let broken = server.send(Method::POST, path, &json, "{ \"id\": ").await.expect(200);
    assert_eq!(broken["valid"], false);
    server.post_nothing(path).await.error(400, "INVALID_REQUEST");
    let all = server.get("/api/v1/workflows").await.expect(200);
    assert_eq!(all["items"], json!([]), "nothing is stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_documents_are_accepted() {
    let server = Server::start().await;
    let mut large = echo("large");
    large["nodes"][0]["parameters"]["text"] = json!("x".repeat(200_000));
    server.publish(&large).await;
    let run = server
        .post_nothing("/api/v1/workflows/large/execute?wait=15s")
        .await
        .expect(200);
    assert_eq!(run["status"], "Succeeded");
}
