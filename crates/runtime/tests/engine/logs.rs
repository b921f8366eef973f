//! What the engine logs for operators.

use crate::{
    log_capture::LogCapture,
    support::{Bed, Gated, PATIENCE, Place, Scripted, workflow},
};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

#[tokio::test]
async fn failed_run_is_logged_with_workflow_node_and_code_and_without_payloads() {
    let log = LogCapture::begin();
    let bed = Bed::new().await;
    let nodes = json!([
        { "id": "ok", "actionType": "core.echo", "parameters": { "card": "4111-1111" }, "edges": [{ "targetNode": "charge" }] },
        { "id": "charge", "actionType": "core.fail", "parameters": { "message": "declined: {{ context.data.ok.card }}" } },
    ]);
    let left = bed.carry(workflow(nodes), json!({})).await;
    assert_eq!(left.status(), Status::Failed);
    let lines = log.take();
    let failed: Vec<_> = lines.iter().filter(|line| line.contains("a run failed")).collect();
    assert_eq!(failed.len(), 1, "{lines:?}");
    let run = left.run.to_string();
    for part in [
        "INFO",
        &format!("ExecutionId={run}"),
        "WorkflowId=\"under-test\"",
        "WorkflowVersion=1",
        "NodeId=\"charge\"",
        "ActionType=\"core.fail\"",
        &format!("CorrelationId=\"{run}\""),
        "PrincipalUserId=",
        "code=",
        "action_failed",
    ] {
        assert!(failed[0].contains(part), "{part}: {}", failed[0]);
    }
    assert!(!lines.iter().any(|line| line.contains("4111")), "{lines:?}");
}

#[tokio::test]
async fn runs_resumed_after_a_start_are_counted_in_the_log() {
    let place = Place::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let gated = || Gated(Scripted::new("test.gated", |_, _| Ok(json!({}).into())), gate.clone());
    let registry = || {
        let builtin = Registry::builtin(&HttpSettings::default()).unwrap();
        builtin.with_action(Arc::new(gated()))
    };
    let settings = Settings {
        shutdown_grace: Duration::ZERO,
        ..Settings::default()
    };
    let first = Engine::new(Arc::clone(&place), registry(), settings, Arc::new(SystemClock));
    let worker = tokio::spawn({
        let engine = first.clone();
        async move { engine.run().await }
    });
    first.ready().await;
    let document = workflow(json!([{ "id": "a", "actionType": "test.gated" }])).to_string();
    let saved = first.workflows().save(document.as_bytes(), "test.json").await.unwrap();
    first.workflows().publish(&saved.workflow.id, true).await.unwrap();
    let request = || Request {
        workflow_id: "under-test".to_owned(),
        ..Request::default()
    };
    let mut runs = Vec::new();
    for _ in 0..3 {
        let accepted = first.start(request()).await.unwrap();
        assert_eq!(accepted.status, Status::Running);
        runs.push(accepted.run);
    }
    first.stop();
    tokio::time::timeout(PATIENCE, worker).await.expect("it stops").unwrap();

    let log = LogCapture::begin();
    gate.add_permits(4);
    let second = Bed::on(place, Settings::default(), registry());
    for run in runs {
        let ended = second.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
        assert_eq!(ended.status, Status::Succeeded);
    }
    let (_, ended) = second.engine.start_and_wait(request(), PATIENCE).await.unwrap();
    assert_eq!(ended.expect("the run ends").status, Status::Succeeded);
    let lines = log.take();
    let resumed: Vec<_> = lines.iter().filter(|line| line.contains("resumed")).collect();
    assert!(
        matches!(&resumed[..], [line] if line.contains("INFO") && line.contains("runs=3")),
        "{lines:?}"
    );
}
