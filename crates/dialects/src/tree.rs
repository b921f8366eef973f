//! The located tree: the byte range of every value and every key of a document.
//!
//! It has the same shape as the value it belongs to. Its depth is limited by
//! [`DocumentLimits`](crate::DocumentLimits), so recursion over it is safe.

use crate::source::Span;
use serde_json::Value;

/// A value and its position.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) value: Value,
    pub(crate) tree: Tree,
}

#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) span: Span,
    pub(crate) shape: Shape,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Scalar(Style),
    Array(Vec<Tree>),
    Object(Vec<Member>),
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) key: Span,
    pub(crate) value: Tree,
}

/// How a scalar is written, which decides how its text maps to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes; in YAML, line breaks are folded.
    Plain,
    /// In `'`.
    Single,
    /// In `"`, with escapes: JSON and YAML.
    Double,
    /// A YAML block, `|` or `>`.
    Block,
}

impl Tree {
    /// The value at a JSON pointer, and its key.
    pub(crate) fn find(&self, pointer: &str) -> Option<(&Tree, Option<Span>)> {
        let mut found = (self, None);
        for step in pointer.split('/').skip(1) {
            found = match &found.0.shape {
                Shape::Scalar(_) => return None,
                Shape::Array(items) => (items.get(step.parse::<usize>().ok()?)?, None),
                Shape::Object(members) => {
                    let name = unescape(step);
                    let member = members.iter().find(|member| *member.name == *name)?;
                    (&member.value, Some(member.key))
                }
            };
        }
        Some(found)
    }
}

/// `pointer` one step further.
pub(crate) fn join(pointer: &str, step: &str) -> String {
    let mut pointer = pointer.to_owned();
    push(&mut pointer, step);
    pointer
}

/// Appends one step.
pub(crate) fn push(pointer: &mut String, step: &str) {
    pointer.push('/');
    for c in step.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// The name that a step of a pointer encodes.
pub(crate) fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// The position in `raw`, the source of the string `text`, of the byte at `offset` of `text`.
///
/// Both are scanned in parallel. White space may differ (folding, indentation): additional white space
/// in `raw` is skipped. `None` if they do not match.
pub(crate) fn offset_in_raw(style: Style, raw: &str, text: &str, offset: usize) -> Option<usize> {
    let mut at = content_start(style, raw)?;
    let mut passed = 0;
    for wanted in text.chars() {
        if style == Style::Double {
            at = skip_continuation(raw, at);
        }
        if passed >= offset {
            break;
        }
        at = advance(style, raw, at, wanted)?;
        passed += wanted.len_utf8();
    }
    let next = text.get(offset..)?.chars().next();
    if let Some(next) = next.filter(|c| !c.is_whitespace()) {
        while !raw.get(at..)?.starts_with(next) && raw[at..].starts_with(char::is_whitespace) {
            at += raw[at..].chars().next()?.len_utf8();
        }
    }
    raw.is_char_boundary(at).then_some(at)
}

/// The end of the source of the character `wanted`, which is at `at` or after white space.
fn advance(style: Style, raw: &str, mut at: usize, wanted: char) -> Option<usize> {
    loop {
        let rest = raw.get(at..)?;
        let here = rest.chars().next()?;
        match here {
            '\\' if style == Style::Double => return Some(at + escape_length(rest)),
            '\'' if style == Style::Single && rest.starts_with("''") => return Some(at + 2),
            c if c == wanted => return Some(at + c.len_utf8()),
            // A folded line break became a space, and a carriage return a line feed.
            '\n' if wanted == ' ' => return Some(at + 1),
            c if c.is_whitespace() => at += c.len_utf8(),
            _ => return None,
        }
    }
}

/// Where the content begins: after anchor, tag, block header and the opening quote.
fn content_start(style: Style, raw: &str) -> Option<usize> {
    const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];
    let mut rest = raw;
    while rest.starts_with(['&', '!']) {
        rest = rest
            .trim_start_matches(|c| !SPACE.contains(&c))
            .trim_start_matches(SPACE);
    }
    let has_properties = rest.len() < raw.len();
    let content = match style {
        Style::Plain => rest,
        Style::Single => rest.strip_prefix('\'')?,
        Style::Double => rest.strip_prefix('"')?,
        Style::Block if has_properties => rest.split_once('\n')?.1,
        Style::Block => rest,
    };
    Some(raw.len() - content.len())
}

/// A backslash at the end of a line in double quotes: the break and the indentation vanish.
fn skip_continuation(raw: &str, at: usize) -> usize {
    let Some(rest) = raw.get(at..) else { return at };
    match rest.strip_prefix("\\\n").or_else(|| rest.strip_prefix("\\\r\n")) {
        Some(next) => raw.len() - next.trim_start_matches([' ', '\t']).len(),
        None => at,
    }
}

/// The length of the escape at the start of `raw`.
fn escape_length(raw: &str) -> usize {
    let length = match raw.as_bytes().get(1) {
        Some(b'x') => 4,
        Some(b'U') => 10,
        Some(b'u') => {
            let high = raw.get(2..6).and_then(|hex| u16::from_str_radix(hex, 16).ok());
            let pair = high.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
            if pair && raw.get(6..8) == Some("\\u") { 12 } else { 6 }
        }
        _ => 1 + raw[1..].chars().next().map_or(0, char::len_utf8),
    };
    raw.ceil_char_boundary(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(style: Style, raw: &str, text: &str, find: &str) {
        let offset = text.find(find).unwrap();
        let at = offset_in_raw(style, raw, text, offset).unwrap();
        assert!(raw[at..].starts_with(find), "{at}: {:?}", &raw[at..]);
    }

    #[test]
    fn offsets_map_through_every_style() {
        check(
            Style::Double,
            r#""a \"b\" \ud83d\ude00\u00e9 here""#,
            "a \"b\" 😀é here",
            "here",
        );
        check(Style::Single, "'it''s here'", "it's here", "here");
        check(Style::Plain, "one\n    two here", "one two here", "here");
        check(Style::Plain, "&a !!str here", "here", "here");
        check(
            Style::Block,
            "if (x)\n      && here\n    y\n",
            "if (x)\n  && here\ny\n",
            "here",
        );
        check(Style::Block, "a\n    b here\n", "a b here\n", "here");
        check(Style::Block, "&x |\n   a\n   here", "a\nhere", "here");
        check(Style::Double, "\"a \\\n    here\"", "a here", "here");
    }

    #[test]
    fn a_source_that_does_not_match_has_no_offset() {
        assert_eq!(offset_in_raw(Style::Plain, "abc", "xyz", 2), None);
        assert_eq!(offset_in_raw(Style::Double, "\"", "a", 1), None);
        assert_eq!(offset_in_raw(Style::Double, "", "", 0), None);
        assert_eq!(offset_in_raw(Style::Double, r#""\u12"#, "a", 1), Some(5));
    }

    #[test]
    fn pointers_escape_their_steps() {
        assert_eq!(join("/a", "b/~c"), "/a/b~1~0c");
        assert_eq!(unescape("b~1~0c"), "b/~c");
        assert_eq!(unescape("~01"), "~1");
    }
}
