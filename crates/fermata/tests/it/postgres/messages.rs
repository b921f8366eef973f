//! A cancel or a callback that one process accepts reaches a run that another process holds.
//!
//! With hints, messages must arrive without polling: the runner polls once an hour. Without hints, they arrive by
//! polling only. The latency is printed but not asserted, because machines differ.

use super::pair;
use crate::{
    runlater::{Run, service::Service},
    support::Server,
};
use fermata_store::conformance::cluster::execute;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: usize = 20;
/// The runner keeps the lease of a run that waits for at most an hour.
const HELD: (&str, &str) = ("FERMATA_ORCHESTRATION__PARK_AFTER_MS", "1d");
const POLL_ONCE_AN_HOUR: (&str, &str) = ("FERMATA_ORCHESTRATION__POLL_INTERVAL_MS", "1h");
const NO_HINTS: (&str, &str) = ("FERMATA_DATABASE__POSTGRES__HINTS", "false");

/// Fails if no runner holds a lease of a running run.
const ASSERT_ALL_LEASED: &str = "DO $$ BEGIN
      IF EXISTS (SELECT 1 FROM workflow_executions WHERE status = 'Running' AND lease_owner IS NULL) THEN
        RAISE EXCEPTION 'no runner holds the run';
      END IF;
    END $$";

fn document(service: &Service) -> Value {
    json!({ "name": "held", "tasks": {
        "hello": { "url": service.at("/hello"), "body": { "callback": "{{wait.reply.url}}" } },
        "reply": { "needs": ["hello"], "wait_for_webhook": { "timeout": "1h" } },
        "after": { "needs": ["reply"], "url": service.at("/after") },
    } })
}

/// Starts a run that waits while the runner holds it. Returns the run and the path of its callback.
async fn held(api: &Server, service: &Service, number: usize) -> (Run, String) {
    let run = api.trigger("held", &json!({})).await;
    let call = service.call("/hello", number).await;
    api.until(&run, "reply", "waiting").await;
    (run, call.callback("callback"))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: {ROUNDS} times, median {median:?}, longest {longest:?}");
}

/// Sends callbacks and cancels to runs that another process holds, and waits until they take effect.
async fn deliver(setting: (&str, &str), what: &str) {
    let (api, mut runner, home) = pair(&[HELD, setting]);
    let service = Service::start().await;
    api.add(&document(&service)).await;
    let (mut callbacks, mut cancels) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let (run, callback) = held(&api, &service, 2 * round - 1).await;
        execute(&home.url(), ASSERT_ALL_LEASED).await;
        let accepted = SystemTime::now();
        assert_eq!(api.post(&callback, &json!({})).await.0, 200);
        let after = service.call("/after", round).await;
        callbacks.push(after.arrived_at.duration_since(accepted).unwrap_or_default());
        assert_eq!(api.over(&run).await["status"], "completed");

        let (run, _) = held(&api, &service, 2 * round).await;
        let began = Instant::now();
        let (code, cancelled) = api.post(&format!("{}/cancel", run.path()), &json!({})).await;
        assert_eq!(code, 200, "{cancelled}");
        assert_eq!(api.over(&run).await["status"], "cancelled");
        cancels.push(began.elapsed());
    }
    report(&format!("callback, {what}"), callbacks);
    report(&format!("cancel, {what}"), cancels);
    assert_eq!(runner.stop(), Some(0), "{}", runner.process().log());
}

#[tokio::test]
async fn messages_arrive_by_hints_without_polling() {
    deliver(POLL_ONCE_AN_HOUR, "by NOTIFY").await;
}

#[tokio::test]
async fn messages_arrive_without_hints() {
    deliver(NO_HINTS, "by polling").await;
}
