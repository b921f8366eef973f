//! Commands that talk to a running server: the connection, its errors, and ids that were shortened.
//!
//! Every answer of a Fermata server has the header `X-Correlation-Id`, and every error has the API's envelope. Any other
//! answer comes from another program, and the error says so.

mod approvals;
mod audit;
mod bulk;
mod dead_letters;
mod events;
mod executions;
mod keys;
mod profile;
mod publish;
mod resolve;
mod runners;
mod stats;
mod stream;
mod triggers;
mod watch;
mod workflows;

use crate::{
    cli::{Format, Output, Usage},
    when,
};
use clap::Args;
use profile::{Profile, Token};
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde_json::Value;
use std::time::Duration;

pub use approvals::{ApprovalsArgs, HELP as APPROVALS_HELP, approvals};
pub use audit::{AuditArgs, HELP as AUDIT_HELP, audit};
pub use bulk::{BulkArgs, HELP as BULK_HELP, bulk};
pub use dead_letters::{DeadLettersArgs, HELP as DEAD_LETTERS_HELP, dead_letters};
pub use events::{EventsArgs, HELP as EVENTS_HELP, events};
pub use executions::{ExecutionsArgs, HELP as EXECUTIONS_HELP, executions};
pub use keys::{HELP as KEYS_HELP, KeysArgs, keys};
pub use runners::{HELP as RUNNERS_HELP, RunnersArgs, runners};
pub use stats::{HELP as STATS_HELP, StatsArgs, stats};
pub use triggers::{HELP as TRIGGERS_HELP, TriggersArgs, triggers};
pub use workflows::{HELP as WORKFLOWS_HELP, WorkflowsArgs, workflows};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The most items that the API gives at once.
const LARGEST_PAGE: usize = 1000;
/// The header that every answer of a Fermata server has.
const CORRELATION_ID: &str = "x-correlation-id";

/// How to reach a server and how to show its answers.
#[derive(Debug, Args)]
pub struct Connection {
    /// The address of the server, as `fermata dev` and `fermata serve` print it [default: that of the profile, else
    /// http://127.0.0.1:7070].
    #[arg(long, value_name = "URL", env = "FERMATA_SERVER", global = true)]
    server: Option<String>,
    /// An API key or a JWT. Other users of this machine can see it in the list of processes: prefer the variable, or a profile.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "FERMATA_TOKEN",
        hide_env_values = true,
        global = true
    )]
    token: Option<Token>,
    #[command(flatten)]
    output: Output,
}

/// The server if none is named.
const SERVER: &str = "http://127.0.0.1:7070";

impl Connection {
    fn open(&self) -> anyhow::Result<(Client, Format)> {
        let profile = match (&self.server, &self.token) {
            (Some(_), Some(_)) => None,
            _ => Profile::here()?,
        };
        let of_profile = profile.as_ref().map(|profile| profile.server.as_str());
        let server = self.server.as_deref().or(of_profile).unwrap_or(SERVER);
        let base = address(server)?;
        // The token of a profile is for the server of the profile.
        let is_same = |profile: &Profile| address(&profile.server).is_ok_and(|of| of == base);
        let kept = profile.filter(is_same).and_then(|profile| profile.token);
        let token = self.token.clone().or(kept);
        Ok((Client::new(base, token.as_ref())?, self.format()))
    }

    fn format(&self) -> Format {
        self.output.format()
    }
}

/// A server and how it is reached.
struct Client {
    base: Url,
    http: reqwest::Client,
}

/// A request that was not answered, or was refused.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    #[error(
        "the server at {server} cannot be reached: {why}\n\
         start a server with `fermata dev` or `fermata serve`, or name another one with --server or FERMATA_SERVER"
    )]
    Unreachable { server: String, why: String },
    #[error("{0}")]
    Refused(Refused),
    #[error(
        "the program at {server} is not a Fermata server: its answer (status {status}) is not one of Fermata's API\n\
         name the address of a Fermata server with --server or FERMATA_SERVER; `fermata dev` prints it"
    )]
    NotFermata { server: String, status: u16 },
}

impl ClientError {
    /// Whether the server refused with this code.
    fn is(&self, code: &str) -> bool {
        matches!(self, ClientError::Refused(refused) if refused.code == code)
    }

    /// An error that is not over a moment later.
    fn unless_passing(self) -> Result<(), ClientError> {
        match self.is_passing() {
            true => Ok(()),
            false => Err(self),
        }
    }

    /// Whether the same request may succeed a moment later.
    fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Refused(refused) => refused.status == 503,
            ClientError::NotFermata { .. } => false,
        }
    }
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
        // A message may contain its only detail.
        let is_new = |detail: &&Value| !self.message.contains(&text(detail, "message"));
        for detail in self.details.iter().filter(is_new) {
            let place = [text(detail, "pointer"), text(detail, "code")]
                .into_iter()
                .find(|place| !place.is_empty());
            write!(f, "\n  {}: {}", place.unwrap_or_default(), text(detail, "message"))?;
        }
        match self.status {
            401 => f.write_str(
                "\nset a token with FERMATA_TOKEN or in a profile (docs/security.md); `fermata keys` creates one",
            ),
            500.. => write!(
                f,
                "\nsearch the server's log for the correlation id {}",
                self.correlation_id
            ),
            _ => Ok(()),
        }
    }
}

impl Client {
    fn new(base: Url, token: Option<&Token>) -> anyhow::Result<Client> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let wrong = |_| Usage("the token has characters that no token has".to_owned());
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal())).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT);
        // A proxy cannot reach this machine's loopback addresses.
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

    /// POSTs a body under an id of the caller's choice: the same one is accepted once.
    async fn post_once(&self, path: &[&str], body: &Value, id: Option<&str>) -> Result<Value, ClientError> {
        let mut request = self
            .http
            .post(self.url(path))
            .header("content-type", "application/json");
        if let Some(id) = id {
            request = request.header("idempotency-key", id);
        }
        self.ask(request.body(body.to_string())).await
    }

    async fn put(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let request = self.http.put(self.url(path)).header("content-type", "application/json");
        self.ask(request.body(body.to_string())).await
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

    /// Opens a stream of server-sent events, after the message with this id.
    async fn open_stream(&self, url: Url, last_id: Option<&str>) -> Result<reqwest::Response, ClientError> {
        let mut request = self.http.get(url).timeout(crate::duration::LONGEST);
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let media = response.headers().get("content-type");
        match media.is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream")) {
            true => Ok(response),
            false => Err(self
                .read(response)
                .await
                .err()
                .unwrap_or_else(|| ClientError::NotFermata {
                    server: self.server(),
                    status: 200,
                })),
        }
    }

    fn server(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        ClientError::Unreachable {
            server: self.server(),
            why: cause(error),
        }
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        self.read(response).await
    }

    /// The answer in a response.
    async fn read(&self, response: reqwest::Response) -> Result<Value, ClientError> {
        let status = response.status();
        let is_fermata = response.headers().contains_key(CORRELATION_ID);
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        let not_fermata = || ClientError::NotFermata {
            server: self.server(),
            status: status.as_u16(),
        };
        if !is_fermata {
            return Err(not_fermata());
        }
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let mut answer: Value = serde_json::from_slice(&body).map_err(|_| not_fermata())?;
        if status.is_success() {
            return Ok(answer);
        }
        let error = answer["error"].take();
        if !error["code"].is_string() {
            return Err(not_fermata());
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

/// The base address in what a user wrote: with or without `http://`, a slash at the end, or the path of the API.
fn address(server: &str) -> Result<Url, Usage> {
    let text = server.trim();
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let url = Url::parse(&whole).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url = url.ok_or_else(|| {
        Usage(format!(
            "--server {server}: this is not the address of a server; write it like http://127.0.0.1:7070"
        ))
    })?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/api/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// The innermost cause of an error of the HTTP client, in words if it is a common one.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return match error.is_connect() {
            true => format!("it did not accept a connection within {} s", CONNECT_TIMEOUT.as_secs()),
            false => format!("it did not answer within {} s", ANSWER_TIMEOUT.as_secs()),
        };
    }
    let mut at: &dyn std::error::Error = error;
    loop {
        let kind = at.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::ConnectionRefused) {
            return "connection refused: no program listens on this address and port".to_owned();
        }
        // What the TLS library says about a response that is not TLS.
        if at.to_string().contains("InvalidContentType") {
            return "it does not speak TLS; if it is a Fermata server, write http:// instead of https://".to_owned();
        }
        match at.source() {
            Some(below) => at = below,
            None => return at.to_string(),
        }
    }
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

/// An instant relative to now, for tables.
fn ago(value: &Value, key: &str) -> String {
    when::relative(&text(value, key))
}

/// An instant in full, with how long ago it was.
fn instant(value: &Value, key: &str) -> String {
    when::full(&text(value, key))
}

/// Prints an answer as JSON.
fn print_json(answer: &Value) {
    crate::cli::print(format_args!("{answer:#}\n"));
}

/// How long something took, from its milliseconds.
fn took(value: &Value) -> String {
    let millis = value["durationMs"].as_u64().map(Duration::from_millis);
    millis.map(crate::duration::show).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_scheme_and_path() {
        for (given, base) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070/"),
            ("127.0.0.1:7070", "http://127.0.0.1:7070/"),
            ("localhost:7070/", "http://localhost:7070/"),
            ("http://127.0.0.1:7070/api/v1", "http://127.0.0.1:7070/"),
            (" http://127.0.0.1:7070/api/v1/ ", "http://127.0.0.1:7070/"),
            ("https://flows.example.com/below/", "https://flows.example.com/below"),
            ("[::1]:7070", "http://[::1]:7070/"),
        ] {
            assert_eq!(address(given).unwrap().as_str(), base, "{given}");
        }
        for wrong in ["", "http://", "ftp://x", "://", "a b"] {
            let refused = address(wrong).unwrap_err().to_string();
            assert!(refused.contains("write it like http://127.0.0.1:7070"), "{refused}");
        }
    }
}
