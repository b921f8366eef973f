//! Concurrent runs, two engines on one store, and recovery after a kill.

use super::super::{
    Run, Stage,
    service::{Answer, Service},
    task_statuses,
};
use crate::support::{PATIENCE, eventually, home};
use fermata_core::{Event, NodeId, RunId, Status};
use fermata_runtime::{
    Engine, Observer, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::{
    Store,
    runs::{Answer as Taken, Attempt},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// "Multiple runs of the same workflow can execute simultaneously. Each run has its own set of executions. No cross-run
/// interference."
#[tokio::test]
async fn concurrent_runs() {
    const RUNS: usize = 8;
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    // No call is answered before all have arrived, so the test passes only if the runs execute simultaneously.
    stage.service.script("/first", [Answer::echo().after_calls(RUNS)]);
    stage.service.script("/second", [Answer::echo()]);
    let document = json!({ "name": "many", "tasks": {
        "first": { "url": at("/first"), "body": { "n": "{{trigger.body.n}}" } },
        "wait": { "needs": ["first"], "wait_for_webhook": {} },
        "second": { "needs": ["wait"], "url": at("/second"),
                    "body": { "of-trigger": "{{trigger.body.n}}", "of-first": "{{tasks.first.body.seen.n}}",
                              "of-wait": "{{tasks.wait.body.n}}", "callback": "{{wait.wait.url}}" } },
        "tell": { "url": at("/tell"), "body": { "n": "{{trigger.body.n}}", "callback": "{{wait.wait.url}}" } },
    } });
    stage.server.add(&document).await;
    let numbers: Vec<Value> = (0..RUNS).map(|n| json!({ "n": n })).collect();
    let triggers = numbers.iter().map(|trigger| stage.server.trigger("many", trigger));
    let runs = futures::future::join_all(triggers).await;
    let ids: BTreeSet<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(ids.len(), RUNS);
    for run in &runs {
        stage.server.until(run, "wait", "waiting").await;
    }
    // Cancelling one run does not affect the others.
    let (code, _) = stage
        .server
        .post(&format!("{}/cancel", runs[0].path()), &json!({}))
        .await;
    assert_eq!(code, 200);
    let mut callbacks = BTreeMap::new();
    for number in 1..=RUNS {
        let call = stage.service.call("/tell", number).await;
        callbacks.insert(call.json()["n"].as_u64().expect("a number"), call.callback("callback"));
    }
    let tokens: BTreeSet<&String> = callbacks.values().collect();
    assert_eq!(tokens.len(), RUNS, "each run has its own callback URL");
    for (n, callback) in callbacks.iter().rev() {
        let expected = if *n == 0 { 409 } else { 200 };
        assert_eq!(stage.server.post(callback, &json!({ "n": n })).await.0, expected);
    }
    for (n, run) in runs.iter().enumerate() {
        let expected = if n == 0 { "cancelled" } else { "completed" };
        assert_eq!(stage.server.over(run).await["status"], expected);
        let own: Vec<_> = stage
            .service
            .calls()
            .into_iter()
            .filter(|call| call.key().starts_with(&run.id))
            .collect();
        assert_eq!(own.len(), if n == 0 { 2 } else { 3 });
        for call in own {
            for (member, value) in call.json().as_object().expect("an object") {
                assert!(member == "callback" || *value == json!(n), "{call:?}");
            }
        }
    }
    let (_, listed) = stage.server.get("/api/v1/workflows/many/runs").await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(RUNS));
}

/// For each node of each run, the engines that opened it.
#[derive(Default)]
struct Opened(Mutex<BTreeMap<(RunId, String), Vec<usize>>>);

struct Recorder {
    engine: usize,
    opened: Arc<Opened>,
}

impl Observer for Recorder {
    fn started(&self, _: RunId, _: &NodeId, _: u32) {}

    fn committed(&self, run: RunId, events: &[Event], _: &[Attempt]) {
        for event in events {
            if let Event::Opened { node, .. } = event {
                let mut opened = self.opened.0.lock().unwrap();
                opened.entry((run, node.to_string())).or_default().push(self.engine);
            }
        }
    }
}

fn engine(number: usize, store: Arc<dyn Store>, opened: Arc<Opened>) -> Engine {
    let http = HttpSettings {
        allow_private_networks: true,
        ..HttpSettings::default()
    };
    let settings = Settings {
        // A waiting run is parked at once, so that either engine can continue it.
        park_after: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    };
    let registry = Registry::builtin(&http).expect("a registry");
    let recorder = Recorder { engine: number, opened };
    let engine = Engine::with_observer(
        store,
        registry,
        settings,
        Arc::new(SystemClock),
        Some(Arc::new(recorder)),
    );
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    engine
}

/// Executes one run. Both engines receive the answers to its waits at the same time. Its request ends at that time or
/// before.
async fn execute_round(round: usize, engines: &[Engine; 2], store: &dyn Store, service: &Service) {
    let request = Request {
        workflow_id: "shared".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let run = engines[round % 2].start(request).await.expect("it starts").run;
    let waits = store.waits(run).await.expect("waits");
    let token = |node: &str| {
        let wait = waits.iter().find(|wait| wait.node.as_str() == node);
        wait.expect("its token").token.clone()
    };
    let (left, right) = (token("left"), token("right"));
    // In every other round no engine holds the run when the answers arrive.
    let is_parked = round % 2 == 1;
    service.call("/request", round + 1).await;
    if is_parked {
        service.release("/request");
        eventually("the end of the request", || async {
            let overview = engines[0].reads().overview(run).await.expect("it is there");
            (overview.nodes[2].status == "success").then_some(())
        })
        .await;
    }
    // Each answer is sent to both engines, all at the same time.
    let answers = [
        (0, &left, "\"left\""),
        (1, &right, "\"right\""),
        (1, &left, "\"left\""),
        (0, &right, "\"right\""),
    ];
    let tasks = answers.map(|(number, token, payload)| {
        let (engine, token) = (engines[number].clone(), token.clone());
        tokio::spawn(async move { engine.answer(&token, payload).await.expect("an answer") })
    });
    if !is_parked {
        service.release("/request"); // it ends at the same time as the waits
    }
    let mut taken = 0;
    for task in tasks {
        taken += usize::from(matches!(task.await.expect("it ran"), Taken::Accepted { .. }));
    }
    assert_eq!(taken, 2, "each wait accepts one answer");
    let ended = engines[round % 2].wait(run, PATIENCE).await.expect("it is there");
    assert_eq!(ended.expect("no event is lost").status, Status::Succeeded);
    let overview = engines[0].reads().overview(run).await.expect("it is there");
    let statuses: Vec<_> = overview.nodes.iter().map(|node| node.status.as_str()).collect();
    assert_eq!(statuses, ["received", "received", "success", "success", "success"]);
}

/// "If two parallel steps (A and B) complete simultaneously: Node 1 locks, evaluates A's completion, commits. Node 2
/// unblocks, sees both A and B complete, correctly advances the DAG." "exactly one node evaluates at a time […] so no
/// events are lost".
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn multi_node_concurrency() {
    const ROUNDS: usize = 60;
    let home = home();
    let store = home.store().await;
    let (service, opened) = (Service::start().await, Arc::new(Opened::default()));
    service.script("/request", [Answer::ok(&json!({})).held()]);
    let engines = [0, 1].map(|number| engine(number, store.clone(), opened.clone()));
    let document = json!({ "name": "shared", "tasks": {
        "left": { "wait_for_webhook": {} },
        "right": { "wait_for_webhook": {} },
        "request": { "url": service.at("/request") },
        "join": { "needs": ["left", "right", "request"], "url": service.at("/join"),
                  "body": ["{{tasks.left.body}}", "{{tasks.right.body}}"] },
        "guard": { "needs": ["left", "right"], "if": "tasks.left.body == 'left'", "url": service.at("/guard") },
    } });
    let added = engines[0]
        .workflows()
        .add(document.to_string().as_bytes(), "test.json")
        .await;
    added.expect("the document is valid");
    for round in 0..ROUNDS {
        execute_round(round, &engines, store.as_ref(), &service).await;
    }
    let opened = opened.0.lock().unwrap().clone();
    assert_eq!(opened.len(), ROUNDS * 2, "the other nodes are open from the start");
    for (node, engines) in &opened {
        assert_eq!(engines.len(), 1, "{node:?} was opened by {engines:?}");
    }
    let active: BTreeSet<usize> = opened.values().flatten().copied().collect();
    assert_eq!(active.len(), 2, "both engines opened nodes");
    for (path, body) in [("/request", ""), ("/join", r#"["left","right"]"#), ("/guard", "")] {
        let calls = service.calls_of(path);
        assert_eq!(calls.len(), ROUNDS, "{path}: once for each run");
        assert!(calls.iter().all(|call| call.body == body), "{path}");
    }
    engines.iter().for_each(Engine::stop);
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    u64::try_from(now.as_micros()).expect("not yet")
}

/// "This ensures workflows never stall permanently, even if PubSub events are lost": the next engine finds all timers
/// that expired and all responses that were lost while no engine was running.
#[tokio::test]
async fn engine_recovery_safety_net() {
    let mut stage = Stage::start().await;
    let at = |path: &str| stage.service.at(path);
    let names = ["answered", "in-flight", "sleeps", "waits", "expires"];
    stage.service.script("/in-flight", [Answer::ok(&json!({})).held()]);
    let then =
        |task: &str| json!({ "needs": [task], "url": at("/then"), "if": format!("tasks.{task}.status != 'skipped'") });
    let documents = [
        json!({ "tasks": { "a": { "url": at("/answered") }, "rest": { "needs": ["a"], "sleep": 1 }, "then": then("rest") } }),
        json!({ "tasks": { "a": { "url": at("/in-flight") }, "then": then("a") } }),
        json!({ "tasks": { "a": { "sleep": 1 }, "then": then("a") } }),
        json!({ "tasks": { "a": { "wait_for_webhook": { "timeout": 1 } }, "then": then("a") } }),
        json!({ "max_duration_seconds": 1, "tasks": { "a": { "wait_for_webhook": {} }, "then": then("a") } }),
    ];
    let mut runs: BTreeMap<&str, Run> = BTreeMap::new();
    for (name, mut document) in names.into_iter().zip(documents) {
        document["name"] = json!(name);
        stage.server.add(&document).await;
        runs.insert(name, stage.server.trigger(name, &json!({})).await);
    }
    stage.server.recorded(&runs["answered"], "slept").await;
    stage.service.call("/in-flight", 1).await;
    stage.server.kill9();
    // The service answers the killed process, and all timers expire.
    stage.service.release("/in-flight");
    let due = now() + 1_100_000;
    while now() < due {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.service.release("/in-flight");
    stage.server.restart();
    for (name, expected, of_a) in [
        ("answered", "completed", "success"),
        ("in-flight", "completed", "success"),
        ("sleeps", "completed", "success"),
        ("waits", "completed", "timeout"),
        ("expires", "timeout", "skipped"),
    ] {
        let view = stage.server.over(&runs[name]).await;
        assert_eq!(
            (&view["status"], task_statuses(&view)["a"]),
            (&json!(expected), of_a),
            "{name}: {view}"
        );
        let history = stage.server.history(&runs[name]).await;
        assert!(history.attempts("a").len() <= 1, "{name} has one outcome: {history:?}");
    }
    assert_eq!(
        stage.service.calls_of("/answered").len(),
        1,
        "a recorded call is not repeated"
    );
    let calls = stage.service.calls_of("/in-flight");
    assert_eq!(
        calls.len(),
        2,
        "a call that was not recorded is repeated with the same key"
    );
    assert_eq!(calls[0].key(), calls[1].key());
    assert_eq!(stage.service.calls_of("/then").len(), 4);
}
