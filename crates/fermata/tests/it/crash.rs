//! The real server under load, killed with SIGKILL again and again.
//!
//! Two logs are kept where no crash can reach them, in this process: what the server acknowledged, and which
//! effects its steps had on a service. At the end they are compared with what the server says: nothing that was
//! acknowledged is lost, no step has two recorded outcomes, no run is stuck, and an effect is repeated only with
//! the same key and the same body.
//!
//! `FERMATA_CRASHES=500` makes it longer; `FERMATA_CRASH_SEED=N` chooses the moments.

use crate::support::{Server, http_client};
use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Killed faster than runs can commit, a server would take innocent ones for those that take it down.
pub const PATIENT_WITH_RUNS: (&str, &str) = ("FERMATA_ERROR_HANDLING__MAX_POISON_MESSAGE_RETRIES", "1000");

/// A run that pauses this long ends only because it is cancelled.
const ENDLESS_MS: u64 = 600_000;

/// Effects by idempotency key: the bodies that came with it.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<BTreeMap<String, Vec<Value>>>>);

/// A service that remembers who called it with what.
async fn start_service(effects: Effects) -> String {
    async fn remember(State(effects): State<Effects>, headers: HeaderMap, Json(body): Json<Value>) -> Json<Value> {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        let key = key.expect("every call has a key").to_owned();
        effects.0.lock().unwrap().entry(key).or_default().push(body.clone());
        Json(json!({ "seen": body }))
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/effect", post(remember)).with_state(effects);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/effect")
}

/// Steps of every kind: calls, a durable pause, a step that needs several attempts, branches and a join.
fn workflow(service: &str) -> Value {
    let call = |id: &str, body: Value, next: &[&str]| {
        json!({
            "id": id,
            "actionType": "http.request",
            "parameters": { "method": "POST", "url": service, "body": body },
            "policies": { "retry": { "maxAttempts": 10, "baseDelayMs": 20, "jitter": true } },
            "edges": next.iter().map(|target| json!({ "targetNode": target })).collect::<Vec<_>>(),
        })
    };
    json!({
        "id": "crash-me", "displayName": "Crash me", "startNode": "first",
        "nodes": [
            call("first", json!({ "order": "{{ trigger.order }}" }), &["left", "right", "pause"]),
            call("left", json!({ "was": "{{ context.data.first.body.seen.order }}", "side": "left" }), &["join"]),
            {
                "id": "right", "actionType": "core.sometimes-fails",
                "parameters": { "seed": "{{ trigger.order }}", "failureRate": 0.4 },
                "policies": { "retry": { "maxAttempts": 12, "baseDelayMs": 5, "backoffFactor": 1.2, "jitter": true } },
                "edges": [{ "targetNode": "join" }],
            },
            {
                "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.pauseMs }}" },
                "edges": [{ "targetNode": "join", "condition": "trigger.order % 2 === 0" }],
            },
            call("join", json!({ "left": "{{ context.data.left.body.seen.side }}" }), &[]),
        ]
    })
}

/// What the server acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// requestId → executionId.
    starts: BTreeMap<String, String>,
    /// executionIds whose cancellation was accepted.
    cancels: BTreeSet<String>,
}

struct Load {
    url: RwLock<String>,
    client: reqwest::Client,
    next: AtomicU64,
    over: AtomicBool,
    acknowledged: Mutex<Acknowledged>,
}

impl Load {
    fn url(&self) -> String {
        self.url.read().unwrap().clone()
    }

    /// Starts runs until `stop` is set. A start that was not acknowledged is repeated with the same requestId.
    async fn keep_starting(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            let order = self.next.fetch_add(1, Ordering::Relaxed);
            let request_id = format!("order-{order}");
            let to_cancel = order % 10 == 3;
            let pause = if to_cancel { ENDLESS_MS } else { 120 };
            let body = json!({ "requestId": request_id, "trigger": { "order": order, "pauseMs": pause } });
            while !self.over.load(Ordering::Relaxed) {
                if let Some(answer) = self.post("/api/v1/workflows/crash-me/execute", &body).await {
                    let run = answer["executionId"].as_str().expect("an id").to_owned();
                    let before = self
                        .acknowledged
                        .lock()
                        .unwrap()
                        .starts
                        .insert(request_id.clone(), run.clone());
                    assert!(before.is_none_or(|before| before == run), "{request_id} has two runs");
                    let cancel = format!("/api/v1/executions/{run}/cancel");
                    if to_cancel && self.post(&cancel, &json!({})).await.is_some() {
                        self.acknowledged.lock().unwrap().cancels.insert(run);
                    }
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await; // the server is being killed
            }
        }
    }

    /// The answer, if it was a success.
    async fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let answer = self
            .client
            .post(format!("{}{path}", self.url()))
            .json(body)
            .send()
            .await
            .ok()?;
        let success = answer.status().is_success();
        let body = answer.json().await.ok()?;
        success.then_some(body)
    }
}

/// A number of the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// The next number of a sequence that a seed decides.
pub fn throw(rng: &mut u64) -> u64 {
    *rng = rng
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *rng >> 33
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_run_is_lost_when_the_server_is_killed_repeatedly() {
    let crashes = number("FERMATA_CRASHES", 20);
    let mut rng = number("FERMATA_CRASH_SEED", u64::from(std::process::id()));
    println!("seed {rng}");
    let effects = Effects::default();
    let service = start_service(effects.clone()).await;
    let mut server = Server::start_with(&[], &[PATIENT_WITH_RUNS]);
    server.publish(&workflow(&service)).await;
    let load = Arc::new(Load {
        url: RwLock::new(server.url.clone()),
        client: http_client(),
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        acknowledged: Mutex::default(),
    });
    let workers: Vec<_> = (0..6).map(|_| tokio::spawn(load.clone().keep_starting())).collect();
    for _ in 0..crashes {
        tokio::time::sleep(Duration::from_millis(20 + throw(&mut rng) % 280)).await;
        tokio::task::block_in_place(|| {
            server.kill9();
            server.restart();
        });
        *load.url.write().unwrap() = server.url.clone();
    }
    load.over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("the load had no complaint");
    }
    check(&server, &load, &effects).await;
}

async fn check(server: &Server, load: &Load, effects: &Effects) {
    let all = all_runs(server).await;
    let (starts, cancels) = {
        let acknowledged = load.acknowledged.lock().unwrap();
        (acknowledged.starts.clone(), acknowledged.cancels.clone())
    };
    assert!(
        starts.len() > 20,
        "the server was hardly under load: {} runs",
        starts.len()
    );
    for (request_id, run) in &starts {
        assert!(all.contains(run), "{run} ({request_id}) was acknowledged and is lost");
    }
    let mut repeated = 0;
    for run in &all {
        let pauses = server.execution(run).await["trigger"]["pauseMs"].as_u64();
        if pauses == Some(ENDLESS_MS) && !cancels.contains(run) {
            let (code, _) = server
                .post(&format!("/api/v1/executions/{run}/cancel"), &json!({}))
                .await;
            assert!(code < 300, "{run} could not be cancelled");
        }
        let ended = server.ended(run).await;
        let status = ended["status"].as_str().unwrap_or_default();
        let expected = if pauses == Some(ENDLESS_MS) {
            "Cancelled"
        } else {
            "Succeeded"
        };
        assert_eq!(status, expected, "{ended}");
        check_steps(server, run, (status == "Succeeded").then_some(5)).await;
    }
    let effects = effects.0.lock().unwrap().clone();
    for (key, bodies) in &effects {
        let run = key.split(':').next().unwrap_or_default();
        assert!(all.contains(run), "{key}: an effect of a run that was never durable");
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "{key} was repeated with another body: {bodies:?}"
        );
        repeated += bodies.len() - 1;
    }
    for run in &all {
        let ended = server.execution(run).await;
        if ended["status"] == "Succeeded" {
            for node in ["first", "left", "join"] {
                assert!(
                    effects.contains_key(&format!("{run}:{node}")),
                    "{run}: {node} succeeded without its effect"
                );
            }
        }
    }
    println!(
        "{} runs, {} acknowledged, {} effects, {repeated} of them repeated",
        all.len(),
        starts.len(),
        effects.len()
    );
}

/// Every node has exactly one recorded outcome, after attempts that count up from one. If so many `nodes` are given, there
/// is one for each.
pub async fn check_steps(server: &Server, run: &str, nodes: Option<usize>) {
    let (code, view) = server
        .get(&format!("/api/v1/executions/{run}?include=actions,events&limit=1000"))
        .await;
    assert_eq!(code, 200, "{view}");
    let mut attempts: BTreeMap<&str, Vec<(u64, &str)>> = BTreeMap::new();
    for action in view["actions"].as_array().expect("actions") {
        let node = action["nodeId"].as_str().expect("a node");
        let attempt = action["attempt"].as_u64().expect("a number");
        attempts
            .entry(node)
            .or_default()
            .push((attempt, action["status"].as_str().expect("a status")));
    }
    for (node, attempts) in &mut attempts {
        attempts.sort();
        let (last, before) = attempts.split_last().expect("at least one");
        // A node that waits for its retry when its run stops ends with the failure of its last attempt.
        let stopped = view["status"] == "Cancelled" || view["status"] == "Failed";
        assert!(
            matches!(last.1, "Succeeded" | "Failed" | "Skipped") || (stopped && last.1 == "RetriableFailure"),
            "{run}: {node} has no outcome: {attempts:?}"
        );
        assert!(
            before.iter().all(|(_, status)| *status == "RetriableFailure"),
            "{run}: {node} has two outcomes: {attempts:?}"
        );
        let counted: Vec<u64> = attempts.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(counted, (1..=counted.len() as u64).collect::<Vec<_>>(), "{run}: {node}");
    }
    if let Some(nodes) = nodes {
        assert_eq!(attempts.len(), nodes, "{run}: every node has an outcome: {attempts:?}");
    }
    let events = view["events"].as_array().expect("events");
    let mut opened = BTreeSet::new();
    for event in events.iter().filter(|event| event["data"]["type"] == "opened") {
        assert!(
            opened.insert(event["data"]["node"].to_string()),
            "{run}: a join fired twice: {event}"
        );
    }
    assert_eq!(
        events.iter().filter(|event| event["data"]["type"] == "ended").count(),
        1,
        "{run}"
    );
}

/// The ids of all runs there are.
pub async fn all_runs(server: &Server) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let (code, page) = server.get(&format!("/api/v1/executions?limit=200{cursor}")).await;
        assert_eq!(code, 200, "{page}");
        for run in page["items"].as_array().expect("items") {
            all.insert(
                run["executionId"]
                    .as_str()
                    .or(run["id"].as_str())
                    .expect("an id")
                    .to_owned(),
            );
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}
