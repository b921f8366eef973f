//! The lateness of sleepers, and their cost while they sleep.
//!
//! Every run is one durable sleep. All of them are parked before the first is due, and their ends are spread evenly. The lateness of a
//! sleeper is the time from the end that is recorded in its journal to the commit of the run's end. It includes claiming, loading,
//! deciding and the disk.

use super::{
    PATIENCE,
    load::{Bench, repeat, three_steps},
    raw::{self, Sample},
    report::{Latency, Sleepers, rounded, rss_mb},
};
use anyhow::{Context, ensure};
use fermata_core::{Event, NodeId, RunId, Timestamp, decode};
use fermata_runtime::{
    Observer, Request, Settings,
    clock::{Clock, SystemClock},
};
use fermata_store::{Store, reads::Window, runs::Attempt};
use serde_json::json;
use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

const WORKFLOW: &str = "bench-sleep";
/// The number of concurrent starts.
const STARTERS: usize = 64;
/// Finished runs that fill the bounded page cache of the database, so that its growth is not attributed to the sleepers.
const FILLING: usize = 40_000;

/// Parks `sleepers` runs whose ends are spread over `spread`, and observes when they end.
pub(super) async fn measure(
    folder: &Path,
    sample: &Arc<Sample>,
    sleepers: usize,
    spread: Duration,
) -> anyhow::Result<Sleepers> {
    // They are started before the first is due.
    let lead = spread / 3;
    let settings = Settings {
        park_after: (lead / 4).min(Duration::from_secs(1)),
        ..Settings::default()
    };
    let nap = settings.park_after * 2;
    let ends = Arc::new(Ends::default());
    let bench = Bench::with(&folder.join("sleepers.db"), settings, Some(ends.clone()))?;
    let document = json!({
        "id": WORKFLOW, "displayName": "Sleep", "startNode": "sleep",
        "nodes": [{ "id": "sleep", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.ms }}" } }],
    });
    bench.publish(&document).await?;
    bench.publish(&three_steps()).await?;
    raw::write(bench.store(), sample, (sleepers * 4).min(FILLING), STARTERS).await?;
    let warm = (sleepers / 10).max(1);
    let soon = Instant::now() + nap;
    start(&bench, warm, move |_| soon).await?;
    ends.all(warm, nap).await?;

    let rss_before = rss_mb();
    let begin = Instant::now();
    let count = u32::try_from(sleepers).context("so many cannot be started")?;
    start(&bench, sleepers, move |number| begin + lead + spread * number / count).await?;
    while bench.engine.active_runs() > 0 {
        ensure!(
            begin.elapsed() < lead,
            "{sleepers} sleepers cannot be parked within {lead:?} here; take fewer, or a longer --spread"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let parked = begin.elapsed();
    let rss_growth_mb = rounded(rss_mb() - rss_before);
    let woken = ends.all(sleepers, lead + spread).await?;
    let mut late = Vec::with_capacity(sleepers);
    for (run, ended) in woken {
        let due = due(bench.store().as_ref(), run).await?;
        ensure!(ended >= due, "run {run} woke before its time");
        late.push(Duration::from_micros(ended.micros_since(due)));
    }
    bench.close().await?;
    Ok(Sleepers {
        sleepers,
        spread_seconds: rounded(spread.as_secs_f64()),
        parked_after_seconds: rounded(parked.as_secs_f64()),
        max_ms: late.iter().max().map_or(0.0, |late| late.as_micros() as f64 / 1000.0),
        lateness: Latency::of(&mut late),
        rss_growth_mb,
    })
}

/// Starts runs. `end` returns the end of the nth sleep.
async fn start(
    bench: &Bench,
    runs: usize,
    end: impl Fn(u32) -> Instant + Copy + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let engine = bench.engine.clone();
    let numbers = Arc::new(AtomicUsize::new(0));
    let start = move || {
        let (engine, numbers) = (engine.clone(), numbers.clone());
        async move {
            let number = u32::try_from(numbers.fetch_add(1, Ordering::Relaxed))?;
            let pause = end(number).saturating_duration_since(Instant::now());
            let request = Request {
                workflow_id: WORKFLOW.to_owned(),
                trigger: json!({ "ms": pause.as_millis() as u64 }),
                ..Request::default()
            };
            engine.start(request).await?;
            Ok(())
        }
    };
    repeat(runs, STARTERS.min(runs), start).await?;
    Ok(())
}

/// The recorded end of a run's sleep.
async fn due(store: &dyn Store, run: RunId) -> anyhow::Result<Timestamp> {
    let (rows, _) = store.events(run, Window { limit: 10, offset: 0 }).await?;
    for row in rows {
        let slept = |event| match event {
            Event::Slept { until, .. } => Some(until),
            _ => None,
        };
        if let Some(until) = decode(&row.data)?.into_iter().find_map(slept) {
            return Ok(until);
        }
    }
    anyhow::bail!("run {run} did not sleep")
}

/// Collects the ends of runs when they are durable.
#[derive(Default)]
struct Ends {
    seen: Mutex<Vec<(RunId, Timestamp)>>,
    more: Notify,
}

impl Ends {
    fn take(&self, count: usize) -> Option<Vec<(RunId, Timestamp)>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.len() >= count).then(|| std::mem::take(&mut *seen))
    }

    /// Waits for the next `count` ends.
    async fn all(&self, count: usize, expected: Duration) -> anyhow::Result<Vec<(RunId, Timestamp)>> {
        let waiting = async {
            loop {
                let more = self.more.notified();
                if let Some(seen) = self.take(count) {
                    return seen;
                }
                more.await;
            }
        };
        let limit = expected + PATIENCE;
        tokio::time::timeout(limit, waiting)
            .await
            .with_context(|| format!("some sleepers did not wake within {limit:?}"))
    }
}

impl Observer for Ends {
    fn started(&self, _: RunId, _: &NodeId, _: u32) {}

    fn committed(&self, run: RunId, events: &[Event], _: &[Attempt]) {
        if events.iter().any(|event| matches!(event, Event::Ended { .. })) {
            let now = SystemClock.now();
            self.seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((run, now));
            self.more.notify_one();
        }
    }
}
