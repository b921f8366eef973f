//! How values are compared, in both of the languages that do not have JavaScript's rules.
//!
//! What must stay true: whole numbers are compared exactly; a number is never equal to, or ordered
//! with, anything but a number, and a string with anything but a string. `null` has no order.

use std::cmp::Ordering;

use serde_json::Value;

/// The sign between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Operator {
    /// The operator that is written like this.
    pub fn from_sign(sign: &str) -> Option<Self> {
        Some(match sign {
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterEqual,
            _ => return None,
        })
    }

    /// Whether it holds between the two. Values without an order are neither less nor greater.
    pub fn holds(self, left: &Value, right: &Value) -> bool {
        let ordered = |fits: fn(Ordering) -> bool| order(left, right).is_some_and(fits);
        match self {
            Self::Equal => equal(left, right),
            Self::NotEqual => !equal(left, right),
            Self::Less => ordered(Ordering::is_lt),
            Self::LessEqual => ordered(Ordering::is_le),
            Self::Greater => ordered(Ordering::is_gt),
            Self::GreaterEqual => ordered(Ordering::is_ge),
        }
    }
}

/// Whether both are the same value of the same type; 1 and 1.0 are.
fn equal(left: &Value, right: &Value) -> bool {
    let numbers = left.as_f64().zip(right.as_f64());
    left == right || numbers.is_some_and(|(a, b)| a == b && !(is_whole(left) && is_whole(right)))
}

/// The order of two numbers or two strings.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        _ => None,
    }
}

fn is_whole(value: &Value) -> bool {
    value.as_i64().is_some() || value.as_u64().is_some()
}
