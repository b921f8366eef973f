//! Checks each node: which fields its type needs and forbids, and its executor.

use super::plan;
use super::view::{ConditionKind, Node, NodeType, View};
use crate::check::{Check, template_strings, text};
use crate::child::CHILD;
use crate::diagnostics::{Severity, quote};
use crate::for_each;
use crate::http_request::{check_headers, wrong_url};
use crate::secrets;
use fermata_expr::nearest;
use fermata_expr::template::Template;
use serde_json::Value;
use std::collections::HashSet;

/// The fields of a config that only some executors have.
const CONFIG_FIELDS: [(&str, &[&str]); 10] = [
    ("url", &["callback", "http", "event"]),
    ("callback_id", &["callback"]),
    ("queue", &["callback"]),
    ("title", &["callback"]),
    ("description", &["callback"]),
    ("fields", &["callback"]),
    ("headers", &["http"]),
    ("event_type", &["event"]),
    ("source", &["event"]),
    ("await", &["event"]),
];

/// `meant` are fields that are present under a misspelled name.
pub(super) fn check(check: &mut Check, view: &View, meant: &HashSet<String>) {
    duplicates(check, view);
    for node in &view.nodes {
        let Some(kind) = node.kind else { continue };
        fields_of_type(check, node, kind, meant);
        for field in for_each::FIELDS {
            if kind != NodeType::Subgraph && node.value.get(field).is_some() && check.room(Severity::Error) {
                let pointer = format!("{}/{field}", node.pointer);
                let message = format!("{} node {} cannot have `{field}`", kind.name(), quote(node.id));
                let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
                problem.span = check.document.locate_key(&pointer);
                check.add(problem.help("only subgraph nodes have it"));
            }
        }
        match kind {
            NodeType::Subgraph => subgraph(check, node),
            NodeType::Task | NodeType::Decision | NodeType::Tool => executor(check, view, node, kind, meant),
        }
        terminal(check, view, node);
    }
}

fn duplicates(check: &mut Check, view: &View) {
    for (at, node) in view.nodes.iter().enumerate() {
        let first = view.by_id.get(node.id).copied().unwrap_or(at);
        if first != at && check.room(Severity::Error) {
            let place = check.document.locate(&format!("{}/id", view.nodes[first].pointer));
            let message = format!("the node id {} is used twice", quote(node.id));
            let problem = check.error("DUPLICATE_NODE_ID", &format!("{}/id", node.pointer), message);
            check.add(
                problem
                    .related("it is first used here", place)
                    .help("rename one of the nodes"),
            );
        }
    }
}

/// A subgraph has a `subgraph_ref` and no executor; the other types have an executor and no `subgraph_ref`.
fn fields_of_type(check: &mut Check, node: &Node, kind: NodeType, meant: &HashSet<String>) {
    let (needed, forbidden) = match kind {
        NodeType::Subgraph => ("subgraph_ref", "executor"),
        NodeType::Task | NodeType::Decision | NodeType::Tool => ("executor", "subgraph_ref"),
    };
    let (name, kind) = (quote(node.id), kind.name());
    let missing = node.value.get(needed).is_none() && !meant.contains(&format!("{}/{needed}", node.pointer));
    if missing && check.room(Severity::Error) {
        let message = format!("the field `{needed}` is missing in {kind} node {name}");
        let problem = check.error("MISSING_FIELD", &node.pointer, message);
        check.add(problem.help(match needed {
            "executor" => "add `\"executor\": { \"type\": \"callback\", \"config\": {} }`",
            _ => "add `\"subgraph_ref\": \"<workflow_id>\"`",
        }));
    }
    if node.value.get(forbidden).is_some() && check.room(Severity::Error) {
        let pointer = format!("{}/{forbidden}", node.pointer);
        let message = format!("{kind} node {name} cannot have `{forbidden}`");
        let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        check.add(problem.help(match forbidden {
            "executor" => "a subgraph runs the workflow of its `subgraph_ref`; remove `executor`",
            _ => "only subgraph nodes have it; remove it, or set `type` to `subgraph`",
        }));
    }
}

fn subgraph(check: &mut Check, node: &Node) {
    action(check, node, CHILD, "type");
    for_each::check(check, node.id, node.value, &node.pointer);
    if let Some(list) = text(node.value, "forEach") {
        template(check, node, list, &format!("{}/forEach", node.pointer));
    }
    let child = text(node.value, "subgraph_ref").and_then(|reference| reference.split('@').next());
    let own = text(check.document.value(), "workflow_id");
    if !check.settings.allow_recursion && own.is_some() && child == own && check.room(check.readiness()) {
        let message = format!("node {} starts the workflow that it belongs to", quote(node.id));
        let pointer = format!("{}/subgraph_ref", node.pointer);
        let problem = check.not_ready("RECURSIVE_WORKFLOW", &pointer, message);
        check.add(problem.help("a workflow cannot start itself unless `subworkflows.allow_recursion` is set"));
    }
}

fn executor(check: &mut Check, view: &View, node: &Node, kind: NodeType, meant: &HashSet<String>) {
    let Some(executor) = node.executor() else { return };
    let allowed = kind.executors();
    if !allowed.contains(&executor) {
        let known = ["callback", "http", "event"].contains(&executor);
        if known && check.room(Severity::Error) {
            let message = format!(
                "{} node {} cannot have the executor `{executor}`",
                kind.name(),
                quote(node.id)
            );
            let listed: Vec<String> = allowed.iter().map(|name| format!("`{name}`")).collect();
            let problem = check.error(
                "EXECUTOR_NOT_ALLOWED",
                &format!("{}/executor/type", node.pointer),
                message,
            );
            check.add(problem.help(format!("use {}", listed.join(" or "))));
        }
        return;
    }
    if !(kind == NodeType::Decision && is_decided_by_expressions(view, node)) {
        action(check, node, plan::action_of(executor), "executor/type");
    }
    config(check, view, node, kind, executor, meant);
}

fn config(check: &mut Check, view: &View, node: &Node, kind: NodeType, executor: &str, meant: &HashSet<String>) {
    let at = format!("{}/executor/config", node.pointer);
    let name = quote(node.id);
    let Some(config) = node.config() else {
        let by_expression = kind == NodeType::Decision && is_decided_by_expressions(view, node);
        let needs_url = executor != "callback";
        if (needs_url || (kind == NodeType::Decision && !by_expression))
            && !meant.contains(&at)
            && check.room(Severity::Error)
        {
            let message = format!(
                "the field `config` is missing in the executor of {} node {name}",
                kind.name()
            );
            let problem = check.error("MISSING_FIELD", &format!("{}/executor", node.pointer), message);
            check.add(problem.help(match needs_url {
                true => "add `\"config\": { \"url\": \"https://…\" }`",
                false => "add `\"config\": { \"timeout_seconds\": 3600 }`, or `\"config\": {}` for no time limit",
            }));
        }
        return;
    };
    for (field, executors) in CONFIG_FIELDS {
        if config.get(field).is_some() && !executors.contains(&executor) && check.room(Severity::Error) {
            let pointer = format!("{at}/{field}");
            let message = format!("`{field}` in node {name} does not belong to the executor `{executor}`");
            let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
            problem.span = check.document.locate_key(&pointer);
            let listed: Vec<String> = executors.iter().map(|name| format!("`{name}`")).collect();
            check.add(problem.help(format!("it belongs to {}; remove it", listed.join(", "))));
        }
    }
    let missing = executor != "callback" && config.get("url").is_none() && !meant.contains(&format!("{at}/url"));
    if missing && check.room(Severity::Error) {
        let message = format!("the field `url` is missing in the config of node {name}");
        let problem = check.error("MISSING_FIELD", &at, message);
        check.add(problem.help(format!("the executor `{executor}` sends its request there")));
    }
    addresses(check, config, &at, &format!("node {name}"));
    templates(check, node, config, &at);
    if let Some(headers) = config.get("headers") {
        check_headers(check, &format!("{at}/headers"), headers, &format!("node {name}"));
    }
}

/// Strings of a config are templates over the state.
fn templates(check: &mut Check, node: &Node, config: &Value, at: &str) {
    let mut strings = Vec::new();
    template_strings(config, at.to_owned(), &mut strings);
    for (pointer, text) in strings {
        template(check, node, text, &pointer);
    }
}

fn template(check: &mut Check, node: &Node, text: &str, pointer: &str) {
    match Template::parse(text, &check.settings.templates) {
        Ok(template) => secrets::note(check, node.id, pointer, &template),
        Err(error) if check.room(Severity::Error) => {
            let what = format!("invalid template in node {}", quote(node.id));
            let problem = check.syntax("TEMPLATE_SYNTAX", &what, pointer, &error);
            check.add(problem);
        }
        Err(_) => {}
    }
}

/// Checks `url` and `callback_id` of the config of an executor or of a callback condition. `of` is what it belongs to.
pub(super) fn addresses(check: &mut Check, config: &Value, at: &str, of: &str) {
    if let Some(what) = text(config, "url")
        .filter(|url| !url.contains("{{"))
        .and_then(wrong_url)
        && check.room(Severity::Error)
    {
        let problem = check.error("INVALID_URL", &format!("{at}/url"), format!("the `url` of {of} {what}"));
        check.add(problem.help("a URL looks like `https://example.com/orders`"));
    }
    if config.get("url").is_some() && config.get("callback_id").is_some() && check.room(Severity::Error) {
        let pointer = format!("{at}/callback_id");
        let message = format!("{of} has both `url` and `callback_id`");
        let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        check.add(problem.help("a registered callback has its own URL; remove one of them"));
    }
}

fn is_decided_by_expressions(view: &View, node: &Node) -> bool {
    let mut edges = node.edges.iter().map(|at| &view.edges[*at]);
    !node.edges.is_empty() && edges.all(|edge| edge.condition_kind() == ConditionKind::Expression)
}

/// Nodes use actions of the catalog, which may be disabled.
fn action(check: &mut Check, node: &Node, action: &str, field: &str) {
    let (code, state) = match check.catalog.find(action) {
        Some(entry) if entry.enabled => return,
        Some(_) => ("DISABLED_ACTION", "disabled"),
        None => ("UNKNOWN_ACTION", "missing"),
    };
    if check.room(check.readiness()) {
        let message = format!(
            "node {} needs the action `{action}`, which is {state} on this server",
            quote(node.id)
        );
        let problem = check.not_ready(code, &format!("{}/{field}", node.pointer), message);
        check.add(problem);
    }
}

/// A node that is declared terminal has no outgoing edges.
fn terminal(check: &mut Check, view: &View, node: &Node) {
    let declared = node.value.pointer("/metadata/terminal") == Some(&Value::Bool(true));
    let Some(edge) = node.edges.first().filter(|_| declared).map(|at| &view.edges[*at]) else {
        return;
    };
    if check.room(Severity::Error) {
        let message = format!(
            "node {} is terminal, but {} leads on from it",
            quote(node.id),
            edge.name()
        );
        let place = check.document.locate(&format!("{}/metadata/terminal", node.pointer));
        let problem = check.error("TERMINAL_NODE_HAS_EDGE", &edge.pointer, message);
        check.add(
            problem
                .related("it is declared terminal here", place)
                .help("remove the edge, or `terminal`"),
        );
    }
}

/// Suggests a node for an id that does not exist.
pub(super) fn near<'a>(view: &View<'a>, id: &str) -> Option<&'a str> {
    nearest(id, view.ids())
}
