//! The lexer of templates: splits a template into text and tags, and tags into tokens.
//!
//! What must stay true: a tag ends at the first `}}` that is not inside a string; white space
//! control is applied here, so that the parser does not see it.

use serde_json::{Number, Value};

use crate::error::{Span, SyntaxError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tok {
    Name(String),
    Literal(Value),
    Punct(&'static str),
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub tok: Tok,
    pub span: Span,
}

#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    /// The tokens of a tag, ending with [`Tok::End`], and the place of the whole tag.
    Tag(Vec<Token>, Span),
}

const PUNCTUATORS: [&str; 32] = [
    "...", "??", "==", "!=", "<=", ">=", "&&", "||", "|>", "?.", "++", "--", ".", "[", "]", "(", ")", "<", ">", "!",
    "|", ",", "=", "{", "}", "+", "-", "*", "/", "?", ";", ":",
];

/// The pieces of a template; texts that white space control leaves empty are dropped.
pub(super) fn pieces(source: &str) -> Result<Vec<Piece>, SyntaxError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut pieces = Vec::new();
    let mut text = String::new();
    while lexer.at < source.len() {
        let rest = lexer.rest();
        if let Some((escaped, length)) = escape_block(rest) {
            text.push_str(escaped);
            lexer.at += length;
        } else if let Some(tag) = rest.strip_prefix("{{") {
            let start = lexer.at;
            let mode = tag.chars().next().filter(|c| matches!(c, '-' | '~'));
            lexer.at += 2 + mode.map_or(0, char::len_utf8);
            strip_end(&mut text, mode);
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            let (tokens, mode) = lexer.tag(start)?;
            pieces.push(Piece::Tag(tokens, Span::new(start, lexer.at)));
            lexer.strip_start(mode);
        } else {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let next = rest[first..].find('{').map_or(rest.len(), |at| at + first);
            text.push_str(&rest[..next]);
            lexer.at += next;
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// `{%{ … }%}`, with any number of `%`: what is inside, and the length of the whole.
fn escape_block(rest: &str) -> Option<(&str, usize)> {
    let percents = rest.strip_prefix('{')?.bytes().take_while(|b| *b == b'%').count();
    let open = 1 + percents + 1;
    if percents == 0 || rest.as_bytes().get(open - 1) != Some(&b'{') {
        return None;
    }
    let close = format!("}}{}}}", "%".repeat(percents));
    let length = rest[open..].find(&close)?;
    Some((&rest[open..open + length], open + length + close.len()))
}

/// `{{-` strips all white space before it, `{{~` keeps the line end.
fn strip_end(text: &mut String, mode: Option<char>) {
    let kept = match mode {
        Some('-') => text.trim_end().len(),
        Some('~') => text.trim_end_matches(|c: char| c.is_whitespace() && c != '\n').len(),
        _ => return,
    };
    text.truncate(kept);
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// `-}}` strips all white space after it, `~}}` only up to the line end.
    fn strip_start(&mut self, mode: Option<char>) {
        let rest = self.rest();
        self.at += match mode {
            Some('-') => rest.len() - rest.trim_start().len(),
            Some('~') => {
                let blank = rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n').len();
                blank + usize::from(rest[blank..].starts_with('\n'))
            }
            _ => 0,
        };
    }

    /// The tokens up to the closing braces, and the strip mode of the braces.
    fn tag(&mut self, start: usize) -> Result<(Vec<Token>, Option<char>), SyntaxError> {
        let mut tokens = Vec::new();
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            let rest = self.rest();
            let mode = rest.chars().next().filter(|c| matches!(c, '-' | '~'));
            let skip = mode.map_or(0, char::len_utf8);
            if rest[skip..].starts_with("}}") {
                let span = Span::new(self.at, self.at + skip + 2);
                self.at += skip + 2;
                tokens.push(Token { tok: Tok::End, span });
                return Ok((tokens, mode));
            }
            if rest.is_empty() {
                let message = "this `{{` is not closed: `}}` is missing";
                return Err(SyntaxError::invalid(Span::new(start, start + 2), message));
            }
            let from = self.at;
            let tok = self.token()?;
            tokens.push(Token {
                tok,
                span: Span::new(from, self.at),
            });
        }
    }

    fn token(&mut self) -> Result<Tok, SyntaxError> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or(' ');
        let negative = rest.starts_with('-') && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if first == '_' || first.is_alphabetic() {
            return Ok(Tok::Name(self.name()));
        }
        if first.is_ascii_digit() || negative {
            return self.number();
        }
        if matches!(first, '"' | '\'' | '`') {
            return self.string(first);
        }
        if let Some(punct) = PUNCTUATORS.into_iter().find(|p| rest.starts_with(p)) {
            self.at += punct.len();
            return Ok(Tok::Punct(punct));
        }
        let span = Span::new(self.at, self.at + first.len_utf8());
        Err(match first {
            '#' => SyntaxError::not_covered(span, "comments are not supported in templates"),
            '$' | '@' | '%' | '^' | '~' => {
                SyntaxError::not_covered(span, format!("`{first}` is not supported in templates"))
            }
            _ => SyntaxError::invalid(span, format!("unexpected `{}`", first.escape_debug())),
        })
    }

    fn name(&mut self) -> String {
        let rest = self.rest();
        let part = |c: char| c == '_' || c.is_alphanumeric();
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        self.at += length;
        rest[..length].to_owned()
    }

    fn number(&mut self) -> Result<Tok, SyntaxError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |from: usize| {
            let tail = bytes.get(from..).unwrap_or_default();
            tail.iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let sign = usize::from(bytes[0] == b'-');
        let mut length = sign + digits(sign);
        if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
            length += 1 + digits(length + 1);
        }
        if matches!(bytes.get(length), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
            if digits(length + 1 + sign) > 0 {
                length += 1 + sign + digits(length + 1 + sign);
            }
        }
        let span = Span::new(self.at, self.at + length);
        self.at += length;
        match rest[..length].parse::<Number>() {
            Ok(number) => Ok(Tok::Literal(Value::Number(number))),
            Err(_) => Err(SyntaxError::invalid(span, "this is not a number")),
        }
    }

    fn string(&mut self, quote: char) -> Result<Tok, SyntaxError> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.at = start + at + 1;
                    return Ok(Tok::Literal(Value::String(text)));
                }
                '\\' if quote != '`' => {
                    let escaped = chars.next();
                    let Some(c) = escaped.and_then(|(_, c)| unescape(c)) else {
                        let span = Span::new(start + at, start + at + 2);
                        return Err(SyntaxError::invalid(span, "unknown escape in a string"));
                    };
                    text.push(c);
                }
                c => text.push(c),
            }
        }
        let message = format!("this string is not closed: {quote} is missing");
        Err(SyntaxError::invalid(Span::new(start, self.source.len()), message))
    }
}

fn unescape(c: char) -> Option<char> {
    Some(match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        '\\' | '\'' | '"' => c,
        _ => return None,
    })
}
