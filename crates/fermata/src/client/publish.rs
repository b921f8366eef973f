//! `fermata workflows publish`: a file becomes the version that new runs use.
//!
//! What the server finds wrong with a document is drawn where it stands in the file. A document whose dialect has
//! drafts is saved as one and published; another one is published by the request that creates or replaces its workflow.
//! A document that cannot be published is not saved: the server checks it first, as publishing would.

use super::{Client, ClientError, Format, Refused, text};
use crate::{
    cli::{self, USAGE, Usage},
    config::Config,
    excerpt::{self, Place},
    validate,
};
use fermata_dialects::{Dialect, Document, Format as Written};
use reqwest::Method;
use serde_json::Value;
use std::{path::Path, process::ExitCode};

/// A version that was published.
struct Published {
    version: String,
    /// Whether it is new.
    created: bool,
    answer: Value,
}

/// Publishes a file. The document is read here too: its id says where it belongs.
pub(super) async fn publish(client: &Client, file: &Path, config: &Config, format: Format) -> anyhow::Result<ExitCode> {
    let (source, name) = validate::read(file).map_err(Usage)?;
    let document = match Document::parse(&source, &name, &config.settings().dialects.document) {
        Ok(document) => document,
        Err(problems) => {
            cli::say(problems.render(cli::colors(&std::io::stderr())).trim_end());
            return Ok(ExitCode::from(USAGE));
        }
    };
    let text_of_source = String::from_utf8_lossy(&source);
    let (id, published) = match document.dialect().is_none_or(Dialect::has_drafts) {
        true => {
            let id = text(document.value(), "id");
            let checked = client.document(Method::POST, &["workflows", "validate"], &source, is_yaml(&document));
            let checked = checked.await?;
            if checked["valid"] == false {
                let problems = checked["problems"].as_array().cloned().unwrap_or_default();
                return Ok(not_published(
                    &problems,
                    (&text_of_source, &name),
                    "the document is not valid",
                ));
            }
            let published = by_draft(client, &id, &document, &source).await;
            (id, published)
        }
        false => {
            let id = text(document.value(), "name");
            let published = at_once(client, &id, &document, &source).await;
            (id, published)
        }
    };
    let published = match published {
        Ok(published) => published,
        Err(ClientError::Refused(refused)) if is_located(&refused) => {
            return Ok(not_published(
                &refused.details,
                (&text_of_source, &name),
                &refused.message,
            ));
        }
        Err(error) => return Err(error.into()),
    };
    for warning in published.answer["warnings"].as_array().into_iter().flatten() {
        cli::say(drawn(warning, &text_of_source, &name));
    }
    let Published {
        version,
        created,
        answer,
    } = published;
    match format {
        Format::Json => cli::print(format_args!("{answer:#}\n")),
        Format::Table if !created => {
            cli::print(format_args!(
                "{id} is unchanged: version {version} is the same document\n"
            ));
        }
        Format::Table => cli::print(format_args!("published {id} as version {version}\n")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws what is wrong with a document.
fn not_published(problems: &[Value], (source, name): (&str, &str), why: &str) -> ExitCode {
    for problem in problems {
        cli::say(drawn(problem, source, name));
    }
    cli::say(format_args!("fermata: {name} is not published: {why}"));
    ExitCode::from(USAGE)
}

fn is_yaml(document: &Document) -> bool {
    document.format() == Written::Yaml
}

/// Saves a draft and publishes it.
async fn by_draft(client: &Client, id: &str, document: &Document, source: &[u8]) -> Result<Published, ClientError> {
    let yaml = is_yaml(document);
    match client.document(Method::POST, &["workflows"], source, yaml).await {
        // It was published before, so its draft is a resource of its own.
        Err(ClientError::Refused(refused)) if refused.code == "WORKFLOW_IMMUTABLE" => {
            let path = ["workflows", id, "draft"];
            client.document(Method::PUT, &path, source, yaml).await?;
        }
        saved => drop(saved?),
    }
    let answer = client.post(&["workflows", id, "publish"], None).await?;
    Ok(Published {
        version: text(&answer, "version"),
        created: answer["created"] != false,
        answer,
    })
}

/// Creates a workflow, or replaces its document.
async fn at_once(client: &Client, id: &str, document: &Document, source: &[u8]) -> Result<Published, ClientError> {
    let yaml = is_yaml(document);
    let mut before = String::new();
    let answer = match client.document(Method::POST, &["workflows"], source, yaml).await {
        Err(ClientError::Refused(refused)) if refused.code == "WORKFLOW_EXISTS" => {
            before = newest(client, id).await?;
            client.document(Method::PUT, &["workflows", id], source, yaml).await?
        }
        created => created?,
    };
    let version = newest(client, id).await?;
    Ok(Published {
        created: version != before,
        version,
        answer,
    })
}

/// The number of the newest version.
async fn newest(client: &Client, id: &str) -> Result<String, ClientError> {
    let page = client
        .get(&["workflows", id, "versions"], &[("limit", "1".to_owned())])
        .await?;
    Ok(text(&page["items"][0], "version"))
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
