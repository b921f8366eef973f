//! `fermata approvals`: list, show and answer requests in the inbox.

use super::{Client, Connection, ago, instant, print_json, text};
use crate::{
    cli::{self, Format, Usage},
    table,
};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata approvals list
  fermata approvals list --queue finance --status answered
  fermata approvals show 0199a7c2-…
  fermata approvals answer 0199a7c2-… --outcome approved --by ann
  fermata approvals answer 0199a7c2-… --outcome approved --field amount=120 --field comment='in budget'
  fermata approvals answer 0199a7c2-… --state '{\"checked\": true}'

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata approvals`.
#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List requests, oldest first.
    List(ListArgs),
    /// Show a request with its fields, outcomes and the state of its run.
    Show {
        /// The id of the request.
        id: String,
    },
    /// Answer a request.
    Answer(AnswerArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only requests with this status: pending, answered or closed.
    #[arg(long, default_value = "pending")]
    status: String,
    /// Only requests of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only requests of this run.
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show all of them.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// The id of the request.
    id: String,
    /// The outcome to choose.
    #[arg(long)]
    outcome: Option<String>,
    /// A field to fill in, as NAME=VALUE. A value that is JSON is sent as JSON, any other as text.
    #[arg(long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// New members of the state, as a JSON object (for tasks).
    #[arg(long, value_name = "JSON", conflicts_with_all = ["outcome", "fields"])]
    state: Option<String>,
    /// Who answers. Recorded with the answer.
    #[arg(long, env = "USER")]
    by: Option<String>,
}

const INBOX: &str = "inbox";

/// Runs the command.
pub async fn approvals(args: ApprovalsArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Show { id } => show(&client, &id, format).await?,
        Command::Answer(args) => answer(&client, args, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let mut query = vec![("status", args.status)];
    query.extend(args.queue.map(|queue| ("queue", queue)));
    query.extend(args.run.map(|run| ("executionId", run)));
    let (items, more) = client.list(&[INBOX], &query, most).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |item: &Value| {
        vec![
            text(item, "id"),
            text(item, "kind"),
            text(item, "title"),
            text(item, "workflowId"),
            ago(item, "createdAt"),
            holder(item),
            choices(item),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    let head = ["ID", "KIND", "TITLE", "WORKFLOW", "ASKED", "HELD BY", "OUTCOMES"];
    cli::print(table::draw(&head, &rows));
    if more {
        cli::say("there are more; --limit N shows more of them, --all shows all");
    }
    Ok(())
}

fn holder(item: &Value) -> String {
    match text(item, "status").as_str() {
        "pending" => text(&item["lease"], "worker"),
        _ => text(item, "answeredBy"),
    }
}

fn choices(item: &Value) -> String {
    let outcomes = item["outcomes"].as_array().into_iter().flatten();
    let outcomes: Vec<&str> = outcomes.filter_map(Value::as_str).collect();
    outcomes.join(", ")
}

async fn show(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let item = client.get(&[INBOX, id], &[]).await?;
    if format == Format::Json {
        print_json(&item);
        return Ok(());
    }
    let mut page = table::pairs(&[
        ("id", text(&item, "id")),
        ("title", text(&item, "title")),
        ("description", text(&item, "description")),
        ("kind", text(&item, "kind")),
        ("status", text(&item, "status")),
        ("outcomes", choices(&item)),
        ("workflow", text(&item, "workflowId")),
        ("run", text(&item, "executionId")),
        ("node", text(&item, "nodeId")),
        ("queue", text(&item, "queue")),
        ("tenant", text(&item, "tenantId")),
        ("asked", instant(&item, "createdAt")),
        ("deadline", instant(&item, "deadline")),
        ("held by", text(&item["lease"], "worker")),
        ("answered by", text(&item, "answeredBy")),
        ("answered", instant(&item, "answeredAt")),
    ]);
    for (title, member) in [
        ("fields", "fields"),
        ("progress", "progress"),
        ("answer", "answer"),
        ("state", "state"),
    ] {
        if !item[member].is_null() {
            page.push_str(&format!("\n{title}\n{:#}\n", item[member]));
        }
    }
    cli::print(page);
    Ok(())
}

async fn answer(client: &Client, args: AnswerArgs, format: Format) -> anyhow::Result<()> {
    let mut body = Map::new();
    if let Some(state) = &args.state {
        let state: Value = serde_json::from_str(state).map_err(|error| {
            Usage(format!(
                "--state is not JSON: {error}; write it like '{{\"checked\": true}}'"
            ))
        })?;
        body.insert("state".to_owned(), state);
    }
    body.extend(args.outcome.map(|outcome| ("outcome".to_owned(), outcome.into())));
    if !args.fields.is_empty() {
        body.insert("fields".to_owned(), Value::Object(fields(&args.fields)?));
    }
    if body.is_empty() {
        return Err(Usage("say what the answer is: --outcome, --field or --state".to_owned()).into());
    }
    body.extend(args.by.map(|by| ("answeredBy".to_owned(), by.into())));
    let answer = client
        .post(&[INBOX, &args.id, "answer"], Some(&Value::Object(body)))
        .await?;
    match format {
        Format::Json => print_json(&answer),
        Format::Table => match answer["data"]["code"].as_str() {
            None => cli::print(format_args!("answered {}\n", args.id)),
            Some(code) => cli::print(format_args!(
                "answered {}; the answer fails the node: {code}: {}\n",
                args.id,
                text(&answer["data"], "message")
            )),
        },
    }
    Ok(())
}

/// The fields of `NAME=VALUE` arguments.
fn fields(given: &[String]) -> Result<Map<String, Value>, Usage> {
    let field = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Some((name.to_owned(), value))
    };
    let wrong = |text: &String| Usage(format!("--field {text}: write it as NAME=VALUE"));
    given
        .iter()
        .map(|text| field(text).ok_or_else(|| wrong(text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_json_or_text() {
        let given = ["a=1", "b=x y", "c=true", "d=", "e={\"x\":[1]}", "f=a=b"].map(str::to_owned);
        let expected = json!({ "a": 1, "b": "x y", "c": true, "d": "", "e": { "x": [1] }, "f": "a=b" });
        assert_eq!(Value::Object(fields(&given).unwrap()), expected);
        assert!(fields(&["x".to_owned()]).is_err() && fields(&["=1".to_owned()]).is_err());
    }
}
