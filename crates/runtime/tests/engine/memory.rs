//! Memory budgets: runs that do not fit are stored and driven later.

use crate::support::{Bed, PATIENCE, workflow};
use fermata_core::Status;
use fermata_runtime::{Request, Settings};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings {
        payload_bytes: 10_000,
        // Sleeping runs stay in memory.
        park_after: std::time::Duration::from_secs(3600),
        ..Settings::default()
    }
}

fn request(size: usize) -> Request {
    Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({ "text": "x".repeat(size) }),
        ..Request::default()
    }
}

#[tokio::test]
async fn run_beyond_the_payload_budget_is_stored_without_being_held() {
    let bed = Bed::with(settings(), |registry| registry).await;
    bed.publish(&workflow(json!([
        { "id": "sleep", "actionType": "core.delay", "parameters": { "durationMs": 600_000 } }
    ])))
    .await;
    let first = bed.engine.start(request(20_000)).await.unwrap();
    assert_eq!(first.status, Status::Running, "a single run may exceed the budget");
    let second = bed.engine.start(request(5_000)).await.unwrap();
    assert_eq!((second.status, second.created), (Status::Pending, true));
    bed.engine.cancel(first.run, "enough").await.unwrap();
    bed.engine.wait(first.run, PATIENCE).await.unwrap().expect("it ends");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while bed.store.run(second.run).await.unwrap().unwrap().status != Status::Running {
        assert!(tokio::time::Instant::now() < deadline, "it is never claimed");
        tokio::task::yield_now().await;
    }
}

/// Every output is dropped after its commit, and read again by the nodes that need it.
#[tokio::test]
async fn run_whose_outputs_exceed_the_budget_succeeds() {
    let bed = Bed::with(settings(), |registry| registry).await;
    let echo = |id: &str, parameters: Value, next: &str| {
        let edges = match next {
            "" => json!([]),
            next => json!([{ "targetNode": next, "condition": "context.data.a.text.length === 20000" }]),
        };
        json!({ "id": id, "actionType": "core.echo", "parameters": parameters, "edges": edges })
    };
    let left = bed
        .carry(
            workflow(json!([
                echo("a", json!({ "text": "{{ trigger.text }}" }), "b"),
                echo("b", json!({ "again": "{{ context.data.a.text }}" }), "c"),
                echo(
                    "c",
                    json!({ "a": "{{ context.data.a.text }}", "b": "{{ context.data.b.again }}" }),
                    ""
                ),
            ])),
            request(20_000).trigger,
        )
        .await;
    assert_eq!(left.status(), Status::Succeeded, "{}", left.error());
    let text = "x".repeat(20_000);
    assert_eq!(left.outputs(), json!({ "a": text, "b": text }));
}
