//! Large payloads and expensive schemas: the async workers stay responsive.

use crate::support::{Bed, PATIENCE, Scripted, workflow};
use fermata_core::Status;
use fermata_runtime::{EngineError, Refusal, Request, Settings};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// Counts how often another task is polled while `work` runs.
async fn counting<T>(ticks: &Arc<AtomicUsize>, work: impl Future<Output = T>) -> T {
    let ticker = tokio::spawn({
        let ticks = ticks.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                ticks.fetch_add(1, SeqCst);
            }
        }
    });
    let done = work.await;
    ticker.abort();
    done
}

fn request(trigger: Value) -> Request {
    Request {
        workflow_id: "under-test".to_owned(),
        trigger,
        ..Request::default()
    }
}

/// A condition that exceeds its time limit on a long text.
fn slow() -> String {
    let look = |at: usize| format!("trigger.text.lastIndexOf('no{at}') < 0");
    (0..200).map(look).collect::<Vec<_>>().join(" && ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_conditions_over_large_texts_do_not_block_workers() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let last_call = Arc::new(AtomicUsize::new(0));
    // The time before the conditions is not counted.
    let count = Scripted::new("test.count", {
        let (ticks, last_call) = (ticks.clone(), last_call.clone());
        move |_, _| {
            last_call.store(ticks.load(SeqCst), SeqCst);
            Ok(json!({}).into())
        }
    });
    let calls = count.calls.clone();
    let bed = Bed::with(Settings::default(), |registry| registry.with_action(Arc::new(count))).await;
    bed.publish(&workflow(json!([
        { "id": "a", "actionType": "test.count", "edges": [{ "targetNode": "b", "condition": slow() }] },
        { "id": "b", "actionType": "core.echo" },
    ])))
    .await;
    let text = "x".repeat(4 << 20);
    let runs = (0..6).map(|_| {
        bed.engine
            .start_and_wait(request(json!({ "text": text })), 4 * PATIENCE)
    });
    let ended = counting(&ticks, futures::future::join_all(runs)).await;
    for ended in ended {
        let (accepted, ended) = ended.unwrap();
        let left = bed.left(accepted.run, ended.expect("it ends")).await;
        assert_eq!(
            (left.status(), left.attempts("b")),
            (Status::Succeeded, vec![(1, "Skipped")])
        );
        let limit = left
            .timeline
            .iter()
            .any(|entry| entry.message.contains("took longer than"));
        assert!(limit, "the condition exceeded its time limit");
    }
    assert_eq!(calls.lock().unwrap().len(), 6);
    // After the last action only conditions are left, of two seconds each. Blocked workers would let the ticker run a few
    // times between them.
    let free = ticks.load(SeqCst) - last_call.load(SeqCst);
    assert!(free > 40, "the ticker ran {free} times");
}

#[tokio::test]
async fn templates_and_durations_that_read_large_payloads_are_rendered() {
    let bed = Bed::new().await;
    let text = "x".repeat(200_000);
    let left = bed
        .carry(
            workflow(json!([
                { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.ms }}" },
                  "edges": [{ "targetNode": "a" }] },
                { "id": "a", "actionType": "core.echo", "parameters": { "copy": "{{ trigger.text }}", "password": "p" },
                  "edges": [{ "targetNode": "b", "condition": "context.data.a.copy.length === 200000" }] },
                { "id": "b", "actionType": "core.echo", "parameters": { "size": "{{ context.data.a.copy.size }}" } },
            ])),
            json!({ "text": text, "ms": 1 }),
        )
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "size": 200_000 }))
    );
    let a = left.actions.iter().find(|row| row.node.as_str() == "a").unwrap();
    let parameters: Value = serde_json::from_str(a.parameters.as_deref().unwrap()).unwrap();
    assert_eq!(parameters, json!({ "copy": text, "password": "***" }));
    let outputs: Value = serde_json::from_str(a.outputs.as_deref().unwrap()).unwrap();
    assert_eq!(outputs["copy"], text.as_str());
}

#[tokio::test]
async fn template_error_in_large_parameters_fails_the_node() {
    let nodes = json!([{ "id": "a", "actionType": "core.echo", "parameters": { "x": "{{ trigger.missing }}" } }]);
    let left = Bed::new()
        .await
        .carry(workflow(nodes), json!({ "text": "x".repeat(100_000) }))
        .await;
    assert_eq!(
        (left.status(), left.attempts("a")),
        (Status::Failed, vec![(1, "Failed")])
    );
    assert_eq!(left.error()["code"], "TEMPLATE_ERROR");
}

fn with_schema(schema: Value) -> Value {
    let mut document = workflow(json!([{ "id": "a", "actionType": "core.echo" }]));
    document["triggerSchema"] = schema;
    document
}

#[tokio::test]
async fn schema_with_combinators_is_checked_within_a_budget_without_blocking() {
    let bed = Bed::new().await;
    let branch = |name: &str| json!({ "type": "object", "required": [name], "properties": { "next": { "$ref": "#/$defs/node" } } });
    let schema = json!({
        "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/node" }],
        "$defs": { "node": { "anyOf": [branch("a"), branch("b")] } },
    });
    bed.publish(&with_schema(schema)).await;
    assert!(bed.engine.start(request(json!("text"))).await.is_ok());
    assert!(
        bed.engine
            .start(request(json!({ "b": 1, "next": { "a": 1 } })))
            .await
            .is_ok()
    );
    let refused = |result: Result<_, EngineError>| match result {
        Err(EngineError::Refused(Refusal::InvalidTrigger { problems, .. })) => problems,
        other => panic!("{:?}", other.map(drop)),
    };
    let problems = refused(bed.engine.start(request(json!(1))).await);
    assert!(problems[0].1.contains("anyOf"), "{problems:?}");
    // Each level doubles the work.
    let deep = (0..60).fold(json!({}), |inner, _| json!({ "next": inner }));
    let ticks = Arc::new(AtomicUsize::new(0));
    let result = counting(&ticks, bed.engine.start(request(deep))).await;
    let problems = refused(result);
    assert!(problems[0].1.contains("simplify the schema"), "{problems:?}");
    assert!(ticks.load(SeqCst) > 10, "the only worker was not blocked");
}

#[tokio::test]
async fn schema_with_exponential_cost_is_refused_on_save() {
    let mut definitions = serde_json::Map::new();
    for level in 0..21 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        definitions.insert(format!("d{level}"), json!({ "anyOf": [next.clone(), next] }));
    }
    definitions.insert("d21".to_owned(), json!({ "type": "string" }));
    let document = with_schema(json!({ "$ref": "#/$defs/d0", "$defs": definitions })).to_string();
    let bed = Bed::new().await;
    let saved = bed.engine.workflows().save(document.as_bytes(), "test.json").await;
    let Err(EngineError::Refused(Refusal::InvalidDocument(problems))) = saved else {
        panic!("it was saved");
    };
    assert!(problems.to_string().contains("INVALID_TRIGGER_SCHEMA"), "{problems}");
}
