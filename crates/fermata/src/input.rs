//! Values from the command line: `key=value`, `{…}`, `@file.json` and `-` become one JSON value.

use serde_json::{Map, Value};
use std::io::Read;

/// Combines all uses of a flag into one value. Later ones override earlier ones.
pub fn value(flag: &str, inputs: &[String], stdin: &mut dyn Read) -> Result<Value, String> {
    let mut whole = Value::Object(Map::new());
    let mut stdin = Some(stdin);
    for (index, input) in inputs.iter().enumerate() {
        let (name, text) = match (input.strip_prefix('@'), input.as_str()) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path);
                (path, text.map_err(|error| format!("{flag} {input}: {error}"))?)
            }
            (None, "-") => {
                let stdin = stdin.take().ok_or_else(|| format!("{flag} - can be given only once"))?;
                let mut text = String::new();
                stdin
                    .read_to_string(&mut text)
                    .map_err(|error| format!("{flag} -: {error}"))?;
                ("stdin", text)
            }
            (None, object) if object.trim_start().starts_with('{') => ("it", object.to_owned()),
            (None, pair) => {
                assign(&mut whole, pair).map_err(|wrong| format!("{flag} {input}: {wrong}"))?;
                continue;
            }
        };
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("{flag} {input}: {name} is not JSON: {error}"))?;
        match (&mut whole, value) {
            (Value::Object(into), Value::Object(from)) => overlay(into, from),
            (whole, value) if index == 0 => *whole = value,
            _ => {
                return Err(format!(
                    "{flag} {input}: only objects can be combined with other inputs"
                ));
            }
        }
    }
    Ok(whole)
}

/// Combines `--var` with the variables of the configuration, which it overrides.
pub fn vars(base: Map<String, Value>, pairs: &[String]) -> Result<Map<String, Value>, String> {
    let mut whole = Value::Object(base);
    for pair in pairs {
        if !pair.contains('=') {
            return Err(format!("--var {pair}: write it as key=value"));
        }
        assign(&mut whole, pair).map_err(|wrong| format!("--var {pair}: {wrong}"))?;
    }
    match whole {
        Value::Object(vars) => Ok(vars),
        _ => Ok(Map::new()),
    }
}

/// A value that is valid JSON is JSON, any other is text.
pub fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Sets `a.b=value` in an object.
fn assign(whole: &mut Value, pair: &str) -> Result<(), String> {
    let (key, text) = pair
        .split_once('=')
        .ok_or("write it as key=value, {…}, @file.json, or - for standard input")?;
    if key.split('.').any(str::is_empty) {
        return Err(format!("`{key}` is not a key; write it like `name` or `order.id`"));
    }
    let value = json_or_text(text);
    let mut at = whole;
    let mut steps = key.split('.').peekable();
    while let Some(step) = steps.next() {
        let Value::Object(map) = at else {
            return Err(format!("`{step}` cannot be set, because its parent is not an object"));
        };
        if steps.peek().is_none() {
            map.insert(step.to_owned(), value);
            return Ok(());
        }
        at = map.entry(step).or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(())
}

fn overlay(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => overlay(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(inputs: &[&str], stdin: &str) -> Result<Value, String> {
        let inputs: Vec<String> = inputs.iter().map(|input| (*input).to_owned()).collect();
        value("--input", &inputs, &mut stdin.as_bytes())
    }

    #[test]
    fn pairs_files_and_stdin_become_one_value() {
        assert_eq!(read(&[], ""), Ok(json!({})));
        let pairs = [
            "name=Ada",
            "n=42",
            "ok=true",
            "text=\"42\"",
            "list=[1,2]",
            "order.id=7",
            "order.to=x=y",
        ];
        let expected = json!({
            "name": "Ada", "n": 42, "ok": true, "text": "42", "list": [1, 2], "order": {"id": 7, "to": "x=y"}
        });
        assert_eq!(read(&pairs, ""), Ok(expected));
        let combined = read(&["-", "a.c=3"], r#"{"a": {"b": 1, "c": 2}}"#);
        assert_eq!(combined, Ok(json!({"a": {"b": 1, "c": 3}})));
        assert_eq!(read(&["-"], "[1]"), Ok(json!([1])));
        let object = read(&[r#"{"url": "http://x?a=b"}"#, "n=1"], "");
        assert_eq!(object, Ok(json!({ "url": "http://x?a=b", "n": 1 })));
    }

    #[test]
    fn wrong_inputs_are_refused_with_the_reason() {
        for (inputs, stdin, says) in [
            (&["name"][..], "", "write it as key=value"),
            (&["=1"], "", "is not a key"),
            (&["a..b=1"], "", "is not a key"),
            (&["a=1", "a.b=2"], "", "is not an object"),
            (&["-"], "{", "stdin is not JSON"),
            (&["{a=1"], "", "it is not JSON"),
            (&["-", "-"], "{}", "only once"),
            (&["a=1", "-"], "[1]", "only objects"),
            (&["@/nowhere.json"], "", "No such file"),
        ] {
            let refused = read(inputs, stdin).expect_err(says);
            assert!(refused.contains(says), "{refused}");
        }
    }
}
