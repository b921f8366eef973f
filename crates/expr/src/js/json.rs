//! Values as JSON: `JSON.stringify`, and the result of an evaluation.
//!
//! What must stay true: both conversions are bounded in depth and charged as they grow, because
//! values may share parts, and a value that is small in memory may be large as JSON.

use serde_json::{Map, Number, Value as Json};

use super::{
    machine::{Machine, Outcome, not_covered},
    text::Text,
    value::Value,
};
use crate::{error::Span, number};

impl<'a> Machine<'a> {
    /// `JSON.stringify(value)`.
    pub fn stringify(&mut self, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        if arguments.iter().skip(1).any(|value| !value.is_nullish()) {
            return not_covered(span, "JSON.stringify with a replacer or an indent");
        }
        let mut out = String::new();
        let value = arguments.first().unwrap_or(&Value::Undefined);
        if !self.write_json(value, &mut out, span)? {
            return Ok(Value::Undefined);
        }
        Ok(Value::Text(Text::owned(out)))
    }

    /// Appends a value; false (and nothing appended) if it has no JSON form.
    fn write_json(&mut self, value: &Value<'a>, out: &mut String, span: Span) -> Outcome<bool> {
        self.step(1, span)?;
        let start = out.len();
        match value {
            Value::Undefined | Value::Arrow(_) | Value::Builtin(_) | Value::Method(..) => {
                return Ok(false);
            }
            Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Number(value) if value.is_finite() => out.push_str(&number::to_text(*value)),
            Value::Number(_) => out.push_str("null"),
            Value::Text(text) => {
                self.charge(text.bytes(), span)?;
                quote(text, out);
            }
            Value::Items(_) | Value::Array(_) => return self.write_array(value, out, span),
            _ => return self.write_object(value, out, span),
        }
        self.charge(out.len() - start, span)?;
        Ok(true)
    }

    fn write_array(&mut self, value: &Value<'a>, out: &mut String, span: Span) -> Outcome<bool> {
        let Some(list) = value.list() else {
            return Ok(false);
        };
        self.enter(span)?;
        out.push('[');
        for (position, item) in list.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            self.charge(1, span)?;
            if !self.write_json(&item, out, span)? {
                out.push_str("null");
            }
        }
        out.push(']');
        self.leave();
        Ok(true)
    }

    fn write_object(&mut self, value: &Value<'a>, out: &mut String, span: Span) -> Outcome<bool> {
        if self.own_member(value, "toJSON").is_some_and(|own| own.is_function()) {
            return not_covered(span, "a `toJSON` function");
        }
        self.enter(span)?;
        out.push('{');
        let mut first = true;
        for (name, item) in self.own_members(value, span)? {
            let start = out.len();
            if !first {
                out.push(',');
            }
            quote(&name, out);
            out.push(':');
            self.charge(out.len() - start, span)?;
            if self.write_json(&item, out, span)? {
                first = false;
            } else {
                out.truncate(start);
            }
        }
        out.push('}');
        self.leave();
        Ok(true)
    }

    /// The result as JSON, as `JSON.parse(JSON.stringify(result))` would be; `None` for
    /// `undefined`. Input that is returned whole is not charged.
    pub fn json_of(&mut self, value: &Value<'a>, made: bool, span: Span) -> Outcome<Option<Json>> {
        self.step(1, span)?;
        if made {
            self.charge(32, span)?;
        }
        Ok(Some(match value {
            Value::Undefined | Value::Arrow(_) | Value::Builtin(_) | Value::Method(..) => {
                return Ok(None);
            }
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(value) => json_number(*value),
            Value::Text(text) => {
                if made {
                    self.charge(text.bytes(), span)?;
                }
                Json::String(text.to_str_lossy().into_owned())
            }
            Value::Items(_) | Value::Array(_) => {
                let made = made || matches!(value, Value::Array(_));
                self.enter(span)?;
                let mut out = Vec::new();
                for item in value.list().iter().flat_map(|list| list.iter()) {
                    let item = self.json_of(&item, made, span)?;
                    out.push(item.unwrap_or(Json::Null));
                }
                self.leave();
                Json::Array(out)
            }
            Value::Members(members) => {
                self.enter(span)?;
                let mut out = Map::with_capacity(members.len());
                for (name, item) in *members {
                    let item = self.json_of(&Value::from_json(item), made, span)?;
                    out.insert(name.clone(), item.unwrap_or(Json::Null));
                }
                self.leave();
                Json::Object(out)
            }
            Value::Parts(_) | Value::Object(_) => {
                let made = made || matches!(value, Value::Object(_));
                self.enter(span)?;
                let mut out = Map::new();
                for (name, item) in self.own_members(value, span)? {
                    if let Some(item) = self.json_of(&item, made, span)? {
                        out.insert(name.to_str_lossy().into_owned(), item);
                    }
                }
                self.leave();
                Json::Object(out)
            }
        }))
    }
}

/// Integers as integers, so that they print without a point; no NaN, no infinity, no -0.
fn json_number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
        return Json::from(value as i64);
    }
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

/// QuoteJSONString.
fn quote(text: &Text<'_>, out: &mut String) {
    use std::fmt::Write;
    out.push('"');
    let units: Vec<u16>;
    let points: Box<dyn Iterator<Item = Result<char, u16>>> = match text.as_str() {
        Some(text) => Box::new(text.chars().map(Ok)),
        None => {
            units = text.units();
            let points = char::decode_utf16(units.iter().copied());
            Box::new(points.map(|point| point.map_err(|lone| lone.unpaired_surrogate())))
        }
    };
    for point in points {
        match point {
            Ok('"') => out.push_str("\\\""),
            Ok('\\') => out.push_str("\\\\"),
            Ok('\n') => out.push_str("\\n"),
            Ok('\r') => out.push_str("\\r"),
            Ok('\t') => out.push_str("\\t"),
            Ok('\u{8}') => out.push_str("\\b"),
            Ok('\u{c}') => out.push_str("\\f"),
            // Writing to a string cannot fail.
            Ok(c) if c < ' ' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            Ok(c) => out.push(c),
            Err(lone) => drop(write!(out, "\\u{lone:04x}")),
        }
    }
    out.push('"');
}
