//! Renders diagnostics for a terminal.
//!
//! The output depends only on the source and the problems, not on the terminal width or a clock. No
//! character of the source that could move the cursor reaches the terminal.

use crate::diagnostics::{Diagnostic, Severity, printable};
use crate::source::{Source, Span};
use std::fmt::Write;

/// The widest excerpt, in characters; longer lines are cut around the caret.
const WIDTH: usize = 100;
const TAB: &str = "    ";

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const BLUE: &str = "\x1b[1;34m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

pub(crate) fn render(source: &Source, list: &[Diagnostic], more: usize, color: bool) -> String {
    let mut pen = Pen {
        out: String::new(),
        source,
        color,
    };
    for (at, diagnostic) in list.iter().enumerate() {
        if at > 0 {
            pen.out.push('\n');
        }
        pen.diagnostic(diagnostic);
    }
    if more > 0 {
        let _ = writeln!(pen.out, "\n… and {more} more");
    }
    pen.out
}

struct Pen<'a> {
    out: String,
    source: &'a Source,
    color: bool,
}

impl Pen<'_> {
    fn paint(&mut self, style: &str, text: &str) {
        if self.color {
            let _ = write!(self.out, "{style}{text}{PLAIN}");
        } else {
            self.out.push_str(text);
        }
    }

    fn diagnostic(&mut self, diagnostic: &Diagnostic) {
        let (style, word) = match diagnostic.severity {
            Severity::Error => (RED, "error"),
            Severity::Warning => (YELLOW, "warning"),
        };
        self.paint(style, &format!("{word}[{}]", diagnostic.code));
        let message: String = diagnostic.message.chars().map(printable).collect();
        self.paint(BOLD, &format!(": {message}"));
        self.out.push('\n');
        self.excerpt(diagnostic.span, style);
        for related in &diagnostic.related {
            self.paint(BOLD, "note");
            let message: String = related.message.chars().map(printable).collect();
            let _ = writeln!(self.out, ": {message}");
            self.excerpt(related.span, BLUE);
        }
        if let Some(suggestion) = &diagnostic.suggestion {
            self.paint(BOLD, "help");
            let suggestion: String = suggestion.chars().map(printable).collect();
            let _ = writeln!(self.out, ": {suggestion}");
        }
    }

    /// ` --> file:line:column`, the line, and carets under the part of the span that is in it.
    fn excerpt(&mut self, span: Span, style: &str) {
        let place = self.source.position(span.start);
        let gutter = " ".repeat(place.line.to_string().len());
        self.paint(BLUE, &format!("{gutter}-->"));
        let name: String = self.source.name.chars().map(printable).collect();
        let _ = writeln!(self.out, " {name}:{}:{}", place.line, place.column);
        let (line_start, line) = self.source.line(place.line);
        if line.is_empty() {
            return;
        }
        let from = place.column - 1;
        let inside = span.end.min(line_start + line.len()).max(span.start);
        let inside = self.source.text.floor_char_boundary(inside);
        let covered = self.source.text.get(span.start..inside).unwrap_or("");
        let (text, before, carets) = fit(line, from, covered.chars().count());
        self.paint(BLUE, &format!("{gutter} |\n{} |", place.line));
        let _ = writeln!(self.out, " {text}");
        self.paint(BLUE, &format!("{gutter} |"));
        let _ = write!(self.out, " {}", " ".repeat(before));
        self.paint(style, &"^".repeat(carets));
        self.out.push('\n');
    }
}

/// The part of `line` to show, how far the carets are indented, and how many there are.
fn fit(line: &str, from: usize, length: usize) -> (String, usize, usize) {
    let length = length.max(1);
    let total = line.chars().count();
    let first = if total <= WIDTH || from < WIDTH * 2 / 3 {
        0
    } else {
        from - WIDTH / 3
    };
    let last = (first + WIDTH).min(total);
    let (mut text, mut before, mut carets) = (String::new(), 0, 0);
    if first > 0 {
        text.push('…');
        before += 1;
    }
    for (at, c) in line.chars().enumerate().take(last).skip(first) {
        let width = if c == '\t' {
            text.push_str(TAB);
            TAB.len()
        } else {
            text.push(printable(c));
            1
        };
        if at < from {
            before += width;
        } else if at < from + length {
            carets += width;
        }
    }
    if last < total {
        text.push('…');
    }
    text.truncate(text.trim_end().len());
    (text, before, carets.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use std::sync::Arc;

    fn draw(text: &str, span: Span, color: bool) -> String {
        let source = Arc::new(Source::new("a.json", text.to_owned()));
        Diagnostics::new(source, vec![Diagnostic::error("CODE", span, "is wrong")]).render(color)
    }

    #[test]
    fn the_caret_marks_the_position() {
        let drawn = draw("{\n\t\"é\": x1\n}", Span::new(9, 11), false);
        assert_eq!(
            drawn,
            "error[CODE]: is wrong\n --> a.json:2:7\n  |\n2 |     \"é\": x1\n  |          ^^\n"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = format!("{}HERE{}", "a".repeat(5000), "b".repeat(5000));
        let drawn = draw(&text, Span::new(5000, 5004), false);
        assert!(drawn.lines().all(|line| line.chars().count() < 120), "{drawn}");
        let lines: Vec<&str> = drawn.lines().collect();
        let caret = lines[4].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[3].chars().skip(caret).take(4).collect::<String>(), "HERE");
    }

    #[test]
    fn control_characters_of_the_source_are_replaced() {
        assert!(!draw("\x1b[2Jx\u{202e}", Span::new(0, 9), false).contains(['\x1b', '\u{202e}']));
        assert!(draw("x", Span::new(0, 1), true).contains("\x1b[1;31m"));
    }

    #[test]
    fn positions_after_the_end_are_shown_at_the_end() {
        let drawn = draw("é", Span::new(70, 90), false);
        assert!(drawn.contains("a.json:1:2"), "{drawn}");
        draw("é\n", Span::new(1, 2), false);
        draw("", Span::new(0, 0), false);
    }
}
