//! `fermata executions`: list runs, look at one, follow it, cancel it.

use super::{Client, Connection, Format, LARGEST_PAGE, text, time, took, watch};
use crate::{cli, duration, table};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata executions list --status Failed --workflow order
  fermata executions list --all -o json | jq -r '.items[].id'
  fermata executions get 0199a7c2-…
  fermata executions watch 0199a7c2-… --timeout 5m
  fermata executions cancel 0199a7c2-… --reason 'ordered twice'

Exit codes: 0 done (watch: the run succeeded), 1 the server cannot be reached or refuses (watch: the run failed or was
cancelled), 2 the call is wrong, 3 watch: --timeout was reached, 130 Ctrl-C (the run goes on).";

/// What `fermata executions` takes.
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
    /// Show a run and its steps.
    Get {
        /// The run.
        id: String,
    },
    /// Follow a run until its end.
    Watch {
        /// The run.
        id: String,
        /// How long to wait for the end, such as 30s.
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
    /// Ask a run to stop.
    Cancel {
        /// The run.
        id: String,
        /// Why, for the record.
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only runs that are Pending, Running, Succeeded, Failed or Cancelled.
    #[arg(long)]
    status: Option<String>,
    /// Only runs of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// Only what this runner holds now; `fermata runners` lists them.
    #[arg(long, value_name = "ID")]
    runner: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them, however many.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Does what was asked for.
pub async fn executions(args: ExecutionsArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.server)?;
    let format = args.connection.output;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Get { id } => get(&client, &id, format).await?,
        Command::Watch { id, timeout } => return watch::watch(&client, &id, timeout, format).await,
        Command::Cancel { id, reason } => cancel(&client, &id, reason, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let mut query = Vec::new();
    query.extend(args.status.map(|status| ("status", status)));
    query.extend(args.workflow.map(|workflow| ("workflowId", workflow)));
    query.extend(args.runner.map(|runner| ("runnerId", runner)));
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let (items, more) = client.list(&["executions"], &query, most).await?;
    if format == Format::Json {
        cli::print(format_args!("{:#}\n", json!({ "items": items, "more": more })));
        return Ok(());
    }
    let row = |run: &Value| {
        let why = match run["error"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None => text(run, "reason"),
        };
        vec![
            text(run, "id"),
            format!("{}@{}", text(run, "workflowId"), text(run, "workflowVersion")),
            text(run, "status"),
            time(run, "createdAt"),
            took(run),
            why,
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(
        &["ID", "WORKFLOW", "STATUS", "CREATED", "TOOK", "WHY"],
        &rows,
    ));
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

async fn get(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let query = [("include", "actions".to_owned()), ("limit", LARGEST_PAGE.to_string())];
    let run = client.get(&["executions", id], &query).await?;
    if format == Format::Json {
        cli::print(format_args!("{run:#}\n"));
        return Ok(());
    }
    let error = &run["error"];
    let place = match error["node"].as_str() {
        Some(node) => format!("at {node}: "),
        None => String::new(),
    };
    let failed = if error.is_object() {
        format!("{place}{}", text(error, "message"))
    } else {
        String::new()
    };
    let mut page = table::pairs(&[
        ("id", text(&run, "id")),
        (
            "workflow",
            format!(
                "{} (version {})",
                text(&run, "workflowId"),
                text(&run, "workflowVersion")
            ),
        ),
        ("status", text(&run, "status")),
        ("reason", text(&run, "reason")),
        ("error", failed),
        ("request id", text(&run, "requestId")),
        ("created", time(&run, "createdAt")),
        ("started", time(&run, "startedAt")),
        ("ended", time(&run, "endedAt")),
        ("took", took(&run)),
        ("wakes", time(&run, "wakeAt")),
        ("runner", text(&run, "runnerId")),
    ]);
    let steps = run["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !steps.is_empty() {
        let row = |step: &Value| {
            vec![
                text(step, "nodeId"),
                text(step, "actionType"),
                text(step, "status"),
                text(step, "attempt"),
                took(step),
                text(&step["error"], "message"),
            ]
        };
        let rows: Vec<_> = steps.iter().map(row).collect();
        page.push('\n');
        page.push_str(&table::draw(
            &["NODE", "ACTION", "STATUS", "ATTEMPT", "TOOK", "ERROR"],
            &rows,
        ));
    }
    let hidden = run["actionsTotal"]
        .as_u64()
        .unwrap_or(0)
        .saturating_sub(steps.len() as u64);
    if hidden > 0 {
        page.push_str(&format!("… and {hidden} more\n"));
    }
    page.push_str(&now(client, &run).await);
    if run["outputs"].is_object() {
        page.push_str(&format!("\noutputs\n{:#}\n", run["outputs"]));
    }
    cli::print(page);
    Ok(())
}

/// What the steps are doing that have not settled; nothing if the run is over, or its workflow is gone.
async fn now(client: &Client, run: &Value) -> String {
    if !matches!(run["status"].as_str(), Some("Pending" | "Running")) {
        return String::new();
    }
    let (workflow, id) = (text(run, "workflowId"), text(run, "id"));
    let path = ["workflows", workflow.as_str(), "runs", id.as_str()];
    let Ok(shown) = client.get(&path, &[]).await else {
        return String::new();
    };
    let mut rows = Vec::new();
    for (name, task) in shown["data"]["tasks"].as_object().into_iter().flatten() {
        let until = ["wake_at", "timeout_at", "next_attempt_at"].map(|key| time(task, key));
        let until = until.into_iter().find(|time| !time.is_empty()).unwrap_or_default();
        if matches!(task["status"].as_str(), Some("running" | "sleeping" | "waiting")) {
            rows.push(vec![
                name.clone(),
                text(task, "status"),
                until,
                text(task, "error_message"),
            ]);
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table::draw(&["NODE", "NOW", "UNTIL", "LAST ERROR"], &rows)),
    }
}

async fn cancel(client: &Client, id: &str, reason: Option<String>, format: Format) -> anyhow::Result<()> {
    let body = reason.map(|reason| json!({ "reason": reason }));
    let answer = client.post(&["executions", id, "cancel"], body.as_ref()).await?;
    let status = text(&answer, "status");
    match format {
        Format::Json => cli::print(format_args!("{answer:#}\n")),
        Format::Table if status == "Running" => cli::print(format_args!(
            "{id} is stopping; `fermata executions watch {id}` tells when it has\n"
        )),
        Format::Table => cli::print(format_args!("{id} is {status}\n")),
    }
    Ok(())
}
