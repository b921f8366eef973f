//! Requests: tasks and decisions that are answered over their tokens, requests to services, and the state of a run.

use crate::{
    http::{answer, service},
    support::{Bed, PATIENCE, workflow},
};
use fermata_core::{
    AnswerRule, Kind, Node, RunId, RunOutputs, Status, StoredPlan, code,
    plan::{Name, PlanBuilder, Selection, Source},
};
use fermata_runtime::{Ended, Request, Settings};
use fermata_store::runs::Answer;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

fn with_state(plan: &mut StoredPlan) {
    plan.scope.names = vec![Name::new("state", Source::State)];
    plan.outputs = RunOutputs::Changed;
}

fn merges(node: &mut Node) {
    node.merges_into_state = true;
    node.policies.retry.max_attempts = 2;
    node.policies.retry.base_delay_ms = 1;
}

fn task(id: &str, plan: PlanBuilder, parameters: Value) -> PlanBuilder {
    plan.request(id, "callback", parameters, AnswerRule::State).with(merges)
}

fn decision(id: &str, plan: PlanBuilder, outcomes: &[&str]) -> PlanBuilder {
    let outcomes = outcomes.iter().map(|outcome| (*outcome).to_owned()).collect();
    plan.request(id, "callback", json!({}), AnswerRule::Outcome { outcomes })
        .with(|node| node.route = fermata_core::Route::Outcome)
}

/// The example of the specification: validate, decide, then approve or reject.
fn onboarding() -> PlanBuilder {
    let plan = PlanBuilder::new("under-test").plan(with_state);
    let plan = task("validate_input", plan, json!({})).then("risk_decision");
    let plan = decision("risk_decision", plan, &["approve", "reject"]);
    let plan = plan.on("approve", "approve_user").on("reject", "reject_user");
    let plan = task("approve_user", plan, json!({}));
    task("reject_user", plan, json!({}))
}

impl Bed {
    /// Starts a run of this plan.
    async fn start_plan(&self, plan: PlanBuilder, trigger: Value) -> RunId {
        // Runs need a stored version.
        let any = workflow(json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]));
        self.publish(&any).await;
        let uid = self.engine.reads().workflow("under-test").await.unwrap().uid;
        self.engine.workflows().install(uid, plan.build().unwrap(), 1).unwrap();
        let request = Request {
            workflow_id: "under-test".to_owned(),
            trigger,
            ..Request::default()
        };
        self.engine.start(request).await.unwrap().run
    }

    async fn token(&self, run: RunId, node: &str, attempt: u32) -> String {
        let waits = self.store.waits(run).await.unwrap();
        let mut of_node = waits.into_iter().filter(|wait| wait.node.as_str() == node);
        of_node.find(|wait| wait.attempt == attempt).expect("a token").token
    }

    /// Answers the first attempt of a node, once its request is sent.
    async fn reply(&self, run: RunId, node: &str, payload: Value) {
        self.until(run, node, "waiting").await;
        let token = self.token(run, node, 1).await;
        let answer = self.engine.answer(&token, &payload.to_string()).await.unwrap();
        assert!(matches!(answer, Answer::Accepted { .. }), "{node}: {answer:?}");
    }

    /// Waits until an attempt of a node is recorded.
    async fn until_recorded(&self, run: RunId, node: &str, attempt: u32) {
        for _ in 0..2000 {
            let recorded = self.store.attempt(run, &node.into(), attempt).await.unwrap();
            if recorded.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("attempt {attempt} of {node} was never recorded");
    }

    async fn ended(&self, run: RunId) -> Arc<Ended> {
        self.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends")
    }
}

fn outputs(ended: &Ended) -> Value {
    serde_json::from_str(ended.outputs.as_deref().unwrap_or("null")).unwrap()
}

fn error(ended: &Ended) -> Value {
    serde_json::from_str(ended.error.as_deref().unwrap_or("null")).unwrap()
}

/// One engine keeps runs in memory, the other one parks them at once and recovers them for every answer.
async fn beds() -> [Bed; 2] {
    let parks = Settings {
        park_after: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    };
    [Bed::new().await, Bed::with(parks, |registry| registry).await]
}

#[tokio::test]
async fn example_of_the_specification_runs_to_its_end() {
    for bed in beds().await {
        let run = bed.start_plan(onboarding(), json!({ "user": "ada", "score": 0 })).await;
        bed.reply(run, "validate_input", json!({ "state": { "score": 0.82 } }))
            .await;
        bed.reply(
            run,
            "risk_decision",
            json!({ "outcome": "approve", "metadata": { "by": "rules" } }),
        )
        .await;
        bed.reply(run, "approve_user", json!({ "state": { "approved": true } }))
            .await;
        let left = bed.left(run, bed.ended(run).await).await;
        assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
        assert_eq!(left.outputs(), json!({ "score": 0.82, "approved": true }));
        assert_eq!(left.attempts("reject_user"), [(1, "Skipped")]);
        let recorded = |node: &str| {
            let attempt = left
                .actions
                .iter()
                .find(|attempt| attempt.node.as_str() == node)
                .unwrap();
            let parse = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref().unwrap()).unwrap();
            (parse(&attempt.parameters), parse(&attempt.outputs))
        };
        assert_eq!(
            recorded("risk_decision"),
            (
                json!({ "state": { "asOf": 1 } }),
                json!({ "outcome": "approve", "metadata": { "by": "rules" } })
            )
        );
        assert_eq!(recorded("approve_user").0, json!({ "state": { "asOf": 2 } }));
    }
}

#[tokio::test]
async fn wrong_answers_of_a_decision_fail_the_run() {
    let cases = [
        (json!({ "outcome": "perhaps" }), code::UNKNOWN_OUTCOME),
        (json!({ "result": "approve" }), code::INVALID_DECISION_RESPONSE),
        (json!("approve"), code::INVALID_DECISION_RESPONSE),
    ];
    for (payload, code) in cases {
        let bed = Bed::new().await;
        let run = bed.start_plan(onboarding(), json!({})).await;
        bed.reply(run, "validate_input", json!({ "state": {} })).await;
        bed.reply(run, "risk_decision", payload).await;
        let ended = bed.ended(run).await;
        assert_eq!(ended.status, Status::Failed);
        assert_eq!(error(&ended)["code"], code);
        assert_eq!(error(&ended)["node"], "risk_decision");
    }
}

#[tokio::test]
async fn failed_task_is_asked_again_with_a_new_token() {
    for bed in beds().await {
        let plan = task("work", PlanBuilder::new("under-test").plan(with_state), json!({}));
        let run = bed.start_plan(plan, json!({})).await;
        let first = {
            bed.until(run, "work", "waiting").await;
            bed.token(run, "work", 1).await
        };
        let payload = json!({ "error": { "code": "BUSY", "message": "later" } }).to_string();
        bed.engine.answer(&first, &payload).await.unwrap();
        // The second attempt has its own token; the first one is used up.
        bed.until_recorded(run, "work", 1).await;
        let second = bed.token(run, "work", 2).await;
        assert_ne!(first, second);
        let done = json!({ "state": { "done": true } }).to_string();
        assert_eq!(bed.engine.answer(&first, &done).await.unwrap(), Answer::Closed);
        assert!(matches!(
            bed.engine.answer(&second, &done).await.unwrap(),
            Answer::Accepted { .. }
        ));
        let left = bed.left(run, bed.ended(run).await).await;
        assert_eq!(left.attempts("work"), [(1, "RetriableFailure"), (2, "Succeeded")]);
        assert_eq!(left.outputs(), json!({ "done": true }));
    }
}

#[tokio::test]
async fn decision_that_is_not_answered_in_time_fails_the_run() {
    for bed in beds().await {
        let plan = decision("ask", PlanBuilder::new("under-test").plan(with_state), &["go"]);
        let plan = plan.with(|node| {
            if let Kind::Request {
                timeout_ms,
                timeout_code,
                ..
            } = &mut node.kind
            {
                *timeout_ms = Some(30);
                *timeout_code = code::DECISION_TIMEOUT.to_owned();
            }
        });
        let run = bed.start_plan(plan, json!({})).await;
        let left = bed.left(run, bed.ended(run).await).await;
        assert_eq!(left.error()["code"], code::DECISION_TIMEOUT);
        assert_eq!(left.attempts("ask"), [(1, "Failed")]);
        let token = bed.token(run, "ask", 1).await;
        let late = bed.engine.answer(&token, r#"{"outcome":"go"}"#).await.unwrap();
        assert_eq!(late, Answer::Closed);
    }
}

#[tokio::test]
async fn cancelled_run_refuses_answers() {
    for bed in beds().await {
        let run = bed.start_plan(onboarding(), json!({})).await;
        bed.until(run, "validate_input", "waiting").await;
        bed.engine.cancel(run, "enough").await.unwrap();
        let left = bed.left(run, bed.ended(run).await).await;
        assert_eq!(left.status(), Status::Cancelled);
        assert_eq!(left.attempts("validate_input"), [(1, "Skipped")]);
        let token = bed.token(run, "validate_input", 1).await;
        let late = bed.engine.answer(&token, r#"{"state":{}}"#).await.unwrap();
        assert_eq!(late, Answer::Closed);
    }
}

#[tokio::test]
async fn service_gets_the_state_and_the_address_for_its_answer() {
    let (url, requests) = service(vec![answer("202 Accepted", "", "")]).await;
    let bed = Bed::new().await;
    let plan = task("first", PlanBuilder::new("under-test").plan(with_state), json!({})).then("second");
    let plan = task("second", plan, json!({ "url": url }));
    let run = bed.start_plan(plan, json!({ "user": "ada" })).await;
    bed.reply(run, "first", json!({ "state": { "score": 1 } })).await;
    bed.until(run, "second", "waiting").await;
    let request = requests.lock().unwrap()[0].clone();
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let token = bed.token(run, "second", 1).await;
    assert_eq!(
        body,
        json!({
            "execution_id": run.to_string(),
            "node_id": "second",
            "state": { "user": "ada", "score": 1 },
            "callback_url": format!("http://127.0.0.1:7070/wh/{token}"),
        })
    );
    let key = format!("idempotency-key: {run}:second:1");
    assert!(request.to_ascii_lowercase().contains(&key), "{request}");
    bed.engine.answer(&token, r#"{"state":{"score":2}}"#).await.unwrap();
    let left = bed.left(run, bed.ended(run).await).await;
    assert_eq!(left.outputs(), json!({ "score": 2 }));
    let second = left.actions.iter().find(|row| row.node.as_str() == "second").unwrap();
    let parameters: Value = serde_json::from_str(second.parameters.as_deref().unwrap()).unwrap();
    assert_eq!(parameters, json!({ "url": url, "state": { "asOf": 1 } }));
}

#[tokio::test]
async fn request_that_cannot_be_sent_is_retried() {
    let (url, requests) = service(vec![
        answer("503 Service Unavailable", "", ""),
        answer("200 OK", "", ""),
    ])
    .await;
    let bed = Bed::new().await;
    let plan = task(
        "work",
        PlanBuilder::new("under-test").plan(with_state),
        json!({ "url": url }),
    );
    let run = bed.start_plan(plan, json!({})).await;
    bed.until(run, "work", "waiting").await;
    assert_eq!(requests.lock().unwrap().len(), 2);
    let token = bed.token(run, "work", 2).await;
    bed.engine.answer(&token, r#"{"state":{}}"#).await.unwrap();
    let left = bed.left(run, bed.ended(run).await).await;
    assert_eq!(left.attempts("work"), [(1, "RetriableFailure"), (2, "Succeeded")]);
}

#[tokio::test]
async fn event_and_http_task_send_the_state() {
    let response = answer(
        "200 OK",
        "content-type: application/json\r\n",
        r#"{"state":{"priced":7},"other":1}"#,
    );
    let (url, requests) = service(vec![response]).await;
    let bed = Bed::new().await;
    let plan = PlanBuilder::new("under-test")
        .plan(with_state)
        .action_with("price", "http.task", json!({ "url": url }))
        .with(merges)
        .then("tell")
        .action_with("tell", "event", json!({ "url": url, "event_type": "priced" }));
    let run = bed.start_plan(plan, json!({ "user": "ada" })).await;
    let left = bed.left(run, bed.ended(run).await).await;
    assert_eq!(left.outputs(), json!({ "priced": 7 }), "{:?}", left.ended);
    let requests = requests.lock().unwrap();
    let body = |at: usize| -> Value { serde_json::from_str(requests[at].split_once("\r\n\r\n").unwrap().1).unwrap() };
    assert_eq!(body(0)["state"], json!({ "user": "ada" }));
    let event = body(1);
    assert!(
        requests[1]
            .to_ascii_lowercase()
            .contains("content-type: application/cloudevents+json")
    );
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["type"], "priced");
    assert_eq!(event["source"], "/workflows/under-test");
    assert_eq!(event["data"]["state"], json!({ "user": "ada", "priced": 7 }));
    assert_eq!(event["data"].get("callback_url"), None);
}

#[tokio::test]
async fn selected_outputs_are_read_from_the_state() {
    let bed = Bed::new().await;
    let select = |name: &str, from: &[&str]| Selection {
        name: name.to_owned(),
        from: from.iter().map(|step| (*step).to_owned()).collect(),
    };
    let outputs_of = vec![select("city", &["address", "city"]), select("none", &["missing"])];
    let plan = task("work", PlanBuilder::new("under-test").plan(with_state), json!({}));
    let run = bed
        .start_plan(
            plan.plan(|plan| plan.outputs = RunOutputs::Selected(outputs_of)),
            json!({}),
        )
        .await;
    bed.reply(run, "work", json!({ "state": { "address": { "city": "Ulm" } } }))
        .await;
    assert_eq!(outputs(&*bed.ended(run).await), json!({ "city": "Ulm", "none": null }));
}
