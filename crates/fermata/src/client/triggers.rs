//! `fermata triggers`: create, list, change, fire and rotate triggers, and look at their deliveries.

use super::{Client, Connection, ago, instant, print_json, text};
use crate::{
    cli::{self, Format, Usage},
    input, table,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use uuid::Uuid;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata triggers create order --type webhook --set signature.scheme=github --set signature.secret=GITHUB_WEBHOOK
  fermata triggers create report --type schedule --set 'cron=0 9 * * MON-FRI' --set timeZone=Europe/Berlin
  fermata triggers create ship --type event --set type=order.paid --condition 'payload.total > 100'
  fermata triggers preview --set every=15m --set jitter=1m        when it would fire, without saving it
  fermata triggers list --workflow order
  fermata triggers get order/nightly                              a trigger that the document of order declares
  fermata triggers fire 5b2c… --input total=120
  fermata triggers deliveries 5b2c… --state filtered
  fermata triggers replay 5b2c… 0199a7c2-…

An id may be shortened to at least 4 characters of its beginning. A trigger that a document declares may be named WORKFLOW/NAME.
--set takes key=value (dots make objects), {…}, @file.json, or - for JSON on standard input. docs/triggers.md has the keys.

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// The arguments of `fermata triggers`.
#[derive(Debug, Args)]
pub struct TriggersArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List triggers.
    List(ListArgs),
    /// Show a trigger: its configuration, its URL or its next fire times.
    Get {
        /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
        id: String,
    },
    /// Create a trigger. The URL of a webhook is written to stdout and works at once.
    Create(CreateArgs),
    /// Change the configuration or the condition of a trigger.
    Update(UpdateArgs),
    /// Enable triggers.
    Enable {
        /// The ids of triggers, beginnings of them, or WORKFLOW/NAME.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Disable triggers: they start nothing until they are enabled.
    Disable {
        /// The ids of triggers, beginnings of them, or WORKFLOW/NAME.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Delete triggers.
    Delete {
        /// The ids of triggers, beginnings of them, or WORKFLOW/NAME.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Start a run as if the trigger had fired.
    Fire(FireArgs),
    /// Give a webhook a new URL.
    Rotate {
        /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
        id: String,
        /// How long the old URL is accepted, such as 24h; 0s for not at all.
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        grace: String,
    },
    /// List what arrived in the last seven days, newest first, and what became of it; with the id of a delivery, show it.
    Deliveries(DeliveriesArgs),
    /// Send deliveries again: each becomes a new occurrence.
    Replay {
        /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
        id: String,
        /// The ids of deliveries.
        #[arg(required = true)]
        deliveries: Vec<Uuid>,
    },
    /// Check a configuration and show when it fires next, without saving it.
    Preview(PreviewArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only triggers of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// Only triggers of this type: webhook, schedule, event or manual.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only triggers that are enabled, or with `false` only those that are not.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    enabled: Option<bool>,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The id of the workflow that it starts.
    workflow: String,
    /// What it reacts to: webhook, schedule, event or manual.
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// JavaScript over `payload` and `request`: if it is false, nothing is started.
    #[arg(long, value_name = "EXPRESSION")]
    condition: Option<String>,
    /// Create it without enabling it.
    #[arg(long)]
    disabled: bool,
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    fn value(&self) -> Result<Value, Usage> {
        input::value("--set", &self.set, &mut std::io::stdin().lock()).map_err(Usage)
    }
}

#[derive(Debug, Args)]
struct UpdateArgs {
    /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
    id: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// JavaScript over `payload` and `request`; an empty text removes the condition.
    #[arg(long, value_name = "EXPRESSION")]
    condition: Option<String>,
}

#[derive(Debug, Args)]
struct FireArgs {
    /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
    id: String,
    /// The trigger of the run: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// An id of your choice: the same one fires once.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

#[derive(Debug, Args)]
struct DeliveriesArgs {
    /// The id of the trigger, a beginning of it, or WORKFLOW/NAME.
    id: String,
    /// Show this delivery with its payload and request.
    delivery: Option<Uuid>,
    /// Only deliveries in this state: pending, queued, started, filtered, refused or skipped.
    #[arg(long, conflicts_with = "delivery")]
    state: Option<String>,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, Args)]
struct PreviewArgs {
    /// What it reacts to: webhook, schedule, event or manual.
    #[arg(long = "type", value_name = "TYPE", default_value = "schedule")]
    kind: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// How many fire times to show.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
}

/// Runs the command.
pub async fn triggers(args: TriggersArgs) -> anyhow::Result<ExitCode> {
    let (client, format) = args.connection.open()?;
    match args.command {
        Command::List(args) => list(&client, args, format).await?,
        Command::Get { id } => {
            let id = client.trigger_id(&id).await?;
            let trigger = client.get(&["triggers", &id], &[]).await?;
            show(&trigger, format);
        }
        Command::Create(args) => create(&client, args, format).await?,
        Command::Update(args) => update(&client, args, format).await?,
        Command::Enable { ids } => act(&client, &ids, "enable", "enabled", format).await?,
        Command::Disable { ids } => act(&client, &ids, "disable", "disabled", format).await?,
        Command::Delete { ids } => {
            for given in ids {
                let id = client.trigger_id(&given).await?;
                client.delete(&["triggers", &id]).await?;
                match format {
                    Format::Json => print_json(&json!({ "id": id })),
                    Format::Table => cli::say(format_args!("deleted trigger {id}")),
                }
            }
        }
        Command::Fire(args) => fire(&client, args, format).await?,
        Command::Rotate { id, grace } => {
            let id = client.trigger_id(&id).await?;
            let path = ["triggers", &id, "rotate"];
            let trigger = client.post(&path, Some(&json!({ "grace": grace }))).await?;
            match format {
                Format::Json => print_json(&trigger),
                Format::Table => {
                    cli::print(format_args!("{}\n", text(&trigger, "webhookUrl")));
                    let until = instant(&trigger, "oldWebhookUntil");
                    cli::say(format_args!("the old URL is accepted until {until}"));
                }
            }
        }
        Command::Deliveries(args) => deliveries(&client, args, format).await?,
        Command::Replay { id, deliveries } => {
            let id = client.trigger_id(&id).await?;
            for delivery in deliveries {
                let path = ["triggers", &id, "deliveries", &delivery.to_string(), "replay"];
                occurred(&client.post(&path, None).await?, format);
            }
        }
        Command::Preview(args) => preview(&client, args, format).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, args: ListArgs, format: Format) -> anyhow::Result<()> {
    let query = [
        ("workflowId", args.workflow),
        ("triggerType", args.kind),
        ("isEnabled", args.enabled.map(|enabled| enabled.to_string())),
    ];
    let query: Vec<_> = query
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect();
    let (items, _) = client.list(&["triggers"], &query, usize::MAX).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items }));
        return Ok(());
    }
    let row = |trigger: &Value| {
        vec![
            text(trigger, "id"),
            text(trigger, "triggerType"),
            text(trigger, "workflowId"),
            text(trigger, "name"),
            if trigger["isEnabled"] == true { "yes" } else { "no" }.to_owned(),
            what(trigger),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(
        &["ID", "TYPE", "WORKFLOW", "NAME", "ENABLED", "WHAT"],
        &rows,
    ));
    Ok(())
}

/// When or where a trigger fires, in a few words.
fn what(trigger: &Value) -> String {
    let config = &trigger["configJson"];
    let key = |key: &str| config[key].as_str().map(|value| format!("{key} {value}"));
    match text(trigger, "triggerType").as_str() {
        "Schedule" => ["cron", "every", "at"].into_iter().find_map(key).unwrap_or_default(),
        "Event" => text(config, "type"),
        "Webhook" => text(trigger, "webhookUrl"),
        _ => String::new(),
    }
}

fn show(trigger: &Value, format: Format) {
    if format == Format::Json {
        print_json(trigger);
        return;
    }
    let last = &trigger["lastDelivery"];
    let mut page = table::pairs(&[
        ("id", text(trigger, "id")),
        ("type", text(trigger, "triggerType")),
        ("workflow", text(trigger, "workflowId")),
        ("name", text(trigger, "name")),
        ("tenant", text(trigger, "tenantId")),
        ("enabled", text(trigger, "isEnabled")),
        ("condition", text(trigger, "activationCondition")),
        ("url", text(trigger, "webhookUrl")),
        ("old url", text(trigger, "oldWebhookUrl")),
        ("old url until", instant(trigger, "oldWebhookUntil")),
        ("last run", text(last, "executionId")),
        ("last fired", instant(last, "at")),
    ]);
    page.push_str(&format!("\nconfiguration\n{:#}\n", trigger["configJson"]));
    let times = trigger["nextFireTimes"].as_array().into_iter().flatten();
    let times: Vec<&str> = times.filter_map(Value::as_str).collect();
    if !times.is_empty() {
        page.push_str(&format!("\nfires next\n  {}\n", times.join("\n  ")));
    }
    cli::print(page);
}

async fn create(client: &Client, args: CreateArgs, format: Format) -> anyhow::Result<()> {
    let body = json!({
        "workflowId": args.workflow,
        "triggerType": args.kind,
        "configJson": args.config.value()?,
        "activationCondition": args.condition,
        "isEnabled": !args.disabled,
    });
    let trigger = client.post(&["triggers"], Some(&body)).await?;
    if format == Format::Json {
        print_json(&trigger);
        return Ok(());
    }
    let url = text(&trigger, "webhookUrl");
    if !url.is_empty() {
        cli::print(format_args!("{url}\n"));
    }
    cli::say(format_args!("created trigger {}", text(&trigger, "id")));
    if let Some(next) = trigger["nextFireTimes"][0].as_str() {
        cli::say(format_args!("it fires next at {next}"));
    }
    Ok(())
}

async fn update(client: &Client, args: UpdateArgs, format: Format) -> anyhow::Result<()> {
    let mut body = json!({});
    if !args.config.set.is_empty() {
        body["configJson"] = args.config.value()?;
    }
    if let Some(condition) = args.condition {
        body["activationCondition"] = Some(condition).filter(|condition| !condition.is_empty()).into();
    }
    if body.as_object().is_some_and(|body| body.is_empty()) {
        return Err(Usage("name what to change: --set or --condition".to_owned()).into());
    }
    let id = client.trigger_id(&args.id).await?;
    let trigger = client.put(&["triggers", &id], &body).await?;
    show(&trigger, format);
    Ok(())
}

async fn act(client: &Client, ids: &[String], verb: &str, done: &str, format: Format) -> anyhow::Result<()> {
    for given in ids {
        let id = client.trigger_id(given).await?;
        let trigger = client.post(&["triggers", &id, verb], None).await?;
        match format {
            Format::Json => print_json(&trigger),
            Format::Table => cli::say(format_args!("{done} trigger {id}")),
        }
    }
    Ok(())
}

async fn fire(client: &Client, args: FireArgs, format: Format) -> anyhow::Result<()> {
    let payload = input::value("--input", &args.input, &mut std::io::stdin().lock()).map_err(Usage)?;
    let id = client.trigger_id(&args.id).await?;
    let path = ["triggers", &id, "fire"];
    let answer = client.post_once(&path, &payload, args.request_id.as_deref()).await?;
    occurred(&answer, format);
    Ok(())
}

/// What became of an occurrence.
fn occurred(answer: &Value, format: Format) {
    if format == Format::Json {
        print_json(answer);
        return;
    }
    let (state, run, reason) = (
        text(answer, "state"),
        text(answer, "executionId"),
        text(answer, "reason"),
    );
    let known = if answer["isDuplicate"] == true {
        ", as before"
    } else {
        ""
    };
    cli::print(match (run.is_empty(), reason.is_empty()) {
        (false, _) => format!("{state}: run {run}{known}\n"),
        (true, false) => format!("{state}: {reason}{known}\n"),
        (true, true) => format!("{state}{known}\n"),
    });
}

async fn deliveries(client: &Client, args: DeliveriesArgs, format: Format) -> anyhow::Result<()> {
    let id = client.trigger_id(&args.id).await?;
    if let Some(delivery) = args.delivery {
        let delivery = client
            .get(&["triggers", &id, "deliveries", &delivery.to_string()], &[])
            .await?;
        show_delivery(&delivery, format);
        return Ok(());
    }
    let query: Vec<_> = args.state.into_iter().map(|state| ("state", state)).collect();
    let (items, more) = client
        .list(&["triggers", &id, "deliveries"], &query, args.limit as usize)
        .await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "more": more }));
        return Ok(());
    }
    let row = |delivery: &Value| {
        vec![
            text(delivery, "id"),
            text(delivery, "state"),
            ago(delivery, "receivedAt"),
            text(delivery, "occurrenceId"),
            text(delivery, "executionId"),
            text(delivery, "reason"),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(
        &["ID", "STATE", "RECEIVED", "OCCURRENCE", "RUN", "WHY"],
        &rows,
    ));
    if more {
        cli::say("there are more; --limit N shows more of them");
    }
    Ok(())
}

fn show_delivery(delivery: &Value, format: Format) {
    if format == Format::Json {
        print_json(delivery);
        return;
    }
    let mut page = table::pairs(&[
        ("id", text(delivery, "id")),
        ("state", text(delivery, "state")),
        ("received", instant(delivery, "receivedAt")),
        ("occurrence", text(delivery, "occurrenceId")),
        ("run", text(delivery, "executionId")),
        ("reason", text(delivery, "reason")),
    ]);
    for (title, key) in [("values seen", "saw"), ("payload", "payload"), ("request", "request")] {
        if let Some(value) = delivery.get(key).filter(|value| !value.is_null()) {
            page.push_str(&format!("\n{title}\n{value:#}\n"));
        }
    }
    cli::print(page);
}

async fn preview(client: &Client, args: PreviewArgs, format: Format) -> anyhow::Result<()> {
    let body = json!({ "triggerType": args.kind, "configJson": args.config.value()?, "count": args.count });
    let answer = client.post(&["triggers", "preview"], Some(&body)).await?;
    if format == Format::Json {
        print_json(&answer);
        return Ok(());
    }
    let times = answer["fireTimes"].as_array().into_iter().flatten();
    let times: Vec<&str> = times.filter_map(Value::as_str).collect();
    match times.is_empty() {
        true => cli::say("the configuration is valid; it has no fire times"),
        false => cli::print(format_args!("{}\n", times.join("\n"))),
    }
    Ok(())
}
