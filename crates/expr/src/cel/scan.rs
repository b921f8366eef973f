//! The tokens of CEL, as far as the limits and the reads need them.

use crate::error::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, also `true`, `in` and the like; a quoted one without its backticks.
    Name(&'a str),
    /// A number or a string.
    Literal,
    /// `(`, `[` or `{`.
    Open(char),
    /// `)`, `]` or `}`.
    Close(char),
    /// `.`, also as `.?`.
    Dot,
    /// `,` or `:`.
    Separator,
    /// Anything else.
    Operator,
    /// A string or a quoted name without its end.
    Unclosed,
}

impl Token<'_> {
    /// Whether a member can be selected from what ends with this token.
    pub fn ends_operand(self) -> bool {
        match self {
            Token::Name(name) => name != "in",
            Token::Literal | Token::Close(_) => true,
            Token::Open(_) | Token::Dot | Token::Separator | Token::Operator | Token::Unclosed => false,
        }
    }
}

/// Reads tokens, without blanks and comments. It accepts any text.
pub(super) struct Scanner<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            let rest = self.rest();
            let skipped = match rest.strip_prefix("//") {
                Some(comment) => 2 + comment.find('\n').unwrap_or(comment.len()),
                None => rest.len() - rest.trim_start().len(),
            };
            if skipped == 0 {
                return;
            }
            self.at += skipped;
        }
    }

    /// The length of the string at the beginning of `rest`, with its prefix; `None` if there is none there.
    fn string(rest: &str) -> Option<Result<usize, usize>> {
        let prefix = rest
            .find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B'))
            .filter(|length| *length <= 2)?;
        let (marks, body) = rest.split_at(prefix);
        let quote = ["\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .find(|quote| body.starts_with(quote))?;
        let raw = marks.contains(['r', 'R']);
        let mut at = prefix + quote.len();
        loop {
            let left = &rest[at..];
            if left.starts_with(quote) {
                return Some(Ok(at + quote.len()));
            }
            let Some(character) = left.chars().next() else {
                return Some(Err(at));
            };
            at += character.len_utf8();
            if character == '\\' && !raw {
                at += rest[at..].chars().next().map_or(0, char::len_utf8);
            }
        }
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = (Token<'a>, Span);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blanks_and_comments();
        let (rest, start) = (self.rest(), self.at);
        let first = rest.chars().next()?;
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let word = |allowed: &dyn Fn(char) -> bool| rest.find(|c| !allowed(c)).unwrap_or(rest.len());
        let (token, length) = match (Self::string(rest), first) {
            (Some(Ok(length)), _) => (Token::Literal, length),
            (Some(Err(length)), _) => (Token::Unclosed, length),
            (None, '`') => match rest[1..].find('`') {
                Some(length) => (Token::Name(&rest[1..=length]), length + 2),
                None => (Token::Unclosed, rest.len()),
            },
            (None, '(' | '[' | '{') => (Token::Open(first), 1),
            (None, ')' | ']' | '}') => (Token::Close(first), 1),
            (None, '.') if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                (Token::Literal, 1 + number(&rest[1..]))
            }
            (None, '.') => (Token::Dot, if rest.starts_with(".?") { 2 } else { 1 }),
            (None, ',' | ':') => (Token::Separator, 1),
            (None, '0'..='9') => (Token::Literal, number(rest)),
            (None, c) if is_name(c) => {
                let length = word(&is_name);
                (Token::Name(&rest[..length]), length)
            }
            (None, c) => {
                let double = ["==", "!=", "<=", ">=", "&&", "||"]
                    .iter()
                    .any(|pair| rest.starts_with(pair));
                (Token::Operator, if double { 2 } else { c.len_utf8() })
            }
        };
        self.at += length;
        Some((token, Span::new(start, self.at)))
    }
}

/// The length of the number at the beginning of `rest`. A dot belongs to it only before a digit, so `1.f()` is a call.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let exponent =
            at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !rest.starts_with("0x") && !rest.starts_with("0X");
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => at += 1,
            b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => at += 1,
            b'+' | b'-' if exponent => at += 1,
            _ => break,
        }
    }
    at
}
