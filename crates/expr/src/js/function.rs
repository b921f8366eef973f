//! The built-in functions.

use super::{
    builtin::Builtin,
    machine::{Machine, Outcome, not_covered, throw},
    text::Text,
    value::Value,
};
use crate::{error::Span, number};

impl<'a> Machine<'a> {
    pub fn call_builtin(&mut self, builtin: Builtin, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        let first = arguments.first().unwrap_or(&Value::Undefined);
        let second = arguments.get(1).unwrap_or(&Value::Undefined);
        match builtin {
            Builtin::Number if arguments.is_empty() => Ok(Value::Number(0.0)),
            Builtin::Number => Ok(Value::Number(self.number_of(first, span)?)),
            Builtin::String if arguments.is_empty() => Ok(Value::text("")),
            Builtin::String => Ok(Value::Text(self.text_of(first, span)?)),
            Builtin::Boolean => Ok(Value::Bool(first.truthy())),
            Builtin::ParseInt => self.parse_int(first, second, span),
            Builtin::ParseFloat => {
                let text = self.text_of(first, span)?;
                self.step(text.bytes(), span)?;
                let text = text.to_str_lossy();
                let text = text.trim_start_matches(number::is_space);
                let value = number::decimal_prefix(text).map_or(f64::NAN, |(value, _)| value);
                Ok(Value::Number(value))
            }
            Builtin::IsNaN => Ok(Value::Bool(self.number_of(first, span)?.is_nan())),
            Builtin::IsFinite => Ok(Value::Bool(self.number_of(first, span)?.is_finite())),
            Builtin::NumberIsInteger
            | Builtin::NumberIsSafeInteger
            | Builtin::NumberIsNaN
            | Builtin::NumberIsFinite => Ok(Value::Bool(is_number(builtin, first))),
            Builtin::ObjectKeys | Builtin::ObjectValues | Builtin::ObjectEntries => {
                self.object_parts(builtin, first, span)
            }
            Builtin::ObjectHasOwn => {
                self.require_object(first, span)?;
                self.has_own(first, second, span)
            }
            Builtin::ArrayIsArray => Ok(Value::Bool(first.list().is_some())),
            Builtin::JsonStringify => self.stringify(arguments, span),
            Builtin::MathMax | Builtin::MathMin => self.extreme(builtin, arguments, span),
            Builtin::MathPow => {
                let base = self.number_of(first, span)?;
                let exponent = self.number_of(second, span)?;
                Ok(Value::Number(number::power(base, exponent)))
            }
            Builtin::MathImul => {
                let left = number::to_int32(self.number_of(first, span)?);
                let right = number::to_int32(self.number_of(second, span)?);
                Ok(Value::Number(f64::from(left.wrapping_mul(right))))
            }
            _ => {
                let argument = self.number_of(first, span)?;
                Ok(Value::Number(math(builtin, argument)))
            }
        }
    }

    fn require_object(&self, value: &Value<'a>, span: Span) -> Outcome<()> {
        if value.is_nullish() {
            let message = "Cannot convert undefined or null to object".to_owned();
            return throw(span, "TypeError", message);
        }
        Ok(())
    }

    fn object_parts(&mut self, builtin: Builtin, object: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        self.require_object(object, span)?;
        let members = self.own_members(object, span)?;
        let mut out = Vec::with_capacity(members.len());
        for (name, value) in members {
            out.push(match builtin {
                Builtin::ObjectKeys => Value::Text(name),
                Builtin::ObjectValues => value,
                _ => self.array(vec![Value::Text(name), value], span)?,
            });
        }
        self.array(out, span)
    }

    fn extreme(&mut self, builtin: Builtin, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        let max = builtin == Builtin::MathMax;
        let mut best = if max { f64::NEG_INFINITY } else { f64::INFINITY };
        for argument in arguments {
            let number = self.number_of(argument, span)?;
            let better = match number.partial_cmp(&best) {
                None => number.is_nan(),
                // The standard orders -0 before +0.
                Some(std::cmp::Ordering::Equal) => number.is_sign_negative() != max,
                Some(order) => order.is_gt() == max,
            };
            if better {
                best = number;
            }
        }
        Ok(Value::Number(best))
    }

    fn parse_int(&mut self, text: &Value<'a>, radix: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let text: Text<'a> = self.text_of(text, span)?;
        self.step(text.bytes(), span)?;
        let text = text.to_str_lossy();
        let text = text.trim_start_matches(number::is_space);
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let radix = number::to_int32(self.number_of(radix, span)?);
        if radix != 0 && !(2..=36).contains(&radix) {
            return Ok(Value::Number(f64::NAN));
        }
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let (text, radix) = match (hexadecimal, radix) {
            (Some(rest), 0 | 16) => (rest, 16),
            (_, 0) => (text, 10),
            (_, radix) => (text, radix as u32),
        };
        let end = text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
        let digits = &text[..end];
        let value = if digits.is_empty() {
            f64::NAN
        } else if radix == 10 {
            digits.parse().unwrap_or(f64::NAN)
        } else if radix.is_power_of_two() {
            number::from_digits(digits, radix).unwrap_or(f64::NAN)
        } else {
            match u64::from_str_radix(digits, radix) {
                Ok(value) if value <= 1 << 53 => value as f64,
                _ => return not_covered(span, "a large number in a radix other than 10"),
            }
        };
        Ok(Value::Number(if negative { -value } else { value }))
    }
}

fn is_number(builtin: Builtin, value: &Value<'_>) -> bool {
    let Value::Number(number) = value else {
        return false;
    };
    match builtin {
        Builtin::NumberIsNaN => number.is_nan(),
        Builtin::NumberIsFinite => number.is_finite(),
        Builtin::NumberIsInteger => number.is_finite() && number.fract() == 0.0,
        _ => number.is_finite() && number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_991.0,
    }
}

fn math(builtin: Builtin, x: f64) -> f64 {
    match builtin {
        Builtin::MathAbs => x.abs(),
        Builtin::MathCeil => x.ceil(),
        Builtin::MathFloor => x.floor(),
        Builtin::MathTrunc => x.trunc(),
        Builtin::MathSqrt => x.sqrt(),
        Builtin::MathFround => f64::from(x as f32),
        Builtin::MathClz32 => f64::from(number::to_uint32(x).leading_zeros()),
        Builtin::MathSign if x == 0.0 || x.is_nan() => x,
        Builtin::MathSign => x.signum(),
        Builtin::MathRound => round(x),
        _ => f64::NAN,
    }
}

/// Half up, and -0 for what rounds to zero from below.
fn round(x: f64) -> f64 {
    if !x.is_finite() || x.fract() == 0.0 {
        return x;
    }
    let floor = x.floor();
    let rounded = if x - floor >= 0.5 { floor + 1.0 } else { floor };
    if rounded == 0.0 { 0.0_f64.copysign(x) } else { rounded }
}
