//! Commands that talk to a running server: the connection, and what can go wrong with it.
//!
//! Every answer of the API is JSON; every error of it has the one envelope. Whatever else comes back is no Fermata.

mod dead_letters;
mod executions;
mod publish;
mod runners;
mod watch;
mod workflows;

use crate::cli::Usage;
use clap::{Args, ValueEnum};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;
use std::{fmt::Write as _, time::Duration};

pub use dead_letters::{DeadLettersArgs, HELP as DEAD_LETTERS_HELP, dead_letters};
pub use executions::{ExecutionsArgs, HELP as EXECUTIONS_HELP, executions};
pub use runners::{HELP as RUNNERS_HELP, RunnersArgs, runners};
pub use workflows::{HELP as WORKFLOWS_HELP, WorkflowsArgs, workflows};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The most items that the API gives at once.
const LARGEST_PAGE: usize = 1000;

/// How to reach a server and how to show what it says.
#[derive(Debug, Args)]
pub struct Connection {
    /// Where the server is.
    #[arg(
        long,
        value_name = "URL",
        env = "FERMATA_SERVER",
        default_value = "http://127.0.0.1:7070",
        global = true
    )]
    server: String,
    /// For people or for programs.
    #[arg(long, short, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// A server and how it is reached.
struct Client {
    base: Url,
    http: reqwest::Client,
}

/// What went wrong between here and there.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    #[error(
        "the server at {server} cannot be reached: {why}\n\
         start one with `fermata dev` or `fermata serve`, or name another one with --server or FERMATA_SERVER"
    )]
    Unreachable { server: String, why: String },
    #[error("{0}")]
    Refused(Refused),
    #[error("what answers at {server} is not a Fermata server (status {status}, and not its kind of answer)")]
    Stranger { server: String, status: u16 },
}

/// An error of the API.
#[derive(Debug)]
struct Refused {
    status: u16,
    code: String,
    message: String,
    details: Vec<Value>,
    correlation_id: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (status {}): {}", self.code, self.status, self.message)?;
        for detail in &self.details {
            let place = [text(detail, "pointer"), text(detail, "code")]
                .into_iter()
                .find(|place| !place.is_empty());
            write!(f, "\n  {}: {}", place.unwrap_or_default(), text(detail, "message"))?;
        }
        match self.status {
            500.. => write!(f, "\nthe server's log tells more under {}", self.correlation_id),
            _ => Ok(()),
        }
    }
}

impl Client {
    fn new(server: &str) -> anyhow::Result<Client> {
        let wrong = |why: &str| Usage(format!("`{server}` is not the address of a server: {why}"));
        let base = match Url::parse(server) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            _ => return Err(wrong("write it like http://127.0.0.1:7070").into()),
        };
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_PATIENCE)
            .timeout(ANSWER_PATIENCE);
        // No proxy is on the way to this machine itself.
        let host = base.host_str().unwrap_or_default();
        if host == "localhost" || host == "[::1]" || host.starts_with("127.") {
            http = http.no_proxy();
        }
        Ok(Client {
            base,
            http: http.build()?,
        })
    }

    async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.ask(self.http.get(self.url_with(path, query))).await
    }

    /// POSTs nothing but a query.
    async fn post_with(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.ask(self.http.post(self.url_with(path, query))).await
    }

    async fn post(&self, path: &[&str], body: Option<&Value>) -> Result<Value, ClientError> {
        let mut request = self.http.post(self.url(path));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        self.ask(request).await
    }

    async fn delete(&self, path: &[&str]) -> Result<(), ClientError> {
        self.delete_with(path, &[]).await.map(drop)
    }

    /// Deletes what fits a query.
    async fn delete_with(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.ask(self.http.delete(self.url_with(path, query))).await
    }

    /// Sends a document as it is.
    async fn document(&self, method: Method, path: &[&str], source: &[u8], yaml: bool) -> Result<Value, ClientError> {
        let media = if yaml { "application/yaml" } else { "application/json" };
        let request = self.http.request(method, self.url(path));
        self.ask(request.header("content-type", media).body(source.to_vec()))
            .await
    }

    /// All items of a list, page after page, until there are `most` of them; whether there are more.
    async fn list(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        most: usize,
    ) -> Result<(Vec<Value>, bool), ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.push(("limit", (most - items.len()).clamp(1, LARGEST_PAGE).to_string()));
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let mut page = self.get(path, &query).await?;
            if let Value::Array(page) = page["items"].take() {
                items.extend(page);
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= most {
                return Ok((items, cursor.is_some()));
            }
        }
    }

    /// A URL below `/api/v1`. Names in it are escaped, whatever they hold.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url
    }

    fn url_with(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.url(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let server = || self.base.as_str().trim_end_matches('/').to_owned();
        let unreachable = |error: reqwest::Error| ClientError::Unreachable {
            server: server(),
            why: cause(&error),
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        let stranger = || ClientError::Stranger {
            server: server(),
            status: status.as_u16(),
        };
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let mut answer: Value = serde_json::from_slice(&body).map_err(|_| stranger())?;
        if status.is_success() {
            return Ok(answer);
        }
        let error = answer["error"].take();
        if !error["code"].is_string() {
            return Err(stranger());
        }
        Err(ClientError::Refused(Refused {
            status: status.as_u16(),
            code: text(&error, "code"),
            message: text(&error, "message"),
            details: error["details"].as_array().cloned().unwrap_or_default(),
            correlation_id: text(&error, "correlationId"),
        }))
    }
}

/// What is at the bottom of an error of the HTTP client.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let mut at: &dyn std::error::Error = error;
    while let Some(below) = at.source() {
        at = below;
    }
    at.to_string()
}

/// A member that is text or a number, as text; empty if it is not there.
fn text(value: &Value, key: &str) -> String {
    match &value[key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => String::new(),
    }
}

/// A time as people read it: without fractions of seconds.
fn time(value: &Value, key: &str) -> String {
    let whole = text(value, key);
    let mut short = whole.split('.').next().unwrap_or_default().replace('T', " ");
    if short.len() < whole.len() {
        let _ = write!(short, "Z");
    }
    short
}

/// How long something took, from its milliseconds.
fn took(value: &Value) -> String {
    let millis = value["durationMs"].as_u64().map(Duration::from_millis);
    millis.map(crate::duration::show).unwrap_or_default()
}
