//! `fermata workflows`: list, show and publish workflows, start runs of them, and change their state.

mod lifecycle;
mod start;
mod versions;

use super::executions::operate::pause;
use super::{Client, ClientError, Connection, ago, instant, print_json, publish::publish, text};
use crate::{
    cli::{self, Format},
    config::Config,
    table,
};
use clap::{Args, Subcommand};
use lifecycle::Step;
use serde_json::{Value, json};
use start::StartArgs;
use std::{path::PathBuf, process::ExitCode};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata workflows list --status Active
  fermata workflows get order --version 2
  fermata workflows get order --definition | fermata run - --input id=7
  fermata workflows publish order.yaml
  fermata workflows publish workflows/           every document in the folder
  fermata workflows start order --input id=7 --wait
  fermata workflows versions order
  fermata workflows rollback order               activate the version before the current one
  fermata workflows rollback order 2             activate version 2
  fermata workflows disable order
  fermata workflows archive order
  fermata workflows reactivate order
  fermata workflows delete order

The id of a workflow may be shortened to an unambiguous beginning, except for `delete`.

Exit codes: 0 done (start --wait: the run succeeded), 1 the server cannot be reached or refuses (start --wait: the run
failed or was cancelled), 2 the document or the call is wrong, 3 start: --timeout was reached, 130 Ctrl-C (a run that
was started goes on).";

/// The arguments of `fermata workflows`.
#[derive(Debug, Args)]
pub struct WorkflowsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

/// The argument of commands about one workflow.
#[derive(Debug, Args)]
struct OneArgs {
    /// The id of the workflow.
    id: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List workflows, by id.
    List(ListArgs),
    /// Show a workflow and its document.
    Get {
        /// The id of the workflow.
        id: String,
        /// Show this version instead of the current one.
        #[arg(long, value_name = "N")]
        version: Option<String>,
        /// Print the document as it was sent, and nothing else.
        #[arg(long)]
        definition: bool,
    },
    /// Publish documents: each becomes the current version of its workflow.
    Publish {
        /// A document (JSON or YAML), a folder of documents, or `-` for standard input.
        file: PathBuf,
    },
    /// Start a run.
    Start(StartArgs),
    /// List the versions of a workflow, newest first.
    Versions(OneArgs),
    /// Activate an older version; new runs use it.
    Rollback {
        /// The id of the workflow.
        id: String,
        /// The version to activate [default: the one before the current one].
        #[arg(value_name = "VERSION", conflicts_with = "to")]
        version: Option<u32>,
        /// The same as VERSION.
        #[arg(long, value_name = "N")]
        to: Option<u32>,
    },
    /// Let an active workflow start new runs again.
    Enable(OneArgs),
    /// Let no new runs start until `enable`; runs in flight continue.
    Disable(OneArgs),
    /// Make runs that have not begun wait until `resume`; runs in flight continue.
    Pause(PauseArgs),
    /// Let the runs of a paused workflow begin.
    Resume(PauseArgs),
    /// Archive a workflow: no new runs start, runs in flight continue, runs that have not begun are cancelled.
    Archive(OneArgs),
    /// Make an archived workflow active again.
    Reactivate(OneArgs),
    /// Delete a workflow; runs in flight continue.
    Delete(OneArgs),
}

#[derive(Debug, Args)]
struct PauseArgs {
    /// The id of the workflow.
    id: String,
    /// The reason to record.
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only workflows that are Draft, Active or Archived.
    #[arg(long)]
    status: Option<String>,
    /// Only workflows with this text in their id or name.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Show at most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show all of them.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Runs the command.
pub async fn workflows(args: WorkflowsArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Get {
            id,
            version,
            definition,
        } => {
            let id = client.workflow_id(&id).await?;
            get(&client, &id, version, definition, format).await?;
        }
        Command::Publish { file } => return publish(&client, &file, config, format).await,
        Command::Start(args) => return start::start(&client, args, format).await,
        Command::Versions(OneArgs { id }) => {
            versions::versions(&client, &client.workflow_id(&id).await?, format).await?;
        }
        Command::Rollback { id, version, to } => {
            versions::rollback(&client, &client.workflow_id(&id).await?, version.or(to), format).await?;
        }
        Command::Enable(OneArgs { id }) => Step::Enable.take(&client, &id, format).await?,
        Command::Disable(OneArgs { id }) => Step::Disable.take(&client, &id, format).await?,
        Command::Pause(PauseArgs { id, reason }) => {
            let id = client.workflow_id(&id).await?;
            let done = "is paused; runs in flight continue, others wait";
            pause(&client, &["workflows", &id, "pause"], &id, reason, done, format).await?;
        }
        Command::Resume(PauseArgs { id, reason }) => {
            let id = client.workflow_id(&id).await?;
            pause(
                &client,
                &["workflows", &id, "resume"],
                &id,
                reason,
                "is resumed",
                format,
            )
            .await?;
        }
        Command::Archive(OneArgs { id }) => Step::Archive.take(&client, &id, format).await?,
        Command::Reactivate(OneArgs { id }) => Step::Reactivate.take(&client, &id, format).await?,
        Command::Delete(OneArgs { id }) => {
            client.delete(&["workflows", &id]).await?;
            match format {
                Format::Json => print_json(&json!({ "workflowId": id, "deleted": true })),
                Format::Table => cli::print(format_args!("{id} is deleted\n")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let mut query = Vec::new();
    query.extend(args.status.map(|status| ("status", status)));
    query.extend(args.search.map(|search| ("search", search)));
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let (items, more) = client.list(&["workflows"], &query, most).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |workflow: &Value| {
        let disabled = workflow["status"] == "Active" && workflow["isEnabled"] == false;
        let paused = workflow["pausedAt"].is_string();
        vec![
            text(workflow, "id"),
            format!(
                "{}{}{}",
                text(workflow, "status"),
                if disabled { " (disabled)" } else { "" },
                if paused { " (paused)" } else { "" }
            ),
            text(workflow, "currentVersion"),
            ago(workflow, "updatedAt"),
            text(workflow, "displayName"),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(&["ID", "STATUS", "VERSION", "UPDATED", "NAME"], &rows));
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

/// A workflow with one of its documents, in the format that is the same for all dialects.
pub(super) async fn with_definition(client: &Client, id: &str, version: Option<String>) -> Result<Value, ClientError> {
    let mut query = vec![("format", "definition".to_owned())];
    query.extend(version.map(|version| ("version", version)));
    client.get(&["workflows", id], &query).await
}

async fn get(
    client: &Client,
    id: &str,
    version: Option<String>,
    definition: bool,
    format: Format,
) -> anyhow::Result<()> {
    let workflow = with_definition(client, id, version).await?;
    let document = match workflow["source"].as_str() {
        Some(source) => source.trim_end().to_owned(),
        None => format!("{:#}", workflow["definition"]),
    };
    if definition {
        cli::print(format_args!("{document}\n"));
        return Ok(());
    }
    if format == Format::Json {
        print_json(&workflow);
        return Ok(());
    }
    let which = match workflow["version"].as_u64() {
        Some(version) => format!("version {version}"),
        None => "draft".to_owned(),
    };
    cli::print(format_args!("{}\n{which}\n{document}\n", about(&workflow)));
    Ok(())
}

fn about(workflow: &Value) -> String {
    table::pairs(&[
        ("id", text(workflow, "id")),
        ("name", text(workflow, "displayName")),
        ("description", text(workflow, "description")),
        ("status", text(workflow, "status")),
        ("enabled", text(workflow, "isEnabled")),
        ("paused", instant(workflow, "pausedAt")),
        ("current version", text(workflow, "currentVersion")),
        ("latest version", text(workflow, "latestVersion")),
        ("dialect", text(workflow, "dialect")),
        ("created", instant(workflow, "createdAt")),
        ("updated", instant(workflow, "updatedAt")),
        ("checksum", text(workflow, "checksum")),
    ])
}
