//! `fermata workflows start`: start a run on the server, and follow it if asked to.

use super::super::{Client, print_json, text, watch};
use crate::{
    cli::{self, Format, Usage},
    duration, input,
};
use clap::Args;
use serde_json::json;
use std::{process::ExitCode, time::Duration};

/// The arguments of `fermata workflows start`.
#[derive(Debug, Args)]
pub(super) struct StartArgs {
    /// The id of the workflow.
    id: String,
    /// The trigger of the run: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// Start no second run with the same request id; show the run that exists instead.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Follow the run until its end, and exit as `executions watch` does.
    #[arg(long)]
    wait: bool,
    /// How long to wait for the end, such as 30s.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

pub(super) async fn start(client: &Client, args: StartArgs, format: Format) -> anyhow::Result<ExitCode> {
    let trigger = input::value("--input", &args.input, &mut std::io::stdin().lock()).map_err(Usage)?;
    let workflow = client.workflow_id(&args.id).await?;
    let mut body = json!({ "trigger": trigger });
    if let Some(id) = args.request_id {
        body["requestId"] = id.into();
    }
    let accepted = client.post(&["workflows", &workflow, "execute"], Some(&body)).await?;
    let id = text(&accepted, "executionId");
    if args.wait {
        if format == Format::Table {
            cli::say(format_args!("run {id}"));
        }
        return watch::watch(client, &id, args.timeout, format).await;
    }
    match format {
        Format::Json => print_json(&accepted),
        Format::Table => {
            cli::print(format_args!("{id}\n"));
            cli::say(format_args!(
                "{workflow} is {}; `fermata executions watch {id}` follows it",
                text(&accepted, "status")
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}
