//! Reading properties: own ones first, then the methods of the value's class.
//!
//! What must stay true: data never reaches anything but data and covered methods.

use super::{
    machine::{Machine, Outcome, describe, not_covered, throw},
    method::{self, Class, Method},
    text::Text,
    value::{Key, Value, array_index},
};
use crate::{data::Data, error::Span};

impl<'a> Machine<'a> {
    /// `object.name`.
    pub fn member(&mut self, object: &Value<'a>, name: &str, span: Span) -> Outcome<Value<'a>> {
        if let Value::Text(text) = object {
            // Counting code units reads the whole text.
            self.step(text.bytes() / 16, span)?;
        }
        match self.own_member(object, name) {
            Some(value) => Ok(value),
            None => self.inherited(object, name, span),
        }
    }

    /// `object[key]`.
    pub fn index(&mut self, object: &Value<'a>, key: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        if object.is_nullish() {
            let key = self.text_of(key, span)?;
            return self.inherited(object, &key.to_str_lossy(), span);
        }
        let key = self.key_of(key, span)?;
        if let Value::Text(text) = object {
            self.step(text.bytes() / 16, span)?;
        }
        if let Some(value) = self.own_property(object, &key) {
            return Ok(value);
        }
        match &key {
            Key::Index(_) if object.class().is_some() => Ok(Value::Undefined),
            key => self.inherited(object, &key.name().to_str_lossy(), span),
        }
    }

    /// An own property by name.
    pub fn own_member(&self, object: &Value<'a>, name: &str) -> Option<Value<'a>> {
        match object {
            Value::Members(members) => members.get(name).map(Value::from_json),
            Value::Parts(parts) => parts.get(name).map(Data::view).map(Value::from_data),
            Value::Object(object) => object.get(&Text::Borrowed(name)).cloned(),
            Value::Items(_) | Value::Array(_) | Value::Text(_) => {
                if name == "length" {
                    return Some(Value::Number(length(object) as f64));
                }
                let index = array_index(name)?;
                self.own_property(object, &Key::Index(index))
            }
            _ => None,
        }
    }

    /// An own property by key.
    pub fn own_property(&self, object: &Value<'a>, key: &Key<'_>) -> Option<Value<'a>> {
        match (object, key) {
            (Value::Items(items), Key::Index(index)) => items.get(*index).map(Value::from_json),
            (Value::Array(array), Key::Index(index)) => array.items.get(*index).cloned(),
            (Value::Text(text), Key::Index(index)) => {
                (*index < text.len()).then(|| Value::Text(text.slice(*index, index + 1)))
            }
            (Value::Object(object), key) => object.get(&key.name()).cloned(),
            (object, Key::Name(name)) => self.own_member(object, name.as_str()?),
            (object, Key::Index(index)) => match object {
                Value::Members(_) | Value::Parts(_) => self.own_member(object, &index.to_string()),
                _ => None,
            },
        }
    }

    fn inherited(&mut self, object: &Value<'a>, name: &str, span: Span) -> Outcome<Value<'a>> {
        if object.is_nullish() {
            let base = describe(object);
            let message = format!("Cannot read properties of {base} (reading '{name}')");
            return throw(span, "TypeError", message);
        }
        let Some(class) = object.class() else {
            return not_covered(span, "a property of a function");
        };
        match Method::from_name(name).filter(|method| method.belongs_to(class)) {
            Some(method) => Ok(Value::Method(class, method)),
            None if method::is_uncovered(class, name) => not_covered(span, &format!("the method `{name}`")),
            None => Ok(Value::Undefined),
        }
    }

    /// `key in object`.
    pub fn has_property(&mut self, key: &Value<'a>, object: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        if !object.is_object() {
            let message = format!("Cannot use 'in' operator to search in {}", describe(object));
            return throw(span, "TypeError", message);
        }
        let Some(class) = object.class() else {
            return not_covered(span, "a property of a function");
        };
        let key = self.key_of(key, span)?;
        let found = self.own_property(object, &key).is_some()
            || match &key {
                Key::Index(_) => false,
                Key::Name(name) => name.as_str().is_some_and(|name| method::inherits(class, name)),
            };
        Ok(Value::Bool(found))
    }

    /// The own enumerable properties, in the standard's order: indices ascending, then names.
    pub fn own_members(&mut self, object: &Value<'a>, span: Span) -> Outcome<Vec<(Text<'a>, Value<'a>)>> {
        let count = match object {
            Value::Members(members) => members.len(),
            Value::Parts(parts) => parts.len(),
            Value::Object(object) => object.members.len(),
            other => length(other),
        };
        self.charge(count.saturating_mul(64), span)?;
        let mut members: Vec<(Text<'a>, Value<'a>)> = match object {
            Value::Members(members) => members
                .iter()
                .map(|(name, value)| (Text::Borrowed(name.as_str()), Value::from_json(value)))
                .collect(),
            Value::Parts(parts) => parts
                .iter()
                .map(|(name, data)| (Text::Borrowed(name), Value::from_data(data.view())))
                .collect(),
            Value::Object(object) => object.members.clone(),
            Value::Text(text) => {
                let units = text.cut(&Text::Borrowed(""), usize::MAX);
                let units = units.into_iter().filter(|unit| !unit.is_empty());
                return Ok(number_all(units.map(Value::Text)));
            }
            other => match other.list() {
                Some(list) => return Ok(number_all(list.iter())),
                None => Vec::new(),
            },
        };
        // A stable sort: names that are no index keep their order behind the indices.
        members.sort_by_key(|(name, _)| name.as_str().and_then(array_index).unwrap_or(usize::MAX));
        Ok(members)
    }

    /// `hasOwnProperty` and `Object.hasOwn`.
    pub fn has_own(&mut self, object: &Value<'a>, key: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        if object.is_function() {
            return not_covered(span, "a property of a function");
        }
        let key = self.key_of(key, span)?;
        Ok(Value::Bool(self.own_property(object, &key).is_some()))
    }

    /// Calls a method of a value.
    pub fn call_method(
        &mut self,
        receiver: &Value<'a>,
        method: Method,
        arguments: &[Value<'a>],
        span: Span,
    ) -> Outcome<Value<'a>> {
        let first = arguments.first().cloned().unwrap_or(Value::Undefined);
        match (method, receiver) {
            (Method::HasOwnProperty, _) => self.has_own(receiver, &first, span),
            (Method::ValueOf, _) => Ok(receiver.clone()),
            (Method::ToString, Value::Number(number)) => self.radix_text(*number, &first, span),
            (Method::ToString, _) if receiver.class() == Some(Class::Object) => Ok(Value::text("[object Object]")),
            (Method::ToString, _) => self.text_of(receiver, span).map(Value::Text),
            (Method::ToFixed, Value::Number(number)) => self.fixed_text(*number, &first, span),
            (_, Value::Text(text)) => self.call_text_method(text, method, arguments, span),
            _ => match receiver.list() {
                Some(list) => self.call_array_method(&list, method, arguments, span),
                None => not_covered(span, &format!("the method `{}`", method.name())),
            },
        }
    }

    fn fixed_text(&mut self, number: f64, digits: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let digits = self.integer_of(digits, span)?;
        if !(0.0..=100.0).contains(&digits) {
            let message = "toFixed() digits argument must be between 0 and 100".to_owned();
            return throw(span, "RangeError", message);
        }
        self.text(crate::number::to_fixed(number, digits as usize), span)
    }

    fn radix_text(&mut self, number: f64, radix: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let radix = match radix {
            Value::Undefined => 10.0,
            other => self.integer_of(other, span)?,
        };
        if !(2.0..=36.0).contains(&radix) {
            let message = "toString() radix must be between 2 and 36".to_owned();
            return throw(span, "RangeError", message);
        }
        if radix == 10.0 || !number.is_finite() {
            return self.text_of(&Value::Number(number), span).map(Value::Text);
        }
        if number.fract() != 0.0 || number.abs() > 9_007_199_254_740_992.0 {
            return not_covered(span, "a fraction in a radix other than 10");
        }
        let (mut rest, radix) = (number.abs() as u64, radix as u64);
        let mut digits = Vec::new();
        loop {
            digits.push(char::from_digit((rest % radix) as u32, radix as u32).unwrap_or('0'));
            rest /= radix;
            if rest == 0 {
                break;
            }
        }
        if number < 0.0 {
            digits.push('-');
        }
        self.text(digits.into_iter().rev().collect(), span)
    }
}

fn length(value: &Value<'_>) -> usize {
    match value {
        Value::Items(items) => items.len(),
        Value::Array(array) => array.items.len(),
        Value::Text(text) => text.len(),
        _ => 0,
    }
}

fn number_all<'a>(values: impl Iterator<Item = Value<'a>>) -> Vec<(Text<'a>, Value<'a>)> {
    values
        .enumerate()
        .map(|(at, value)| (Text::owned(at.to_string()), value))
        .collect()
}
