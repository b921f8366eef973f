//! Runner processes that share a PostgreSQL database.
//!
//! Each runner is a separate process (`worker.rs`) with the default engine and store. The raw limit is the same rows, written by as
//! many connections as a runner has for commits, in `unnest` batches of all runs in flight, with nothing locked, read or decided:
//! step by step, as durable as an engine must be, and for comparison with all rows of a run at once. Machines are noisy: each
//! measurement is repeated, and the median counts.

mod memory;

use super::{
    Options, Target,
    flow::{self, Keyed},
    load::{Bench, Many, three_steps},
    raw::{self, Sample},
    report::{Latency, rounded},
    triggers::{self, Triggered},
    worker::{Order, Worker, begin},
};
use anyhow::{Context, ensure};
use fermata_core::{RunnerId, Status};
use fermata_runtime::{Role, Settings};
use fermata_store::{
    Store,
    cluster::Cluster,
    definitions::WorkflowFilter,
    postgres::{
        PostgresSettings, PostgresStore,
        raw::{Pace, RawWriter, Script},
    },
    reads::RunFilter,
};
use memory::Memory;
use serde::Serialize;
use serde_json::Value;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use uuid::Uuid;

/// How often each measurement is repeated.
const ROUNDS: usize = 3;
/// Options of the benchmark's own server. It stays fully durable.
const OPTIONS: [&str; 2] = ["shared_buffers=512MB", "max_wal_size=4GB"];

/// The results.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Postgres {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    runners: Option<Runners>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts: Option<Starts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<Keyed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    triggers: Option<Triggered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Runners {
    raw_workflows_per_second: f64,
    /// With all rows of a run in one transaction, which an engine with durable steps cannot do.
    raw_at_once_workflows_per_second: f64,
    one_runner: Carried,
    /// With the same number of runs in flight in all of them together.
    three_runners: Carried,
    /// With that number of runs in flight in each of them.
    three_runners_with_thrice_the_load: Carried,
    /// The throughput of three runners relative to one.
    more_runners: f64,
}

/// The throughput of some runners together.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Carried {
    workflows_per_second: f64,
    /// Relative to the raw limit.
    ratio: f64,
    ratio_at_once: f64,
    #[serde(flatten)]
    latency: Latency,
}

/// The time from the request to the start of the first step, on an idle system.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Starts {
    /// In a process that accepts requests and works on runs.
    same_process: Latency,
    /// Accepted by one process, executed by another.
    other_process: Latency,
}

/// Measures the requested sections, on the given database or on a server of its own.
pub(super) async fn measure(options: &Options) -> anyhow::Result<Postgres> {
    let (url, server) = match &options.target {
        Target::Postgres(url) => (url.clone(), None),
        _ => {
            options.report_progress("starting a PostgreSQL server");
            let root = options.dir.clone().unwrap_or_else(std::env::temp_dir);
            let server = tokio::task::spawn_blocking(move || Cluster::create(&root, true, &OPTIONS)).await??;
            (server.url("postgres"), Some(server))
        }
    };
    let measured = measure_at(options, &url).await;
    // Dropping it blocks until the server has ended.
    tokio::task::spawn_blocking(move || drop(server)).await?;
    measured
}

async fn measure_at(options: &Options, url: &str) -> anyhow::Result<Postgres> {
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(url, PostgresSettings::default()).await?);
    refuse_foreign(store.as_ref()).await?;
    let settings = Settings {
        role: Role::Api,
        ..Settings::default()
    };
    let api = Bench::on(store, settings, None)?;
    known(&api, &three_steps()).await?;
    let mut measured = Postgres::default();
    if options.wants("runners") {
        measured.runners = Some(runners(options, url).await?);
    }
    if options.wants("starts") {
        options.report_progress("how soon the first step starts");
        measured.starts = Some(starts(&api, url, options).await?);
    }
    if options.wants("flow") {
        options.report_progress(&format!("{} runs with concurrency keys", options.workflows));
        let bench = Bench::on(connected(options, url).await?, Settings::default(), None)?;
        measured.flow = Some(flow::measure(&bench, options.workflows.max(1), options.concurrency).await?);
        bench.close().await?;
    }
    if options.wants("triggers") {
        measured.triggers = Some(triggers::measure(connected(options, url).await?, options).await?);
    }
    if options.wants("memory") {
        options.report_progress(&format!("{} parked and {} active runs", options.parked, options.active));
        measured.memory = Some(memory::measure(&api, url, options).await?);
    }
    api.close().await?;
    Ok(measured)
}

/// The database, for an engine of this process that works.
async fn connected(options: &Options, url: &str) -> anyhow::Result<Arc<dyn Store>> {
    let settings = PostgresSettings {
        committers: options.committers,
        ..PostgresSettings::default()
    };
    Ok(Arc::new(PostgresStore::connect(url, settings).await?))
}

/// Publishes a document, unless an earlier benchmark has. Returns its id.
async fn known(api: &Bench, document: &Value) -> anyhow::Result<String> {
    let id = document["id"].as_str().context("a document without an id")?;
    match api.store().workflow("", id).await? {
        Some(workflow) => Ok(workflow.id),
        None => api.publish(document).await,
    }
}

/// Refuses a database that others use: the benchmark leaves its runs behind, and runs of others would be executed during the
/// measurement.
async fn refuse_foreign(store: &dyn Store) -> anyhow::Result<()> {
    let all = WorkflowFilter {
        limit: 100,
        ..WorkflowFilter::default()
    };
    let foreign = store.workflows(all).await?.items;
    let foreign = foreign.iter().find(|workflow| !workflow.id.starts_with("bench-"));
    let own = "name a database of its own (`createdb fermata_bench`)";
    if let Some(workflow) = foreign {
        anyhow::bail!("this database has a workflow `{}`; {own}", workflow.id);
    }
    let living = RunFilter {
        statuses: vec![Status::Pending, Status::Running],
        limit: 1,
        ..RunFilter::default()
    };
    let living = store.runs(living).await?.items;
    ensure!(living.is_empty(), "runs of this database are not over; {own}");
    Ok(())
}

async fn crew(url: &str, count: usize, committers: usize) -> anyhow::Result<Vec<Worker>> {
    let settings = Settings::default();
    let mut crew = Vec::new();
    for _ in 0..count {
        let open = Order::Open {
            url: url.to_owned(),
            committers,
            parallel: settings.max_parallel_actions,
            park_after: settings.park_after,
        };
        crew.push(Worker::start(open).await?);
    }
    Ok(crew)
}

async fn runners(options: &Options, url: &str) -> anyhow::Result<Runners> {
    let sample = raw::sample().await?;
    let (runs, concurrency) = (options.workflows.max(3), options.concurrency.max(3));
    let raw_limit = async |runs, pace| raw_limit(url, &sample, runs, options, pace).await;
    let carry = async |processes, runs, concurrency| {
        let crew = crew(url, processes, options.committers).await?;
        carry(crew, runs, concurrency).await
    };
    raw_limit(runs / 4 + 1, Pace::StepByStep).await?; // warm up
    let (mut raw, mut at_once) = (Vec::new(), Vec::new());
    let (mut one, mut three, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        options.report_progress(&format!("round {round}: the raw limit of {runs} workflows"));
        raw.push(raw_limit(runs, Pace::StepByStep).await?);
        at_once.push(raw_limit(runs, Pace::AtOnce).await?);
        options.report_progress(&format!("round {round}: one runner"));
        one.push(carry(1, runs, concurrency).await?);
        options.report_progress(&format!("round {round}: three runners"));
        three.push(carry(3, runs, concurrency).await?);
        more.push(carry(3, runs, concurrency * 3).await?);
    }
    let (raw, at_once) = (middle(raw), middle(at_once));
    let (one, three) = (carried(one, raw, at_once)?, carried(three, raw, at_once)?);
    Ok(Runners {
        raw_workflows_per_second: rounded(raw),
        raw_at_once_workflows_per_second: rounded(at_once),
        more_runners: rounded(three.workflows_per_second / one.workflows_per_second),
        one_runner: one,
        three_runners: three,
        three_runners_with_thrice_the_load: carried(more, raw, at_once)?,
    })
}

fn middle(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn carried(mut rounds: Vec<Many>, raw: f64, at_once: f64) -> anyhow::Result<Carried> {
    rounds.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    let mut many = rounds.into_iter().nth(ROUNDS / 2).context("nothing was measured")?;
    Ok(Carried {
        workflows_per_second: rounded(many.per_second()),
        ratio: rounded(many.per_second() / raw),
        ratio_at_once: rounded(many.per_second() / at_once),
        latency: Latency::of(&mut many.times),
    })
}

/// `runs` runs by these processes, `concurrency` at a time in all of them together.
async fn carry(mut crew: Vec<Worker>, runs: usize, concurrency: usize) -> anyhow::Result<Many> {
    let processes = crew.len();
    let share = |all: usize, at: usize| all / processes + usize::from(at < all % processes);
    together(&mut crew, |at| Order::Carry {
        runs: share(runs / 10 + processes, at),
        concurrency: share(concurrency, at),
    })
    .await?;
    let carried = together(&mut crew, |at| Order::Carry {
        runs: share(runs, at),
        concurrency: share(concurrency, at),
    })
    .await?;
    for worker in crew {
        worker.stop().await?;
    }
    Ok(carried)
}

/// Sends an order to all workers and waits for all of them.
async fn together(crew: &mut [Worker], order: impl Fn(usize) -> Order) -> anyhow::Result<Many> {
    let all = crew.iter_mut().enumerate().map(|(at, worker)| worker.took(order(at)));
    let all = futures::future::try_join_all(all).await?;
    Ok(Many {
        count: all.iter().map(|many| many.count).sum(),
        took: all.iter().map(|many| many.took).max().unwrap_or_default(),
        times: all.into_iter().flat_map(|many| many.times).collect(),
    })
}

/// Runs per second whose rows the server commits.
async fn raw_limit(url: &str, sample: &Arc<Sample>, runs: usize, options: &Options, pace: Pace) -> anyhow::Result<f64> {
    let writers = options.committers.max(1);
    let size = (options.concurrency / writers).max(1);
    let script = Arc::new(Script::new(&sample.new_run, &sample.commits));
    let left = Arc::new(AtomicUsize::new(runs));
    let mut connections = Vec::new();
    for _ in 0..writers {
        connections.push(RawWriter::connect(url).await?);
    }
    let begun = Instant::now();
    let tasks = connections.into_iter().map(|mut writer| {
        let (left, script, sample) = (left.clone(), script.clone(), sample.clone());
        tokio::spawn(async move {
            loop {
                let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    Some(left.saturating_sub(size))
                });
                let count = before.unwrap_or(0).min(size);
                if count == 0 {
                    return anyhow::Ok(());
                }
                let runs: Vec<_> = (0..count)
                    .map(|_| sample.copy(RunnerId(Uuid::nil()), sample.new_run.workflow_uid))
                    .collect();
                writer.write(&runs, &script, pace).await?;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(runs as f64 / begun.elapsed().as_secs_f64())
}

async fn starts(api: &Bench, url: &str, options: &Options) -> anyhow::Result<Starts> {
    let runs = options.workflows.clamp(1, 500);
    let mut worker = crew(url, 1, options.committers).await?.pop().context("no worker")?;
    worker.took(Order::Begin { runs: runs / 10 + 1 }).await?;
    let mut same = worker.took(Order::Begin { runs }).await?;
    begin(&api.engine, runs / 10 + 1).await?;
    let mut other = begin(&api.engine, runs).await?;
    worker.stop().await?;
    Ok(Starts {
        same_process: Latency::of(&mut same.times),
        other_process: Latency::of(&mut other.times),
    })
}
