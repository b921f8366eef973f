//! Checks that the actions exist and that their parameters can be valid.
//!
//! A string with a template can become any value. In a value that contains one, only the field names
//! are checked.

use super::plan::WAIT;
use super::view::{Node, View};
use super::{Check, text};
use crate::child::CHILD;
use crate::compile::{Catalog, CatalogEntry};
use crate::diagnostics::{MAX_SHOWN, Severity, quote};
use crate::explain::{explain, without_consequences};
use crate::http_request;
use fermata_expr::nearest;
use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The most action types that a message lists.
const LISTED: usize = 15;

/// An action of the catalog, looked up once per document.
struct Known {
    entry: CatalogEntry,
    validator: Option<Validator>,
}

pub(super) fn check(check: &mut Check, view: &View) {
    let mut actions: HashMap<&str, Option<Known>> = HashMap::new();
    let mut names: Option<Vec<String>> = None;
    for node in view.nodes.iter().filter(|node| !node.is_subworkflow()) {
        let Some(action) = text(node.value, "actionType") else {
            continue;
        };
        match actions.entry(action).or_insert_with(|| look_up(check.catalog, action)) {
            Some(known) => known_action(check, node, action, known),
            None if check.room(check.readiness()) => {
                let names = names.get_or_insert_with(|| usable_names(check.catalog));
                let near = nearest(action, names.iter().map(String::as_str));
                let (id, action) = (quote(node.id), quote(action));
                let message = format!("node {id} uses the action {action}, which does not exist");
                let problem = check.not_ready("UNKNOWN_ACTION", &format!("{}/actionType", node.pointer), message);
                let problem = match near {
                    None if !names.is_empty() && names.len() <= LISTED => {
                        let listed: Vec<String> = names.iter().map(|name| quote(name)).collect();
                        problem.help(format!("the actions are {}", listed.join(", ")))
                    }
                    near => problem.did_you_mean(near),
                };
                check.add(problem);
            }
            None => {}
        }
    }
}

/// The action types that a document can use.
fn usable_names(catalog: &dyn Catalog) -> Vec<String> {
    let mut names = catalog.names();
    names.retain(|name| !INTERNAL.contains(&name.as_str()));
    names.push(WAIT.to_owned());
    names.sort();
    names
}

/// Actions that only the engine calls, for nodes that are not written as actions.
const INTERNAL: [&str; 4] = ["callback", "event", "http.task", CHILD];

fn look_up(catalog: &dyn Catalog, action: &str) -> Option<Known> {
    let entry = match action {
        WAIT => CatalogEntry {
            parameter_schema: Some(json!({
                "type": "object",
                "additionalProperties": false,
                "properties": { "timeoutMs": {} }
            })),
            ..CatalogEntry::default()
        },
        action if INTERNAL.contains(&action) => return None,
        action => catalog.find(action)?,
    };
    // An invalid schema is an error of the catalog, not of this document.
    let validator = entry
        .parameter_schema
        .as_ref()
        .and_then(|schema| jsonschema::validator_for(schema).ok());
    Some(Known { entry, validator })
}

fn known_action(check: &mut Check, node: &Node, action: &str, known: &Known) {
    let pointer = format!("{}/actionType", node.pointer);
    if !known.entry.enabled && check.room(check.readiness()) {
        let message = format!(
            "node {} uses the action {}, which is disabled",
            quote(node.id),
            quote(action)
        );
        let problem = check.not_ready("DISABLED_ACTION", &pointer, message);
        check.add(problem.help("use another action"));
    }
    if let Some(advice) = &known.entry.deprecation
        && check.room(Severity::Warning)
    {
        let message = format!(
            "node {} uses the action {}, which is deprecated",
            quote(node.id),
            quote(action)
        );
        let problem = check.warning("DEPRECATED_ACTION", &pointer, message);
        check.add(problem.help(advice.as_str()));
    }
    if let (Some(schema), Some(validator)) = (&known.entry.parameter_schema, &known.validator) {
        parameters(check, node, schema, validator);
    }
    if action == http_request::ACTION {
        request(check, node);
    }
}

/// Checks of an HTTP request that a JSON Schema cannot express.
fn request(check: &mut Check, node: &Node) {
    let Some(parameters) = node.value.get("parameters") else {
        return;
    };
    let of = format!("node {}", quote(node.id));
    if let Some(headers) = parameters.get("headers") {
        http_request::check_headers(check, &format!("{}/parameters/headers", node.pointer), headers, &of);
    }
    let literal = text(parameters, "url").filter(|url| !url.contains("{{"));
    if let Some(what) = literal.and_then(http_request::wrong_url)
        && check.room(check.readiness())
    {
        let pointer = format!("{}/parameters/url", node.pointer);
        let problem = check.not_ready("INVALID_URL", &pointer, format!("the `url` of {of} {what}"));
        check.add(problem);
    }
}

fn parameters(check: &mut Check, node: &Node, schema: &Value, validator: &Validator) {
    let none = Value::Object(serde_json::Map::new());
    let given = match node.value.get("parameters") {
        Some(given) if !given.is_object() => return,
        Some(given) => given,
        None => &none,
    };
    let subject = |pointer: &str| match pointer {
        "" => format!("the parameters of node {}", quote(node.id)),
        pointer => format!("{} of node {}", quote(&pointer[1..].replace('/', ".")), quote(node.id)),
    };
    let errors = validator
        .iter_errors(given)
        .filter(|error| certain(error, given))
        .take(MAX_SHOWN);
    let all = errors.flat_map(|error| explain(&error, schema, subject)).collect();
    for found in without_consequences(all) {
        if check.room(check.readiness()) {
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

/// Whether the error remains whatever values the templates below it have.
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
