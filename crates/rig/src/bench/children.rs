//! Parents with an awaited child per second, beside plain runs.
//!
//! A plain run has three steps that do nothing. A pair is a parent of three steps whose middle step starts such a run and waits
//! for its end: two runs, and two commits more than they have alone (the request, and the end of the child).

use super::{
    load::{Bench, THREE},
    report::{Latency, Pairs, rounded},
};
use serde_json::{Value, json};

const PARENT: &str = "bench-parent";

fn parent() -> Value {
    json!({
        "id": PARENT, "displayName": "Parent", "startNode": "first",
        "nodes": [
            { "id": "first", "actionType": "core.echo", "edges": [{ "targetNode": "child" }] },
            { "id": "child", "nodeType": "subworkflow", "workflowId": THREE, "waitForCompletion": true,
              "edges": [{ "targetNode": "third" }] },
            { "id": "third", "actionType": "core.echo" },
        ]
    })
}

/// Runs `pairs` pairs and as many plain runs, `concurrency` at a time: plain runs before and after the pairs.
pub(super) async fn measure(bench: &Bench, pairs: usize, concurrency: usize) -> anyhow::Result<Pairs> {
    let id = bench.publish(&parent()).await?;
    let half = (pairs / 2).max(1);
    bench.many(THREE, (pairs / 10).max(1), concurrency).await?; // warm up
    bench.many(&id, (pairs / 10).max(1), concurrency).await?;
    let before = bench.many(THREE, half, concurrency).await?;
    let mut carried = bench.many(&id, pairs, concurrency).await?;
    let after = bench.many(THREE, half, concurrency).await?;
    let plain = (before.count + after.count) as f64 / (before.took + after.took).as_secs_f64();
    Ok(Pairs {
        pairs,
        concurrency,
        pairs_per_second: rounded(carried.per_second()),
        plain_runs_per_second: rounded(plain),
        ratio: rounded(carried.per_second() / plain),
        latency: Latency::of(&mut carried.times),
    })
}
