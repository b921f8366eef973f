//! The messages for paths that do not resolve: which path, at which step it breaks, and what is there instead.

use crate::{
    data::{DataRef, Segment, write_path},
    error::{EvalError, EvalErrorKind, Span},
    paths::is_name,
    suggest::nearest,
};

/// How many names a message lists.
const LISTED: usize = 8;
/// The longest name in a message, in characters: names come from data and may be long.
const LONGEST_NAME: usize = 60;

/// The error for a path of a Scriban template that breaks: `walked` exists and is `parent`, but has no `wanted`.
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

/// The error for a plain path that does not exist or is null. Its first words are those of Runlater's specification.
pub(super) fn unresolved(whole: &str, span: Span, scope: DataRef<'_>, path: &[Segment]) -> EvalError {
    let mut message = format!("Failed to resolve {{{{{whole}}}}}");
    let mut parent = scope;
    for (position, wanted) in path.iter().enumerate() {
        if let Some(next) = parent.get(wanted) {
            parent = next;
            continue;
        }
        let here = plain_text(&path[..position]);
        let absent = || format!("there is no `{wanted}` ({})", members(&here, parent, wanted));
        let why = not_an_object(&here, parent, wanted).unwrap_or_else(absent);
        message += &format!(": {why}");
        break;
    }
    if parent.is_null() && scope.at(path).is_some() {
        message += ": its value is null, which cannot be written into text";
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
    let cut = |key: &&str| key.chars().take(LONGEST_NAME).collect::<String>();
    let listed = keys.iter().take(LISTED).map(cut).collect::<Vec<_>>();
    let mut text = format!("{owner} has: {}{more}", listed.join(", "));
    if let Segment::Key(wanted) = wanted
        && let Some(near) = nearest(wanted, keys)
    {
        text += &format!("; did you mean `{near}`?");
    }
    text
}

/// A path as plain paths are written: `tasks.charge.body.items.0`.
fn plain_text(segments: &[Segment]) -> String {
    let mut text = String::new();
    for segment in segments {
        let name = segment.to_string();
        match name.chars().all(is_name) {
            true if text.is_empty() => text += &name,
            true => text = text + "." + &name,
            false => text = text + "['" + &name + "']",
        }
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
