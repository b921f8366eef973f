//! Runs in every state continue on another database.

use super::Ends;
use crate::{
    runlater::{
        Run,
        service::{Answer, Service},
    },
    support::{Server, eventually, fermata},
};
use serde_json::{Value, json};

/// One active run at a time, which is parked as soon as possible and does not delay the shutdown.
const NARROW: [(&str, &str); 3] = [
    ("FERMATA_ORCHESTRATION__MAX_ACTIVE_RUNS", "1"),
    ("FERMATA_ORCHESTRATION__PARK_AFTER_MS", "0"),
    ("FERMATA_ORCHESTRATION__SHUTDOWN_GRACE_MS", "0"),
];

async fn add_all(server: &Server, service: &Service) {
    let at = |path: &str| service.at(path);
    for (name, tasks) in [
        ("quick", json!({ "do": { "url": at("/do") } })),
        (
            "waits",
            json!({
                "ask": { "url": at("/ask"), "body": { "callback": "{{wait.reply.url}}" } },
                "reply": { "needs": ["ask"], "wait_for_webhook": { "timeout": "1h" } },
                "use": { "needs": ["reply"], "url": at("/use"), "body": { "got": "{{tasks.reply.body}}" } },
            }),
        ),
        ("retries", json!({ "try": { "url": at("/try"), "retries": 3 } })),
        (
            "sleeps",
            json!({ "rest": { "sleep": "5s" }, "wake": { "needs": ["rest"], "url": at("/wake") } }),
        ),
        ("hangs", json!({ "hang": { "url": at("/hang") } })),
        ("queues", json!({ "queue": { "url": at("/queue") } })),
    ] {
        server.add(&json!({ "name": name, "tasks": tasks })).await;
    }
    let busy = Answer::status(503).header("retry-after", "5");
    service.script("/try", [busy, Answer::status(200)]);
    service.script("/hang", [Answer::never(), Answer::status(200)]);
}

/// A run with its attempts and its events.
async fn with_history(server: &Server, run: &Run) -> Value {
    let path = format!("/api/v1/executions/{}?include=actions,events&limit=1000", run.id);
    let (status, view) = server.get(&path).await;
    assert_eq!(status, 200, "{view}");
    view
}

async fn wait_for_event(server: &Server, run: &Run, kind: &str) {
    eventually(kind, || async {
        let view = with_history(server, run).await;
        let events = view["events"].as_array().expect("events");
        events.iter().any(|event| event["data"]["type"] == kind).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_runs_continue_on_the_target_database() {
    let (ends, service) = (Ends::new(), Service::start().await);
    let mut first = Server::on(&ends.from, &[], &NARROW);
    add_all(&first, &service).await;
    let start = async |name: &str| first.trigger(name, &json!({ "of": name })).await;
    let done = start("quick").await;
    first.over(&done).await;
    let waiting = start("waits").await;
    first.until(&waiting, "reply", "waiting").await;
    let retrying = start("retries").await;
    wait_for_event(&first, &retrying, "retried").await;
    let sleeping = start("sleeps").await;
    first.until(&sleeping, "rest", "sleeping").await;
    let hanging = start("hangs").await;
    service.call("/hang", 1).await;
    let pending = start("queues").await;
    assert_eq!(with_history(&first, &pending).await["status"], "Pending");
    let before = with_history(&first, &done).await;
    assert_eq!(first.stop(), Some(0), "{}", first.process().log());
    let live = service.calls().len();

    let moved = ends.transfer(&["--json"]);
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let runs = moved.json()["tables"].as_array().expect("tables").clone();
    let runs = runs.iter().find(|table| table["table"] == "workflow_executions");
    assert_eq!(runs.map(|table| &table["rows"]), Some(&json!(6)));
    let refused = fermata(&["serve", "--listen", "127.0.0.1:0", "--database", &ends.from.url()]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("was moved to postgres://"), "{refused:?}");
    assert_eq!(service.calls().len(), live, "no call is made while no server runs");

    let second = Server::on(&ends.to, &[], &[]);
    assert_eq!(with_history(&second, &done).await, before);
    let callback = service.calls_of("/ask")[0].callback("callback");
    let received = second.post(&callback, &json!({ "paid": "ünicode" })).await;
    assert_eq!(received, (200, json!({ "data": { "status": "received" } })));
    for run in [&waiting, &retrying, &sleeping, &hanging, &pending] {
        let view = second.over(run).await;
        assert_eq!(view["status"], "completed", "{view:#}");
    }
    assert_eq!(
        service.calls_of("/use")[0].json(),
        json!({ "got": { "paid": "ünicode" } })
    );
    // Finished calls are not repeated. Interrupted calls are repeated with the same key and body.
    for (path, times) in [
        ("/do", 1),
        ("/ask", 1),
        ("/use", 1),
        ("/try", 2),
        ("/wake", 1),
        ("/hang", 2),
        ("/queue", 1),
    ] {
        let calls = service.calls_of(path);
        assert_eq!(calls.len(), times, "{path}");
        let same = calls
            .iter()
            .all(|call| (call.key(), &call.body) == (calls[0].key(), &calls[0].body));
        assert!(same, "{calls:#?}");
    }
    // New runs can be started, too.
    let fresh = second.trigger("quick", &json!({})).await;
    assert_eq!(second.over(&fresh).await["status"], "completed");
}

/// A killed server leaves runs with leases. The next server does not wait until these leases expire.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_killed_server_continue_without_waiting_for_its_leases() {
    let (ends, service) = (Ends::new(), Service::start().await);
    let mut first = Server::on(&ends.from, &[], &[]);
    add_all(&first, &service).await;
    let hanging = first.trigger("hangs", &json!({})).await;
    service.call("/hang", 1).await;
    first.kill9();
    let moved = ends.transfer(&[]);
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let hour = [("FERMATA_ORCHESTRATION__LEASE_TTL_MS", "1h")];
    let second = Server::on(&ends.to, &[], &hour);
    assert_eq!(second.over(&hanging).await["status"], "completed");
    let calls = service.calls_of("/hang");
    assert_eq!((calls.len(), calls[0].key()), (2, calls[1].key()));
}
