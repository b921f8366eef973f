//! The statuses of tasks and runs when tasks fail or are skipped.

use super::super::{Stage, service::Answer, task_statuses};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// "Failed task: dependents are cascade-skipped (unless they have an `if` condition)."
/// "Individual task retries work normally […] so the DAG doesn't advance prematurely during retries."
#[tokio::test]
async fn task_failure_in_a_workflow() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    stage.service.script("/charge", [Answer::status(503)]);
    stage.service.script(
        "/flaky",
        [
            Answer::status(500),
            Answer::reset(),
            Answer::ok(&json!({ "amount": 7 })),
        ],
    );
    let run = stage
        .trigger_tasks(
            json!({
                "charge": { "url": at("/charge"), "retries": 2 },
                "receipt": { "needs": ["charge"], "url": at("/receipt") },
                "archive": { "needs": ["receipt"], "url": at("/archive") },
                "sorry": { "needs": ["charge"], "if": "tasks.charge.status == 'failed'", "url": at("/sorry") },
                "flaky": { "url": at("/flaky"), "retries": 3 },
                "after-flaky": { "needs": ["flaky"], "url": at("/after-flaky"), "body": "{{tasks.flaky.body.amount}}" },
                "if-flaky": { "needs": ["flaky"], "if": "tasks.flaky.status != 'success'", "url": at("/if-flaky") },
            }),
            json!({}),
        )
        .await;
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("charge", "failed"),
        ("receipt", "skipped"),
        ("archive", "skipped"),
        ("sorry", "success"),
        ("flaky", "success"),
        ("after-flaky", "success"),
        ("if-flaky", "skipped"),
    ]);
    assert_eq!(task_statuses(&view), expected);
    assert_eq!(view["tasks"]["charge"]["status_code"], 503);
    assert_eq!(view["tasks"]["charge"]["attempt"], 3, "the first and two retries");

    for (task, dependent, calls) in [("/charge", "/sorry", 3), ("/flaky", "/after-flaky", 3)] {
        let attempts = stage.service.calls_of(task);
        assert_eq!(attempts.len(), calls, "{task}");
        let last = attempts[calls - 1].answered.expect("it was answered");
        let next = stage.service.calls_of(dependent);
        assert_eq!(next.len(), 1, "{dependent}");
        assert!(
            next[0].arrived > last,
            "{dependent} was called before the last attempt of {task} ended"
        );
    }
    let history = stage.server.history(&run).await;
    let retried = "RetriableFailure";
    assert_eq!(history.attempts("charge"), [(1, retried), (2, retried), (3, "Failed")]);
    assert_eq!(
        history.attempts("flaky"),
        [(1, retried), (2, retried), (3, "Succeeded")]
    );
    for path in ["/receipt", "/archive", "/if-flaky"] {
        assert!(stage.service.calls_of(path).is_empty(), "{path}");
    }
}

/// Runs tasks to the end. Returns the status of the run.
async fn final_status(stage: &Stage, name: &str, tasks: Value) -> Value {
    stage.server.add(&json!({ "name": name, "tasks": tasks })).await;
    let run = stage.server.trigger(name, &json!({})).await;
    stage.server.over(&run).await["status"].clone()
}

/// "A workflow run reaches a terminal status when all steps are in terminal states."
#[tokio::test]
async fn workflow_run_terminal_status() {
    let stage = Stage::start().await;
    stage.service.script("/no", [Answer::status(402)]);
    let (yes, no) = (stage.service.at("/yes"), stage.service.at("/no"));

    // "completed: all steps reached terminal states (regardless of individual step outcomes)."
    let fine = json!({ "a": { "url": yes }, "b": { "needs": ["a"], "url": yes } });
    assert_eq!(final_status(&stage, "fine", fine).await, "completed");
    let skipped = json!({ "a": { "if": "trigger.body.x == 1", "url": yes } });
    assert_eq!(final_status(&stage, "all-skipped", skipped).await, "completed");
    let loose_end = json!({ "a": { "url": yes }, "b": { "needs": ["a"], "url": no } });
    assert_eq!(final_status(&stage, "loose-end", loose_end).await, "completed");
    // "A workflow where `charge` failed but `handle-failure` succeeded is `completed`."
    let handled = json!({
        "charge": { "url": no },
        "receipt": { "needs": ["charge"], "url": yes },
        "handle-failure": { "needs": ["charge"], "if": "tasks.charge.status_code != 200", "url": yes },
    });
    assert_eq!(final_status(&stage, "handled", handled).await, "completed");

    // "failed: […] all remaining steps are blocked by a failed step with no `if` handler."
    let blocked = json!({
        "before": { "url": yes },
        "charge": { "needs": ["before"], "url": no },
        "receipt": { "needs": ["charge"], "url": yes },
    });
    assert_eq!(final_status(&stage, "blocked", blocked).await, "failed");
    let unhandled = json!({
        "before": { "url": yes },
        "charge": { "url": no },
        "receipt": { "needs": ["charge"], "url": yes },
        "not-this": { "needs": ["charge"], "if": "tasks.charge.status_code == 200", "url": yes },
    });
    assert_eq!(final_status(&stage, "unhandled", unhandled).await, "failed");
    assert_eq!(
        final_status(&stage, "alone", json!({ "charge": { "url": no } })).await,
        "failed"
    );

    // "timeout: `expires_at` reached before all steps completed."
    let document = json!({ "name": "long", "max_duration_seconds": 2, "tasks": {
        "a": { "url": yes }, "nap": { "needs": ["a"], "sleep": "1h" }, "b": { "needs": ["nap"], "url": yes } } });
    stage.server.add(&document).await;
    let run = stage.server.trigger("long", &json!({})).await;
    let view = stage.server.over(&run).await;
    assert_eq!(view["status"], "timeout");
    let expected = BTreeMap::from([("a", "success"), ("nap", "skipped"), ("b", "skipped")]);
    assert_eq!(task_statuses(&view), expected);

    // "cancelled: user explicitly cancelled via API."
    stage
        .server
        .add(&json!({ "name": "waits", "tasks": {
        "wait": { "wait_for_webhook": {} }, "b": { "needs": ["wait"], "url": stage.service.at("/never") } } }))
        .await;
    let run = stage.server.trigger("waits", &json!({})).await;
    assert_eq!(stage.server.run(&run).await["status"], "running");
    let (code, _) = stage.server.post(&format!("{}/cancel", run.path()), &json!({})).await;
    assert_eq!(code, 200);
    assert_eq!(stage.server.over(&run).await["status"], "cancelled");
    assert!(stage.service.calls_of("/never").is_empty());
}

/// "Step has no `if` condition and any dependency is `skipped` → cascade skip." "Step has an `if` condition → always
/// evaluate the condition."
#[tokio::test]
async fn cascade_skipping() {
    let stage = Stage::start().await;
    let url = stage.service.at("/run");
    let of_charge = "{{tasks.charge.body.amount}}";
    let view = stage
        .run_tasks(
            json!({
                "first": { "url": url, "body": "first" },
                "charge": { "needs": ["first"], "if": "tasks.first.status_code == 500", "url": url, "body": "charge" },
                // "no template resolution, no execution"
                "receipt": { "needs": ["charge"], "url": url, "body": of_charge },
                "archive": { "needs": ["receipt"], "url": url, "body": of_charge },
                "nap": { "needs": ["archive"], "sleep": "1h" },
                "wait": { "needs": ["archive"], "wait_for_webhook": {} },
                "both": { "needs": ["first", "archive"], "url": url, "body": "both" },
                // "`null == 200` → false → step skipped normally"
                "on-code": { "needs": ["charge"], "if": "tasks.charge.status_code == 200", "url": url, "body": of_charge },
                // "this is how you build 'handle skip' paths"
                "on-skip": { "needs": ["charge"], "if": "tasks.charge.status == 'skipped'", "url": url, "body": "on-skip" },
                "on-null-body": { "needs": ["charge"], "if": "tasks.charge.body == null", "url": url, "body": "on-null-body" },
                "on-null-code": { "needs": ["charge"], "if": "tasks.charge.status_code == null", "url": url,
                                  "body": "on-null-code" },
                "on-cascade": { "needs": ["archive"], "if": "tasks.receipt.status == 'skipped'", "url": url,
                                "body": "on-cascade" },
                // The condition does not mention the skipped task, so this task runs.
                "on-other": { "needs": ["first", "archive"], "if": "tasks.first.status_code == 200", "url": url,
                              "body": "on-other" },
                "after-on-skip": { "needs": ["on-skip"], "url": url, "body": "after-on-skip" },
            }),
            json!({}),
        )
        .await;
    let run = [
        "first",
        "on-skip",
        "on-null-body",
        "on-null-code",
        "on-cascade",
        "on-other",
        "after-on-skip",
    ];
    for (task, status) in task_statuses(&view) {
        let expected = if run.contains(&task) { "success" } else { "skipped" };
        assert_eq!(status, expected, "{task}");
    }
    assert_eq!(view["status"], "completed");
    let receipt = view["tasks"]["receipt"].as_object().expect("a task");
    assert!(
        receipt.keys().eq(["status", "skip_reason"]),
        "no other member is shown: {receipt:?}"
    );
    let mut called: Vec<String> = stage.service.calls().into_iter().map(|call| call.body).collect();
    called.sort();
    let mut expected = run.map(str::to_owned);
    expected.sort();
    assert_eq!(called, expected);
}
