//! The structure of the document: what `schemas/dataworkflows.json` says, in our own words.

use super::view::View;
use super::{Check, SCHEMA, text};
use crate::diagnostics::quote;
use crate::explain::explain;
use jsonschema::Validator;
use serde_json::Value;
use std::sync::LazyLock;

struct Compiled {
    schema: Value,
    validator: Validator,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).expect("schemas/dataworkflows.json is JSON");
    let validator = jsonschema::validator_for(&schema).expect("schemas/dataworkflows.json is a JSON Schema");
    Compiled { schema, validator }
});

pub(super) fn check(check: &mut Check, view: &View) {
    let value = check.document.value();
    for error in COMPILED.validator.iter_errors(value) {
        for found in explain(&error, &COMPILED.schema, |pointer| subject(value, pointer)) {
            let mut problem = check.error(found.code, &found.pointer, found.message);
            if found.at_key {
                problem.span = check.document.locate_key(&found.pointer);
            }
            problem.suggestion = found.suggestion;
            check.add(problem);
        }
    }
    for node in &view.nodes {
        required_by_type(check, node);
    }
}

/// What the schema cannot say: the field that a node needs depends on its type.
fn required_by_type(check: &mut Check, node: &super::view::Node) {
    let (field, what) = if node.is_subworkflow() {
        ("workflowId", "subworkflow node")
    } else if node.value.get("nodeType").is_none_or(|kind| kind == "action") {
        ("actionType", "action node")
    } else {
        return;
    };
    if node.value.get(field).is_none() {
        let message = format!("the field `{field}` is missing in {what} {}", quote(node.id));
        let problem = check.error("MISSING_FIELD", &node.pointer, message);
        check.add(problem);
    }
    if node.is_subworkflow() {
        let pointer = format!("{}/nodeType", node.pointer);
        let message = "subworkflow nodes are not supported by this version";
        let problem = check.error("SUBWORKFLOW_NOT_SUPPORTED", &pointer, message);
        check.add(problem);
    }
}

/// What a pointer leads to, in words.
fn subject(document: &Value, pointer: &str) -> String {
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    let node = |at: &str| match document
        .pointer(&format!("/nodes/{at}"))
        .and_then(|node| text(node, "id"))
    {
        Some(id) => format!("node {}", quote(id)),
        None => "a node".to_owned(),
    };
    match steps.as_slice() {
        [] => "the workflow".to_owned(),
        ["nodes", at] => node(at),
        ["nodes", at, "edges", _] => format!("an edge of {}", node(at)),
        ["nodes", at, .., last] => format!("`{last}` of {}", node(at)),
        [.., last] => format!("`{last}`"),
    }
}
