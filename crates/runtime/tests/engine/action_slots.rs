//! Fair use of action slots, and what a process claims while all are taken.

use crate::support::{Bed, PATIENCE, Place, Scripted};
use fermata_core::{RunId, RunnerId, Status};
use fermata_runtime::{
    Doing, Request, Role, Settings,
    actions::{Action, ActionInfo, Call, Failed, HttpSettings, Registry, Success},
    clock::{Clock, SystemClock},
};
use fermata_store::runs::Claim;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use uuid::Uuid;

const BACKLOG: usize = 1000;

/// Lets one call pass for each permit, and counts calls.
struct Gate(ActionInfo, Arc<Semaphore>, Came);

#[async_trait::async_trait]
impl Action for Gate {
    fn info(&self) -> &ActionInfo {
        &self.0
    }

    async fn run(&self, _: Value, _: Call) -> Result<Success, Failed> {
        self.2.fetch_add(1, SeqCst);
        self.1.acquire().await.unwrap().forget();
        Ok(json!({}).into())
    }
}

/// A runner with a few slots, and an API process.
struct Scene {
    api: Bed,
    runner: Bed,
    gate: Arc<Semaphore>,
    came: Came,
}

type Came = Arc<AtomicUsize>;

/// Actions with a gate that is closed.
fn gated() -> (Registry, Arc<Semaphore>, Came) {
    let (gate, came) = (Arc::new(Semaphore::new(0)), Came::default());
    let info = Scripted::new("test.gate", |_, _| Ok(json!({}).into())).info().clone();
    let action: Arc<dyn Action> = Arc::new(Gate(info, gate.clone(), came.clone()));
    let registry = Registry::builtin(&HttpSettings::default()).unwrap().with_action(action);
    (registry, gate, came)
}

async fn publish(bed: &Bed, id: &str, node: Value) {
    let start = node["id"].clone();
    let document = json!({ "id": id, "displayName": id, "startNode": start, "nodes": [node] });
    bed.publish(&document).await;
}

async fn until_came(came: &Came, count: usize) {
    let came = async {
        while came.load(SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, came).await.expect("the call is made");
}

impl Scene {
    /// With one slot and a backlog of `big`.
    async fn new() -> Scene {
        Scene::with_slots(1).await
    }

    /// With a backlog of `big`, which holds all slots.
    async fn with_slots(slots: usize) -> Scene {
        let (registry, gate, came) = gated();
        let place = Place::new().await;
        let settings = |role| Settings {
            role,
            max_parallel_actions: slots,
            poll_interval: Duration::from_millis(20),
            ..Settings::default()
        };
        let api = Bed::on(place.clone(), settings(Role::Api), registry.clone());
        for id in ["big", "small"] {
            publish(&api, id, json!({ "id": "only", "actionType": "test.gate" })).await;
        }
        let delay = json!({ "id": "only", "actionType": "core.delay", "parameters": { "durationMs": 1 } });
        publish(&api, "rest", delay).await;
        let requests = (0..BACKLOG).map(|_| ask(&api, "big", "crowd", 0));
        futures::future::join_all(requests).await;
        let runner = Bed::on(place, settings(Role::Runner), registry);
        let scene = Scene {
            api,
            runner,
            gate,
            came,
        };
        until_came(&scene.came, slots).await;
        scene
    }

    /// How many slots other runs get before this run ends.
    async fn slots_before(&self, run: RunId) -> usize {
        for slots in 0..BACKLOG {
            let record = self.api.store.run(run).await.unwrap().unwrap();
            if record.status == Status::Succeeded {
                return slots;
            }
            let came = self.came.load(SeqCst);
            self.gate.add_permits(1);
            until_came(&self.came, came + 1).await;
        }
        panic!("the run waits behind all others");
    }

    /// Claims all runs that are free and due.
    fn claim(&self) -> Claim {
        Claim {
            runner: RunnerId(Uuid::now_v7()),
            limit: 2 * BACKLOG as u32,
            now: SystemClock.now(),
            only: Vec::new(),
            dead_before: None,
        }
    }

    async fn until_held(&self, count: u64) {
        let held = async {
            while self.held().await != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, held)
            .await
            .expect("runs without a slot are released");
    }

    async fn held(&self) -> u64 {
        let runners = self.api.store.runners(None, 10).await.unwrap().items;
        runners.iter().map(|record| record.held).sum()
    }
}

async fn ask(bed: &Bed, workflow: &str, tenant: &str, priority: i32) -> RunId {
    let request = Request {
        workflow_id: workflow.to_owned(),
        tenant: tenant.to_owned(),
        priority: Some(priority),
        trigger: json!({}),
        ..Request::default()
    };
    bed.engine.start(request).await.unwrap().run
}

#[tokio::test]
async fn run_does_not_wait_for_the_backlog_of_another_workflow() {
    let scene = Scene::new().await;
    let run = ask(&scene.api, "small", "other", 0).await;
    let slots = scene.slots_before(run).await;
    assert!(slots < 50, "{slots} others went first");
}

#[tokio::test]
async fn high_priority_run_starts_before_the_backlog_of_its_workflow() {
    let scene = Scene::new().await;
    let run = ask(&scene.api, "big", "crowd", 9).await;
    let slots = scene.slots_before(run).await;
    assert!(slots < 50, "{slots} others went first");
}

#[tokio::test]
async fn runs_without_a_slot_wait_in_the_store() {
    let scene = Scene::new().await;
    for _ in 0..20 {
        let came = scene.came.load(SeqCst);
        scene.gate.add_permits(1);
        until_came(&scene.came, came + 1).await;
    }
    let held = scene.held().await;
    assert!(
        (1..BACKLOG as u64 / 2).contains(&held),
        "{held} runs are held by a process with one slot"
    );
}

#[tokio::test]
async fn run_that_needs_no_slot_proceeds_while_none_is_free() {
    let scene = Scene::new().await;
    let run = ask(&scene.api, "rest", "other", 0).await;
    let ended = scene.api.engine.wait(run, PATIENCE).await.unwrap();
    assert_eq!(ended.expect("it ends").status, Status::Succeeded);
    assert_eq!(scene.came.load(SeqCst), 1);
}

#[tokio::test]
async fn runs_waiting_for_a_slot_are_released_when_the_process_stops() {
    let scene = Scene::new().await;
    scene.runner.engine.stop();
    scene.until_held(1).await;
    scene.gate.add_permits(1);
    scene.until_held(0).await;
    assert_eq!(scene.came.load(SeqCst), 1);
    let due = scene.runner.store.claim(scene.claim()).await.unwrap().runs;
    assert_eq!(due.len(), BACKLOG - 1, "all other runs are due");
}

/// A process does not claim runs that it cannot start while another has slots for them.
#[tokio::test]
async fn slots_of_all_processes_are_used() {
    let (registry, _gate, came) = gated();
    let place = Place::new().await;
    let settings = |role| Settings {
        role,
        max_parallel_actions: 2,
        poll_interval: Duration::from_secs(3600), // no process polls for more
        ..Settings::default()
    };
    let api = Bed::on(place.clone(), settings(Role::Api), registry.clone());
    publish(&api, "big", json!({ "id": "only", "actionType": "test.gate" })).await;
    for _ in 0..6 {
        ask(&api, "big", "", 0).await;
    }
    let mut runners = Vec::new();
    for count in [2, 4, 6] {
        runners.push(Bed::on(place.clone(), settings(Role::Runner), registry.clone()));
        until_came(&came, count).await;
    }
}

/// The actions of the backlog hang: no slot is ever released. The gate stays closed.
#[tokio::test]
async fn another_tenant_starts_while_one_holds_all_slots() {
    let scene = Scene::with_slots(10).await;
    ask(&scene.api, "small", "other", 0).await;
    until_came(&scene.came, 11).await;
}

/// The same in a process with many waiting runs: the new run does not wait behind them in the store.
#[tokio::test]
async fn another_workflow_starts_at_once_while_all_slots_are_taken() {
    let (registry, _gate, came) = gated();
    let settings = Settings {
        max_parallel_actions: 10,
        poll_interval: Duration::from_secs(3600), // the store is not polled
        ..Settings::default()
    };
    let bed = Bed::on(Place::new().await, settings, registry);
    for id in ["big", "small"] {
        publish(&bed, id, json!({ "id": "only", "actionType": "test.gate" })).await;
    }
    for _ in 0..200 {
        ask(&bed, "big", "", 0).await;
    }
    until_came(&came, 10).await;
    ask(&bed, "small", "", 0).await;
    until_came(&came, 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_in_the_queue_is_recorded_apart_from_the_time_of_the_attempt() {
    let (registry, gate, came) = gated();
    let settings = Settings {
        max_parallel_actions: 1,
        ..Settings::default()
    };
    let bed = Bed::on(Place::new().await, settings, registry);
    let node = |id: &str| json!({ "id": id, "actionType": "test.gate" });
    let edges = json!([{ "targetNode": "left" }, { "targetNode": "right" }]);
    let nodes = json!([
        { "id": "both", "actionType": "core.echo", "edges": edges },
        node("left"), node("right"),
    ]);
    let document = json!({ "id": "two", "displayName": "two", "startNode": "both", "nodes": nodes });
    bed.publish(&document).await;
    let run = ask(&bed, "two", "", 0).await;
    until_came(&came, 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await; // the other one waits for the slot
    gate.add_permits(2);
    bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    let reads = bed.engine.reads();
    let run = reads.run(run).await.unwrap();
    let progress = reads.progress(&run).await.unwrap().expect("it has a plan");
    let done = ["left", "right"].map(|id| {
        let at = progress.plan.find(id).unwrap().at();
        let periods = progress.nodes[at].periods.iter();
        periods.map(|period| period.what).collect::<Vec<_>>()
    });
    assert!(done.contains(&vec![Doing::Queues, Doing::Runs]), "{done:?}");
}
