//! Conditions beyond the native subset without a sandbox. Tests with a sandbox use the real binary (`crates/fermata/tests`).

use crate::support::{Bed, workflow};
use fermata_core::Status;
use fermata_dialects::Severity;
use fermata_runtime::{EngineError, Refusal, Settings, sandbox::SandboxSettings, timeline::Level};
use serde_json::{Value, json};

async fn without_sandbox() -> Bed {
    let sandbox = SandboxSettings {
        command: Some(("/nonexistent/fermata".into(), Vec::new())),
        ..SandboxSettings::default()
    };
    let settings = Settings {
        sandbox,
        ..Settings::default()
    };
    Bed::with(settings, |registry| registry).await
}

fn deciding(condition: &str) -> Value {
    workflow(json!([
        { "id": "a", "actionType": "core.echo", "routePolicy": "firstMatch",
          "edges": [{ "targetNode": "yes", "condition": condition }, { "targetNode": "no" }] },
        { "id": "yes", "actionType": "core.echo", "parameters": { "went": "yes" } },
        { "id": "no", "actionType": "core.echo", "parameters": { "went": "no" } },
    ]))
}

#[tokio::test]
async fn condition_that_needs_the_sandbox_is_false_with_the_reason() {
    let document = deciding("trigger.go && typeof trigger.name.localeCompare === 'function'");
    let left = without_sandbox()
        .await
        .carry(document, json!({ "go": 1, "name": "a" }))
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "went": "no" }))
    );
    let warning = left.timeline.iter().find(|entry| entry.level == Level::Warn);
    let warning = warning.expect("the verdict is in the timeline");
    assert!(
        warning.message.contains("localeCompare") && warning.message.contains("the sandbox cannot be started"),
        "{}",
        warning.message
    );
    let saw = &warning.data["verdict"]["saw"];
    assert_eq!(saw["trigger.go"], json!(1), "{}", warning.data);
}

#[tokio::test]
async fn condition_that_cannot_be_checked_is_saved_but_not_published() {
    let bed = without_sandbox().await;
    let text = deciding("/^a/.test(trigger.name)").to_string();
    let saved = bed.engine.workflows().save(text.as_bytes(), "test.json").await.unwrap();
    let codes: Vec<_> = saved
        .warnings
        .iter()
        .map(|warning| (warning.code, warning.severity))
        .collect();
    assert_eq!(codes, [("CONDITION_UNCHECKED", Severity::Warning)]);
    match bed.engine.workflows().publish(&saved.workflow.id, true).await {
        Err(EngineError::Refused(Refusal::InvalidDocument(problems))) => {
            assert_eq!(problems.list()[0].code, "CONDITION_UNCHECKED");
        }
        other => panic!("{other:?}"),
    }
}
