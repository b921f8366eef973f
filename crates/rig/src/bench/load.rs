//! Load on a real engine and store.

use super::PATIENCE;
use anyhow::{Context, bail};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Observer, Request, Settings,
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

/// The workflow of the main section.
pub(super) const THREE: &str = "bench-three";

/// Three steps in sequence that do nothing.
pub(super) fn three_steps() -> Value {
    json!({
        "id": THREE, "displayName": "Three steps", "startNode": "first",
        "nodes": [
            { "id": "first", "actionType": "core.echo", "edges": [{ "targetNode": "second" }] },
            { "id": "second", "actionType": "core.echo", "edges": [{ "targetNode": "third" }] },
            { "id": "third", "actionType": "core.echo" },
        ]
    })
}

/// A node, `width` nodes after it, and one after all of them.
pub(super) fn fan(width: usize) -> Value {
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

/// The duration of many workflows or other operations.
pub(super) struct Many {
    pub count: usize,
    pub took: Duration,
    pub times: Vec<Duration>,
}

impl Many {
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }
}

/// An engine under load.
pub(super) struct Bench {
    pub engine: Engine,
    store: Arc<dyn Store>,
    runner: JoinHandle<()>,
}

impl Bench {
    /// An engine with default settings on a file, with the three steps published.
    pub async fn open(path: &Path) -> anyhow::Result<Bench> {
        let mut settings = Settings::default();
        settings.dialects.max_nodes = 10_000;
        let bench = Bench::with(path, settings, None)?;
        bench.publish(&three_steps()).await?;
        Ok(bench)
    }

    /// An engine on a file.
    pub fn with(path: &Path, settings: Settings, observer: Option<Arc<dyn Observer>>) -> anyhow::Result<Bench> {
        Bench::on(Arc::new(SqliteStore::open(path)?), settings, observer)
    }

    /// An engine on a store. Its actions may call loopback addresses.
    pub fn on(store: Arc<dyn Store>, settings: Settings, observer: Option<Arc<dyn Observer>>) -> anyhow::Result<Bench> {
        let http = HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        };
        let registry = Registry::builtin(&http)?;
        let engine = Engine::with_observer(store.clone(), registry, settings, Arc::new(SystemClock), observer);
        let working = engine.clone();
        let runner = tokio::spawn(async move { working.run().await });
        Ok(Bench { engine, store, runner })
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Publishes a document once the engine has a runner. Returns its id.
    pub async fn publish(&self, document: &Value) -> anyhow::Result<String> {
        self.engine.ready().await;
        let saved = self
            .engine
            .workflows()
            .save(document.to_string().as_bytes(), "bench")
            .await?;
        self.engine.workflows().publish(&saved.workflow.id, true).await?;
        Ok(saved.workflow.id)
    }

    /// `workflows` runs of the workflow `id`, `concurrency` at a time.
    pub async fn many(&self, id: &str, workflows: usize, concurrency: usize) -> anyhow::Result<Many> {
        let engine = self.engine.clone();
        let workflow: Arc<str> = id.into();
        repeat(workflows, concurrency, move || {
            let (engine, workflow) = (engine.clone(), workflow.clone());
            async move { run_once(&engine, &workflow).await.map(drop) }
        })
        .await
    }

    pub async fn one_at_a_time(&self, workflows: usize) -> anyhow::Result<Vec<Duration>> {
        self.in_turn(THREE, workflows).await
    }

    /// A fan-out of `width` and a join, `times` times, one at a time.
    pub async fn fan_out(&self, width: usize, times: usize) -> anyhow::Result<Vec<Duration>> {
        let id = self.publish(&fan(width)).await?;
        run_once(&self.engine, &id).await?;
        self.in_turn(&id, times).await
    }

    async fn in_turn(&self, id: &str, times: usize) -> anyhow::Result<Vec<Duration>> {
        let mut all = Vec::with_capacity(times);
        for _ in 0..times {
            all.push(run_once(&self.engine, id).await?);
        }
        Ok(all)
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.engine.stop();
        self.runner.await.context("the runner failed")?;
        Ok(self.store.close().await?)
    }
}

/// Calls `work` `times` times, `concurrency` at a time.
pub(super) async fn repeat<F>(
    times: usize,
    concurrency: usize,
    work: impl Fn() -> F + Clone + Send + 'static,
) -> anyhow::Result<Many>
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let left = Arc::new(AtomicUsize::new(times));
    let begin = Instant::now();
    let workers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (left, work) = (left.clone(), work.clone());
            tokio::spawn(async move {
                let mut all = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let begin = Instant::now();
                    work().await?;
                    all.push(begin.elapsed());
                }
                anyhow::Ok(all)
            })
        })
        .collect();
    let mut all = Vec::with_capacity(times);
    for worker in workers {
        all.extend(worker.await??);
    }
    Ok(Many {
        count: times,
        took: begin.elapsed(),
        times: all,
    })
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
