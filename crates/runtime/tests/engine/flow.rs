//! Routing, failures, retries, pauses and cancels of documents.

use crate::support::{Bed, Gated, PATIENCE, Scripted, link, workflow};
use fermata_core::{Failure, Status};
use fermata_runtime::{
    Request, Settings,
    actions::{Action, ActionInfo, Call, Failed, Success},
    timeline::Level,
};
use fermata_store::reads::Window;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

const ALL: Window = Window { limit: 100, offset: 0 };

#[tokio::test]
async fn outputs_flow_through_templates_and_conditions() {
    let left = Bed::new()
        .await
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "core.echo", "parameters": { "msg": "{{ trigger.name }}" },
                  "edges": [{ "targetNode": "b" }] },
                { "id": "b", "actionType": "core.echo", "parameters": { "msg": "{{ context.data.a.msg }}!" },
                  "edges": [{ "targetNode": "c", "condition": "context.data.b.msg === 'Ada!'" },
                            { "targetNode": "d", "condition": "context.data.b.msg !== 'Ada!'" }] },
                { "id": "c", "actionType": "core.echo", "parameters": { "said": "{{ context.data['b'].msg }}" } },
                { "id": "d", "actionType": "core.echo" },
            ])),
            json!({ "name": "Ada" }),
        )
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "said": "Ada!" }))
    );
    assert_eq!(left.attempts("d"), [(1, "Skipped")]);
}

#[tokio::test]
async fn outputs_of_parallel_last_nodes_are_merged_in_document_order() {
    let gate = Arc::new(Semaphore::new(0));
    let echo = Scripted::new("test.gated", |parameters, _| {
        Ok(Success {
            outputs: parameters.clone(),
            links: Vec::new(),
            offer: None,
        })
    });
    let gated = Gated(echo, gate.clone());
    let bed = Bed::with(Settings::default(), |registry| registry.with_action(Arc::new(gated))).await;
    bed.publish(&workflow(json!([
        { "id": "fork", "actionType": "core.echo", "edges": [{ "targetNode": "first" }, { "targetNode": "second" }] },
        { "id": "first", "actionType": "test.gated", "parameters": { "by": "first", "a": 1 } },
        { "id": "second", "actionType": "core.echo", "parameters": { "by": "second", "b": 2 } },
    ])))
    .await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        ..Request::default()
    };
    let run = bed.engine.start(request).await.unwrap().run;
    bed.until(run, "second", "succeeded").await;
    gate.add_permits(1);
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
    // `first` ended last.
    let outputs = ended.outputs.as_deref();
    assert_eq!(outputs, Some(r#"{"by":"second","a":1,"b":2}"#));
}

#[tokio::test]
async fn condition_that_throws_is_false_with_a_warning() {
    let left = Bed::new()
        .await
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "core.echo",
                  "edges": [{ "targetNode": "b", "condition": "trigger.missing.deeper === 1" }] },
                { "id": "b", "actionType": "core.echo" },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.attempts("b")),
        (Status::Succeeded, vec![(1, "Skipped")])
    );
    let warning = left
        .timeline
        .iter()
        .find(|entry| entry.level == Level::Warn)
        .expect("a warning");
    assert!(
        warning.message.contains("trigger.missing.deeper === 1"),
        "{}",
        warning.message
    );
    assert!(
        warning.message.contains("Cannot read properties of undefined"),
        "{}",
        warning.message
    );
}

#[tokio::test]
async fn unhandled_failure_stops_the_run_and_skips_the_rest() {
    let left = Bed::new().await
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "core.fail", "parameters": { "message": "no" }, "edges": [{ "targetNode": "b" }] },
                { "id": "b", "actionType": "core.echo" },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Failed, Some("action_failed"))
    );
    assert_eq!(left.error()["node"], "a");
    assert_eq!(left.error()["message"], "no");
    assert_eq!(
        (left.attempts("a"), left.attempts("b")),
        (vec![(1, "Failed")], vec![(1, "Skipped")])
    );
}

#[tokio::test]
async fn on_failure_handles_a_failure_and_later_nodes_see_the_error() {
    let left = Bed::new().await
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "core.fail", "parameters": { "message": "no" }, "onFailure": "mend" },
                { "id": "mend", "actionType": "core.echo", "parameters": {
                    "why": "{{ context.data.a.error.message }}", "where": "{{ context.data.a.errorNode ?? 'unknown' }}" } },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "why": "no", "where": "a" }))
    );
}

#[tokio::test]
async fn retries_reuse_the_first_parameters_unless_rerender_on_retry_is_set() {
    for (rerender, last, keys_differ) in [(false, "nothing yet", false), (true, "b is done", true)] {
        let flaky = Scripted::new("test.flaky", |_, call| match call.attempt {
            3 => Ok(Success::from(json!({ "attempt": 3 }))),
            _ => Err(Failure::retriable("FLAKY", "not yet")),
        });
        let calls = flaky.calls.clone();
        let bed = Bed::with(Settings::default(), |registry| registry.with_action(Arc::new(flaky))).await;
        // When `a` opens, `b` has not ended; when its second attempt fails, it has.
        let retry = json!({ "maxAttempts": 3, "baseDelayMs": 20, "jitter": false });
        let left = bed
            .carry(
                workflow(json!([
                    { "id": "begin", "actionType": "core.echo", "edges": [{ "targetNode": "a" }, { "targetNode": "b" }] },
                    { "id": "a", "actionType": "test.flaky",
                      "parameters": { "seen": "{{ context.data.b.word ?? 'nothing yet' }}" },
                      "policies": { "retry": retry, "rerenderOnRetry": rerender } },
                    { "id": "b", "actionType": "core.echo", "parameters": { "word": "b is done" } },
                ])),
                json!({}),
            )
            .await;
        let expected = [(1, "RetriableFailure"), (2, "RetriableFailure"), (3, "Succeeded")];
        assert_eq!(
            (left.status(), left.attempts("a")),
            (Status::Succeeded, expected.to_vec())
        );
        let calls = calls.lock().unwrap().clone();
        assert_eq!(
            (&calls[0].0["seen"], &calls[2].0["seen"]),
            (&json!("nothing yet"), &json!(last)),
            "{calls:?}"
        );
        assert_eq!(calls[0].1 != calls[1].1, keys_differ, "{calls:?}");
    }
}

#[tokio::test]
async fn last_attempt_fails_the_node() {
    let left = Bed::new()
        .await
        .carry(
            workflow(json!([{
                "id": "a", "actionType": "core.fail", "parameters": { "message": "no", "retriable": true },
                "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1 } },
            }])),
            json!({}),
        )
        .await;
    let expected = vec![(1, "RetriableFailure"), (2, "Failed")];
    assert_eq!((left.status(), left.attempts("a")), (Status::Failed, expected));
}

#[tokio::test]
async fn attempt_that_times_out_is_retried() {
    let hang = Scripted::new("test.hang", |_, _| Ok(json!({}).into()));
    struct Hang(Scripted);
    #[async_trait::async_trait]
    impl Action for Hang {
        fn info(&self) -> &ActionInfo {
            self.0.info()
        }
        async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
            if call.attempt == 1 {
                std::future::pending::<()>().await;
            }
            self.0.run(parameters, call).await
        }
    }
    let bed = Bed::with(Settings::default(), |registry| {
        registry.with_action(Arc::new(Hang(hang)))
    })
    .await;
    let left = bed
        .carry(
            workflow(json!([{
                "id": "a", "actionType": "test.hang",
                "policies": { "timeoutMs": 5, "retry": { "maxAttempts": 2, "baseDelayMs": 1 } },
            }])),
            json!({}),
        )
        .await;
    assert_eq!(left.attempts("a"), [(1, "RetriableFailure"), (2, "Succeeded")]);
    assert!(left.actions[0].error.as_deref().unwrap().contains("TIMEOUT"));
}

#[tokio::test]
async fn action_that_panics_fails_only_its_node() {
    let bed = Bed::with(Settings::default(), |registry| {
        registry.with_action(Arc::new(Scripted::new("test.panic", |_, _| panic!("oh no"))))
    })
    .await;
    let left = bed
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "test.panic", "onFailure": "b" },
                { "id": "b", "actionType": "core.echo", "parameters": { "why": "{{ context.data.a.error.code }}" } },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "why": "ACTION_PANICKED" }))
    );
}

#[tokio::test]
async fn resource_link_of_another_run_fails_the_node() {
    let bed = Bed::with(Settings::default(), |registry| {
        registry.with_action(Arc::new(Scripted::new("test.create", |_, _| {
            Ok(Success {
                outputs: json!({}),
                links: vec![link("one")],
                offer: None,
            })
        })))
    })
    .await;
    let document = workflow(json!([{ "id": "a", "actionType": "test.create" }]));
    let first = bed.carry(document.clone(), json!({})).await;
    assert_eq!(first.status(), Status::Succeeded);
    assert_eq!(bed.store.links(first.run, ALL).await.unwrap().1, 1);
    let request = Request {
        workflow_id: "under-test".into(),
        trigger: json!({}),
        ..Request::default()
    };
    let (accepted, ended) = bed.engine.start_and_wait(request, PATIENCE).await.unwrap();
    let second = bed.left(accepted.run, ended.unwrap()).await;
    assert_eq!(
        (second.status(), second.attempts("a")),
        (Status::Failed, vec![(1, "Failed")])
    );
    assert_eq!(second.error()["code"], "WFENG003");
    assert!(
        second.error()["message"]
            .as_str()
            .unwrap()
            .contains(&first.run.to_string())
    );
    assert_eq!(bed.store.links(second.run, ALL).await.unwrap().1, 0);
}

#[tokio::test]
async fn parked_run_can_be_cancelled() {
    let bed = Bed::new().await;
    bed.publish(&workflow(json!([
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 3_600_000 - 1 }, "edges": [{ "targetNode": "after" }] },
        { "id": "after", "actionType": "core.echo" },
    ])))
    .await;
    let request = Request {
        workflow_id: "under-test".into(),
        trigger: json!({}),
        ..Request::default()
    };
    let accepted = bed.engine.start(request).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while bed.engine.active_runs() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the run stays in memory");
        tokio::task::yield_now().await;
    }
    let record = bed.store.run(accepted.run).await.unwrap().unwrap();
    assert!(!record.held() && record.wake_at.is_some(), "{record:?}");
    bed.engine.cancel(accepted.run, "enough").await.unwrap();
    let ended = bed.engine.wait(accepted.run, PATIENCE).await.unwrap().expect("it ends");
    let left = bed.left(accepted.run, ended).await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Cancelled, Some("enough"))
    );
    assert_eq!(
        (left.attempts("pause"), left.attempts("after")),
        (vec![(1, "Skipped")], vec![(1, "Skipped")])
    );
}

#[tokio::test]
async fn short_pause_ends() {
    let left = Bed::new().await
        .carry(
            workflow(json!([
                { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.ms }}" }, "edges": [{ "targetNode": "after" }] },
                { "id": "after", "actionType": "core.echo", "parameters": { "ok": true } },
            ])),
            json!({ "ms": 20 }),
        )
        .await;
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "ok": true }))
    );
    let pause = &left.actions[0];
    assert!(
        pause.ended_at.micros_since(pause.started_at.unwrap()) >= 20_000,
        "{pause:?}"
    );
}

#[tokio::test]
async fn run_that_exceeds_its_time_fails() {
    let pause = json!({ "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 600_000 } });
    let mut document = workflow(json!([pause]));
    document["timeoutMs"] = json!(30);
    let left = Bed::new().await.carry(document, json!({})).await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Failed, Some("timeout"))
    );
    assert_eq!(left.error()["code"], "RUN_TIMEOUT");
}

#[tokio::test]
async fn outputs_beyond_the_context_limit_fail_the_run_unless_pruning_is_set() {
    for (behavior, status) in [
        ("Fail", Status::Failed),
        ("AutoPruneOldest", Status::Succeeded),
        ("DropOversize", Status::Succeeded),
    ] {
        let mut document = workflow(json!([
            { "id": "a", "actionType": "core.echo", "parameters": { "text": "{{ trigger.text }}" }, "edges": [{ "targetNode": "b" }] },
            { "id": "b", "actionType": "core.echo", "parameters": { "size": "{{ context.data.a.text.length }}" } },
        ]));
        document["contextSnapshot"] =
            json!({ "mode": "Full", "maxContextSizeBytes": 200, "overflowBehavior": behavior });
        let bed = Bed::new().await;
        let left = bed.carry(document, json!({ "text": "x".repeat(300) })).await;
        assert_eq!(left.status(), status, "{behavior}");
        if status == Status::Failed {
            assert_eq!(left.error()["code"], "CONTEXT_OVERFLOW");
            continue;
        }
        assert_eq!(
            left.outputs(),
            json!({ "size": 300 }),
            "pruning does not change what templates see"
        );
        let record = bed.store.run(left.run).await.unwrap().unwrap();
        let snapshot: Value = serde_json::from_str(&record.context_snapshot.unwrap()).unwrap();
        assert_eq!(snapshot["b"], json!({ "size": 300 }));
        let expected = if behavior == "DropOversize" {
            json!({ "bytes": 311, "type": "object" })
        } else {
            Value::Null
        };
        assert_eq!(snapshot["a"], expected, "{behavior}");
    }
}

#[tokio::test]
async fn run_waits_in_the_store_while_there_is_no_place() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    bed.publish(&workflow(
        json!([{ "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 30 } }]),
    ))
    .await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        let request = Request {
            workflow_id: "under-test".into(),
            trigger: json!({}),
            ..Request::default()
        };
        runs.push(bed.engine.start(request).await.unwrap());
    }
    assert_eq!(
        runs.iter()
            .filter(|accepted| accepted.status == Status::Pending)
            .count(),
        3
    );
    for accepted in runs {
        let ended = bed.engine.wait(accepted.run, Duration::from_secs(30)).await.unwrap();
        assert_eq!(ended.expect("it ends").status, Status::Succeeded);
    }
}

#[tokio::test]
async fn actions_beyond_the_slots_wait() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    struct Slow(Scripted);
    #[async_trait::async_trait]
    impl Action for Slow {
        fn info(&self) -> &ActionInfo {
            self.0.info()
        }
        async fn run(&self, _: Value, _: Call) -> Result<Success, Failed> {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            NOW.fetch_sub(1, Ordering::SeqCst);
            Ok(json!({}).into())
        }
    }
    let settings = Settings {
        max_parallel_actions: 3,
        ..Settings::default()
    };
    let slow = Slow(Scripted::new("test.slow", |_, _| Ok(json!({}).into())));
    let bed = Bed::with(settings, |registry| registry.with_action(Arc::new(slow))).await;
    let mut nodes = vec![json!({ "id": "begin", "actionType": "core.echo",
        "edges": (0..20).map(|at| json!({ "targetNode": format!("n{at}") })).collect::<Vec<_>>() })];
    nodes.extend((0..20).map(|at| json!({ "id": format!("n{at}"), "actionType": "test.slow" })));
    let left = bed.carry(workflow(Value::Array(nodes)), json!({})).await;
    assert_eq!(left.status(), Status::Succeeded);
    assert_eq!(MOST.load(Ordering::SeqCst), 3, "exactly three at a time");
}

#[tokio::test]
async fn absent_spec_is_null() {
    let condition = "spec === null && typeof spec === 'object'";
    let document = workflow(json!([
        { "id": "look", "actionType": "core.echo", "parameters": { "spec": "{{ spec }}" },
          "edges": [{ "targetNode": "yes", "condition": condition }] },
        { "id": "yes", "actionType": "core.echo", "parameters": { "went": "yes" } },
    ]));
    let left = Bed::new().await.carry(document, json!({})).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    assert_eq!(left.outputs()["went"], "yes");
}
