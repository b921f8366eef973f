//! Runs with a concurrency key per second, beside plain runs.
//!
//! Both have three steps that do nothing. Each run with a key has one of 10,000 distinct keys, so it takes a place when it starts and
//! frees it with its last commit, and rarely waits.

use super::{
    PATIENCE,
    load::{Bench, Many, THREE, repeat, three_steps},
    report::{Latency, rounded},
};
use anyhow::ensure;
use fermata_core::Status;
use fermata_runtime::Request;
use serde::Serialize;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

const KEYED: &str = "bench-keyed";
const KEYS: usize = 10_000;

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Keyed {
    runs: usize,
    keys: usize,
    concurrency: usize,
    keyed_runs_per_second: f64,
    plain_runs_per_second: f64,
    ratio: f64,
    #[serde(flatten)]
    latency: Latency,
}

/// Runs `count` runs with keys and as many plain ones, `concurrency` at a time: plain runs before and after.
pub(super) async fn measure(bench: &Bench, count: usize, concurrency: usize) -> anyhow::Result<Keyed> {
    let mut document = three_steps();
    document["id"] = json!(KEYED);
    document["concurrency"] = json!({ "limit": 1, "key": "{{ trigger.key }}" });
    if bench.store().workflow("", KEYED).await?.is_none() {
        bench.publish(&document).await?;
    }
    let half = (count / 2).max(1);
    bench.many(THREE, (count / 10).max(1), concurrency).await?; // warm up
    keyed(bench, (count / 10).max(1), concurrency).await?;
    let before = bench.many(THREE, half, concurrency).await?;
    let mut carried = keyed(bench, count, concurrency).await?;
    let after = bench.many(THREE, half, concurrency).await?;
    let plain = (before.count + after.count) as f64 / (before.took + after.took).as_secs_f64();
    Ok(Keyed {
        runs: count,
        keys: KEYS,
        concurrency,
        keyed_runs_per_second: rounded(carried.per_second()),
        plain_runs_per_second: rounded(plain),
        ratio: rounded(carried.per_second() / plain),
        latency: Latency::of(&mut carried.times),
    })
}

async fn keyed(bench: &Bench, count: usize, concurrency: usize) -> anyhow::Result<Many> {
    let (engine, next) = (bench.engine.clone(), Arc::new(AtomicUsize::new(0)));
    repeat(count, concurrency, move || {
        let (engine, key) = (engine.clone(), next.fetch_add(1, Ordering::Relaxed) % KEYS);
        async move {
            let request = Request {
                workflow_id: KEYED.to_owned(),
                trigger: json!({ "key": key }),
                ..Request::default()
            };
            let (accepted, ended) = engine.start_and_wait(request, PATIENCE).await?;
            let status = ended.map(|ended| ended.status);
            ensure!(status == Some(Status::Succeeded), "{} is {status:?}", accepted.run);
            Ok(())
        }
    })
    .await
}
