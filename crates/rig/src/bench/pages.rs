//! The dashboard: how long its pages take with many runs, how large they are, and what watchers cost the engine.
//!
//! A separate server process reads a file with `--preload` finished runs. Pages are requested one at a time, so a figure is the time of the
//! server and of loopback. For the watchers, the load of the section `http` runs in short rounds, in turn without watchers and
//! with them; the ratio is the median of the ratios of single rounds.

use super::{
    http::{self, Server},
    load::{Bench, fan},
    raw::{self, Sample},
    report::{Latency, PageTime, Pages, rounded},
};
use anyhow::{Context, ensure};
use fermata_runtime::Request;
use futures::future::try_join_all;
use serde_json::json;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};
use tokio::task::JoinHandle;

/// How often each page is requested, unless fewer workflows are run.
const REQUESTS: usize = 200;
const WATCHERS: usize = 200;
const ROUNDS: usize = 10;
const LARGE_GRAPH: usize = 2000;

/// What the list of runs is asked for.
const QUERIES: [(&str, &str); 5] = [
    ("newest", "/"),
    ("foundOften", "/?query=status:succeeded"),
    ("neverFound", "/?query=status:failed"),
    ("pattern", "/?query=workflow:bench-*%20since:24h"),
    ("combined", "/?query=status:failed%20workflow:bench-three%20since:1h"),
];

/// Measures pages with `preload` finished runs, and the load of `workflows` workflows with and without watchers.
pub(super) async fn measure(
    folder: &Path,
    sample: &Arc<Sample>,
    preload: usize,
    workflows: usize,
    concurrency: usize,
) -> anyhow::Result<Pages> {
    let file = folder.join("pages.db");
    let large = prepare(&file, sample, preload).await?;
    let server = Server::start(&file).await?;
    let mut runs = BTreeMap::new();
    let requests = workflows.clamp(1, REQUESTS);
    for (name, query) in QUERIES {
        runs.insert(name, page(&server, query, requests).await?);
    }
    let large_run = page(&server, &large, requests).await?;
    let (without, with, ratio) = watched(&server, workflows, concurrency).await?;
    server.stop().await?;
    Ok(Pages {
        preloaded: preload,
        runs,
        large_run,
        watchers: WATCHERS,
        workflows_per_second: without,
        workflows_per_second_watched: with,
        watched_ratio: ratio,
    })
}

/// Fills the file. Returns the page of a run of a large graph.
async fn prepare(file: &Path, sample: &Arc<Sample>, preload: usize) -> anyhow::Result<String> {
    let bench = Bench::open(file).await?;
    raw::write(bench.store(), sample, preload, 256).await?;
    let request = Request {
        workflow_id: bench.publish(&fan(LARGE_GRAPH - 2)).await?,
        trigger: json!({}),
        ..Request::default()
    };
    let (accepted, ended) = bench.engine.start_and_wait(request, super::PATIENCE).await?;
    ended.context("the run of the large graph did not end")?;
    bench.close().await?;
    Ok(format!("/runs/{}", accepted.run))
}

async fn page(server: &Server, path: &str, requests: usize) -> anyhow::Result<PageTime> {
    let mut times = Vec::with_capacity(requests);
    let mut bytes = 0;
    for _ in 0..requests {
        let begin = Instant::now();
        let request = server.client.get(format!("{}{path}", server.url));
        let answer = request.header("accept", "text/html").send().await?;
        ensure!(
            answer.status() == 200,
            "{path}: the server answered {}",
            answer.status()
        );
        bytes = answer.bytes().await?.len();
        times.push(begin.elapsed());
    }
    Ok(PageTime {
        kilobytes: rounded(bytes as f64 / 1000.0),
        latency: Latency::of(&mut times),
    })
}

/// Workflows per second without and with watchers, and the ratio of the two.
async fn watched(server: &Server, workflows: usize, concurrency: usize) -> anyhow::Result<(f64, f64, f64)> {
    let each = (workflows / ROUNDS).max(1);
    http::load(server, each, concurrency).await?; // warm up
    let (mut without, mut with, mut ratios) = (0.0, 0.0, Vec::new());
    for _ in 0..ROUNDS {
        let alone = http::load(server, each, concurrency).await?.took.as_secs_f64();
        let watchers = try_join_all((0..WATCHERS).map(|_| watch(server))).await?;
        let watched = http::load(server, each, concurrency).await?.took.as_secs_f64();
        ensure!(
            watchers.iter().all(|watcher| !watcher.is_finished()),
            "the stream of a watcher ended"
        );
        watchers.iter().for_each(JoinHandle::abort);
        (without, with) = (without + alone, with + watched);
        ratios.push(alone / watched);
    }
    ratios.sort_by(f64::total_cmp);
    let per_second = |seconds: f64| rounded((each * ROUNDS) as f64 / seconds);
    Ok((per_second(without), per_second(with), rounded(ratios[ROUNDS / 2])))
}

/// Follows the list of all runs, as an open page does, and reads what is sent.
async fn watch(server: &Server) -> anyhow::Result<JoinHandle<()>> {
    let request = server.client.get(format!("{}/api/v1/stream", server.url));
    let mut answer = request.send().await?.error_for_status()?;
    Ok(tokio::spawn(
        async move { while let Ok(Some(_)) = answer.chunk().await {} },
    ))
}
