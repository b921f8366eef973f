//! The measurements of `fermata bench`: the throughput of this machine, next to what its disk and network stack allow.
//!
//! Machines differ and are noisy, so every figure that matters is a ratio to a raw limit that is measured in the same run: the same
//! rows, written by the same committer, or the same requests, sent by the same client, without an engine.

mod children;
mod conditions;
mod flow;
mod http;
mod inbox;
mod load;
mod pages;
mod postgres;
mod prune;
mod raw;
mod report;
mod sleepers;
mod steps;
mod telemetry;
mod triggers;
mod worker;

use fermata_store::{postgres::PostgresSettings, sqlite::SqliteStore};
use load::{Bench, THREE};
use raw::Sample;
use report::{FanOut, Large, Latency, Report};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use worker::work;

/// The sections that are measured on SQLite files.
pub const FILE_SECTIONS: [&str; 16] = [
    "main",
    "one",
    "fanout",
    "large",
    "children",
    "flow",
    "claims",
    "chain",
    "triggers",
    "conditions",
    "http",
    "steps",
    "sleepers",
    "prune",
    "telemetry",
    "pages",
];
/// The sections that are measured on PostgreSQL.
pub const POSTGRES_SECTIONS: [&str; 5] = ["runners", "starts", "flow", "triggers", "memory"];

/// Where runs are stored while they are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// In new SQLite files below [`Options::dir`].
    Files,
    /// In this PostgreSQL database. It must not contain workflows of others.
    Postgres(String),
    /// In a PostgreSQL server that is started for the measurement and removed afterwards.
    OwnPostgres,
}

/// What to measure. `fermata bench --help` describes the fields.
#[derive(Debug, Clone)]
pub struct Options {
    #[expect(missing_docs)]
    pub target: Target,
    /// The sections to measure; all of the target's if empty.
    pub only: Vec<String>,
    /// The parent of the scratch folder.
    pub dir: Option<PathBuf>,
    #[expect(missing_docs)]
    pub workflows: usize,
    /// How many workflows are in flight at the same time.
    pub concurrency: usize,
    /// How many finished runs are written before the measurement.
    pub preload: usize,
    #[expect(missing_docs)]
    pub sleepers: usize,
    /// The time over which the ends of the sleepers are spread.
    pub spread: Duration,
    /// The number of connections on which each runner process commits.
    pub committers: usize,
    /// How many schedules exist in the section `triggers`; five for each workflow if it is not given.
    pub schedules: Option<usize>,
    /// How many runs are parked in the section `memory`.
    pub parked: usize,
    /// How many runs are active in the section `memory`.
    pub active: usize,
    /// Print each section's name on stderr when it starts.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: Target::Files,
            only: Vec::new(),
            dir: None,
            workflows: 20_000,
            concurrency: 256,
            preload: 0,
            sleepers: 10_000,
            spread: Duration::from_secs(60),
            committers: PostgresSettings::default().committers,
            schedules: None,
            parked: 100_000,
            active: 1_000,
            progress: false,
        }
    }
}

impl Options {
    fn report_progress(&self, section: &str) {
        if self.progress {
            eprintln!("… {section}");
        }
    }

    fn wants(&self, section: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == section)
    }

    /// Whether a section is wanted that has no file of its own.
    fn uses_common_file(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name != "prune" && name != "pages")
    }
}

/// Measures and returns the figures as one JSON object.
///
/// The current executable must be `fermata`: some sections start it as `fermata serve` or `fermata bench --worker`.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let mut report = Report::new(options);
    match options.target {
        Target::Files => measure_files(options, &mut report).await?,
        Target::Postgres(_) | Target::OwnPostgres => report.postgres = Some(postgres::measure(options).await?),
    }
    Ok(report.json())
}

async fn measure_files(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let progress = |section: &str| options.report_progress(section);
    let bench = Bench::open(&folder.path().join("bench.db")).await?;
    let sample = raw::sample().await?;
    if options.preload > 0 && options.uses_common_file() {
        progress(&format!("writing {} finished runs", options.preload));
        raw::write(bench.store(), &sample, options.preload, 256).await?;
    }
    if options.wants("main") {
        progress(&format!(
            "{} workflows, {} at a time",
            options.workflows, options.concurrency
        ));
        raw::write(
            bench.store(),
            &sample,
            (options.workflows / 4).max(1),
            options.concurrency,
        )
        .await?; // warm up
        report.raw_per_second = raw::write(bench.store(), &sample, options.workflows, options.concurrency).await?;
        bench
            .many(THREE, (options.workflows / 4).max(1), options.concurrency)
            .await?;
        let rss_before = report::rss_mb();
        report.main = Some(bench.many(THREE, options.workflows, options.concurrency).await?);
        report.rss_growth_mb = report::rss_mb() - rss_before;
    }
    if options.wants("one") {
        progress("one workflow at a time");
        report.one_at_a_time = Some(Latency::of(
            &mut bench.one_at_a_time(options.workflows.clamp(1, 1000)).await?,
        ));
    }
    if options.wants("fanout") {
        progress("fan-out of 100 and a join");
        let mut times = bench.fan_out(100, 50).await?;
        report.fan_out = Some(FanOut {
            width: 100,
            latency: Latency::of(&mut times),
        });
    }
    if options.wants("large") {
        progress("1,000 and 2,000 nodes, fan-out and fan-in");
        let mut small = bench.fan_out(1000 - 2, 10).await?;
        let mut large = bench.fan_out(2000 - 2, 10).await?;
        report.large = Some(Large::of(&mut small, &mut large));
    }
    if options.wants("children") {
        let pairs = (options.workflows / 2).max(1);
        progress(&format!("{pairs} parents that each wait for a child"));
        report.children = Some(children::measure(&bench, pairs, options.concurrency).await?);
    }
    if options.wants("flow") {
        progress(&format!("{} runs with concurrency keys", options.workflows));
        report.flow = Some(flow::measure(&bench, options.workflows.max(1), options.concurrency).await?);
    }
    bench.close().await?;
    report.rss_mb = report::rss_mb();
    measure_apart(options, folder.path(), &sample, report).await
}

/// The sections that use their own files and processes.
async fn measure_apart(
    options: &Options,
    folder: &Path,
    sample: &Arc<Sample>,
    report: &mut Report,
) -> anyhow::Result<()> {
    if options.wants("claims") {
        options.report_progress(&format!(
            "{} tasks of the inbox, claimed and completed",
            options.workflows
        ));
        report.claims = Some(inbox::claims(folder, options.workflows.max(1)).await?);
    }
    if options.wants("chain") {
        options.report_progress("a chain of 1,000 tasks over a state of 100 KB");
        report.chain = Some(inbox::chain(folder).await?);
    }
    if options.wants("triggers") {
        let store = Arc::new(SqliteStore::open(&folder.join("triggers.db"))?);
        report.triggers = Some(triggers::measure(store, options).await?);
    }
    if options.wants("conditions") {
        options.report_progress("conditions, native and in the sandbox");
        report.conditions = Some(conditions::measure().await?);
    }
    if options.wants("http") {
        options.report_progress("the same workload over HTTP, against a server of its own");
        let workflows = options.workflows.min(20_000);
        report.http = Some(http::measure(folder, workflows, options.concurrency).await?);
    }
    if options.wants("steps") {
        let (workflows, concurrency) = ((options.workflows / 2).clamp(1, 10_000), options.concurrency.max(1));
        options.report_progress(&format!(
            "{workflows} workflows of HTTP steps against a server in this process"
        ));
        report.http_steps = Some(steps::measure(folder, workflows, concurrency).await?);
    }
    if options.wants("sleepers") {
        let (count, spread) = (options.sleepers.max(1), options.spread);
        options.report_progress(&format!("{count} sleepers whose ends are spread over {spread:?}"));
        report.sleepers = Some(sleepers::measure(folder, sample, count, spread).await?);
    }
    if options.wants("prune") {
        let preload = if options.preload == 0 { 20_000 } else { options.preload };
        options.report_progress(&format!("pruning a tenth of {preload} finished runs under load"));
        let (workflows, concurrency) = (options.workflows, options.concurrency);
        report.prune = Some(prune::measure(folder, sample, preload, workflows, concurrency).await?);
    }
    if options.wants("telemetry") {
        options.report_progress("the same workload without metrics, with metrics, and with traces");
        report.telemetry = Some(telemetry::measure(folder, options.workflows, options.concurrency).await?);
    }
    if options.wants("pages") {
        let preload = if options.preload == 0 { 20_000 } else { options.preload };
        options.report_progress(&format!("the dashboard with {preload} finished runs, and 200 watchers"));
        let (workflows, concurrency) = (options.workflows, options.concurrency);
        report.pages = Some(pages::measure(folder, sample, preload, workflows, concurrency).await?);
    }
    Ok(())
}

/// The longest time to wait for one workflow.
const PATIENCE: Duration = Duration::from_secs(60);
