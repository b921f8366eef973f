//! Operators and the conversions they apply.
//!
//! What must stay true: each function is the abstract operation of the standard that its comment
//! names, in the standard's order of evaluation.

use std::cmp::Ordering;

use super::{
    ast::{Binary, Node},
    machine::{Machine, Outcome, describe, not_covered, throw},
    text::Text,
    value::Value,
};
use crate::{error::Span, number};

/// Which primitive an object should become first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    Number,
    Text,
}

impl<'a> Machine<'a> {
    pub fn binary(&mut self, operator: Binary, left: &'a Node, right: &'a Node, span: Span) -> Outcome<Value<'a>> {
        let a = self.eval(left)?;
        let b = self.eval(right)?;
        match operator {
            Binary::StrictEqual => Ok(Value::Bool(a.strictly_equals(&b))),
            Binary::StrictNotEqual => Ok(Value::Bool(!a.strictly_equals(&b))),
            Binary::Equal => Ok(Value::Bool(self.loosely_equals(&a, &b, span)?)),
            Binary::NotEqual => Ok(Value::Bool(!self.loosely_equals(&a, &b, span)?)),
            Binary::Less => self.compare(&a, &b, span, Ordering::is_lt),
            Binary::LessEqual => self.compare(&a, &b, span, Ordering::is_le),
            Binary::Greater => self.compare(&a, &b, span, Ordering::is_gt),
            Binary::GreaterEqual => self.compare(&a, &b, span, Ordering::is_ge),
            Binary::In => self.has_property(&a, &b, span),
            Binary::Add => self.add_values(&a, &b, span),
            _ => {
                let a = self.number_of(&a, left.span)?;
                let b = self.number_of(&b, right.span)?;
                Ok(Value::Number(arithmetic(operator, a, b)))
            }
        }
    }

    fn add_values(&mut self, a: &Value<'a>, b: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let a = self.primitive_of(a, Hint::Number, span)?;
        let b = self.primitive_of(b, Hint::Number, span)?;
        if matches!(a, Value::Text(_)) || matches!(b, Value::Text(_)) {
            let a = self.text_of(&a, span)?;
            let b = self.text_of(&b, span)?;
            return self.concat(&a, &b, span).map(Value::Text);
        }
        let sum = self.number_of(&a, span)? + self.number_of(&b, span)?;
        Ok(Value::Number(sum))
    }

    /// IsLessThan and its mirror images; an undefined order is false.
    fn compare(&mut self, a: &Value<'a>, b: &Value<'a>, span: Span, holds: fn(Ordering) -> bool) -> Outcome<Value<'a>> {
        let a = self.primitive_of(a, Hint::Number, span)?;
        let b = self.primitive_of(b, Hint::Number, span)?;
        if let (Value::Text(a), Value::Text(b)) = (&a, &b) {
            self.step(a.bytes().min(b.bytes()) / 64, span)?;
            return Ok(Value::Bool(holds(a.compare(b))));
        }
        let (a, b) = (self.number_of(&a, span)?, self.number_of(&b, span)?);
        Ok(Value::Bool(a.partial_cmp(&b).is_some_and(holds)))
    }

    /// IsLooselyEqual.
    fn loosely_equals(&mut self, a: &Value<'a>, b: &Value<'a>, span: Span) -> Outcome<bool> {
        if a.is_nullish() || b.is_nullish() {
            return Ok(a.is_nullish() && b.is_nullish());
        }
        match (a.is_object(), b.is_object()) {
            (true, true) => return Ok(a.strictly_equals(b)),
            (true, false) => {
                let a = self.primitive_of(a, Hint::Number, span)?;
                return self.primitives_equal(&a, b, span);
            }
            (false, true) => {
                let b = self.primitive_of(b, Hint::Number, span)?;
                return self.primitives_equal(a, &b, span);
            }
            (false, false) => {}
        }
        self.primitives_equal(a, b, span)
    }

    fn primitives_equal(&mut self, a: &Value<'a>, b: &Value<'a>, span: Span) -> Outcome<bool> {
        if a.is_nullish() || b.is_nullish() {
            return Ok(a.is_nullish() && b.is_nullish());
        }
        if a.type_of() == b.type_of() {
            return Ok(a.strictly_equals(b));
        }
        Ok(self.number_of(a, span)? == self.number_of(b, span)?)
    }

    /// ToNumber.
    pub fn number_of(&mut self, value: &Value<'a>, span: Span) -> Outcome<f64> {
        Ok(match value {
            Value::Undefined => f64::NAN,
            Value::Null | Value::Bool(false) => 0.0,
            Value::Bool(true) => 1.0,
            Value::Number(number) => *number,
            Value::Text(text) => {
                self.step(text.bytes(), span)?;
                text.as_str().map_or(f64::NAN, number::from_text)
            }
            object => {
                let primitive = self.primitive_of(object, Hint::Number, span)?;
                return self.number_of(&primitive, span);
            }
        })
    }

    /// ToIntegerOrInfinity; NaN is 0.
    pub fn integer_of(&mut self, value: &Value<'a>, span: Span) -> Outcome<f64> {
        let number = self.number_of(value, span)?;
        Ok(if number.is_nan() { 0.0 } else { number.trunc() })
    }

    /// ToString.
    pub fn text_of(&mut self, value: &Value<'a>, span: Span) -> Outcome<Text<'a>> {
        Ok(match value {
            Value::Undefined => Text::Borrowed("undefined"),
            Value::Null => Text::Borrowed("null"),
            Value::Bool(true) => Text::Borrowed("true"),
            Value::Bool(false) => Text::Borrowed("false"),
            Value::Number(number) => {
                self.charge(48, span)?;
                Text::owned(number::to_text(*number))
            }
            Value::Text(text) => text.clone(),
            object => {
                let primitive = self.primitive_of(object, Hint::Text, span)?;
                return self.text_of(&primitive, span);
            }
        })
    }

    /// ToPrimitive.
    pub fn primitive_of(&mut self, value: &Value<'a>, hint: Hint, span: Span) -> Outcome<Value<'a>> {
        match value {
            Value::Items(_) | Value::Array(_) => {
                let text = self.join(value, &Text::Borrowed(","), span)?;
                Ok(Value::Text(text))
            }
            Value::Members(_) | Value::Parts(_) | Value::Object(_) => self.object_to_primitive(value, hint, span),
            Value::Arrow(_) | Value::Builtin(_) | Value::Method(..) => {
                not_covered(span, "the source text of a function")
            }
            primitive => Ok(primitive.clone()),
        }
    }

    /// OrdinaryToPrimitive: a member of the object's own may stand in for the inherited method.
    fn object_to_primitive(&mut self, object: &Value<'a>, hint: Hint, span: Span) -> Outcome<Value<'a>> {
        let order = match hint {
            Hint::Number => ["valueOf", "toString"],
            Hint::Text => ["toString", "valueOf"],
        };
        for name in order {
            match self.own_member(object, name) {
                Some(own) if own.is_function() => {
                    self.enter(span)?;
                    let result = self.call(&own, &[], span);
                    self.leave();
                    let result = result?;
                    if !result.is_object() {
                        return Ok(result);
                    }
                }
                Some(_) => {}
                None if name == "toString" => return Ok(Value::text("[object Object]")),
                None => {}
            }
        }
        let message = format!("Cannot convert {} to a primitive value", describe(object));
        throw(span, "TypeError", message)
    }
}

fn arithmetic(operator: Binary, a: f64, b: f64) -> f64 {
    let shift = number::to_uint32(b) & 31;
    match operator {
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        Binary::Power => number::power(a, b),
        Binary::BitAnd => f64::from(number::to_int32(a) & number::to_int32(b)),
        Binary::BitOr => f64::from(number::to_int32(a) | number::to_int32(b)),
        Binary::BitXor => f64::from(number::to_int32(a) ^ number::to_int32(b)),
        Binary::ShiftLeft => f64::from(number::to_int32(a).wrapping_shl(shift)),
        Binary::ShiftRight => f64::from(number::to_int32(a) >> shift),
        Binary::ShiftRightUnsigned => f64::from(number::to_uint32(a) >> shift),
        _ => a + b,
    }
}
