//! The cost of telemetry: the main workload without metrics, with them (the default), and with metrics and traces.
//!
//! The three engines run one after the other in many short rounds. The rounds use all orders in turn, and a ratio is the median
//! of the ratios of single rounds. So neither a machine that becomes slower or faster nor the engine that ran before counts.
//! Spans go into a queue that a task empties, as the exporter does.

use super::{
    load::{Bench, THREE, three_steps},
    report::{Telemetry, rounded},
};
use fermata_runtime::{MetricsSettings, Settings, trace::Tracer};
use std::{path::Path, time::Duration};

const ROUNDS: usize = 30;

/// In which order the engines run.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

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
        bench.many(THREE, (workflows / 10).max(1), concurrency).await?; // warm up
        engines.push(bench);
    }
    let each = (workflows / ROUNDS).max(1);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let mut took = [Duration::ZERO; 3];
        for at in ORDERS[round % ORDERS.len()] {
            took[at] = engines[at].many(THREE, each, concurrency).await?.took;
        }
        rounds.push(took);
    }
    for bench in engines {
        bench.close().await?;
    }
    emptying.abort();
    let per_second = |at: usize| {
        let took: Duration = rounds.iter().map(|took| took[at]).sum();
        rounded((each * ROUNDS) as f64 / took.as_secs_f64())
    };
    let ratio = |at: usize| {
        let mut ratios: Vec<f64> = rounds.iter().map(|took| took[0].div_duration_f64(took[at])).collect();
        ratios.sort_by(f64::total_cmp);
        rounded(ratios[ROUNDS / 2])
    };
    Ok(Telemetry {
        workflows: each * ROUNDS,
        concurrency,
        per_second_off: per_second(0),
        per_second_with_metrics: per_second(1),
        per_second_with_traces: per_second(2),
        ratio_metrics: ratio(1),
        ratio_traces: ratio(2),
    })
}
