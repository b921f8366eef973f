//! The memory of a runner process while many runs are parked and some are active.
//!
//! Parked runs sleep in the database. An active run waits for the response to a request, which is sent after the measurement.

use super::{
    super::{
        Options, PATIENCE,
        load::Bench,
        report::rss_mb_of,
        worker::{Order, Worker, one_step},
    },
    known,
};
use anyhow::ensure;
use axum::{Router, extract::State, routing::post};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, sync::watch};

/// Much longer than the benchmark.
const SLEEP: Duration = Duration::from_secs(1800);
/// A sleeping run is parked after this time.
const PARK_AFTER: Duration = Duration::from_secs(1);
const STARTERS: usize = 256;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    parked: usize,
    active: usize,
    /// Of the runner process before the first run.
    idle_mb: f64,
    /// When all sleepers are parked.
    parked_mb: f64,
    /// With the active runs in addition.
    active_mb: f64,
}

/// Holds requests until it may respond.
#[derive(Clone)]
struct Service {
    open: Arc<AtomicUsize>,
    may: watch::Receiver<bool>,
}

async fn held(State(mut service): State<Service>) {
    service.open.fetch_add(1, Ordering::Relaxed);
    let _ = service.may.wait_for(|may| *may).await;
}

pub(super) async fn measure(api: &Bench, url: &str, options: &Options) -> anyhow::Result<Memory> {
    let (parked, active) = (options.parked.max(1), options.active.max(1));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/", listener.local_addr()?);
    let (allow, may) = watch::channel(false);
    let service = Service {
        open: Arc::default(),
        may,
    };
    let app = Router::new().route("/", post(held)).with_state(service.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let sleep = one_step(
        "bench-sleep",
        "core.delay",
        &json!({ "durationMs": SLEEP.as_millis() as u64 }),
    );
    let request = json!({ "method": "POST", "url": "{{ trigger.url }}" });
    let call = one_step("bench-hold", "http.request", &request);
    let (sleep, call) = (known(api, &sleep).await?, known(api, &call).await?);
    let trigger = json!({ "url": address });

    let mut worker = Worker::start(Order::Open {
        url: url.to_owned(),
        committers: options.committers,
        parallel: active,
        park_after: PARK_AFTER,
    })
    .await?;
    let pid = worker.pid()?;
    let idle_mb = rss_mb_of(&pid);
    start(&mut worker, sleep, &trigger, parked).await?;
    until(Duration::from_secs(600), async || Ok(worker.held().await? == 0)).await?;
    let parked_mb = rss_mb_of(&pid);
    start(&mut worker, call, &trigger, active).await?;
    until(PATIENCE, async || Ok(service.open.load(Ordering::Relaxed) == active)).await?;
    // A parked run may be held for a moment.
    until(PATIENCE, async || Ok(worker.held().await? == active)).await?;
    let active_mb = rss_mb_of(&pid);
    let _ = allow.send(true);
    until(PATIENCE, async || Ok(worker.held().await? == 0)).await?;
    worker.stop().await?;
    serving.abort();
    Ok(Memory {
        parked,
        active,
        idle_mb,
        parked_mb,
        active_mb,
    })
}

async fn start(worker: &mut Worker, workflow: String, trigger: &Value, runs: usize) -> anyhow::Result<()> {
    let order = Order::Start {
        workflow,
        trigger: trigger.clone(),
        runs,
        concurrency: STARTERS,
    };
    worker.obey(order).await
}

async fn until(limit: Duration, mut done: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !done().await? {
        ensure!(begun.elapsed() < limit, "it is not done after {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
