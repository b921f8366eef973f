//! The protocol of parent and child: frames of a length (four bytes, big endian) and JSON.
//!
//! The parent sends one request at a time and waits for its response. Both ends are the same binary, so there is no version.

use fermata_expr::{EvalError, Limits, SandboxLanguage, SyntaxError};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap, io, time::Duration};

/// Longer frames are invalid.
pub(super) const LONGEST_FRAME: usize = 256 * 1024 * 1024;
/// Longer responses are invalid.
pub(super) const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// The operation on a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Op {
    /// Its value, as JSON.
    Evaluate,
    /// Whether its value is truthy.
    Test,
    /// Whether its syntax is valid; it is not run.
    Check,
}

/// The limits of an evaluation. Statements and depth are missing: see the header of `sandbox.rs`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Budget {
    pub timeout_ms: u64,
    pub memory_bytes: usize,
}

impl From<&Limits> for Budget {
    fn from(limits: &Limits) -> Self {
        Budget {
            timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: limits.memory_bytes,
        }
    }
}

impl Budget {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// A request, as the parent writes it.
#[derive(Debug, Serialize)]
pub(super) struct Asked<'a, D> {
    pub id: u64,
    pub language: SandboxLanguage,
    pub op: Op,
    pub source: &'a str,
    /// JSON. In JavaScript and CEL it is an object, and its members become names.
    pub data: &'a D,
    pub limits: Budget,
}

/// A request, as the child reads it.
#[derive(Debug, Deserialize)]
pub(super) struct Question<'a> {
    pub id: u64,
    pub language: SandboxLanguage,
    pub op: Op,
    #[serde(borrow)]
    pub source: Cow<'a, str>,
    #[serde(borrow)]
    pub data: &'a RawValue,
    pub limits: Budget,
}

/// The members of an object, each as JSON.
pub(super) type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

impl<'a> Question<'a> {
    /// The data as an object.
    pub fn members(&self) -> serde_json::Result<Members<'a>> {
        #[derive(Deserialize)]
        struct Object<'a>(#[serde(borrow)] Members<'a>);
        serde_json::from_str::<Object<'a>>(self.data.get()).map(|object| object.0)
    }
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum EvaluationError {
    /// The source is not a valid program.
    Syntax(SyntaxError),
    /// The program failed.
    Failed(EvalError),
}

/// A value as JSON, or `undefined`.
pub(super) type Outcome = Result<Option<Box<RawValue>>, EvaluationError>;

/// A response, as the child writes it. Without value and error the result is `undefined`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer<V> {
    pub id: u64,
    #[serde(
        default = "Option::default",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present",
        bound(deserialize = "V: Deserialize<'de>")
    )]
    pub value: Option<V>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<EvaluationError>,
    /// The steps of the confinement that failed. Sent once, with the first response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A response, as the parent reads it.
pub(super) type Answered = Answer<Value>;

/// `null` is a value here.
fn present<'de, D: Deserializer<'de>, V: Deserialize<'de>>(deserializer: D) -> Result<Option<V>, D::Error> {
    V::deserialize(deserializer).map(Some)
}

/// A message with its length in front.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4)
        .ok()
        .filter(|length| *length as usize <= LONGEST_FRAME);
    let Some(length) = length else {
        let message = format!("more than {LONGEST_FRAME} bytes cannot be sent to the sandbox");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn request_is_read_as_it_was_written() {
        let data = json!({ "trigger": { "a": [1, "\u{1F600}"] }, "vars": null });
        let asked = Asked {
            id: 7,
            language: SandboxLanguage::Js,
            op: Op::Test,
            source: "trigger.a[0] > 1 && \"x\\n\"",
            data: &data,
            limits: Budget::from(&Limits::default()),
        };
        let bytes = frame(&asked).unwrap();
        assert_eq!(
            u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize,
            bytes.len() - 4
        );
        let question: Question<'_> = serde_json::from_slice(&bytes[4..]).unwrap();
        assert_eq!(
            (question.id, question.op, &*question.source),
            (7, Op::Test, asked.source)
        );
        assert_eq!(
            question.members().unwrap()["trigger"].get(),
            data["trigger"].to_string()
        );
        assert_eq!(question.limits.timeout(), Duration::from_secs(2));
    }

    #[test]
    fn null_and_undefined_are_different_values() {
        let read = |text: &str| serde_json::from_str::<Answered>(text).unwrap().value;
        assert_eq!(read(r#"{"id":1,"value":null}"#), Some(Value::Null));
        assert_eq!(read(r#"{"id":1}"#), None);
    }
}
