//! The errors of all languages: what does not parse, and what fails while evaluating.
//!
//! Both carry a byte range of the source, because the reader wants to see the place. Both are
//! plain data (serializable), because they end up in diagnostics and in the journal.

use serde::{Deserialize, Serialize};

/// Why a source was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SyntaxKind {
    /// The source is not a program of the language at all.
    Invalid,
    /// The source may be right, but uses something this implementation leaves out on purpose or
    /// that the options switch off.
    NotCovered,
}

/// A source that was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} (at byte {offset})")]
pub struct SyntaxError {
    /// Whether the source is wrong or merely not covered.
    pub kind: SyntaxKind,
    /// What is wrong, for a person.
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
    /// The program threw; the message begins with the class (`TypeError: …`).
    Thrown,
    /// A template read something that is not there.
    Undefined,
    /// Only at run time did it show that the subset does not cover this.
    NotCovered,
    /// More statements than allowed.
    StatementLimit,
    /// Calls or values nested deeper than allowed.
    DepthLimit,
    /// More memory than allowed.
    MemoryLimit,
    /// A longer output than allowed.
    OutputLimit,
    /// Out of time.
    Timeout,
    /// The options switch this off.
    Disabled,
}

/// An evaluation that failed, and where in the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} (at byte {offset})")]
pub struct EvalError {
    /// What kind of failure this is.
    pub kind: EvalErrorKind,
    /// What happened, for a person.
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

    /// The smallest range that holds both.
    pub fn to(self, other: Span) -> Self {
        Self::new(self.offset as usize, other.end().max(self.end()))
    }
}
