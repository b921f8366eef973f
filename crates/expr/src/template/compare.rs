//! Comparisons in templates.
//!
//! What must stay true: whole numbers are compared exactly; `null` is ordered before and after
//! nothing; other values of different types are never ordered, and never equal.

use std::cmp::Ordering;

use serde_json::Value;

use super::{ast::Comparison, missing::kind};
use crate::error::{EvalError, EvalErrorKind, Span};

/// Whether the comparison holds.
pub(super) fn compare(comparison: Comparison, left: &Value, right: &Value, span: Span) -> Result<bool, EvalError> {
    let numbers = left.as_f64().zip(right.as_f64());
    if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        let equal = left == right || numbers.is_some_and(|(a, b)| a == b && !both_whole(left, right));
        return Ok(equal == (comparison == Comparison::Equal));
    }
    let order = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(false),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => numbers.and_then(|(a, b)| a.partial_cmp(&b)),
        },
        _ => {
            let message = format!("cannot order {} and {}", kind(left), kind(right));
            return Err(EvalError::new(EvalErrorKind::Thrown, span, message));
        }
    };
    Ok(order.is_some_and(|order| match comparison {
        Comparison::Less => order == Ordering::Less,
        Comparison::LessEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

/// Whole numbers are compared exactly, not as doubles.
fn both_whole(left: &Value, right: &Value) -> bool {
    let whole = |value: &Value| value.as_i64().is_some() || value.as_u64().is_some();
    whole(left) && whole(right)
}
