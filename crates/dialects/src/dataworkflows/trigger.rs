//! `triggerSchema` must itself be a JSON Schema that can be used without fetching anything.

use super::{
    Check,
    schema_cost::{self, Excess, MAX_COST},
};
use crate::diagnostics::{MAX_SHOWN, Severity, quote};
use crate::tree::join;
use fermata_expr::nearest;
use jsonschema::ValidationError;
use serde_json::Value;

const AT: &str = "/triggerSchema";
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

pub(super) fn check(check: &mut Check) {
    let Some(schema) = check
        .document
        .value()
        .get("triggerSchema")
        .filter(|schema| schema.is_object())
    else {
        return;
    };
    let before = check.problems.len();
    match jsonschema::meta::validator_for(schema) {
        Ok(meta) => {
            for error in meta.iter_errors(schema) {
                report(check, &error);
            }
        }
        Err(_) => {
            let pointer = format!("{AT}/$schema");
            let kind = schema.get("$schema").and_then(|kind| kind.as_str()).unwrap_or_default();
            let message = format!("{} is not a kind of JSON Schema that is known", quote(kind));
            let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
            let help = "use `http://json-schema.org/draft-07/schema#` or leave `$schema` out";
            check.add(problem.help(help));
        }
    }
    if check.problems.len() == before
        && let Err(excess) = schema_cost::check(schema)
    {
        return refuse(check, &excess);
    }
    // Only then: references that lead nowhere, patterns that are no patterns.
    if check.problems.len() == before
        && let Err(error) = jsonschema::validator_for(schema)
    {
        let mut lost = Vec::new();
        lost_references(schema, schema, AT.to_owned(), &mut lost);
        if lost.is_empty() {
            report(check, &error);
        }
        for (pointer, target) in lost {
            let message = format!("the trigger schema refers to {}, which is not there", quote(target));
            let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
            check.add(problem.help("schemas are not fetched: what is referred to must be in the document"));
        }
    }
}

/// A schema that would keep the server busy.
fn refuse(check: &mut Check, excess: &Excess) {
    let (pointer, message, help) = match excess {
        Excess::Cost(pointer) => (
            pointer,
            format!(
                "the trigger schema stands for more than {MAX_COST} schemas, all of which one trigger may have to fit"
            ),
            "refer to fewer schemas in `anyOf`, `oneOf` and `allOf`: each level multiplies those below it",
        ),
        Excess::Depth(pointer) => (
            pointer,
            "the schemas of the trigger schema refer to each other too deeply".to_owned(),
            "write out what a long chain of references stands for",
        ),
        Excess::Endless(pointer) => (
            pointer,
            "this schema applies itself to the same value again, for ever".to_owned(),
            "a schema may refer to itself only for parts of a value, in `properties` or `items`",
        ),
    };
    let problem = check.error("INVALID_TRIGGER_SCHEMA", &format!("{AT}{pointer}"), message);
    check.add(problem.help(help));
}

/// The `$ref`s that lead to nothing in `schema`; the depth of a document is limited.
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

fn report(check: &mut Check, error: &ValidationError) {
    if !check.room(Severity::Error) {
        return;
    }
    let pointer = format!("{AT}{}", error.instance_path().as_str());
    let given = error.instance().as_str().unwrap_or_default();
    if pointer.ends_with("/type") && error.instance().is_string() {
        let message = format!(
            "{} is not a type of JSON Schema; the types are {}",
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
