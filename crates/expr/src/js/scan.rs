//! The paths that a source outside the subset may read: an estimate that is never too small.
//!
//! The sandbox gets only the data that a source reads. A source outside the subset has no tree, so its tokens are scanned:
//! every root name that does not follow a dot, and the plain steps after it.
//!
//! What must stay true: every value that the source can read is at or below a listed path. Where that is not clear from
//! the tokens (ways to the global object, escapes in names, a `/` that may or may not begin a regular expression), all
//! roots are listed. Shadowed names and labels count as reads, so the list may be too long, never too short.

use super::reads::segment;
use crate::data::{ReadPath, Segment, merge_reads};

/// The paths that `source` may read below the names `roots`; all of them open.
///
/// ```
/// use fermata_expr::js::scan_reads;
///
/// let reads = scan_reads("/^A-\\d+$/.test(trigger.order.id) && vars['region'] === 'eu'", &["trigger", "vars"]);
/// let reads: Vec<_> = reads.iter().map(ToString::to_string).collect();
/// assert_eq!(reads, ["trigger.order.id", "vars.region"]);
/// ```
pub fn scan_reads(source: &str, roots: &[&str]) -> Vec<ReadPath> {
    let found = tokens(source).and_then(|tokens| paths(&tokens, roots));
    let paths = found.unwrap_or_else(|| {
        roots
            .iter()
            .map(|root| vec![Segment::Key((*root).to_owned())])
            .collect()
    });
    let open = |segments| ReadPath { segments, open: true };
    merge_reads(paths.into_iter().map(open).collect())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Tok<'s> {
    Name(&'s str),
    /// A string; its value, if it has no escapes.
    Text(Option<&'s str>),
    Number(&'s str),
    Regex,
    TemplateStart,
    TemplateEnd,
    /// `${`
    Hole,
    Punct(&'s str),
}

/// Names that reach the global object or change the meaning of names.
const UNCLEAR: [&str; 6] = ["globalThis", "this", "with", "eval", "Function", "import"];
/// Keywords after which an operand begins.
const BEFORE_OPERAND: [&str; 12] = [
    "return",
    "typeof",
    "case",
    "in",
    "instanceof",
    "void",
    "delete",
    "throw",
    "new",
    "do",
    "else",
    "default",
];
/// Words that are keywords in some places only.
const SOMETIMES: [&str; 6] = ["await", "yield", "of", "async", "let", "static"];

fn paths(tokens: &[Tok<'_>], roots: &[&str]) -> Option<Vec<Vec<Segment>>> {
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Tok::Name(name) = token else { continue };
        if at > 0 && is_dot(tokens[at - 1]) {
            continue;
        }
        if UNCLEAR.contains(name) {
            return None;
        }
        if roots.contains(name) {
            paths.push(path(name, &tokens[at + 1..]));
        }
    }
    Some(paths)
}

/// The plain steps after a root name.
fn path(root: &str, mut rest: &[Tok<'_>]) -> Vec<Segment> {
    let mut segments = vec![Segment::Key(root.to_owned())];
    loop {
        let dotted = matches!(rest.first(), Some(token) if is_dot(*token));
        let (step, length) = match &rest[usize::from(dotted)..] {
            [Tok::Name(name), ..] if dotted => (Segment::Key((*name).to_owned()), 1),
            [Tok::Punct("["), Tok::Text(Some(text)), Tok::Punct("]"), ..] => (segment(text), 3),
            [Tok::Punct("["), Tok::Number(digits), Tok::Punct("]"), ..] => match index(digits) {
                Some(index) => (Segment::Index(index), 3),
                None => break,
            },
            _ => break,
        };
        segments.push(step);
        rest = &rest[usize::from(dotted) + length..];
    }
    // A method can read everything of its receiver, also in parentheses.
    let mut after = rest.iter().skip_while(|token| **token == Tok::Punct(")"));
    let mut next = after.next();
    if next == Some(&Tok::Punct("?.")) {
        next = after.next();
    }
    if matches!(next, Some(Tok::Punct("(") | Tok::TemplateStart)) && segments.len() > 1 {
        segments.pop();
    }
    segments
}

fn is_dot(token: Tok<'_>) -> bool {
    matches!(token, Tok::Punct("." | "?."))
}

fn index(digits: &str) -> Option<usize> {
    let plain = digits == "0" || !digits.starts_with('0');
    digits
        .parse()
        .ok()
        .filter(|_| plain && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The tokens, or `None` if they are ambiguous.
fn tokens(source: &str) -> Option<Vec<Tok<'_>>> {
    if source.starts_with("#!") || source.contains("<!--") || source.contains("-->") {
        return None;
    }
    let mut scan = Scan {
        source,
        at: 0,
        tokens: Vec::new(),
        braces: Vec::new(),
        statements: false,
    };
    while let Some(next) = scan.peek() {
        scan.token(next)?;
    }
    scan.braces.is_empty().then_some(scan.tokens)
}

struct Scan<'s> {
    source: &'s str,
    at: usize,
    tokens: Vec<Tok<'s>>,
    /// Open braces; `true` for the `${` of a template literal.
    braces: Vec<bool>,
    /// Whether a parenthesis may be the head of a statement.
    statements: bool,
}

impl<'s> Scan<'s> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn token(&mut self, next: char) -> Option<()> {
        match next {
            _ if next.is_whitespace() || next == '\u{feff}' => self.at += next.len_utf8(),
            '\'' | '"' => self.text(next)?,
            '`' => {
                self.at += 1;
                self.tokens.push(Tok::TemplateStart);
                self.template()?;
            }
            '/' => self.slash()?,
            '0'..='9' => self.number(),
            '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            _ if is_name(next) => {
                let name = self.take_while(is_name);
                self.statements |= matches!(name, "if" | "while" | "for");
                self.tokens.push(Tok::Name(name));
            }
            '{' => {
                self.braces.push(false);
                self.punct(1);
            }
            '}' => match self.braces.pop()? {
                true => {
                    self.at += 1;
                    self.template()?;
                }
                false => self.punct(1),
            },
            _ if next.is_ascii_punctuation() && next != '\\' => {
                let rest = self.rest().as_bytes();
                let length = match rest {
                    [b'.', b'.', b'.', ..] => 3,
                    [b'+', b'+', ..] | [b'-', b'-', ..] => 2,
                    [b'?', b'.', b'0'..=b'9', ..] => 1,
                    [b'?', b'.', ..] => 2,
                    _ => 1,
                };
                self.punct(length);
            }
            _ => return None,
        }
        Some(())
    }

    fn punct(&mut self, length: usize) {
        self.tokens.push(Tok::Punct(&self.rest()[..length]));
        self.at += length;
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'s str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number(&mut self) {
        let number = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        self.tokens.push(Tok::Number(number));
    }

    fn text(&mut self, quote: char) -> Option<()> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        let mut chars = body.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    escaped = true;
                    chars.next()?;
                }
                '\n' | '\r' => return None,
                _ if c == quote => {
                    self.tokens.push(Tok::Text((!escaped).then(|| &body[..at])));
                    self.at += at + 2;
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    /// The text of a template literal, up to its end or the next hole.
    fn template(&mut self) -> Option<()> {
        let body = self.rest();
        let mut chars = body.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    chars.next()?;
                }
                '`' => {
                    self.tokens.push(Tok::TemplateEnd);
                    self.at += at + 1;
                    return Some(());
                }
                '$' if body[at + 1..].starts_with('{') => {
                    self.tokens.push(Tok::Hole);
                    self.braces.push(true);
                    self.at += at + 2;
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }

    /// A comment, a division or a regular expression.
    fn slash(&mut self) -> Option<()> {
        let rest = self.rest();
        if rest.starts_with("//") {
            let end = rest.find(['\n', '\r', '\u{2028}', '\u{2029}']);
            self.at += end.unwrap_or(rest.len());
        } else if let Some(comment) = rest.strip_prefix("/*") {
            self.at += 2 + comment.find("*/")? + 2;
        } else if self.operand_may_begin()? {
            self.regex()?;
        } else {
            self.punct(1);
        }
        Some(())
    }

    /// Whether an operand may begin here, or `None` if that is ambiguous.
    fn operand_may_begin(&self) -> Option<bool> {
        let member = self.tokens.len() > 1 && is_dot(self.tokens[self.tokens.len() - 2]);
        match self.tokens.last() {
            None | Some(Tok::Hole) => Some(true),
            Some(Tok::Text(_) | Tok::Number(_) | Tok::Regex | Tok::TemplateEnd | Tok::Punct("]")) => Some(false),
            Some(Tok::Name(_)) if member => Some(false),
            Some(Tok::Name(name)) if SOMETIMES.contains(name) => None,
            Some(Tok::Name(name)) => Some(BEFORE_OPERAND.contains(name)),
            Some(Tok::Punct(")")) => (!self.statements).then_some(false),
            Some(Tok::Punct("}" | "++" | "--") | Tok::TemplateStart) => None,
            Some(Tok::Punct(_)) => Some(true),
        }
    }

    fn regex(&mut self) -> Option<()> {
        let body = &self.rest()[1..];
        let mut class = false;
        let mut chars = body.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    chars.next()?;
                }
                '\n' | '\r' | '\u{2028}' | '\u{2029}' => return None,
                '[' => class = true,
                ']' => class = false,
                '/' if !class => {
                    self.at += at + 2;
                    self.take_while(is_name);
                    self.tokens.push(Tok::Regex);
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }
}

/// The characters of names. Other letters that JavaScript allows are rare and count as ambiguous.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: [&str; 4] = ["context", "spec", "trigger", "vars"];

    fn reads(source: &str) -> Vec<String> {
        let reads = scan_reads(source, &ROOTS);
        assert!(reads.iter().all(|read| read.open));
        reads.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn all(source: &str) {
        assert_eq!(reads(source), ROOTS, "{source}");
    }

    #[test]
    fn plain_steps_are_followed() {
        assert_eq!(reads("trigger.a.b > 1"), ["trigger.a.b"]);
        assert_eq!(reads("trigger?.a?.['b-c'][0].d"), ["trigger.a['b-c'][0].d"]);
        assert_eq!(
            reads("context.data[\"fetch\"].body.items[i].x"),
            ["context.data.fetch.body.items"]
        );
        assert_eq!(reads("trigger[`a`] + trigger['a\\x41'] + trigger[01]"), ["trigger"]);
        assert_eq!(reads("trigger /* why */ . a // and\n .b"), ["trigger.a.b"]);
        assert_eq!(reads("const t = trigger; t.a"), ["trigger"]);
        assert_eq!(
            reads("const { a } = trigger.x, [b] = vars.list; a + b"),
            ["trigger.x", "vars.list"]
        );
        assert_eq!(reads("x.trigger + 'trigger.a' + 1"), Vec::<String>::new());
        assert_eq!(reads("[...trigger.a, ...vars]"), ["trigger.a", "vars"]);
        assert_eq!(reads("a ?.5 : trigger.b"), ["trigger.b"]);
    }

    #[test]
    fn a_method_reads_what_it_is_called_on() {
        assert_eq!(reads("trigger.name.trim().length"), ["trigger.name"]);
        assert_eq!(reads("trigger.hasOwnProperty('a')"), ["trigger"]);
        assert_eq!(reads("(trigger.a.hasOwnProperty)('b')"), ["trigger.a"]);
        assert_eq!(reads("trigger.a.toString?.()"), ["trigger.a"]);
        assert_eq!(reads("trigger.a.b`x`"), ["trigger.a"]);
        assert_eq!(reads("trigger()"), ["trigger"]);
    }

    #[test]
    fn texts_and_regular_expressions_are_not_code() {
        assert_eq!(reads(r"/^\d+'$/u.test(trigger.a) && 'it\'s vars.x'"), ["trigger.a"]);
        assert_eq!(reads("/[/']trigger/.test(vars.a)"), ["vars.a"]);
        assert_eq!(reads("trigger.a / 2 / vars.b"), ["trigger.a", "vars.b"]);
        assert_eq!(reads("(trigger.a + 1) / vars.b / 3"), ["trigger.a", "vars.b"]);
        assert_eq!(
            reads("`${trigger.a + `${vars.b}`} spec.c ${ {x: spec.d}.x }`"),
            ["spec.d", "trigger.a", "vars.b"]
        );
        assert_eq!(reads("trigger.return / vars.a / 2"), ["trigger.return", "vars.a"]);
    }

    #[test]
    fn shadows_and_labels_count_as_reads() {
        assert_eq!(reads("(trigger => trigger.a + 1)({ a: 1 })"), ["trigger", "trigger.a"]);
        assert_eq!(reads("({ trigger: 1, vars })"), ["trigger", "vars"]);
    }

    #[test]
    fn what_is_not_plain_reads_everything() {
        all("globalThis.trigger");
        all("this['trig' + 'ger']");
        all("with (x) y");
        all(r"tr\u0069gger.a");
        all("if (a) /'/.test(trigger.b) || '/'");
        all("x++ /'/ 2");
        all("({}) && {} /'/ 1");
        all("'unfinished");
        all("`unfinished ${trigger.a}");
        all("1 <!-- '\n trigger.a // '");
        all("#! '\n trigger.a");
        all("a } b");
        all("a \u{200d} b");
        all("async /'/ 1");
    }
}
