//! CEL in the child: the standard definitions with optional values, and the libraries `strings`, `math` and `encoders`.
//!
//! Left out, with an error that says so: messages and their enums (there are no protobuf types), comprehensions with two
//! variables, `cel.bind`, `cel.block` and the `proto` library.
//!
//! JSON becomes CEL without loss of the kind of number: `1` is an int (a uint beyond the range of int), `1.0` and `1e3` are
//! doubles. A result becomes JSON as protobuf does it: bytes as base64, a duration as `"1.500s"`, a timestamp as RFC 3339 in
//! UTC, NaN and the infinities as strings. An int keeps all digits, a double always has a fraction or an exponent, a type is
//! its name.

use super::{
    logic::{failed, guarded, rendered},
    protocol::{EvaluationError, Members, Op, Outcome, Question},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cel::{
    Context, Env, ExecutionError, IdedExpr, ParseErrors, Value,
    common::ast::{EntryExpr, Expr},
    extensions,
    objects::{Key, Map},
};
use fermata_expr::{EvalError, EvalErrorKind, SyntaxError, SyntaxKind, cel::STATE};
use serde_json::Value as Json;
use std::{collections::HashMap, sync::Arc};

/// The deepest result: the parent reads 128 levels.
const DEEPEST: usize = 100;
/// The longest text of an error.
const LONGEST_MESSAGE: usize = 500;

/// Functions whose errors do not quote their arguments, except for numbers.
const PLAIN_ERRORS: [&str; 8] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "timestamp",
    "substring",
    "value",
];

/// The names of types in errors.
const TYPES: [&str; 13] = [
    "null",
    "null_type",
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "timestamp",
    "duration",
    "list",
    "map",
    "type",
];

/// Functions of libraries that are left out, with the name before the dot if there is one.
const LEFT_OUT: [(&str, &str); 6] = [
    ("cel", "bind"),
    ("cel", "block"),
    ("cel", "index"),
    ("cel", "iterVar"),
    ("proto", "getExt"),
    ("proto", "hasExt"),
];

/// The environment. It never changes, so evaluations share it.
pub(super) struct Cel {
    env: Arc<Env>,
}

impl Cel {
    pub fn new() -> Cel {
        let mut env = Env::stdlib();
        for extension in [extensions::strings, extensions::math, extensions::encoders] {
            // Each library declares names of its own, once.
            if let Err(error) = env.add_extension(extension) {
                unreachable!("the libraries do not conflict: {error}");
            }
        }
        Cel { env: Arc::new(env) }
    }

    /// Executes one request. The parent has checked the limits of the source.
    pub fn answer(&self, question: &Question<'_>, data: &Members<'_>) -> Outcome {
        let parser = self.env.parser().enable_ident_escape_syntax(true);
        let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parser.parse(&question.source)));
        let expression = match parsed {
            Ok(Ok(expression)) => expression,
            // As the variable of a comprehension it is an error of syntax to the parser.
            Ok(Err(_)) if question.source.contains("cel.iterVar(") => {
                let message = "calls of `cel.iterVar` are not part of the CEL subset".to_owned();
                return Err(EvaluationError::Syntax(not_at(
                    &question.source,
                    SyntaxKind::NotCovered,
                    message,
                )));
            }
            Ok(Err(errors)) => return Err(EvaluationError::Syntax(syntax(&question.source, &errors))),
            Err(_) => {
                let message = "the expression cannot be parsed".to_owned();
                return Err(EvaluationError::Syntax(not_at(
                    &question.source,
                    SyntaxKind::Invalid,
                    message,
                )));
            }
        };
        if let Some(what) = left_out(&expression) {
            let message = format!("{what} are not part of the CEL subset");
            return Err(EvaluationError::Syntax(not_at(
                &question.source,
                SyntaxKind::NotCovered,
                message,
            )));
        }
        if question.op == Op::Check {
            return Ok(None);
        }
        guarded(|| {
            let context = self.context(question, data)?;
            let value = Value::resolve(&expression, &context).map_err(|error| explain(&question.source, &error))?;
            let value = match (question.op, &value) {
                (Op::Test, Value::Bool(value)) => Json::Bool(*value),
                (Op::Test, other) => {
                    let message = format!(
                        "the result is of type {}; a condition must be true or false",
                        type_of(other)
                    );
                    return Err(failed(EvalErrorKind::Thrown, message));
                }
                _ => json(&value, 0)?,
            };
            rendered(question, value.to_string())
        })
    }

    /// The names that the expression sees: the members of the data, and `state` for all of them.
    fn context<'v>(&self, question: &Question<'_>, data: &Members<'_>) -> Result<Context<'static, 'v>, EvalError> {
        let mut context = Context::with_env(self.env.clone());
        let mut values = Vec::with_capacity(data.len());
        for (name, text) in data {
            let value: Json = serde_json::from_str(text.get())
                .map_err(|error| failed(EvalErrorKind::Thrown, format!("`{name}` cannot be read: {error}")))?;
            values.push((name.as_ref(), value_of(&value)));
        }
        if question.source.contains(STATE) && !data.contains_key(STATE) {
            let members = values
                .iter()
                .map(|(name, value)| (Key::from((*name).to_owned()), value.clone()));
            context.add_variable_from_value(STATE, Value::Map(map(members)));
        }
        for (name, value) in values {
            context.add_variable_from_value(name, value);
        }
        Ok(context)
    }
}

fn map(members: impl Iterator<Item = (Key, Value)>) -> Map {
    Map {
        map: Arc::new(members.collect::<HashMap<_, _>>()),
    }
}

fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::Int(int),
            (None, Some(uint)) => Value::UInt(uint),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(items) => Value::List(Arc::new(items.iter().map(value_of).collect())),
        Json::Object(members) => {
            let member = |(name, value): (&String, &Json)| (Key::from(name.clone()), value_of(value));
            Value::Map(map(members.iter().map(member)))
        }
    }
}

/// The result as JSON.
fn json(value: &Value, depth: usize) -> Result<Json, EvalError> {
    if depth > DEEPEST {
        let message = format!("the result nests deeper than {DEEPEST} levels");
        return Err(failed(EvalErrorKind::DepthLimit, message));
    }
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(int) => Json::from(*int),
        Value::UInt(uint) => Json::from(*uint),
        Value::Float(double) => match serde_json::Number::from_f64(*double) {
            Some(number) => Json::Number(number),
            None if double.is_nan() => Json::from("NaN"),
            None if *double > 0.0 => Json::from("Infinity"),
            None => Json::from("-Infinity"),
        },
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(STANDARD.encode(bytes.as_slice())),
        Value::Timestamp(time) => Json::from(format!("{}Z", time.to_utc().format("%Y-%m-%dT%H:%M:%S%.f"))),
        Value::Duration(duration) => Json::from(seconds(duration.num_seconds(), duration.subsec_nanos())),
        Value::List(items) => Json::Array(
            items
                .iter()
                .map(|item| json(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(map) => object(map, depth)?,
        other => {
            let message = format!("the result is of type {}, which has no JSON form", type_of(other));
            return Err(failed(EvalErrorKind::Thrown, message));
        }
    })
}

/// A map as an object, with its keys as text and sorted.
fn object(map: &Map, depth: usize) -> Result<Json, EvalError> {
    let name = |key: &Key| match key {
        Key::Int(int) => int.to_string(),
        Key::Uint(uint) => uint.to_string(),
        Key::Bool(value) => value.to_string(),
        Key::String(text) => text.to_string(),
    };
    let mut members: Vec<_> = map.map.iter().map(|(key, value)| (name(key), value)).collect();
    members.sort_by(|one, other| one.0.cmp(&other.0));
    if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let message = format!("the result has two keys that are both `{}` in JSON", twice[0].0);
        return Err(failed(EvalErrorKind::Thrown, message));
    }
    let member = |(name, value): (String, &Value)| Ok((name, json(value, depth + 1)?));
    Ok(Json::Object(
        members.into_iter().map(member).collect::<Result<_, EvalError>>()?,
    ))
}

/// A duration with as many groups of three decimals as it needs.
fn seconds(whole: i64, nanos: i32) -> String {
    let sign = if whole < 0 || nanos < 0 { "-" } else { "" };
    let (whole, nanos) = (whole.unsigned_abs(), nanos.unsigned_abs());
    match nanos {
        0 => format!("{sign}{whole}s"),
        _ if nanos % 1_000_000 == 0 => format!("{sign}{whole}.{:03}s", nanos / 1_000_000),
        _ if nanos % 1000 == 0 => format!("{sign}{whole}.{:06}s", nanos / 1000),
        _ => format!("{sign}{whole}.{nanos:09}s"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Timestamp(_) => "timestamp",
        Value::Duration(_) => "duration",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Opaque(_) => "optional",
        _ => "function",
    }
}

/// What an expression uses that is left out.
fn left_out(expression: &IdedExpr) -> Option<String> {
    let all = |expressions: &[IdedExpr]| expressions.iter().find_map(left_out);
    match &expression.expr {
        Expr::Struct(message) => Some(format!("messages (`{}{{…}}`)", message.type_name)),
        Expr::Call(call) => {
            let on = match call.target.as_deref().map(|target| &target.expr) {
                Some(Expr::Ident(name)) => Some(name.as_str()),
                _ => None,
            };
            let name = call.func_name.as_str();
            if on.is_some_and(|on| LEFT_OUT.contains(&(on, name))) {
                return Some(format!("calls of `{}.{name}`", on.unwrap_or_default()));
            }
            // Those with one variable are expanded by the parser.
            let two_variables = match name {
                "transformList" | "transformMap" | "transformMapEntry" | "existsOne" => true,
                "all" | "exists" | "exists_one" => call.args.len() == 3,
                _ => false,
            };
            if two_variables && call.target.is_some() {
                return Some(format!("comprehensions with two variables (`{name}`)"));
            }
            call.target.as_deref().and_then(left_out).or_else(|| all(&call.args))
        }
        Expr::Comprehension(comprehension) => [
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ]
        .into_iter()
        .find_map(left_out),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => left_out(&entry.key).or_else(|| left_out(&entry.value)),
            EntryExpr::StructField(field) => left_out(&field.value),
        }),
        Expr::Select(select) => left_out(&select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => None,
    }
}

fn not_at(source: &str, kind: SyntaxKind, message: String) -> SyntaxError {
    SyntaxError {
        kind,
        message,
        offset: 0,
        length: source.len(),
    }
}

/// The first error of the parser. Its position is a line and a column in characters, both from one.
fn syntax(source: &str, errors: &ParseErrors) -> SyntaxError {
    let Some(error) = errors.errors.first() else {
        return not_at(source, SyntaxKind::Invalid, "the expression is not valid".to_owned());
    };
    let (line, column) = error.pos;
    let line = usize::try_from(line - 1).unwrap_or(0);
    let column = usize::try_from(column - 1).unwrap_or(0);
    let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = source.get(start..).unwrap_or_default();
    let within: usize = rest.chars().take(column).map(char::len_utf8).sum();
    let offset = (start + within).min(source.len());
    SyntaxError {
        kind: SyntaxKind::Invalid,
        message: shortened(error.msg.clone()),
        offset,
        length: source[offset..].chars().next().map_or(0, char::len_utf8),
    }
}

/// The message of an error. It names types and what the expression itself contains, never a value of the data: errors are
/// stored and shown, and data may hold secrets.
fn explain(source: &str, error: &ExecutionError) -> EvalError {
    use ExecutionError::*;
    let message = match error {
        UndeclaredReference(name) => format!(
            "undeclared reference to `{name}`: no key of the data and no function has this name (protobuf types are not part of the CEL subset); `has(state.key)` tests for a key that may be missing"
        ),
        UnsupportedBinaryOperator(operator, left, right) => format!(
            "no matching overload: `{operator}` of {} and {}; convert one of them, as in `double(n)`",
            type_of(left),
            type_of(right)
        ),
        ValuesNotComparable(left, right) => {
            format!("a {} cannot be compared with a {}", type_of(left), type_of(right))
        }
        UnsupportedIndex(index, of) => format!("a {} cannot be the index of a {}", type_of(index), type_of(of)),
        UnsupportedKeyType(key) => format!("a {} cannot be the key of a map", type_of(key)),
        UnsupportedTargetType { target } => format!("a {} is not accepted here", type_of(target)),
        NotSupportedAsMethod { method, target } => format!("a {} has no method `{method}`", type_of(target)),
        NoSuchKey(key) if source.contains(key.as_str()) => format!("no such key: `{key}`"),
        NoSuchKey(_) => "no such key".to_owned(),
        DuplicateKey(_) => "a map has the same key twice".to_owned(),
        IndexOutOfBounds(_) => "the index is out of bounds".to_owned(),
        DivisionByZero(_) => "division by zero".to_owned(),
        RemainderByZero(_) => "remainder of a division by zero".to_owned(),
        Overflow(operator, ..) => format!("overflow of `{operator}`"),
        // A number in the message may be a value of the data.
        FunctionError { function, message }
            if (PLAIN_ERRORS.contains(&function.as_str()) || function.starts_with("math."))
                && !message.contains(|c: char| c.is_ascii_digit()) =>
        {
            format!("`{function}` failed: {message}")
        }
        FunctionError { function, .. } => format!("`{function}` failed: its argument is not valid"),
        // Some functions put the value itself where its type should be.
        UnexpectedType { got, want } => match TYPES.contains(&got.as_str()) {
            true => format!("a {got} is given where a {want} is expected"),
            false => format!("the value is not of the type that is expected ({want})"),
        },
        InvalidArgumentCount { .. } | NoSuchOverload(_) | MissingArgumentOrTarget => error.to_string(),
        _ => "the expression cannot be evaluated with this data".to_owned(),
    };
    failed(EvalErrorKind::Thrown, shortened(message))
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        text.truncate(text.floor_char_boundary(LONGEST_MESSAGE));
        text.push('…');
    }
    text
}
