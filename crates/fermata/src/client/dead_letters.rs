//! `fermata dead-letters`: list, show, requeue and delete dead-lettered runs.

use super::{Client, Connection, ago, instant, print_json, text};
use crate::{
    cli::{self, Format, Usage},
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

/// The arguments of `fermata dead-letters`.
#[derive(Debug, Args)]
pub struct DeadLettersArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, newest first.
    List(ListArgs),
    /// Show a dead letter with the request it holds.
    Show {
        /// The id of the dead letter.
        id: String,
    },
    /// Start a new run from the request in a dead letter, and delete the dead letter.
    Requeue {
        /// The ids of dead letters.
        #[arg(required = true)]
        ids: Vec<Uuid>,
        /// Use the workflow version of the dead-lettered run instead of the current one.
        #[arg(long)]
        same_version: bool,
    },
    /// Delete dead letters: by id, by filter, or all.
    Purge(PurgeArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show all of them.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

#[derive(Debug, Args)]
struct PurgeArgs {
    /// The ids of dead letters.
    #[arg(conflicts_with_all = ["reason", "workflow", "all"])]
    ids: Vec<Uuid>,
    #[command(flatten)]
    filter: Filter,
    /// Delete all dead letters.
    #[arg(long, conflicts_with_all = ["reason", "workflow"])]
    all: bool,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only dead letters with this reason: INVALID_TRIGGER, POISON or COMMIT_REJECTED.
    #[arg(long)]
    reason: Option<String>,
    /// Only dead letters of this workflow.
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

const DEAD_LETTERS: [&str; 2] = ["admin", "dead-letters"];

/// Runs the command.
pub async fn dead_letters(args: DeadLettersArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
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
    let (items, more) = client.list(&DEAD_LETTERS, &args.filter.query(), most).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |letter: &Value| {
        vec![
            text(letter, "id"),
            text(letter, "reason"),
            format!("{}@{}", text(letter, "workflowId"), text(letter, "workflowVersion")),
            ago(letter, "enqueuedAt"),
            text(letter, "executionId"),
            text(letter, "lastError"),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    let head = ["ID", "REASON", "WORKFLOW", "DEAD-LETTERED", "RUN", "WHY"];
    cli::print(table::draw(&head, &rows));
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

async fn show(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let letter = client.get(&[DEAD_LETTERS[0], DEAD_LETTERS[1], id], &[]).await?;
    if format == Format::Json {
        print_json(&letter);
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
        ("dead-lettered", instant(&letter, "enqueuedAt")),
        ("workflow", workflow),
        ("run", text(&letter, "executionId")),
        ("tenant", text(&letter, "tenantId")),
        ("attempts", text(&letter, "attempts")),
        ("last error", text(&letter, "lastError")),
    ]);
    page.push_str(&format!("\nrequest\n{:#}\n", letter["payload"]));
    cli::print(page);
    Ok(())
}

async fn requeue(client: &Client, ids: &[Uuid], same_version: bool, format: Format) -> anyhow::Result<()> {
    let version = if same_version { "same" } else { "current" };
    for id in ids {
        let path = [DEAD_LETTERS[0], DEAD_LETTERS[1], &id.to_string(), "requeue"];
        let answer = client.post_with(&path, &[("version", version.to_owned())]).await?;
        match format {
            Format::Json => print_json(&answer),
            Format::Table => cli::print(format_args!(
                "requeued {id} as run {}, which is {}\n",
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
            match client
                .delete(&[DEAD_LETTERS[0], DEAD_LETTERS[1], &id.to_string()])
                .await
            {
                Err(error) if gone > 0 => bail!("{error}; the dead letters before {id} were deleted"),
                removed => removed?,
            }
        }
        args.ids.len() as u64
    } else if query.is_empty() {
        let what = "name the dead letters to delete: their ids, --reason, --workflow, or --all";
        return Err(Usage(what.to_owned()).into());
    } else {
        let answer = client.delete_with(&DEAD_LETTERS, &query).await?;
        answer["removed"].as_u64().unwrap_or_default()
    };
    match (format, removed) {
        (Format::Json, _) => print_json(&json!({ "removed": removed })),
        (Format::Table, 1) => cli::print("deleted 1 dead letter\n"),
        (Format::Table, _) => cli::print(format_args!("deleted {removed} dead letters\n")),
    }
    Ok(())
}
