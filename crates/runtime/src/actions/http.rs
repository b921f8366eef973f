//! `http.request`: calls an HTTP service.
//!
//! A 2xx response is a success. Connection errors, timeouts, 408, 425, 429 and 5xx are retriable failures. Any other response,
//! and an address that must not be called, is a permanent failure. A response that is a failure is recorded with the attempt.
//! At most [`MAX_BODY`] bytes of a body are kept. A longer one is marked `isTruncated`, and an expression that reads it fails
//! instead of working with a part of it.

mod answer;
mod client;
mod fetch;
mod framing;
mod guard;
mod redirect;
mod request;
#[cfg(test)]
mod tests;

use self::{
    client::{Client, Response, connection_failure},
    guard::{Guard, GuardedResolver, Lookup, SystemLookup},
    redirect::MAX_REDIRECTS,
    request::Request,
};
pub use self::{fetch::Fetcher, redirect::Redirects};
use super::{ActionInfo, Call, Done, Failed, SigningKey, TypedAction};
use crate::memory;
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fermata_core::{Failure, code};
use http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use url::Url;

/// How much of a response's body is kept.
pub const MAX_BODY: usize = 256 * 1024;

/// How many copies of a response are in memory at the same time: the bytes, the value, its text, and the one that is being stored.
const COPIES: u64 = 4;
/// The most memory that reading a response may need: its copies, and a value with as many members as possible.
const READING_BYTES: u64 = 8 * MAX_BODY as u64;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const CORRELATION_ID: &str = "x-correlation-id";
const X_ATTEMPT: &str = "x-attempt";
const TRACEPARENT: &str = "traceparent";
/// Headers that the client sets itself. A proxy could take a wrong length or host for the begin of another request.
const SET_BY_CLIENT: [header::HeaderName; 4] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
];

/// Settings of `http.request`.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The `User-Agent` header, unless a node sets it.
    pub user_agent: String,
    /// Whether requests may go to addresses that are not public: loopback, private networks, a cloud's metadata service. Enable
    /// it only if every author of a workflow may call everything that this process can reach.
    pub allow_private_networks: bool,
    /// Host names of services inside this process, with their addresses. The port of a URL is ignored for them, and they pass
    /// the guard.
    pub stand_ins: Vec<(String, SocketAddr)>,
    /// The key with which requests of callbacks, events and HTTP tasks are signed; they are not signed without one.
    pub signing_key: Option<SigningKey>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            user_agent: concat!("fermata/", env!("CARGO_PKG_VERSION")).to_owned(),
            allow_private_networks: false,
            stand_ins: Vec::new(),
            signing_key: None,
        }
    }
}

/// The action.
pub struct HttpRequest {
    client: Client,
    user_agent: String,
    guard: Guard,
    stand_ins: Vec<(String, SocketAddr)>,
}

impl HttpRequest {
    /// The action with its own connection pool.
    pub fn new(settings: &HttpSettings) -> Result<Self, rustls::Error> {
        let guard = match settings.allow_private_networks {
            true => Guard::OPEN,
            false => Guard::PUBLIC,
        };
        HttpRequest::guarded(settings, guard, Arc::new(SystemLookup))
    }

    fn guarded(settings: &HttpSettings, guard: Guard, lookup: Arc<dyn Lookup>) -> Result<Self, rustls::Error> {
        let client = Client::new(GuardedResolver {
            guard,
            lookup,
            stand_ins: settings.stand_ins.clone(),
        })?;
        Ok(HttpRequest {
            client,
            user_agent: settings.user_agent.clone(),
            guard,
            stand_ins: settings.stand_ins.clone(),
        })
    }
}

/// The parameters of `http.request`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpParameters {
    /// The method; `GET` by default.
    #[serde(default = "get")]
    pub method: String,
    /// The URL.
    pub url: String,
    /// Headers to send; numbers and booleans are written as text.
    #[serde(default)]
    pub headers: Map<String, Value>,
    /// Added to the URL's query.
    #[serde(default)]
    pub query: Map<String, Value>,
    /// The body. Text is sent unchanged, any other value as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// Whether the response's body is read as JSON.
    #[serde(default)]
    pub parse_body: ParseBody,
    /// Which redirects are followed.
    #[serde(default)]
    pub redirects: Redirects,
    /// The timeout of this request; the node's own timeout applies as well.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
}

/// When a response's body is read as JSON. A body that is not JSON stays text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ParseBody {
    /// If its media type is JSON.
    #[default]
    Auto,
    /// Whatever its media type is.
    Json,
    /// Never.
    Text,
}

impl HttpParameters {
    /// A POST without headers and body. Its response is read as JSON, and only a redirect that repeats it at the same
    /// origin is followed.
    pub(super) fn post(url: String) -> HttpParameters {
        HttpParameters {
            method: "POST".to_owned(),
            url,
            headers: Map::new(),
            query: Map::new(),
            body: None,
            parse_body: ParseBody::Json,
            redirects: Redirects::SameOrigin,
            timeout_ms: None,
        }
    }
}

fn get() -> String {
    "GET".to_owned()
}

/// The outputs of `http.request`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpOutputs {
    /// The status code.
    #[schemars(extend("examples" = [200]))]
    pub status: u16,
    /// The response's headers, names in lower case.
    pub headers: Map<String, Value>,
    /// The body: a value if it was read as JSON, else text.
    #[schemars(extend("examples" = [{}]))]
    pub body: Value,
    /// Why the body is text although its media type is JSON. Expressions that read members of such a body fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_error: Option<String>,
    /// Whether the body was truncated.
    pub is_truncated: bool,
}

impl HttpOutputs {
    fn size(&self) -> u64 {
        let headers = self.headers.values().map(memory::size).sum::<u64>();
        headers + memory::size(&self.body)
    }
}

#[async_trait]
impl TypedAction for HttpRequest {
    type Parameters = HttpParameters;
    type Outputs = HttpOutputs;

    fn describe(&self) -> ActionInfo {
        ActionInfo {
            id: "http.request".to_owned(),
            display_name: "HTTP request".to_owned(),
            description: "Calls an HTTP service and returns its status, headers and body.".to_owned(),
            category: "Data".to_owned(),
            connector_id: "http".to_owned(),
            version: "1.0.0".to_owned(),
            parameter_schema: Value::Null,
            output_schema: Value::Null,
            is_enabled: true,
            deprecation_notice: None,
            tags: vec!["http".to_owned(), "rest".to_owned()],
        }
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn sends_http(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        let limit = parameters.timeout_ms.map(Duration::from_millis);
        let parse = parameters.parse_body;
        let redirects = parameters.redirects;
        let request = self.build(parameters, &call)?;
        let exchange = async {
            let response = self.send(request, redirects).await?;
            let status = response.status();
            let retry_after = answer::retry_after_ms(response.headers(), Timestamp::now());
            call.memory.reserve(READING_BYTES).await;
            let outputs = answer::read(response, parse).await?;
            call.memory.shrink_to(COPIES * outputs.size());
            Ok::<_, Failure>((status, retry_after, outputs))
        };
        let (status, retry_after, outputs) = match limit {
            None => exchange.await?,
            Some(limit) => {
                let ended = tokio::time::timeout(limit, exchange).await;
                ended.unwrap_or_else(|_| Err(timed_out(limit)))?
            }
        };
        if status.is_success() {
            return Ok(outputs.into());
        }
        let message = format!("the service answered {status}{}", excerpt(&outputs.body));
        let mut failure = match may_pass(status) {
            true => Failure::retriable(format!("HTTP_{}", status.as_u16()), message),
            false => Failure::permanent(format!("HTTP_{}", status.as_u16()), message),
        };
        failure.retry_after_ms = retry_after.filter(|_| failure.retriable);
        Err(Failed {
            failure,
            outputs: serde_json::to_value(outputs).ok(),
        })
    }
}

impl HttpRequest {
    fn build(&self, parameters: HttpParameters, call: &Call) -> Result<Request, Failure> {
        let refuse = |what: String| Failure::permanent(code::INVALID_PARAMETERS, what);
        let method = Method::from_bytes(parameters.method.to_ascii_uppercase().as_bytes())
            .map_err(|_| refuse(format!("`{}` is not an HTTP method", parameters.method)))?;
        // The URL may hold secrets, so the message does not quote it.
        let mut url = Url::parse(&parameters.url)
            .map_err(|error| refuse(format!("`url` is not a URL after rendering: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refuse(format!(
                "only http and https URLs can be called, not `{}:`",
                url.scheme()
            )));
        }
        if !parameters.query.is_empty() {
            let pairs = parameters.query.iter().map(|(name, value)| (name, text_of(value)));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &parameters.headers {
            let name = header::HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| refuse(format!("`{name}` is not a header name")))?;
            if SET_BY_CLIENT.contains(&name) {
                return Err(refuse(format!(
                    "header `{name}` is set by the client; remove it from the parameters"
                )));
            }
            let value = text_of(value).parse().map_err(|_| {
                refuse(format!(
                    "the value of header `{name}` has characters that are not allowed in a header"
                ))
            })?;
            headers.append(name, value);
        }
        let mut or_else = |name, value: &str| {
            if !headers.contains_key(&name) {
                let value = header::HeaderValue::from_str(value)
                    .map_err(|_| refuse(format!("`{value}` cannot be sent as header `{name}`")))?;
                headers.insert(name, value);
            }
            Ok(())
        };
        or_else(header::HeaderName::from_static(IDEMPOTENCY_KEY), &call.idempotency_key)?;
        or_else(header::HeaderName::from_static(CORRELATION_ID), &call.correlation_id)?;
        or_else(header::HeaderName::from_static(X_ATTEMPT), &call.attempt.to_string())?;
        if let Some(context) = call.traceparent {
            or_else(header::HeaderName::from_static(TRACEPARENT), &context.to_string())?;
        }
        match &parameters.body {
            None => {}
            Some(Value::String(_)) => or_else(header::CONTENT_TYPE, "text/plain; charset=utf-8")?,
            Some(_) => or_else(header::CONTENT_TYPE, "application/json")?,
        }
        or_else(header::USER_AGENT, &self.user_agent)?;
        or_else(header::ACCEPT, "*/*")?;
        if let Some(credentials) = take_credentials(&mut url) {
            or_else(header::AUTHORIZATION, &credentials)?;
        }
        let body = parameters.body.map(|body| match body {
            Value::String(text) => text.into(),
            body => body.to_string().into(),
        });
        Ok(Request {
            method,
            url,
            headers,
            body,
        })
    }

    /// Sends a request and follows its redirects.
    async fn send(&self, mut request: Request, redirects: Redirects) -> Result<Response, Failure> {
        for hop in 0..=MAX_REDIRECTS {
            if guard::is_stand_in(&self.stand_ins, &request.url) {
                // The connector would prefer the port of the URL, and that could be any service of this machine.
                let _ = request.url.set_port(None);
            }
            let checked = self.guard.check(&request.url);
            let sent = match checked.map_err(|refused| connection_failure(&refused)) {
                Ok(()) => self.client.send(&request).await,
                Err(failure) => Err(failure),
            };
            let response = sent.map_err(|failure| match hop {
                0 => failure,
                _ => on_the_way(hop, &request.url, failure),
            })?;
            if !redirect::follow(&mut request, response.status(), response.headers(), redirects)? {
                return Ok(response);
            }
        }
        let message = format!("the service redirected the request more than {MAX_REDIRECTS} times");
        Err(Failure::permanent("TOO_MANY_REDIRECTS", message))
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

fn on_the_way(hop: usize, to: &Url, failure: Failure) -> Failure {
    let message = format!("at redirect {hop}, to `{}`: {}", redirect::origin(to), failure.message);
    Failure { message, ..failure }
}

fn timed_out(limit: Duration) -> Failure {
    let message = format!("the request took longer than {} ms", limit.as_millis());
    Failure::retriable(code::TIMEOUT, message)
}

/// The user name and password of a URL, as an `Authorization` header.
fn take_credentials(url: &mut Url) -> Option<String> {
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let name = decoded(url.username());
    let password = url.password().map(decoded);
    if name.is_empty() && password.is_none() {
        return None;
    }
    // This cannot fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let credentials = [name, b":".to_vec(), password.unwrap_or_default()].concat();
    Some(format!("Basic {}", STANDARD.encode(credentials)))
}

fn excerpt(body: &Value) -> String {
    let text = text_of(body);
    let cut = text.floor_char_boundary(200);
    match text.trim() {
        "" => String::new(),
        _ if cut < text.len() => format!(": {}…", &text[..cut]),
        text => format!(": {text}"),
    }
}
