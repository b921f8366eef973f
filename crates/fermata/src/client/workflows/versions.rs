//! `fermata workflows versions` and `rollback`.

use super::{
    super::{Client, ago, print_json, text},
    with_definition,
};
use crate::{
    cli::{self, Format, Usage},
    table,
};
use serde_json::{Value, json};

/// Characters of a checksum that tables show.
const CHECKSUM: usize = 12;

pub(super) async fn versions(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let (items, _) = client.list(&["workflows", id, "versions"], &[], usize::MAX).await?;
    let current = current(client, id).await?;
    if format == Format::Json {
        print_json(&json!({ "items": items, "currentVersion": current }));
        return Ok(());
    }
    let row = |version: &Value| {
        let is_current = version["version"].as_u64() == current;
        vec![
            text(version, "version"),
            if is_current { "current" } else { "" }.to_owned(),
            ago(version, "createdAt"),
            text(version, "dialect"),
            text(version, "checksum").chars().take(CHECKSUM).collect(),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    cli::print(table::draw(
        &["VERSION", "USED", "PUBLISHED", "DIALECT", "CHECKSUM"],
        &rows,
    ));
    Ok(())
}

/// Activates version `to`, or the newest one that is older than the current one.
pub(super) async fn rollback(client: &Client, id: &str, to: Option<u32>, format: Format) -> anyhow::Result<()> {
    let before = current(client, id).await?;
    let to = match to {
        Some(version) => u64::from(version),
        None => older(client, id, before).await?,
    };
    let path = ["workflows", id, "versions", &to.to_string(), "activate"];
    let answer = client.post(&path, None).await?;
    match (format, before) {
        (Format::Json, _) => print_json(&answer),
        (Format::Table, Some(before)) if before != to => {
            cli::print(format_args!("{id} uses version {to} now, instead of {before}\n"));
        }
        (Format::Table, _) => cli::print(format_args!("{id} uses version {to}\n")),
    }
    Ok(())
}

/// The version that new runs use.
async fn current(client: &Client, id: &str) -> anyhow::Result<Option<u64>> {
    Ok(with_definition(client, id, None).await?["currentVersion"].as_u64())
}

async fn older(client: &Client, id: &str, current: Option<u64>) -> anyhow::Result<u64> {
    let (items, _) = client.list(&["workflows", id, "versions"], &[], usize::MAX).await?;
    let mut numbers = items.iter().filter_map(|version| version["version"].as_u64());
    let current = current.unwrap_or(0);
    let older = numbers.find(|number| *number < current);
    older.ok_or_else(|| {
        let why = format!("{id} has no version before {current}; `fermata workflows versions {id}` lists its versions");
        Usage(why).into()
    })
}
