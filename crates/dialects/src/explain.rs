//! Explains JSON Schema errors in the words of the dialects.

use crate::diagnostics::{MAX_SHOWN, quote};
use crate::tree::{join, unescape};
use fermata_expr::nearest;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A schema error, explained.
pub(crate) struct Explained {
    pub(crate) code: &'static str,
    /// The pointer from the root of the validated value.
    pub(crate) pointer: String,
    /// Whether the key is wrong, not the value.
    pub(crate) at_key: bool,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
    /// The field that is missing, or that was probably meant.
    pub(crate) field: Option<String>,
}

/// Explains `error`, which `schema` raised. `subject` describes what a pointer leads to.
pub(crate) fn explain(error: &ValidationError, schema: &Value, subject: impl Fn(&str) -> String) -> Vec<Explained> {
    let pointer = error.instance_path().as_str();
    let instance = error.instance();
    let one = |code, message, suggestion| {
        vec![Explained {
            code,
            pointer: pointer.to_owned(),
            at_key: false,
            message,
            suggestion,
            field: None,
        }]
    };
    let name = field_name(pointer);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = known_fields(error, schema);
            let unknown = |field: &String| unknown_field(field, pointer, &known, &subject(pointer));
            unexpected.iter().take(MAX_SHOWN).map(unknown).collect()
        }
        ValidationErrorKind::Required { property } => {
            let field = property.as_str().unwrap_or_default();
            let message = format!("the field {} is missing in {}", quote(field), subject(pointer));
            let mut missing = one("MISSING_FIELD", message, None);
            missing
                .iter_mut()
                .for_each(|found| found.field = Some(field.to_owned()));
            missing
        }
        ValidationErrorKind::Type { kind } => {
            let message = format!("{name} must be {}, not {}", expected(kind), given(instance));
            let suggestion = as_list(error, kind, schema).or_else(|| in_millis(pointer, instance));
            one("WRONG_TYPE", message, suggestion)
        }
        ValidationErrorKind::Enum { options } => {
            let options: Vec<String> = options.as_array().into_iter().flatten().map(plain).collect();
            let listed: Vec<String> = options.iter().map(|option| quote(option)).collect();
            let chosen = plain(instance);
            let message = format!("{name} must be one of {}, not {}", listed.join(", "), quote(&chosen));
            let near = nearest(&chosen, options.iter().map(String::as_str));
            one(
                "INVALID_VALUE",
                message,
                near.map(|near| format!("did you mean {}?", quote(near))),
            )
        }
        ValidationErrorKind::PropertyNames { error } => vec![wrong_key(pointer, error)],
        ValidationErrorKind::Pattern { pattern } => {
            let chosen = plain(instance);
            let message = format!("{name} is {}, but {}", quote(&chosen), pattern_words(pattern));
            one("INVALID_VALUE", message, repaired(pattern, &chosen))
        }
        kind => {
            let message = match beyond_limit(kind, instance) {
                Some(words) => format!("{name} {words}"),
                None => format!("{name}: {}", error.masked_with("the value")),
            };
            one("INVALID_VALUE", message, None)
        }
    }
}

/// The message for a value that is too small, too large, too long or empty.
fn beyond_limit(kind: &ValidationErrorKind, instance: &Value) -> Option<String> {
    Some(match kind {
        ValidationErrorKind::Minimum { limit } => format!("must be at least {limit}, not {}", plain(instance)),
        ValidationErrorKind::Maximum { limit } => format!("must be at most {limit}, not {}", plain(instance)),
        ValidationErrorKind::MaxLength { limit } => format!("cannot be longer than {limit} characters"),
        ValidationErrorKind::MinProperties { limit: 1 }
        | ValidationErrorKind::MinItems { limit: 1 }
        | ValidationErrorKind::MinLength { limit: 1 } => "must not be empty".to_owned(),
        _ => return None,
    })
}

/// More fields than this are not listed.
const MAX_LISTED: usize = 20;

fn unknown_field(field: &str, pointer: &str, known: &[String], subject: &str) -> Explained {
    let begun = |name: &&String| field.len() >= 3 && name.to_lowercase().starts_with(&field.to_lowercase());
    let meant = nearest(field, known.iter().map(String::as_str)).or(known.iter().find(begun).map(String::as_str));
    let suggestion = match meant {
        Some(near) => Some(format!("did you mean {}?", quote(near))),
        None if known.is_empty() || known.len() > MAX_LISTED => None,
        None => {
            let listed: Vec<String> = known.iter().map(|field| quote(field)).collect();
            Some(format!("the fields are {}", listed.join(", ")))
        }
    };
    Explained {
        code: "UNKNOWN_FIELD",
        pointer: join(pointer, field),
        at_key: true,
        message: format!("unknown field {} in {subject}", quote(field)),
        suggestion,
        field: meant.map(str::to_owned),
    }
}

/// Removes consequences of other errors: a missing field that is present under a misspelled name, and
/// other errors of a value of the wrong type.
pub(crate) fn without_consequences(all: Vec<Explained>) -> Vec<Explained> {
    let meant: HashSet<String> = all
        .iter()
        .filter(|found| found.at_key)
        .filter_map(Explained::meant_pointer)
        .collect();
    let mistyped: HashSet<String> = all
        .iter()
        .filter(|f| f.code == "WRONG_TYPE")
        .map(|f| f.pointer.clone())
        .collect();
    let echo = |found: &Explained| match found.code {
        "MISSING_FIELD" => found
            .field
            .as_ref()
            .is_some_and(|field| meant.contains(&join(&found.pointer, field))),
        "INVALID_VALUE" => mistyped.contains(&found.pointer),
        _ => false,
    };
    all.into_iter().filter(|found| !echo(found)).collect()
}

impl Explained {
    /// The pointer of the field that this unknown field was probably meant to be.
    pub(crate) fn meant_pointer(&self) -> Option<String> {
        let (owner, _) = self.pointer.rsplit_once('/')?;
        Some(join(owner, self.field.as_ref()?))
    }
}

/// The fields that the schema allows where this one is unknown.
fn known_fields(error: &ValidationError, schema: &Value) -> Vec<String> {
    let path = error.schema_path().as_str();
    let owner = path.rsplit_once('/').map_or("", |(owner, _)| owner);
    let properties = schema.pointer(owner).and_then(|owner| owner.get("properties"));
    let names = properties.and_then(Value::as_object).map(|map| map.keys().cloned());
    let hidden = |name: &String| name == "$schema";
    names.into_iter().flatten().filter(|name| !hidden(name)).collect()
}

/// The name of what a pointer leads to.
fn field_name(pointer: &str) -> String {
    let mut steps = pointer.rsplit('/').map(unescape);
    match (steps.next(), steps.next()) {
        (Some(last), _) if last.is_empty() => "the value".to_owned(),
        (Some(last), Some(list)) if last.parse::<usize>().is_ok() && !list.is_empty() => {
            format!("an item of {}", quote(&list))
        }
        (Some(last), _) => quote(&last),
        (None, _) => "the value".to_owned(),
    }
}

/// A value for a message, without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn expected(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => type_name(*one).to_owned(),
        TypeKind::Multiple(set) => {
            let names: Vec<&str> = set.iter().map(type_name).collect();
            names.join(" or ")
        }
    }
}

/// How to write a single string where a list of strings is expected.
fn as_list(error: &ValidationError, kind: &TypeKind, schema: &Value) -> Option<String> {
    let (Value::String(text), TypeKind::Single(JsonType::Array)) = (&**error.instance(), kind) else {
        return None;
    };
    let (owner, _) = error.schema_path().as_str().rsplit_once('/')?;
    let items = schema.pointer(owner)?.pointer("/items/type")?;
    let is_short = text.chars().count() <= 60;
    (items == "string" && is_short).then(|| format!("write a list: {}", quote(&json!([text]).to_string())))
}

/// How to write a duration where a number of milliseconds is expected.
fn in_millis(pointer: &str, instance: &Value) -> Option<String> {
    let is_millis = pointer.ends_with("Ms") || pointer.ends_with("_ms");
    let text = instance.as_str().filter(|_| is_millis)?;
    let given = fermata_core::duration::parse(text).ok()?;
    Some(format!("it is a number of milliseconds: write `{}`", given.as_millis()))
}

fn type_name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Null => "null",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Number => "a number",
        JsonType::String => "a string",
        JsonType::Array => "a list",
        JsonType::Object => "an object",
    }
}

/// The value that was given: its kind, or the value itself if it is short.
fn given(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(text) => format!("the string {}", quote(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The patterns of names in the schemas of the dialects.
const LOWER_NAME: &str = "^[a-z0-9-]+$";
const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_-]*$";
const DOTTED_NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";
const VERSION: &str = r"^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$";
const PATH: &str = r"^[^.]+(\.[^.]+)*$";
const REFERENCE: &str = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(@[0-9]+(\.[0-9]+\.[0-9]+)?)?$";

/// Describes a pattern.
fn pattern_words(pattern: &str) -> String {
    match pattern {
        LOWER_NAME => "may contain only lower-case letters, digits and `-`".to_owned(),
        NAME => "may contain only letters, digits, `_` and `-`, and cannot begin with `-`".to_owned(),
        DOTTED_NAME => {
            "may contain only letters, digits, `_`, `.` and `-`, and cannot begin with `.` or `-`".to_owned()
        }
        VERSION => "must be MAJOR.MINOR.PATCH, such as `1.0.0`".to_owned(),
        REFERENCE => "must be the id of a workflow, or `id@version`".to_owned(),
        PATH => "must be names with dots between them, such as `user.email`".to_owned(),
        pattern => format!("must match the pattern {}", quote(pattern)),
    }
}

/// A member name that does not match.
fn wrong_key(pointer: &str, error: &ValidationError) -> Explained {
    let key = plain(error.instance());
    let (words, suggestion) = match error.kind() {
        ValidationErrorKind::Pattern { pattern } => (pattern_words(pattern), repaired(pattern, &key)),
        ValidationErrorKind::MaxLength { limit } => (format!("cannot be longer than {limit} characters"), None),
        _ => ("cannot be used".to_owned(), None),
    };
    Explained {
        code: "INVALID_VALUE",
        pointer: join(pointer, &key),
        at_key: true,
        message: format!("the name {} {words}", quote(&key)),
        suggestion,
        field: None,
    }
}

/// A name like the given one that matches the pattern.
fn repaired(pattern: &str, given: &str) -> Option<String> {
    let lower = match pattern {
        LOWER_NAME => true,
        NAME | DOTTED_NAME => false,
        _ => return None,
    };
    let mut name = String::new();
    for c in given.trim().chars().take(60) {
        match c {
            c if c.is_ascii_alphanumeric() && lower => name.push(c.to_ascii_lowercase()),
            c if c.is_ascii_alphanumeric() || (c == '_' && !lower) => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_end_matches('-');
    (!name.is_empty()).then(|| format!("for example {}", quote(name)))
}
