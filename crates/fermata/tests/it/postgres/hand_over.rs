//! A runner that stops releases its runs: no work is lost or repeated, and no lease is taken from it.

use super::process;
use crate::{
    runlater::{
        Run,
        service::{Answer, Service},
    },
    support::{Server, Signal, shared_home},
};
use fermata_store::conformance::cluster::execute;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const RUNS: usize = 120;
/// The runner is stopped after this many calls.
const STOP_AFTER_CALLS: usize = 40;

/// Records every lease that was taken from an owner, and every claim that follows a claim without a commit.
pub(super) const RECORD_TAKEOVERS: &str = "
    CREATE TABLE taken (run uuid, takeovers integer);
    CREATE FUNCTION record_takeover() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.takeovers > 1 OR (OLD.lease_owner IS NOT NULL AND NEW.lease_owner IS NOT NULL
        AND NEW.lease_owner <> OLD.lease_owner) THEN
        INSERT INTO taken VALUES (NEW.id, NEW.takeovers);
      END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER record_takeover AFTER UPDATE ON workflow_executions FOR EACH ROW EXECUTE FUNCTION record_takeover();";

/// Fails if a lease was taken.
pub(super) const ASSERT_NO_TAKEOVERS: &str = "DO $$ BEGIN
      IF EXISTS (SELECT 1 FROM taken) THEN
        RAISE EXCEPTION 'taken over: %', (SELECT json_agg(taken) FROM taken);
      END IF;
    END $$";

/// A slow call, a sleep, a wait that the test answers, and a last call.
fn document(service: &Service) -> Value {
    json!({ "name": "work", "tasks": {
        "slow": { "url": service.at("/slow"), "retries": 0, "body": { "callback": "{{wait.reply.url}}" } },
        "rest": { "needs": ["slow"], "sleep": "20ms" },
        "reply": { "wait_for_webhook": { "timeout": "1h" } },
        "last": { "needs": ["rest", "reply"], "url": service.at("/last"), "retries": 0 },
    } })
}

async fn start(api: Arc<Server>) -> Vec<Run> {
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(api.trigger("work", &json!({ "n": number })).await);
    }
    runs
}

/// Answers the wait of each run after its first call has arrived.
async fn call_back(api: &Server, service: &Service) {
    for number in 1..=RUNS {
        let callback = service.call("/slow", number).await.callback("callback");
        assert_eq!(api.post(&callback, &json!({})).await.0, 200);
    }
}

/// Releases one slow response for each call that arrives, a few calls later.
async fn answer_slowly(service: &Service) {
    for number in 1..=RUNS {
        service.call("/slow", (number + 5).min(RUNS)).await;
        service.release("/slow");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_runner_releases_its_runs_without_repeated_calls() {
    let home = shared_home();
    let service = Service::start().await;
    service.script("/slow", [Answer::ok(&json!({})).held()]);
    let api = Arc::new(process(&home, "api", &[]));
    execute(&home.url(), RECORD_TAKEOVERS).await;
    let mut runners = [process(&home, "runner", &[]), process(&home, "runner", &[])];
    api.add(&document(&service)).await;
    let starting = tokio::spawn(start(api.clone()));
    let stopping = async {
        service.call("/slow", STOP_AFTER_CALLS).await;
        runners[0].process().signal(Signal::TERM);
        runners[0].process().wait_for_line("stopping");
    };
    tokio::join!(stopping, call_back(&api, &service), answer_slowly(&service));
    assert_eq!(runners[0].wait(), Some(0), "{}", runners[0].process().log());

    let runs = starting.await.expect("all runs are accepted");
    for run in &runs {
        assert_eq!(api.over(run).await["status"], "completed", "{run:?}");
    }
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    for call in service.calls() {
        *calls.entry((call.path.clone(), call.key().to_owned())).or_default() += 1;
    }
    assert_eq!(calls.len(), 2 * RUNS);
    let repeated: Vec<_> = calls.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "called again: {repeated:?}");
    execute(&home.url(), ASSERT_NO_TAKEOVERS).await;
    assert_eq!(runners[1].stop(), Some(0), "{}", runners[1].process().log());
}
