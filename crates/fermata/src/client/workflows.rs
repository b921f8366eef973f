//! `fermata workflows`: list them, look at one, publish a file, archive one, delete one.

use super::{Client, Connection, Format, publish::publish, text, time};
use crate::{cli, config::Config, table};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::{path::PathBuf, process::ExitCode};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata workflows list --status Active
  fermata workflows get order --version 2
  fermata workflows get order --definition | fermata run - --input id=7
  fermata workflows publish order.yaml
  fermata workflows archive order
  fermata workflows delete order

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the document or the call is wrong.";

/// What `fermata workflows` takes.
#[derive(Debug, Args)]
pub struct WorkflowsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List workflows, by id.
    List(ListArgs),
    /// Show a workflow.
    Get {
        /// The workflow.
        id: String,
        /// This version instead of the current one.
        #[arg(long, value_name = "N")]
        version: Option<u32>,
        /// Print its document, as it was sent, and nothing else.
        #[arg(long)]
        definition: bool,
    },
    /// Make a document the version of its workflow that new runs use.
    Publish {
        /// The document: JSON or YAML, or `-` for standard input.
        file: PathBuf,
    },
    /// Let no new runs start; runs in flight finish.
    Archive {
        /// The workflow.
        id: String,
    },
    /// Delete a workflow; runs in flight finish.
    Delete {
        /// The workflow.
        id: String,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only workflows that are Draft, Active or Archived.
    #[arg(long)]
    status: Option<String>,
    /// Only those with this text in their id or name.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them, however many.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Does what was asked for.
pub async fn workflows(args: WorkflowsArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.server)?;
    let format = args.connection.output;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Get {
            id,
            version,
            definition,
        } => get(&client, &id, version, definition, format).await?,
        Command::Publish { file } => return publish(&client, &file, config, format).await,
        Command::Archive { id } => {
            let answer = client.post(&["workflows", &id, "archive"], None).await?;
            match format {
                Format::Json => cli::print(format_args!("{answer:#}\n")),
                Format::Table => cli::print(format_args!("{id} is {}\n", text(&answer, "status"))),
            }
        }
        Command::Delete { id } => {
            client.delete(&["workflows", &id]).await?;
            match format {
                Format::Json => cli::print(format_args!("{:#}\n", json!({ "workflowId": id, "deleted": true }))),
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
        cli::print(format_args!("{:#}\n", json!({ "items": items, "more": more })));
        return Ok(());
    }
    let row = |workflow: &Value| {
        let disabled = workflow["status"] == "Active" && workflow["isEnabled"] == false;
        vec![
            text(workflow, "id"),
            format!(
                "{}{}",
                text(workflow, "status"),
                if disabled { " (disabled)" } else { "" }
            ),
            text(workflow, "currentVersion"),
            time(workflow, "updatedAt"),
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

async fn get(client: &Client, id: &str, version: Option<u32>, definition: bool, format: Format) -> anyhow::Result<()> {
    let query: Vec<_> = version
        .map(|version| ("version", version.to_string()))
        .into_iter()
        .collect();
    let workflow = client.get(&["workflows", id], &query).await?;
    let document = match workflow["source"].as_str() {
        Some(source) => source.trim_end().to_owned(),
        None => format!("{:#}", document_of(&workflow)),
    };
    if definition {
        cli::print(format_args!("{document}\n"));
        return Ok(());
    }
    if format == Format::Json {
        cli::print(format_args!("{workflow:#}\n"));
        return Ok(());
    }
    let which = match workflow["version"].as_u64().or(version.map(u64::from)) {
        Some(version) => format!("version {version}"),
        None if workflow["data"].is_object() => "current version".to_owned(),
        None => "draft".to_owned(),
    };
    cli::print(format_args!("{}\n{which}\n{document}\n", about(&workflow)));
    Ok(())
}

/// The document in an answer. Of a workflow that is shown in the words of its dialect, it is what these words are of.
pub(super) fn document_of(workflow: &Value) -> Value {
    let Value::Object(data) = &workflow["data"] else {
        return workflow["definition"].clone();
    };
    let mut document = Map::new();
    for key in [
        "name",
        "description",
        "trigger",
        "cron_expression",
        "max_duration_seconds",
        "enabled",
        "tasks",
    ] {
        // It need not be said that a workflow is enabled.
        let said = data.get(key).filter(|value| key != "enabled" || **value != true);
        document.extend(said.map(|value| (key.to_owned(), value.clone())));
    }
    Value::Object(document)
}

fn about(workflow: &Value) -> String {
    if workflow["data"].is_object() {
        let data = &workflow["data"];
        return table::pairs(&[
            ("name", text(data, "name")),
            ("id", text(data, "id")),
            ("description", text(data, "description")),
            ("enabled", text(data, "enabled")),
            ("trigger", text(data, "trigger")),
            ("cron", text(data, "cron_expression")),
            ("tasks", text(data, "task_count")),
            ("created", time(data, "inserted_at")),
        ]);
    }
    table::pairs(&[
        ("id", text(workflow, "id")),
        ("name", text(workflow, "displayName")),
        ("description", text(workflow, "description")),
        ("status", text(workflow, "status")),
        ("enabled", text(workflow, "isEnabled")),
        ("current version", text(workflow, "currentVersion")),
        ("latest version", text(workflow, "latestVersion")),
        ("dialect", text(workflow, "dialect")),
        ("created", time(workflow, "createdAt")),
        ("updated", time(workflow, "updatedAt")),
        ("checksum", text(workflow, "checksum")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_put_together_of_what_is_shown() {
        let shown = json!({ "data": { "id": "01930c5d", "name": "n", "trigger": "api", "task_count": 1, "enabled": true,
            "inserted_at": "2026", "description": "d", "tasks": { "a": { "sleep": 1 } } } });
        let expected = json!({ "name": "n", "description": "d", "trigger": "api", "tasks": { "a": { "sleep": 1 } } });
        assert_eq!(document_of(&shown), expected);
        let disabled = json!({ "data": { "name": "n", "enabled": false, "tasks": {} } });
        assert_eq!(
            document_of(&disabled),
            json!({ "name": "n", "enabled": false, "tasks": {} })
        );
        let other = json!({ "id": "w", "definition": { "id": "w" } });
        assert_eq!(document_of(&other), json!({ "id": "w" }));
    }
}
