//! The inbox as a task queue: claims and answers per second, and a long chain of tasks over a large state.

use super::{
    PATIENCE,
    load::{Bench, repeat},
    report::{Chain, Claims, Latency, rounded},
};
use anyhow::{Context, bail, ensure};
use fermata_core::{RunId, Status};
use fermata_runtime::{
    Engine, Request, Settings,
    inbox::{Given, Reply, Task, TaskClaim},
};
use fermata_store::inbox::{ItemFilter, ItemStatus, WaitRef};
use serde_json::{Map, Value, json};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How many workers share the queue.
const WORKERS: usize = 8;
const QUEUE: &str = "bench";

/// The tasks of the chain, and the size of the state that it starts with.
const CHAIN: usize = 1000;
const STATE_BYTES: usize = 100 * 1024;
/// The first and the last tasks of the chain are compared, this many of each.
const COMPARED: usize = 100;

/// `tasks` runs that each wait for one task; the tasks are claimed one at a time by eight workers, then completed.
pub(super) async fn claims(folder: &Path, tasks: usize) -> anyhow::Result<Claims> {
    let bench = Bench::with(&folder.join("claims.db"), Settings::default(), None)?;
    publish(&bench, document("bench-task", 1)).await?;
    let engine = bench.engine.clone();
    let start = move || {
        let engine = engine.clone();
        async move { start(&engine, "bench-task", json!({ "order": 7 })).await.map(drop) }
    };
    repeat(tasks, 256.min(tasks), start).await?;
    offered(&bench.engine, tasks).await?;

    let claimed: Arc<Mutex<Vec<Task>>> = Arc::default();
    let (engine, kept) = (bench.engine.clone(), claimed.clone());
    let claim = move || {
        let (engine, kept) = (engine.clone(), kept.clone());
        async move {
            let task = claim(&engine, Duration::ZERO).await?;
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            Ok(())
        }
    };
    let mut claims = repeat(tasks, WORKERS, claim).await?;

    let engine = bench.engine.clone();
    let complete = move || {
        let (engine, claimed) = (engine.clone(), claimed.clone());
        async move {
            let task = claimed.lock().unwrap_or_else(PoisonError::into_inner).pop();
            complete(
                &engine,
                &task.context("a task was claimed twice")?,
                json!({ "done": true }),
            )
            .await
        }
    };
    let completions = repeat(tasks, WORKERS, complete).await?;
    bench.close().await?;
    Ok(Claims {
        tasks,
        workers: WORKERS,
        claims_per_second: rounded(claims.per_second()),
        completions_per_second: rounded(completions.per_second()),
        latency: Latency::of(&mut claims.times),
    })
}

/// One run of a thousand tasks, which one worker does one after the other. Each adds a member to the state.
pub(super) async fn chain(folder: &Path) -> anyhow::Result<Chain> {
    let mut settings = Settings::default();
    settings.dialects.max_nodes = CHAIN;
    let bench = Bench::with(&folder.join("chain.db"), settings, None)?;
    publish(&bench, document("bench-chain", CHAIN)).await?;
    let state = json!({ "text": "x".repeat(STATE_BYTES) });
    let run = start(&bench.engine, "bench-chain", state).await?;
    let mut times = Vec::with_capacity(CHAIN);
    let began = Instant::now();
    for number in 0..CHAIN {
        let began = Instant::now();
        let task = claim(&bench.engine, PATIENCE).await?;
        let members = task.state.as_object().map_or(0, Map::len);
        ensure!(
            members == number + 1,
            "task {number} sees {members} members of the state"
        );
        complete(&bench.engine, &task, json!({ format!("member{number}"): number })).await?;
        times.push(began.elapsed());
    }
    let took = began.elapsed();
    let ended = bench.engine.wait(run, PATIENCE).await?;
    let status = ended.map(|ended| ended.status);
    ensure!(status == Some(Status::Succeeded), "the chain ended as {status:?}");
    bench.close().await?;
    let mean = |times: &[Duration]| {
        let all: Duration = times.iter().sum();
        all.as_secs_f64() * 1000.0 / times.len().max(1) as f64
    };
    let (first, last) = (mean(&times[..COMPARED]), mean(&times[CHAIN - COMPARED..]));
    Ok(Chain {
        tasks: CHAIN,
        state_bytes: STATE_BYTES,
        took_ms: rounded(took.as_secs_f64() * 1000.0),
        first_tasks_ms: rounded(first),
        last_tasks_ms: rounded(last),
        factor: rounded(last / first),
    })
}

/// A document of tasks in sequence, which workers do.
fn document(id: &str, tasks: usize) -> Value {
    let name = |at: usize| format!("task-{at}");
    let executor = json!({ "type": "callback", "config": { "queue": QUEUE } });
    let nodes = (0..tasks).map(|at| json!({ "id": name(at), "type": "task", "executor": executor }));
    let edges = (1..tasks).map(|at| json!({ "from": name(at - 1), "to": name(at) }));
    json!({
        "workflow_id": id, "name": id, "version": "1.0.0",
        "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
    })
}

async fn publish(bench: &Bench, document: Value) -> anyhow::Result<()> {
    bench.engine.ready().await;
    let workflows = bench.engine.workflows();
    workflows.add(document.to_string().as_bytes(), "bench").await?;
    Ok(())
}

async fn start(engine: &Engine, workflow: &str, trigger: Value) -> anyhow::Result<RunId> {
    let request = Request {
        workflow_id: workflow.to_owned(),
        trigger,
        ..Request::default()
    };
    Ok(engine.start(request).await?.run)
}

/// Returns when this many items are pending.
async fn offered(engine: &Engine, tasks: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let (mut found, mut after) = (0, None);
        loop {
            let filter = ItemFilter {
                status: Some(ItemStatus::Pending),
                queue: Some(QUEUE.to_owned()),
                after,
                limit: 1000,
                ..ItemFilter::default()
            };
            let page = engine.inbox().list(filter).await?;
            found += page.items.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if found >= tasks {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE * 10,
            "only {found} of {tasks} tasks are in the inbox"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn claim(engine: &Engine, wait: Duration) -> anyhow::Result<Task> {
    let claim = TaskClaim {
        queue: QUEUE.to_owned(),
        tenant: None,
        worker: "bench".to_owned(),
        limit: 1,
        lease: Duration::from_secs(3600),
        wait,
    };
    let mut tasks = engine.inbox().claim(claim).await?;
    tasks.pop().context("no task could be claimed")
}

async fn complete(engine: &Engine, task: &Task, state: Value) -> anyhow::Result<()> {
    let reply = Reply {
        of: WaitRef::Item(task.item.item.id),
        lease: task.item.lease.as_ref().map(|lease| lease.id),
        tenant: None,
        payload: json!({ "state": state }),
        is_json: true,
        by: None,
    };
    match engine.inbox().answer(reply).await? {
        Given::Accepted { .. } => Ok(()),
        other => bail!("the answer to a task was not accepted: {other:?}"),
    }
}
