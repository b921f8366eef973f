//! `fermata bulk`: cancel, pause, resume, rerun or delete many runs as one tracked job, with a preview.

use super::{Client, Connection, ago, print_json, text};
use crate::{
    cli::{self, Format, Usage},
    table,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{
    io::{BufRead, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata bulk cancel 'status:running workflow:order-*' --reason 'wrong price list'
  fermata bulk rerun 'status:failed workflow:order-* since:24h' --failed --version latest
  fermata bulk delete 'workflow:test-* until:7d' --yes
  fermata bulk list
  fermata bulk get 0199a7c2-…
  fermata bulk items 0199a7c2-… --state done
  fermata bulk cancel-job 0199a7c2-…

The runs are found first and counted. The job acts on exactly these, after you have confirmed it (--yes: at once), and goes on
in the server if this command is ended. Queries: docs/queries.md.

Exit codes: 0 done, 1 the server cannot be reached or refuses, or some runs were refused or failed, 2 the call is wrong, 130
Ctrl-C (the job goes on).";

/// How often the progress of a job is read.
const POLL: Duration = Duration::from_millis(500);
/// How many runs that were not acted on are shown.
const SHOWN: usize = 20;

/// The arguments of `fermata bulk`.
#[derive(Debug, Args)]
pub struct BulkArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask many runs to stop.
    Cancel {
        #[command(flatten)]
        runs: Runs,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Pause many runs.
    Pause {
        #[command(flatten)]
        runs: Runs,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume many runs that are paused.
    Resume {
        #[command(flatten)]
        runs: Runs,
        /// The reason to record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Repeat many runs that have ended, each as a new run.
    Rerun {
        #[command(flatten)]
        runs: Runs,
        /// Repeat only the nodes that failed and all that they reach.
        #[arg(long)]
        failed: bool,
        /// `latest`: with the version of new runs, instead of the version of each run.
        #[arg(long, value_parser = ["latest"])]
        version: Option<String>,
    },
    /// Delete many runs that have ended.
    Delete {
        #[command(flatten)]
        runs: Runs,
    },
    /// List jobs, newest first.
    List {
        /// Show at most this many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show a job, and the runs that it could not act on.
    Get {
        /// The id of the job.
        id: String,
    },
    /// List the runs of a job, with what became of each.
    Items {
        /// The id of the job.
        id: String,
        /// Only those that are `pending`, `done`, `refused` or `failed`.
        #[arg(long)]
        state: Option<String>,
        /// Show at most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Start a job that was prepared, and follow it.
    Start {
        /// The id of the job.
        id: String,
    },
    /// Stop a job. What was done stays done.
    CancelJob {
        /// The id of the job.
        id: String,
    },
}

#[derive(Debug, Args)]
struct Runs {
    /// Which runs: a query such as `status:running workflow:order-*`.
    #[arg(required_unless_present = "id")]
    query: Vec<String>,
    /// This run; may be given several times.
    #[arg(long, value_name = "ID", conflicts_with = "query")]
    id: Vec<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub async fn bulk(args: BulkArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    match args.command {
        Command::Cancel { runs, reason } => {
            let body = json!({ "action": "cancel", "reason": reason });
            return prepare(&client, body, runs, format).await;
        }
        Command::Pause { runs, reason } => {
            let body = json!({ "action": "pause", "reason": reason });
            return prepare(&client, body, runs, format).await;
        }
        Command::Resume { runs, reason } => {
            let body = json!({ "action": "resume", "reason": reason });
            return prepare(&client, body, runs, format).await;
        }
        Command::Rerun { runs, failed, version } => {
            let body = json!({ "action": "rerun", "failedOnly": failed, "version": version });
            return prepare(&client, body, runs, format).await;
        }
        Command::Delete { runs } => return prepare(&client, json!({ "action": "delete" }), runs, format).await,
        Command::List { limit } => list(&client, limit, format).await?,
        Command::Get { id } => {
            let job = client.get(&["bulk", &id], &[]).await?;
            return show(&client, job, format).await;
        }
        Command::Items { id, state, limit } => items(&client, &id, state, limit, format).await?,
        Command::Start { id } => return start(&client, &id, format).await,
        Command::CancelJob { id } => {
            let job = client.post(&["bulk", &id, "cancel"], None).await?;
            match format {
                Format::Json => print_json(&job),
                Format::Table => cli::print(format_args!("{}\n", summary(&job))),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn prepare(client: &Client, mut body: Value, runs: Runs, format: Format) -> anyhow::Result<ExitCode> {
    if !runs.yes && !std::io::stdin().is_terminal() {
        return Err(Usage("there is no terminal to ask on; --yes acts without asking".to_owned()).into());
    }
    match runs.id.is_empty() {
        true => body["query"] = json!(runs.query.join(" ")),
        false => {
            let mut ids = Vec::new();
            for id in &runs.id {
                ids.push(client.execution_id(id).await?);
            }
            body["ids"] = json!(ids);
        }
    }
    let job = client.post(&["bulk"], Some(&body)).await?;
    let (id, action, total) = (text(&job, "id"), text(&job, "action"), text(&job, "total"));
    if job["total"] == 0 {
        let job = client.post(&["bulk", &id, "cancel"], None).await.unwrap_or(job);
        match format {
            Format::Json => print_json(&job),
            Format::Table => cli::say("no runs match; nothing was done"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !runs.yes && !confirmed(&format!("{action} {total} runs? [y/N] "))? {
        client.post(&["bulk", &id, "cancel"], None).await?;
        cli::say("nothing was done");
        return Ok(ExitCode::SUCCESS);
    }
    start(client, &id, format).await
}

/// Asks on the terminal.
fn confirmed(question: &str) -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Starts a job and follows it to its end.
async fn start(client: &Client, id: &str, format: Format) -> anyhow::Result<ExitCode> {
    let mut job = client.post(&["bulk", id, "start"], None).await?;
    let mut shown = String::new();
    while !matches!(job["state"].as_str(), Some("finished" | "cancelled")) {
        let now = summary(&job);
        if format == Format::Table && now != shown {
            cli::say(&now);
            shown = now;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => {
                cli::say(format_args!("the job goes on; `fermata bulk get {id}` shows it, `fermata bulk cancel-job {id}` stops it"));
                return Ok(ExitCode::from(130));
            }
        }
        job = client.get(&["bulk", id], &[]).await?;
    }
    show(client, job, format).await
}

async fn show(client: &Client, mut job: Value, format: Format) -> anyhow::Result<ExitCode> {
    let id = text(&job, "id");
    let mut rest = Vec::new();
    for state in ["refused", "failed"] {
        let query = [("state", state.to_owned())];
        let (items, _) = client.list(&["bulk", &id, "items"], &query, SHOWN).await?;
        rest.extend(items);
    }
    match format {
        Format::Json => {
            job["problems"] = json!(rest);
            print_json(&job);
        }
        Format::Table => {
            cli::print(format_args!("{}\n", summary(&job)));
            if !rest.is_empty() {
                cli::print(drawn(&rest));
            }
        }
    }
    let is_clean = job["refused"] == 0 && job["failed"] == 0;
    Ok(match is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs of a job as a table.
fn drawn(items: &[Value]) -> String {
    let keys = ["executionId", "state", "createdExecutionId", "code", "message"];
    let rows: Vec<_> = items
        .iter()
        .map(|item| keys.map(|key| text(item, key)).to_vec())
        .collect();
    table::draw(&["ID", "STATE", "NEW RUN", "CODE", "MESSAGE"], &rows)
}

async fn items(client: &Client, id: &str, state: Option<String>, limit: u32, format: Format) -> anyhow::Result<()> {
    let query: Vec<_> = state.map(|state| ("state", state)).into_iter().collect();
    let (items, more) = client.list(&["bulk", id, "items"], &query, limit as usize).await?;
    match format {
        Format::Json => print_json(&json!({ "items": items, "more": more })),
        Format::Table => cli::print(drawn(&items)),
    }
    Ok(())
}

fn summary(job: &Value) -> String {
    let part = |key: &str| text(job, key);
    format!(
        "{} {}: {} of {} done, {} refused, {} failed (job {})",
        part("action"),
        part("state"),
        part("done"),
        part("total"),
        part("refused"),
        part("failed"),
        part("id")
    )
}

async fn list(client: &Client, limit: u32, format: Format) -> anyhow::Result<()> {
    let (items, more) = client.list(&["bulk"], &[], limit as usize).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |job: &Value| {
        let counts = ["total", "done", "refused", "failed"].map(|key| text(job, key));
        let mut row = vec![text(job, "id"), text(job, "action"), text(job, "state")];
        row.extend(counts);
        row.extend([ago(job, "createdAt"), text(job, "query")]);
        row
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    let head = [
        "ID", "ACTION", "STATE", "RUNS", "DONE", "REFUSED", "FAILED", "CREATED", "QUERY",
    ];
    cli::print(table::draw(&head, &rows));
    Ok(())
}
