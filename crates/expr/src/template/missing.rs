//! Says what is not there, where the path broke, and what is there instead.

use crate::{
    data::{DataRef, Segment, write_path},
    error::{EvalError, EvalErrorKind, Span},
    suggest::nearest,
};

/// How many names a message lists.
const LISTED: usize = 8;

/// The error for a path that breaks: `walked` exists and is `parent`, but has no `wanted`.
pub(super) fn missing(
    whole: &str,
    span: Span,
    walked: &[Segment],
    parent: DataRef<'_>,
    wanted: &Segment,
    is_last: bool,
) -> EvalError {
    let mut message = format!("`{}` is not defined", whole.trim());
    let here = path_text(walked);
    let broken = {
        let mut path = walked.to_vec();
        path.push(wanted.clone());
        path_text(&path)
    };
    match parent {
        DataRef::Json(serde_json::Value::Array(items)) if matches!(wanted, Segment::Index(_)) => {
            message += &format!(": `{here}` has {} element(s)", items.len());
        }
        DataRef::Json(value) if !value.is_object() => {
            message += &format!(": `{here}` is {}", kind(value));
        }
        object => {
            if !is_last && !walked.is_empty() {
                message += &format!(": `{broken}` is missing");
            }
            message += &format!(" ({})", members(&here, object, wanted));
        }
    }
    EvalError::new(EvalErrorKind::Undefined, span, message)
}

fn members(here: &str, object: DataRef<'_>, wanted: &Segment) -> String {
    let keys = object.keys().unwrap_or_default();
    let owner = if here.is_empty() { "the scope" } else { here };
    if keys.is_empty() {
        return format!("{owner} is empty");
    }
    let more = if keys.len() > LISTED { ", …" } else { "" };
    let listed = keys.iter().take(LISTED).copied().collect::<Vec<_>>();
    let mut text = format!("{owner} has: {}{more}", listed.join(", "));
    if let Segment::Key(wanted) = wanted
        && let Some(near) = nearest(wanted, keys)
    {
        text += &format!("; did you mean `{near}`?");
    }
    text
}

fn path_text(segments: &[Segment]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_path(&mut text, segments);
    text
}

/// What a value is, in words.
pub(super) fn kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "a boolean",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a string",
        serde_json::Value::Array(_) => "an array",
        serde_json::Value::Object(_) => "an object",
    }
}
