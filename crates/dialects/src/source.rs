//! The text of a document, and the conversion of byte offsets to lines and columns.
//!
//! Offsets are bytes of the text as received, including a byte-order mark. Lines and columns are
//! counted from one, columns in characters; the byte-order mark has no column.

use schemars::JsonSchema;
use serde::Serialize;

/// A range of bytes of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, JsonSchema)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` up to `end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start, end }
    }
}

/// A line and a column in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Position {
    /// The line, from one.
    pub line: usize,
    /// The character in the line, from one.
    pub column: usize,
}

/// A named text.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

/// The byte-order mark that some editors put first.
pub(crate) const BOM: &str = "\u{feff}";

impl Source {
    pub(crate) fn new(name: &str, text: String) -> Source {
        let first = if text.starts_with(BOM) { BOM.len() } else { 0 };
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(first).chain(breaks.map(|(at, _)| at + 1)).collect();
        let name = name.to_owned();
        Source { name, text, lines }
    }

    /// The line, counted from zero, that holds the byte at `offset`.
    fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_of(offset);
        let start = self.lines[line].min(offset);
        Position {
            line: line + 1,
            column: self.text[start..offset].chars().count() + 1,
        }
    }

    /// The text of a line counted from one, without its line break, and the offset where it begins.
    pub(crate) fn line(&self, line: usize) -> (usize, &str) {
        let start = self.lines[line.clamp(1, self.lines.len()) - 1];
        let rest = &self.text[start..];
        let text = rest.split('\n').next().unwrap_or(rest);
        (start, text.strip_suffix('\r').unwrap_or(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_leave_out_the_mark() {
        let source = Source::new("a", "\u{feff}é=1\r\nß".to_owned());
        assert_eq!(source.position(3), Position { line: 1, column: 1 });
        assert_eq!(source.position(5), Position { line: 1, column: 2 });
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.line(1), (3, "é=1"));
        assert_eq!(source.position(9), Position { line: 2, column: 1 });
        assert_eq!(source.position(99), Position { line: 2, column: 2 });
    }
}
