//! Checks the structure of a document against `schemas/dataworkflows.json`.

use super::view::{Node, View};
use super::{Check, SCHEMA, text};
use crate::diagnostics::{Severity, quote};
use crate::structure::Structure;
use crate::triggers;
use jsonschema::ValidationError;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::LazyLock;

static STRUCTURE: LazyLock<Structure> = LazyLock::new(|| Structure::new(SCHEMA));

pub(super) fn check(check: &mut Check, view: &View) {
    let value = check.document.value();
    // Rules that depend on the type of a node are in the schema for editors. Here they have their own messages.
    let by_type = |error: &ValidationError| error.schema_path().as_str().contains("/allOf/");
    let meant = STRUCTURE.check(check, |pointer| subject(value, pointer), by_type);
    for node in &view.nodes {
        required_by_type(check, node, &meant);
    }
}

/// Checks what the schema cannot express: which field a node needs depends on its type. `meant` are
/// fields that are present under a misspelled name.
fn required_by_type(check: &mut Check, node: &Node, meant: &HashSet<String>) {
    let (field, what) = if node.is_subworkflow() {
        ("workflowId", "subworkflow node")
    } else if node.value.get("nodeType").is_none_or(|kind| kind == "action") {
        ("actionType", "action node")
    } else {
        return;
    };
    let missing = node.value.get(field).is_none() && !meant.contains(&format!("{}/{field}", node.pointer));
    if missing && check.room(Severity::Error) {
        let message = format!("the field `{field}` is missing in {what} {}", quote(node.id));
        let problem = check.error("MISSING_FIELD", &node.pointer, message);
        check.add(problem);
    }
}

/// Describes what a pointer leads to.
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
        ["triggers", at] => triggers::subject(document, at),
        ["triggers", at, .., last] => format!("`{last}` of {}", triggers::subject(document, at)),
        [.., last] => format!("`{last}`"),
    }
}
