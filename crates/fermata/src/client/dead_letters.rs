//! `fermata dead-letters`: runs that were given up. Look at them, ask for them again, throw them away.

use super::{Client, Connection, Format, text, time};
use crate::{
    cli::{self, Usage},
    table,
};
use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use uuid::Uuid;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata dead-letters list --reason POISON
  fermata dead-letters show 0199a7c2-…
  fermata dead-letters requeue 0199a7c2-…
  fermata dead-letters purge 0199a7c2-…
  fermata dead-letters purge --workflow order --reason INVALID_TRIGGER
  fermata dead-letters purge --all

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// What `fermata dead-letters` takes.
#[derive(Debug, Args)]
pub struct DeadLettersArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List them, newest first.
    List(ListArgs),
    /// Show one, with what was asked for.
    Show {
        /// The letter.
        id: String,
    },
    /// Start a new run with what was asked for; the letter is gone then.
    Requeue {
        /// The letters.
        #[arg(required = true)]
        ids: Vec<Uuid>,
        /// Of the version that was given up, instead of the current one.
        #[arg(long)]
        same_version: bool,
    },
    /// Throw letters away: these, those that fit, or all.
    Purge(PurgeArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// At most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them, however many.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

#[derive(Debug, Args)]
struct PurgeArgs {
    /// The letters.
    #[arg(conflicts_with_all = ["reason", "workflow", "all"])]
    ids: Vec<Uuid>,
    #[command(flatten)]
    filter: Filter,
    /// Every one.
    #[arg(long, conflicts_with_all = ["reason", "workflow"])]
    all: bool,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only those with this reason: INVALID_TRIGGER, POISON or COMMIT_REJECTED.
    #[arg(long)]
    reason: Option<String>,
    /// Only those of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
}

impl Filter {
    fn query(self) -> Vec<(&'static str, String)> {
        let reason = self.reason.map(|reason| ("reason", reason));
        let workflow = self.workflow.map(|workflow| ("workflowId", workflow));
        reason.into_iter().chain(workflow).collect()
    }
}

const LETTERS: [&str; 2] = ["admin", "dead-letters"];

/// Does what was asked for.
pub async fn dead_letters(args: DeadLettersArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.server)?;
    let format = args.connection.output;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Show { id } => show(&client, &id, format).await?,
        Command::Requeue { ids, same_version } => requeue(&client, &ids, same_version, format).await?,
        Command::Purge(args) => purge(&client, args, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let (items, more) = client.list(&LETTERS, &args.filter.query(), most).await?;
    if format == Format::Json {
        cli::print(format_args!("{:#}\n", json!({ "items": items, "more": more })));
        return Ok(());
    }
    let row = |letter: &Value| {
        vec![
            text(letter, "id"),
            text(letter, "reason"),
            format!("{}@{}", text(letter, "workflowId"), text(letter, "workflowVersion")),
            time(letter, "enqueuedAt"),
            text(letter, "executionId"),
            text(letter, "lastError"),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    let head = ["ID", "REASON", "WORKFLOW", "GIVEN UP", "RUN", "WHY"];
    cli::print(table::draw(&head, &rows));
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

async fn show(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let letter = client.get(&[LETTERS[0], LETTERS[1], id], &[]).await?;
    if format == Format::Json {
        cli::print(format_args!("{letter:#}\n"));
        return Ok(());
    }
    let workflow = format!(
        "{} (version {})",
        text(&letter, "workflowId"),
        text(&letter, "workflowVersion")
    );
    let mut page = table::pairs(&[
        ("id", text(&letter, "id")),
        ("reason", text(&letter, "reason")),
        ("given up", time(&letter, "enqueuedAt")),
        ("workflow", workflow),
        ("run", text(&letter, "executionId")),
        ("tenant", text(&letter, "tenantId")),
        ("attempts", text(&letter, "attempts")),
        ("last error", text(&letter, "lastError")),
    ]);
    page.push_str(&format!("\nasked for\n{:#}\n", letter["payload"]));
    cli::print(page);
    Ok(())
}

async fn requeue(client: &Client, ids: &[Uuid], same_version: bool, format: Format) -> anyhow::Result<()> {
    let version = if same_version { "same" } else { "current" };
    for id in ids {
        let path = [LETTERS[0], LETTERS[1], &id.to_string(), "requeue"];
        let answer = client.post_with(&path, &[("version", version.to_owned())]).await?;
        match format {
            Format::Json => cli::print(format_args!("{answer:#}\n")),
            Format::Table => cli::print(format_args!(
                "{id} is run {} now, which is {}\n",
                text(&answer, "executionId"),
                text(&answer, "status")
            )),
        }
    }
    Ok(())
}

async fn purge(client: &Client, args: PurgeArgs, format: Format) -> anyhow::Result<()> {
    let mut query = args.filter.query();
    query.extend(args.all.then(|| ("all", "true".to_owned())));
    let removed = if !args.ids.is_empty() {
        for (gone, id) in args.ids.iter().enumerate() {
            match client.delete(&[LETTERS[0], LETTERS[1], &id.to_string()]).await {
                Err(error) if gone > 0 => bail!("{error}; those before {id} are gone"),
                removed => removed?,
            }
        }
        args.ids.len() as u64
    } else if query.is_empty() {
        let what = "say which dead letters are to go: their ids, --reason, --workflow, or --all";
        return Err(Usage(what.to_owned()).into());
    } else {
        let answer = client.delete_with(&LETTERS, &query).await?;
        answer["removed"].as_u64().unwrap_or_default()
    };
    match (format, removed) {
        (Format::Json, _) => cli::print(format_args!("{:#}\n", json!({ "removed": removed }))),
        (Format::Table, 1) => cli::print("1 dead letter is gone\n"),
        (Format::Table, _) => cli::print(format_args!("{removed} dead letters are gone\n")),
    }
    Ok(())
}
