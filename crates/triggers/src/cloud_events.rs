//! The events of a request: CloudEvents 1.0 over HTTP in its three forms, and plain JSON.
//!
//! | content type | form | events |
//! | --- | --- | --- |
//! | `application/cloudevents-batch+json` | batch | each element of the list |
//! | `application/cloudevents+json` | structured | the body |
//! | any, with `ce-…` headers | binary | the headers are the attributes, the body is the data |
//! | `application/json` | plain | `{"type", "source"?, "id"?, "subject"?, "time"?, "data"?}`, or a list of these |
//!
//! What must stay true: all events of a request are read before any is used. Errors name the event and the attribute.

#[cfg(test)]
mod tests;

use crate::request::{Headers, is_json};
use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The most events of one request.
pub const MOST_EVENTS: usize = 1000;
/// The source of events that name none.
pub const DEFAULT_SOURCE: &str = "urn:fermata:api";
/// The longest id, source, type or other attribute, in bytes.
const LONGEST: usize = 2048;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Unique within its source.
    pub id: String,
    /// Where it happened.
    pub source: String,
    /// What happened.
    pub event_type: String,
    /// All attributes by name, these three as well.
    pub attributes: Map<String, Value>,
    /// Its data: JSON as a value, text as a text, other bytes as base64.
    pub data: Value,
}

/// A request that holds no events that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Not a content type of events.
    #[error(
        "the content type `{0}` is not supported; send `application/json`, `application/cloudevents+json` or \
         `application/cloudevents-batch+json`, or any type with the headers `ce-id`, `ce-source`, `ce-type` and `ce-specversion: 1.0`"
    )]
    UnsupportedType(String),
    /// An event that is not valid.
    #[error("{0}")]
    Invalid(String),
}

fn invalid(message: impl Into<String>) -> EventError {
    EventError::Invalid(message.into())
}

/// The events of a request. `new_id` makes an id for a plain event without one.
///
/// # Errors
/// What is wrong with which event.
pub fn events_of(headers: &Headers, body: &[u8], new_id: &mut dyn FnMut() -> String) -> Result<Vec<Event>, EventError> {
    let content_type = headers.get("content-type").unwrap_or_default();
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if essence.starts_with("application/cloudevents-batch") {
        json_only(&essence)?;
        let Value::Array(events) = json(body)? else {
            return Err(invalid("a batch must be a JSON list of events"));
        };
        return numbered(events, |event| structured(event, None));
    }
    if essence.starts_with("application/cloudevents") {
        json_only(&essence)?;
        return structured(json(body)?, None).map(|event| vec![event]);
    }
    if headers.iter().any(|(name, _)| name.starts_with("ce-")) {
        return binary(headers, content_type, body).map(|event| vec![event]);
    }
    if !is_json(&essence) {
        return Err(EventError::UnsupportedType(essence));
    }
    match json(body)? {
        Value::Array(events) => numbered(events, |event| structured(event, Some(new_id))),
        event => structured(event, Some(new_id)).map(|event| vec![event]),
    }
}

fn json_only(essence: &str) -> Result<(), EventError> {
    match essence.ends_with("+json") || !essence.contains('+') {
        true => Ok(()),
        false => Err(EventError::UnsupportedType(essence.to_owned())),
    }
}

fn json(body: &[u8]) -> Result<Value, EventError> {
    serde_json::from_slice(body).map_err(|error| invalid(format!("the body is not valid JSON: {error}")))
}

/// Reads the events of a list. An error says which one it is about.
fn numbered(
    events: Vec<Value>,
    mut read: impl FnMut(Value) -> Result<Event, EventError>,
) -> Result<Vec<Event>, EventError> {
    if events.len() > MOST_EVENTS {
        return Err(invalid(format!(
            "a request must not hold more than {MOST_EVENTS} events"
        )));
    }
    let numbered = events.into_iter().enumerate();
    let read = numbered.map(|(index, event)| {
        read(event).map_err(|error| match error {
            EventError::Invalid(why) => invalid(format!("event {index}: {why}")),
            other => other,
        })
    });
    read.collect()
}

/// An event that is one JSON object: a structured one, or with `new_id` a plain one.
fn structured(event: Value, new_id: Option<&mut dyn FnMut() -> String>) -> Result<Event, EventError> {
    let Value::Object(mut attributes) = event else {
        return Err(invalid("an event must be a JSON object"));
    };
    let data = attributes.shift_remove("data");
    let encoded = attributes
        .shift_remove("data_base64")
        .filter(|encoded| !encoded.is_null());
    let data = match (data, encoded) {
        (Some(_), Some(_)) => return Err(invalid("an event has either `data` or `data_base64`")),
        (data, None) => data.unwrap_or(Value::Null),
        (None, Some(encoded)) => {
            let bytes = encoded.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
            let bytes = bytes.ok_or_else(|| invalid("`data_base64` is not base64"))?;
            let content_type = attributes.get("datacontenttype").and_then(Value::as_str);
            data_of(content_type.unwrap_or("application/json"), &bytes)?
        }
    };
    attributes.retain(|_, value| !value.is_null());
    if let Some(new_id) = new_id {
        attributes.entry("specversion").or_insert_with(|| "1.0".into());
        attributes.entry("source").or_insert_with(|| DEFAULT_SOURCE.into());
        attributes.entry("id").or_insert_with(|| new_id().into());
    }
    checked(attributes, data)
}

/// An event whose attributes are headers.
fn binary(headers: &Headers, content_type: &str, body: &[u8]) -> Result<Event, EventError> {
    let mut attributes = Map::new();
    for (header, value) in headers.iter() {
        let Some(name) = header.strip_prefix("ce-") else {
            continue;
        };
        let value = header_value(value).ok_or_else(|| invalid(format!("the header `{header}` is not valid UTF-8")))?;
        if attributes.insert(name.to_owned(), Value::String(value)).is_some() {
            return Err(invalid(format!("the header `{header}` occurs more than once")));
        }
    }
    if attributes.contains_key("datacontenttype") {
        return Err(invalid(
            "the content type belongs to `Content-Type`, not to `ce-datacontenttype`",
        ));
    }
    let data = match body {
        [] => Value::Null,
        body => data_of(content_type, body)?,
    };
    if !content_type.is_empty() {
        attributes.insert("datacontenttype".to_owned(), content_type.into());
    }
    checked(attributes, data)
}

/// A header's value: quotes are removed, then percent-encoded bytes are decoded, once.
fn header_value(text: &str) -> Option<String> {
    let text = text.trim();
    let unquoted = match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => {
            let mut plain = String::new();
            let mut characters = quoted.chars();
            while let Some(character) = characters.next() {
                match character {
                    '\\' => plain.extend(characters.next()),
                    other => plain.push(other),
                }
            }
            plain
        }
        None => text.to_owned(),
    };
    percent_decode_str(&unquoted)
        .decode_utf8()
        .ok()
        .map(|text| text.into_owned())
}

/// Data by its content type.
fn data_of(content_type: &str, bytes: &[u8]) -> Result<Value, EventError> {
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if is_json(&essence) {
        return serde_json::from_slice(bytes).map_err(|error| invalid(format!("the data is not valid JSON: {error}")));
    }
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) if essence.starts_with("text/") || essence.ends_with("xml") => text.into(),
        _ => BASE64_STANDARD.encode(bytes).into(),
    })
}

/// Checks the attributes that every event has.
fn checked(attributes: Map<String, Value>, data: Value) -> Result<Event, EventError> {
    match attributes.get("specversion").and_then(Value::as_str) {
        Some("1.0") => {}
        Some(other) => {
            return Err(invalid(format!(
                "`specversion` {other} is not supported; it must be 1.0"
            )));
        }
        None => return Err(invalid("`specversion` is missing; it must be 1.0")),
    }
    for (name, value) in &attributes {
        let legal = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !legal {
            return Err(invalid(format!(
                "`{name}` is not an attribute: lower-case letters and digits only"
            )));
        }
        match value {
            Value::String(text) if text.len() > LONGEST => {
                return Err(invalid(format!("`{name}` is longer than {LONGEST} bytes")));
            }
            Value::String(text) if text.contains(char::is_control) => {
                return Err(invalid(format!("`{name}` contains a control character")));
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {}
            _ => return Err(invalid(format!("`{name}` must be a text, a number or a boolean"))),
        }
    }
    let required = |name: &str| match attributes.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(invalid(format!("`{name}` must be a text that is not empty"))),
        None => Err(invalid(format!("`{name}` is missing"))),
    };
    let time = attributes
        .get("time")
        .map(|time| time.as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok()));
    if time == Some(None) {
        return Err(invalid("`time` must be an instant, such as 2026-03-01T09:00:00Z"));
    }
    Ok(Event {
        id: required("id")?,
        source: required("source")?,
        event_type: required("type")?,
        attributes,
        data,
    })
}
