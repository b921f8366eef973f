//! `fermata events`: publish events, which start the workflows whose triggers they match.

use super::{Connection, print_json, text};
use crate::{
    cli::{self, Format, Usage},
    input, table,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata events publish order.paid --data orderId=17 --data total=120
  fermata events publish order.paid --source /shop --id 7f3a --data @order.json

An event with the same source and id is accepted once in seven days. docs/triggers.md has more.

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish an event.
    Publish(PublishArgs),
}

#[derive(Debug, Args)]
struct PublishArgs {
    /// The type of the event, such as order.paid.
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The data: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE")]
    data: Vec<String>,
    /// Where it happened [default: urn:fermata:api].
    #[arg(long)]
    source: Option<String>,
    /// Its id, unique within the source [default: a new one].
    #[arg(long)]
    id: Option<String>,
    /// What it is about, within the source.
    #[arg(long)]
    subject: Option<String>,
}

/// Runs the command.
pub async fn events(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    let Command::Publish(args) = args.command;
    let data = input::value("--data", &args.data, &mut std::io::stdin().lock()).map_err(Usage)?;
    let mut event = json!({ "type": args.event_type, "data": data });
    for (name, value) in [("source", args.source), ("id", args.id), ("subject", args.subject)] {
        if let Some(value) = value {
            event[name] = value.into();
        }
    }
    let answer = client.post(&["events"], Some(&event)).await?;
    if format == Format::Json {
        print_json(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |event: &Value| {
        let duplicate = if event["isDuplicate"] == true { "yes" } else { "no" };
        vec![
            text(event, "id"),
            text(event, "source"),
            text(event, "matched"),
            duplicate.to_owned(),
        ]
    };
    let rows: Vec<_> = answer["items"].as_array().into_iter().flatten().map(row).collect();
    cli::print(table::draw(&["ID", "SOURCE", "MATCHED", "DUPLICATE"], &rows));
    Ok(ExitCode::SUCCESS)
}
