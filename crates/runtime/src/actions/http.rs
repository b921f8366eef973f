//! `http.request`: calls an HTTP service.
//!
//! A 2xx answer is a success. Connection errors, timeouts, 408, 425, 429 and 5xx may pass; any other answer
//! will not. At most [`MAX_BODY`] bytes of an answer are kept: beyond that the outputs say `isTruncated`, and
//! an expression that reads the body fails instead of working with half of it.

use super::{ActionInfo, Call, Done, TypedAction};
use async_trait::async_trait;
use fermata_core::{Failure, code};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, header, redirect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{error::Error, time::Duration};

/// The most that is kept of an answer's body.
pub const MAX_BODY: usize = 256 * 1024;

const MAX_REDIRECTS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How requests are made.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// What the `User-Agent` header says unless a node sets it.
    pub user_agent: String,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            user_agent: concat!("fermata/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// The action.
pub struct HttpRequest {
    client: Client,
}

impl HttpRequest {
    /// With a connection pool of its own.
    pub fn new(settings: &HttpSettings) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .user_agent(&settings.user_agent)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::limited(MAX_REDIRECTS))
            .build()?;
        Ok(HttpRequest { client })
    }
}

/// What `http.request` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpParameters {
    /// `GET` unless said otherwise.
    #[serde(default = "get")]
    pub method: String,
    /// Where to.
    pub url: String,
    /// Headers to send; numbers and booleans are written as text.
    #[serde(default)]
    pub headers: Map<String, Value>,
    /// Added to the URL's query.
    #[serde(default)]
    pub query: Map<String, Value>,
    /// Text is sent as it is, anything else as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// For this request; the node's own timeout applies as well.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
}

fn get() -> String {
    "GET".to_owned()
}

/// What `http.request` gives.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpOutputs {
    /// The status code.
    pub status: u16,
    /// The answer's headers, names in lower case.
    pub headers: Map<String, Value>,
    /// Parsed, if the answer says it is JSON and it is; else text.
    pub body: Value,
    /// Whether the body was longer than is kept.
    pub is_truncated: bool,
}

#[async_trait]
impl TypedAction for HttpRequest {
    type Parameters = HttpParameters;
    type Outputs = HttpOutputs;

    fn describe(&self) -> ActionInfo {
        ActionInfo {
            id: "http.request".to_owned(),
            display_name: "HTTP request".to_owned(),
            description: "Calls an HTTP service and gives its status, headers and body.".to_owned(),
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

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failure> {
        let request = self.build(parameters, &call)?;
        let response = request.send().await.map_err(|error| connection_failure(&error))?;
        let status = response.status();
        let retry_after = retry_after_ms(&response);
        let outputs = read(response).await?;
        if status.is_success() {
            return Ok(outputs.into());
        }
        let message = format!("the service answered {status}{}", excerpt(&outputs.body));
        let mut failure = match may_pass(status) {
            true => Failure::retriable(format!("HTTP_{}", status.as_u16()), message),
            false => Failure::permanent(format!("HTTP_{}", status.as_u16()), message),
        };
        failure.retry_after_ms = retry_after.filter(|_| failure.retriable);
        Err(failure)
    }
}

impl HttpRequest {
    fn build(&self, parameters: HttpParameters, call: &Call) -> Result<RequestBuilder, Failure> {
        let refuse = |what: String| Failure::permanent(code::INVALID_PARAMETERS, what);
        let method = Method::from_bytes(parameters.method.to_ascii_uppercase().as_bytes())
            .map_err(|_| refuse(format!("`{}` is not an HTTP method", parameters.method)))?;
        let mut url = Url::parse(&parameters.url)
            .map_err(|error| refuse(format!("`{}` is not a URL: {error}", parameters.url)))?;
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
        let mut request = self.client.request(method, url);
        if let Some(millis) = parameters.timeout_ms {
            request = request.timeout(Duration::from_millis(millis));
        }
        let given = |name: header::HeaderName| parameters.headers.keys().any(|key| name == key.as_str());
        if !given(header::HeaderName::from_static("idempotency-key")) {
            request = request.header("idempotency-key", &call.idempotency_key);
        }
        if !given(header::HeaderName::from_static("x-correlation-id")) {
            request = request.header("x-correlation-id", &*call.correlation_id);
        }
        let json = matches!(&parameters.body, Some(body) if !body.is_string());
        if json && !given(header::CONTENT_TYPE) {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &parameters.headers {
            let name = header::HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| refuse(format!("`{name}` is not a header name")))?;
            let value = header::HeaderValue::from_str(&text_of(value)).map_err(|_| {
                refuse(format!(
                    "the value of header `{name}` has characters a header cannot carry"
                ))
            })?;
            request = request.header(name, value);
        }
        Ok(match parameters.body {
            None => request,
            Some(Value::String(text)) => request.body(text),
            Some(body) => request.body(body.to_string()),
        })
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

fn retry_after_ms(response: &Response) -> Option<u64> {
    let seconds: u64 = response
        .headers()
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(seconds.saturating_mul(1000))
}

fn connection_failure(error: &reqwest::Error) -> Failure {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    match error {
        error if error.is_timeout() => Failure::retriable(code::TIMEOUT, message),
        error if error.is_redirect() => Failure::permanent("TOO_MANY_REDIRECTS", message),
        error if error.is_builder() => Failure::permanent(code::INVALID_PARAMETERS, message),
        _ => Failure::retriable("CONNECTION_FAILED", message),
    }
}

async fn read(mut response: Response) -> Result<HttpOutputs, Failure> {
    let status = response.status().as_u16();
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match headers.get_mut(name.as_str()) {
            Some(Value::String(earlier)) => {
                earlier.push_str(", ");
                earlier.push_str(&text);
            }
            _ => {
                headers.insert(name.as_str().to_owned(), Value::String(text));
            }
        }
    }
    let mut bytes = Vec::new();
    let mut is_truncated = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| connection_failure(&error))? {
        let room = MAX_BODY - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_truncated = true;
            break;
        }
    }
    let is_json = headers.get("content-type").and_then(Value::as_str).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json") || kind.to_ascii_lowercase().ends_with("+json")
    });
    let parsed = (is_json && !is_truncated)
        .then(|| serde_json::from_slice(&bytes).ok())
        .flatten();
    let body = parsed.unwrap_or_else(|| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Ok(HttpOutputs {
        status,
        headers,
        body,
        is_truncated,
    })
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
