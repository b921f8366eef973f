//! A cancel or a callback that one process accepts reaches the run that another one holds.
//!
//! With hints it must not need a look: the runner looks once in an hour. Without them looking is the only way. How long
//! it took is printed and not judged: machines differ.

use super::pair;
use crate::{
    runlater::{Run, service::Service},
    support::Server,
};
use fermata_store::conformance::cluster::execute;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: usize = 20;
/// A run that waits for an hour at most stays with its runner.
const HELD: (&str, &str) = ("FERMATA_ORCHESTRATION__PARK_AFTER_MS", "1d");
const LOOKS_ONCE_AN_HOUR: (&str, &str) = ("FERMATA_ORCHESTRATION__POLL_INTERVAL_MS", "1h");
const NO_HINTS: (&str, &str) = ("FERMATA_DATABASE__POSTGRES__HINTS", "false");

/// Fails if a run that goes on is free.
const ALL_ARE_HELD: &str = "DO $$ BEGIN
      IF EXISTS (SELECT 1 FROM workflow_executions WHERE status = 'Running' AND lease_owner IS NULL) THEN
        RAISE EXCEPTION 'nobody holds the run';
      END IF;
    END $$";

fn document(service: &Service) -> Value {
    json!({ "name": "held", "tasks": {
        "hello": { "url": service.at("/hello"), "body": { "callback": "{{wait.mail.url}}" } },
        "mail": { "needs": ["hello"], "wait_for_webhook": { "timeout": "1h" } },
        "told": { "needs": ["mail"], "url": service.at("/told") },
    } })
}

/// The next run that waits, and where its callback goes. The runner holds it.
async fn held(api: &Server, service: &Service, number: usize) -> (Run, String) {
    let run = api.trigger("held", &json!({})).await;
    let call = service.call("/hello", number).await;
    api.until(&run, "mail", "waiting").await;
    (run, call.callback("callback"))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (middle, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: {ROUNDS} times, median {middle:?}, most {most:?}");
}

/// Callbacks and cancels for runs that are held elsewhere, until they have arrived.
async fn deliver(how: (&str, &str), what: &str) {
    let (api, mut runner, home) = pair(&[HELD, how]);
    let service = Service::start().await;
    api.add(&document(&service)).await;
    let (mut callbacks, mut cancels) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let (run, callback) = held(&api, &service, 2 * round - 1).await;
        execute(&home.url(), ALL_ARE_HELD).await;
        let accepted = SystemTime::now();
        assert_eq!(api.post(&callback, &json!({})).await.0, 200);
        let told = service.call("/told", round).await;
        callbacks.push(told.arrived_at.duration_since(accepted).unwrap_or_default());
        assert_eq!(api.over(&run).await["status"], "completed");

        let (run, _) = held(&api, &service, 2 * round).await;
        let began = Instant::now();
        let (code, cancelled) = api.post(&format!("{}/cancel", run.place()), &json!({})).await;
        assert_eq!(code, 200, "{cancelled}");
        assert_eq!(api.over(&run).await["status"], "cancelled");
        cancels.push(began.elapsed());
    }
    report(&format!("callback, {what}"), callbacks);
    report(&format!("cancel, {what}"), cancels);
    assert_eq!(runner.stop(), Some(0), "{}", runner.process().log());
}

#[tokio::test]
async fn mail_arrives_by_hints_alone() {
    deliver(LOOKS_ONCE_AN_HOUR, "told by NOTIFY").await;
}

#[tokio::test]
async fn mail_arrives_without_hints() {
    deliver(NO_HINTS, "found by looking").await;
}
