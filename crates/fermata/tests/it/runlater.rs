//! The Runlater dialect from outside: the real server, its data in a database, and a service that it calls.

mod callbacks;
mod crash;
mod edge_cases;
mod http_steps;
pub mod service;
mod spec_examples;

use crate::support::{Server, eventually};
use serde_json::{Value, json};
use service::Service;
use std::collections::BTreeMap;

/// Retries that do not make a test slow.
const QUICK_RETRIES: (&str, &str) = ("FERMATA_ORCHESTRATION__RETRY__INITIAL_DELAY_MS", "5");

/// A server and a service.
struct Stage {
    server: Server,
    service: Service,
}

/// A run that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub workflow: String,
    pub id: String,
}

impl Run {
    pub fn place(&self) -> String {
        format!("/api/v1/workflows/{}/runs/{}", self.workflow, self.id)
    }
}

impl Stage {
    async fn start() -> Stage {
        Stage::with(&[]).await
    }

    /// With variables in the environment of the server.
    async fn with(environment: &[(&str, &str)]) -> Stage {
        let environment = [&[QUICK_RETRIES], environment].concat();
        Stage {
            server: Server::start_with(&[], &environment),
            service: Service::start().await,
        }
    }

    /// Adds a workflow of these tasks, and triggers it.
    async fn play(&self, tasks: Value, trigger: Value) -> Run {
        self.server.add(&json!({ "name": "under-test", "tasks": tasks })).await;
        self.server.trigger("under-test", &trigger).await
    }

    /// The same to the end of the run.
    async fn carry(&self, tasks: Value, trigger: Value) -> Value {
        let run = self.play(tasks, trigger).await;
        self.server.over(&run).await
    }
}

/// How each task stands, by name.
fn words(run: &Value) -> BTreeMap<&str, &str> {
    let tasks = run["tasks"].as_object().expect("tasks");
    tasks
        .iter()
        .map(|(name, task)| (name.as_str(), task["status"].as_str().expect("a status")))
        .collect()
}

impl Server {
    /// Adds a workflow that has no draft; what it was answered with.
    pub async fn add(&self, document: &Value) -> Value {
        let (status, added) = self.post("/api/v1/workflows", document).await;
        assert_eq!(status, 201, "{added}");
        added
    }

    /// Triggers a run.
    pub async fn trigger(&self, workflow: &str, body: &Value) -> Run {
        let (status, triggered) = self.post(&format!("/api/v1/workflows/{workflow}/trigger"), body).await;
        assert_eq!(status, 201, "{triggered}");
        Run {
            workflow: workflow.to_owned(),
            id: triggered["data"]["run_id"].as_str().expect("an id").to_owned(),
        }
    }

    /// A run with its tasks.
    pub async fn run(&self, run: &Run) -> Value {
        let (status, mut view) = self.get(&run.place()).await;
        assert_eq!(status, 200, "{view}");
        view["data"].take()
    }

    /// A run once it is as wanted.
    pub async fn run_when(&self, what: &str, run: &Run, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || async {
            let view = self.run(run).await;
            wanted(&view).then_some(view)
        })
        .await
    }

    /// A run once a task of it stands so.
    pub async fn until(&self, run: &Run, task: &str, status: &str) -> Value {
        let wanted = |view: &Value| view["tasks"][task]["status"] == status;
        self.run_when(&format!("{task} {status}"), run, wanted).await
    }

    /// A run once it is over.
    pub async fn over(&self, run: &Run) -> Value {
        self.run_when("the end of the run", run, |view| view["status"] != "running")
            .await
    }

    /// A run once there is an event of this type, which then stays.
    async fn recorded(&self, run: &Run, kind: &str) -> History {
        eventually(kind, || async {
            let history = self.history(run).await;
            (!history.events(kind).is_empty()).then_some(history)
        })
        .await
    }

    async fn history(&self, run: &Run) -> History {
        let path = format!("/api/v1/executions/{}?include=actions,events&limit=1000", run.id);
        let (status, view) = self.get(&path).await;
        assert_eq!(status, 200, "{view}");
        History(view)
    }
}

/// A run as the engine's own API shows it: its recorded attempts and its events.
#[derive(Debug)]
struct History(Value);

impl History {
    /// `(attempt, status)` of each recorded attempt of a task.
    fn attempts(&self, task: &str) -> Vec<(u64, &str)> {
        let all = self.0["actions"].as_array().expect("actions");
        let of_task = all.iter().filter(|action| action["nodeId"] == task);
        let mut attempts: Vec<_> = of_task
            .map(|action| {
                let status = action["status"].as_str().expect("a status");
                (action["attempt"].as_u64().expect("a number"), status)
            })
            .collect();
        attempts.sort();
        attempts
    }

    /// The events of a type, in their order.
    fn events(&self, kind: &str) -> Vec<&Value> {
        let all = self.0["events"].as_array().expect("events");
        all.iter()
            .map(|event| &event["data"])
            .filter(|data| data["type"] == kind)
            .collect()
    }
}
