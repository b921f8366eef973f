//! Comparisons of templates and plain paths, the two languages without the rules of JavaScript.
//!
//! What must stay true: numbers are compared by their exact decimal value, however long they are; a number is never
//! equal to, or ordered with, anything but a number, and a string with anything but a string. `null` has no order.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A comparison operator.
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
    /// The operator with this sign.
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

    /// Whether the comparison is true. Values without an order are neither less nor greater.
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
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => order_of_numbers(a, b).is_eq(),
        _ => left == right,
    }
}

/// The order of two numbers or two strings.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => Some(order_of_numbers(a, b)),
        _ => None,
    }
}

fn order_of_numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => Decimal::of(left.as_str()).cmp(&Decimal::of(right.as_str())),
    }
}

/// A number as JSON writes it: `0.digits` times ten to the power of `point`.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    /// Without leading and trailing zeros; empty for zero.
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    fn of(text: &str) -> Decimal {
        let negative = text.starts_with('-');
        let text = text.trim_start_matches('-');
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        // An exponent that does not fit means a number above all others, or next to zero.
        let beyond = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
        let exponent: i64 = exponent.parse().unwrap_or(beyond);
        let all = whole.bytes().chain(fraction.bytes());
        let mut digits: Vec<u8> = all.skip_while(|digit| *digit == b'0').collect();
        let leading = whole.len() + fraction.len() - digits.len();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let point = match digits.is_empty() {
            true => 0,
            false => exponent.saturating_add(whole.len() as i64 - leading as i64),
        };
        Decimal {
            negative: negative && !digits.is_empty(),
            digits,
            point,
        }
    }

    /// -1, 0 or 1.
    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = (self.point, &self.digits).cmp(&(other.point, &other.digits));
        let size = if self.negative { size.reverse() } else { size };
        self.sign().cmp(&other.sign()).then(size)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_their_exact_value() {
        let ascending = [
            "-1e400",
            "-123456789012345678901234567891",
            "-123456789012345678901234567890",
            "-2.5",
            "-1",
            "-0.1",
            "-1e-400",
            "0",
            "1e-99999999999999999999",
            "1e-400",
            "0.1",
            "0.10000000000000000001",
            "1",
            "9007199254740992.0",
            "9007199254740993",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "1e400",
            "1e99999999999999999999",
        ];
        let number = |text: &str| text.parse::<Number>().unwrap();
        for (a, left) in ascending.iter().enumerate() {
            for (b, right) in ascending.iter().enumerate() {
                assert_eq!(
                    order_of_numbers(&number(left), &number(right)),
                    a.cmp(&b),
                    "{left} {right}"
                );
            }
        }
        for (left, right) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("0", "-0.0"),
            ("0.5", "5.00E-1"),
            ("0e9", "0"),
        ] {
            assert!(
                order_of_numbers(&number(left), &number(right)).is_eq(),
                "{left} {right}"
            );
        }
    }
}
