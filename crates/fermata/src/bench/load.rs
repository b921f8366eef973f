//! Load on a real engine and store.

use super::PATIENCE;
use anyhow::{Context, bail};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::{Store, sqlite::SqliteStore};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// Three steps, one after the other, that do nothing.
pub(super) fn three_steps() -> Value {
    json!({
        "id": "bench-three", "displayName": "Three steps", "startNode": "first",
        "nodes": [
            { "id": "first", "actionType": "core.echo", "edges": [{ "targetNode": "second" }] },
            { "id": "second", "actionType": "core.echo", "edges": [{ "targetNode": "third" }] },
            { "id": "third", "actionType": "core.echo" },
        ]
    })
}

fn fan(width: usize) -> Value {
    let name = |at: usize| format!("step-{at}");
    let mut nodes = vec![json!({
        "id": "begin", "actionType": "core.echo",
        "edges": (0..width).map(|at| json!({ "targetNode": name(at) })).collect::<Vec<_>>(),
    })];
    nodes.extend(
        (0..width).map(|at| json!({ "id": name(at), "actionType": "core.echo", "edges": [{ "targetNode": "join" }] })),
    );
    nodes.push(json!({ "id": "join", "actionType": "core.echo" }));
    json!({ "id": format!("bench-fan-{width}"), "displayName": "Fan", "startNode": "begin", "nodes": nodes })
}

/// What many workflows took.
pub(super) struct Many {
    pub workflows: usize,
    pub took: Duration,
    pub times: Vec<Duration>,
}

/// An engine under load.
pub(super) struct Bench {
    engine: Engine,
    runner: JoinHandle<()>,
}

impl Bench {
    pub async fn open(path: &Path) -> anyhow::Result<Bench> {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path)?);
        let registry = Registry::builtin(&HttpSettings::default())?;
        let mut settings = Settings::default();
        settings.dialects.max_nodes = 10_000;
        let engine = Engine::new(store, registry, settings, Arc::new(SystemClock));
        let working = engine.clone();
        let runner = tokio::spawn(async move { working.run().await });
        let bench = Bench { engine, runner };
        bench.publish(&three_steps()).await?;
        Ok(bench)
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    async fn publish(&self, document: &Value) -> anyhow::Result<String> {
        let saved = self
            .engine
            .workflows()
            .save(document.to_string().as_bytes(), "bench")
            .await?;
        self.engine.workflows().publish(&saved.workflow.id, true).await?;
        Ok(saved.workflow.id)
    }

    /// `workflows` three-step runs, `concurrency` at a time.
    pub async fn many(&self, workflows: usize, concurrency: usize) -> anyhow::Result<Many> {
        let left = Arc::new(AtomicUsize::new(workflows));
        let begin = Instant::now();
        let workers: Vec<_> = (0..concurrency)
            .map(|_| {
                let (engine, left) = (self.engine.clone(), left.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                        .is_ok()
                    {
                        times.push(run_once(&engine, "bench-three").await?);
                    }
                    anyhow::Ok(times)
                })
            })
            .collect();
        let mut times = Vec::with_capacity(workflows);
        for worker in workers {
            times.extend(worker.await??);
        }
        Ok(Many {
            workflows,
            took: begin.elapsed(),
            times,
        })
    }

    pub async fn one_at_a_time(&self, workflows: usize) -> anyhow::Result<Vec<Duration>> {
        self.repeat("bench-three", workflows).await
    }

    /// A fan-out of `width` and a join, `times` times, one at a time.
    pub async fn fan_out(&self, width: usize, times: usize) -> anyhow::Result<Vec<Duration>> {
        let id = self.publish(&fan(width)).await?;
        run_once(&self.engine, &id).await?;
        self.repeat(&id, times).await
    }

    async fn repeat(&self, id: &str, times: usize) -> anyhow::Result<Vec<Duration>> {
        let mut all = Vec::with_capacity(times);
        for _ in 0..times {
            all.push(run_once(&self.engine, id).await?);
        }
        Ok(all)
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.engine.stop();
        self.runner.await.context("the runner failed")?;
        Ok(self.engine.store().close().await?)
    }
}

/// Starts a run and waits until its end is durable.
async fn run_once(engine: &Engine, workflow: &str) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let request = Request {
        workflow_id: workflow.to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let (_, ended) = engine.start_and_wait(request, PATIENCE).await?;
    match ended {
        Some(ended) if ended.status == Status::Succeeded => Ok(begin.elapsed()),
        Some(ended) => bail!("a run of {workflow} ended {}: {:?}", ended.status, ended.error),
        None => bail!("a run of {workflow} did not end within {PATIENCE:?}"),
    }
}
