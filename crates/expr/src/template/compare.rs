//! Comparisons in templates.
//!
//! What must stay true: `null` has no order; ordering other values of different types is an
//! error.

use serde_json::Value;

use super::missing::kind;
use crate::{
    compare::Operator,
    error::{EvalError, EvalErrorKind, Span},
};

/// Whether the comparison is true.
pub(super) fn compare(operator: Operator, left: &Value, right: &Value, span: Span) -> Result<bool, EvalError> {
    let by_order = !matches!(operator, Operator::Equal | Operator::NotEqual);
    let comparable = matches!(
        (left, right),
        (Value::Null, _)
            | (_, Value::Null)
            | (Value::String(_), Value::String(_))
            | (Value::Number(_), Value::Number(_))
    );
    if by_order && !comparable {
        let message = format!("cannot order {} and {}", kind(left), kind(right));
        return Err(EvalError::new(EvalErrorKind::Thrown, span, message));
    }
    Ok(operator.holds(left, right))
}
