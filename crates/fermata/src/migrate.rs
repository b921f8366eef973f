//! `fermata migrate`: the schema of a database, forwards and back.

use crate::{
    cli::{self, Usage},
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

A server brings its database up to date when it starts, unless database.migrate is \"manual\". In PostgreSQL the servers
of the previous release may work on while `up` does it; a SQLite file belongs to one process, so stop its server first.

The previous release can use a database that the next one brought up to date, as long as the database names it or an
older one (`status` says which). `down` is for those who want to be rid of what it added: it undoes the newest
migration, if nobody uses the database and nothing would be lost.

Exit codes: 0 done, or up to date, 1 it could not be done, 2 the call is wrong, 3 `status` found migrations to apply.";

/// `status` found something to do.
const OUTDATED: u8 = 3;

/// What `fermata migrate` takes.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// Say which migrations there are, and which were applied when.
    Status {
        #[command(flatten)]
        place: PlaceArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Apply what is missing; an SQLite file that is not there is made.
    Up(PlaceArgs),
    /// Undo the newest migration, if nothing is lost.
    Down(PlaceArgs),
}

/// Which database.
#[derive(Debug, Clone, Args)]
struct PlaceArgs {
    /// The database: `sqlite:PATH` or `postgres://…` [default: database.url of the configuration].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl MigrateArgs {
    /// The database that the command line names, if it does.
    pub fn database(&self) -> Option<String> {
        let (MigrateCommand::Status { place, .. } | MigrateCommand::Up(place) | MigrateCommand::Down(place)) =
            &self.command;
        place.database.clone()
    }
}

/// Looks, applies or undoes.
pub async fn migrate(args: MigrateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let (database, settings) = (&config.database.url, config.postgres());
    match args.command {
        MigrateCommand::Status { json, .. } => Ok(show(&schema(database, &settings).await?, json)),
        MigrateCommand::Up(_) => {
            let steps = up(database, &settings).await?;
            for step in &steps {
                cli::print(format_args!("applied {} ({})\n", step.number, step.name));
            }
            if steps.is_empty() {
                cli::print(format_args!("{} is up to date\n", database.place()));
            }
            Ok(ExitCode::SUCCESS)
        }
        MigrateCommand::Down(_) => {
            let step = down(database, &settings).await?;
            cli::print(format_args!("undid {} ({})\n", step.number, step.name));
            Ok(ExitCode::SUCCESS)
        }
    }
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
