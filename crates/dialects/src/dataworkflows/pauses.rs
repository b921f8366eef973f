//! Checks nodes that wait: for a callback (`core.wait`), for a person (`core.approval`) and for another workflow.

use super::plan::{APPROVAL, WAIT};
use super::view::{Node, View};
use super::{Check, text};
use crate::child::CHILD;
use crate::compile::whole;
use crate::diagnostics::{Severity, quote};
use crate::for_each;
use serde_json::Value;
use std::collections::HashSet;

/// Fields that only subworkflow nodes have, beside those of `forEach`.
const OF_CHILDREN: [&str; 3] = ["workflowId", "workflowVersion", "waitForCompletion"];

pub(super) fn check(check: &mut Check, view: &View) {
    for node in &view.nodes {
        if node.is_subworkflow() {
            child(check, node);
            continue;
        }
        let fields = OF_CHILDREN.into_iter().chain(for_each::FIELDS);
        for field in fields.filter(|field| node.value.get(*field).is_some()) {
            misplaced(check, node, field, "only nodes with `nodeType: subworkflow` have it");
        }
        match text(node.value, "actionType") {
            Some(WAIT) => number(check, node, "timeoutMs"),
            Some(APPROVAL) => approval(check, node),
            _ => {}
        }
    }
}

fn misplaced(check: &mut Check, node: &Node, field: &str, help: &str) {
    if check.room(Severity::Error) {
        let pointer = format!("{}/{field}", node.pointer);
        let message = format!("node {} cannot have `{field}`", quote(node.id));
        let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        check.add(problem.help(help));
    }
}

fn child(check: &mut Check, node: &Node) {
    if node.value.get("actionType").is_some() {
        misplaced(
            check,
            node,
            "actionType",
            "a subworkflow node runs the workflow of its `workflowId`",
        );
    }
    for_each::check(check, node.id, node.value, &node.pointer);
    let (code, state) = match check.catalog.find(CHILD) {
        Some(entry) if entry.enabled => ("", ""),
        Some(_) => ("DISABLED_ACTION", "disabled"),
        None => ("UNKNOWN_ACTION", "missing"),
    };
    if !code.is_empty() && check.room(check.readiness()) {
        let message = format!(
            "node {} needs the action `{CHILD}`, which is {state} on this server",
            quote(node.id)
        );
        let problem = check.not_ready(code, &format!("{}/nodeType", node.pointer), message);
        check.add(problem);
    }
    let own = text(check.document.value(), "id");
    if !check.settings.allow_recursion
        && own.is_some()
        && text(node.value, "workflowId") == own
        && check.room(check.readiness())
    {
        let message = format!("node {} starts the workflow that it belongs to", quote(node.id));
        let problem = check.not_ready("RECURSIVE_WORKFLOW", &format!("{}/workflowId", node.pointer), message);
        check.add(problem.help("a workflow cannot start itself unless `subworkflows.allow_recursion` is set"));
    }
}

/// A parameter that is part of the plan: a number, not a template.
fn number(check: &mut Check, node: &Node, field: &str) {
    let Some(value) = node.value.pointer(&format!("/parameters/{field}")) else {
        return;
    };
    if whole(value).is_none_or(|ms| ms == 0) {
        let must = "a number of milliseconds above zero";
        let help = "it is fixed when the workflow is published, so it cannot be a template";
        wrong_parameter(check, node, field, must, help);
    }
}

fn wrong_parameter(check: &mut Check, node: &Node, field: &str, must: &str, help: &str) {
    if check.room(Severity::Error) {
        let pointer = format!("{}/parameters/{field}", node.pointer);
        let message = format!("`{field}` of node {} must be {must}", quote(node.id));
        let problem = check.error("INVALID_PARAMETERS", &pointer, message);
        check.add(problem.help(help));
    }
}

fn approval(check: &mut Check, node: &Node) {
    number(check, node, "deadlineMs");
    let Some(outcomes) = node.value.pointer("/parameters/outcomes") else {
        return;
    };
    let texts: Option<Vec<&str>> = outcomes
        .as_array()
        .map(|list| list.iter().map_while(Value::as_str).collect());
    let list = outcomes.as_array().map_or(0, Vec::len);
    let valid = texts.as_ref().is_some_and(|texts| {
        let distinct: HashSet<&&str> = texts.iter().collect();
        texts.len() == list && distinct.len() == list && list > 0 && texts.iter().all(|text| is_outcome(text))
    });
    if !valid {
        let help = "such as `[\"approve\", \"reject\"]`; they cannot be templates";
        wrong_parameter(check, node, "outcomes", "a list of different texts", help);
    }
}

fn is_outcome(text: &str) -> bool {
    !text.is_empty() && text.len() <= 255 && !text.contains("{{")
}
