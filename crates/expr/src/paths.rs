//! Plain paths, and conditions that compare one with a literal: `tasks.charge.status_code == 200`.
//!
//! A path is a list of names separated by dots. A name consists of letters and digits of any script, `_`,
//! `-` and `$`. A name that is a number selects an element of an array, or a member of an object. Any
//! other key is written in brackets and quotes: `body['a b']`.
//!
//! What must stay true: a condition has a verdict for any data, and cannot fail. A path that does not
//! exist is `null`; `==` and `!=` compare type and value; the other operators are true only between
//! two numbers or two strings.

use serde_json::{Number, Value};

use crate::{
    compare::Operator,
    data::{Data, DataRef, ReadPath, Segment},
    error::{MAX_SOURCE, Span, SyntaxError},
};

/// The longest path, in bytes: it is repeated in messages.
const MAX_PATH: usize = 1024;

/// The form of a condition, for messages.
const ALLOWED: &str = "a condition is one comparison, such as `tasks.charge.status_code == 200`";
/// What the right side may be, for messages.
const VALUES: &str = "a number, a quoted string, `true`, `false` or `null`";

/// A condition: a path, an operator and a literal. Parsed once.
///
/// ```
/// use fermata_expr::{Data, paths::Comparison};
///
/// let tasks = serde_json::json!({ "pay-out": { "status_code": 200 } });
/// let scope = Data::object([("tasks", Data::Json(&tasks))]);
/// let condition = Comparison::parse("tasks.pay-out.status_code >= 200")?;
/// assert!(condition.test(&scope));
/// assert!(!Comparison::parse("tasks.refund.status_code == 200")?.test(&scope));
/// # Ok::<(), fermata_expr::SyntaxError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Comparison {
    source: String,
    path: [ReadPath; 1],
    operator: Operator,
    literal: Value,
}

impl Comparison {
    /// Parses a source.
    ///
    /// # Errors
    /// It is anything but one path, one operator and one literal.
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        if source.len() > MAX_SOURCE {
            let message = format!("the condition is longer than {MAX_SOURCE} bytes");
            return Err(SyntaxError::invalid(Span::new(0, 0), message));
        }
        let start = left(source)?;
        let (segments, after) = path(source, start)?;
        let (operator, after) = operator(source, skip_blanks(source, after))?;
        let (literal, after) = literal(source, skip_blanks(source, after))?;
        let rest = skip_blanks(source, after);
        if rest < source.len() {
            return Err(unexpected(source, rest, ALLOWED));
        }
        Ok(Self {
            source: source.to_owned(),
            path: [ReadPath { segments, open: false }],
            operator,
            literal,
        })
    }

    /// The source as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The path of the scope that the condition reads.
    pub fn reads(&self) -> &[ReadPath] {
        &self.path
    }

    /// What the value at the path is compared with.
    pub fn literal(&self) -> &Value {
        &self.literal
    }

    /// Whether it compares by order (`<`, `>`), not by equality.
    pub fn orders(&self) -> bool {
        !matches!(self.operator, Operator::Equal | Operator::NotEqual)
    }

    /// Whether the condition is true for this scope.
    pub fn test(&self, scope: &Data<'_>) -> bool {
        let found = scope.at(&self.path[0].segments);
        match found {
            Some(DataRef::Json(value)) => self.operator.holds(value, &self.literal),
            // No literal is an object, so an object differs from every literal.
            Some(DataRef::Object(_)) => self.operator == Operator::NotEqual,
            None => self.operator.holds(&Value::Null, &self.literal),
        }
    }
}

/// A path by itself, such as `customer.country` or `lines.0['unit price']`. Parsed once.
///
/// ```
/// use fermata_expr::paths::PlainPath;
///
/// let data = serde_json::json!({ "lines": [{ "unit price": 5 }] });
/// let path = PlainPath::parse("lines.0['unit price']")?;
/// assert_eq!(path.find(&data), Some(&serde_json::json!(5)));
/// # Ok::<(), fermata_expr::SyntaxError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PlainPath(ReadPath);

impl PlainPath {
    /// Parses a source.
    ///
    /// # Errors
    /// It is anything but one path.
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        let (segments, after) = path(source, 0)?;
        match after == source.len() {
            true => Ok(Self(ReadPath { segments, open: false })),
            false => Err(unexpected(source, after, "a path is a list of names separated by dots")),
        }
    }

    /// The first name.
    pub fn root(&self) -> &str {
        self.0.root()
    }

    /// The number of names and indexes.
    pub fn depth(&self) -> usize {
        self.0.segments.len()
    }

    /// The value at the path in `value`, if it exists.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        follow(value, &self.0.segments)
    }

    /// The value at the path without its first name in `value`, if it exists.
    pub fn find_below_root<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        follow(value, self.0.segments.get(1..)?)
    }
}

fn follow<'v>(value: &'v Value, path: &[Segment]) -> Option<&'v Value> {
    match DataRef::Json(value).at(path)? {
        DataRef::Json(found) => Some(found),
        DataRef::Object(_) => None,
    }
}

/// The first place from `at` on that is not blank.
pub(crate) fn skip_blanks(source: &str, at: usize) -> usize {
    source.len() - source[at..].trim_start().len()
}

/// The path at `start`, and where it ends.
pub(crate) fn path(source: &str, start: usize) -> Result<(Vec<Segment>, usize), SyntaxError> {
    let mut segments = Vec::new();
    let mut at = start;
    loop {
        let length = source[at..].find(|c| !is_name(c)).unwrap_or(source.len() - at);
        let name = &source[at..at + length];
        if name.is_empty() {
            return Err(no_name(source, start, at));
        }
        segments.push(match index(name).filter(|_| at > start) {
            Some(index) => Segment::Index(index),
            None => Segment::Key(name.to_owned()),
        });
        at += length;
        while source[at..].starts_with('[') {
            let (key, after) = key(source, at)?;
            segments.push(Segment::Key(key));
            at = after;
        }
        if at - start > MAX_PATH {
            let message = format!("the path is longer than {MAX_PATH} bytes");
            return Err(SyntaxError::invalid(Span::new(start, at), message));
        }
        if !source[at..].starts_with('.') {
            return Ok((segments, at));
        }
        at += 1;
    }
}

/// The error for a path that has no name at `at`.
fn no_name(source: &str, start: usize, at: usize) -> SyntaxError {
    if at == start && !source[at..].starts_with('.') {
        let allowed = "a path begins with a name, such as `trigger` or `tasks`";
        return unexpected(source, start, allowed);
    }
    let found = source[at..].chars().next().map_or(0, char::len_utf8);
    let message = "a name in a path has letters, digits, `_`, `-` and `$` only; write any other key in brackets and \
                   quotes, such as `body['a b']`";
    SyntaxError::invalid(Span::new(at, at + found), message)
}

/// The key in the brackets at `open`, and where they end.
fn key(source: &str, open: usize) -> Result<(String, usize), SyntaxError> {
    let wrong = |message: &str| Err(SyntaxError::invalid(Span::new(open, open + 1), message));
    let inside = skip_blanks(source, open + 1);
    let Some(quote) = source[inside..].chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return wrong(
            "brackets take a quoted key, such as `body['a b']`; write an element as `items.0`, not `items[0]`",
        );
    };
    let (key, after) = string(source, inside, quote)?;
    let close = skip_blanks(source, after);
    match source[close..].starts_with(']') {
        true => Ok((key, close + 1)),
        false => wrong("this bracket is not closed: `]` is missing"),
    }
}

pub(crate) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$')
}

/// The index that a name means, if it is one. `007` is not: it would be written back as `7`.
fn index(name: &str) -> Option<usize> {
    let canonical = name == "0" || !name.starts_with('0');
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|_| digits && canonical)
}

/// The error for unexpected text at `at`; `allowed` says what is allowed there.
pub(crate) fn unexpected(source: &str, at: usize, allowed: &str) -> SyntaxError {
    let rest = &source[at..];
    let Some(first) = rest.chars().next() else {
        return SyntaxError::invalid(Span::new(at, at), format!("unexpected end; {allowed}"));
    };
    let word = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let sign = ["&&", "||", "??", "=="].into_iter().find(|sign| rest.starts_with(sign));
    let length = sign.map_or(word.max(first.len_utf8()), str::len);
    let what = match (sign, first) {
        (Some("&&" | "||"), _) => "`&&` and `||` are not supported".to_owned(),
        (None, '[') => "brackets must follow a name".to_owned(),
        (None, '(' | ')') => "parentheses and functions are not supported".to_owned(),
        (None, '"' | '\'') => "unexpected string".to_owned(),
        (None, '|') => "pipes are not supported".to_owned(),
        (None, '{') if rest.starts_with("{{") => {
            "conditions have no braces: write the path without `{{` and `}}`".to_owned()
        }
        (None, '!') => "`!` is not supported".to_owned(),
        _ => format!("unexpected `{}`", &rest[..length].escape_debug()),
    };
    SyntaxError::invalid(Span::new(at, at + length), format!("{what}; {allowed}"))
}

/// Where the left side begins.
fn left(source: &str) -> Result<usize, SyntaxError> {
    let start = skip_blanks(source, 0);
    if start == source.len() {
        let message = format!("the condition is empty; {ALLOWED}");
        return Err(SyntaxError::invalid(Span::new(0, source.len()), message));
    }
    match source[start..].starts_with(is_name) {
        true => Ok(start),
        false => Err(unexpected(source, start, ALLOWED)),
    }
}

/// The operator at `at`, and where it ends.
fn operator(source: &str, at: usize) -> Result<(Operator, usize), SyntaxError> {
    let rest = &source[at..];
    let length = rest.find(|c| !matches!(c, '=' | '!' | '<' | '>')).unwrap_or(rest.len());
    let sign = &rest[..length];
    if let Some(operator) = Operator::from_sign(sign) {
        return Ok((operator, at + length));
    }
    let meant = match sign {
        "" if rest.is_empty() => {
            let message = format!("the operator is missing (`==`, `!=`, `>`, `>=`, `<` or `<=`); {ALLOWED}");
            return Err(SyntaxError::invalid(Span::new(at, at), message));
        }
        "" => return Err(unexpected(source, at, ALLOWED)),
        "=" | "===" => Some("=="),
        "!==" | "<>" => Some("!="),
        "=>" => Some(">="),
        "=<" => Some("<="),
        _ => None,
    };
    let message = match meant {
        Some(meant) => format!("`{sign}` is not an operator of conditions; write `{meant}`"),
        None => "the operators are `==`, `!=`, `>`, `>=`, `<` and `<=`".to_owned(),
    };
    Err(SyntaxError::invalid(Span::new(at, at + length), message))
}

/// The literal at `at`, and where it ends.
fn literal(source: &str, at: usize) -> Result<(Value, usize), SyntaxError> {
    let rest = &source[at..];
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        return string(source, at, quote).map(|(text, end)| (Value::String(text), end));
    }
    let in_word = |c: char| is_name(c) || matches!(c, '.' | '+');
    let length = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
    let word = &rest[..length];
    let value = match word {
        "" if rest.is_empty() => {
            let message = format!("the value on the right is missing: {VALUES}");
            return Err(SyntaxError::invalid(Span::new(at, at), message));
        }
        "" => return Err(unexpected(source, at, &format!("the right side must be {VALUES}"))),
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        number => match number.parse::<Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => return Err(no_value(word, Span::new(at, at + length))),
        },
    };
    Ok((value, at + length))
}

/// The error for a bare word on the right.
fn no_value(word: &str, span: Span) -> SyntaxError {
    let lower = word.to_ascii_lowercase();
    let what = match lower.as_str() {
        "true" | "false" | "null" => format!("write `{lower}` in lower case"),
        "nil" | "none" | "undefined" => "write `null`".to_owned(),
        _ if word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => {
            "this is not a number".to_owned()
        }
        _ if word.contains('.') => "the right side cannot be a path".to_owned(),
        _ => "put the string in quotes".to_owned(),
    };
    SyntaxError::invalid(span, format!("{what}; the right side must be {VALUES}"))
}

/// The quoted string at `start`. A backslash escapes a quote or another backslash.
fn string(source: &str, start: usize, quote: char) -> Result<(String, usize), SyntaxError> {
    let mut text = String::new();
    let mut chars = source[start..].char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((text, start + at + 1)),
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | '\'' | '"'))) => text.push(c),
                other => {
                    let end = start + at + 1 + other.map_or(0, |(_, c)| c.len_utf8());
                    let message = "a backslash can only escape a quote or another backslash";
                    return Err(SyntaxError::invalid(Span::new(start + at, end), message));
                }
            },
            c => text.push(c),
        }
    }
    let message = format!("this string is not closed: {quote} is missing");
    Err(SyntaxError::invalid(Span::new(start, source.len()), message))
}

#[cfg(test)]
mod tests;
