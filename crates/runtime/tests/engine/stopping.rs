//! What happens to attempts when their run stops, and the parameters of later attempts.

use crate::support::{Bed, Left, PATIENCE, Scripted, workflow};
use fermata_core::{Failure, RunId, Status};
use fermata_runtime::{
    Request, Settings,
    actions::{Action, ActionInfo, Call, Failed, Success},
};
use fermata_store::reads::Window;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    sync::{Semaphore, oneshot},
};

/// An action that waits for a permit of the test, and counts when it is dropped before that.
#[derive(Clone)]
struct Hold {
    info: ActionInfo,
    gate: Arc<Semaphore>,
    started: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Hold {
    fn new() -> Hold {
        Hold {
            info: Scripted::new("test.hold", |_, _| Ok(json!({}).into())).info().clone(),
            gate: Arc::new(Semaphore::new(0)),
            started: Arc::default(),
            dropped: Arc::default(),
        }
    }

    async fn bed(&self, settings: Settings) -> Bed {
        let action: Arc<dyn Action> = Arc::new(self.clone());
        Bed::with(settings, |registry| registry.with_action(action)).await
    }

    async fn until_started(&self, count: usize) {
        until("an attempt starts", async || self.started.load(SeqCst) >= count).await;
    }
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[async_trait::async_trait]
impl Action for Hold {
    fn info(&self) -> &ActionInfo {
        &self.info
    }

    async fn run(&self, _: Value, _: Call) -> Result<Success, Failed> {
        let dropped = Dropped(self.dropped.clone());
        self.started.fetch_add(1, SeqCst);
        self.gate.acquire().await.expect("open").forget();
        std::mem::forget(dropped);
        Ok(json!({ "held": true }).into())
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting: {what}"));
}

async fn begin(bed: &Bed, nodes: Value) -> RunId {
    let document = workflow(nodes);
    bed.publish(&document).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        ..Request::default()
    };
    bed.engine.start(request).await.expect("it starts").run
}

async fn end(bed: &Bed, run: RunId) -> Left {
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
    bed.left(run, ended).await
}

async fn has_row(bed: &Bed, run: RunId, node: &str) -> bool {
    let all = Window { limit: 100, offset: 0 };
    let (rows, _) = bed.store.actions(run, all).await.unwrap();
    rows.iter().any(|row| row.node.as_str() == node)
}

/// The recorded error code of a node's attempt.
fn code(left: &Left, node: &str) -> Value {
    let row = left
        .actions
        .iter()
        .rfind(|row| row.node.as_str() == node)
        .expect("a row");
    let error: Value = serde_json::from_str(row.error.as_deref().unwrap_or("null")).unwrap();
    error["code"].clone()
}

const LONG: Duration = Duration::from_secs(3600);

fn patient() -> Value {
    json!({ "timeoutMs": 3_600_000 })
}

#[tokio::test]
async fn cancel_stops_a_running_action_at_once_and_frees_its_slot() {
    let hold = Hold::new();
    let settings = Settings {
        max_parallel_actions: 1,
        ..Settings::default()
    };
    let bed = hold.bed(settings).await;
    let run = begin(
        &bed,
        json!([{ "id": "a", "actionType": "test.hold", "policies": patient() }]),
    )
    .await;
    hold.until_started(1).await;
    bed.engine.cancel(run, "enough").await.unwrap();
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Cancelled, Some("enough"))
    );
    assert_eq!(
        (left.attempts("a"), code(&left, "a")),
        (vec![(1, "Failed")], json!("CANCELLED"))
    );
    assert_eq!(hold.dropped.load(SeqCst), 1);
    hold.gate.add_permits(1);
    let next = bed
        .engine
        .start(Request {
            workflow_id: "under-test".to_owned(),
            ..Request::default()
        })
        .await
        .unwrap();
    assert_eq!(
        end(&bed, next.run).await.status(),
        Status::Succeeded,
        "the only slot is free"
    );
}

#[tokio::test]
async fn run_deadline_stops_a_running_action() {
    let hold = Hold::new();
    let mut settings = Settings {
        stop_grace: LONG,
        ..Settings::default()
    };
    settings.dialects.workflow_timeout_ms = Some(300);
    let bed = hold.bed(settings).await;
    let retry = json!({ "timeoutMs": 3_600_000, "retry": { "maxAttempts": 3 } });
    let nodes = json!([
        { "id": "a", "actionType": "test.hold", "policies": retry, "onFailure": "b" },
        { "id": "b", "actionType": "core.echo" },
    ]);
    let run = begin(&bed, nodes).await;
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Failed, Some("timeout"))
    );
    assert_eq!(left.error()["code"], "RUN_TIMEOUT");
    assert_eq!(
        (left.attempts("a"), code(&left, "a")),
        (vec![(1, "Failed")], json!("CANCELLED"))
    );
    assert_eq!(
        (left.attempts("b"), hold.dropped.load(SeqCst)),
        (vec![(1, "Skipped")], 1)
    );
}

/// `hold` runs when `bad` fails.
fn failing() -> Value {
    json!([
        { "id": "begin", "actionType": "core.echo", "edges": [{ "targetNode": "hold" }, { "targetNode": "pause" }] },
        { "id": "hold", "actionType": "test.hold", "policies": patient() },
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 200 }, "edges": [{ "targetNode": "bad" }] },
        { "id": "bad", "actionType": "core.fail", "parameters": { "message": "no" } },
    ])
}

#[tokio::test]
async fn failure_of_another_node_stops_a_running_action_after_the_grace_period() {
    let hold = Hold::new();
    let settings = Settings {
        stop_grace: Duration::from_millis(100),
        ..Settings::default()
    };
    let bed = hold.bed(settings).await;
    let run = begin(&bed, failing()).await;
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), left.ended.reason.as_deref()),
        (Status::Failed, Some("action_failed"))
    );
    assert_eq!(left.error()["node"], "bad");
    assert_eq!(
        (left.attempts("hold"), code(&left, "hold")),
        (vec![(1, "Failed")], json!("CANCELLED"))
    );
}

#[tokio::test]
async fn running_action_may_finish_within_the_grace_period() {
    let hold = Hold::new();
    let settings = Settings {
        stop_grace: LONG,
        ..Settings::default()
    };
    let bed = hold.bed(settings).await;
    let run = begin(&bed, failing()).await;
    until("the failure is recorded", async || has_row(&bed, run, "bad").await).await;
    hold.gate.add_permits(1);
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), left.attempts("hold")),
        (Status::Failed, vec![(1, "Succeeded")])
    );
    assert_eq!(hold.dropped.load(SeqCst), 0);
}

#[tokio::test]
async fn cancel_ends_the_grace_period() {
    let hold = Hold::new();
    let settings = Settings {
        stop_grace: LONG,
        ..Settings::default()
    };
    let bed = hold.bed(settings).await;
    let run = begin(&bed, failing()).await;
    until("the failure is recorded", async || has_row(&bed, run, "bad").await).await;
    bed.engine.cancel(run, "enough").await.unwrap();
    let left = end(&bed, run).await;
    assert_eq!(
        left.ended.reason.as_deref(),
        Some("action_failed"),
        "the first cause counts"
    );
    assert_eq!(
        (left.attempts("hold"), code(&left, "hold")),
        (vec![(1, "Failed")], json!("CANCELLED"))
    );
}

#[tokio::test]
async fn node_waiting_for_a_retry_ends_with_its_last_error() {
    let bed = Bed::new().await;
    let run = begin(
        &bed,
        json!([{ "id": "a", "actionType": "core.fail", "parameters": { "message": "no", "retriable": true },
                 "policies": { "retry": { "maxAttempts": 3, "baseDelayMs": 3_600_000, "jitter": false } } }]),
    )
    .await;
    until("the first attempt is recorded", async || has_row(&bed, run, "a").await).await;
    bed.engine.cancel(run, "enough").await.unwrap();
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), left.attempts("a")),
        (Status::Cancelled, vec![(1, "RetriableFailure")])
    );
    let last = left
        .timeline
        .iter()
        .rfind(|entry| entry.message.starts_with("a failed"))
        .expect("its end");
    assert!(last.message.ends_with(": no"), "{}", last.message);
}

#[tokio::test]
async fn timeout_of_a_delay_is_enforced() {
    let bed = Bed::new().await;
    let nap = |millis: u64, timeout: u64| {
        json!([
            { "id": "a", "actionType": "core.delay", "parameters": { "durationMs": millis },
              "policies": { "timeoutMs": timeout, "retry": { "maxAttempts": 3 } }, "onFailure": "b" },
            { "id": "b", "actionType": "core.echo", "parameters": { "code": "{{ context.data.a.error.code }}" } },
        ])
    };
    let left = bed.carry(workflow(nap(3_600_000, 30)), json!({})).await;
    assert_eq!(
        (left.attempts("a"), code(&left, "a")),
        (vec![(1, "Failed")], json!("TIMEOUT"))
    );
    assert_eq!(
        (left.status(), left.outputs()),
        (Status::Succeeded, json!({ "code": "TIMEOUT" }))
    );
    let bed = Bed::new().await;
    let left = bed.carry(workflow(nap(30, 3_600_000)), json!({})).await;
    assert_eq!(left.attempts("a"), [(1, "Succeeded")]);
}

#[tokio::test]
async fn rerendered_attempt_sees_nodes_that_ended_before_it_got_its_slot() {
    let hold = Hold::new();
    let flaky = Scripted::new("test.flaky", |_, call| match call.attempt {
        1 => Err(Failure::retriable("FLAKY", "not yet")),
        _ => Ok(json!({}).into()),
    });
    let calls = flaky.calls.clone();
    let settings = Settings {
        max_parallel_actions: 1,
        ..Settings::default()
    };
    let held: Arc<dyn Action> = Arc::new(hold.clone());
    let bed = Bed::with(settings, |registry| {
        registry.with_action(Arc::new(flaky)).with_action(held)
    })
    .await;
    // While `hold` has the only slot, the retry of `a` is due and waits for it, and `b` ends.
    let run = begin(
        &bed,
        json!([
            { "id": "begin", "actionType": "core.echo",
              "edges": [{ "targetNode": "a" }, { "targetNode": "hold" }, { "targetNode": "nap" }] },
            { "id": "a", "actionType": "test.flaky", "parameters": { "seen": "{{ context.data.b ?? 'nothing yet' }}" },
              "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1, "jitter": false }, "rerenderOnRetry": true } },
            { "id": "hold", "actionType": "test.hold", "policies": patient() },
            { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 300 }, "edges": [{ "targetNode": "b" }] },
            { "id": "b", "actionType": "core.delay", "parameters": { "durationMs": 1 } },
        ]),
    )
    .await;
    hold.until_started(1).await;
    until("b ends", async || has_row(&bed, run, "b").await).await;
    hold.gate.add_permits(1);
    let left = end(&bed, run).await;
    assert_eq!(left.status(), Status::Succeeded);
    assert!(
        left.timeline
            .iter()
            .any(|entry| entry.message == "attempt 2 of a starts"),
        "it is recorded"
    );
    let seen: Vec<_> = calls
        .lock()
        .unwrap()
        .iter()
        .map(|(parameters, _)| parameters["seen"].clone())
        .collect();
    assert_eq!(seen, [json!("nothing yet"), json!({})]);
}

#[tokio::test]
async fn secrets_are_masked_in_stored_parameters_and_sent_by_retries() {
    let flaky = Scripted::new("test.flaky", |_, call| match call.attempt {
        1 => Err(Failure::retriable("FLAKY", "not yet")),
        _ => Ok(json!({}).into()),
    });
    let calls = flaky.calls.clone();
    let settings = Settings {
        park_after: Duration::ZERO, // the run is loaded again before the second attempt
        ..Settings::default()
    };
    let bed = Bed::with(settings, |registry| registry.with_action(Arc::new(flaky))).await;
    let left = bed
        .carry(
            workflow(json!([
                { "id": "a", "actionType": "test.flaky", "parameters": {
                    "url": "https://example.com/?key={{ trigger.key }}&page=1", "headers": { "Authorization": "Bearer {{ trigger.key }}" } },
                  "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 100, "jitter": false } } },
            ])),
            json!({ "key": "s3cret" }),
        )
        .await;
    assert_eq!(left.status(), Status::Succeeded);
    let sent =
        json!({ "url": "https://example.com/?key=s3cret&page=1", "headers": { "Authorization": "Bearer s3cret" } });
    let calls = calls.lock().unwrap().clone();
    assert_eq!(
        calls.iter().map(|(parameters, _)| parameters).collect::<Vec<_>>(),
        [&sent, &sent]
    );
    let stored = json!({ "url": "https://example.com/?key=***&page=1", "headers": { "Authorization": "***" } });
    for row in &left.actions {
        let parameters: Value = serde_json::from_str(row.parameters.as_deref().unwrap()).unwrap();
        assert_eq!(parameters, stored, "attempt {}", row.attempt);
    }
}

/// A service that takes one request, never answers it, and reports when the request has come and when the connection ends.
async fn silent_service() -> (String, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/slow", listener.local_addr().unwrap());
    let (has_come, come) = oneshot::channel();
    let (has_ended, ended) = oneshot::channel();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = socket.read(&mut buffer).await.unwrap();
            request.extend_from_slice(&buffer[..count]);
        }
        has_come.send(()).unwrap();
        while socket.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
        has_ended.send(()).unwrap();
    });
    (url, come, ended)
}

/// The service sees the end of the connection long before the timeout of the request.
#[tokio::test]
async fn cancel_closes_the_connection_of_a_request() {
    let bed = Bed::with(Settings::default(), |registry| registry).await;
    let (url, come, ended) = silent_service().await;
    let run = begin(
        &bed,
        json!([{ "id": "call", "actionType": "http.request", "parameters": { "url": url, "timeoutMs": 600_000 } }]),
    )
    .await;
    tokio::time::timeout(PATIENCE, come)
        .await
        .expect("the request")
        .unwrap();
    bed.engine.cancel(run, "enough").await.unwrap();
    tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("the connection is closed")
        .unwrap();
    let left = end(&bed, run).await;
    assert_eq!(
        (left.status(), code(&left, "call")),
        (Status::Cancelled, json!("CANCELLED"))
    );
}
