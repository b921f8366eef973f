//! The functions of templates, if the options enable functions.
//!
//! What must stay true: a function is a pure function of its arguments.

use serde_json::Value;

use super::{
    ast::Expr,
    output::Limited,
    render::{Held, Outcome, Renderer, made, wrong_type},
};
use crate::error::Span;

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

/// Functions such as `capitalize`.
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

impl<'a> Renderer<'a> {
    pub fn call(&mut self, function: Function, arguments: &'a [Expr], span: Span) -> Outcome<Held<'a>> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let value = self.value(argument)?;
            values.push(self.json(&value, argument.span)?);
        }
        let first = values.first().map_or(&Value::Null, |value| value);
        let result = match function {
            Function::Upcase | Function::Downcase | Function::Capitalize | Function::Strip => {
                let text = self.plain(first, span)?;
                Value::String(change_text(function, &text))
            }
            Function::Size => match size(first) {
                Some(size) => Value::from(size),
                None => return Err(wrong_type(span, "`size` needs an array or a string", first)),
            },
            Function::First | Function::Last => {
                let Value::Array(items) = first else {
                    return Err(wrong_type(span, "this function needs an array", first));
                };
                let item = match function {
                    Function::First => items.first(),
                    _ => items.last(),
                };
                item.cloned().unwrap_or(Value::Null)
            }
            Function::Join => {
                let Value::Array(items) = first else {
                    return Err(wrong_type(span, "`array.join` needs an array", first));
                };
                let separator = self.plain(values.get(1).map_or(&Value::Null, |v| v), span)?;
                let mut text = String::new();
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        text.push_str(&separator);
                    }
                    text.push_str(&self.plain(item, span)?);
                    if text.len() > self.left {
                        return Err(self.too_long(span));
                    }
                }
                Value::String(text)
            }
            Function::ToJson => {
                let mut writer = Limited {
                    out: Some(Vec::new()),
                    left: self.left,
                };
                self.write_json(first, &mut writer, span)?;
                let bytes = writer.out.unwrap_or_default();
                Value::String(String::from_utf8_lossy(&bytes).into_owned())
            }
        };
        Ok(made(result))
    }

    /// A value as text; the output budget is restored afterwards.
    fn plain(&mut self, value: &Value, span: Span) -> Outcome<String> {
        let left = self.left;
        let mut out = String::new();
        self.write_value(value, span, &mut out)?;
        self.left = left;
        Ok(out)
    }
}
