//! `fermata bench`: how fast this machine carries workflows, next to what its disk and its network stack allow.
//!
//! Machines differ and are noisy, so every figure that matters is a ratio to the raw limit measured in the
//! same run: the same rows, written by the same committer, or the same requests, sent by the same client, without an
//! engine in front of it.

mod conditions;
mod http;
mod load;
mod postgres;
mod raw;
mod report;
mod sleepers;
mod steps;
mod worker;

use crate::{cli::Usage, config::Database, duration};
use clap::Args;
use fermata_store::postgres::PostgresSettings;
use load::{Bench, THREE};
use raw::Sample;
use report::{FanOut, Large, Latency, Report};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

/// What `fermata bench` can be told.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Workflows in the main section; each has three steps that do nothing.
    #[arg(long, default_value_t = 20_000)]
    workflows: usize,
    /// Workflows in flight at the same time [default: 256, on PostgreSQL 1024].
    #[arg(long)]
    concurrency: Option<usize>,
    /// Finished runs that are in the file before anything is measured.
    #[arg(long, default_value_t = 0)]
    preload: usize,
    /// Where the scratch database goes; a fresh temporary folder if not given. Must be on a real disk.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Runs that sleep at the same time in the section `sleepers`.
    #[arg(long, default_value_t = 10_000)]
    sleepers: usize,
    /// The time over which their ends are spread, such as 1m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    spread: Duration,
    /// Only these sections: main, one, fanout, large, conditions, http, steps, sleepers; with PostgreSQL: runners,
    /// starts, memory.
    #[arg(long, value_delimiter = ',', value_parser = SECTIONS)]
    only: Vec<String>,
    /// Measure runner processes that share this PostgreSQL database, which must have no workflows but the benchmark's.
    #[arg(long, value_name = "URL", conflicts_with = "postgres")]
    database: Option<String>,
    /// The same, on a PostgreSQL server that is started for it and gone afterwards.
    #[arg(long)]
    postgres: bool,
    /// Connections that each runner process writes runs with, as in `database.postgres.committers`.
    #[arg(long, default_value_t = PostgresSettings::default().committers)]
    committers: usize,
    /// Runs that are parked in the section `memory`.
    #[arg(long, default_value_t = 100_000)]
    parked: usize,
    /// Runs that are active in the section `memory`.
    #[arg(long, default_value_t = 1_000)]
    active: usize,
    /// Work as one of the runner processes; started by the benchmark itself.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
}

const SECTIONS: [&str; 11] = [
    "main",
    "one",
    "fanout",
    "large",
    "conditions",
    "http",
    "steps",
    "sleepers",
    "runners",
    "starts",
    "memory",
];

/// Those that are measured on PostgreSQL, and there only.
const SHARED: [&str; 3] = ["runners", "starts", "memory"];

impl BenchArgs {
    /// Says what is measured now.
    fn tell(&self, what: &str) {
        if !self.json {
            eprintln!("… {what}");
        }
    }

    /// Refuses what would not measure anything.
    fn check(&self) -> Result<(), Usage> {
        // Read here and not by clap, which would repeat what it does not understand, password and all.
        let database = self.database.as_deref().map(Database::from_str).transpose();
        if let Some(Database::Sqlite(_) | Database::Memory) = database.map_err(Usage)? {
            let what = "--database names a PostgreSQL server; files are always new ones, below --dir";
            return Err(Usage(what.to_owned()));
        }
        let shared = self.is_shared();
        let misplaced = |section: &&String| SHARED.contains(&section.as_str()) != shared;
        match self.only.iter().find(misplaced) {
            Some(section) if shared => Err(Usage(format!("the section `{section}` is not one of PostgreSQL's"))),
            Some(section) => Err(Usage(format!("the section `{section}` needs --database or --postgres"))),
            None => Ok(()),
        }
    }

    /// What is committed together shares the way to the disk, and a server that many use has a longer one.
    fn concurrency(&self) -> usize {
        self.concurrency.unwrap_or(match self.is_shared() {
            true => 1024,
            false => 256,
        })
    }

    /// Whether it is about PostgreSQL.
    fn is_shared(&self) -> bool {
        self.postgres || self.database.is_some()
    }

    fn shared_url(&self) -> Option<&str> {
        self.database.as_deref()
    }

    fn wants(&self, section: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == section)
    }
}

/// Runs the benchmark and prints what it measured.
pub async fn bench(args: BenchArgs) -> anyhow::Result<ExitCode> {
    if args.worker {
        return worker::work().await;
    }
    args.check()?;
    if args.is_shared() {
        let mut report = Report::new(&args);
        report.postgres = Some(postgres::measure(&args).await?);
        report.print(args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    files(args).await
}

/// On files of its own.
async fn files(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let folder = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let progress = |what: &str| args.tell(what);
    let mut report = Report::new(&args);
    let bench = Bench::open(&folder.path().join("bench.db")).await?;
    let sample = raw::sample().await?;
    if args.preload > 0 {
        progress(&format!("writing {} finished runs", args.preload));
        raw::write(bench.store(), &sample, args.preload, 256).await?;
    }
    if args.wants("main") {
        progress(&format!(
            "{} workflows, {} at a time",
            args.workflows,
            args.concurrency()
        ));
        raw::write(bench.store(), &sample, (args.workflows / 4).max(1), args.concurrency()).await?; // warm up
        report.raw_per_second = raw::write(bench.store(), &sample, args.workflows, args.concurrency()).await?;
        bench
            .many(THREE, (args.workflows / 4).max(1), args.concurrency())
            .await?;
        let rss_before = report::rss_mb();
        report.main = Some(bench.many(THREE, args.workflows, args.concurrency()).await?);
        report.rss_growth_mb = report::rss_mb() - rss_before;
    }
    if args.wants("one") {
        progress("one workflow at a time");
        report.one_at_a_time = Some(Latency::of(
            &mut bench.one_at_a_time(args.workflows.clamp(1, 1000)).await?,
        ));
    }
    if args.wants("fanout") {
        progress("fan-out of 100 and a join");
        let mut times = bench.fan_out(100, 50).await?;
        report.fan_out = Some(FanOut {
            width: 100,
            latency: Latency::of(&mut times),
        });
    }
    if args.wants("large") {
        progress("1,000 and 2,000 nodes, fan-out and fan-in");
        let mut small = bench.fan_out(1000 - 2, 10).await?;
        let mut large = bench.fan_out(2000 - 2, 10).await?;
        report.large = Some(Large::of(&mut small, &mut large));
    }
    bench.close().await?;
    report.rss_mb = report::rss_mb();
    apart(&args, folder.path(), &sample, &mut report).await?;
    report.print(args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// The sections that have files and processes of their own.
async fn apart(args: &BenchArgs, folder: &Path, sample: &Arc<Sample>, report: &mut Report) -> anyhow::Result<()> {
    if args.wants("conditions") {
        args.tell("conditions, native and in the sandbox");
        report.conditions = Some(conditions::measure().await?);
    }
    if args.wants("http") {
        args.tell("the same workload over HTTP, against a server of its own");
        let workflows = args.workflows.min(20_000);
        report.http = Some(http::measure(folder, workflows, args.concurrency().min(128)).await?);
    }
    if args.wants("steps") {
        let (workflows, concurrency) = ((args.workflows / 2).clamp(1, 10_000), args.concurrency().max(1));
        args.tell(&format!(
            "{workflows} workflows of HTTP steps against a server in this process"
        ));
        report.http_steps = Some(steps::measure(folder, workflows, concurrency).await?);
    }
    if args.wants("sleepers") {
        let (count, spread) = (args.sleepers.max(1), args.spread);
        args.tell(&format!("{count} sleepers whose ends are spread over {spread:?}"));
        report.sleepers = Some(sleepers::measure(folder, sample, count, spread).await?);
    }
    Ok(())
}

/// No part of the benchmark takes longer than this for one workflow.
const PATIENCE: Duration = Duration::from_secs(60);
