//! An engine for tests, and the records of a run.

use fermata_core::{Failure, RunId, Status, decode};
use fermata_runtime::{
    Ended, Engine, Mask, Request, Settings,
    actions::{Action, ActionInfo, Call, Failed, HttpSettings, Registry, ResourceLink, Success},
    clock::SystemClock,
    timeline,
};
use fermata_store::{
    Store,
    conformance::home::{Home, Kind},
    reads::Window,
    runs::Attempt,
    stats::StatsFilter,
};
use serde_json::{Value, json};
use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Semaphore;

pub const PATIENCE: Duration = Duration::from_secs(30);
const ALL: Window = Window { limit: 1000, offset: 0 };

type Script = dyn Fn(&Value, &Call) -> Result<Success, Failure> + Send + Sync;

/// An action that executes a closure of its test.
pub struct Scripted {
    info: ActionInfo,
    script: Box<Script>,
    /// (parameters, idempotency key) of every call.
    pub calls: Arc<Mutex<Vec<(Value, String)>>>,
}

impl Scripted {
    pub fn new(id: &str, script: impl Fn(&Value, &Call) -> Result<Success, Failure> + Send + Sync + 'static) -> Self {
        let info = ActionInfo {
            id: id.to_owned(),
            display_name: id.to_owned(),
            description: "for a test".to_owned(),
            category: "Test".to_owned(),
            connector_id: "test".to_owned(),
            version: "1.0.0".to_owned(),
            parameter_schema: json!({}),
            output_schema: json!({}),
            is_enabled: true,
            deprecation_notice: None,
            tags: Vec::new(),
        };
        Scripted {
            info,
            script: Box::new(script),
            calls: Arc::default(),
        }
    }

    /// Empty outputs.
    pub fn nothing() -> Success {
        Success {
            outputs: json!({}),
            links: Vec::new(),
            offer: None,
        }
    }
}

#[async_trait::async_trait]
impl Action for Scripted {
    fn info(&self) -> &ActionInfo {
        &self.info
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        let result = (self.script)(&parameters, &call);
        self.calls.lock().unwrap().push((parameters, call.idempotency_key));
        Ok(result?)
    }
}

/// An action that waits for a permit of the test.
pub struct Gated(pub Scripted, pub Arc<Semaphore>);

#[async_trait::async_trait]
impl Action for Gated {
    fn info(&self) -> &ActionInfo {
        self.0.info()
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        self.1.acquire().await.expect("the semaphore is never closed").forget();
        self.0.run(parameters, call).await
    }
}

pub fn link(id: &str) -> ResourceLink {
    ResourceLink {
        system: "test".to_owned(),
        resource_type: "thing".to_owned(),
        resource_id: id.to_owned(),
        url: None,
    }
}

/// A store in memory, or the one that `FERMATA_TEST_DATABASE` names. Engines may share it.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn Store>,
    /// Dropped last.
    pub home: Arc<Home>,
}

impl Place {
    pub async fn new() -> Place {
        Place::on(Home::new(Kind::Memory)).await
    }

    pub async fn on(home: Home) -> Place {
        Place {
            store: home.store().await,
            home: Arc::new(home),
        }
    }
}

impl Deref for Place {
    type Target = Arc<dyn Store>;

    fn deref(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// An engine that runs until the test ends.
pub struct Bed {
    pub engine: Engine,
    pub store: Place,
}

/// The records of a run that ended.
pub struct Left {
    pub run: RunId,
    pub ended: Arc<Ended>,
    pub actions: Vec<Attempt>,
    pub timeline: Vec<timeline::Entry>,
}

impl Bed {
    pub async fn new() -> Bed {
        Bed::with(Settings::default(), |registry| registry).await
    }

    pub async fn with(settings: Settings, more: impl FnOnce(Registry) -> Registry) -> Bed {
        // The services of tests are on loopback.
        let http = HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        };
        let registry = more(Registry::builtin(&http).unwrap());
        let bed = Bed::on(Place::new().await, settings, registry);
        bed.ready().await;
        bed
    }

    pub fn on(store: Place, settings: Settings, registry: Registry) -> Bed {
        let engine = Engine::new(Arc::clone(&store), registry, settings, Arc::new(SystemClock));
        let worker = engine.clone();
        tokio::spawn(async move { worker.run().await });
        Bed { engine, store }
    }

    /// Waits until it accepts runs.
    async fn ready(&self) {
        let ready = self.engine.ready();
        tokio::time::timeout(PATIENCE, ready).await.expect("a heartbeat");
    }

    pub async fn publish(&self, document: &Value) {
        self.ready().await;
        let text = document.to_string();
        let saved = self.engine.workflows().save(text.as_bytes(), "test.json").await;
        let saved = saved.unwrap_or_else(|error| panic!("{error:?}"));
        self.engine.workflows().publish(&saved.workflow.id, true).await.unwrap();
    }

    /// Creates a workflow of a dialect without drafts.
    pub async fn create(&self, document: &Value) {
        self.ready().await;
        let text = document.to_string();
        let added = self.engine.workflows().add(text.as_bytes(), "test.json").await;
        assert!(added.is_ok(), "{:?}", added.err());
    }

    /// Publishes a document, runs it once and returns the records.
    pub async fn carry(&self, document: Value, trigger: Value) -> Left {
        self.publish(&document).await;
        let request = Request {
            workflow_id: document["id"].as_str().unwrap().to_owned(),
            trigger,
            ..Request::default()
        };
        let (accepted, ended) = self.engine.start_and_wait(request, PATIENCE).await.unwrap();
        self.left(accepted.run, ended.expect("the run ends")).await
    }

    /// Waits until so many runs are counted as succeeded, failed and cancelled. A run is counted just after its end is seen.
    pub async fn until_counted(&self, wanted: (u64, u64, u64)) {
        let filter = StatsFilter {
            until: i64::MAX,
            step: 1,
            ..StatsFilter::default()
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.engine.write_numbers().await.unwrap();
            let all = self.store.stats(&filter).await.unwrap().all;
            let counted = (all.succeeded, all.failed, all.cancelled);
            if counted == wanted {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{counted:?} instead of {wanted:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn left(&self, run: RunId, ended: Arc<Ended>) -> Left {
        let (actions, _) = self.store.actions(run, ALL).await.unwrap();
        let (rows, _) = self.store.events(run, ALL).await.unwrap();
        let entries = rows
            .iter()
            .flat_map(|row| timeline::entries(row.seq, row.at, &decode(&row.data).unwrap(), None, &Mask::default()));
        Left {
            run,
            ended,
            actions,
            timeline: entries.collect(),
        }
    }
}

impl Left {
    pub fn status(&self) -> Status {
        self.ended.status
    }

    pub fn outputs(&self) -> Value {
        serde_json::from_str(self.ended.outputs.as_deref().unwrap_or("null")).unwrap()
    }

    pub fn error(&self) -> Value {
        serde_json::from_str(self.ended.error.as_deref().unwrap_or("null")).unwrap()
    }

    /// `(attempt, status)` of each recorded attempt of a node.
    pub fn attempts(&self, node: &str) -> Vec<(u32, &'static str)> {
        let of_node = self.actions.iter().filter(|action| action.node.as_str() == node);
        of_node.map(|action| (action.attempt, action.status.as_str())).collect()
    }
}

/// A workflow of these nodes; the first is the start.
pub fn workflow(nodes: Value) -> Value {
    json!({ "id": "under-test", "displayName": "Under test", "startNode": nodes[0]["id"], "nodes": nodes })
}
