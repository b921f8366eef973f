//! `fermata keys`: create, list and revoke API keys, on a server or in a database.

use super::{Connection, ago, print_json, text};
use crate::{
    cli::{self, Format, Usage},
    config::{Config, Database},
    duration, table, when,
};
use clap::{Args, Subcommand};
use fermata_core::Timestamp;
use fermata_runtime::{
    Scope, Scopes,
    keys::{NewKey, make},
};
use fermata_store::{
    Store,
    audit::{AuditOutcome, AuditRow, recorded},
    clock::wall,
    keys::{ApiKey, KeyFilter},
};
use serde_json::{Value, json};
use std::{process::ExitCode, sync::Arc, time::Duration};
use uuid::Uuid;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  # the first key, without a server; a key can create only keys with scopes of its own
  fermata keys create --name admin --scopes admin,workflows:read,workflows:manage,workflows:execute --database sqlite:fermata.db
  fermata keys create --name ci --scopes workflows:execute,workflows:read --tenant acme --expires 90d
  fermata keys list
  fermata keys revoke 0199a7c2-…

The key alone is written to stdout, once: it cannot be shown again. Send it as `Authorization: Bearer …`, or give it to these
commands in FERMATA_TOKEN or in a profile (docs/security.md).

Scopes: workflows:read, workflows:execute, workflows:manage, workflows:on-behalf-of, templates:read, templates:manage, admin.

Exit codes: 0 done, 1 the server cannot be reached or refuses, 2 the call is wrong.";

/// What a listing of a database shows at most.
const MOST: u32 = 1000;

/// The arguments of `fermata keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(flatten)]
    connection: Connection,
    /// Work on this database itself, without a server: `sqlite:PATH` or `postgres://…`.
    #[arg(long, value_name = "URL", global = true)]
    pub database: Option<String>,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Create a key, and write it to stdout.
    Create(CreateArgs),
    /// List keys, newest first.
    List {
        /// Only keys of this tenant.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Revoke a key: it is refused everywhere within five seconds.
    Revoke {
        /// The id of the key.
        id: Uuid,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// What the key is for.
    #[arg(long)]
    name: String,
    /// What it may do, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    scopes: Vec<String>,
    /// Its tenant. A key without one sees all tenants, and needs the scope `admin`.
    #[arg(long)]
    tenant: Option<String>,
    /// How long it is accepted, such as 90d [default: until it is revoked].
    #[arg(long, value_name = "DURATION", value_parser = expiry)]
    expires: Option<Duration>,
}

fn expiry(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| format!("{}; write it like 90d or 12h", error.why))
}

/// Runs the command. The configuration is for `--database`.
pub async fn keys(args: KeysArgs, config: Option<Config>) -> anyhow::Result<ExitCode> {
    let format = args.connection.format();
    let answer = match config {
        Some(config) => in_database(&args.command, &config).await?,
        None => on_server(&args).await?,
    };
    match (&args.command, format) {
        (_, Format::Json) => print_json(&answer),
        (KeysCommand::Create(_), Format::Table) => {
            cli::print(format_args!("{}\n", text(&answer, "key")));
            let id = text(&answer, "id");
            cli::say(format_args!("created key {id}; it is not shown again"));
        }
        (KeysCommand::List { .. }, Format::Table) => show(&answer),
        (KeysCommand::Revoke { id }, Format::Table) => cli::say(format_args!("revoked key {id}")),
    }
    Ok(ExitCode::SUCCESS)
}

async fn on_server(args: &KeysArgs) -> anyhow::Result<Value> {
    let (client, _) = args.connection.open()?;
    let path = ["admin", "keys"];
    match &args.command {
        KeysCommand::Create(new) => {
            let body = json!({
                "name": new.name,
                "scopes": new.scopes,
                "tenantId": new.tenant,
                "expiresIn": new.expires.map(duration::written),
            });
            Ok(client.post(&path, Some(&body)).await?)
        }
        KeysCommand::List { tenant } => {
            let query: Vec<_> = tenant.iter().map(|tenant| ("tenantId", tenant.clone())).collect();
            let (items, _) = client.list(&path, &query, usize::MAX).await?;
            Ok(json!({ "items": items }))
        }
        KeysCommand::Revoke { id } => {
            let id = id.to_string();
            client.delete(&["admin", "keys", &id]).await?;
            Ok(json!({ "id": id }))
        }
    }
}

async fn in_database(command: &KeysCommand, config: &Config) -> anyhow::Result<Value> {
    if matches!(config.database.url, Database::Memory) {
        return Err(Usage("keys in memory are lost at once; name a database with --database".to_owned()).into());
    }
    if let KeysCommand::Create(new) = command
        && let Some(wrong) = new.scopes.iter().find(|name| Scope::parse(name).is_none())
    {
        let known = Scopes::all().names().collect::<Vec<_>>().join(", ");
        return Err(Usage(format!("--scopes: `{wrong}` is not a scope; scopes are {known}")).into());
    }
    let store = config.open().await?;
    let done = change(command, &store).await;
    store.close().await?;
    done
}

async fn change(command: &KeysCommand, store: &Arc<dyn Store>) -> anyhow::Result<Value> {
    let now = store.now().unwrap_or_else(wall);
    match command {
        KeysCommand::Create(new) => {
            let new = NewKey {
                name: new.name.clone(),
                tenant: new.tenant.clone(),
                scopes: Scopes::of_names(new.scopes.iter().map(String::as_str)),
                expires_in: new.expires,
            };
            let (key, text) = make(new, "the command line", now).map_err(|refused| Usage(refused.to_string()))?;
            let row = by_command("key.create", key.id, &key.tenant, now);
            recorded(row, store.add_api_key(key.clone())).await.0?;
            let mut answer = view(&key);
            answer["key"] = text.reveal().into();
            Ok(answer)
        }
        KeysCommand::List { tenant } => {
            let filter = KeyFilter {
                tenant: tenant.clone(),
                before: None,
                limit: MOST,
            };
            let page = store.api_keys(filter).await?;
            Ok(json!({ "items": page.items.iter().map(view).collect::<Vec<_>>() }))
        }
        KeysCommand::Revoke { id } => match revoke(*id, store, now).await? {
            true => Ok(json!({ "id": id })),
            false => Err(anyhow::anyhow!("API key {id} does not exist")),
        },
    }
}

async fn revoke(id: Uuid, store: &Arc<dyn Store>, now: Timestamp) -> anyhow::Result<bool> {
    let tenant = store.api_key(id).await?.map(|key| key.tenant).unwrap_or_default();
    let row = by_command("key.revoke", id, &tenant, now);
    Ok(recorded(row, store.revoke_api_key(id, None, now)).await.0?)
}

/// The row of the audit trail for a change without a server.
fn by_command(action: &str, id: Uuid, tenant: &str, at: Timestamp) -> AuditRow {
    AuditRow {
        id: Uuid::now_v7(),
        at,
        tenant: tenant.to_owned(),
        who: "the command line".to_owned(),
        credential: "database".to_owned(),
        address: None,
        action: action.to_owned(),
        target: id.to_string(),
        outcome: AuditOutcome::Done,
        detail: None,
        before: None,
        after: None,
    }
}

/// A key as the API shows it.
fn view(key: &ApiKey) -> Value {
    let time = |at: Timestamp| format!("{:.3}", jiff::Timestamp::from_microsecond(at.0).unwrap_or_default());
    let mut view = json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes.split(' ').collect::<Vec<_>>(),
        "createdAt": time(key.created_at),
        "createdBy": key.created_by,
    });
    if !key.tenant.is_empty() {
        view["tenantId"] = key.tenant.as_str().into();
    }
    for (name, at) in [("expiresAt", key.expires_at), ("revokedAt", key.revoked_at)] {
        if let Some(at) = at {
            view[name] = time(at).into();
        }
    }
    view
}

fn show(answer: &Value) {
    let row = |key: &Value| {
        let scopes = key["scopes"].as_array().into_iter().flatten();
        let scopes: Vec<&str> = scopes.filter_map(Value::as_str).collect();
        let state = match (&key["revokedAt"], &key["expiresAt"]) {
            (Value::String(_), _) => "revoked".to_owned(),
            (_, Value::String(at)) if when::is_past(at) => format!("expired {}", ago(key, "expiresAt")),
            (_, Value::String(_)) => format!("expires {}", ago(key, "expiresAt")),
            _ => "valid".to_owned(),
        };
        vec![
            text(key, "id"),
            text(key, "name"),
            text(key, "tenantId"),
            scopes.join(","),
            ago(key, "createdAt"),
            state,
        ]
    };
    let rows: Vec<_> = answer["items"].as_array().into_iter().flatten().map(row).collect();
    let head = ["ID", "NAME", "TENANT", "SCOPES", "CREATED", "STATE"];
    cli::print(table::draw(&head, &rows));
}
