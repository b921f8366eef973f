//! The lexer of conditions.
//!
//! What must stay true: a `/` begins a regular expression exactly where an operand may begin, and
//! is refused there; elsewhere it divides. Nested template literals are kept on an explicit stack,
//! so the lexer does not recurse.

use super::ast::Literal;
use crate::{
    error::{Span, SyntaxError},
    number,
};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tok {
    Number(f64),
    Text(Literal),
    /// A stretch of text of a template literal; `head` opens one, `tail` closes it.
    Template {
        text: Literal,
        head: bool,
        tail: bool,
    },
    /// A name or a keyword.
    Name(Box<str>),
    Punct(&'static str),
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub tok: Tok,
    pub span: Span,
    /// Whether there is a line end before this token.
    pub newline: bool,
}

/// Punctuators, longest first within one first character.
const PUNCTUATORS: [&str; 58] = [
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=", ">=", "&&",
    "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>", "**", "{", "}", "(", ")",
    "[", "]", ";", ",", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~", "?", ":", "=", ".", "@",
];

/// All tokens of a source, ending with [`Tok::End`].
pub(super) fn tokenize(source: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut lexer = Lexer {
        source,
        at: 0,
        tokens: Vec::new(),
        braces: Vec::new(),
    };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    tokens: Vec<Token>,
    /// Open braces; `true` for the `${` of a template literal.
    braces: Vec<bool>,
}

impl Lexer<'_> {
    fn run(&mut self) -> Result<(), SyntaxError> {
        loop {
            let newline = self.skip_blank()?;
            let start = self.at;
            let tok = self.next(start)?;
            let end = tok == Tok::End;
            self.tokens.push(Token {
                tok,
                span: Span::new(start, self.at),
                newline,
            });
            if end {
                return Ok(());
            }
        }
    }

    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Skips white space and comments; true if a line ended.
    fn skip_blank(&mut self) -> Result<bool, SyntaxError> {
        let mut newline = false;
        loop {
            if self.rest().starts_with("//") {
                let length = self.rest().find(is_line_end).unwrap_or(self.rest().len());
                self.at += length;
            } else if self.rest().starts_with("/*") {
                let Some(length) = self.rest().find("*/") else {
                    let span = Span::new(self.at, self.source.len());
                    return Err(SyntaxError::invalid(span, "this comment is not closed"));
                };
                newline |= self.rest()[..length].contains(is_line_end);
                self.at += length + 2;
            } else if let Some(c) = self.peek().filter(|c| number::is_space(*c)) {
                newline |= is_line_end(c);
                self.at += c.len_utf8();
            } else {
                return Ok(newline);
            }
        }
    }

    fn next(&mut self, start: usize) -> Result<Tok, SyntaxError> {
        let Some(c) = self.peek() else {
            return Ok(Tok::End);
        };
        let digit_follows = self.rest()[c.len_utf8()..].starts_with(|d: char| d.is_ascii_digit());
        match c {
            '0'..='9' => self.number(start),
            '.' if digit_follows => self.number(start),
            '"' | '\'' => self.string(start, c),
            '`' => {
                self.at += 1;
                self.template(start, true)
            }
            '}' if self.braces.last() == Some(&true) => {
                self.at += 1;
                self.braces.pop();
                self.template(start, false)
            }
            '/' if self.operand_may_begin() => Err(not_covered(Span::new(start, start + 1), "regular expressions are")),
            '\\' => Err(not_covered(Span::new(start, start + 1), "escapes in names are")),
            '#' => Err(not_covered(Span::new(start, start + 1), "private names are")),
            _ if is_name_start(c) => {
                let length = self.rest().find(|c| !is_name_part(c)).unwrap_or(self.rest().len());
                self.at += length;
                Ok(Tok::Name(self.source[start..self.at].into()))
            }
            _ => self.punctuator(start, c),
        }
    }

    fn punctuator(&mut self, start: usize, c: char) -> Result<Tok, SyntaxError> {
        let span = Span::new(start, start + c.len_utf8());
        let before = self.tokens.last().map_or(0, |token| token.span.end());
        let line_start = before == 0 || self.source[before..start].contains(is_line_end);
        if self.rest().starts_with("<!--") || (line_start && self.rest().starts_with("-->")) {
            return Err(not_covered(span, "HTML-like comments are"));
        }
        let rest = self.rest();
        let Some(mut punct) = PUNCTUATORS.into_iter().find(|p| rest.starts_with(p)) else {
            let message = format!("unexpected `{}`", c.escape_debug());
            return Err(SyntaxError::invalid(span, message));
        };
        if punct == "?." && rest[2..].starts_with(|d: char| d.is_ascii_digit()) {
            punct = "?";
        }
        match punct {
            "{" => self.braces.push(false),
            "}" => drop(self.braces.pop()),
            "@" => return Err(not_covered(span, "decorators are")),
            _ => {}
        }
        self.at += punct.len();
        Ok(Tok::Punct(punct))
    }

    /// Whether an operand may begin after the previous token.
    fn operand_may_begin(&self) -> bool {
        match self.tokens.last().map(|token| &token.tok) {
            None => true,
            Some(Tok::Name(name)) => matches!(
                &**name,
                "typeof" | "void" | "in" | "delete" | "instanceof" | "return" | "new" | "await"
            ),
            Some(Tok::Punct(punct)) => !matches!(*punct, ")" | "]" | "}"),
            Some(Tok::Template { tail, .. }) => !tail,
            Some(_) => false,
        }
    }

    fn number(&mut self, start: usize) -> Result<Tok, SyntaxError> {
        let bytes = self.source.as_bytes();
        let radix = match (bytes[start], bytes.get(start + 1)) {
            (b'0', Some(b'x' | b'X')) => Some(16),
            (b'0', Some(b'o' | b'O')) => Some(8),
            (b'0', Some(b'b' | b'B')) => Some(2),
            (b'0', Some(b'0'..=b'9' | b'_')) => {
                let span = Span::new(start, start + 2);
                return Err(not_covered(span, "numbers that begin with 0 are"));
            }
            _ => None,
        };
        let mut digits = String::new();
        if radix.is_some() {
            self.at += 2;
            self.digits(&mut digits, radix.unwrap_or(10))?;
        } else {
            self.digits(&mut digits, 10)?;
            if self.rest().starts_with('.') {
                digits.push('.');
                self.at += 1;
                self.digits(&mut digits, 10)?;
            }
            if self.rest().starts_with(['e', 'E']) {
                digits.push('e');
                self.at += 1;
                if let Some(sign) = self.peek().filter(|c| matches!(c, '+' | '-')) {
                    digits.push(sign);
                    self.at += 1;
                }
                self.digits(&mut digits, 10)?;
            }
        }
        let value = match radix {
            Some(radix) => number::from_digits(&digits, radix),
            None => number::decimal_prefix(&digits)
                .filter(|(_, length)| *length == digits.len())
                .map(|(value, _)| value),
        };
        let span = Span::new(start, self.at);
        if self.rest().starts_with('n') && value.is_some() {
            return Err(not_covered(Span::new(start, self.at + 1), "big integers are"));
        }
        if self.peek().is_some_and(is_name_start) {
            return Err(SyntaxError::invalid(span, "a name cannot follow a number"));
        }
        value
            .map(Tok::Number)
            .ok_or_else(|| SyntaxError::invalid(span, "incomplete number"))
    }

    fn digits(&mut self, out: &mut String, radix: u32) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(c) = self.peek() {
            if c == '_' {
                let before = self.source[start..self.at].ends_with(|d: char| d.is_digit(radix));
                let after = self.rest()[1..].starts_with(|d: char| d.is_digit(radix));
                if !before || !after {
                    let span = Span::new(self.at, self.at + 1);
                    return Err(SyntaxError::invalid(span, "`_` must be between digits"));
                }
            } else if c.is_digit(radix) {
                out.push(c);
            } else {
                break;
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self, start: usize, quote: char) -> Result<Tok, SyntaxError> {
        self.at += 1;
        let mut units = Units::default();
        loop {
            match self.bump() {
                Some(c) if c == quote => return Ok(Tok::Text(units.finish())),
                Some('\\') => self.escape(&mut units, false)?,
                Some('\n' | '\r') | None => {
                    let span = Span::new(start, self.at.min(self.source.len()));
                    let message = format!("this string is not closed: {quote} is missing");
                    return Err(SyntaxError::invalid(span, message));
                }
                Some(c) => units.push(c),
            }
        }
    }

    /// The text of a template literal up to `${` or the closing backtick.
    fn template(&mut self, start: usize, head: bool) -> Result<Tok, SyntaxError> {
        let mut units = Units::default();
        let tail = loop {
            match self.bump() {
                Some('`') => break true,
                Some('$') if self.rest().starts_with('{') => {
                    self.at += 1;
                    self.braces.push(true);
                    break false;
                }
                Some('\\') => self.escape(&mut units, true)?,
                // Line ends are normalized.
                Some('\r') => {
                    if self.rest().starts_with('\n') {
                        self.at += 1;
                    }
                    units.push('\n');
                }
                Some(c) => units.push(c),
                None => {
                    let span = Span::new(start, self.source.len());
                    let message = "this template literal is not closed: ` is missing";
                    return Err(SyntaxError::invalid(span, message));
                }
            }
        };
        Ok(Tok::Template {
            text: units.finish(),
            head,
            tail,
        })
    }

    /// One escape sequence, after its backslash.
    fn escape(&mut self, units: &mut Units, template: bool) -> Result<(), SyntaxError> {
        let start = self.at - 1;
        let Some(c) = self.bump() else {
            return Ok(()); // The caller reports the missing end.
        };
        let digit_follows = self.rest().starts_with(|d: char| d.is_ascii_digit());
        match c {
            'n' => units.push('\n'),
            't' => units.push('\t'),
            'r' => units.push('\r'),
            'b' => units.push('\u{8}'),
            'f' => units.push('\u{c}'),
            'v' => units.push('\u{b}'),
            '0' if !digit_follows => units.push('\0'),
            '0'..='9' => {
                let span = Span::new(start, self.at);
                return Err(if template {
                    SyntaxError::invalid(span, "octal escapes are not allowed in template literals")
                } else {
                    not_covered(span, "octal escapes are")
                });
            }
            'x' => {
                let unit = self.hex(start, 2)?;
                units.unit(unit as u16);
            }
            'u' if self.rest().starts_with('{') => self.braced_escape(start, units)?,
            'u' => {
                let unit = self.hex(start, 4)?;
                units.unit(unit as u16);
            }
            '\r' => {
                if self.rest().starts_with('\n') {
                    self.at += 1;
                }
            }
            c if is_line_end(c) => {}
            c => units.push(c),
        }
        Ok(())
    }

    fn hex(&mut self, start: usize, count: usize) -> Result<u32, SyntaxError> {
        let digits = self.rest().get(..count).unwrap_or_default();
        if digits.len() == count && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            let value = u32::from_str_radix(digits, 16).unwrap_or_default();
            self.at += count;
            return Ok(value);
        }
        let message = format!("this escape needs {count} hexadecimal digits");
        Err(SyntaxError::invalid(Span::new(start, self.at), message))
    }

    fn braced_escape(&mut self, start: usize, units: &mut Units) -> Result<(), SyntaxError> {
        let length = self.rest().find('}').unwrap_or(self.rest().len());
        let digits = self.rest()[1..length.max(1)].trim_start_matches('0');
        let whole = length > 1 && length < self.rest().len();
        let point = if digits.is_empty() && whole {
            Some(0)
        } else if digits.len() <= 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            u32::from_str_radix(digits, 16).ok()
        } else {
            None
        };
        let Some(point) = point.filter(|point| whole && *point <= 0x10_FFFF) else {
            let span = Span::new(start, (self.at + length).min(self.source.len()));
            let message = "this escape needs a code point up to 10FFFF";
            return Err(SyntaxError::invalid(span, message));
        };
        match char::from_u32(point) {
            Some(c) => units.push(c),
            None => units.unit(point as u16),
        }
        self.at += length + 1;
        Ok(())
    }
}

/// Collects code units; stays UTF-8 as long as no surrogate was written by an escape.
#[derive(Default)]
struct Units {
    text: String,
    wide: Option<Vec<u16>>,
}

impl Units {
    fn push(&mut self, c: char) {
        match &mut self.wide {
            Some(units) => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            None => self.text.push(c),
        }
    }

    fn unit(&mut self, unit: u16) {
        match char::from_u32(u32::from(unit)) {
            Some(c) => self.push(c),
            None => self
                .wide
                .get_or_insert_with(|| self.text.encode_utf16().collect())
                .push(unit),
        }
    }

    fn finish(self) -> Literal {
        match self.wide {
            None => Literal::Text(self.text.into()),
            Some(units) => match String::from_utf16(&units) {
                Ok(text) => Literal::Text(text.into()),
                Err(_) => Literal::Wide(units.into()),
            },
        }
    }
}

/// "… not covered by the native expression subset".
pub(super) fn not_covered(span: Span, what: &str) -> SyntaxError {
    let message = format!("{what} not covered by the native expression subset");
    SyntaxError::not_covered(span, message)
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

fn is_name_start(c: char) -> bool {
    c == '_' || c == '$' || c.is_alphabetic()
}

fn is_name_part(c: char) -> bool {
    is_name_start(c) || c.is_alphanumeric() || matches!(c, '\u{200c}' | '\u{200d}')
}
