//! `fermata executions`: list runs, show one and its tree, follow one; cancel, pause, resume and repeat one; skip a node, send a
//! request again.

mod events;
mod get;
pub(super) mod operate;
mod rerun;
mod tree;

use super::{Client, Connection, ago, print_json, text, took, watch};
use crate::{
    cli::{self, Format},
    duration, table,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata executions list 'status:failed workflow:order-* since:24h'
  fermata executions list --status Failed --workflow order
  fermata executions list --all -o json | jq -r '.items[].id'
  fermata executions get 0199a7c2-…
  fermata executions tree 0199a7c2-…
  fermata executions events 0199a7c2-…
  fermata executions watch 0199a7c2-… --timeout 5m
  fermata executions cancel 0199a7c2-… --reason 'ordered twice'
  fermata executions rerun 0199a7c2-… --from charge --version latest --wait
  fermata executions rerun 0199a7c2-… --failed --param charge.url=http://…
  fermata executions pause 0199a7c2-…
  fermata executions resume 0199a7c2-…
  fermata executions skip 0199a7c2-… approve --reason 'approved by phone' --outputs '{\"outcome\": \"approve\"}'
  fermata executions resend 0199a7c2-… charge

An id may be shortened to at least 4 characters of its beginning or of its end. Executions of the same minute begin
alike, so the end is usually the better choice.

Exit codes: 0 done (watch, rerun --wait: the run succeeded), 1 the server cannot be reached or refuses (watch, rerun --wait: the
run failed or was cancelled), 2 the call is wrong, 3 --timeout was reached, 130 Ctrl-C (the run goes on).";

/// The arguments of `fermata executions`.
#[derive(Debug, Args)]
pub struct ExecutionsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List runs, newest first.
    List(ListArgs),
    /// Show a run: trigger, steps with inputs and outputs, what it waits for, why steps were skipped.
    Get {
        /// The id of the run.
        id: String,
    },
    /// Show the runs that a run started, and those that led to it.
    Tree {
        /// The id of the run.
        id: String,
    },
    /// Show the journal of a run, oldest event first.
    Events {
        /// The id of the run.
        id: String,
    },
    /// Follow a run until its end.
    Watch {
        /// The id of the run.
        id: String,
        /// How long to wait for the end, such as 30s.
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
    /// Ask a run to stop.
    Cancel {
        /// The id of the run.
        id: String,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Repeat a run that has ended, as a new run: all of it, from a node on, or the nodes that failed.
    Rerun(rerun::RerunArgs),
    /// Pause a run: running actions finish, nothing new starts, its deadline runs on.
    Pause {
        /// The id of the run.
        id: String,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume a run that is paused.
    Resume {
        /// The id of the run.
        id: String,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Skip a node that waits, or waits for its next attempt: it succeeds with the given outputs.
    Skip {
        /// The id of the run.
        id: String,
        /// The node.
        node: String,
        /// Why; it is recorded in the journal and the audit trail.
        #[arg(long)]
        reason: String,
        /// The outputs of the node, a JSON object; {} by default. Of a decision: {"outcome": "…"}.
        #[arg(long, value_name = "JSON")]
        outputs: Option<String>,
    },
    /// Send the request of a node again that waits for the answer of a service.
    Resend {
        /// The id of the run.
        id: String,
        /// The node.
        node: String,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// A query, such as `status:failed workflow:order-* since:24h tag:eu order_id=123`.
    query: Vec<String>,
    /// Only runs that are Pending, Running, Succeeded, Failed or Cancelled.
    #[arg(long)]
    status: Option<String>,
    /// Only runs of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// Only runs that this runner holds now; `fermata runners` lists runners.
    #[arg(long, value_name = "ID")]
    runner: Option<String>,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show all of them.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Runs the command.
pub async fn executions(args: ExecutionsArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Get { id } => get::get(&client, &client.execution_id(&id).await?, format).await?,
        Command::Tree { id } => tree::tree(&client, &client.execution_id(&id).await?, format).await?,
        Command::Events { id } => events::events(&client, &client.execution_id(&id).await?, format).await?,
        Command::Watch { id, timeout } => {
            let id = client.execution_id(&id).await?;
            return watch::watch(&client, &id, timeout, format).await;
        }
        Command::Rerun(args) => return rerun::rerun(&client, args, format).await,
        Command::Cancel { id, reason } => cancel(&client, &client.execution_id(&id).await?, reason, format).await?,
        Command::Pause { id, reason } => {
            let id = client.execution_id(&id).await?;
            let done = "is paused; actions that are running finish";
            operate::pause(&client, &["executions", &id, "pause"], &id, reason, done, format).await?;
        }
        Command::Resume { id, reason } => {
            let id = client.execution_id(&id).await?;
            operate::pause(
                &client,
                &["executions", &id, "resume"],
                &id,
                reason,
                "is resumed",
                format,
            )
            .await?;
        }
        Command::Skip {
            id,
            node,
            reason,
            outputs,
        } => {
            let outputs = outputs.as_deref().map(operate::outputs).transpose()?;
            let id = client.execution_id(&id).await?;
            operate::skip(&client, &id, &node, &reason, outputs, format).await?;
        }
        Command::Resend { id, node, reason } => {
            operate::resend(&client, &client.execution_id(&id).await?, &node, reason, format).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let mut query = Vec::new();
    query.extend((!args.query.is_empty()).then(|| ("query", args.query.join(" "))));
    query.extend(args.status.map(|status| ("status", status)));
    query.extend(args.workflow.map(|workflow| ("workflowId", workflow)));
    query.extend(args.runner.map(|runner| ("runnerId", runner)));
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let (items, more) = client.list(&["executions"], &query, most).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |run: &Value| {
        let why = match run["error"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None if run["pausedAt"].is_string() => format!("paused {}", ago(run, "pausedAt")),
            None => match get::waiting_for(run) {
                waits if waits.is_empty() => text(run, "reason"),
                waits => format!("waits for {waits}"),
            },
        };
        vec![
            text(run, "id"),
            format!("{}@{}", text(run, "workflowId"), text(run, "workflowVersion")),
            text(run, "status"),
            ago(run, "createdAt"),
            took(run),
            why,
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(
        &["ID", "WORKFLOW", "STATUS", "CREATED", "TOOK", "WHY"],
        &rows,
    ));
    if items.is_empty() {
        cli::say(match query.is_empty() {
            true => "there are no runs yet",
            false => "no runs match",
        });
    }
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

async fn cancel(client: &Client, id: &str, reason: Option<String>, format: Format) -> anyhow::Result<()> {
    let body = reason.map(|reason| json!({ "reason": reason }));
    let answer = client.post(&["executions", id, "cancel"], body.as_ref()).await?;
    let status = text(&answer, "status");
    match format {
        Format::Json => print_json(&answer),
        Format::Table if status == "Running" => cli::print(format_args!(
            "{id} is stopping; `fermata executions watch {id}` shows when it has stopped\n"
        )),
        Format::Table if status == "Succeeded" || status == "Failed" => {
            cli::print(format_args!("{id} has ended ({status}); nothing was cancelled\n"))
        }
        Format::Table => cli::print(format_args!("{id} is {status}\n")),
    }
    Ok(())
}
