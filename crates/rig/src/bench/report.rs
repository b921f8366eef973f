//! The figures, as JSON.

use super::{Options, flow::Keyed, load::Many, postgres::Postgres, triggers::Triggered};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, time::Duration};

/// All figures.
pub(super) struct Report {
    workflows: usize,
    concurrency: usize,
    preload: usize,
    pub raw_per_second: f64,
    pub main: Option<Many>,
    pub rss_mb: f64,
    pub rss_growth_mb: f64,
    pub one_at_a_time: Option<Latency>,
    pub fan_out: Option<FanOut>,
    pub large: Option<Large>,
    pub children: Option<Pairs>,
    pub flow: Option<Keyed>,
    pub claims: Option<Claims>,
    pub chain: Option<Chain>,
    pub triggers: Option<Triggered>,
    pub conditions: Option<Conditions>,
    pub http: Option<Http>,
    pub http_steps: Option<HttpSteps>,
    pub sleepers: Option<Sleepers>,
    pub prune: Option<Prune>,
    pub telemetry: Option<Telemetry>,
    pub pages: Option<Pages>,
    pub postgres: Option<Postgres>,
}

/// The latency of single workflows.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Latency {
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

impl Latency {
    pub fn of(times: &mut [Duration]) -> Latency {
        times.sort_unstable();
        let at = |part: f64| {
            let place = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len().max(1)) - 1;
            // Rounded to microseconds.
            times.get(place).map_or(0.0, |time| time.as_micros() as f64 / 1000.0)
        };
        Latency {
            p50_ms: at(0.50),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct FanOut {
    pub width: usize,
    #[serde(flatten)]
    pub latency: Latency,
}

/// Large graphs: the cost of twice as many nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Large {
    nodes_1000_ms: f64,
    nodes_2000_ms: f64,
    factor: f64,
}

impl Large {
    pub fn of(small: &mut [Duration], large: &mut [Duration]) -> Large {
        let (small, large) = (Latency::of(small).p50_ms, Latency::of(large).p50_ms);
        Large {
            nodes_1000_ms: small,
            nodes_2000_ms: large,
            factor: rounded(large / small),
        }
    }
}

/// Parents that wait for a child, beside plain runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pairs {
    pub pairs: usize,
    pub concurrency: usize,
    pub pairs_per_second: f64,
    pub plain_runs_per_second: f64,
    pub ratio: f64,
    /// Of whole pairs.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Tasks of the inbox.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claims {
    pub tasks: usize,
    pub workers: usize,
    /// Each claim takes one task and returns its state.
    pub claims_per_second: f64,
    /// Each completion is durable. The runs end meanwhile.
    pub completions_per_second: f64,
    /// Of the claims.
    #[serde(flatten)]
    pub latency: Latency,
}

/// A long chain of tasks, each claimed and completed after the one before.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chain {
    pub tasks: usize,
    pub state_bytes: usize,
    pub took_ms: f64,
    /// The mean of the first hundred tasks,
    pub first_tasks_ms: f64,
    /// and of the last hundred.
    pub last_tasks_ms: f64,
    pub factor: f64,
}

/// The cost of evaluating one condition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Conditions {
    pub native_ns: f64,
    pub sandbox_us: f64,
}

/// The workload against a server process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Http {
    pub workflows: usize,
    pub concurrency: usize,
    pub workflows_per_second: f64,
    #[serde(flatten)]
    pub latency: Latency,
    /// From the start of the process to the first response of `/health/ready`.
    pub ready_ms: f64,
    /// The memory of the server before the first workflow.
    pub idle_rss_mb: f64,
    /// The memory of the server after the last workflow.
    pub rss_mb: f64,
}

/// HTTP steps, relative to the HTTP client alone.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HttpSteps {
    /// What the figures compare.
    pub compared: &'static str,
    pub workflows: usize,
    pub concurrency: usize,
    pub steps_per_second: f64,
    pub raw_requests_per_second: f64,
    pub ratio: f64,
    /// Of whole workflows.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Throughput while finished runs are removed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prune {
    /// Finished runs in the file.
    pub preloaded: usize,
    /// How many of them were removed.
    pub removed: u64,
    pub removed_per_second: f64,
    /// While they were removed,
    pub workflows_per_second: f64,
    /// and before and after.
    pub workflows_per_second_without: f64,
    pub ratio: f64,
}

/// The cost of telemetry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Telemetry {
    pub workflows: usize,
    pub concurrency: usize,
    pub per_second_off: f64,
    /// The default.
    pub per_second_with_metrics: f64,
    pub per_second_with_traces: f64,
    /// Relative to `off`.
    pub ratio_metrics: f64,
    pub ratio_traces: f64,
}

/// The dashboard with many runs, and the throughput with watchers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pages {
    /// Finished runs in the file.
    pub preloaded: usize,
    /// Pages of the list of runs, by what was asked for.
    pub runs: BTreeMap<&'static str, PageTime>,
    /// The page of a run of a graph with 2,000 nodes.
    pub large_run: PageTime,
    pub watchers: usize,
    /// Without watchers,
    pub workflows_per_second: f64,
    /// and with them.
    pub workflows_per_second_watched: f64,
    pub watched_ratio: f64,
}

/// The time of a page, and its size without scripts and styles.
#[derive(Debug, Serialize)]
pub(super) struct PageTime {
    pub kilobytes: f64,
    #[serde(flatten)]
    pub latency: Latency,
}

/// The lateness of sleepers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sleepers {
    pub sleepers: usize,
    /// The time over which their ends were spread.
    pub spread_seconds: f64,
    /// The time until all were stored and had left memory.
    pub parked_after_seconds: f64,
    /// From the due time to the durable end.
    #[serde(flatten)]
    pub lateness: Latency,
    pub max_ms: f64,
    /// The growth of the process while all were parked.
    pub rss_growth_mb: f64,
}

/// The resident memory of this process.
pub(super) fn rss_mb() -> f64 {
    rss_mb_of("self")
}

/// The resident memory of a process; zero without `/proc`.
pub(super) fn rss_mb_of(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb: f64 = line
        .and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok())
        .unwrap_or(0.0);
    rounded(kb / 1024.0)
}

pub(super) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Report {
    pub fn new(options: &Options) -> Report {
        Report {
            workflows: options.workflows,
            concurrency: options.concurrency,
            preload: options.preload,
            raw_per_second: 0.0,
            main: None,
            rss_mb: 0.0,
            rss_growth_mb: 0.0,
            one_at_a_time: None,
            fan_out: None,
            large: None,
            children: None,
            flow: None,
            claims: None,
            chain: None,
            triggers: None,
            conditions: None,
            http: None,
            http_steps: None,
            sleepers: None,
            prune: None,
            telemetry: None,
            pages: None,
            postgres: None,
        }
    }

    pub fn json(&mut self) -> Value {
        let mut all = Map::new();
        let mut put = |name: &str, value: Value| all.insert(name.to_owned(), value);
        put("workflows", self.workflows.into());
        put("concurrency", self.concurrency.into());
        put("preload", self.preload.into());
        if let Some(main) = &mut self.main {
            let per_second = main.per_second();
            let latency = Latency::of(&mut main.times);
            put("workflowsPerSecond", rounded(per_second).into());
            put("stepsPerSecond", rounded(per_second * 3.0).into());
            put("p50Ms", latency.p50_ms.into());
            put("p95Ms", latency.p95_ms.into());
            put("p99Ms", latency.p99_ms.into());
            put("rawWorkflowsPerSecond", rounded(self.raw_per_second).into());
            put("ratio", rounded(per_second / self.raw_per_second).into());
            put("rssGrowthMb", rounded(self.rss_growth_mb).into());
        }
        if self.postgres.is_none() {
            put("rssMb", self.rss_mb.into());
        }
        put("oneAtATime", json!(self.one_at_a_time));
        put("fanOut", json!(self.fan_out));
        put("large", json!(self.large));
        put("children", json!(self.children));
        put("flow", json!(self.flow));
        put("claims", json!(self.claims));
        put("chain", json!(self.chain));
        put("triggers", json!(self.triggers));
        put("conditions", json!(self.conditions));
        put("http", json!(self.http));
        put("httpSteps", json!(self.http_steps));
        put("sleepers", json!(self.sleepers));
        put("prune", json!(self.prune));
        put("telemetry", json!(self.telemetry));
        put("pages", json!(self.pages));
        put("postgres", json!(self.postgres));
        all.retain(|_, value| !value.is_null());
        Value::Object(all)
    }
}
