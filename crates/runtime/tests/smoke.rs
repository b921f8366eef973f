//! The engine end to end on the memory store.

use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::memory::MemoryStore;
use serde_json::json;
use std::{sync::Arc, time::Duration};

async fn engine() -> Engine {
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    Engine::new(
        Arc::new(MemoryStore::new()),
        registry,
        Settings::default(),
        Arc::new(SystemClock),
    )
}

#[tokio::test]
async fn three_steps_run_to_their_end() {
    let engine = engine().await;
    let runner = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run().await }
    });
    let document = json!({
        "id": "three", "displayName": "Three", "startNode": "a",
        "nodes": [
            { "id": "a", "actionType": "core.echo", "parameters": { "msg": "{{ trigger.name }}" }, "edges": [{ "targetNode": "b" }] },
            { "id": "b", "actionType": "core.echo", "parameters": { "msg": "{{ context.data.a.msg }}!" },
              "edges": [{ "targetNode": "c", "condition": "context.data.b.msg === 'Ada!'" }] },
            { "id": "c", "actionType": "core.echo", "parameters": { "said": "{{ context.data['b'].msg }}" } },
        ]
    });
    engine
        .workflows()
        .save(document.to_string().as_bytes(), "three.json")
        .await
        .unwrap();
    engine.workflows().publish("three", true).await.unwrap();
    let request = Request {
        workflow_id: "three".into(),
        trigger: json!({ "name": "Ada" }),
        ..Request::default()
    };
    let (accepted, ended) = engine.start_and_wait(request, Duration::from_secs(5)).await.unwrap();
    assert!(accepted.created);
    let ended = ended.expect("it ends");
    assert_eq!(
        (ended.status, ended.outputs.as_deref()),
        (Status::Succeeded, Some(r#"{"said":"Ada!"}"#))
    );
    engine.stop();
    runner.await.unwrap();
}
