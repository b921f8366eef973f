//! The problems of a document: what is wrong, where, and what to do about it.
//!
//! A [`Diagnostics`] is always sorted by position, without duplicates and capped at [`MAX_SHOWN`], so
//! that the API, the command line and the tests show the same result for the same document.

use crate::render;
use crate::source::{Position, Source, Span};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// The most problems that are listed; the rest are counted.
pub const MAX_SHOWN: usize = 100;

/// Whether a problem prevents the use of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It does.
    Error,
    /// It does not, but is probably a mistake.
    Warning,
}

/// One problem of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// A stable name of the kind of problem, such as `UNKNOWN_NODE`.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, in a sentence.
    pub message: String,
    /// JSON pointer to the value.
    pub pointer: String,
    /// The byte range in the source.
    pub span: Span,
    /// The line where [`span`](Self::span) starts, from one.
    pub line: usize,
    /// The character where it starts, from one.
    pub column: usize,
    /// The line where it ends.
    pub end_line: usize,
    /// The character after its last.
    pub end_column: usize,
    /// What to do, such as "did you mean `charge`?".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Related positions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
}

/// A position that is related to a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Related {
    /// What is there.
    pub message: String,
    /// The byte range in the source.
    pub span: Span,
    /// The line where they start, from one.
    pub line: usize,
    /// The character where they start, from one.
    pub column: usize,
}

impl Diagnostic {
    pub(crate) fn new(severity: Severity, code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity,
            message: message.into(),
            pointer: String::new(),
            span,
            line: 0,
            column: 0,
            end_line: 0,
            end_column: 0,
            suggestion: None,
            related: Vec::new(),
        }
    }

    pub(crate) fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Error, code, span, message)
    }

    pub(crate) fn at(mut self, pointer: impl Into<String>) -> Diagnostic {
        self.pointer = pointer.into();
        self
    }

    pub(crate) fn help(mut self, suggestion: impl Into<String>) -> Diagnostic {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Suggests `name`, if there is one.
    pub(crate) fn did_you_mean(self, name: Option<&str>) -> Diagnostic {
        match name {
            Some(name) => self.help(format!("did you mean {}?", quote(name))),
            None => self,
        }
    }

    pub(crate) fn related(mut self, message: impl Into<String>, span: Span) -> Diagnostic {
        let message = message.into();
        self.related.push(Related {
            message,
            span,
            line: 0,
            column: 0,
        });
        self
    }

    fn place(&mut self, source: &Source) {
        let (start, end) = (source.position(self.span.start), source.position(self.span.end));
        (self.line, self.column) = (start.line, start.column);
        (self.end_line, self.end_column) = (end.line, end.column);
        for related in &mut self.related {
            let Position { line, column } = source.position(related.span.start);
            (related.line, related.column) = (line, column);
        }
    }
}

/// The problems of one document, with its source for rendering.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    source: Arc<Source>,
    list: Vec<Diagnostic>,
    more: usize,
}

impl Diagnostics {
    pub(crate) fn new(source: Arc<Source>, list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics::with_more(source, list, 0)
    }

    /// `dropped` problems were counted but not described.
    pub(crate) fn with_more(source: Arc<Source>, mut list: Vec<Diagnostic>, dropped: usize) -> Diagnostics {
        list.sort_by(|a, b| {
            let key = |d: &Diagnostic| (d.span.start, d.severity, d.span.end, d.code);
            key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
        });
        list.dedup_by(|a, b| (a.code, a.span, &a.message) == (b.code, b.span, &b.message));
        let more = cap(&mut list) + dropped;
        for diagnostic in &mut list {
            diagnostic.place(&source);
        }
        Diagnostics { source, list, more }
    }

    /// The file name, or `request`.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The problems, in the order of the source; [`MAX_SHOWN`] at most.
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// How many more there are.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether there is an error among them.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// The problems without the source.
    pub fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }

    /// Text for a terminal: each problem with an excerpt of the source.
    pub fn render(&self, color: bool) -> String {
        render::render(&self.source, &self.list, self.more, color)
    }
}

/// Truncates the list to [`MAX_SHOWN`], warnings before errors. Returns how many were removed.
fn cap(list: &mut Vec<Diagnostic>) -> usize {
    let more = list.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        let errors = list.iter().filter(|d| d.severity == Severity::Error).count();
        let mut warnings = MAX_SHOWN.saturating_sub(errors);
        list.retain(|d| {
            let keep = d.severity == Severity::Error || warnings > 0;
            if d.severity == Severity::Warning {
                warnings = warnings.saturating_sub(1);
            }
            keep
        });
        list.truncate(MAX_SHOWN);
    }
    more
}

impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// A name from a document, for a message: in backticks, truncated if it is very long, and without
/// control characters for the terminal.
pub(crate) fn quote(name: &str) -> String {
    const MOST: usize = 60;
    let mut text: String = name.chars().take(MOST).map(printable).collect();
    if name.chars().nth(MOST).is_some() {
        text.push('…');
    }
    format!("`{text}`")
}

/// The character, or U+FFFD if it would move the cursor or change the text direction.
pub(crate) fn printable(c: char) -> char {
    let reverses = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || reverses || c == '\u{feff}' {
        '\u{fffd}'
    } else {
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_do_not_displace_errors() {
        let source = Arc::new(Source::new("x", " ".repeat(400)));
        let mut list: Vec<Diagnostic> = (0..150)
            .map(|at| Diagnostic::new(Severity::Warning, "W", Span::new(at, at), "w"))
            .collect();
        list.push(Diagnostic::error("E", Span::new(300, 301), "e"));
        list.push(Diagnostic::error("E", Span::new(300, 301), "e"));
        let all = Diagnostics::new(source, list);
        assert_eq!((all.list().len(), all.more()), (MAX_SHOWN, 51));
        assert!(all.has_errors());
        assert!(all.render(false).ends_with("… and 51 more\n"));
    }
}
