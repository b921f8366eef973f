//! What publishing checks about the workflows that a document starts.

use crate::support::{Bed, Scripted};
use fermata_dialects::Diagnostic;
use fermata_runtime::{EngineError, Refusal, Settings};
use serde_json::{Value, json};

async fn bed(allow_recursion: bool) -> Bed {
    let mut settings = Settings::default();
    settings.dialects.allow_recursion = allow_recursion;
    let child = Scripted::new("core.subworkflow", |_, _| Ok(Scripted::nothing()));
    Bed::with(settings, |registry| registry.with_action(std::sync::Arc::new(child))).await
}

/// A workflow that starts another one.
fn starts(id: &str, child: &str) -> Value {
    let node = json!({ "id": "go", "nodeType": "subworkflow", "workflowId": child });
    json!({ "id": id, "displayName": id, "startNode": "go", "nodes": [node] })
}

/// The same as a jsondagapi document.
fn includes(id: &str, child: &str) -> Value {
    let node = json!({ "id": "go", "type": "subgraph", "subgraph_ref": child });
    json!({ "workflow_id": id, "name": id, "version": "1.0.0", "nodes": [node], "edges": [] })
}

/// Publishes a document: its warnings, or its errors.
async fn publish(bed: &Bed, document: Value) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
    let id = document
        .get("id")
        .or(document.get("workflow_id"))
        .unwrap()
        .as_str()
        .unwrap();
    let workflows = bed.engine.workflows();
    workflows.save(document.to_string().as_bytes(), "w.json").await.unwrap();
    match workflows.publish(id, true).await {
        Ok(published) => Ok(published.warnings),
        Err(EngineError::Refused(Refusal::InvalidDocument(problems))) => Err(problems.into_list()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn unknown_child_is_a_warning() {
    let bed = bed(false).await;
    let warnings = publish(&bed, starts("a", "b")).await.unwrap();
    assert_eq!(
        (warnings[0].code, warnings[0].pointer.as_str()),
        ("UNKNOWN_WORKFLOW", "/nodes/0/workflowId")
    );
    assert!(
        warnings[0].line == 1 && warnings[0].column > 1,
        "it has a place: {warnings:?}"
    );
    let warnings = publish(&bed, includes("b", "c@1.0.0")).await.unwrap();
    assert_eq!(
        (warnings[0].code, warnings[0].pointer.as_str()),
        ("UNKNOWN_WORKFLOW", "/nodes/0/subgraph_ref")
    );
    publish(&bed, includes("c", "d")).await.unwrap();
    assert_eq!(
        publish(&bed, includes("e", "c@1.0.0")).await.unwrap(),
        [],
        "the version exists"
    );
    let uid = bed.engine.reads().workflow("e").await.unwrap().uid;
    let plan = bed.engine.workflows().compiled(uid, "e", 1).await.unwrap().plan.clone();
    let version = match &plan.nodes[0].kind {
        fermata_core::Kind::Request { parameters, .. } => &parameters["workflowVersion"],
        other => panic!("{other:?}"),
    };
    assert_eq!(version, 1, "the plan has the number of the version");
    let warnings = publish(&bed, includes("f", "c@1.0.1")).await.unwrap();
    assert_eq!(warnings[0].code, "UNKNOWN_WORKFLOW");
}

#[tokio::test]
async fn circle_of_three_workflows_is_refused() {
    let bed = bed(false).await;
    publish(&bed, starts("a", "b")).await.unwrap();
    publish(&bed, includes("b", "c")).await.unwrap();
    let errors = publish(&bed, starts("c", "a")).await.unwrap_err();
    assert_eq!(errors[0].code, "RECURSIVE_WORKFLOW");
    assert!(errors[0].message.ends_with("c → a → b → c"), "{}", errors[0].message);
    assert_eq!(
        publish(&bed, starts("d", "a")).await.unwrap(),
        [],
        "it is not part of a circle"
    );
    let own = publish(&bed, starts("e", "e")).await.unwrap_err();
    assert_eq!(own[0].code, "RECURSIVE_WORKFLOW");
}

#[tokio::test]
async fn circle_is_accepted_if_recursion_is_allowed() {
    let bed = bed(true).await;
    publish(&bed, starts("a", "b")).await.unwrap();
    assert_eq!(publish(&bed, includes("b", "a")).await.unwrap(), []);
    assert_eq!(publish(&bed, starts("c", "c")).await.unwrap(), []);
}
