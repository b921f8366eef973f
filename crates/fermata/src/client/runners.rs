//! `fermata runners`: the processes that execute runs.

use super::{Connection, ago, print_json, text};
use crate::{
    cli::{self, Format},
    table,
};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata runners
  fermata runners -o json | jq '.items[] | select(.isAlive | not)'
  fermata executions list --runner 0199a7c2-…

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata runners`.
#[derive(Debug, Args)]
pub struct RunnersArgs {
    #[command(flatten)]
    connection: Connection,
}

/// Lists runners.
pub async fn runners(args: RunnersArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    let (items, _) = client.list(&["runners"], &[], usize::MAX).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items }));
        return Ok(ExitCode::SUCCESS);
    }
    let row = |runner: &Value| {
        let alive = if runner["isAlive"] == true { "yes" } else { "no" };
        vec![
            text(runner, "id"),
            text(runner, "host"),
            text(runner, "pid"),
            text(runner, "role"),
            text(runner, "version"),
            ago(runner, "startedAt"),
            ago(runner, "heartbeatAt"),
            alive.to_owned(),
            text(runner, "executions"),
        ]
    };
    let head = [
        "ID",
        "HOST",
        "PID",
        "ROLE",
        "VERSION",
        "STARTED",
        "HEARTBEAT",
        "ALIVE",
        "RUNS",
    ];
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(&head, &rows));
    Ok(ExitCode::SUCCESS)
}
