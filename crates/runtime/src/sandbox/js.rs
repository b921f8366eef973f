//! QuickJS for one evaluation: a new runtime and context, used once.
//!
//! What must stay true: nothing is kept from one evaluation to the next, so an [`Engine`] is consumed by its use. It is created
//! before it is needed, which makes the response fast. This file relies on QuickJS to be correct, but not to stop: builtins such
//! as `join` ignore the interrupt, and then the parent kills this process.

use super::protocol::{EvaluationError, Members, Op, Outcome, Question};
use fermata_expr::{EvalError, EvalErrorKind, SyntaxError, SyntaxKind};
use rquickjs::{
    Coerced, Context, Ctx, Error, FromJs, Object, Runtime, Value,
    context::{EvalOptions, intrinsic},
    object::Property,
};
use serde_json::value::RawValue;
use std::{cell::Cell, rc::Rc, time::Instant};

/// The stack for calls and nested values.
const STACK: usize = 256 * 1024;
/// The memory for an input. The limit of the process is not much higher.
const INPUT_MEMORY: usize = 160 * 1024 * 1024;
/// The memory of inputs up to this size is not measured: each byte of JSON counts as [`BYTES_PER_BYTE`].
const SMALL_INPUT: usize = 16 * 1024;
/// The most memory that a byte of JSON can need: `[{},{},` as objects.
const BYTES_PER_BYTE: usize = 64;
/// Prepended to a source that is compiled and not run.
const DO_NOT_RUN: &str = "throw 0;\n";
/// Marks the error of a too long result.
const RESULT: &str = "result";

/// Globals that are removed; a test lists those that remain.
const REMOVED: [&str; 7] = [
    "eval",
    "Function",
    "Promise",
    "queueMicrotask",
    "DisposableStack",
    "AsyncDisposableStack",
    "SuppressedError",
];

/// The builtins. Without `Performance` (a clock), `Proxy`, `WeakRef`, `DOMException` and `TypedArrays`: conditions do not need
/// them, and creating them costs as much as all the others.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    // Async functions need it to exist.
    intrinsic::Promise,
);

/// An unused runtime.
pub(super) struct Engine {
    context: Context,
    runtime: Runtime,
    deadline: Rc<Cell<Option<Instant>>>,
    late: Rc<Cell<bool>>,
    /// The memory that it uses before an evaluation.
    weight: usize,
}

impl Engine {
    /// An engine. `weight` is the memory that one uses before an evaluation, if that is known.
    pub fn new(weight: Option<usize>) -> Result<Engine, Error> {
        let runtime = Runtime::new()?;
        runtime.set_max_stack_size(STACK);
        runtime.set_memory_limit(INPUT_MEMORY);
        let (deadline, late) = (Rc::new(Cell::new(None::<Instant>)), Rc::new(Cell::new(false)));
        let (until, noted) = (deadline.clone(), late.clone());
        runtime.set_interrupt_handler(Some(Box::new(move || {
            let over = until.get().is_some_and(|deadline| Instant::now() >= deadline);
            noted.set(noted.get() || over);
            over
        })));
        let context = Context::custom::<Intrinsics>(&runtime)?;
        context.with(|ctx| harden(&ctx))?;
        let weight = weight.unwrap_or_else(|| used(&runtime));
        Ok(Engine {
            context,
            runtime,
            deadline,
            late,
            weight,
        })
    }

    /// The memory that it uses before an evaluation.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Executes one request.
    pub fn answer(self, question: &Question<'_>, data: &Members<'_>) -> Outcome {
        self.deadline.set(Instant::now().checked_add(question.limits.timeout()));
        // The limits of the runtime can only be set while no context is in use, hence the steps.
        let size = self.context.with(|ctx| install(&ctx, question, data));
        let answered = size.and_then(|size| {
            let held = match size <= SMALL_INPUT {
                true => self.weight + size * BYTES_PER_BYTE,
                false => used(&self.runtime),
            };
            let most = held.saturating_add(question.limits.memory_bytes);
            self.runtime.set_memory_limit(most);
            self.context.with(|ctx| work(&ctx, question))
        });
        answered.map_err(|error| {
            // Describing what was thrown may need a little memory, and run code of the tenant.
            self.runtime.set_memory_limit(INPUT_MEMORY);
            self.context.with(|ctx| self.explain(&ctx, question, &error))
        })
    }

    /// The error, described for people.
    fn explain(&self, ctx: &Ctx<'_>, question: &Question<'_>, error: &Error) -> EvaluationError {
        let failed = |kind, message: String| {
            EvaluationError::Failed(EvalError {
                kind,
                message,
                offset: 0,
                length: 0,
            })
        };
        if self.late.get() {
            let message = format!("took longer than {:?}", question.limits.timeout());
            return failed(EvalErrorKind::Timeout, message);
        }
        let out_of_memory = || {
            let bytes = question.limits.memory_bytes;
            failed(
                EvalErrorKind::MemoryLimit,
                format!("needs more than {bytes} bytes of memory"),
            )
        };
        match error {
            Error::Exception => {}
            Error::Allocation => return out_of_memory(),
            Error::FromJs {
                to: RESULT,
                message: Some(message),
                ..
            } => return failed(EvalErrorKind::OutputLimit, message.clone()),
            Error::InvalidString(_) => {
                return EvaluationError::Syntax(SyntaxError {
                    kind: SyntaxKind::Invalid,
                    message: "a source cannot hold a NUL character".to_owned(),
                    offset: question.source.find('\0').unwrap_or(0),
                    length: 1,
                });
            }
            other => return failed(EvalErrorKind::Thrown, format!("Error: {other}")),
        }
        let thrown = Thrown::of(ctx, ctx.catch());
        if self.late.get() {
            let message = format!("took longer than {:?}", question.limits.timeout());
            return failed(EvalErrorKind::Timeout, message);
        }
        let before = if question.op == Op::Check { 1 } else { 0 };
        match thrown.name.as_str() {
            "InternalError" if thrown.message == "out of memory" => out_of_memory(),
            "RangeError" | "InternalError" if thrown.message.contains("call stack size exceeded") => {
                failed(EvalErrorKind::DepthLimit, "calls nest too deeply".to_owned())
            }
            "SyntaxError" if !thrown.ran => EvaluationError::Syntax(thrown.syntax(&question.source, before)),
            _ => failed(EvalErrorKind::Thrown, thrown.text()),
        }
    }
}

/// Makes the data available as read-only globals, and `Date` deterministic. Returns the size of the data as JSON.
fn install(ctx: &Ctx<'_>, question: &Question<'_>, data: &Members<'_>) -> Result<usize, Error> {
    let globals = ctx.globals();
    // Making `Date` deterministic takes as long as a simple evaluation, so it is done only for sources that contain the name.
    match question.source.contains("Date") {
        true => ctx.eval::<(), _>(code(include_str!("date.js")))?,
        false => globals.remove("Date")?,
    }
    let mut size = 0;
    for (name, text) in data {
        size += text.get().len();
        let value = ctx.json_parse(text.get())?;
        globals.prop(name.as_ref(), Property::from(value).configurable().enumerable())?;
    }
    Ok(size)
}

fn work<'js>(ctx: &Ctx<'js>, question: &Question<'_>) -> Result<Option<Box<RawValue>>, Error> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some("condition".to_owned());
    let source = question.source.as_ref();
    if question.op == Op::Check {
        ctx.eval_with_options::<Value<'js>, _>(format!("{DO_NOT_RUN}{source}"), options)?;
        return Ok(None);
    }
    let value = ctx.eval_with_options::<Value<'js>, _>(source, options)?;
    if value.is_promise() {
        let message = "a condition cannot be asynchronous: its value is a promise";
        return Err(rquickjs::Exception::throw_type(ctx, message));
    }
    let text = match question.op {
        Op::Test => Coerced::<bool>::from_js(ctx, value)?.0.to_string(),
        _ => match ctx.json_stringify(value)? {
            Some(text) => mend(text.to_string()?),
            None => return Ok(None),
        },
    };
    if text.len() > question.limits.memory_bytes {
        let message = format!("the result is longer than {} bytes", question.limits.memory_bytes);
        return Err(Error::new_from_js_message("value", RESULT, message));
    }
    RawValue::from_string(text)
        .map(Some)
        .map_err(|error| Error::new_from_js_message("value", "JSON", error.to_string()))
}

/// Removes what turns text into code, what is random, and what is asynchronous.
fn harden(ctx: &Ctx<'_>) -> Result<(), Error> {
    let globals = ctx.globals();
    for name in REMOVED {
        globals.remove(name)?;
    }
    globals.get::<_, Object<'_>>("Math")?.remove("random")?;
    ctx.eval(code(include_str!("prelude.js")))
}

/// One of our scripts without its comments, which would be parsed for every evaluation.
fn code(script: &str) -> &str {
    let comments = script.lines().take_while(|line| line.starts_with("//"));
    &script[comments.map(|line| line.len() + 1).sum()..]
}

fn used(runtime: &Runtime) -> usize {
    usize::try_from(runtime.memory_usage().malloc_size).unwrap_or(usize::MAX)
}

/// What a program threw.
struct Thrown {
    name: String,
    message: String,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
    /// Whether it was thrown by code that ran, and not by the compiler.
    ran: bool,
}

impl Thrown {
    fn of<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Thrown {
        let text = |value: Value<'js>| {
            let text = Coerced::<String>::from_js(ctx, value).ok().map(|text| text.0);
            if text.is_none() {
                ctx.catch();
            }
            text.map(|mut text| {
                text.truncate(text.floor_char_boundary(500));
                text
            })
        };
        let Some(object) = value.as_object().filter(|object| object.is_error()) else {
            return Thrown {
                name: String::new(),
                message: text(value).unwrap_or_else(|| "something without a text".to_owned()),
                place: None,
                ran: true,
            };
        };
        let member = |object: &Object<'js>, name: &str| {
            let found = object.get::<_, Value<'js>>(name);
            if found.is_err() {
                ctx.catch();
            }
            found.ok().filter(|value| !value.is_undefined()).and_then(&text)
        };
        let stack = member(object, "stack").unwrap_or_default();
        Thrown {
            name: member(object, "name").unwrap_or_else(|| "Error".to_owned()),
            message: member(object, "message").unwrap_or_default(),
            place: place(&stack),
            // The compiler has no function to name: its line is `at condition:1:5`.
            ran: stack.contains('('),
        }
    }

    fn text(&self) -> String {
        match (self.name.as_str(), self.message.as_str()) {
            ("", message) => format!("threw {message}"),
            (name, "") => name.to_owned(),
            (name, message) => format!("{name}: {message}"),
        }
    }

    fn syntax(self, source: &str, lines_before: usize) -> SyntaxError {
        let Some((line, column)) = self.place else {
            // The position of an invalid regular expression is not reported.
            return SyntaxError {
                kind: SyntaxKind::Invalid,
                message: self.message,
                offset: 0,
                length: source.len(),
            };
        };
        let line = line.saturating_sub(1 + lines_before);
        let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = source.get(start..).unwrap_or_default();
        let within: usize = rest.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum();
        let offset = (start + within).min(source.len());
        SyntaxError {
            kind: SyntaxKind::Invalid,
            message: self.message,
            offset,
            length: source[offset..].chars().next().map_or(0, char::len_utf8),
        }
    }
}

/// The first `condition:<line>:<column>` of a stack.
fn place(stack: &str) -> Option<(usize, usize)> {
    let mut numbers = stack.split_once("condition:")?.1.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// JSON as Rust reads it: an unpaired surrogate, which JavaScript escapes, becomes U+FFFD.
fn mend(mut text: String) -> String {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let escape = text.as_bytes().get(at + 1..at + 4);
        let surrogate = matches!(escape, Some([b'u', b'd', b'8' | b'9' | b'a'..=b'f']));
        if surrogate && text.is_char_boundary(at + 6) {
            text.replace_range(at..at + 6, "\\ufffd");
        }
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaired_surrogate_is_replaced_and_a_backslash_is_not() {
        assert_eq!(mend(r#""a\ud83dz""#.into()), r#""a\ufffdz""#);
        assert_eq!(mend(r#""a\\ud83dz\n\u0001""#.into()), r#""a\\ud83dz\n\u0001""#);
    }
}
