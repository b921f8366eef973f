//! JSONLogic rules: checked with located messages, and evaluated.
//!
//! A rule is JSON: an object with one member is an operation, everything else is a literal. The operators are those of
//! jsonlogic.com; [`Operators::Subset`] accepts only the ten that a workflow document may use by default.
//!
//! What must stay true:
//!
//! * A rule that [`Rule::is_native`] says may be evaluated in this process: it uses the subset only, so its cost is bounded
//!   by its size times the size of the data it reads. Size, nesting and this product are bounded. Other rules (`map`, `reduce`, …)
//!   can need any time and memory. They belong into the sandbox, which calls [`evaluate_text`].
//! * Both ways use the same engine with the same settings, so they agree.
//! * A comparison of values that cannot be compared (a number with the text `"A"`, anything with a list or an object) is an
//!   error, not false.

mod check;
mod reads;

#[cfg(test)]
mod tests;

pub use check::{Operators, RuleError};

use std::sync::Arc;

use datalogic_rs::{Engine, ErrorKind, Logic, bumpalo::Bump};
use serde_json::Value;

use crate::{
    SyntaxKind,
    data::{Data, ReadPath},
    error::{EvalError, EvalErrorKind, Span},
};

/// The longest rule, in bytes of JSON.
pub const MAX_RULE: usize = 16 * 1024;

/// The most work in this process: bytes of data, times the operations that may each compare all of it.
const MAX_WORK: usize = 64 * 1024 * 1024;

/// A checked rule. Cloning shares it.
///
/// ```
/// use fermata_expr::{Data, jsonlogic::{Operators, Rule}};
/// use serde_json::json;
///
/// let rule = Rule::parse(&json!({ ">": [{ "var": "score" }, 0.8] }), Operators::Subset).unwrap();
/// assert_eq!(rule.reads()[0].to_string(), "score");
/// let state = json!({ "score": 0.82, "user_type": "new" });
/// assert!(rule.test(&Data::Json(&state))?);
/// # Ok::<(), fermata_expr::EvalError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rule {
    inner: Arc<Checked>,
}

#[derive(Debug)]
struct Checked {
    source: String,
    reads: Vec<ReadPath>,
    /// The compiled rule, if it may be evaluated in this process.
    native: Option<Logic>,
    operations: usize,
}

impl Rule {
    /// Checks a rule.
    ///
    /// # Errors
    /// All problems, each with its JSON pointer in the rule.
    pub fn parse(rule: &Value, operators: Operators) -> Result<Rule, Vec<RuleError>> {
        let found = check::check(rule, operators)?;
        let source = rule.to_string();
        if source.len() > MAX_RULE {
            let message = format!("the rule has {} bytes; {MAX_RULE} are allowed", source.len());
            return Err(vec![RuleError::whole(message)]);
        }
        let native = match found.subset_only {
            true => Some(compile(&source).map_err(|message| vec![RuleError::whole(message)])?),
            false => None,
        };
        let reads = reads::reads(rule);
        Ok(Rule {
            inner: Arc::new(Checked {
                source,
                reads,
                native,
                operations: found.operations,
            }),
        })
    }

    /// Checks a rule that is written as JSON text. A text that does not begin like an object or a list, and is not JSON
    /// either, is a rule that consists of a string.
    ///
    /// # Errors
    /// As [`Rule::parse`]; also a text that is not JSON.
    pub fn parse_text(text: &str, operators: Operators) -> Result<Rule, Vec<RuleError>> {
        let rule = match serde_json::from_str::<Value>(text) {
            Ok(rule) => rule,
            Err(error) if text.trim_start().starts_with(['{', '[']) => {
                let message = format!("the rule is not JSON: {error}");
                return Err(vec![RuleError::whole(message)]);
            }
            Err(_) => Value::String(text.to_owned()),
        };
        Rule::parse(&rule, operators)
    }

    /// The rule as JSON.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The paths of the data that the rule may read, sorted, each once. A path without steps is the whole data.
    pub fn reads(&self) -> &[ReadPath] {
        &self.inner.reads
    }

    /// Whether it may be evaluated in this process. Otherwise only the sandbox may evaluate it.
    pub fn is_native(&self) -> bool {
        self.inner.native.is_some()
    }

    /// The value of a native rule.
    ///
    /// # Errors
    /// Values cannot be compared. [`EvalErrorKind::NotCovered`]: only the sandbox may evaluate it, because it is not native or
    /// would do too much work with this data.
    pub fn evaluate(&self, data: &Data<'_>) -> Result<Value, EvalError> {
        self.run(data, |_, value| serde_json::from_str(&value.to_string()).ok())?
            .ok_or_else(|| thrown("the result is not JSON".to_owned()))
    }

    /// Whether the value of a native rule is truthy.
    ///
    /// # Errors
    /// As [`Rule::evaluate`].
    pub fn test(&self, data: &Data<'_>) -> Result<bool, EvalError> {
        self.run(data, |engine, value| engine.truthy(value))
    }

    fn run<T>(
        &self,
        data: &Data<'_>,
        result: impl FnOnce(&Engine, &datalogic_rs::DataValue<'_>) -> T,
    ) -> Result<T, EvalError> {
        let elsewhere = |message: &str| EvalError::new(EvalErrorKind::NotCovered, Span::default(), message);
        let Some(logic) = &self.inner.native else {
            return Err(elsewhere("the rule uses operators that only the sandbox evaluates"));
        };
        let text = serde_json::to_string(&data.project(self.reads())).map_err(|error| thrown(error.to_string()))?;
        if text.len().saturating_mul(self.inner.operations) > MAX_WORK {
            return Err(elsewhere(
                "the rule compares so much data that only the sandbox evaluates it",
            ));
        }
        let (engine, arena) = (Engine::new(), Bump::new());
        match engine.evaluate(logic, text.as_str(), &arena) {
            Ok(value) => Ok(result(&engine, value)),
            Err(error) => Err(describe(&error)),
        }
    }
}

/// Evaluates any rule with any data, both as JSON text, without limits on time and memory: for the sandbox. The result is
/// JSON text and whether it is truthy.
///
/// # Errors
/// Values cannot be compared or calculated with, or a text is not JSON.
pub fn evaluate_text(rule: &str, data: &str) -> Result<(String, bool), EvalError> {
    let (engine, arena) = (Engine::new(), Bump::new());
    let logic = engine.compile(rule).map_err(|error| describe(&error))?;
    let value = engine
        .evaluate(&logic, data, &arena)
        .map_err(|error| describe(&error))?;
    Ok((value.to_string(), engine.truthy(value)))
}

fn compile(source: &str) -> Result<Logic, String> {
    Engine::new().compile(source).map_err(|error| describe(&error).message)
}

fn thrown(message: String) -> EvalError {
    EvalError::new(EvalErrorKind::Thrown, Span::default(), message)
}

/// The error of the engine in our words. It names the operator where the engine knows it.
fn describe(error: &datalogic_rs::Error) -> EvalError {
    let nan = match &error.kind {
        ErrorKind::InvalidArguments(what) => what == "NaN",
        ErrorKind::Thrown(value) => value.to_string().contains("\"NaN\""),
        _ => false,
    };
    let what = match nan {
        true => "a value is not a number and cannot be compared or calculated with (NaN)".to_owned(),
        false => {
            let text = error.to_string();
            text.split(" (in operator").next().unwrap_or_default().to_owned()
        }
    };
    thrown(match error.operator() {
        Some(operator) => format!("`{operator}`: {what}"),
        None => what,
    })
}

impl RuleError {
    fn whole(message: String) -> RuleError {
        RuleError {
            kind: SyntaxKind::Invalid,
            message,
            pointer: String::new(),
            suggestion: None,
        }
    }
}
