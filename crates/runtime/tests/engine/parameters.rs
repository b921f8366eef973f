//! Binding parameters: render, then type, then validate. These failures are not retried.

use crate::support::{Bed, workflow};
use fermata_core::Status;
use serde_json::{Value, json};

async fn failure(node: Value, trigger: Value) -> (String, String) {
    let left = Bed::new().await.carry(workflow(json!([node])), trigger).await;
    assert_eq!(left.status(), Status::Failed);
    assert_eq!(left.attempts("a").len(), 1, "it is not retried");
    let error = left.error();
    (
        error["code"].as_str().unwrap().to_owned(),
        error["message"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test]
async fn undefined_name_is_a_template_error_that_names_the_place() {
    let node = json!({ "id": "a", "actionType": "core.echo", "parameters": { "to": ["{{ trigger.nmae }}"] } });
    let (code, message) = failure(node, json!({ "name": "Ada" })).await;
    assert_eq!(code, "TEMPLATE_ERROR");
    assert!(
        message.contains("/to/0") && message.contains("trigger.nmae"),
        "{message}"
    );
}

#[tokio::test]
async fn value_of_the_wrong_type_is_refused_before_the_action_runs() {
    let node =
        json!({ "id": "a", "actionType": "core.sometimes-fails", "parameters": { "seed": "{{ trigger.seed }}" } });
    let (code, message) = failure(node, json!({ "seed": "seven" })).await;
    assert_eq!(code, "INVALID_PARAMETERS");
    assert!(
        message.contains("core.sometimes-fails") && message.contains("seven"),
        "{message}"
    );
}

#[tokio::test]
async fn constraints_beyond_types_are_validated() {
    let node = json!({ "id": "a", "actionType": "core.sometimes-fails", "parameters": { "failureRate": "{{ trigger.rate }}" } });
    let (code, message) = failure(node, json!({ "rate": 7 })).await;
    assert_eq!(code, "INVALID_PARAMETERS");
    assert!(message.contains("between 0 and 1"), "{message}");
}

#[tokio::test]
async fn pause_needs_a_number() {
    let node = json!({ "id": "a", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.ms }}" } });
    let (code, message) = failure(node, json!({ "ms": "soon" })).await;
    assert_eq!(code, "INVALID_PARAMETERS");
    assert!(message.contains("durationMs"), "{message}");
}

#[tokio::test]
async fn single_expression_keeps_its_type_and_data_is_never_evaluated() {
    let left = Bed::new()
        .await
        .carry(
            workflow(json!([{ "id": "a", "actionType": "core.echo", "parameters": {
                "whole": "{{ trigger.list }}", "text": "got {{ trigger.list }}", "evil": "{{ trigger.evil }}",
                "spec": "{{ trigger.n }}",
            } }])),
            json!({ "list": [1, { "b": null }], "evil": "{{ vars.secret }}", "n": 12345678901234567890u64 }),
        )
        .await;
    let expected = json!({
        "whole": [1, { "b": null }], "text": "got [1,{\"b\":null}]", "evil": "{{ vars.secret }}",
        "spec": 12345678901234567890u64,
    });
    assert_eq!(left.outputs(), expected);
}
