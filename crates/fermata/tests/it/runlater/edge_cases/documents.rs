//! Documents that are refused when they are created.

use super::super::Stage;
use serde_json::{Value, json};

/// Sends a document that must be refused and not be stored. Returns the problems that were reported.
async fn refused(stage: &Stage, document: &str) -> Vec<Value> {
    let (status, answer) = stage
        .server
        .send("POST", "/api/v1/workflows", document.to_owned())
        .await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(answer["error"]["code"], "WFENG005", "{answer}");
    assert_eq!(stage.server.get("/api/v1/workflows/refused").await.0, 404);
    let (status, _) = stage.server.post("/api/v1/workflows/refused/trigger", &json!({})).await;
    assert_eq!(status, 404);
    answer["error"]["details"].as_array().expect("details").clone()
}

/// "Validated at workflow creation time. Topological sort of the DAG — reject if cycle detected."
#[tokio::test]
async fn circular_dependencies() {
    let stage = Stage::start().await;
    let three = r#"{ "name": "refused", "tasks": {
  "fine": { "sleep": 1 },
  "a": { "needs": ["fine", "c"], "sleep": 1 },
  "b": { "needs": ["a"], "sleep": 1 },
  "c": { "needs": ["b"], "if": "tasks.b.status == 'success'", "sleep": 1 } } }"#;
    let details = refused(&stage, three).await;
    assert_eq!(details.len(), 1, "{details:?}");
    let cycle = &details[0];
    assert_eq!((&cycle["code"], &cycle["severity"]), (&json!("CYCLE"), &json!("error")));
    assert_eq!(cycle["message"], "the tasks form a cycle: a → b → c → a");
    assert!(
        cycle["line"].is_u64() && cycle["pointer"].is_string(),
        "the position is reported: {cycle}"
    );

    let itself = r#"{ "name": "refused", "tasks": { "a": { "needs": ["a"], "sleep": 1 } } }"#;
    let details = refused(&stage, itself).await;
    assert_eq!(details[0]["code"], "CYCLE");
    assert_eq!(details[0]["message"], "task `a` needs itself");

    // A document that replaces another one is checked, too. If it is refused, the old one stays.
    let good = json!({ "name": "good", "tasks": { "a": { "sleep": 0 } } });
    stage.server.add(&good).await;
    let bad = itself.replace("refused", "good");
    let (status, answer) = stage.server.send("PUT", "/api/v1/workflows/good", bad).await;
    assert_eq!((status, &answer["error"]["details"][0]["code"]), (400, &json!("CYCLE")));
    let run = stage.server.trigger("good", &json!({})).await;
    assert_eq!(stage.server.over(&run).await["status"], "completed");
}

/// "Every string in a step's `needs` array must match an actual step name […] rejected at creation time with a clear error."
#[tokio::test]
async fn orphaned_needs_validation() {
    let stage = Stage::start().await;
    let document = r#"{
  "name": "refused",
  "tasks": {
    "charge": { "url": "https://myapp.example/api/charge" },
    "receipt": {
      "needs": ["chrage"],
      "url": "https://myapp.example/api/receipt"
    },
    "ship": { "needs": ["charge", "somewhere-else"], "sleep": "1s" }
  }
}"#;
    let details = refused(&stage, document).await;
    assert_eq!(details.len(), 2, "all problems are reported: {details:?}");
    let typo = &details[0];
    assert_eq!(typo["code"], "UNKNOWN_NODE");
    assert_eq!(
        typo["message"],
        "task `receipt` needs `chrage`, which does not exist in this workflow"
    );
    assert_eq!(typo["suggestion"], "did you mean `charge`?");
    assert_eq!(typo["pointer"], "/tasks/receipt/needs/0");
    assert_eq!((&typo["line"], &typo["column"]), (&json!(6), &json!(17)));
    assert_eq!(details[1]["pointer"], "/tasks/ship/needs/1");
    assert_eq!(details[1].get("suggestion"), None, "no name is similar");
}
