//! The Runlater dialect end to end: the real server with a database, and an HTTP service that it calls.

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

/// Short retry delays, so that tests are fast.
const QUICK_RETRIES: (&str, &str) = ("FERMATA_ORCHESTRATION__RETRY__INITIAL_DELAY_MS", "5");

/// A server and the service that it calls.
struct Stage {
    server: Server,
    service: Service,
}

/// A run that the server has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub workflow: String,
    pub id: String,
}

impl Run {
    pub fn path(&self) -> String {
        format!("/api/v1/workflows/{}/runs/{}", self.workflow, self.id)
    }
}

impl Stage {
    async fn start() -> Stage {
        Stage::with(&[]).await
    }

    /// Starts a server with these environment variables.
    async fn with(environment: &[(&str, &str)]) -> Stage {
        let environment = [&[QUICK_RETRIES], environment].concat();
        Stage {
            server: Server::start_with(&[], &environment),
            service: Service::start().await,
        }
    }

    /// Adds a workflow with these tasks and triggers a run.
    async fn trigger_tasks(&self, tasks: Value, trigger: Value) -> Run {
        self.server.add(&json!({ "name": "under-test", "tasks": tasks })).await;
        self.server.trigger("under-test", &trigger).await
    }

    /// Adds a workflow with these tasks, triggers a run and waits until it ends. Returns the run.
    async fn run_tasks(&self, tasks: Value, trigger: Value) -> Value {
        let run = self.trigger_tasks(tasks, trigger).await;
        self.server.over(&run).await
    }
}

/// The status of each task, by name.
fn task_statuses(run: &Value) -> BTreeMap<&str, &str> {
    let tasks = run["tasks"].as_object().expect("tasks");
    tasks
        .iter()
        .map(|(name, task)| (name.as_str(), task["status"].as_str().expect("a status")))
        .collect()
}

impl Server {
    /// Adds a workflow without a draft. Returns the response.
    pub async fn add(&self, document: &Value) -> Value {
        let (status, added) = self.post("/api/v1/workflows", document).await;
        assert_eq!(status, 201, "{added}");
        added
    }

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
        let (status, mut view) = self.get(&run.path()).await;
        assert_eq!(status, 200, "{view}");
        view["data"].take()
    }

    /// Waits until the run matches. Returns the run.
    pub async fn run_when(&self, what: &str, run: &Run, matches: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || async {
            let view = self.run(run).await;
            matches(&view).then_some(view)
        })
        .await
    }

    /// Waits until a task has this status. Returns the run.
    pub async fn until(&self, run: &Run, task: &str, status: &str) -> Value {
        let has_status = |view: &Value| view["tasks"][task]["status"] == status;
        self.run_when(&format!("{task} {status}"), run, has_status).await
    }

    /// Waits until the run has ended. Returns the run.
    pub async fn over(&self, run: &Run) -> Value {
        self.run_when("the end of the run", run, |view| view["status"] != "running")
            .await
    }

    /// Waits until the run has an event of this type. Returns the history.
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

/// A run as shown by the engine's own API, with its recorded attempts and its events.
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

    /// The events of this type, in order.
    fn events(&self, kind: &str) -> Vec<&Value> {
        let all = self.0["events"].as_array().expect("events");
        all.iter()
            .map(|event| &event["data"])
            .filter(|data| data["type"] == kind)
            .collect()
    }
}
