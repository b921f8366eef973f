//! `fermata workflows publish`: each document becomes the current version of its workflow.
//!
//! Problems that the server finds are drawn where they stand in the file. A document whose dialect has drafts is saved as
//! a draft and published; another one is published by the request that creates or replaces its workflow. A document that
//! cannot be published is not saved: the server checks it first, as publishing would. In a folder, every document is tried,
//! whatever became of the others.

use super::{Client, ClientError, Refused, print_json, text};
use crate::{
    cli::{self, Format, USAGE, Usage},
    config::Config,
    excerpt::{self, Place},
    validate,
};
use fermata_dialects::{Dialect, Document, Format as Written};
use reqwest::Method;
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};

/// A version that was published.
struct Published {
    id: String,
    version: String,
    /// Whether it is new.
    created: bool,
    answer: Value,
}

/// Publishes a file, or all documents in a folder.
pub(super) async fn publish(client: &Client, path: &Path, config: &Config, format: Format) -> anyhow::Result<ExitCode> {
    if !path.is_dir() {
        return Ok(match file(client, path, config).await? {
            Some(published) => {
                show(&published, format);
                ExitCode::SUCCESS
            }
            None => ExitCode::from(USAGE),
        });
    }
    let files = validate::documents(&[path.to_owned()])?;
    let mut answers = Vec::new();
    for path in &files {
        let published = match file(client, path, config).await {
            Ok(Some(published)) => published,
            Ok(None) => continue,
            Err(error) if concerns_the_file(&error) => {
                cli::say(format_args!("fermata: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        if format == Format::Table {
            show(&published, format);
        }
        answers.push(published.answer);
    }
    let failed = files.len() - answers.len();
    match format {
        Format::Json => print_json(&json!({ "items": answers, "failed": failed })),
        Format::Table if failed > 0 => cli::say(format_args!(
            "fermata: {failed} of {} documents in {} were not published",
            files.len(),
            path.display()
        )),
        Format::Table => {}
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE),
    })
}

/// Whether an error is about one file. The others, such as a server that cannot be reached, concern all files.
fn concerns_the_file(error: &anyhow::Error) -> bool {
    error.is::<Usage>() || matches!(error.downcast_ref(), Some(ClientError::Refused(_)))
}

fn show(published: &Published, format: Format) {
    let Published { id, version, .. } = published;
    match format {
        Format::Json => print_json(&published.answer),
        Format::Table if !published.created => cli::print(format_args!(
            "{id} is unchanged: version {version} is the same document\n"
        )),
        Format::Table => cli::print(format_args!("published {id} as version {version}\n")),
    }
}

/// Publishes a file; `None` if its document is wrong, which is printed. The document is parsed here too, because its id is
/// part of the request.
async fn file(client: &Client, path: &Path, config: &Config) -> anyhow::Result<Option<Published>> {
    let (source, name) = validate::read(path).map_err(Usage)?;
    let document = match Document::parse(&source, &name, &config.settings().dialects.document) {
        Ok(document) => document,
        Err(problems) => {
            cli::say(problems.render(cli::colors(&std::io::stderr())).trim_end());
            return Ok(None);
        }
    };
    let text_of_source = String::from_utf8_lossy(&source);
    let place = (&*text_of_source, name.as_str());
    let named = |error: ClientError| anyhow::Error::from(error).context(format!("{name} is not published"));
    let published = match document.dialect().is_none_or(Dialect::has_drafts) {
        true => {
            let checked = client.document(Method::POST, &["workflows", "validate"], &source, is_yaml(&document));
            let checked = checked.await.map_err(named)?;
            if checked["valid"] == false {
                let problems = checked["problems"].as_array().cloned().unwrap_or_default();
                not_published(&problems, place, "the document is not valid");
                return Ok(None);
            }
            by_draft(client, &document, &source).await
        }
        false => at_once(client, &document, &source).await,
    };
    let published = match published {
        Ok(published) => published,
        Err(ClientError::Refused(refused)) if is_located(&refused) => {
            not_published(&refused.details, place, &refused.message);
            return Ok(None);
        }
        Err(error) => return Err(named(error)),
    };
    for warning in published.answer["warnings"].as_array().into_iter().flatten() {
        cli::say(drawn(warning, &text_of_source, &name));
    }
    Ok(Some(published))
}

/// Draws what is wrong with a document.
fn not_published(problems: &[Value], (source, name): (&str, &str), why: &str) {
    for problem in problems {
        cli::say(drawn(problem, source, name));
    }
    cli::say(format_args!("fermata: {name} is not published: {why}"));
}

fn is_yaml(document: &Document) -> bool {
    document.format() == Written::Yaml
}

/// The id of the workflow. A document of an unknown dialect is refused by the server, whatever its id.
fn id_of(document: &Document) -> String {
    text(document.value(), document.dialect().map_or("id", Dialect::id_key))
}

/// Saves a draft and publishes it.
async fn by_draft(client: &Client, document: &Document, source: &[u8]) -> Result<Published, ClientError> {
    let (id, yaml) = (id_of(document), is_yaml(document));
    match client.document(Method::POST, &["workflows"], source, yaml).await {
        // It was published before, so its draft is a resource of its own.
        Err(ClientError::Refused(refused)) if refused.code == "WORKFLOW_IMMUTABLE" => {
            let path = ["workflows", &id, "draft"];
            client.document(Method::PUT, &path, source, yaml).await?;
        }
        saved => drop(saved?),
    }
    let answer = client.post(&["workflows", &id, "publish"], None).await?;
    Ok(Published {
        version: text(&answer, "version"),
        created: answer["created"] != false,
        answer,
        id,
    })
}

/// Creates a workflow, or replaces its document.
async fn at_once(client: &Client, document: &Document, source: &[u8]) -> Result<Published, ClientError> {
    let (id, yaml) = (id_of(document), is_yaml(document));
    let mut before = String::new();
    let answer = match client.document(Method::POST, &["workflows"], source, yaml).await {
        Err(ClientError::Refused(refused)) if refused.code == "WORKFLOW_EXISTS" => {
            before = newest(client, &id).await?;
            client.document(Method::PUT, &["workflows", &id], source, yaml).await?
        }
        created => created?,
    };
    let version = newest(client, &id).await?;
    Ok(Published {
        created: version != before,
        version,
        answer,
        id,
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
