//! What a workflow sees of a webhook request: `trigger` from the body, `request` from the rest; and the id that deduplicates it.
//!
//! | content type | `trigger` |
//! | --- | --- |
//! | JSON | the object; any other value stands under `body` |
//! | `application/x-www-form-urlencoded` | an object of texts; a repeated name is a list |
//! | `text/…` | `body` |
//! | none | JSON if it is, else text |
//!
//! What must stay true: credentials and signatures never become part of `request`, which is stored and shown.

#[cfg(test)]
mod tests;

use crate::{
    bounded_id,
    signature::{Scheme, SignatureConfig, Verified},
};
use fermata_expr::paths::PlainPath;
use serde_json::{Map, Value};

/// The headers of a request, in their order. A name can occur more than once.
#[derive(Debug, Clone, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Collects headers. Names become lower case; bytes that are not UTF-8 are replaced.
    pub fn new<'h>(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Self {
        let pair =
            |(name, value): (&str, &[u8])| (name.to_ascii_lowercase(), String::from_utf8_lossy(value).into_owned());
        Self(headers.into_iter().map(pair).collect())
    }

    /// All values of a header.
    pub fn all<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h str> {
        let name = name.to_ascii_lowercase();
        self.0
            .iter()
            .filter(move |(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A body that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not a content type that can become a trigger.
    #[error("content type `{0}` is not supported; send JSON, a form or text")]
    UnsupportedType(String),
    /// Not what its content type says.
    #[error("the body is not {0}")]
    Malformed(String),
}

/// The trigger that a body becomes.
///
/// # Errors
/// The content type is not supported, or the body is not what it says.
pub fn trigger_of(headers: &Headers, body: &[u8]) -> Result<Value, BodyError> {
    let content_type = headers.get("content-type").unwrap_or_default();
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let value = match essence.as_str() {
        _ if body.is_empty() => Value::Object(Map::new()),
        "" => match serde_json::from_slice(body) {
            Ok(value) => value,
            Err(_) => Value::String(text(body)?),
        },
        "application/x-www-form-urlencoded" => pairs(body),
        json if is_json(json) => {
            serde_json::from_slice(body).map_err(|error| BodyError::Malformed(format!("valid JSON: {error}")))?
        }
        plain if plain.starts_with("text/") => Value::String(text(body)?),
        _ => return Err(BodyError::UnsupportedType(essence)),
    };
    Ok(as_trigger(value))
}

/// A value as a trigger: an object itself, anything else under `body`.
pub fn as_trigger(value: Value) -> Value {
    match value {
        Value::Object(_) => value,
        other => Value::Object(Map::from_iter([("body".to_owned(), other)])),
    }
}

/// `request`: method, headers without credentials, query.
pub fn visible_request(
    method: &str,
    headers: &Headers,
    query: Option<&str>,
    signature: Option<&SignatureConfig>,
) -> Value {
    let signed_by = match signature.map(|signature| &signature.scheme) {
        Some(Scheme::Hmac(scheme)) => scheme.header.as_str(),
        _ => "",
    };
    let mut shown: Map<String, Value> = Map::new();
    for (name, value) in headers
        .iter()
        .filter(|(name, _)| !is_credential(name) && *name != signed_by)
    {
        match shown.get_mut(name) {
            Some(Value::String(values)) => {
                values.push_str(", ");
                values.push_str(value);
            }
            _ => {
                shown.insert(name.to_owned(), value.into());
            }
        }
    }
    let members = [
        ("method", Value::from(method.to_ascii_uppercase())),
        ("headers", Value::Object(shown)),
        ("query", pairs(query.unwrap_or_default().as_bytes())),
    ];
    Value::Object(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// Whether a header with this name holds a credential or a signature.
fn is_credential(name: &str) -> bool {
    const PARTS: [&str; 11] = [
        "authorization",
        "authentication",
        "cookie",
        "token",
        "secret",
        "password",
        "api-key",
        "apikey",
        "access-key",
        "signature",
        "hmac",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// The challenge of Slack's URL verification, which must be sent back.
pub fn slack_challenge(trigger: &Value) -> Option<&str> {
    match trigger.get("type")?.as_str()? {
        "url_verification" => trigger.get("challenge")?.as_str(),
        _ => None,
    }
}

/// Where a delivery id is: a path that begins with `trigger` or `request`.
#[derive(Debug, Clone)]
pub struct DedupePath(PlainPath);

impl DedupePath {
    /// Reads a path. Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = PlainPath::parse(text).ok();
        let rooted = |path: &PlainPath| matches!(path.root(), "trigger" | "request") && path.depth() > 1;
        path.filter(rooted).map(Self).ok_or_else(|| {
            "must begin with `trigger.` or `request.`, such as `trigger.id` or `request.headers.x-request-id`"
                .to_owned()
        })
    }

    fn find<'v>(&self, trigger: &'v Value, request: &'v Value) -> Option<&'v Value> {
        let root = if self.0.root() == "trigger" { trigger } else { request };
        self.0.find_below_root(root)
    }
}

/// The id that deduplicates a delivery: the configured one, else the one of the provider, else what was signed. `None`: each
/// request is a delivery of its own.
pub fn delivery_id(
    signature: Option<&SignatureConfig>,
    verified: Option<&Verified>,
    dedupe: Option<&DedupePath>,
    headers: &Headers,
    trigger: &Value,
    request: &Value,
) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let header = |name: &str| headers.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let body = |name: &str| trigger.get(name).and_then(text);
    if let Some(dedupe) = dedupe {
        return dedupe.find(trigger, request).and_then(text).map(|id| bounded_id(&id));
    }
    let provider = match signature.map(|signature| &signature.scheme) {
        Some(Scheme::StandardWebhooks) => header("webhook-id"),
        Some(Scheme::GitHub) => header("x-github-delivery"),
        Some(Scheme::Stripe) => body("id"),
        Some(Scheme::Slack) => body("event_id"),
        Some(Scheme::Shopify) => header("x-shopify-webhook-id"),
        Some(Scheme::GitLab) | Some(Scheme::Hmac(_)) | None => header("idempotency-key"),
    };
    let signed = || verified.and_then(|verified| verified.digest.clone());
    provider.or_else(signed).map(|id| bounded_id(&id))
}

/// Whether a content type, without its parameters, is JSON.
pub(crate) fn is_json(essence: &str) -> bool {
    matches!(essence, "application/json" | "text/json") || essence.ends_with("+json")
}

fn text(body: &[u8]) -> Result<String, BodyError> {
    let text = std::str::from_utf8(body).map_err(|_| BodyError::Malformed("UTF-8 text".to_owned()))?;
    Ok(text.to_owned())
}

/// Names and values of a form or a query. A repeated name is a list.
fn pairs(encoded: &[u8]) -> Value {
    let mut object: Map<String, Value> = Map::new();
    for (name, value) in url::form_urlencoded::parse(encoded) {
        let value = Value::String(value.into_owned());
        match object.get_mut(name.as_ref()) {
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => {
                object.insert(name.into_owned(), value);
            }
        }
    }
    Value::Object(object)
}
