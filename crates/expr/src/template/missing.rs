//! Errors for paths that lead nowhere: what is missing, where the path broke, and what is there instead.

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
    match not_an_object(&here, parent, wanted) {
        Some(what) => message += &format!(": {what}"),
        None => {
            if !is_last && !walked.is_empty() {
                message += &format!(": `{broken}` is missing");
            }
            message += &format!(" ({})", members(&here, parent, wanted));
        }
    }
    EvalError::new(EvalErrorKind::Undefined, span, message)
}

/// The error for a plain path that leads nowhere. Its beginning is prescribed by the specification of Runlater.
pub(super) fn unresolved(whole: &str, span: Span, scope: DataRef<'_>, path: &[Segment]) -> EvalError {
    let mut message = format!("Failed to resolve {{{{{whole}}}}}");
    let mut parent = scope;
    for (position, wanted) in path.iter().enumerate() {
        if let Some(next) = parent.get(wanted) {
            parent = next;
            continue;
        }
        let here = path_text(&path[..position]);
        let why = not_an_object(&here, parent, wanted).unwrap_or_else(|| members(&here, parent, wanted));
        message += &format!(": {why}");
        break;
    }
    if parent.is_null() && scope.at(path).is_some() {
        message += ": it is null, and null cannot stand in a text";
    }
    EvalError::new(EvalErrorKind::Undefined, span, message)
}

/// Why a value has no member or element `wanted`, if it is not an object.
fn not_an_object(here: &str, value: DataRef<'_>, wanted: &Segment) -> Option<String> {
    match value {
        DataRef::Json(serde_json::Value::Array(items)) if matches!(wanted, Segment::Index(_)) => {
            Some(format!("`{here}` has {} element(s)", items.len()))
        }
        DataRef::Json(value) if !value.is_object() => Some(format!("`{here}` is {}", kind(value))),
        _ => None,
    }
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
