//! Whether the actions are there, and whether their parameters can be right.
//!
//! A string with a template in it can become anything, so of a value that holds one only the names
//! of its fields are judged.

use super::view::{Node, View};
use super::{Check, text};
use crate::compile::CatalogEntry;
use crate::diagnostics::quote;
use crate::explain::explain;
use crate::nearest::nearest;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

pub(super) fn check(check: &mut Check, view: &View) {
    let mut names: Option<Vec<String>> = None;
    for node in view.nodes.iter().filter(|node| !node.is_subworkflow()) {
        let Some(action) = text(node.value, "actionType") else {
            continue;
        };
        let pointer = format!("{}/actionType", node.pointer);
        match check.catalog.find(action) {
            None => {
                let names = names.get_or_insert_with(|| check.catalog.names());
                let near = nearest(action, names.iter().map(String::as_str));
                let message = format!("there is no action {}", quote(action));
                let problem = check.not_ready("UNKNOWN_ACTION", &pointer, message);
                check.add(problem.did_you_mean(near));
            }
            Some(entry) => known(check, node, action, &pointer, &entry),
        }
    }
}

fn known(check: &mut Check, node: &Node, action: &str, pointer: &str, entry: &CatalogEntry) {
    if !entry.enabled {
        let message = format!("the action {} is disabled", quote(action));
        let problem = check.not_ready("DISABLED_ACTION", pointer, message);
        check.add(problem.help("enable it in the action catalog, or use another one"));
    }
    if let Some(advice) = &entry.deprecation {
        let message = format!("the action {} is deprecated", quote(action));
        let problem = check.warning("DEPRECATED_ACTION", pointer, message);
        check.add(problem.help(advice.as_str()));
    }
    if let Some(schema) = &entry.parameter_schema {
        parameters(check, node, action, schema);
    }
}

fn parameters(check: &mut Check, node: &Node, action: &str, schema: &Value) {
    // A schema that is no schema is the catalog's problem, not this document's.
    let Ok(validator) = jsonschema::validator_for(schema) else {
        return;
    };
    let none = Value::Object(serde_json::Map::new());
    let given = node.value.get("parameters");
    if given.is_some_and(|given| !given.is_object()) {
        return;
    }
    let given = given.unwrap_or(&none);
    for error in validator.iter_errors(given) {
        if !certain(&error, given) {
            continue;
        }
        let subject = |pointer: &str| match pointer {
            "" => format!("the parameters of {}", quote(action)),
            pointer => quote(&pointer[1..].replace('/', ".")),
        };
        for found in explain(&error, schema, subject) {
            let pointer = format!("{}/parameters{}", node.pointer, found.pointer);
            let mut problem = check.not_ready("INVALID_PARAMETERS", &pointer, found.message);
            if found.at_key {
                problem.span = check.document.locate_key(&pointer);
            }
            problem.suggestion = found.suggestion;
            check.add(problem);
        }
    }
}

/// Whether the error stands whatever the templates below it become.
fn certain(error: &jsonschema::ValidationError, parameters: &Value) -> bool {
    let by_name = matches!(
        error.kind(),
        ValidationErrorKind::AdditionalProperties { .. } | ValidationErrorKind::Required { .. }
    );
    let subject = parameters.pointer(error.instance_path().as_str());
    by_name || !subject.is_some_and(has_template)
}

fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{"),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(map) => map.values().any(has_template),
        _ => false,
    }
}
