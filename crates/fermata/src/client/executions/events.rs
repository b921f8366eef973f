//! `fermata executions events`: the journal of a run, one line for each event.

use super::super::{Client, LARGEST_PAGE, print_json, text};
use crate::{
    cli::{self, Format},
    table,
};
use serde_json::{Value, json};

pub(super) async fn events(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let events = all(client, id).await?;
    if format == Format::Json {
        print_json(&json!({ "items": events }));
        return Ok(());
    }
    let row = |event: &Value| {
        let at = text(event, "ts");
        let time = at.split_once('T').map_or(at.as_str(), |(_, time)| time);
        vec![
            text(event, "seq"),
            time.trim_end_matches('Z').to_owned(),
            text(event, "level"),
            text(event, "category"),
            text(event, "message"),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    cli::print(table::draw(&["SEQ", "TIME", "LEVEL", "CATEGORY", "MESSAGE"], &rows));
    Ok(())
}

/// All events of a run, oldest first.
pub(super) async fn all(client: &Client, id: &str) -> anyhow::Result<Vec<Value>> {
    let mut events = Vec::new();
    loop {
        let query = [
            ("include", "events".to_owned()),
            ("limit", LARGEST_PAGE.to_string()),
            ("offset", events.len().to_string()),
        ];
        let mut run = client.get(&["executions", id], &query).await?;
        let Value::Array(page) = run["events"].take() else {
            return Ok(events);
        };
        let is_last = page.len() < LARGEST_PAGE;
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}
