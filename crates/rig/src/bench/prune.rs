//! What pruning costs the runs that are executed meanwhile.
//!
//! The file is filled with finished runs. The same load is measured without pruning, while the engine's own pruning removes a
//! tenth of the finished runs at its own pace, and without pruning again. The ratio is the throughput during the pruning to the
//! mean of the other two.

use super::{
    load::{Bench, THREE},
    raw::{self, Sample},
    report::{Prune, rounded},
};
use anyhow::Context;
use fermata_runtime::{
    clock::{Clock, SystemClock},
    retention::{Pace, prune},
};
use fermata_store::retention::{Ages, Retention};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Fills a file in `folder` with `preload` finished runs, and prunes some of them under a load of at least `workflows`
/// workflows.
pub(super) async fn measure(
    folder: &Path,
    sample: &Arc<Sample>,
    preload: usize,
    workflows: usize,
    concurrency: usize,
) -> anyhow::Result<Prune> {
    let bench = Bench::open(&folder.join("prune.db")).await?;
    raw::write(bench.store(), sample, preload, 256).await?;
    // Only what ended before this is removed, so none of the load.
    let now = SystemClock.now();
    let retention = Arc::new(Retention {
        ages: Ages {
            succeeded: Some(Duration::ZERO),
            ..Ages::default()
        },
        ..Retention::default()
    });
    bench.many(THREE, (workflows / 4).max(1), concurrency).await?;
    let before = bench.many(THREE, workflows, concurrency).await?.per_second();

    let (store, began) = (bench.store().clone(), Instant::now());
    let most = (preload / 10).max(1) as u64;
    let pruning = tokio::spawn(async move {
        let removed = prune(store.as_ref(), &retention, now, Pace::Gentle, most).await;
        (removed, began.elapsed())
    });
    let (mut carried, mut took) = (0, Duration::ZERO);
    while !pruning.is_finished() {
        let part = bench.many(THREE, (workflows / 10).max(1), concurrency).await?;
        carried += part.count;
        took += part.took;
    }
    let (removed, pruning_took) = pruning.await.context("pruning panicked")?;
    let removed = removed?.runs;

    let after = bench.many(THREE, workflows, concurrency).await?.per_second();
    bench.close().await?;
    let (without, with) = ((before + after) / 2.0, carried as f64 / took.as_secs_f64());
    Ok(Prune {
        preloaded: preload,
        removed,
        removed_per_second: rounded(removed as f64 / pruning_took.as_secs_f64()),
        workflows_per_second: rounded(with),
        workflows_per_second_without: rounded(without),
        ratio: rounded(with / without),
    })
}
