//! Checks decisions: who decides, and that exactly one edge can be taken.
//!
//! A decision is made by the expressions of its edges, or by one request whose answer is an outcome. The request is described
//! by the executor of the node or, if its edges have conditions of type `callback`, by those.

use super::nodes::addresses;
use super::view::{ConditionKind, Edge, Node, View};
use crate::check::Check;
use crate::diagnostics::{Severity, quote};
use serde_json::Value;
use std::collections::HashMap;

/// How a decision is made.
pub(super) enum Decider<'a> {
    /// By the expressions of its edges.
    Expressions,
    /// By a request. The config of callback conditions overrides that of the executor.
    Request(Option<&'a Value>),
}

/// How a decision without errors is made.
pub(super) fn decider<'a>(edges: &[&Edge<'a>]) -> Decider<'a> {
    let Some(first) = edges.first() else {
        return Decider::Request(None);
    };
    match first.condition_kind() {
        ConditionKind::Expression => Decider::Expressions,
        ConditionKind::Callback => Decider::Request(first.condition().and_then(|condition| condition.get("callback"))),
        ConditionKind::None => Decider::Request(None),
    }
}

pub(super) fn check(check: &mut Check, view: &View) {
    for (node, edges) in view.decisions() {
        let Some(first) = edges.first() else {
            no_edge(check, node);
            continue;
        };
        let kind = first.condition_kind();
        if let Some(other) = edges.iter().find(|edge| edge.condition_kind() != kind) {
            mixed(check, node, first, other);
            continue;
        }
        match kind {
            ConditionKind::Expression => {}
            ConditionKind::Callback => {
                keys(check, node, &edges);
                outcomes(check, node, &edges);
            }
            ConditionKind::None => outcomes(check, node, &edges),
        }
    }
}

fn no_edge(check: &mut Check, node: &Node) {
    if check.room(Severity::Error) {
        let message = format!("decision node {} has no outgoing edge", quote(node.id));
        let problem = check.error("DECISION_WITHOUT_EDGE", &format!("{}/id", node.pointer), message);
        check.add(problem.help("add an edge for each outcome, or make it a task"));
    }
}

fn describe(kind: ConditionKind) -> &'static str {
    match kind {
        ConditionKind::None => "has no condition",
        ConditionKind::Expression => "has an expression",
        ConditionKind::Callback => "has a callback condition",
    }
}

fn mixed(check: &mut Check, node: &Node, first: &Edge, other: &Edge) {
    if check.room(Severity::Error) {
        let message = format!(
            "decision node {} mixes two ways to decide: {} {}, {} {}",
            quote(node.id),
            first.name(),
            describe(first.condition_kind()),
            other.name(),
            describe(other.condition_kind())
        );
        let problem = check.error("MIXED_CONDITIONS", &other.pointer, message);
        check.add(problem.help("give all edges of a decision an expression, or none of them; or use two decisions"));
    }
}

/// Outcomes of a decision are distinct: exactly one edge is taken.
fn outcomes(check: &mut Check, node: &Node, edges: &[&Edge]) {
    let mut seen: HashMap<&str, &Edge> = HashMap::new();
    for edge in edges {
        let Some(first) = seen.insert(edge.outcome(), edge) else {
            continue;
        };
        let same = first.to == edge.to && first.named_outcome() == edge.named_outcome();
        if !same && check.room(Severity::Error) {
            let pointer = match edge.named_outcome() {
                Some(_) => format!("{}/metadata/outcome", edge.pointer),
                None => edge.pointer.clone(),
            };
            let message = format!(
                "two edges of decision node {} have the outcome {}; exactly one edge is taken",
                quote(node.id),
                quote(edge.outcome())
            );
            let place = check.document.locate(&first.pointer);
            let problem = check.error("DUPLICATE_OUTCOME", &pointer, message);
            check.add(
                problem
                    .related("the first one is here", place)
                    .help("an edge without `outcome` has the id of its target; name the outcomes apart"),
            );
        }
    }
}

/// Callback conditions of one decision have one key and one configuration: one request is sent.
fn keys(check: &mut Check, node: &Node, edges: &[&Edge]) {
    let part = |edge: &Edge, name: &str| edge.condition().and_then(|condition| condition.get(name)).cloned();
    let Some(first) = edges.first() else { return };
    if let Some(callback) = part(first, "callback") {
        let at = format!("{}/condition/callback", first.pointer);
        addresses(check, &callback, &at, &first.name());
    }
    for edge in &edges[1..] {
        let (field, message, help) = if edge.decision_key().is_some()
            && first.decision_key().is_some()
            && edge.decision_key() != first.decision_key()
        {
            let message = format!(
                "the edges of decision node {} have different decision keys, {} and {}",
                quote(node.id),
                quote(first.decision_key().unwrap_or_default()),
                quote(edge.decision_key().unwrap_or_default())
            );
            let help = "a decision asks once; use one key, or one decision node for each key";
            ("decision_key", message, help)
        } else if part(edge, "callback").is_some() && part(edge, "callback") != part(first, "callback") {
            let message = format!(
                "the edges of decision node {} share a decision key, but their callbacks differ",
                quote(node.id)
            );
            (
                "callback",
                message,
                "a decision asks once; use the same `callback` everywhere",
            )
        } else {
            continue;
        };
        if check.room(Severity::Error) {
            let problem = check.error(
                "SEVERAL_CALLBACKS",
                &format!("{}/condition/{field}", edge.pointer),
                message,
            );
            check.add(problem.help(help));
        }
    }
}
