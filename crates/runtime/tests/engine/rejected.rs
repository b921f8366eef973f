//! Commits whose data the store rejects: the run ends once, and no effect is repeated.

use crate::support::{Bed, PATIENCE, Scripted, link, workflow};
use fermata_core::{Status, Timestamp};
use fermata_runtime::{Engine, Request, Settings, actions::Success};
use fermata_store::{
    conformance::home::Kind,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadReason},
    definitions::{Activation, Draft, DraftRule},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

async fn dead_letters(engine: &Engine) -> Vec<DeadLetter> {
    let filter = DeadLetterFilter {
        limit: 100,
        ..DeadLetterFilter::default()
    };
    engine.reads().dead_letters(filter).await.unwrap().items
}

fn settings() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(20),
        lease_ttl: Duration::from_millis(300),
        ..Settings::default()
    }
}

#[tokio::test]
async fn rejected_commit_fails_the_run_and_leaves_a_dead_letter() {
    let action = Scripted::new("test.link", |_, _| {
        Ok(Success {
            outputs: json!({}),
            links: vec![link(&"x".repeat(5000))],
            offer: None,
        })
    });
    let calls = action.calls.clone();
    let bed = Bed::with(settings(), |registry| registry.with_action(Arc::new(action))).await;
    let document = workflow(json!([
        { "id": "a", "actionType": "test.link", "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo" },
    ]));
    let left = bed.carry(document, json!({ "n": 1 })).await;
    assert_eq!(left.status(), Status::Failed);
    assert_eq!(left.ended.reason.as_deref(), Some("dead_letter"));
    assert_eq!(left.error()["code"], "COMMIT_REJECTED");
    let message = left.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("after node `a`"), "{message}");
    assert!(
        left.attempts("a").is_empty() && left.attempts("b").is_empty(),
        "nothing of the step was recorded"
    );
    let dead_letter = dead_letters(&bed.engine).await.remove(0);
    assert_eq!((dead_letter.run, dead_letter.reason), (left.run, DeadReason::Rejected));
    assert_eq!(dead_letter.last_error.as_deref(), Some(message.as_str()));
    assert_eq!(calls.lock().unwrap().len(), 1, "the effect is not repeated");
    assert!(bed.store.load(left.run).await.unwrap().unwrap().owner.is_none());
}

/// A document that was published before ids were checked still runs, if the database can store its ids.
#[tokio::test]
async fn version_with_ids_that_are_no_longer_allowed_still_runs() {
    let bed = Bed::with(settings(), |registry| registry).await;
    let id = "before\u{0}the rule";
    let document = workflow(json!([{ "id": id, "actionType": "core.echo" }]));
    let refused = bed
        .engine
        .workflows()
        .save(document.to_string().as_bytes(), "t.json")
        .await;
    assert!(format!("{refused:?}").contains("INVALID_ID"), "{refused:?}");
    let draft = Draft {
        id: "under-test".to_owned(),
        tenant: String::new(),
        display_name: "Under test".to_owned(),
        description: None,
        dialect: "dataworkflows".to_owned(),
        source: document.to_string().into_bytes(),
        checksum: "1".to_owned(),
        at: Timestamp(1),
    };
    let uid = Uuid::now_v7();
    let rule = DraftRule::NewOrDraft { uid, most: None };
    bed.store.save_draft(draft, rule, None).await.unwrap();
    let activation = Activation::Activate { enabled: true };
    bed.store
        .publish(uid, "1", "{}", activation, Timestamp(2))
        .await
        .unwrap();
    // Such versions are older than stored plans.
    bed.store.home.set_plans(None).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let (accepted, ended) = bed.engine.start_and_wait(request, PATIENCE).await.unwrap();
    let left = bed.left(accepted.run, ended.expect("it ends")).await;
    match Kind::asked_for() {
        Some(Kind::Postgres) => {
            assert_eq!(left.error()["code"], "COMMIT_REJECTED", "{:?}", left.ended);
            assert_eq!(dead_letters(&bed.engine).await.len(), 1);
        }
        _ => assert_eq!((left.status(), left.error()), (Status::Succeeded, Value::Null)),
    }
}
