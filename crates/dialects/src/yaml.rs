//! Parses YAML 1.2 (core schema) into a located tree.
//!
//! What JSON cannot represent is refused: several documents, custom tags, keys that are not strings,
//! NaN, merge keys. Aliases are copied, and the copies count against the limits of the document, so a
//! small document cannot become a large one. Parsing does not recurse.

mod indent;

use crate::diagnostics::{Diagnostic, MAX_SHOWN, quote};
use crate::document::{Budget, DocumentLimits, duplicate_key, is_reserved, reserved_key, too_deep};
use crate::source::Span;
use crate::tree::{Located, Member, Shape, Style, Tree, push};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// The document, or its problems. Offsets are shifted by `base`.
pub(crate) fn parse(text: &str, base: usize, limits: &DocumentLimits) -> Result<Located, Vec<Diagnostic>> {
    let mut reader = Reader {
        offsets: Offsets::new(text, base),
        text,
        max_depth: limits.max_depth,
        budget: Budget::new(limits),
        stack: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        documents: 0,
        duplicates: Vec::new(),
    };
    let outcome = reader.document();
    let mut problems = std::mem::take(&mut reader.duplicates);
    match (outcome, reader.root) {
        (Ok(()), Some(located)) if problems.is_empty() => return Ok(located),
        (Ok(()), Some(_)) => {}
        (Ok(()), None) => problems.push(Diagnostic::error(
            "EMPTY_DOCUMENT",
            Span::new(base, base),
            "the document is empty",
        )),
        (Err(error), _) => problems.push(*error),
    }
    Err(problems)
}

type Read<T> = Result<T, Box<Diagnostic>>;

fn refuse<T>(code: &'static str, span: Span, message: impl Into<String>, help: &str) -> Read<T> {
    let error = Diagnostic::error(code, span, message);
    Err(Box::new(if help.is_empty() { error } else { error.help(help) }))
}

/// A list or mapping that is still open.
struct Frame {
    start: usize,
    anchor: usize,
    flow: bool,
    content: Content,
}

enum Content {
    List(Vec<Value>, Vec<Tree>),
    Mapping(Map<String, Value>, Vec<Member>, Option<(String, Span)>),
}

/// The value of an anchor, and what a copy of it costs.
struct Anchor {
    located: Located,
    values: usize,
    bytes: usize,
}

struct Reader<'a> {
    text: &'a str,
    offsets: Offsets,
    max_depth: usize,
    budget: Budget,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Anchor>,
    root: Option<Located>,
    documents: usize,
    duplicates: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Read<()> {
        for next in Parser::new_from_str(self.text) {
            let (event, span) = match next {
                Ok(next) => next,
                Err(error) => {
                    let at = self.offsets.byte(self.text, error.marker().index());
                    // The parser has its own limit for brackets.
                    if error.info().contains("recursion limit") {
                        return Err(Box::new(too_deep(Span::new(at, at), self.max_depth)));
                    }
                    return Err(Box::new(indent::explain(
                        self.text,
                        at,
                        self.offsets.base,
                        error.info(),
                    )));
                }
            };
            let start = self.offsets.byte(self.text, span.start.index());
            let end = self.offsets.byte(self.text, span.end.index()).max(start);
            self.event(event, Span::new(start, end))?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'a>, span: Span) -> Read<()> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let help = "keep one document per file";
                    return refuse("UNSUPPORTED_YAML", span, "a second document begins here", help);
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), span),
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", span)?;
                self.open(anchor, span, Content::List(Vec::new(), Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", span)?;
                self.open(anchor, span, Content::Mapping(Map::new(), Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn charge(&mut self, values: usize, bytes: usize, span: Span) -> Read<()> {
        self.budget.take(values, bytes).or_else(|message| {
            let help = "each use of an alias counts as a copy of its value";
            refuse("TOO_MANY_VALUES", span, message, help)
        })
    }

    fn open(&mut self, anchor: usize, span: Span, content: Content) -> Read<()> {
        if self.awaits_key() {
            let help = "a key must be a string; put a template in quotes: `\"{{ … }}\"`";
            return refuse("INVALID_KEY", span, "a list or a mapping is used as a key here", help);
        }
        if self.stack.len() >= self.max_depth {
            return Err(Box::new(too_deep(span, self.max_depth)));
        }
        self.charge(1, 0, span)?;
        let flow = self.offsets.slice(self.text, span).ends_with(['[', '{']);
        self.stack.push(Frame {
            start: span.start,
            anchor,
            flow,
            content,
        });
        Ok(())
    }

    fn close(&mut self, span: Span) -> Read<()> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let (value, shape, last) = match frame.content {
            Content::List(values, trees) => {
                let last = trees.last().map(|tree| tree.span.end);
                (Value::Array(values), Shape::Array(trees), last)
            }
            Content::Mapping(map, members, _) => {
                let last = members.last().map(|member| member.value.span.end.max(member.key.end));
                (Value::Object(map), Shape::Object(members), last)
            }
        };
        // The parser ends a block where the next token begins. The end of its last value is used instead.
        let end = if frame.flow {
            span.end
        } else {
            last.unwrap_or(frame.start)
        };
        let tree = Tree {
            span: Span::new(frame.start, end.max(frame.start)),
            shape,
        };
        self.place(Located { value, tree }, frame.anchor)
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Read<()> {
        if self.awaits_key() {
            return refuse(
                "INVALID_KEY",
                span,
                "an alias is used as a key here",
                "write the key out",
            );
        }
        let Some(known) = self.anchors.get(&anchor) else {
            let message = "this alias is inside the value it refers to";
            return refuse("UNSUPPORTED_YAML", span, message, "write the value out");
        };
        let (values, bytes) = (known.values, known.bytes);
        let depth = self.stack.len() + depth(&known.located.tree);
        if depth > self.max_depth {
            return Err(Box::new(too_deep(span, self.max_depth)));
        }
        self.charge(values, bytes, span)?;
        match self.anchors.get(&anchor).map(|known| known.located.clone()) {
            Some(located) => self.place(located, 0),
            None => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(Frame {
                content: Content::Mapping(_, _, None),
                ..
            })
        )
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, tag: Option<&Tag>, span: Span) -> Read<()> {
        let plain = style == ScalarStyle::Plain;
        if self.awaits_key() {
            if anchor != 0 {
                return refuse(
                    "UNSUPPORTED_YAML",
                    span,
                    "a key cannot have an anchor",
                    "remove the anchor",
                );
            }
            return self.key(text, plain && tag.is_none(), tag, span);
        }
        self.charge(1, 0, span)?;
        let value = resolve(text, plain, tag, span)?;
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted => Style::Single,
            ScalarStyle::DoubleQuoted => Style::Double,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
        };
        let tree = Tree {
            span,
            shape: Shape::Scalar(style),
        };
        self.place(Located { value, tree }, anchor)
    }

    fn key(&mut self, text: &str, plain: bool, tag: Option<&Tag>, span: Span) -> Read<()> {
        if plain && text == "<<" {
            let help = "write the fields out, or use an alias for the whole value";
            return refuse(
                "UNSUPPORTED_YAML",
                span,
                "merge keys (`<<`) are not part of YAML 1.2",
                help,
            );
        }
        if !resolve(text, plain, tag, span)?.is_string() {
            let message = if text.is_empty() {
                "a key is missing here".to_owned()
            } else {
                format!("the key {} is not a string", quote(text))
            };
            return refuse("INVALID_KEY", span, message, "put the key in quotes");
        }
        if is_reserved(text) {
            return Err(Box::new(reserved_key(text, span)));
        }
        if let Some(Frame {
            content: Content::Mapping(_, _, key),
            ..
        }) = self.stack.last_mut()
        {
            *key = Some((text.to_owned(), span));
        }
        Ok(())
    }

    /// Adds a complete value to the container that is open.
    fn place(&mut self, located: Located, anchor: usize) -> Read<()> {
        if anchor != 0 {
            let (values, bytes) = cost(&located.value);
            self.charge(values, bytes, located.tree.span)?;
            let located = located.clone();
            self.anchors.insert(anchor, Anchor { located, values, bytes });
        }
        let mut duplicate = None;
        match self.stack.last_mut().map(|frame| &mut frame.content) {
            None => self.root = Some(located),
            Some(Content::List(values, trees)) => {
                values.push(located.value);
                trees.push(located.tree);
            }
            Some(Content::Mapping(map, members, key)) => {
                let Some((name, key)) = key.take() else { return Ok(()) };
                if map.contains_key(&name) {
                    let first = || members.iter().find(|member| *member.name == *name);
                    if self.duplicates.len() < MAX_SHOWN {
                        duplicate = Some((first().map(|member| member.key), name, key));
                    }
                } else {
                    let (name_in_tree, value) = (name.as_str().into(), located.tree);
                    members.push(Member {
                        name: name_in_tree,
                        key,
                        value,
                    });
                    map.insert(name, located.value);
                }
            }
        }
        if let Some((first, name, key)) = duplicate {
            let pointer = self.pointer_to(&name);
            self.duplicates.push(duplicate_key(&name, key, first, &pointer));
        }
        Ok(())
    }

    /// The pointer to `name` in the innermost open mapping.
    fn pointer_to(&self, name: &str) -> String {
        let mut pointer = String::new();
        for frame in self.stack.iter().take(self.stack.len().saturating_sub(1)) {
            match &frame.content {
                Content::List(values, _) => push(&mut pointer, &values.len().to_string()),
                Content::Mapping(_, _, Some((key, _))) => push(&mut pointer, key),
                Content::Mapping(_, _, None) => {}
            }
        }
        push(&mut pointer, name);
        pointer
    }
}

/// Values and bytes of text in `value`; its depth is limited.
fn cost(value: &Value) -> (usize, usize) {
    let add = |(values, bytes): (usize, usize), item: &Value| {
        let (more, text) = cost(item);
        (values + more, bytes + text)
    };
    match value {
        Value::String(text) => (1, text.len()),
        Value::Array(items) => items.iter().fold((1, 0), add),
        Value::Object(map) => {
            let keys = map.keys().map(String::len).sum();
            map.values().fold((1, keys), add)
        }
        _ => (1, 0),
    }
}

/// Levels of nesting below and including `tree`.
fn depth(tree: &Tree) -> usize {
    match &tree.shape {
        Shape::Scalar(_) => 0,
        Shape::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Shape::Object(members) => 1 + members.iter().map(|member| depth(&member.value)).max().unwrap_or(0),
    }
}

fn check_tag(tag: Option<&Tag>, expected: &str, span: Span) -> Read<()> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == expected) => unknown_tag(tag, span),
        _ => Ok(()),
    }
}

fn unknown_tag<T>(tag: &Tag, span: Span) -> Read<T> {
    let handle = if tag.is_yaml_core_schema() {
        "!!"
    } else {
        tag.handle.as_str()
    };
    let message = format!("the tag {} is not supported", quote(&format!("{handle}{}", tag.suffix)));
    refuse("UNSUPPORTED_YAML", span, message, "remove the tag")
}

/// The value of a scalar, by its tag or else by the core schema.
fn resolve(text: &str, plain: bool, tag: Option<&Tag>, span: Span) -> Read<Value> {
    let Some(tag) = tag else {
        return if plain {
            plain_value(text, span)
        } else {
            Ok(Value::String(text.to_owned()))
        };
    };
    if !tag.is_yaml_core_schema() {
        return unknown_tag(tag, span);
    }
    let value = plain_value(text, span);
    let fits = match (tag.suffix.as_str(), &value) {
        ("str", _) => return Ok(Value::String(text.to_owned())),
        ("int", Ok(Value::Number(number))) => !number.is_f64(),
        ("float", Ok(Value::Number(_))) | ("bool", Ok(Value::Bool(_))) | ("null", Ok(Value::Null)) => true,
        ("int" | "float" | "bool" | "null", _) => false,
        _ => return unknown_tag(tag, span),
    };
    if fits {
        value
    } else {
        let message = format!("{} does not have the type of its tag `!!{}`", quote(text), tag.suffix);
        refuse("SYNTAX", span, message, "remove the tag")
    }
}

fn plain_value(text: &str, span: Span) -> Read<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return not_a_number(text, span),
        _ => {}
    }
    if matches!(text.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF") {
        return not_a_number(text, span);
    }
    match plain_number(text) {
        None => Ok(Value::String(text.to_owned())),
        Some(Some(number)) => Ok(Value::Number(number)),
        Some(None) => {
            let message = format!("the number {} is too large", quote(text));
            refuse("NUMBER_OUT_OF_RANGE", span, message, "write it as a decimal number")
        }
    }
}

fn not_a_number<T>(text: &str, span: Span) -> Read<T> {
    let message = format!("{} cannot be used: JSON has no such number", quote(text));
    refuse(
        "UNSUPPORTED_YAML",
        span,
        message,
        "if it is meant as a string, put it in quotes",
    )
}

/// `None` if `text` is not a number; `Some(None)` if it is a number that cannot be represented. A decimal number keeps its
/// digits, in the syntax of JSON.
fn plain_number(text: &str) -> Option<Option<Number>> {
    let radix = |digits: &str, radix: u32| {
        let fits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        fits.then(|| Number::from_u128(u128::from_str_radix(digits, radix).ok()?))
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 || !exponent_fits {
        return None;
    }
    let mut number = String::with_capacity(text.len() + 1);
    if text.starts_with('-') {
        number.push('-');
    }
    number.push_str(match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    });
    if mantissa.contains('.') {
        number.push('.');
        number.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if let Some(exponent) = exponent {
        number.push('e');
        number.push_str(exponent);
    }
    Some(number.parse().ok())
}

/// Converts the character offsets of the YAML parser to byte offsets: one is stored every [`STEP`] characters.
struct Offsets {
    base: usize,
    known: Vec<usize>,
}

const STEP: usize = 64;

impl Offsets {
    fn new(text: &str, base: usize) -> Offsets {
        let known = text.char_indices().step_by(STEP).map(|(at, _)| at).collect();
        Offsets { base, known }
    }

    /// The offset in the source of the character number `index`.
    fn byte(&self, text: &str, index: usize) -> usize {
        let near = self.known.get(index / STEP).copied().unwrap_or(text.len());
        let rest = &text[near..];
        let more = rest.char_indices().nth(index % STEP).map_or(rest.len(), |(at, _)| at);
        self.base + near + more
    }

    fn slice<'a>(&self, text: &'a str, span: Span) -> &'a str {
        text.get(span.start - self.base..span.end - self.base).unwrap_or("")
    }
}
