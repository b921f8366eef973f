//! `fermata eval --batch`: a line in, a line out, until the input ends. No line ends the program.

use super::{EvalFailure, Language, Rules, evaluate, jsonlogic, operators};
use fermata_expr::jsonlogic::Rule;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Write};

/// A longer line is answered without being read into memory.
const LONGEST: usize = 64 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    language: Language,
    /// A string; in JSONLogic any JSON, or a string with the rule as JSON.
    expression: Value,
    #[serde(default = "nothing")]
    data: Value,
    /// Of JSONLogic, whether only the operators are accepted that documents may use by default.
    #[serde(default)]
    strict: bool,
}

fn nothing() -> Value {
    Value::Object(Map::new())
}

/// Answers every line. A closed stdout ends it without an error.
pub(super) async fn run(rules: &Rules, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    while let Some(line) = next(input)? {
        if line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty()) {
            continue;
        }
        let answer = match line {
            Ok(line) => answer(&line, rules).await,
            Err(TooLong) => refusal(&format!("the line is longer than {LONGEST} bytes"), 0),
        };
        let written = writeln!(output, "{answer}").and_then(|()| output.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    Ok(())
}

struct TooLong;

/// The next line, without more of it in memory than [`LONGEST`].
fn next(input: &mut dyn BufRead) -> io::Result<Option<Result<Vec<u8>, TooLong>>> {
    let (mut line, mut too_long, mut any) = (Vec::new(), false, false);
    loop {
        let chunk = input.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        any = true;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        too_long |= line.len() + part.len() > LONGEST;
        match too_long {
            true => line = Vec::new(),
            false => line.extend_from_slice(part),
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(any.then_some(if too_long { Err(TooLong) } else { Ok(line) }))
}

async fn answer(line: &[u8], rules: &Rules) -> Value {
    let request: Line = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return refusal(&format!("the line is not a request: {error}"), error.column()),
    };
    let operators = operators(request.strict);
    as_json(&match (request.language, &request.expression) {
        (language, Value::String(text)) => evaluate(language, text, &request.data, operators, rules).await,
        (Language::JsonLogic, rule) => jsonlogic(Rule::parse(rule, operators), &request.data, rules).await,
        (_, other) => {
            return refusal(
                &format!("the line is not a request: `expression` is {other}, not a string"),
                0,
            );
        }
    })
}

/// A value or an error as one JSON object.
pub(super) fn as_json(evaluated: &Result<Option<Value>, EvalFailure>) -> Value {
    match evaluated {
        Ok(Some(value)) => json!({ "value": value }),
        Ok(None) => json!({ "value": null, "undefined": true }),
        Err(EvalFailure {
            kind, message, offset, ..
        }) => json!({ "error": { "kind": kind, "message": message, "offset": offset } }),
    }
}

fn refusal(message: &str, offset: usize) -> Value {
    json!({ "error": { "kind": "BadRequest", "message": message, "offset": offset } })
}
