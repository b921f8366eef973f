//! Requests to services: `callback`, `event` and `http.task`. They use the client of `http.request`, with its address guard.
//!
//! | action | request | the answer |
//! | --- | --- | --- |
//! | `callback` with `url` | `{execution_id, node_id, state, callback_url}`, for a decision also `possible_outcomes` | is sent to `callback_url` |
//! | `callback` with `callback_id` | the same, to the address that is registered when it is sent | the same |
//! | `callback` without both | none: it waits in the inbox | is given there, or sent to its token |
//! | `event` | a structured CloudEvent with the same data | is sent to `callback_url`, if the node waits for one |
//! | `http.task` | `{execution_id, node_id, state}` | is the response: an object, or its member `state` |
//!
//! Requests are signed as Standard Webhooks define it if a key is configured. The id is the same when an attempt is repeated.

use super::{ActionInfo, Call, Done, Failed, HttpRequest, Offer, TypedAction, http::HttpOutputs, http::HttpParameters};
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fermata_core::{Failure, code};
use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::Sha256;
use std::{fmt, sync::Arc};

/// The key with which requests are signed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// Reads a secret: base64, with or without the prefix `whsec_`.
    ///
    /// # Errors
    /// Says what is wrong with it, without quoting it.
    pub fn parse(secret: &str) -> Result<SigningKey, String> {
        let text = secret.strip_prefix("whsec_").unwrap_or(secret);
        let key = STANDARD
            .decode(text)
            .map_err(|_| "a signing secret is base64, with or without the prefix `whsec_`".to_owned())?;
        match key.len() {
            24..=64 => Ok(SigningKey(key)),
            length => Err(format!("a signing secret has 24 to 64 bytes, not {length}")),
        }
    }

    fn sign(&self, id: &str, timestamp: i64, body: &str) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// Sends signed JSON.
struct Sender {
    http: Arc<HttpRequest>,
    key: Option<SigningKey>,
}

impl Sender {
    async fn post(
        &self,
        url: String,
        headers: Map<String, Value>,
        content_type: &str,
        body: &Value,
        call: Call,
    ) -> Result<HttpOutputs, Failed> {
        let body = body.to_string();
        let mut headers = headers;
        headers.insert("content-type".to_owned(), content_type.into());
        if let Some(key) = &self.key {
            let id = &call.idempotency_key;
            let timestamp = jiff::Timestamp::now().as_second();
            headers.insert("webhook-id".to_owned(), id.as_str().into());
            headers.insert("webhook-timestamp".to_owned(), timestamp.to_string().into());
            let signature = key.sign(id, timestamp, &body);
            headers.extend(signature.map(|signature| ("webhook-signature".to_owned(), signature.into())));
        }
        let request = HttpParameters {
            headers,
            body: Some(Value::String(body)),
            ..HttpParameters::post(url)
        };
        Ok(self.http.run(request, call).await?.outputs)
    }
}

/// What the other side gets: ids, state, and how to answer.
fn request_body(call: &Call) -> Map<String, Value> {
    let mut body = Map::from_iter([
        ("execution_id".to_owned(), call.run.to_string().into()),
        ("node_id".to_owned(), call.node.as_str().into()),
        ("state".to_owned(), (*call.state).clone()),
    ]);
    if let Some(answer) = &call.answer {
        body.insert("callback_url".to_owned(), answer.callback_url.as_str().into());
        if !answer.outcomes.is_empty() {
            body.insert("possible_outcomes".to_owned(), json!(answer.outcomes));
        }
    }
    body
}

fn info(id: &str, display_name: &str, description: &str) -> ActionInfo {
    ActionInfo {
        id: id.to_owned(),
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        category: "Communication".to_owned(),
        connector_id: "http".to_owned(),
        version: "1.0.0".to_owned(),
        parameter_schema: Value::Null,
        output_schema: Value::Null,
        is_enabled: true,
        deprecation_notice: None,
        tags: vec!["http".to_owned(), "callback".to_owned()],
    }
}

/// Asks a service, or puts the request into the inbox.
pub struct Callback(Sender);

impl Callback {
    /// The action with this client.
    pub fn new(http: Arc<HttpRequest>, key: Option<SigningKey>) -> Callback {
        Callback(Sender { http, key })
    }
}

/// The parameters of [`Callback`].
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CallbackParameters {
    /// The service; without it the request waits in the inbox.
    #[serde(default)]
    pub url: Option<String>,
    /// A registered callback, in place of `url`.
    #[serde(default)]
    pub callback_id: Option<String>,
    /// The queue of the inbox that workers claim from; the workflow by default.
    #[serde(default)]
    pub queue: Option<String>,
    /// What is asked, in one line.
    #[serde(default)]
    pub title: Option<String>,
    /// More about it.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of the fields to fill in.
    #[serde(default)]
    pub fields: Option<Map<String, Value>>,
}

#[async_trait]
impl TypedAction for Callback {
    type Parameters = CallbackParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info(
            "callback",
            "Callback",
            "Asks a service, a worker or a person, and waits for the answer.",
        )
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        parameters.get("url").is_some() || parameters.get("callback_id").is_some()
    }

    fn sends_http(&self, parameters: &Value) -> bool {
        self.reads_state(parameters)
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        if let Some(url) = address(&parameters, &call).await? {
            let body = Value::Object(request_body(&call));
            self.0.post(url, Map::new(), "application/json", &body, call).await?;
            return Ok(Map::new().into());
        }
        let mut details = Map::new();
        details.extend(parameters.title.map(|text| ("title".to_owned(), text.into())));
        details.extend(
            parameters
                .description
                .map(|text| ("description".to_owned(), text.into())),
        );
        details.extend(parameters.fields.map(|schema| ("fields".to_owned(), schema.into())));
        Ok(Done {
            outputs: Map::new(),
            links: Vec::new(),
            offer: Some(Offer {
                queue: parameters.queue,
                details,
            }),
        })
    }
}

/// Where the request is sent; `None` if it waits in the inbox.
async fn address(parameters: &CallbackParameters, call: &Call) -> Result<Option<String>, Failure> {
    let not_registered = |message: String| Failure::permanent(code::CALLBACK_NOT_REGISTERED, message);
    match (&parameters.callback_id, &parameters.url, &call.callbacks) {
        (Some(id), _, Some(callbacks)) => callbacks.find(id).await.map(Some),
        (Some(id), _, None) => Err(not_registered(format!(
            "there are no registered callbacks here: `{id}`"
        ))),
        (None, Some(_), Some(callbacks)) if callbacks.registered_only() => Err(not_registered(
            "the request goes to a URL, and `callbacks.require_registered` allows registered callbacks only".to_owned(),
        )),
        (None, url, _) => Ok(url.clone()),
    }
}

/// Sends a CloudEvent.
pub struct CloudEvent(Sender);

impl CloudEvent {
    /// The action with this client.
    pub fn new(http: Arc<HttpRequest>, key: Option<SigningKey>) -> CloudEvent {
        CloudEvent(Sender { http, key })
    }
}

/// The parameters of [`CloudEvent`].
#[derive(Debug, Deserialize, JsonSchema)]
pub struct EventParameters {
    /// Where the event is sent.
    pub url: String,
    /// The type of the event; `<workflow>.<node>` by default.
    #[serde(default)]
    pub event_type: Option<String>,
    /// The source of the event; `/workflows/<workflow>` by default.
    #[serde(default)]
    pub source: Option<String>,
}

#[async_trait]
impl TypedAction for CloudEvent {
    type Parameters = EventParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info("event", "Event", "Sends a CloudEvent in structured mode.")
    }

    fn reads_state(&self, _: &Value) -> bool {
        true
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn sends_http(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        let event = json!({
            "specversion": "1.0",
            "id": call.idempotency_key,
            "source": parameters.source.unwrap_or_else(|| format!("/workflows/{}", call.workflow)),
            "type": parameters.event_type.unwrap_or_else(|| format!("{}.{}", call.workflow, call.node)),
            "subject": call.run.to_string(),
            "datacontenttype": "application/json",
            "data": request_body(&call),
        });
        const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";
        self.0
            .post(parameters.url, Map::new(), STRUCTURED, &event, call)
            .await?;
        Ok(Map::new().into())
    }
}

/// Calls a service with the state; its response are new members of the state.
pub struct HttpTask(Sender);

impl HttpTask {
    /// The action with this client.
    pub fn new(http: Arc<HttpRequest>, key: Option<SigningKey>) -> HttpTask {
        HttpTask(Sender { http, key })
    }
}

/// The parameters of [`HttpTask`].
#[derive(Debug, Deserialize, JsonSchema)]
pub struct HttpTaskParameters {
    /// The service.
    pub url: String,
    /// Headers to send.
    #[serde(default)]
    pub headers: Map<String, Value>,
}

#[async_trait]
impl TypedAction for HttpTask {
    type Parameters = HttpTaskParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info(
            "http.task",
            "HTTP task",
            "Calls a service with the state of the run. The object it responds with, or its member `state`, is the output.",
        )
    }

    fn reads_state(&self, _: &Value) -> bool {
        true
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn sends_http(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        let body = Value::Object(request_body(&call));
        let response = self
            .0
            .post(parameters.url, parameters.headers, "application/json", &body, call)
            .await?;
        if response.is_truncated {
            let message = format!("the response is longer than {} KB", super::MAX_BODY_KB);
            return Err(Failure::permanent(code::INVALID_CALLBACK_PAYLOAD, message).into());
        }
        match response.body {
            Value::Object(mut members) => match members.remove("state") {
                Some(Value::Object(state)) => Ok(state.into()),
                Some(_) => Err(invalid("its member `state` is not an object").into()),
                None => Ok(members.into()),
            },
            Value::String(text) if text.is_empty() => Ok(Map::new().into()),
            _ => Err(invalid("it is not a JSON object").into()),
        }
    }
}

fn invalid(what: &str) -> Failure {
    let message = format!("the response cannot be merged into the state: {what}");
    Failure::permanent(code::INVALID_CALLBACK_PAYLOAD, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    #[test]
    fn signature_matches_the_published_example() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn wrong_secrets_are_refused_and_not_shown() {
        for secret in ["", "whsec_", "whsec_????", "c2hvcnQ="] {
            let error = SigningKey::parse(secret).unwrap_err();
            assert!(secret.len() < 5 || !error.contains(secret), "{error}");
        }
        let key = SigningKey::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey");
    }
}
