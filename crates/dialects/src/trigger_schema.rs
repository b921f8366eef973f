//! Checks that the schema of the trigger is a JSON Schema that can be used without fetching other schemas.

mod cost;

use crate::check::Check;
use crate::diagnostics::{MAX_SHOWN, Severity, quote};
use crate::tree::join;
use cost::{Excess, MAX_COST};
use fermata_expr::nearest;
use jsonschema::ValidationError;
use serde_json::Value;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Checks `schema`. `place` gives the pointer in the document for a pointer in the schema.
pub(crate) fn check(check: &mut Check, schema: &Value, place: impl Fn(&str) -> String) {
    let before = check.problems.len();
    match jsonschema::meta::validator_for(schema) {
        Ok(meta) => {
            for error in meta.iter_errors(schema) {
                report(check, &error, &place);
            }
        }
        Err(_) => {
            let pointer = place("/$schema");
            let kind = schema.get("$schema").and_then(|kind| kind.as_str()).unwrap_or_default();
            let message = format!("{} is not a known JSON Schema version", quote(kind));
            let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
            let help = "use `http://json-schema.org/draft-07/schema#`, or remove `$schema`";
            check.add(problem.help(help));
        }
    }
    if check.problems.len() == before
        && let Err(excess) = cost::check(schema)
    {
        return refuse(check, &excess, &place);
    }
    // Only a valid schema is checked for references that do not resolve and for invalid patterns.
    if check.problems.len() == before
        && let Err(error) = jsonschema::validator_for(schema)
    {
        let mut lost = Vec::new();
        lost_references(schema, schema, String::new(), &mut lost);
        if lost.is_empty() {
            report(check, &error, &place);
        }
        for (pointer, target) in lost {
            let pointer = place(&pointer);
            let message = format!(
                "the trigger schema refers to {}, which does not exist in it",
                quote(target)
            );
            let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
            check.add(problem.help("other documents are not fetched: define the schema below `definitions`"));
        }
    }
}

/// Reports a schema that would be too expensive to check.
fn refuse(check: &mut Check, excess: &Excess, place: &impl Fn(&str) -> String) {
    let (pointer, message, help) = match excess {
        Excess::Cost(pointer) => (
            pointer,
            format!("checking one trigger may apply more than {MAX_COST} schemas, because the references multiply"),
            "use fewer references in `anyOf`, `oneOf` and `allOf`: each level multiplies those below it",
        ),
        Excess::Depth(pointer) => (
            pointer,
            "the references of the trigger schema are nested too deeply".to_owned(),
            "replace a long chain of references by the schema at its end",
        ),
        Excess::Endless(pointer) => (
            pointer,
            "this schema applies itself to the same value without end".to_owned(),
            "a schema may refer to itself only for parts of a value, in `properties` or `items`",
        ),
    };
    let problem = check.error("INVALID_TRIGGER_SCHEMA", &place(pointer), message);
    check.add(problem.help(help));
}

/// The `$ref`s of `schema` that do not resolve. Recursion is bounded by the depth limit of documents.
fn lost_references<'a>(schema: &'a Value, part: &'a Value, pointer: String, lost: &mut Vec<(String, &'a str)>) {
    match part {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                lost_references(schema, item, format!("{pointer}/{at}"), lost);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                let pointer = join(&pointer, key);
                match item.as_str().filter(|_| key == "$ref") {
                    Some(target) if lost.len() < MAX_SHOWN => {
                        let inside = target
                            .strip_prefix('#')
                            .filter(|inside| inside.is_empty() || inside.starts_with('/'));
                        if inside.and_then(|inside| schema.pointer(inside)).is_none() {
                            lost.push((pointer, target));
                        }
                    }
                    _ => lost_references(schema, item, pointer, lost),
                }
            }
        }
        _ => {}
    }
}

fn report(check: &mut Check, error: &ValidationError, place: &impl Fn(&str) -> String) {
    if !check.room(Severity::Error) {
        return;
    }
    let pointer = place(error.instance_path().as_str());
    let given = error.instance().as_str().unwrap_or_default();
    if pointer.ends_with("/type") && error.instance().is_string() {
        let message = format!(
            "{} is not a JSON Schema type; the types are {}",
            quote(given),
            TYPES.join(", ")
        );
        let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
        return check.add(problem.did_you_mean(nearest(given, TYPES)));
    }
    let message = format!("the trigger schema is not a valid JSON Schema: {error}");
    let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
    check.add(problem);
}
