//! `fermata prune`: removes what `[retention]` does not keep, from a database without a server.

use crate::{
    cli::{self, Usage},
    config::{Config, Database},
};
use clap::Args;
use fermata_runtime::retention::{Pace, Removed, prune as prune_store};
use fermata_store::{clock::wall, sqlite::SqliteStore};
use serde_json::json;
use std::{process::ExitCode, sync::Arc};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata prune --dry-run --config fermata.toml
  fermata prune --database sqlite:fermata.db --config fermata.toml
  fermata prune --database sqlite:fermata.db --vacuum

A server removes finished runs by itself, as its [retention] says; this command is for a look ahead and for databases without a
server. It works on the database itself, not through a server: a SQLite file belongs to one process, so stop its server
first; a PostgreSQL database may be in use. Runs that have not ended are never removed.

Exit codes: 0 done, 1 it could not be done, 2 the call is wrong.";

/// What `fermata prune` takes.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// The database: `sqlite:PATH` or `postgres://…` [default: database.url of the configuration].
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Count what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Rewrite a SQLite file without its unused space afterwards. Needs disk space for a second copy. From
    /// then on the file gives back space by itself.
    #[arg(long, conflicts_with = "dry_run")]
    vacuum: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Removes, or counts, and prints how many.
pub async fn prune(args: PruneArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let retention = config.settings().retention;
    let database = &config.database.url;
    match database {
        Database::Memory => return Err(Usage("name a database with --database".to_owned()).into()),
        Database::Sqlite(path) if !path.exists() => {
            return Err(anyhow::anyhow!("there is no database {}", path.display()));
        }
        Database::Sqlite(_) | Database::Postgres(_) => {}
    }
    if args.vacuum && !matches!(database, Database::Sqlite(_)) {
        return Err(Usage("--vacuum is for SQLite files; PostgreSQL has autovacuum".to_owned()).into());
    }
    if retention.keeps_all() && !args.vacuum {
        return Err(Usage(
            "the configuration has no [retention], so everything is kept; see docs/configuration.md".to_owned(),
        )
        .into());
    }
    let store = config.open().await?;
    let now = store.now().unwrap_or_else(wall);
    let pace = if args.dry_run { Pace::DryRun } else { Pace::Fast };
    let removed = prune_store(store.as_ref(), &Arc::new(retention), now, pace, u64::MAX).await;
    store.close().await?;
    let removed = removed?;
    if let (true, Database::Sqlite(path)) = (args.vacuum, database) {
        let path = path.clone();
        tokio::task::spawn_blocking(move || SqliteStore::vacuum(&path)).await??;
    }
    match args.json {
        true => cli::print(format_args!("{:#}\n", as_json(&removed, args.dry_run))),
        false => cli::print(format_args!("{}\n", in_words(&removed, args.dry_run))),
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(removed: &Removed, dry_run: bool) -> serde_json::Value {
    json!({ "dryRun": dry_run, "executions": removed.runs, "emptied": removed.emptied,
        "deadLetters": removed.dead_letters, "auditRows": removed.audit })
}

fn in_words(removed: &Removed, dry_run: bool) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    format!(
        "{verb} {} executions, {} dead letters and {} rows of the audit trail, and the payloads of {} executions whose keys are kept",
        removed.runs, removed.dead_letters, removed.audit, removed.emptied
    )
}
