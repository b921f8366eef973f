//! The tasks in the response for a run, in every status.

use crate::{
    harness::{Server, assert_time},
    service::{Service, keys},
};
use serde_json::{Value, json};

/// Checks the times of a task that was attempted.
#[track_caller]
fn assert_times(task: &Value) {
    assert_time(&task["started_at"]);
    assert_time(&task["finished_at"]);
    assert!(task["duration_ms"].is_u64(), "{task}");
    assert!(task["started_at"].as_str() <= task["finished_at"].as_str(), "{task}");
}

#[tokio::test]
async fn a_run_is_shown_as_in_the_specification() {
    let (server, service) = (Server::start().await, Service::start().await);
    let id = server
        .create(&json!({
            "name": "order-processing", "trigger": "api",
            "tasks": {
                "charge": { "url": service.url("/answer/200"), "body": { "order_id": "{{trigger.body.order_id}}" } },
                "send-receipt": { "needs": ["charge"], "if": "tasks.charge.status_code == 200",
                                  "url": service.url("/answer/204") },
                "handle-failure": { "needs": ["charge"], "if": "tasks.charge.status_code != 200",
                                    "url": service.url("/answer/200") },
            }
        }))
        .await;
    let triggered = server.post("/api/v1/workflows/order-processing/trigger", json!({ "order_id": 123 }));
    let triggered = triggered.await.expect(201)["data"].clone();
    assert_eq!(triggered["workflow_id"], json!(id), "the id of the answer to POST");
    let place = format!("/api/v1/workflows/{id}/runs/{}", triggered["run_id"].as_str().unwrap());
    server.until_over(&place).await;
    let answer = server.get(&place).await.expect(200);
    assert_eq!(keys(&answer), ["data"]);
    let run = &answer["data"];
    assert_eq!(keys(run), ["id", "status", "started_at", "finished_at", "tasks"]);
    assert_eq!(
        (&run["id"], &run["status"]),
        (&triggered["run_id"], &json!("completed"))
    );
    assert_eq!(run["started_at"], triggered["started_at"]);
    assert_time(&run["finished_at"]);
    assert_eq!(
        keys(&run["tasks"]),
        ["charge", "send-receipt", "handle-failure"],
        "as in the document"
    );
    for (task, code) in [("charge", 200), ("send-receipt", 204)] {
        let task = &run["tasks"][task];
        let shown = ["status", "status_code", "duration_ms", "started_at", "finished_at"];
        assert_eq!(keys(task), shown);
        assert_eq!(
            (&task["status"], &task["status_code"]),
            (&json!("success"), &json!(code))
        );
        assert_times(task);
    }
    let reason = "its condition `tasks.charge.status_code != 200` is false: tasks.charge.status_code is 200";
    let skipped = json!({ "status": "skipped", "skip_reason": reason });
    assert_eq!(run["tasks"]["handle-failure"], skipped);
    assert_eq!(service.bodies()[0], json!({ "order_id": 123 }));
}

#[tokio::test]
async fn failed_tasks_have_an_error_message() {
    let (server, service) = (Server::start().await, Service::start().await);
    server
        .create(&json!({
            "name": "wrong", "trigger": "api",
            "tasks": {
                "refused": { "url": service.url("/answer/402") },
                "after": { "needs": ["big", "refused", "nowhere"], "url": service.url("/answer/200") },
                "last": { "needs": ["after"], "url": service.url("/answer/200") },
                "unless": { "needs": ["refused"], "if": "tasks.refused.body.no.such == 1", "sleep": 1 },
                "nowhere": { "url": service.url("/answer/200"), "body": { "a": "{{trigger.body.missing}}" } },
                "held": { "url": service.url("/held"), "timeout": 50, "retries": 0 },
                "unheard": { "wait_for_webhook": { "timeout": "1s" } },
                "big": { "url": service.url("/big") },
            }
        }))
        .await;
    let place = server.trigger("wrong", json!({})).await;
    let run = server.until_over(&place).await;
    assert_eq!(run["status"], "failed");
    let ended = ["status", "duration_ms", "started_at", "finished_at", "error_message"];
    for (name, status, code, message) in [
        ("refused", "failed", Some(402), "402"),
        (
            "nowhere",
            "template_error",
            None,
            "Failed to resolve {{trigger.body.missing}}",
        ),
        ("held", "timeout", None, ""),
        ("unheard", "timeout", None, "the wait timed out after"),
    ] {
        let task = &run["tasks"][name];
        let mut shown = ended.to_vec();
        if let Some(code) = code {
            shown.insert(1, "status_code");
            assert_eq!(task["status_code"], code);
        }
        assert_eq!((keys(task), &task["status"]), (shown, &json!(status)), "{name}: {task}");
        let text = task["error_message"].as_str().unwrap();
        assert!(!text.is_empty() && text.contains(message), "{task}");
        assert_times(task);
    }
    let reason = "it needs steps that did not succeed: `refused` (failed), `nowhere` (template_error)";
    assert_eq!(
        run["tasks"]["after"],
        json!({ "status": "skipped", "skip_reason": reason })
    );
    let reason = "it needs steps that did not succeed: `after` (skipped)";
    assert_eq!(
        run["tasks"]["last"],
        json!({ "status": "skipped", "skip_reason": reason })
    );
    let reason = "its condition `tasks.refused.body.no.such == 1` is false: what it reads is not there";
    assert_eq!(
        run["tasks"]["unless"],
        json!({ "status": "skipped", "skip_reason": reason })
    );
    let big = &run["tasks"]["big"];
    assert_eq!(
        (&big["status"], &big["is_truncated"]),
        (&json!("success"), &json!(true))
    );
    assert_eq!(big["status_code"], 200);
}

#[tokio::test]
async fn unfinished_tasks_show_what_they_wait_for() {
    let (server, service) = (Server::start().await, Service::start().await);
    server
        .create(&json!({
            "name": "waiting", "trigger": "api",
            "tasks": {
                "nap": { "sleep": "1d" },
                "callback": { "wait_for_webhook": { "timeout": "1h" } },
                "patient": { "wait_for_webhook": {} },
                "held": { "url": service.url("/held") },
                "next": { "needs": ["held"], "url": service.url("/answer/200") },
                "again": { "url": service.url("/answer/503"), "retries": 5 },
            }
        }))
        .await;
    let place = server.trigger("waiting", json!({})).await;
    let run = server
        .until_run(&place, |run| {
            run["tasks"]["again"].get("next_attempt_at").is_some() && run["tasks"]["held"]["status"] == "running"
        })
        .await;
    assert_eq!(keys(&run), ["id", "status", "started_at", "tasks"]);
    assert_eq!(run["status"], "running");
    let tasks = &run["tasks"];
    for (name, status, until) in [
        ("nap", "sleeping", Some("wake_at")),
        ("callback", "waiting", Some("timeout_at")),
        ("patient", "waiting", None),
        ("held", "running", None),
    ] {
        let shown: Vec<&str> = ["status", "started_at"].into_iter().chain(until).collect();
        assert_eq!(
            (keys(&tasks[name]), &tasks[name]["status"]),
            (shown, &json!(status)),
            "{name}"
        );
        for time in keys(&tasks[name]).iter().skip(1) {
            assert_time(&tasks[name][time]);
        }
    }
    assert_eq!(tasks["next"], json!({ "status": "pending" }));
    let again = &tasks["again"];
    let shown = [
        "status",
        "status_code",
        "started_at",
        "attempt",
        "error_message",
        "next_attempt_at",
    ];
    assert_eq!((keys(again), &again["status"]), (shown.to_vec(), &json!("running")));
    assert_eq!(again["status_code"], 503);
    assert!(again["attempt"].as_u64().unwrap() > 1, "{again}");
    assert!(!run.to_string().contains("/wh/"), "callback URLs are not shown");

    service.state.gate.add_permits(1);
    let stopped = server.post_nothing(&format!("{place}/cancel")).await;
    stopped.expect(200);
    let run = server.until_over(&place).await;
    assert_eq!(run["status"], "cancelled");
    for name in ["nap", "callback", "patient"] {
        let skipped = json!({ "status": "skipped", "skip_reason": "the run was stopped" });
        assert_eq!(run["tasks"][name], skipped, "{name}");
    }
    // The attempt that was due never started, so the last one that did is shown.
    let again = &run["tasks"]["again"];
    assert_eq!(
        (&again["status"], &again["status_code"]),
        (&json!("failed"), &json!(503)),
        "{again}"
    );
    assert_times(again);
}

#[tokio::test]
async fn a_running_attempt_hides_the_result_of_the_previous_one() {
    let (server, service) = (Server::start().await, Service::start().await);
    let task = json!({ "url": service.url("/busy"), "retries": 1 });
    server
        .create(&json!({ "name": "busy", "tasks": { "only": task } }))
        .await;
    let place = server.trigger("busy", json!({})).await;
    let is_second = |run: &Value| {
        let task = &run["tasks"]["only"];
        task["attempt"] == 2 && service.bodies().len() == 2 && task.get("next_attempt_at").is_none()
    };
    let run = server.until_run(&place, is_second).await;
    let task = &run["tasks"]["only"];
    assert_eq!(
        (keys(task), &task["status"]),
        (vec!["status", "started_at", "attempt"], &json!("running"))
    );
    service.state.gate.add_permits(1);
    let run = server.until_over(&place).await;
    let task = &run["tasks"]["only"];
    let shown = [
        "status",
        "status_code",
        "duration_ms",
        "started_at",
        "finished_at",
        "attempt",
    ];
    assert_eq!((keys(task), &task["status"]), (shown.to_vec(), &json!("success")));
    assert_eq!((&task["status_code"], &task["attempt"]), (&json!(200), &json!(2)));
    // The times are those of the whole step.
    let id = run["id"].as_str().unwrap();
    let execution = server
        .get(&format!("/api/v1/executions/{id}?include=actions"))
        .await
        .expect(200);
    let attempts = execution["actions"].as_array().unwrap();
    let of = |attempt: u32, time: &str| {
        let found = attempts
            .iter()
            .find(|action| action["attempt"] == attempt)
            .expect("the attempt");
        found[time].clone()
    };
    assert!(of(1, "startTime").as_str() < of(2, "startTime").as_str());
    assert_eq!(task["started_at"], of(1, "startTime"));
    assert_eq!(task["finished_at"], of(2, "endTime"));
}
