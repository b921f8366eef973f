//! JSONLogic in the child.

use super::protocol::{EvaluationError, Op, Outcome, Question};
use fermata_expr::{EvalError, EvalErrorKind, jsonlogic};
use serde_json::value::RawValue;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Executes one request. The parent has checked the rule.
pub(super) fn answer(question: &Question<'_>) -> Outcome {
    if question.op == Op::Check {
        return Ok(None);
    }
    guarded(|| {
        let (text, truthy) = jsonlogic::evaluate_text(&question.source, question.data.get())?;
        rendered(
            question,
            if question.op == Op::Test {
                truthy.to_string()
            } else {
                text
            },
        )
    })
}

/// The result as JSON, if it is not too long.
pub(super) fn rendered(question: &Question<'_>, text: String) -> Result<Option<Box<RawValue>>, EvalError> {
    let most = question.limits.memory_bytes;
    if text.len() > most {
        let message = format!("the result is longer than {most} bytes");
        return Err(failed(EvalErrorKind::OutputLimit, message));
    }
    let value = RawValue::from_string(text);
    let value = value.map_err(|error| failed(EvalErrorKind::Thrown, format!("the result is not JSON: {error}")))?;
    Ok(Some(value))
}

/// Runs code of other crates. A panic in it is a failed evaluation, so the process can be used again.
pub(super) fn guarded(work: impl FnOnce() -> Result<Option<Box<RawValue>>, EvalError>) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "the evaluator panicked; please report this expression".to_owned();
        Err(failed(EvalErrorKind::Thrown, message))
    });
    result.map_err(EvaluationError::Failed)
}

/// An error without a position.
pub(super) fn failed(kind: EvalErrorKind, message: String) -> EvalError {
    EvalError {
        kind,
        message,
        offset: 0,
        length: 0,
    }
}
