//! Tasks with `needs` and `if`: what they see of each other, of callbacks and of responses that are failures.

use crate::{
    http::{answer, service},
    support::{Bed, PATIENCE},
};
use fermata_core::{RunId, Status};
use fermata_runtime::{Overview, Request, Settings};
use fermata_store::runs::Answer;
use serde_json::{Value, json};
use std::time::Duration;

fn json_answer(status: &str, body: Value) -> Vec<u8> {
    answer(status, "content-type: application/json\r\n", &body.to_string())
}

impl Bed {
    pub async fn trigger(&self, tasks: Value, trigger: Value) -> RunId {
        self.publish(&json!({ "name": "under-test", "tasks": tasks })).await;
        let request = Request {
            workflow_id: "under-test".to_owned(),
            trigger,
            ..Request::default()
        };
        self.engine.start(request).await.unwrap().run
    }

    pub async fn end(&self, run: RunId) -> (Status, Overview) {
        let ended = self.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
        (ended.status, self.engine.reads().overview(run).await.unwrap())
    }

    pub async fn until(&self, run: RunId, node: &str, status: &str) -> Overview {
        for _ in 0..2000 {
            let overview = self.engine.reads().overview(run).await.unwrap();
            if word(&overview, node) == status {
                return overview;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{node} never was {status}");
    }
}

fn word<'a>(overview: &'a Overview, node: &str) -> &'a str {
    let found = overview.nodes.iter().find(|view| view.node.as_str() == node);
    &found.expect("the node is there").status
}

fn message(overview: &Overview, node: &str) -> String {
    let found = overview.nodes.iter().find(|view| view.node.as_str() == node);
    let failure = found.and_then(|view| view.failure.as_ref());
    failure.map(|failure| failure.message.clone()).unwrap_or_default()
}

fn body_of(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn templates_see_the_trigger_and_earlier_responses_with_their_types() {
    let (url, requests) = service(vec![
        answer(
            "200 OK",
            "content-type: text/plain\r\n",
            r#"{"amount": 12.50, "tags": ["a"]}"#,
        ),
        json_answer("200 OK", json!({})),
    ])
    .await;
    let bed = Bed::new().await;
    let run = bed
        .trigger(
            json!({
                "charge-it": { "url": url, "body": { "order": "{{trigger.body.order_id}}" } },
                "receipt": { "needs": ["charge-it"], "url": url, "headers": { "x-code": "{{tasks.charge-it.status_code}}" },
                    "body": { "amount": "{{ tasks.charge-it.body.amount }}", "tags": "{{tasks.charge-it.body.tags}}",
                              "text": "{{tasks.charge-it.status}}: {{tasks.charge-it.body.tags.0}}" } },
            }),
            json!({ "order_id": 123 }),
        )
        .await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded, "{overview:?}");
    let requests = requests.lock().unwrap().clone();
    assert!(
        requests[0].starts_with("POST / "),
        "POST is the default: {}",
        requests[0]
    );
    assert_eq!(body_of(&requests[0]), json!({ "order": 123 }));
    assert!(requests[1].contains("x-code: 200"));
    // A JSON body is parsed whatever its media type.
    let expected = r#"{"amount":12.50,"tags":["a"],"text":"success: a"}"#;
    assert_eq!(body_of(&requests[1]).to_string(), expected);
    assert_eq!(overview.nodes[0].status_code, Some(200));
}

#[tokio::test]
async fn conditions_see_a_response_that_is_a_failure() {
    let (url, requests) = service(vec![
        json_answer("402 Payment Required", json!({ "why": "card" })),
        json_answer("200 OK", json!({})),
    ])
    .await;
    let bed = Bed::new().await;
    let run = bed
        .trigger(
            json!({
                "charge": { "url": url },
                "receipt": { "needs": ["charge"], "if": "tasks.charge.status_code == 200", "url": url },
                "sorry": { "needs": ["charge"], "if": "tasks.charge.body.why == 'card'", "url": url,
                           "body": { "was": "{{tasks.charge.status}}", "code": "{{tasks.charge.status_code}}" } },
            }),
            json!({}),
        )
        .await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded, "a failure that was handled");
    let words: Vec<_> = overview.nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(words, ["failed", "skipped", "success"]);
    assert_eq!(overview.failed_nodes, 1, "the run succeeded, and one node failed");
    assert_eq!(overview.nodes[0].status_code, Some(402));
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2, "402 is not repeated");
    assert_eq!(body_of(&requests[1]), json!({ "was": "failed", "code": 402 }));
}

#[tokio::test]
async fn condition_sees_null_for_a_skipped_task() {
    let bed = Bed::new().await;
    let run = bed
        .trigger(
            json!({
                "first": { "if": "trigger.body.go == true", "sleep": 0 },
                "after": { "needs": ["first"], "sleep": 0 },
                "on-skip": { "needs": ["after"], "if": "tasks.first.status == 'skipped'", "sleep": 0 },
                "on-null": { "needs": ["first"], "if": "tasks.first.body == null", "sleep": 0 },
                "on-code": { "needs": ["first"], "if": "tasks.first.status_code == 200", "sleep": 0 },
            }),
            json!({}),
        )
        .await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded);
    let words: Vec<_> = overview.nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(words, ["skipped", "skipped", "success", "success", "skipped"]);
}

#[tokio::test]
async fn missing_path_is_a_template_error_that_names_it() {
    let (url, requests) = service(vec![json_answer("200 OK", json!({ "orderId": 1, "none": null }))]).await;
    let bed = Bed::new().await;
    let run = bed
        .trigger(
            json!({
                "charge": { "url": url },
                "next": { "needs": ["charge"], "url": url, "body": { "id": "{{tasks.charge.body.order_id}}" } },
                "text": { "needs": ["charge"], "url": url, "body": { "id": "<{{tasks.charge.body.none}}>" } },
                "never": { "needs": ["next"], "url": url },
            }),
            json!({}),
        )
        .await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(
        status,
        Status::Failed,
        "it caused a task to be skipped, and nothing handled the failure"
    );
    assert_eq!(word(&overview, "next"), "template_error");
    let text = message(&overview, "next");
    let start =
        "Failed to resolve {{tasks.charge.body.order_id}}: there is no `order_id` (tasks.charge.body has: orderId";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(word(&overview, "text"), "template_error");
    assert_eq!(word(&overview, "never"), "skipped");
    assert_eq!(requests.lock().unwrap().len(), 1, "nothing was sent");
    let error: Value = serde_json::from_str(overview.run.error.as_deref().unwrap()).unwrap();
    assert_eq!(error["code"], "TEMPLATE_ERROR");
}

#[tokio::test]
async fn truncated_response_cannot_be_read() {
    let long = format!("{{\"amount\": 1, \"more\": \"{}\"}}", "x".repeat(300_000));
    let (url, requests) = service(vec![answer("200 OK", "content-type: application/json\r\n", &long)]).await;
    let bed = Bed::new().await;
    let run = bed
        .trigger(
            json!({
                "charge": { "url": url },
                "next": { "needs": ["charge"], "url": url, "body": "{{tasks.charge.body.amount}}" },
            }),
            json!({}),
        )
        .await;
    let (_, overview) = bed.end(run).await;
    assert!(overview.nodes[0].is_truncated);
    assert_eq!(word(&overview, "next"), "template_error");
    let expected =
        "Cannot read 'body.amount' because the response from 'charge' exceeded the 256KB limit and was truncated";
    assert_eq!(message(&overview, "next"), expected);
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn callback_url_exists_before_its_wait_opens() {
    let (url, requests) = service(vec![json_answer("200 OK", json!({}))]).await;
    let settings = Settings {
        public_url: "https://flows.example/".to_owned(),
        ..Settings::default()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    let run = bed
        .trigger(
            json!({
                "create": { "url": url, "body": { "callback_url": "{{wait.payment-result.url}}" } },
                "payment-result": { "needs": ["create"], "wait_for_webhook": { "timeout": "1h" } },
                "fulfill": { "needs": ["payment-result"], "if": "tasks.payment-result.body.status == 'paid'", "url": url,
                             "body": "{{tasks.payment-result.body.payment_id}} {{tasks.payment-result.status}}" },
                "expired": { "needs": ["payment-result"], "if": "tasks.payment-result.status == 'timeout'", "url": url },
            }),
            json!({}),
        )
        .await;
    let overview = bed.until(run, "payment-result", "waiting").await;
    assert!(overview.nodes[1].until.is_some());
    let address = body_of(&requests.lock().unwrap()[0])["callback_url"].clone();
    let token = address
        .as_str()
        .unwrap()
        .strip_prefix("https://flows.example/wh/")
        .unwrap();
    assert!(token.len() >= 32, "{token}");
    let payload = r#"{"status":"paid","payment_id":"p-1"}"#;
    assert!(matches!(
        bed.engine.answer(token, payload).await.unwrap(),
        Answer::Accepted { .. }
    ));
    assert_eq!(bed.engine.answer(token, "1").await.unwrap(), Answer::Closed);
    assert_eq!(bed.engine.answer("unknown", "1").await.unwrap(), Answer::NotFound);
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded);
    let words: Vec<_> = overview.nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(words, ["success", "received", "success", "skipped"]);
    assert!(requests.lock().unwrap()[1].ends_with("p-1 received"));
}

#[tokio::test]
async fn parked_run_keeps_its_callback_urls() {
    let (url, requests) = service(vec![json_answer("200 OK", json!({}))]).await;
    let settings = Settings {
        park_after: Duration::ZERO,
        ..Settings::default()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    let tasks = json!({
        "pause": { "sleep": 0.05 },
        "ask": { "needs": ["pause"], "url": url, "body": "{{wait.answer.url}}" },
        "answer": { "needs": ["ask"], "wait_for_webhook": {} },
    });
    let run = bed.trigger(tasks, json!({})).await;
    bed.until(run, "answer", "waiting").await;
    let token = bed.store.waits(run).await.unwrap()[0].token.clone();
    assert!(requests.lock().unwrap()[0].ends_with(&format!("/wh/{token}")));
    bed.engine.answer(&token, "\"yes\"").await.unwrap();
    assert_eq!(bed.end(run).await.0, Status::Succeeded);
}

#[tokio::test]
async fn unanswered_wait_times_out_and_tasks_branch_on_it() {
    let bed = Bed::new().await;
    let tasks = json!({
        "answer": { "wait_for_webhook": { "timeout": 0.05 } },
        "late": { "needs": ["answer"], "if": "tasks.answer.status == 'timeout'", "sleep": 0 },
        "in-time": { "needs": ["answer"], "sleep": 0 },
    });
    let run = bed.trigger(tasks, json!({})).await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded, "`late` handled it");
    let words: Vec<_> = overview.nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(words, ["timeout", "success", "skipped"]);
    let token = bed.store.waits(run).await.unwrap()[0].token.clone();
    assert_eq!(
        bed.engine.answer(&token, "1").await.unwrap(),
        Answer::Closed,
        "too late"
    );
}

#[tokio::test]
async fn task_results_are_available_after_the_run_left_memory() {
    let (url, requests) = service(vec![
        json_answer("402 Payment Required", json!({ "why": "card" })),
        json_answer("200 OK", json!({ "n": 7 })),
        json_answer("200 OK", json!({})),
    ])
    .await;
    let settings = Settings {
        park_after: Duration::ZERO,
        ..Settings::default()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    let tasks = json!({
        "charge": { "url": url },
        "other": { "needs": ["charge"], "if": "tasks.charge.status == 'failed'", "url": url },
        "pause": { "needs": ["other"], "sleep": 0.05 },
        "sorry": { "needs": ["pause"], "if": "tasks.charge.body.why == 'card'", "url": url,
                   "body": "{{tasks.charge.body.why}} {{tasks.charge.status_code}} {{tasks.other.body.n}}" },
    });
    let run = bed.trigger(tasks, json!({})).await;
    let (status, overview) = bed.end(run).await;
    assert_eq!(status, Status::Succeeded, "{overview:?}");
    assert!(requests.lock().unwrap()[2].ends_with("card 402 7"));
}
