//! `fermata transfer`: moves all data from one database to another.

mod progress;

use crate::{
    cli::{self, Output, Usage},
    config::{Config, Database},
    signals::Signals,
    table,
};
use anyhow::Context;
use clap::Args;
use fermata_store::transfer::{Place, Report, Transfer, TransferError, Watch, reopen};
use indicatif::HumanCount;
use progress::Progress;
use serde_json::json;
use std::{process::ExitCode, sync::Arc, time::Instant};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata transfer --from sqlite:fermata.db --to postgres://fermata:secret@db.example.com/fermata --dry-run
  fermata transfer --from sqlite:fermata.db --to postgres://fermata:secret@db.example.com/fermata
  fermata transfer --from sqlite:fermata.db --to postgres://fermata:secret@db.example.com/fermata --resume
  fermata transfer --reopen sqlite:fermata.db

Stop all servers of both databases first. Runs continue as soon as a server uses the target, and callback URLs stay the
same. The source keeps its data, but it is marked: no server opens it until --reopen removes the mark.

Exit codes: 0 everything is there, 1 it is not, or it could not be started, 2 the call is wrong, 130 or 143 at a signal
(continue with --resume).";

/// The arguments of `fermata transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The database to move: `sqlite:PATH` or `postgres://…`.
    #[arg(long, value_name = "URL", env = "FERMATA_TRANSFER_FROM", hide_env_values = true)]
    from: Option<String>,
    /// The empty database to move it to: `postgres://…` or `sqlite:PATH`.
    #[arg(long, value_name = "URL", env = "FERMATA_TRANSFER_TO", hide_env_values = true)]
    to: Option<String>,
    /// Continue an interrupted transfer.
    #[arg(long)]
    resume: bool,
    /// Only count what would be moved.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// Let servers use this database again, as it was when it was moved. Steps that its runs executed since then in the
    /// target are executed again.
    #[arg(long, value_name = "URL", conflicts_with_all = ["resume", "dry_run", "json"])]
    reopen: Option<String>,
}

/// Runs the command.
pub async fn transfer(args: TransferArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if let Some(url) = &args.reopen {
        return take_back(url, config).await;
    }
    let transfer = Transfer {
        from: place("--from", args.from.as_deref(), config)?,
        to: place("--to", args.to.as_deref(), config)?,
        resume: args.resume,
    };
    let began = Instant::now();
    if args.dry_run {
        let report = transfer.dry_run().await?;
        show(&args, &report, began);
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::listen().context("signals cannot be listened to")?;
    let progress = Arc::new(Progress::new(args.output.is_json()));
    let lines = progress.clone();
    let watch: Watch = Arc::new(move |step| lines.note(step));
    let moved = tokio::select! {
        moved = transfer.run(&watch) => moved,
        signal = signals.next() => {
            progress.end();
            cli::say("fermata: interrupted; the same command with --resume continues from here");
            return Ok(signal.exit_code());
        }
    };
    progress.end();
    match moved {
        Ok(report) => show(&args, &report, began),
        Err(error) => return Err(advised(error, progress.has_begun())),
    }
    Ok(ExitCode::SUCCESS)
}

/// The database that an option names. Error messages do not repeat the URL, which may hold a password.
fn place(option: &str, url: Option<&str>, config: &Config) -> Result<Place, Usage> {
    let url = url.ok_or_else(|| Usage(format!("{option} is missing; see `fermata transfer --help`")))?;
    let database: Database = url.parse().map_err(|wrong| Usage(format!("{option}: {wrong}")))?;
    match database {
        Database::Sqlite(path) => Ok(Place::Sqlite(path)),
        Database::Postgres(address) => Ok(Place::Postgres {
            url: address.as_str().to_owned(),
            settings: config.postgres(),
        }),
        Database::Memory => Err(Usage(format!("{option}: what is in memory cannot be moved"))),
    }
}

async fn take_back(url: &str, config: &Config) -> anyhow::Result<ExitCode> {
    let place = place("--reopen", Some(url), config)?;
    cli::say(match reopen(&place).await? {
        true => "it can be served again, as it was when it was moved; see to it that the other database is not served",
        false => "no transfer keeps it from being served; nothing was changed",
    });
    Ok(ExitCode::SUCCESS)
}

/// The error with advice on what to do next.
fn advised(error: TransferError, begun: bool) -> anyhow::Error {
    let advice = match &error {
        TransferError::Mismatch { .. } => {
            "the target is of no use; begin again with another, empty database. `fermata transfer --reopen URL` lets \
             the source be served again"
        }
        TransferError::Store(_) if begun => {
            "what was moved stays: the same call with --resume goes on from here. `fermata transfer --reopen URL` lets \
             the source be served again"
        }
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}\n{advice}")
}

fn show(args: &TransferArgs, report: &Report, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    let moved = report.rows() - report.before;
    if args.output.is_json() {
        let tables = report.tables.iter();
        let tables: Vec<_> = tables
            .map(|table| json!({ "table": table.name, "rows": table.rows, "checksum": table.checksum }))
            .collect();
        let summary = json!({
            "from": report.from,
            "to": report.to,
            "dryRun": args.dry_run,
            "resumed": args.resume,
            "rows": report.rows(),
            "rowsBefore": report.before,
            "seconds": seconds,
            "rowsPerSecond": if args.dry_run { None } else { Some(moved as f64 / seconds) },
            "tables": tables,
        });
        return cli::print(format_args!("{summary:#}\n"));
    }
    let rows = report.tables.iter().map(|table| {
        let checksum = table.checksum.clone().unwrap_or_default();
        vec![table.name.to_owned(), HumanCount(table.rows).to_string(), checksum]
    });
    let (rows, all) = (rows.collect::<Vec<_>>(), HumanCount(report.rows()));
    let (from, to) = (&report.from, &report.to);
    cli::print(table::draw(&["TABLE", "ROWS", "CHECKSUM"], &rows));
    cli::print(match args.dry_run {
        true => format!("{all} rows would be moved from {from} to {to}\n"),
        false => format!(
            "{all} rows are in {to}, and both databases agree on every table; {} were moved in {seconds:.1} s\n\
             {from} is as it was, but no server opens it any more\n",
            HumanCount(moved)
        ),
    });
}
