//! Renders a template.
//!
//! What must stay true: output is only appended and never read again; every append is charged against
//! the output limit first; values are copied once, into the result.

use std::{borrow::Cow, ops::Range, rc::Rc};

use serde_json::Value;

use super::{
    Options, Template,
    ast::{Block, Expr, Kind, Step},
    compare::compare,
    function,
    missing::{kind, missing, unresolved},
    output::Limited,
    place::{Place, in_url, leads_up},
    secrets::{SecretReference, reference_text},
};
use crate::{
    data::{Data, DataRef, Segment, nests_within},
    error::{EvalError, EvalErrorKind, Span},
    limits::Clock,
};

/// The deepest nesting of a value that is copied or written.
const MAX_DEPTH: usize = 256;

/// A value while rendering.
#[derive(Debug, Clone)]
pub(super) enum Held<'a> {
    Data(DataRef<'a>),
    Made(Rc<Value>),
    /// Does not exist; the error is returned if the value is needed.
    Missing(Box<EvalError>),
}

pub(super) struct Renderer<'a> {
    scope: DataRef<'a>,
    options: &'a Options,
    source: &'a str,
    clock: Clock,
    /// The remaining bytes of output.
    pub left: usize,
    /// Loop variables, innermost last.
    locals: Vec<(&'a str, Held<'a>)>,
    /// The place of the output.
    place: Place,
    /// The ranges of the values of a URL in the output.
    values: Vec<Range<usize>>,
    /// The length of a reference to a secret at the start of a URL.
    base: usize,
    /// The references to secrets so far.
    pub references: Vec<SecretReference>,
}

pub(super) type Outcome<T> = Result<T, EvalError>;

impl<'a> Renderer<'a> {
    pub fn new(scope: &'a Data<'a>, options: &'a Options) -> Self {
        Self {
            scope: scope.view(),
            options,
            source: "",
            clock: Clock::new(options.timeout),
            left: options.max_output_bytes,
            locals: Vec::new(),
            place: Place::Any,
            values: Vec::new(),
            base: 0,
            references: Vec::new(),
        }
    }

    pub fn template(&mut self, template: &'a Template) -> Outcome<Value> {
        let uses = template.uses;
        if (uses.loops && !self.options.loops) || (uses.functions && !self.options.functions) {
            let message = "the template uses blocks or functions, which `templates.enable_loops` or `templates.enable_functions` disables";
            let span = Span::new(0, template.source.len());
            return Err(EvalError::new(EvalErrorKind::Disabled, span, message));
        }
        self.source = &template.source;
        self.place = template.place;
        if let ([Block::Output(expression)], true) = (&template.blocks[..], template.typed) {
            let value = self.value(expression)?;
            let value = self.result_of(value, expression.span)?;
            return match self.place {
                Place::Any => Ok(value),
                Place::Url if value.is_string() => Ok(value),
                Place::Text if is_text(&value) => Ok(value),
                Place::Text | Place::Url => Err(self.wrong_for_place(&value, expression.span)),
            };
        }
        let mut out = String::new();
        self.values.clear();
        self.base = 0;
        self.blocks(&template.blocks, &mut out)?;
        if leads_up(&out, &self.values) {
            let message = "a value makes a segment of the URL path `.` or `..`, which would change the path";
            let span = Span::new(0, template.source.len());
            return Err(EvalError::new(EvalErrorKind::Thrown, span, message));
        }
        Ok(Value::String(out))
    }

    /// Charges a value that is copied into the result.
    pub fn literal(&mut self, value: &Value) -> Outcome<Value> {
        let span = Span::default();
        self.account_value(value, span)?;
        Ok(value.clone())
    }

    fn step(&mut self, work: usize, span: Span) -> Outcome<()> {
        self.clock
            .step(work)
            .map_err(|(kind, message)| EvalError::new(kind, span, message))
    }

    fn account(&mut self, bytes: usize, span: Span) -> Outcome<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(self.too_long(span)),
        }
        self.step(bytes / 64, span)
    }

    pub fn too_long(&self, span: Span) -> EvalError {
        let limit = self.options.max_output_bytes;
        let message = format!("the output is longer than {limit} bytes");
        EvalError::new(EvalErrorKind::OutputLimit, span, message)
    }

    fn account_value(&mut self, value: &Value, span: Span) -> Outcome<()> {
        match value {
            Value::String(text) => self.account(text.len(), span),
            Value::Array(_) | Value::Object(_) => {
                let mut counter = Limited {
                    out: None,
                    left: self.left,
                };
                self.write_json(value, &mut counter, span)?;
                self.account(self.left - counter.left, span)
            }
            _ => self.account(8, span),
        }
    }

    fn result_of(&mut self, value: Held<'a>, span: Span) -> Outcome<Value> {
        match value {
            Held::Data(DataRef::Json(json)) => {
                self.account_value(json, span)?;
                Ok(json.clone())
            }
            Held::Data(parts) => {
                let json = parts.to_json(MAX_DEPTH).ok_or_else(|| too_deep(span))?;
                self.account_value(&json, span)?;
                Ok(json)
            }
            Held::Made(json) => {
                self.account_value(&json, span)?;
                Ok(Rc::unwrap_or_clone(json))
            }
            Held::Missing(error) => Err(*error),
        }
    }

    fn blocks(&mut self, blocks: &'a [Block], out: &mut String) -> Outcome<()> {
        for block in blocks {
            match block {
                Block::Text(text) => {
                    self.account(text.len(), Span::default())?;
                    out.push_str(text);
                }
                Block::Output(expression) => {
                    let value = self.value(expression)?;
                    let is_null = matches!(value, Held::Data(data) if data.is_null());
                    // Plain paths are strict so that no text is sent with an empty value in it.
                    if let Kind::Plain(path) = &expression.kind
                        && is_null
                    {
                        return Err(self.unresolved(expression.span, path));
                    }
                    match self.place {
                        Place::Any => self.write(&value, expression.span, out)?,
                        Place::Text | Place::Url => self.write_text(&value, expression.span, out)?,
                    }
                }
                Block::Secret(name) => self.reference(name, out)?,
                Block::If { branches, otherwise } => {
                    let mut chosen = otherwise;
                    for (test, body) in branches {
                        let value = self.value(test)?;
                        if truthy(&value) {
                            chosen = body;
                            break;
                        }
                    }
                    self.blocks(chosen, out)?;
                }
                Block::For { name, list, body } => self.repeat(name, list, body, out)?,
            }
        }
        Ok(())
    }

    /// Appends a reference to a secret.
    fn reference(&mut self, name: &str, out: &mut String) -> Outcome<()> {
        let text = reference_text(name);
        self.account(text.len(), Span::default())?;
        let start = out.len();
        out.push_str(&text);
        if start == 0 {
            self.base = out.len();
        }
        self.references.push(SecretReference {
            name: name.to_owned(),
            pointer: String::new(),
            range: start..out.len(),
            place: self.place,
        });
        Ok(())
    }

    fn repeat(&mut self, name: &'a str, list: &'a Expr, body: &'a [Block], out: &mut String) -> Outcome<()> {
        let items = match self.value(list)? {
            Held::Data(DataRef::Json(Value::Array(items))) => items
                .iter()
                .map(|item| Held::Data(DataRef::Json(item)))
                .collect::<Vec<_>>(),
            Held::Data(DataRef::Json(Value::Null)) => Vec::new(),
            Held::Made(json) => match &*json {
                Value::Array(items) => items.iter().map(|item| Held::Made(Rc::new(item.clone()))).collect(),
                Value::Null => Vec::new(),
                other => return Err(wrong_type(list.span, "`for` needs an array", other)),
            },
            other => {
                let message = format!("`for` needs an array, not {}", held_kind(&other));
                return Err(EvalError::new(EvalErrorKind::Thrown, list.span, message));
            }
        };
        for item in items {
            self.step(1, list.span)?;
            self.locals.push((name, item));
            let rendered = self.blocks(body, out);
            self.locals.pop();
            rendered?;
        }
        Ok(())
    }

    /// Appends a value as text.
    fn write(&mut self, value: &Held<'a>, span: Span, out: &mut String) -> Outcome<()> {
        let json = match value {
            Held::Data(DataRef::Json(json)) => *json,
            Held::Made(json) => &**json,
            Held::Data(parts) => {
                let json = parts.to_json(MAX_DEPTH).ok_or_else(|| too_deep(span))?;
                return self.write_value(&json, span, out);
            }
            Held::Missing(error) => return Err((**error).clone()),
        };
        self.write_value(json, span, out)
    }

    /// Appends a value at a place that only takes text.
    fn write_text(&mut self, value: &Held<'a>, span: Span, out: &mut String) -> Outcome<()> {
        let json = self.json(value, span)?;
        if !is_text(&json) {
            return Err(self.wrong_for_place(&json, span));
        }
        if self.place != Place::Url {
            return self.write_value(&json, span, out);
        }
        let mut text = String::new();
        self.write_value(&json, span, &mut text)?;
        let encoded = in_url(out, self.base, &text).map_err(|why| {
            let message = format!("{{{{{}}}}} {why}", self.text(span));
            EvalError::new(EvalErrorKind::Thrown, span, message)
        })?;
        self.account(encoded.len() - text.len(), span)?;
        let start = out.len();
        out.push_str(&encoded);
        self.values.push(start..out.len());
        Ok(())
    }

    /// The error for a value that its place does not take.
    fn wrong_for_place(&self, value: &Value, span: Span) -> EvalError {
        let (path, what, place) = (self.text(span), kind(value), self.place.name());
        let message =
            format!("Failed to resolve {{{{{path}}}}}: its value is {what}, which cannot be written into {place}");
        EvalError::new(EvalErrorKind::Thrown, span, message)
    }

    pub fn write_value(&mut self, value: &Value, span: Span, out: &mut String) -> Outcome<()> {
        match value {
            Value::String(text) => {
                self.account(text.len(), span)?;
                out.push_str(text);
            }
            Value::Null => {
                self.account(self.options.null_text.len(), span)?;
                out.push_str(&self.options.null_text);
            }
            other => {
                let mut writer = Limited {
                    out: Some(Vec::new()),
                    left: self.left,
                };
                self.write_json(other, &mut writer, span)?;
                self.account(self.left - writer.left, span)?;
                out.push_str(&String::from_utf8_lossy(&writer.out.unwrap_or_default()));
            }
        }
        Ok(())
    }

    pub fn write_json(&self, value: &Value, writer: &mut Limited, span: Span) -> Outcome<()> {
        if !nests_within(value, MAX_DEPTH) {
            return Err(too_deep(span));
        }
        serde_json::to_writer(writer, value).map_err(|_| self.too_long(span))
    }

    /// The value of an expression. A missing value is an error or `null`, depending on the options.
    pub fn value(&mut self, expression: &'a Expr) -> Outcome<Held<'a>> {
        match self.eval(expression)? {
            Held::Missing(error) if self.options.strict => Err(*error),
            Held::Missing(_) => Ok(made(Value::Null)),
            value => Ok(value),
        }
    }

    fn eval(&mut self, expression: &'a Expr) -> Outcome<Held<'a>> {
        self.step(1, expression.span)?;
        match &expression.kind {
            Kind::Literal(value) => Ok(Held::Data(DataRef::Json(value))),
            Kind::Plain(path) => match self.scope.at(path) {
                Some(data) => Ok(Held::Data(data)),
                None => Err(self.unresolved(expression.span, path)),
            },
            Kind::Path(name, steps) => self.path(name, steps, expression.span),
            Kind::Steps(base, steps) => {
                let base = self.eval(base)?;
                self.walk(base, Vec::new(), steps, expression.span)
            }
            Kind::Coalesce(operands) => self.coalesce(operands),
            Kind::And(operands) => self.all(operands, false),
            Kind::Or(operands) => self.all(operands, true),
            Kind::Not(operand) => {
                let value = self.value(operand)?;
                Ok(made(Value::Bool(!truthy(&value))))
            }
            Kind::Compare(operator, sides) => {
                let left = self.value(&sides.0)?;
                let right = self.value(&sides.1)?;
                let left = self.json(&left, expression.span)?;
                let right = self.json(&right, expression.span)?;
                compare(*operator, &left, &right, expression.span).map(|holds| made(Value::Bool(holds)))
            }
            Kind::Call(function, arguments) => self.call(*function, arguments, expression.span),
        }
    }

    fn coalesce(&mut self, operands: &'a [Expr]) -> Outcome<Held<'a>> {
        let mut value = made(Value::Null);
        for operand in operands {
            value = self.eval(operand)?;
            let absent = match &value {
                Held::Missing(_) => true,
                Held::Data(data) => data.is_null(),
                Held::Made(json) => json.is_null(),
            };
            if !absent {
                break;
            }
        }
        Ok(value)
    }

    /// `&&` and `||`, whose result is a boolean.
    fn all(&mut self, operands: &'a [Expr], decisive: bool) -> Outcome<Held<'a>> {
        for operand in operands {
            let value = self.value(operand)?;
            if truthy(&value) == decisive {
                return Ok(made(Value::Bool(decisive)));
            }
        }
        Ok(made(Value::Bool(!decisive)))
    }

    fn path(&mut self, name: &'a str, steps: &'a [Step], span: Span) -> Outcome<Held<'a>> {
        let local = self.locals.iter().rev().find(|(known, _)| *known == name);
        if let Some((_, held)) = local {
            let held = held.clone();
            return self.walk(held, vec![Segment::Key(name.to_owned())], steps, span);
        }
        let Some(data) = self.scope.member(name) else {
            let wanted = Segment::Key(name.to_owned());
            let whole = self.text(span);
            let error = missing(whole, span, &[], self.scope, &wanted, steps.is_empty());
            return Ok(Held::Missing(Box::new(error)));
        };
        self.walk(Held::Data(data), vec![Segment::Key(name.to_owned())], steps, span)
    }

    fn unresolved(&self, span: Span, path: &[Segment]) -> EvalError {
        unresolved(self.text(span), span, self.scope, path)
    }

    fn text(&self, span: Span) -> &'a str {
        self.source.get(span.offset as usize..span.end()).unwrap_or_default()
    }

    /// Follows the steps from a value; `walked` is the path so far, for messages.
    fn walk(
        &mut self,
        mut value: Held<'a>,
        mut walked: Vec<Segment>,
        steps: &'a [Step],
        span: Span,
    ) -> Outcome<Held<'a>> {
        for (position, step) in steps.iter().enumerate() {
            let segment = match step {
                Step::Key(key) => Segment::Key(key.clone()),
                Step::Index(index) => Segment::Index(*index),
                Step::Computed(key) => match self.computed(key)? {
                    Ok(segment) => segment,
                    Err(absent) => return Ok(Held::Missing(absent)),
                },
            };
            let next = match &value {
                Held::Missing(_) => return Ok(value),
                Held::Data(data) => child(*data, &segment),
                Held::Made(json) => child(DataRef::Json(json), &segment).map(|found| match found {
                    Held::Data(DataRef::Json(part)) => made(part.clone()),
                    other => detach(other),
                }),
            };
            let Some(next) = next else {
                let parent = match &value {
                    Held::Data(data) => *data,
                    Held::Made(json) => DataRef::Json(json),
                    Held::Missing(_) => DataRef::Json(&Value::Null),
                };
                let last = position + 1 == steps.len();
                let whole = self.text(span);
                let error = missing(whole, span, &walked, parent, &segment, last);
                return Ok(Held::Missing(Box::new(error)));
            };
            value = next;
            walked.push(segment);
        }
        Ok(value)
    }

    /// The segment that a computed index names, or why there is none.
    fn computed(&mut self, key: &'a Expr) -> Outcome<Result<Segment, Box<EvalError>>> {
        let value = match self.eval(key)? {
            Held::Missing(absent) => return Ok(Err(absent)),
            value => value,
        };
        let json = self.json(&value, key.span)?;
        match &*json {
            Value::String(name) => Ok(Ok(Segment::Key(name.clone()))),
            Value::Number(number) => match number.as_u64().and_then(|n| usize::try_from(n).ok()) {
                Some(index) => Ok(Ok(Segment::Index(index))),
                None => Err(wrong_type(
                    key.span,
                    "an index must be a whole number, 0 or greater",
                    &json,
                )),
            },
            other => Err(wrong_type(key.span, "an index is a string or a number", other)),
        }
    }

    /// A value as JSON, for functions and comparisons.
    pub fn json(&self, value: &Held<'a>, span: Span) -> Outcome<Cow<'a, Value>> {
        match value {
            Held::Data(DataRef::Json(json)) => Ok(Cow::Borrowed(json)),
            Held::Data(parts) => parts.to_json(MAX_DEPTH).map(Cow::Owned).ok_or_else(|| too_deep(span)),
            Held::Made(json) => Ok(Cow::Owned((**json).clone())),
            Held::Missing(error) => Err((**error).clone()),
        }
    }
}

pub(super) fn made<'a>(value: Value) -> Held<'a> {
    Held::Made(Rc::new(value))
}

/// The part of a value that a step names.
fn child<'d>(data: DataRef<'d>, segment: &Segment) -> Option<Held<'d>> {
    if let Some(found) = data.get(segment) {
        return Some(Held::Data(found));
    }
    let (Segment::Key(name), DataRef::Json(value)) = (segment, data) else {
        return None;
    };
    if !matches!(name.as_str(), "length" | "size") {
        return None;
    }
    function::size(value).map(|size| made(Value::from(size)))
}

/// A held value that borrows nothing: sizes are the only ones [`child`] makes.
fn detach<'a>(held: Held<'_>) -> Held<'a> {
    match held {
        Held::Made(json) => Held::Made(json),
        Held::Missing(error) => Held::Missing(error),
        Held::Data(data) => made(data.to_json(MAX_DEPTH).unwrap_or(Value::Null)),
    }
}

/// Scriban's truth: everything but `null` and `false`.
fn truthy(value: &Held<'_>) -> bool {
    match value {
        Held::Data(DataRef::Json(json)) => !matches!(json, Value::Null | Value::Bool(false)),
        Held::Data(DataRef::Object(_)) => true,
        Held::Made(json) => !matches!(**json, Value::Null | Value::Bool(false)),
        Held::Missing(_) => false,
    }
}

/// Whether a value can be written as text.
fn is_text(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

fn held_kind(held: &Held<'_>) -> &'static str {
    match held {
        Held::Data(DataRef::Json(json)) => kind(json),
        Held::Data(DataRef::Object(_)) => "an object",
        Held::Made(json) => kind(json),
        Held::Missing(_) => "undefined",
    }
}

pub(super) fn wrong_type(span: Span, expected: &str, value: &Value) -> EvalError {
    let message = format!("{expected}, not {}", kind(value));
    EvalError::new(EvalErrorKind::Thrown, span, message)
}

fn too_deep(span: Span) -> EvalError {
    let message = format!("the value nests deeper than {MAX_DEPTH} levels");
    EvalError::new(EvalErrorKind::DepthLimit, span, message)
}
