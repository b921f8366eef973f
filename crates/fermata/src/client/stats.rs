//! `fermata stats`: numbers of a server's runs.

use super::{Connection, print_json, text};
use crate::{
    cli::{self, Format},
    duration, table,
};
use clap::Args;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata stats
  fermata stats --since 1h --workflow order
  fermata stats --since 7d -o json | jq '.series[] | [.at, .failed]'

Durations are estimated from a histogram: they are exact to the bounds of its buckets (1, 3, 10, 30, … ms).

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only runs of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// How far back, such as 1h, 24h or 7d; at most 31d.
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    since: String,
}

/// Shows numbers.
pub async fn stats(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    let mut query = vec![("since", args.since)];
    query.extend(args.workflow.map(|workflow| ("workflowId", workflow)));
    let stats = client.get(&["stats"], &query).await?;
    if format == Format::Json {
        print_json(&stats);
        return Ok(ExitCode::SUCCESS);
    }
    let workflows = stats["workflows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows: Vec<Vec<String>> = workflows
        .iter()
        .map(|counts| row(text(counts, "workflowId"), counts))
        .collect();
    rows.push(row("all".to_owned(), &stats["overall"]));
    let head = [
        "WORKFLOW",
        "STARTED",
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
        "SUCCESS",
        "P50",
        "P95",
    ];
    cli::print(table::draw(&head, &rows));
    let series = stats["series"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(last) = series.last() {
        cli::print(format_args!("\nqueue depth at last: {}\n", text(last, "queueDepth")));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(name: String, counts: &Value) -> Vec<String> {
    let rate = counts["successRate"].as_f64();
    let time = |key: &str| {
        let millis = counts[key].as_u64().map(Duration::from_millis);
        millis.map(duration::show).unwrap_or_default()
    };
    vec![
        name,
        text(counts, "started"),
        text(counts, "succeeded"),
        text(counts, "failed"),
        text(counts, "cancelled"),
        rate.map(|rate| format!("{:.1} %", rate * 100.0)).unwrap_or_default(),
        time("p50Ms"),
        time("p95Ms"),
    ]
}
