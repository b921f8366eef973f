//! `fermata audit`: who changed what, on a server.

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
  fermata audit                                        the newest changes
  fermata audit --action workflow --target ship-order  changes of one workflow
  fermata audit --outcome refused --since 2026-11-17T00:00:00Z
  fermata audit --who ada --json

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    connection: Connection,
    /// Only changes of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only changes of this principal or credential.
    #[arg(long)]
    who: Option<String>,
    /// Only this action, such as `workflow.publish`, or all of one kind, such as `workflow`.
    #[arg(long)]
    action: Option<String>,
    /// Only changes of this workflow, execution, key and so on.
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only `done`, `requested` or `refused`.
    #[arg(long)]
    outcome: Option<String>,
    /// Only changes since this time.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only changes before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// Runs the command.
pub async fn audit(args: AuditArgs) -> anyhow::Result<ExitCode> {
    let (client, _) = args.connection.open()?;
    let query = [
        ("tenantId", args.tenant),
        ("who", args.who),
        ("action", args.action),
        ("target", args.target),
        ("outcome", args.outcome),
        ("since", args.since),
        ("until", args.until),
    ];
    let query: Vec<_> = query
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let (items, _) = client.list(&["audit"], &query, args.limit).await?;
    match args.connection.format() {
        Format::Json => print_json(&json!({ "items": items })),
        Format::Table => show(&items),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(items: &[Value]) {
    let row = |row: &Value| {
        vec![
            ago(row, "at"),
            text(row, "who"),
            text(row, "tenantId"),
            text(row, "address"),
            text(row, "action"),
            text(row, "target"),
            text(row, "outcome"),
            text(row, "detail"),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    let head = ["WHEN", "WHO", "TENANT", "FROM", "ACTION", "TARGET", "OUTCOME", "DETAIL"];
    cli::print(table::draw(&head, &rows));
}
