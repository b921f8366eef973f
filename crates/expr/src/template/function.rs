//! The functions that templates may call, where options allow any.
//!
//! What must stay true: a function is a pure function of its arguments.

use serde_json::Value;

/// A function of the whitelist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Upcase,
    Downcase,
    Capitalize,
    Strip,
    Size,
    Join,
    First,
    Last,
    ToJson,
}

impl Function {
    /// The function of this name: `string.upcase`, `json`.
    pub fn from_name(space: Option<&str>, name: &str) -> Option<Self> {
        Some(match (space, name) {
            (Some("string"), "upcase") => Self::Upcase,
            (Some("string"), "downcase") => Self::Downcase,
            (Some("string"), "capitalize") => Self::Capitalize,
            (Some("string"), "strip") => Self::Strip,
            (Some("string" | "array"), "size") => Self::Size,
            (Some("array"), "join") => Self::Join,
            (Some("array"), "first") => Self::First,
            (Some("array"), "last") => Self::Last,
            (Some("object"), "to_json") | (None, "json") => Self::ToJson,
            _ => return None,
        })
    }

    /// How many arguments the function takes, with a piped one.
    pub fn arity(self) -> usize {
        match self {
            Self::Join => 2,
            _ => 1,
        }
    }
}

/// `Capitalize` and its kind.
pub(super) fn change_text(function: Function, text: &str) -> String {
    match function {
        Function::Upcase => text.to_uppercase(),
        Function::Downcase => text.to_lowercase(),
        Function::Strip => text.trim().to_owned(),
        _ => {
            let mut chars = text.chars();
            let first = chars.next().map(char::to_uppercase);
            first.into_iter().flatten().chain(chars).collect()
        }
    }
}

/// The size of an array or a string (in UTF-16 code units, as the specification's engine counts).
pub(super) fn size(value: &Value) -> Option<usize> {
    match value {
        Value::Array(items) => Some(items.len()),
        Value::String(text) if text.is_ascii() => Some(text.len()),
        Value::String(text) => Some(text.encode_utf16().count()),
        _ => None,
    }
}
