//! The string methods, in code units.
//!
//! What must stay true: a method that makes a longer string charges for it before making it.

use super::{
    array_method::relative,
    machine::{Machine, Outcome, not_covered, throw},
    method::Method,
    text::{Builder, Text},
    value::Value,
};
use crate::{error::Span, number};

impl<'a> Machine<'a> {
    pub fn call_text_method(
        &mut self,
        text: &Text<'a>,
        method: Method,
        arguments: &[Value<'a>],
        span: Span,
    ) -> Outcome<Value<'a>> {
        self.step(text.bytes() / 16, span)?;
        let first = arguments.first().unwrap_or(&Value::Undefined);
        let second = arguments.get(1).unwrap_or(&Value::Undefined);
        match method {
            Method::At | Method::CharAt | Method::CharCodeAt | Method::CodePointAt => {
                self.text_at(text, method, first, span)
            }
            Method::Concat => {
                let mut result = text.clone();
                for argument in arguments {
                    let piece = self.text_of(argument, span)?;
                    result = self.concat(&result, &piece, span)?;
                }
                Ok(Value::Text(result))
            }
            Method::Includes | Method::StartsWith | Method::EndsWith => {
                self.text_contains(text, method, first, second, span)
            }
            Method::IndexOf => {
                let wanted = self.text_of(first, span)?;
                let from = self.integer_of(second, span)?;
                let from = from.clamp(0.0, text.len() as f64) as usize;
                Ok(position(text.find(&wanted, from)))
            }
            Method::LastIndexOf => {
                let wanted = self.text_of(first, span)?;
                let from = self.number_of(second, span)?;
                let from = if from.is_nan() { f64::INFINITY } else { from };
                let from = from.clamp(0.0, text.len() as f64) as usize;
                Ok(position(text.rfind(&wanted, from)))
            }
            Method::PadStart | Method::PadEnd => self.pad(text, method, first, second, span),
            Method::Repeat => self.repeat(text, first, span),
            Method::Replace => self.replace(text, 1, first, second, span),
            Method::ReplaceAll => self.replace(text, usize::MAX, first, second, span),
            Method::Slice | Method::Substring | Method::Substr => self.text_part(text, method, first, second, span),
            Method::Split => self.split(text, first, second, span),
            Method::ToLowerCase => {
                self.charge(text.bytes().saturating_mul(3), span)?;
                Ok(Value::Text(text.map_str(str::to_lowercase)))
            }
            Method::ToUpperCase => {
                self.charge(text.bytes().saturating_mul(3), span)?;
                Ok(Value::Text(text.map_str(str::to_uppercase)))
            }
            Method::Trim | Method::TrimStart | Method::TrimEnd => self.trim(text, method, span),
            other => not_covered(span, &format!("the method `{}`", other.name())),
        }
    }

    fn text_at(&mut self, text: &Text<'a>, method: Method, index: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let index = self.integer_of(index, span)?;
        let index = if method == Method::At && index < 0.0 {
            index + text.len() as f64
        } else {
            index
        };
        let unit = (index >= 0.0).then(|| text.unit(index as usize)).flatten();
        let Some(unit) = unit else {
            return Ok(match method {
                Method::CharAt => Value::text(""),
                Method::CharCodeAt => Value::Number(f64::NAN),
                _ => Value::Undefined,
            });
        };
        let index = index as usize;
        Ok(match method {
            Method::CharCodeAt => Value::Number(f64::from(unit)),
            Method::CodePointAt => {
                let pair = [unit, text.unit(index + 1).unwrap_or(0)];
                let point = match char::decode_utf16(pair).next() {
                    Some(Ok(c)) => u32::from(c),
                    _ => u32::from(unit),
                };
                Value::Number(f64::from(point))
            }
            _ => Value::Text(text.slice(index, index + 1)),
        })
    }

    fn text_contains(
        &mut self,
        text: &Text<'a>,
        method: Method,
        wanted: &Value<'a>,
        at: &Value<'a>,
        span: Span,
    ) -> Outcome<Value<'a>> {
        let wanted = self.text_of(wanted, span)?;
        let length = text.len();
        let at = match (method, at) {
            (Method::EndsWith, Value::Undefined) => length,
            (_, at) => self.integer_of(at, span)?.clamp(0.0, length as f64) as usize,
        };
        if method == Method::Includes {
            return Ok(Value::Bool(text.find(&wanted, at).is_some()));
        }
        if let (Some(text), Some(wanted)) = (text.as_str(), wanted.as_str()) {
            if method == Method::StartsWith && at == 0 {
                return Ok(Value::Bool(text.starts_with(wanted)));
            }
            if method == Method::EndsWith && at == length {
                return Ok(Value::Bool(text.ends_with(wanted)));
            }
        }
        let (units, wanted) = (text.units(), wanted.units());
        let found = match method {
            Method::StartsWith => units[at..].starts_with(&wanted),
            _ => units[..at].ends_with(&wanted),
        };
        Ok(Value::Bool(found))
    }

    fn pad(
        &mut self,
        text: &Text<'a>,
        method: Method,
        target: &Value<'a>,
        filler: &Value<'a>,
        span: Span,
    ) -> Outcome<Value<'a>> {
        let target = self.integer_of(target, span)?;
        let length = text.len();
        if target <= length as f64 {
            return Ok(Value::Text(text.clone()));
        }
        let filler = match filler {
            Value::Undefined => Text::Borrowed(" "),
            other => self.text_of(other, span)?,
        };
        if filler.is_empty() {
            return Ok(Value::Text(text.clone()));
        }
        // Saturates; the charge fails then.
        let missing = (target - length as f64) as usize;
        self.charge(missing.saturating_mul(3), span)?;
        let units: Vec<u16> = filler.units().into_iter().cycle().take(missing).collect();
        let padding = Text::from_units(&units);
        let padded = match method {
            Method::PadStart => self.concat(&padding, text, span)?,
            _ => self.concat(text, &padding, span)?,
        };
        Ok(Value::Text(padded))
    }

    fn repeat(&mut self, text: &Text<'a>, count: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let count = self.integer_of(count, span)?;
        if count < 0.0 || count.is_infinite() {
            let message = format!("Invalid count value: {}", number::to_text(count));
            return throw(span, "RangeError", message);
        }
        if text.is_empty() {
            return Ok(Value::text(""));
        }
        let count = count as usize;
        self.charge(text.bytes().saturating_mul(count), span)?;
        Ok(Value::Text(match text.as_str() {
            Some(text) => Text::owned(text.repeat(count)),
            None => Text::from_units(&text.units().repeat(count)),
        }))
    }

    fn text_part(
        &mut self,
        text: &Text<'a>,
        method: Method,
        first: &Value<'a>,
        second: &Value<'a>,
        span: Span,
    ) -> Outcome<Value<'a>> {
        let length = text.len();
        let (start, end) = match method {
            Method::Slice => self.range(first, second, length, span)?,
            Method::Substr => {
                let start = relative(self.integer_of(first, span)?, length);
                let count = match second {
                    Value::Undefined => length as f64,
                    other => self.integer_of(other, span)?,
                };
                let count = count.clamp(0.0, (length - start) as f64) as usize;
                (start, start + count)
            }
            _ => {
                let clamp = |at: f64| at.clamp(0.0, length as f64) as usize;
                let start = clamp(self.integer_of(first, span)?);
                let end = match second {
                    Value::Undefined => length,
                    other => clamp(self.integer_of(other, span)?),
                };
                (start.min(end), start.max(end))
            }
        };
        self.charge(24 + 3 * (end - start), span)?;
        Ok(Value::Text(text.slice(start, end)))
    }

    fn split(&mut self, text: &Text<'a>, separator: &Value<'a>, limit: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let limit = match limit {
            Value::Undefined => u32::MAX,
            other => number::to_uint32(self.number_of(other, span)?),
        } as usize;
        let by = self.text_of(separator, span)?;
        if limit == 0 {
            return self.array(Vec::new(), span);
        }
        if matches!(separator, Value::Undefined) {
            return self.array(vec![Value::Text(text.clone())], span);
        }
        let most = if by.is_empty() {
            text.len()
        } else {
            text.bytes() / by.bytes().max(1)
        };
        self.charge(text.bytes().saturating_add(most.min(limit) * 24), span)?;
        let mut pieces = text.cut(&by, limit.saturating_add(1));
        if by.is_empty() {
            // Splitting by an empty string leaves an empty piece at either end.
            pieces.remove(0);
            if pieces.last().is_some_and(Text::is_empty) {
                pieces.pop();
            }
        }
        pieces.truncate(limit);
        self.array(pieces.into_iter().map(Value::Text).collect(), span)
    }

    fn replace(
        &mut self,
        text: &Text<'a>,
        most: usize,
        wanted: &Value<'a>,
        replacement: &Value<'a>,
        span: Span,
    ) -> Outcome<Value<'a>> {
        let wanted = self.text_of(wanted, span)?;
        let template = if replacement.is_function() {
            Text::Borrowed("")
        } else {
            self.text_of(replacement, span)?
        };
        self.charge(text.bytes().saturating_mul(2), span)?;
        let pieces = text.cut(&wanted, most);
        let (mut out, mut before) = (Builder::default(), 0);
        for (number, piece) in pieces.iter().enumerate() {
            if number > 0 {
                let written = if replacement.is_function() {
                    let arguments = [
                        Value::Text(wanted.clone()),
                        Value::Number(before as f64),
                        Value::Text(text.clone()),
                    ];
                    let value = self.call(replacement, &arguments, span)?;
                    self.text_of(&value, span)?
                } else {
                    self.substitute(&template, text, &wanted, before, span)?
                };
                self.charge(written.bytes(), span)?;
                out.push(&written);
                before += wanted.len();
            }
            out.push(piece);
            before += piece.len();
        }
        Ok(Value::Text(out.finish()))
    }

    /// GetSubstitution without captures: `$$`, `$&`, `` $` `` and `$'`.
    fn substitute(
        &mut self,
        template: &Text<'a>,
        text: &Text<'a>,
        matched: &Text<'a>,
        at: usize,
        span: Span,
    ) -> Outcome<Text<'a>> {
        let pieces = template.cut(&Text::Borrowed("$"), usize::MAX);
        if pieces.len() == 1 {
            return Ok(template.clone());
        }
        let mut out = Builder::default();
        out.push(&pieces[0]);
        let mut rest = pieces.into_iter().skip(1);
        while let Some(piece) = rest.next() {
            let (insert, skip) = match piece.unit(0).map(u32::from).and_then(char::from_u32) {
                Some('&') => (matched.clone(), 1),
                Some('`') => (text.slice(0, at), 1),
                Some('\'') => (text.slice(at + matched.len(), text.len()), 1),
                // `$$`: the piece between the two dollars is empty.
                None if piece.is_empty() && rest.len() > 0 => {
                    let literal = rest.next().unwrap_or(Text::Borrowed(""));
                    out.push(&Text::Borrowed("$"));
                    self.charge(literal.bytes() + 1, span)?;
                    out.push(&literal);
                    continue;
                }
                _ => (Text::Borrowed("$"), 0),
            };
            self.charge(insert.bytes() + piece.bytes(), span)?;
            out.push(&insert);
            out.push(&piece.slice(skip, piece.len()));
        }
        Ok(out.finish())
    }

    fn trim(&mut self, text: &Text<'a>, method: Method, span: Span) -> Outcome<Value<'a>> {
        let space = |unit: &u16| char::from_u32(u32::from(*unit)).is_some_and(number::is_space);
        let (start, end) = (method != Method::TrimEnd, method != Method::TrimStart);
        if let Text::Borrowed(whole) = text {
            let mut part = *whole;
            if start {
                part = part.trim_start_matches(number::is_space);
            }
            if end {
                part = part.trim_end_matches(number::is_space);
            }
            return Ok(Value::Text(Text::Borrowed(part)));
        }
        self.charge(text.bytes() + 24, span)?;
        let units = text.units();
        let skip = if start {
            units.iter().take_while(|unit| space(unit)).count()
        } else {
            0
        };
        let rest = &units[skip..];
        let keep = if end {
            rest.len() - rest.iter().rev().take_while(|unit| space(unit)).count()
        } else {
            rest.len()
        };
        Ok(Value::Text(Text::from_units(&rest[..keep])))
    }
}

fn position<'a>(found: Option<usize>) -> Value<'a> {
    Value::Number(found.map_or(-1.0, |at| at as f64))
}
