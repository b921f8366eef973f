//! Conditions: JavaScript expressions, parsed once and evaluated natively.
//!
//! The subset: literals (with template literals), member and index access, `?.`, calls, arrow
//! functions with expression bodies and plain parameters, array and object literals with spread,
//! all operators without side effects, the string, array and number methods that change nothing,
//! and the functions that give the same bits in every engine. Everything else is refused:
//! at parse time as [`SyntaxKind::NotCovered`](crate::SyntaxKind::NotCovered), or, where only the
//! data shows it, as [`EvalErrorKind::NotCovered`](crate::EvalErrorKind::NotCovered).
//!
//! What must stay true: a condition has the value ECMAScript gives it, or it is refused. (Where the
//! standard leaves a choice, as for a comparator that contradicts itself, engines differ too.) There
//! are three deliberate differences. A *computed* `constructor` or `__proto__` reads as `undefined`
//! unless the data has it. A lone surrogate becomes U+FFFD in the result, because JSON strings
//! here are UTF-8. Input that appears twice in the scope is one object to `===`.
//!
//! Counting rule for limits: the expression is one statement, every call of an arrow function one
//! more. Depth counts open calls of arrow functions. Memory is the running total of strings,
//! arrays, objects and functions made; input is free.

mod array_method;
mod ast;
mod builtin;
mod construct;
mod function;
mod json;
mod machine;
mod method;
mod operand;
mod operator;
mod parser;
mod property;
mod reads;
mod scan;
mod text;
mod text_method;
mod token;
mod value;

#[cfg(test)]
mod tests;

pub use scan::scan_reads;

use std::sync::Arc;

use crate::{
    data::{Data, ReadPath},
    error::{EvalError, SyntaxError},
    limits::Limits,
};
use machine::Machine;

/// A parsed condition. Cloning shares the tree.
#[derive(Debug, Clone)]
pub struct Expression {
    inner: Arc<Parsed>,
}

#[derive(Debug)]
struct Parsed {
    source: String,
    root: ast::Node,
    reads: Vec<ReadPath>,
}

impl Expression {
    /// Parses a source: one expression, perhaps followed by one `;`.
    ///
    /// # Errors
    /// The source is not an expression, or uses something that the subset does not cover.
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        let root = parser::parse(source)?;
        let reads = reads::reads(&root);
        Ok(Self {
            inner: Arc::new(Parsed {
                source: source.to_owned(),
                root,
                reads,
            }),
        })
    }

    /// The source as it was given.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The paths of the scope that the expression may read, sorted, each once.
    pub fn reads(&self) -> &[ReadPath] {
        &self.inner.reads
    }

    /// The value as JSON; `None` is `undefined` (or a function).
    ///
    /// The result is what `JSON.parse(JSON.stringify(value))` would give: NaN and the infinities
    /// are `null`, -0 is 0.
    ///
    /// # Errors
    /// The expression throws, reaches a limit, or needs something that the subset does not cover.
    pub fn evaluate(&self, scope: &Data<'_>, limits: &Limits) -> Result<Option<serde_json::Value>, EvalError> {
        let root = &self.inner.root;
        let mut machine = Machine::new(scope.view(), limits);
        let value = machine.run(root)?;
        machine
            .json_of(&value, false, root.span)
            .map_err(|stop| Machine::report(stop, root.span))
    }

    /// Whether the value is truthy: the result of a condition.
    ///
    /// # Errors
    /// As [`Expression::evaluate`].
    pub fn test(&self, scope: &Data<'_>, limits: &Limits) -> Result<bool, EvalError> {
        let mut machine = Machine::new(scope.view(), limits);
        machine.run(&self.inner.root).map(|value| value.truthy())
    }
}
