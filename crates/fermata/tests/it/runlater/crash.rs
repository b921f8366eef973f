//! The real server is killed with SIGKILL in every state of a task, and repeatedly under load.
//!
//! The test process records acknowledgements and effects, so they survive the kills.
//! `FERMATA_CRASHES=500` makes the load test longer; `FERMATA_CRASH_SEED=N` selects the moments.

mod load;

use super::{Run, Stage, service::Answer, task_statuses};
use crate::crash::PATIENT_WITH_RUNS;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

const RUNS: usize = 8;

impl Stage {
    /// Adds a workflow with these tasks and triggers [`RUNS`] runs.
    async fn many(&self, tasks: Value) -> Vec<Run> {
        self.server.add(&json!({ "name": "many", "tasks": tasks })).await;
        let mut runs = Vec::new();
        for n in 0..RUNS {
            runs.push(self.server.trigger("many", &json!({ "n": n })).await);
        }
        runs
    }

    fn crash(&mut self) {
        self.server.kill9();
        self.server.restart();
    }

    /// Asserts that every run completed with one outcome for each of its tasks.
    async fn all_complete(&self, runs: &[Run]) {
        for run in runs {
            let view = self.server.over(run).await;
            assert_eq!(view["status"], "completed", "{view}");
            crate::crash::check_steps(&self.server, &run.id, Some(task_statuses(&view).len())).await;
        }
    }

    /// The calls of a path. Asserts that there is one for each run.
    fn once_each(&self, path: &str) -> Vec<super::service::Call> {
        let mut calls = self.service.calls_of(path);
        calls.sort_by(|a, b| a.key().cmp(b.key()));
        let keys: Vec<&str> = calls.iter().map(|call| call.key()).collect();
        assert_eq!(keys.len(), RUNS, "{path}: {keys:?}");
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{path}: {keys:?}");
        calls
    }
}

#[tokio::test]
async fn killed_while_steps_sleep() {
    let mut stage = Stage::with(&[PATIENT_WITH_RUNS]).await;
    let at = |path| stage.service.at(path);
    let runs = stage
        .many(json!({
            "before": { "url": at("/before") },
            "nap": { "needs": ["before"], "sleep": "2s" },
            "after": { "needs": ["nap"], "url": at("/after") },
        }))
        .await;
    let mut wakes = Vec::new();
    for run in &runs {
        let history = stage.server.recorded(run, "slept").await;
        wakes.push(history.events("slept")[0]["until"].clone());
    }
    stage.crash();
    stage.all_complete(&runs).await;
    stage.once_each("/before");
    for (call, (run, wakes)) in stage.once_each("/after").iter().zip(runs.iter().zip(wakes)) {
        assert_eq!(call.key(), format!("{}:after", run.id));
        let history = stage.server.history(run).await;
        let slept = history.events("slept");
        assert_eq!(
            (slept.len(), &slept[0]["until"]),
            (1, &wakes),
            "it does not sleep again"
        );
        let called = call.arrived_at.duration_since(UNIX_EPOCH).expect("a time").as_micros();
        assert!(Some(called) >= wakes.as_u64().map(u128::from), "{run:?} woke too early");
    }
}

#[tokio::test]
async fn killed_while_steps_wait() {
    let mut stage = Stage::with(&[PATIENT_WITH_RUNS]).await;
    let at = |path| stage.service.at(path);
    let runs = stage
        .many(json!({
            "ask": { "url": at("/ask"), "body": { "n": "{{trigger.body.n}}", "callback": "{{wait.reply.url}}" } },
            "reply": { "needs": ["ask"], "wait_for_webhook": { "timeout": "1h" } },
            "use": { "needs": ["reply"], "url": at("/use"), "body": { "got": "{{tasks.reply.body}}" } },
        }))
        .await;
    for run in &runs {
        stage.server.until(run, "reply", "waiting").await;
    }
    stage.crash();
    for call in stage.once_each("/ask") {
        let n = &call.json()["n"];
        assert_eq!(
            stage
                .server
                .post(&call.callback("callback"), &json!({ "reply-to": n }))
                .await
                .0,
            200
        );
    }
    stage.all_complete(&runs).await;
    for (n, (call, run)) in stage.once_each("/use").iter().zip(&runs).enumerate() {
        assert_eq!(call.key(), format!("{}:use", run.id));
        assert_eq!(call.json(), json!({ "got": { "reply-to": n } }));
    }
}

#[tokio::test]
async fn killed_while_steps_retry() {
    let mut stage = Stage::with(&[PATIENT_WITH_RUNS]).await;
    let at = |path: &str| stage.service.at(path);
    let busy = Answer::status(503).header("retry-after", "2");
    stage
        .service
        .script("/busy", (0..RUNS).map(|_| busy.clone()).chain([Answer::echo()]));
    let runs = stage
        .many(json!({
            "busy": { "url": at("/busy"), "body": { "n": "{{trigger.body.n}}" } },
            "use": { "needs": ["busy"], "url": at("/use"), "body": "{{tasks.busy.body.seen}}" },
        }))
        .await;
    for run in &runs {
        stage.server.recorded(run, "retried").await;
    }
    stage.crash();
    stage.all_complete(&runs).await;
    let calls = stage.service.calls_of("/busy");
    assert_eq!(calls.len(), 2 * RUNS, "attempts that were recorded are not repeated");
    for (n, run) in runs.iter().enumerate() {
        let own: Vec<_> = calls
            .iter()
            .filter(|call| call.key() == format!("{}:busy", run.id))
            .collect();
        assert_eq!(own.len(), 2);
        assert!(own.iter().all(|call| call.json() == json!({ "n": n })), "{own:?}");
        let history = stage.server.history(run).await;
        assert_eq!(history.attempts("busy"), [(1, "RetriableFailure"), (2, "Succeeded")]);
        let due = history.events("retried")[0]["retryAt"].as_u64().map(u128::from);
        let called = own[1]
            .arrived_at
            .duration_since(UNIX_EPOCH)
            .expect("a time")
            .as_micros();
        assert!(Some(called) >= due, "{run:?} was retried too early");
    }
    stage.once_each("/use");
}

/// The most important moment: the callback has been acknowledged and must not be lost.
#[tokio::test]
async fn killed_between_a_callback_and_the_next_step() {
    let mut stage = Stage::with(&[PATIENT_WITH_RUNS]).await;
    let document = json!({ "name": "one", "tasks": {
        "ask": { "url": stage.service.at("/ask"), "body": { "callback": "{{wait.reply.url}}" } },
        "reply": { "needs": ["ask"], "wait_for_webhook": {} },
        "use": { "needs": ["reply"], "url": stage.service.at("/use"), "body": { "got": "{{tasks.reply.body}}" } },
    } });
    stage.server.add(&document).await;
    let mut used = 0;
    for round in 1..=10 {
        // Every other callback arrives before its step waits.
        let is_early = round % 2 == 0;
        let answer = Answer::ok(&json!({}));
        stage
            .service
            .script("/ask", [if is_early { answer.held() } else { answer }]);
        let run = stage.server.trigger("one", &json!({})).await;
        let asked = stage
            .service
            .calls()
            .into_iter()
            .filter(|call| call.key().starts_with(&run.id));
        let number = stage.service.calls_of("/ask").len() + usize::from(asked.count() == 0);
        let callback = stage.service.call("/ask", number).await.callback("callback");
        if !is_early {
            stage.server.until(&run, "reply", "waiting").await;
        }
        assert_eq!(stage.server.post(&callback, &json!({ "round": round })).await.0, 200);
        stage.crash();
        if is_early {
            stage.service.release("/ask"); // the response to the killed process
            stage.service.release("/ask");
        }
        assert_eq!(
            stage.server.post(&callback, &json!("second")).await.0,
            409,
            "round {round}"
        );
        stage.all_complete(std::slice::from_ref(&run)).await;
        let key = format!("{}:use", run.id);
        let own: Vec<_> = stage
            .service
            .calls_of("/use")
            .into_iter()
            .filter(|call| call.key() == key)
            .collect();
        assert!(
            !own.is_empty()
                && own
                    .iter()
                    .all(|call| call.json() == json!({ "got": { "round": round } })),
            "{own:?}"
        );
        used += own.len();
    }
    println!("{used} calls after 10 callbacks");
}
