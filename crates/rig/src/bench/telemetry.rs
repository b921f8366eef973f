//! The cost of telemetry: the main workload without metrics, with them (the default), and with metrics and traces.
//!
//! The three engines run one after the other, several times in changing order, so that a machine that becomes slower or faster
//! affects all of them alike. Spans go into a queue that a task empties, as the exporter does.

use super::{
    load::{Bench, THREE, three_steps},
    report::{Telemetry, rounded},
};
use fermata_runtime::{MetricsSettings, Settings, trace::Tracer};
use std::{path::Path, time::Duration};

const ROUNDS: usize = 6;

/// Runs `workflows` workflows with each engine, `concurrency` at a time.
pub(super) async fn measure(folder: &Path, workflows: usize, concurrency: usize) -> anyhow::Result<Telemetry> {
    let metrics = |enabled| MetricsSettings {
        enabled,
        ..MetricsSettings::default()
    };
    let (tracer, mut spans) = Tracer::new(16_384, 1.0);
    let emptying = tokio::spawn(async move {
        let mut batch = Vec::new();
        while spans.recv_many(&mut batch, 512).await > 0 {
            batch.clear();
        }
    });
    let variants = [
        ("off", metrics(false), None),
        ("metrics", metrics(true), None),
        ("traces", metrics(true), Some(tracer)),
    ];
    let mut engines = Vec::new();
    for (name, metrics, tracer) in variants {
        let settings = Settings {
            metrics,
            tracer,
            ..Settings::default()
        };
        let bench = Bench::with(&folder.join(format!("telemetry-{name}.db")), settings, None)?;
        bench.publish(&three_steps()).await?;
        let each = (workflows / ROUNDS).max(1);
        bench.many(THREE, each, concurrency).await?; // warm up
        engines.push((bench, Duration::ZERO));
    }
    let each = (workflows / ROUNDS).max(1);
    for round in 0..ROUNDS {
        let count = engines.len();
        for turn in 0..count {
            let (bench, took) = &mut engines[(round + turn) % count];
            *took += bench.many(THREE, each, concurrency).await?.took;
        }
    }
    let mut per_second = [0.0; 3];
    for (rate, (bench, took)) in per_second.iter_mut().zip(engines) {
        *rate = (each * ROUNDS) as f64 / took.as_secs_f64();
        bench.close().await?;
    }
    emptying.abort();
    let [off, metrics, traces] = per_second;
    Ok(Telemetry {
        workflows: each * ROUNDS,
        concurrency,
        per_second_off: rounded(off),
        per_second_with_metrics: rounded(metrics),
        per_second_with_traces: rounded(traces),
        ratio_metrics: rounded(metrics / off),
        ratio_traces: rounded(traces / off),
    })
}
