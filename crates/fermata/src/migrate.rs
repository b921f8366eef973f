//! `fermata migrate`: shows, applies or undoes migrations of a database schema.

use crate::{
    cli::{self, Output, Usage},
    config::{Config, Database},
    table,
};
use clap::{Args, Subcommand};
use fermata_store::{
    StoreError,
    postgres::{PostgresSettings, PostgresStore},
    schema::{Schema, Step},
    sqlite::SqliteStore,
};
use serde_json::json;
use std::process::ExitCode;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata migrate status --database postgres://fermata:secret@db.example.com/fermata
  fermata migrate up --database postgres://fermata:secret@db.example.com/fermata
  fermata migrate down --database sqlite:fermata.db

A server migrates its database when it starts, unless database.migrate is \"manual\". With PostgreSQL, servers of the
previous release may run while `up` runs. A SQLite file belongs to one process, so stop its server first.

`status` names the oldest release that can use the database. That release and newer ones keep working after `up`, so
going back to it needs no `down`. `down` undoes the newest migration; it refuses while the database is in use, and if
data would be lost.

Exit codes: 0 done, or up to date, 1 it failed, 2 the call is wrong, 3 `status` found migrations to apply.";

/// The exit code of `status` when there are migrations to apply.
const OUTDATED: u8 = 3;

/// The arguments of `fermata migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// List the migrations and when each was applied.
    Status(PlaceArgs),
    /// Apply the migrations that are missing; an SQLite file that does not exist is created.
    Up(PlaceArgs),
    /// Undo the newest migration, if no data is lost.
    Down(PlaceArgs),
}

/// The database to migrate.
#[derive(Debug, Clone, Args)]
struct PlaceArgs {
    /// The database: `sqlite:PATH` or `postgres://…` [default: database.url of the configuration].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl MigrateArgs {
    /// The database on the command line, if there is one.
    pub fn database(&self) -> Option<String> {
        let (MigrateCommand::Status(place) | MigrateCommand::Up(place) | MigrateCommand::Down(place)) = &self.command;
        place.database.clone()
    }
}

/// Runs the command.
pub async fn migrate(args: MigrateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let (database, settings) = (&config.database.url, config.postgres());
    let as_json = args.output.is_json();
    let named = |step: &Step| json!({ "number": step.number, "name": step.name });
    match args.command {
        MigrateCommand::Status(_) => return Ok(show(&schema(database, &settings).await?, as_json)),
        MigrateCommand::Up(_) => {
            let steps = up(database, &settings).await?;
            if as_json {
                let applied: Vec<_> = steps.iter().map(named).collect();
                cli::print(format_args!("{:#}\n", json!({ "applied": applied })));
                return Ok(ExitCode::SUCCESS);
            }
            for step in &steps {
                cli::print(format_args!("applied {} ({})\n", step.number, step.name));
            }
            if steps.is_empty() {
                cli::print(format_args!("{} is up to date\n", database.place()));
            }
        }
        MigrateCommand::Down(_) => {
            let step = down(database, &settings).await?;
            match as_json {
                true => cli::print(format_args!("{:#}\n", json!({ "undone": named(&step) }))),
                false => cli::print(format_args!("undid {} ({})\n", step.number, step.name)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn schema(database: &Database, settings: &PostgresSettings) -> anyhow::Result<Schema> {
    Ok(match database {
        Database::Sqlite(path) => SqliteStore::schema(path)?,
        Database::Postgres(address) => PostgresStore::schema(address.as_str(), settings).await?,
        Database::Memory => return Err(no_schema()),
    })
}

async fn up(database: &Database, settings: &PostgresSettings) -> anyhow::Result<Vec<Step>> {
    Ok(match database {
        Database::Sqlite(path) => SqliteStore::migrate(path)?,
        Database::Postgres(address) => PostgresStore::migrate(address.as_str(), settings).await?,
        Database::Memory => return Err(no_schema()),
    })
}

async fn down(database: &Database, settings: &PostgresSettings) -> anyhow::Result<Step> {
    let undone: Result<Step, StoreError> = match database {
        Database::Sqlite(path) => SqliteStore::migrate_back(path),
        Database::Postgres(address) => PostgresStore::migrate_back(address.as_str(), settings).await,
        Database::Memory => return Err(no_schema()),
    };
    Ok(undone?)
}

fn no_schema() -> anyhow::Error {
    Usage("what is in memory has no schema to migrate; name a database with --database".to_owned()).into()
}

fn show(schema: &Schema, as_json: bool) -> ExitCode {
    if as_json {
        let steps = schema.steps.iter().map(|step| {
            json!({ "number": step.number, "name": step.name, "appliedAt": step.applied_at, "known": step.is_known })
        });
        let steps: Vec<_> = steps.collect();
        let object = json!({ "database": schema.place, "oldestProgram": schema.oldest_program,
            "outdated": schema.is_outdated(), "migrations": steps });
        cli::print(format_args!("{object:#}\n"));
    } else {
        cli::print(table::draw(&["NUMBER", "NAME", "APPLIED"], &rows(schema)));
        cli::say(summary(schema));
    }
    match schema.is_outdated() {
        true => ExitCode::from(OUTDATED),
        false => ExitCode::SUCCESS,
    }
}

fn rows(schema: &Schema) -> Vec<Vec<String>> {
    let applied = |step: &Step| match (&step.applied_at, step.is_known) {
        (None, _) => "not yet".to_owned(),
        (Some(at), true) => at.clone(),
        (Some(at), false) => format!("{at}, by a newer program"),
    };
    let row = |step: &Step| vec![step.number.to_string(), step.name.clone(), applied(step)];
    schema.steps.iter().map(row).collect()
}

fn summary(schema: &Schema) -> String {
    let state = match schema.is_outdated() {
        true => "can be brought up to date with `fermata migrate up`",
        false => "is up to date",
    };
    let programs = schema.oldest_program.as_ref();
    let programs = programs.map_or(String::new(), |oldest| {
        format!("; Fermata {oldest} and newer may use it")
    });
    format!("{} {state}{programs}", schema.place)
}
