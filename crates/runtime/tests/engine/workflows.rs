//! The lifecycle of workflows with and without drafts, through the engine's own interface.

use crate::support::{Bed, workflow};
use fermata_core::Timestamp;
use fermata_runtime::{Added, EngineError, Refusal, Request};
use fermata_store::definitions::Lifecycle;
use serde_json::{Value, json};

fn tasks(enabled: bool, sleep: u32) -> Vec<u8> {
    let document = json!({ "name": "w", "enabled": enabled, "tasks": { "rest": { "sleep": sleep } } });
    document.to_string().into_bytes()
}

fn nodes() -> Value {
    workflow(json!([{ "id": "a", "actionType": "core.echo" }]))
}

fn refusal<T: std::fmt::Debug>(result: Result<T, EngineError>) -> Refusal {
    match result {
        Err(EngineError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// As `fermata run` and `dev` do it with every file.
#[tokio::test]
async fn any_document_can_be_saved_and_published() {
    let bed = Bed::new().await;
    let workflows = bed.engine.workflows();
    let saved = workflows.save(&tasks(true, 0), "w.json").await.unwrap();
    assert_eq!((saved.workflow.status, saved.created), (Lifecycle::Draft, true));
    let published = workflows.publish("w", true).await.unwrap();
    assert_eq!((published.version, published.nodes), (1, 1));
    assert_eq!(published.workflow, bed.engine.reads().workflow("w").await.unwrap());
    assert_eq!(published.workflow.uid, saved.workflow.uid);
    assert!(published.workflow.enabled);

    workflows
        .save_draft("w", &tasks(false, 0), "w.json", None)
        .await
        .unwrap();
    let published = workflows.publish("w", true).await.unwrap();
    assert_eq!((published.version, published.workflow.enabled), (2, false));
    let request = Request {
        workflow_id: "w".to_owned(),
        ..Request::default()
    };
    let refused = refusal(bed.engine.start(request).await);
    assert!(
        matches!(refused, Refusal::NotActive { enabled: false, .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn dialect_decides_whether_a_document_becomes_a_draft() {
    let bed = Bed::new().await;
    let workflows = bed.engine.workflows();
    let text = nodes().to_string();
    match workflows.add(text.as_bytes(), "a.json").await.unwrap() {
        Added::Draft(saved) => assert_eq!(saved.workflow.status, Lifecycle::Draft),
        other => panic!("{other:?}"),
    }
    let published = match workflows.add(&tasks(true, 0), "w.json").await.unwrap() {
        Added::Published(published) => published,
        other => panic!("{other:?}"),
    };
    assert_eq!((published.version, published.created), (1, true));
    let uid = bed.engine.reads().workflow("w").await.unwrap().uid;
    assert_eq!(bed.store.draft(uid).await.unwrap(), None);
    let refused = refusal(workflows.add(&tasks(true, 1), "w.json").await);
    assert!(
        matches!(&refused, Refusal::Exists { workflow, status: Lifecycle::Active } if workflow == "w"),
        "{refused}"
    );
    let replaced = workflows.replace("w", &tasks(true, 1), "w.json").await.unwrap();
    assert_eq!((replaced.version, replaced.workflow.uid), (2, published.workflow.uid));
    let refused = refusal(workflows.replace("w", text.as_bytes(), "a.json").await);
    assert!(matches!(refused, Refusal::HasDrafts(_)), "{refused}");
}

/// The dialect of a workflow changes when the draft is published, not when it is saved.
#[tokio::test]
async fn draft_may_change_the_dialect() {
    let bed = Bed::new().await;
    let workflows = bed.engine.workflows();
    workflows.add(&tasks(true, 0), "w.json").await.unwrap();
    let mut other = nodes();
    other["id"] = json!("w");
    workflows
        .save_draft("w", other.to_string().as_bytes(), "w.json", None)
        .await
        .unwrap();
    assert_eq!(
        workflows.replace("w", &tasks(true, 1), "w.json").await.unwrap().version,
        2
    );
    let uid = bed.engine.reads().workflow("w").await.unwrap().uid;
    assert_eq!(bed.store.draft(uid).await.unwrap(), None, "replacing leaves no draft");

    workflows
        .save_draft("w", other.to_string().as_bytes(), "w.json", None)
        .await
        .unwrap();
    let published = workflows.publish("w", true).await.unwrap();
    assert_eq!(
        (published.version, published.workflow.dialect.as_str()),
        (3, "dataworkflows")
    );
    let refused = refusal(workflows.replace("w", &tasks(true, 1), "w.json").await);
    assert!(matches!(refused, Refusal::HasDrafts(_)), "{refused}");
    let refused = refusal(workflows.delete("w").await);
    assert!(matches!(refused, Refusal::IllegalTransition { .. }), "{refused}");
}

/// The cached workflow of a name may have been deleted and created again by another process.
#[tokio::test]
async fn workflow_recreated_by_another_process_is_another_workflow() {
    let bed = Bed::new().await;
    let workflows = bed.engine.workflows();
    let start = async |workflow: &str, request_id: &str| {
        let request = Request {
            workflow_id: workflow.to_owned(),
            request_id: Some(request_id.to_owned()),
            ..Request::default()
        };
        bed.engine.start(request).await
    };
    workflows.add(&tasks(true, 0), "w.json").await.unwrap();
    let old = bed.engine.reads().workflow("w").await.unwrap().uid;
    let first = start("w", "r1").await.unwrap().run;
    assert_eq!(start(&old.to_string(), "r1").await.unwrap().run, first);
    bed.store.soft_delete_workflow(old, Timestamp(1)).await.unwrap();
    let refused = refusal(start("w", "r1").await);
    assert!(matches!(refused, Refusal::WorkflowNotFound(_)), "{refused}");

    workflows.add(&tasks(true, 1), "w.json").await.unwrap();
    let new = bed.engine.reads().workflow("w").await.unwrap().uid;
    assert_ne!(new, old);
    let refused = refusal(start("w", "r1").await);
    let owner = matches!(&refused, Refusal::RequestIdTaken { run, is_same_name: true, .. } if *run == first);
    assert!(owner, "{refused}");
    let second = start("w", "r2").await.unwrap().run;
    let record = bed.store.run(second).await.unwrap().unwrap();
    assert_eq!((record.workflow_uid, record.workflow_version), (new, 2));
    let refused = refusal(start(&old.to_string(), "r3").await);
    assert!(matches!(refused, Refusal::WorkflowNotFound(_)), "{refused}");
}
