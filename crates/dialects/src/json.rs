//! Parses JSON, with comments and trailing commas, into a located tree.
//!
//! Written by hand so that every error says what was expected and where. It recurses once per level,
//! and the number of levels is limited, so no input can exhaust the stack.

use crate::diagnostics::{Diagnostic, MAX_SHOWN, quote};
use crate::document::{Budget, DocumentLimits, duplicate_key, is_reserved, reserved_key, too_deep};
use crate::source::Span;
use crate::tree::{Located, Member, Shape, Style, Tree, push};
use serde_json::{Map, Number, Value};

/// The document, or its problems. Offsets are shifted by `base`.
pub(crate) fn parse(text: &str, base: usize, limits: &DocumentLimits) -> Result<Located, Vec<Diagnostic>> {
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: base,
        depth: 0,
        max_depth: limits.max_depth,
        budget: Budget::new(limits),
        pointer: String::new(),
        duplicates: Vec::new(),
    };
    let located = reader.document().map_err(|error| {
        let mut all = std::mem::take(&mut reader.duplicates);
        all.push(*error.0);
        all
    })?;
    if reader.duplicates.is_empty() {
        Ok(located)
    } else {
        Err(reader.duplicates)
    }
}

type Read<T> = Result<T, Fault>;

/// An error, boxed because it is large.
struct Fault(Box<Diagnostic>);

impl Fault {
    fn help(self, suggestion: impl Into<String>) -> Fault {
        Fault(Box::new(self.0.help(suggestion)))
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    max_depth: usize,
    budget: Budget,
    pointer: String,
    duplicates: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn document(&mut self) -> Read<Located> {
        self.space()?;
        if self.at == self.bytes.len() {
            return Err(self.error("EMPTY_DOCUMENT", self.here(), "the document is empty"));
        }
        let located = self.value()?;
        self.space()?;
        if self.at < self.bytes.len() {
            let message = format!("expected the end of the document, found {}", self.found());
            return Err(self.syntax(self.here(), message));
        }
        Ok(located)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The character at the cursor.
    fn here(&self) -> Span {
        let length = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        Span::new(self.at, self.at + length)
    }

    /// The character at the cursor, for a message.
    fn found(&self) -> String {
        match self.text[self.at..].chars().next() {
            Some(c) => quote(c.encode_utf8(&mut [0; 4])),
            None => "the end of the document".to_owned(),
        }
    }

    fn error(&self, code: &'static str, span: Span, message: impl Into<String>) -> Fault {
        Fault(Box::new(
            Diagnostic::error(code, span, message).at(self.pointer.as_str()),
        ))
    }

    fn syntax(&self, span: Span, message: impl Into<String>) -> Fault {
        self.error("SYNTAX", span, message)
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'/') => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Read<()> {
        let rest = &self.text[self.at..];
        if rest.starts_with("//") {
            self.at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let Some(end) = comment.find("*/") else {
                let span = Span::new(self.at, self.at + 2);
                return Err(self
                    .syntax(span, "this comment is not closed")
                    .help("close it with `*/`"));
            };
            self.at += end + 4;
        } else {
            let message = "a single `/` is not valid here; comments begin with `//` or `/*`";
            return Err(self.syntax(self.here(), message));
        }
        Ok(())
    }

    fn value(&mut self) -> Read<Located> {
        let start = self.at;
        self.budget
            .take(1, 0)
            .map_err(|message| self.error("TOO_MANY_VALUES", Span::new(start, start + 1), message))?;
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => {
                let text = self.string()?;
                Ok(self.scalar(start, Value::String(text), Style::Double))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn scalar(&self, start: usize, value: Value, style: Style) -> Located {
        let tree = Tree {
            span: Span::new(start, self.at),
            shape: Shape::Scalar(style),
        };
        Located { value, tree }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Read<Located>) -> Read<Located> {
        if self.depth >= self.max_depth {
            let error = too_deep(self.here(), self.max_depth).at(self.pointer.as_str());
            return Err(Fault(Box::new(error)));
        }
        self.depth += 1;
        let located = read(self)?;
        self.depth -= 1;
        Ok(located)
    }

    fn array(&mut self) -> Read<Located> {
        let start = self.at;
        let (mut values, mut trees) = (Vec::new(), Vec::new());
        self.at += 1;
        loop {
            self.space()?;
            if self.peek() == Some(b']') {
                break;
            }
            let length = self.pointer.len();
            push(&mut self.pointer, &values.len().to_string());
            let item = self.value()?;
            self.pointer.truncate(length);
            values.push(item.value);
            trees.push(item.tree);
            self.separator(b']', start, "list")?;
        }
        self.at += 1;
        Ok(Located {
            value: Value::Array(values),
            tree: Tree {
                span: Span::new(start, self.at),
                shape: Shape::Array(trees),
            },
        })
    }

    /// After a member or item: consumes a comma, leaves a closing bracket.
    fn separator(&mut self, close: u8, start: usize, what: &str) -> Read<()> {
        self.space()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(())
            }
            Some(byte) if byte == close => Ok(()),
            None => {
                let message = format!("this {what} is not closed");
                let help = format!("close it with `{}`", close as char);
                Err(self.syntax(Span::new(start, start + 1), message).help(help))
            }
            Some(_) => {
                let message = format!("expected `,` or `{}`, found {}", close as char, self.found());
                let error = self.syntax(self.here(), message);
                let starts = |c: char| c.is_alphanumeric() || "\"{[-".contains(c);
                Err(match self.text[self.at..].starts_with(starts) {
                    true => error.help("is a `,` missing before it?"),
                    false => error,
                })
            }
        }
    }

    fn object(&mut self) -> Read<Located> {
        let start = self.at;
        let (mut map, mut members): (Map<String, Value>, Vec<Member>) = Default::default();
        self.at += 1;
        loop {
            self.space()?;
            if self.peek() == Some(b'}') {
                break;
            }
            let (name, key) = self.key(start)?;
            let length = self.pointer.len();
            push(&mut self.pointer, &name);
            self.space()?;
            let item = self.value()?;
            if map.contains_key(&name) {
                self.duplicate(&name, key, &members);
            } else {
                let value = item.tree;
                let boxed = name.as_str().into();
                members.push(Member {
                    name: boxed,
                    key,
                    value,
                });
                map.insert(name, item.value);
            }
            self.pointer.truncate(length);
            self.separator(b'}', start, "object")?;
        }
        self.at += 1;
        Ok(Located {
            value: Value::Object(map),
            tree: Tree {
                span: Span::new(start, self.at),
                shape: Shape::Object(members),
            },
        })
    }

    /// A key and the colon after it.
    fn key(&mut self, object: usize) -> Read<(String, Span)> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => {}
            None => {
                let span = Span::new(object, object + 1);
                return Err(self.syntax(span, "this object is not closed").help("close it with `}`"));
            }
            Some(_) => {
                let message = format!("expected a key in double quotes or `}}`, found {}", self.found());
                return Err(self.syntax(self.here(), message));
            }
        }
        let name = self.string()?;
        let key = Span::new(start, self.at);
        if is_reserved(&name) {
            return Err(Fault(Box::new(reserved_key(&name, key).at(self.pointer.as_str()))));
        }
        self.space()?;
        if self.peek() != Some(b':') {
            let message = format!("expected `:` after the key {}, found {}", quote(&name), self.found());
            return Err(self.syntax(self.here(), message));
        }
        self.at += 1;
        Ok((name, key))
    }

    fn duplicate(&mut self, name: &str, key: Span, members: &[Member]) {
        if self.duplicates.len() < MAX_SHOWN {
            let first = members
                .iter()
                .find(|member| *member.name == *name)
                .map(|member| member.key);
            self.duplicates.push(duplicate_key(name, key, first, &self.pointer));
        }
    }

    fn string(&mut self) -> Read<String> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            let run = self.at;
            while self
                .peek()
                .is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
            {
                self.at += 1;
            }
            text.push_str(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => text.push(self.escape()?),
                None | Some(b'\n' | b'\r') => {
                    let error = self.syntax(Span::new(start, self.at), "this string is not closed");
                    return Err(error.help("close it with `\"`; a line break inside a string is written `\\n`"));
                }
                Some(_) => {
                    let code = self.bytes[self.at];
                    let message = format!("a string cannot contain the control character {code:#04x}");
                    return Err(self
                        .syntax(self.here(), message)
                        .help(format!("write it as `\\u{code:04x}`")));
                }
            }
        }
        self.at += 1;
        Ok(text)
    }

    fn escape(&mut self) -> Read<char> {
        let start = self.at;
        self.at += 1;
        let escaped = self.peek();
        let c = match escaped {
            Some(b'"' | b'\\' | b'/') => escaped.map_or('"', char::from),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => {
                let span = Span::new(start, self.here().end);
                let message = format!("{} is not a valid escape", quote(&self.text[start..span.end]));
                let help = "the escapes are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX; a backslash is written `\\\\`";
                return Err(self.syntax(span, message).help(help));
            }
        };
        self.at += 1;
        Ok(c)
    }

    /// `\uXXXX`, or two of them for a character above U+FFFF.
    fn unicode(&mut self, start: usize) -> Read<char> {
        let unit = |at: usize| -> Option<u32> {
            let hex = self.text.get(at..at + 4)?;
            let digits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u32::from_str_radix(hex, 16).ok()).flatten()
        };
        let first = unit(start + 2);
        let (code, end) = match first {
            Some(high @ 0xd800..0xdc00) if self.text.get(start + 6..start + 8) == Some("\\u") => {
                let low = unit(start + 8).filter(|low| (0xdc00..0xe000).contains(low));
                (
                    low.map(|low| 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
                    start + 12,
                )
            }
            other => (other, start + 6),
        };
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.at = end;
                Ok(c)
            }
            None => {
                let end = self.text.floor_char_boundary(end.min(self.bytes.len()));
                let message = "this escape does not encode a character".to_owned();
                Err(self.syntax(Span::new(start, end), message).help(
                    "`\\u` takes four hexadecimal digits; characters beyond U+FFFF take a pair such as `\\ud83d\\ude00`",
                ))
            }
        }
    }

    fn number(&mut self) -> Read<Located> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            self.at += 1;
        }
        let (span, text) = (Span::new(start, self.at), &self.text[start..self.at]);
        // A number keeps its digits, so no number is too long.
        match text.parse::<Number>() {
            Ok(number) => Ok(self.scalar(start, Value::Number(number), Style::Plain)),
            Err(_) => Err(self.syntax(span, format!("{} is not a number", quote(text)))),
        }
    }

    fn word(&mut self) -> Read<Located> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let value = match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            "" => {
                let message = format!("expected a value, found {}", self.found());
                return Err(self.syntax(self.here(), message));
            }
            _ => {
                let message = format!("{} is not a value", quote(text));
                let error = self.syntax(Span::new(start, self.at), message);
                return Err(error.help("put strings in double quotes"));
            }
        };
        Ok(self.scalar(start, value, Style::Plain))
    }
}
