//! Commands on runs and workflows: pause and resume, skip a node, send a request again.

use super::super::{Client, print_json};
use crate::cli::{self, Format, Usage};
use serde_json::{Map, Value, json};

/// Pauses or resumes what the path names.
pub async fn pause(
    client: &Client,
    path: &[&str],
    id: &str,
    reason: Option<String>,
    done: &str,
    format: Format,
) -> anyhow::Result<()> {
    let body = reason.map(|reason| json!({ "reason": reason }));
    let answer = client.post(path, body.as_ref()).await?;
    match format {
        Format::Json => print_json(&answer),
        Format::Table => cli::print(format_args!("{id} {done}\n")),
    }
    Ok(())
}

/// The outputs of a skipped node, as they were given.
pub fn outputs(given: &str) -> anyhow::Result<Map<String, Value>> {
    serde_json::from_str(given).map_err(|error| {
        let wrong = format!("--outputs must be a JSON object, such as '{{\"total\": 3}}': {error}");
        Usage(wrong).into()
    })
}

/// Skips a node that waits.
pub async fn skip(
    client: &Client,
    id: &str,
    node: &str,
    reason: &str,
    outputs: Option<Map<String, Value>>,
    format: Format,
) -> anyhow::Result<()> {
    let mut body = json!({ "reason": reason });
    if let Some(outputs) = outputs {
        body["outputs"] = Value::Object(outputs);
    }
    let answer = client
        .post(&["executions", id, "nodes", node, "skip"], Some(&body))
        .await?;
    match format {
        Format::Json => print_json(&answer),
        Format::Table => cli::print(format_args!("{node} of {id} is skipped\n")),
    }
    Ok(())
}

/// Sends the request of a node again.
pub async fn resend(
    client: &Client,
    id: &str,
    node: &str,
    reason: Option<String>,
    format: Format,
) -> anyhow::Result<()> {
    let body = reason.map(|reason| json!({ "reason": reason }));
    let path = ["executions", id, "nodes", node, "resend"];
    let answer = client.post(&path, body.as_ref()).await?;
    match format {
        Format::Json => print_json(&answer),
        Format::Table => cli::print(format_args!(
            "the request of {node} of {id} is sent again; `fermata executions events {id}` shows the result\n"
        )),
    }
    Ok(())
}
