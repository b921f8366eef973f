//! Dead letters: list, read, requeue, delete.

use crate::harness::{Server, assert_time, echo};
use fermata_core::RunId;
use fermata_runtime::clock::{Clock, SystemClock};
use fermata_store::runs::{Enqueued, NewRun, Principal};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

const LETTERS: &str = "/api/v1/admin/dead-letters";

/// Stores a run directly, with an invalid trigger, and waits for its dead letter.
pub async fn dead_lettered(server: &Server, workflow: &str, trigger: &str) -> (String, Value) {
    let id = RunId(Uuid::now_v7());
    let run = NewRun {
        id,
        workflow_uid: server.store.workflow("", workflow).await.unwrap().unwrap().uid,
        workflow_id: workflow.to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: Uuid::now_v7().to_string(),
        trigger: trigger.to_owned(),
        spec: None,
        priority: None,
        correlation_id: None,
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal::default(),
        parent: None,
        created_at: SystemClock.now(),
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: None,
    };
    assert_eq!(server.store.enqueue(run).await.unwrap(), Enqueued::Created);
    let id = id.to_string();
    let run = server.until(&id, |run| run["status"] == "Failed").await;
    assert_eq!(run["reason"], "dead_letter", "{run}");
    let page = server
        .get(&format!("{LETTERS}?workflowId={workflow}"))
        .await
        .expect(200);
    (id, page["items"][0].clone())
}

/// A workflow with a required field in its trigger.
pub fn strict(id: &str) -> Value {
    let mut document = echo(id);
    document["triggerSchema"] = json!({ "type": "object", "required": ["say"] });
    document
}

async fn delete(server: &Server, path: impl AsRef<str>) -> crate::harness::Answer {
    server.send(Method::DELETE, path.as_ref(), &[], Vec::new()).await
}

#[tokio::test]
async fn dead_letters_are_listed_and_read() {
    let server = Server::start().await;
    server.publish(&strict("a")).await;
    server.publish(&strict("b")).await;
    let (first, _) = dead_lettered(&server, "a", "{}").await;
    let (second, letter) = dead_lettered(&server, "b", "nonsense").await;
    let page = server.get(LETTERS).await.expect(200);
    let runs: Vec<_> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["executionId"])
        .collect();
    assert_eq!(runs, [second.as_str(), first.as_str()], "the newest first");
    assert!(
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item.get("payload").is_none())
    );
    let one = server.get(&format!("{LETTERS}?limit=1")).await.expect(200);
    let cursor = one["nextCursor"].as_str().unwrap();
    let rest = server
        .get(&format!("{LETTERS}?limit=1&cursor={cursor}"))
        .await
        .expect(200);
    assert_eq!(rest["items"][0]["executionId"], first.as_str());
    assert!(rest.get("nextCursor").is_none());
    let none = server.get(&format!("{LETTERS}?reason=POISON")).await.expect(200);
    assert_eq!(none["items"], json!([]));

    let path = format!("{LETTERS}/{}", letter["id"].as_str().unwrap());
    let shown = server.get(&path).await.expect(200);
    assert_eq!(
        (&shown["reason"], &shown["workflowId"]),
        (&json!("INVALID_TRIGGER"), &json!("b"))
    );
    assert_eq!((&shown["attempts"], &shown["workflowVersion"]), (&json!(1), &json!(1)));
    assert!(shown["lastError"].as_str().unwrap().contains("not JSON"));
    assert_time(&shown["enqueuedAt"]);
    assert_eq!(shown["payload"]["triggerText"], "nonsense");
    assert_eq!(shown["payload"]["principal"]["userId"], "system");
}

#[tokio::test]
async fn a_valid_dead_letter_is_requeued_once() {
    let server = Server::start().await;
    server.publish(&strict("a")).await;
    let (old, letter) = dead_lettered(&server, "a", "{}").await;
    let path = format!("{LETTERS}/{}/requeue", letter["id"].as_str().unwrap());
    let refused = server.post_nothing(&path).await.error(400, "WFENG005");
    assert_eq!(refused["details"][0]["code"], "INVALID_TRIGGER");
    let draft = echo("a").to_string();
    let headers = [("content-type", "application/json")];
    let put = server
        .send(Method::PUT, "/api/v1/workflows/a/draft", &headers, draft)
        .await;
    assert!(put.status < 300, "{}", put.text);
    server.post_nothing("/api/v1/workflows/a/publish").await.expect(200);
    server
        .post_nothing(&format!("{path}?version=same"))
        .await
        .error(400, "WFENG005");
    let accepted = server.post_nothing(&path).await.expect(202);
    let id = accepted["executionId"].as_str().unwrap();
    assert_ne!(id, old);
    let run = server.until(id, |run| run["status"] == "Succeeded").await;
    assert_eq!(
        (&run["workflowVersion"], &run["outputs"]),
        (&json!(2), &json!({ "said": "nothing" }))
    );
    let again = server.post_nothing(&path).await.expect(200);
    assert_eq!(
        (&again["executionId"], &again["status"]),
        (&json!(id), &json!("Succeeded"))
    );
    assert_eq!(server.get(LETTERS).await.expect(200)["items"], json!([]));
    let old = server.get(&format!("/api/v1/executions/{old}")).await.expect(200);
    assert_eq!(old["status"], "Failed");
}

#[tokio::test]
async fn dead_letters_are_deleted_one_by_one_or_by_filter() {
    let server = Server::start().await;
    server.publish(&strict("a")).await;
    server.publish(&strict("b")).await;
    for workflow in ["a", "a", "b", "b"] {
        dead_lettered(&server, workflow, "{}").await;
    }
    for query in ["", "?all=false", "?all=true&workflowId=a", "?reason=&workflowId="] {
        let refused = delete(&server, &format!("{LETTERS}{query}")).await;
        refused.error(400, "INVALID_PARAMETER");
    }
    let letters = server.get(LETTERS).await.expect(200);
    let path = format!("{LETTERS}/{}", letters["items"][0]["id"].as_str().unwrap());
    assert_eq!(delete(&server, &path).await.status, 204);
    delete(&server, &path).await.error(404, "DEAD_LETTER_NOT_FOUND");
    server.get(&path).await.error(404, "DEAD_LETTER_NOT_FOUND");
    server
        .post_nothing(&format!("{path}/requeue"))
        .await
        .error(404, "DEAD_LETTER_NOT_FOUND");
    let removed = |query: &str| delete(&server, format!("{LETTERS}?{query}"));
    assert_eq!(removed("reason=POISON").await.expect(200), json!({ "removed": 0 }));
    let some = removed("reason=INVALID_TRIGGER&workflowId=a").await.expect(200);
    assert_eq!(some, json!({ "removed": 2 }));
    assert_eq!(removed("all=true").await.expect(200), json!({ "removed": 1 }));
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let server = Server::start().await;
    server.publish(&strict("a")).await;
    let (_, letter) = dead_lettered(&server, "a", "nonsense").await;
    let path = format!("{LETTERS}/{}", letter["id"].as_str().unwrap());
    server
        .get(&format!("{LETTERS}?reason=poison"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{LETTERS}?limit=1001"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{LETTERS}?cursor=1"))
        .await
        .error(400, "INVALID_CURSOR");
    server.get(&format!("{LETTERS}/7")).await.error(400, "INVALID_ID");
    let requeue = |query: &str| format!("{path}/requeue{query}");
    server
        .post_nothing(&requeue("?version=2"))
        .await
        .error(400, "INVALID_PARAMETER");
    let unusable = server
        .post_nothing(&requeue(""))
        .await
        .error(409, "DEAD_LETTER_UNUSABLE");
    assert!(unusable["message"].as_str().unwrap().contains("trigger"), "{unusable}");
    server.get(&path).await.expect(200);
}
