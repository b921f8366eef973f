//! The errors of all languages: syntax errors and evaluation errors.
//!
//! Both have a byte range of the source, to show the position. Both are serializable, because they
//! are stored in diagnostics and in the journal.

use serde::{Deserialize, Serialize};

/// Why a source was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SyntaxKind {
    /// The source is not valid in the language.
    Invalid,
    /// The source may be valid, but uses something that this implementation does not cover or that the
    /// options disable.
    NotCovered,
}

/// A syntax error and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} (at byte {offset})")]
pub struct SyntaxError {
    /// Whether the source is invalid or not covered.
    pub kind: SyntaxKind,
    /// The message.
    pub message: String,
    /// Where the offending text begins, in bytes from the start of the source.
    pub offset: usize,
    /// How long the offending text is, in bytes; 0 at the end of the source.
    pub length: usize,
}

impl SyntaxError {
    pub(crate) fn invalid(span: Span, message: impl Into<String>) -> Self {
        Self::new(SyntaxKind::Invalid, span, message.into())
    }

    pub(crate) fn not_covered(span: Span, message: impl Into<String>) -> Self {
        Self::new(SyntaxKind::NotCovered, span, message.into())
    }

    fn new(kind: SyntaxKind, span: Span, message: String) -> Self {
        Self {
            kind,
            message,
            offset: span.offset as usize,
            length: span.length as usize,
        }
    }
}

/// Why an evaluation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvalErrorKind {
    /// The expression threw an error; the message begins with the class (`TypeError: …`).
    Thrown,
    /// A template read a path that does not exist.
    Undefined,
    /// The subset does not cover this, which was only known at run time.
    NotCovered,
    /// More statements than allowed.
    StatementLimit,
    /// Calls or values nested deeper than allowed.
    DepthLimit,
    /// More memory than allowed.
    MemoryLimit,
    /// A longer output than allowed.
    OutputLimit,
    /// The time limit was reached.
    Timeout,
    /// The options disable this.
    Disabled,
}

/// An evaluation error and its position in the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} (at byte {offset})")]
pub struct EvalError {
    /// The kind of error.
    pub kind: EvalErrorKind,
    /// The message.
    pub message: String,
    /// Where the failing expression begins, in bytes from the start of the source.
    pub offset: usize,
    /// How long the failing expression is, in bytes.
    pub length: usize,
}

impl EvalError {
    pub(crate) fn new(kind: EvalErrorKind, span: Span, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            offset: span.offset as usize,
            length: span.length as usize,
        }
    }
}

/// A byte range of a source. Sources are limited to [`MAX_SOURCE`], so 32 bits are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub offset: u32,
    pub length: u32,
}

/// The longest source that is parsed, in bytes.
pub(crate) const MAX_SOURCE: usize = 4 * 1024 * 1024;

impl Span {
    /// The range from `start` to `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self {
            offset: u32::try_from(start).unwrap_or(u32::MAX),
            length: u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX),
        }
    }

    pub fn end(self) -> usize {
        self.offset as usize + self.length as usize
    }

    /// The smallest range that contains both.
    pub fn to(self, other: Span) -> Self {
        Self::new(self.offset as usize, other.end().max(self.end()))
    }
}
