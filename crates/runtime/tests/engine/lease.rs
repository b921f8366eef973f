//! What a process may start after it was suspended, and which clock is used.

use crate::support::{PATIENCE, Place, Scripted};
use fermata_core::{RunId, RunnerId, Status, Timestamp};
use fermata_runtime::{
    Engine, Request, Role, Settings,
    actions::{Action, ActionInfo, Call, Failed, HttpSettings, Registry, Success},
    clock::{Clock, SystemClock},
};
use fermata_store::{
    conformance::home::{Home, Kind},
    runners::Runner,
    runs::{Answer, Claim},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use uuid::Uuid;

const HOUR: i64 = 3_600_000_000;

/// The clocks of a machine that can be suspended and set.
#[derive(Default)]
struct Machine {
    boot: AtomicI64,
    wall: AtomicI64,
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.wall.load(SeqCst))
    }

    fn since_boot(&self) -> i64 {
        SystemClock.since_boot() + self.boot.load(SeqCst)
    }
}

/// An action that records the name in its parameters and waits for a permit of the test.
struct Gated {
    info: ActionInfo,
    gate: Arc<Semaphore>,
    came: Arc<Mutex<Vec<String>>>,
}

#[async_trait::async_trait]
impl Action for Gated {
    fn info(&self) -> &ActionInfo {
        &self.info
    }

    async fn run(&self, parameters: Value, _: Call) -> Result<Success, Failed> {
        let name = parameters["name"].as_str().unwrap_or_default().to_owned();
        self.came.lock().unwrap().push(name);
        self.gate.acquire().await.expect("never closed").forget();
        Ok(Scripted::nothing())
    }
}

fn spawn(place: &Place, registry: Registry, settings: Settings, machine: Arc<dyn Clock>) -> Engine {
    let engine = Engine::new(Arc::clone(place), registry, settings, machine);
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    engine
}

async fn publish(engine: &Engine, id: &str, node: Value) {
    let document = json!({ "id": id, "displayName": id, "startNode": node["id"], "nodes": [node] });
    let text = document.to_string();
    let saved = engine.workflows().save(text.as_bytes(), "test.json").await;
    saved.unwrap_or_else(|error| panic!("{error:?}"));
    engine.workflows().publish(id, true).await.unwrap();
}

async fn start(engine: &Engine, workflow: &str, name: &str) -> RunId {
    let request = Request {
        workflow_id: workflow.to_owned(),
        trigger: json!({ "name": name }),
        ..Request::default()
    };
    engine.start(request).await.unwrap().run
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let holding = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, holding).await.expect(what);
}

/// A process was suspended with queued attempts. Attempts of runs that another process took over do not start; the others
/// continue.
async fn queued_attempts_after(suspend: impl FnOnce(&Machine)) {
    let place = Place::new().await;
    let (gate, came) = (Arc::new(Semaphore::new(0)), Arc::default());
    let gated = Gated {
        info: Scripted::new("test.gate", |_, _| Ok(Scripted::nothing()))
            .info()
            .clone(),
        gate: gate.clone(),
        came: Arc::clone(&came),
    };
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let registry = registry.with_action(Arc::new(gated));
    let settings = Settings {
        max_parallel_actions: 1,
        ..Settings::default()
    };
    let machine = Arc::new(Machine::default());
    let engine = spawn(&place, registry, settings, machine.clone());
    engine.ready().await;
    let node = json!({ "id": "only", "actionType": "test.gate", "parameters": { "name": "{{ trigger.name }}" } });
    publish(&engine, "gated", node).await;
    let mut runs = Vec::new();
    for name in ["first", "lost", "kept"] {
        runs.push(start(&engine, "gated", name).await);
        until("it is held", async || engine.active_runs() == runs.len()).await;
    }
    let names = || came.lock().unwrap().clone();
    until("the first has the slot", async || names() == ["first"]).await;
    let other = Runner {
        id: RunnerId(Uuid::now_v7()),
        host: "elsewhere".to_owned(),
        pid: 1,
        version: "0.1.0".to_owned(),
        role: "runner".to_owned(),
        started_at: SystemClock.now(),
        public_url: String::new(),
    };
    place.heartbeat(&other, SystemClock.now()).await.unwrap();
    let takeover = Claim {
        runner: other.id,
        limit: 1,
        now: SystemClock.now(),
        only: vec![runs[1]],
        dead_before: Some(Timestamp(i64::MAX)),
    };
    assert_eq!(place.claim(takeover).await.unwrap().runs.len(), 1);
    suspend(&machine); // after the take-over: a heartbeat in between would read the list of held runs too early
    gate.add_permits(2);
    for run in [runs[0], runs[2]] {
        let ended = engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
        assert_eq!(ended.status, Status::Succeeded);
    }
    assert_eq!(names(), ["first", "kept"]);
    until("it is dropped", async || engine.active_runs() == 0).await;
    engine.stop();
}

#[tokio::test]
async fn suspended_process_starts_nothing_that_was_taken_over() {
    queued_attempts_after(|machine| machine.boot.store(HOUR, SeqCst)).await;
}

#[tokio::test]
async fn paused_machine_with_corrected_wall_clock_starts_nothing_that_was_taken_over() {
    // With the memory store the wall clock is also the engine's time, so it is not set beyond the deadline of the runs.
    queued_attempts_after(|machine| machine.wall.store(HOUR / 60, SeqCst)).await;
}

/// Heartbeats are sent while no worker of the engine's runtime is free.
#[tokio::test]
async fn busy_workers_do_not_delay_heartbeats() {
    let place = Place::new().await;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let settings = Settings {
        lease_ttl: Duration::from_millis(300),
        ..Settings::default()
    };
    let engine = spawn(&place, registry, settings, Arc::new(SystemClock));
    engine.ready().await;
    let store = place.control().unwrap_or_else(|| Arc::clone(&place));
    // This thread is the only worker of the engine's runtime, and is blocked here.
    let watching = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let beat = async || store.runners(None, 1).await.unwrap().items[0].heartbeat_at;
            for _ in 0..3 {
                let last = beat().await;
                until("a heartbeat", async || beat().await > last).await;
            }
        });
    });
    watching.join().expect("heartbeats");
    engine.stop();
}

/// A runner whose clock is an hour ahead neither ends sleeps early nor records wrong times.
#[tokio::test]
async fn wrong_machine_clock_changes_no_times() {
    let home = Home::new(Kind::Sqlite);
    let place = Place::on(home).await;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let settings = |role| Settings {
        role,
        park_after: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    };
    let wrong = Arc::new(Machine::default());
    wrong.wall.store(HOUR, SeqCst);
    let api = spawn(&place, registry.clone(), settings(Role::Api), Arc::new(SystemClock));
    let runner = spawn(&place, registry, settings(Role::Runner), wrong);
    let nap = |millis: u64| json!({ "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": millis } });
    publish(&api, "long", nap(600_000)).await;
    publish(&api, "short", nap(1)).await;
    let long = start(&api, "long", "").await;
    let record = async || place.run(long).await.unwrap().unwrap();
    until("it is parked", async || {
        record().await.status == Status::Running && !record().await.held()
    })
    .await;
    // Another run is claimed, sleeps and ends meanwhile.
    let short = start(&api, "short", "").await;
    let ended = api.wait(short, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    let (long, now) = (record().await, api.now());
    assert_eq!(long.status, Status::Running);
    let right = now.0 + 500_000_000..now.0 + 601_000_000;
    assert!(
        right.contains(&long.wake_at.expect("it sleeps").0),
        "{long:?} at {now:?}"
    );
    assert!((now.0 - 60_000_000..=now.0).contains(&long.started_at.expect("it began").0));
    api.stop();
    runner.stop();
}

/// A callback after the deadline of its wait is refused, also before a process has closed the wait.
#[tokio::test]
async fn callback_after_the_deadline_is_refused_before_the_run_is_claimed() {
    let place = Place::new().await;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let settings = |role| Settings {
        role,
        ..Settings::default()
    };
    let runner = spawn(&place, registry.clone(), settings(Role::All), Arc::new(SystemClock));
    runner.ready().await;
    let document = json!({ "name": "asks", "tasks": { "answer": { "wait_for_webhook": { "timeout": "1s" } } } });
    let added = runner
        .workflows()
        .add(document.to_string().as_bytes(), "test.json")
        .await;
    added.unwrap_or_else(|error| panic!("{error}"));
    let run = start(&runner, "asks", "").await;
    runner.crash();
    let api = spawn(&place, registry, settings(Role::Api), Arc::new(SystemClock));
    let waits = place.waits(run).await.unwrap();
    let over = place.run(run).await.unwrap().unwrap().created_at.plus_millis(1000);
    until("the deadline", async || api.now() >= over).await;
    assert_eq!(api.answer(&waits[0].token, "1").await.unwrap(), Answer::Closed);
    assert_eq!(place.run(run).await.unwrap().unwrap().status, Status::Running);
    api.stop();
}
