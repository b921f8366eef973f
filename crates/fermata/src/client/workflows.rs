//! `fermata workflows`: list them, look at one, publish a file, archive one.

use super::{Client, ClientError, Connection, Format, Refused, text, time};
use crate::{
    cli::{self, USAGE, Usage},
    config::Config,
    excerpt::{self, Place},
    table, validate,
};
use clap::{Args, Subcommand};
use fermata_dialects::{Document, Format as Written};
use reqwest::Method;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata workflows list --status Active
  fermata workflows get order --version 2
  fermata workflows get order --definition | fermata run - --input id=7
  fermata workflows publish order.yaml
  fermata workflows archive order

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
    /// Save a document as the draft of its workflow and make it the version that new runs use.
    Publish {
        /// The document: JSON or YAML, or `-` for standard input.
        file: PathBuf,
    },
    /// Let no new runs start; runs in flight finish.
    Archive {
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
        None => format!("{:#}", workflow["definition"]),
    };
    if definition {
        cli::print(format_args!("{document}\n"));
        return Ok(());
    }
    if format == Format::Json {
        cli::print(format_args!("{workflow:#}\n"));
        return Ok(());
    }
    let pairs = table::pairs(&[
        ("id", text(&workflow, "id")),
        ("name", text(&workflow, "displayName")),
        ("description", text(&workflow, "description")),
        ("status", text(&workflow, "status")),
        ("enabled", text(&workflow, "isEnabled")),
        ("current version", text(&workflow, "currentVersion")),
        ("latest version", text(&workflow, "latestVersion")),
        ("dialect", text(&workflow, "dialect")),
        ("created", time(&workflow, "createdAt")),
        ("updated", time(&workflow, "updatedAt")),
        ("checksum", text(&workflow, "checksum")),
    ]);
    let which = match workflow["version"].as_u64() {
        Some(version) => format!("version {version}"),
        None => "draft".to_owned(),
    };
    cli::print(format_args!("{pairs}\n{which}\n{document}\n"));
    Ok(())
}

/// Saves a draft and publishes it. The document is read here too: its id says where its draft belongs.
async fn publish(client: &Client, file: &Path, config: &Config, format: Format) -> anyhow::Result<ExitCode> {
    let (source, name) = validate::read(file).map_err(Usage)?;
    let document = match Document::parse(&source, &name, &config.settings().dialects.document) {
        Ok(document) => document,
        Err(problems) => {
            cli::say(problems.render(cli::colors(&std::io::stderr())).trim_end());
            return Ok(ExitCode::from(USAGE));
        }
    };
    let id = text(document.value(), "id");
    let yaml = document.format() == Written::Yaml;
    let saved = match client.document(Method::POST, &["workflows"], &source, yaml).await {
        // It was published before, so its draft is a resource of its own.
        Err(ClientError::Refused(refused)) if refused.code == "WORKFLOW_IMMUTABLE" => {
            let path = ["workflows", &id, "draft"];
            client.document(Method::PUT, &path, &source, yaml).await
        }
        saved => saved,
    };
    let published = match saved {
        Ok(_) => client.post(&["workflows", &id, "publish"], None).await,
        Err(error) => Err(error),
    };
    let text_of_source = String::from_utf8_lossy(&source);
    let answer = match published {
        Ok(answer) => answer,
        Err(ClientError::Refused(refused)) if is_located(&refused) => {
            for problem in &refused.details {
                cli::say(drawn(problem, &text_of_source, &name));
            }
            cli::say(format_args!("fermata: {name} is not published: {}", refused.message));
            return Ok(ExitCode::from(USAGE));
        }
        Err(error) => return Err(error.into()),
    };
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        cli::say(drawn(warning, &text_of_source, &name));
    }
    let version = text(&answer, "version");
    match format {
        Format::Json => cli::print(format_args!("{answer:#}\n")),
        Format::Table if answer["created"] == false => {
            cli::print(format_args!(
                "{id} is unchanged: version {version} is the same document\n"
            ));
        }
        Format::Table => cli::print(format_args!("published {id} as version {version}\n")),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_located(refused: &Refused) -> bool {
    refused.details.iter().any(|detail| detail["line"].is_u64())
}

/// A problem of the server's list as `fermata validate` draws it.
fn drawn(problem: &Value, source: &str, name: &str) -> String {
    let number = |key: &str| problem[key].as_u64().and_then(|number| usize::try_from(number).ok());
    let (line, column) = (number("line").unwrap_or(1), number("column").unwrap_or(1));
    let same_line = number("endLine") == Some(line);
    let end = number("endColumn").filter(|_| same_line).unwrap_or(column + 1);
    let place = Place {
        line,
        column,
        width: end.saturating_sub(column).max(1),
    };
    let (severity, code, message) = (
        text(problem, "severity"),
        text(problem, "code"),
        text(problem, "message"),
    );
    let mut text_of = format!("{severity}[{code}]: {message}\n --> {name}:{line}:{column}\n");
    text_of.push_str(&excerpt::draw(source, place));
    if let Some(help) = problem["suggestion"].as_str() {
        text_of.push_str(&format!("help: {help}\n"));
    }
    text_of
}
