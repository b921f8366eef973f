//! `fermata bench`: checks the call and prints what `fermata_rig::bench` measures.

use crate::{
    cli::{Output, Usage, print},
    config::Database,
    duration,
};
use clap::Args;
use fermata_rig::bench::{FILE_SECTIONS, Options, POSTGRES_SECTIONS, Target, measure, work};
use serde_json::Value;
use std::{fmt::Write, path::PathBuf, process::ExitCode, str::FromStr, time::Duration};

/// The flags of `fermata bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    output: Output,
    /// Workflows in the main section; each has three steps that do nothing.
    #[arg(long, default_value_t = Options::default().workflows)]
    workflows: usize,
    /// How many schedules exist in the section triggers; up to 1,000 of them fire in the same second [default: five for each workflow, at most 100000]
    #[arg(long, value_name = "N")]
    schedules: Option<usize>,
    /// Workflows in flight at the same time [default: 256, on PostgreSQL 1024].
    #[arg(long)]
    concurrency: Option<usize>,
    /// Finished runs that are written to the file before the measurement.
    #[arg(long, default_value_t = 0)]
    preload: usize,
    /// The folder for the scratch database [default: the folder for temporary files]. Must be on a real disk.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Runs that sleep at the same time in the section `sleepers`.
    #[arg(long, default_value_t = Options::default().sleepers)]
    sleepers: usize,
    /// The time over which their ends are spread, such as 1m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    spread: Duration,
    /// Only these sections: main, one, fanout, large, children, flow, claims, chain, triggers, conditions, http, steps,
    /// sleepers, prune, telemetry, pages; with PostgreSQL: runners, starts, flow, triggers, memory.
    #[arg(long, value_delimiter = ',', value_parser = [FILE_SECTIONS.as_slice(), &POSTGRES_SECTIONS].concat())]
    only: Vec<String>,
    /// Measure runner processes that share this PostgreSQL database. It must not contain other workflows.
    #[arg(long, value_name = "URL", conflicts_with = "postgres")]
    database: Option<String>,
    /// The same on a PostgreSQL server that is started for the measurement and removed afterwards.
    #[arg(long)]
    postgres: bool,
    /// Connections on which each runner process commits, as in `database.postgres.committers`.
    #[arg(long, default_value_t = Options::default().committers)]
    committers: usize,
    /// Runs that are parked in the section `memory`.
    #[arg(long, default_value_t = Options::default().parked)]
    parked: usize,
    /// Runs that are active in the section `memory`.
    #[arg(long, default_value_t = Options::default().active)]
    active: usize,
    /// Work as one of the runner processes; started by the benchmark itself.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
}

/// Measures and prints.
pub async fn bench(args: BenchArgs) -> anyhow::Result<ExitCode> {
    if args.worker {
        work().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let json = args.output.is_json();
    let figures = measure(&args.options()?).await?;
    match json {
        true => print(format_args!("{}\n", serde_json::to_string_pretty(&figures)?)),
        false => print(rows(&figures, "")),
    }
    Ok(ExitCode::SUCCESS)
}

impl BenchArgs {
    fn options(self) -> Result<Options, Usage> {
        let target = match (self.database, self.postgres) {
            (Some(url), _) => Target::Postgres(postgres_url(url)?),
            (None, true) => Target::OwnPostgres,
            (None, false) => Target::Files,
        };
        let files = target == Target::Files;
        // Some sections are measured on both.
        let measured: &[&str] = if files { &FILE_SECTIONS } else { &POSTGRES_SECTIONS };
        let misplaced = |section: &&String| !measured.contains(&section.as_str());
        match self.only.iter().find(misplaced) {
            Some(section) if files => {
                return Err(Usage(format!("the section `{section}` needs --database or --postgres")));
            }
            Some(section) => return Err(Usage(format!("the section `{section}` is not measured on PostgreSQL"))),
            None => {}
        }
        Ok(Options {
            target,
            only: self.only,
            dir: self.dir,
            workflows: self.workflows,
            schedules: self.schedules,
            // A commit to a server takes longer than one to a file, so more runs share it.
            concurrency: self.concurrency.unwrap_or(if files { 256 } else { 1024 }),
            preload: self.preload,
            sleepers: self.sleepers,
            spread: self.spread,
            committers: self.committers,
            parked: self.parked,
            active: self.active,
            progress: !self.output.is_json(),
        })
    }
}

/// Not a clap parser: clap would repeat a URL that it does not understand, with its password.
fn postgres_url(url: String) -> Result<String, Usage> {
    match Database::from_str(&url).map_err(Usage)? {
        Database::Sqlite(_) | Database::Memory => Err(Usage(
            "--database must name a PostgreSQL server; SQLite files are always new ones, below --dir".to_owned(),
        )),
        _ => Ok(url),
    }
}

/// One line for each figure.
fn rows(figures: &Value, section: &str) -> String {
    let mut text = String::new();
    for (name, value) in figures.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => text.push_str(&rows(value, &format!("{section}{name}."))),
            other => {
                let _ = writeln!(text, "{:<44} {other:>12}", format!("{section}{name}"));
            }
        }
    }
    text
}
