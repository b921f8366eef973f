//! Partial updates: a document and intents give a new document with a higher version, or a reason why not.
//!
//! Each list of intents is applied whole. Whether the new document follows the rules of the dialect is checked afterwards,
//! like that of every document: an added edge may close a cycle, for example.
//!
//! An intent is an object: `{"intent": "add_node", "node": {…}}`, `{"intent": "update_node", "node_id": "…", "changes": {…}}`,
//! `{"intent": "remove_node", "node_id": "…"}`, `{"intent": "add_edge", "edge": {…}}` or
//! `{"intent": "remove_edge", "from": "…", "to": "…", "outcome"?: "…"}`.

use super::version::{Bump, Version, compare};
use crate::diagnostics::quote;
use fermata_expr::nearest;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;

/// One partial update.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "intent", rename_all = "snake_case", deny_unknown_fields)]
pub enum Intent {
    /// Adds a node.
    AddNode {
        /// The node.
        node: Value,
    },
    /// Replaces members of a node; `null` removes one.
    UpdateNode {
        /// The node.
        node_id: String,
        /// The members.
        changes: Map<String, Value>,
    },
    /// Removes a node that no edge refers to.
    RemoveNode {
        /// The node.
        node_id: String,
    },
    /// Adds an edge.
    AddEdge {
        /// The edge.
        edge: Value,
    },
    /// Removes the edges between two nodes, or the one with an outcome.
    RemoveEdge {
        /// The node they start from.
        from: String,
        /// The node they lead to.
        to: String,
        /// Only the edge with this outcome.
        #[serde(default)]
        outcome: Option<String>,
    },
}

/// Why intents cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The position in the list of intents.
    pub intent: usize,
    /// What is wrong.
    pub reason: Reason,
}

/// Why an intent cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A node or edge that it refers to does not exist.
    NotFound(String),
    /// It conflicts with the document.
    Conflict(String),
    /// It is never allowed.
    Forbidden(String),
}

impl Reason {
    /// The message.
    pub fn message(&self) -> &str {
        match self {
            Reason::NotFound(message) | Reason::Conflict(message) | Reason::Forbidden(message) => message,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.message())
    }
}

/// Members that belong to an execution, not to a workflow.
const OF_EXECUTIONS: [&str; 12] = [
    "status",
    "state",
    "execution_id",
    "execution_state",
    "attempt",
    "attempts",
    "started_at",
    "ended_at",
    "completed_at",
    "result",
    "error",
    "outcome",
];

/// Applies `intents` to `document`. The version of the new document is the next one that its changes need.
///
/// # Errors
/// The first intent that cannot be applied.
pub fn apply(document: &Value, intents: &[Intent]) -> Result<Value, Refused> {
    let mut new = document.clone();
    for (intent, change) in intents.iter().enumerate() {
        apply_one(&mut new, change).map_err(|reason| Refused { intent, reason })?;
    }
    let bump = compare(document, &new);
    if let Some(version) = Version::of(document).filter(|_| bump > Bump::None) {
        new["version"] = Value::from(version.bumped(bump).to_string());
    }
    Ok(new)
}

fn apply_one(document: &mut Value, intent: &Intent) -> Result<(), Reason> {
    match intent {
        Intent::AddNode { node } => add_node(document, node),
        Intent::UpdateNode { node_id, changes } => update_node(document, node_id, changes),
        Intent::RemoveNode { node_id } => remove_node(document, node_id),
        Intent::AddEdge { edge } => add_edge(document, edge),
        Intent::RemoveEdge { from, to, outcome } => remove_edge(document, from, to, outcome.as_deref()),
    }
}

/// The list at `key`, for changes.
fn list<'a>(document: &'a mut Value, key: &str) -> Result<&'a mut Vec<Value>, Reason> {
    let list = document.get_mut(key).and_then(Value::as_array_mut);
    list.ok_or_else(|| Reason::Conflict(format!("the document has no list `{key}`")))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn add_node(document: &mut Value, node: &Value) -> Result<(), Reason> {
    let nodes = list(document, "nodes")?;
    of_executions(node.as_object().into_iter().flat_map(Map::keys))?;
    if let Some(id) = text(node, "id")
        && nodes.iter().any(|other| text(other, "id") == Some(id))
    {
        let message = format!(
            "the workflow already has a node {}; choose another id, or update it",
            quote(id)
        );
        return Err(Reason::Conflict(message));
    }
    nodes.push(node.clone());
    Ok(())
}

fn of_executions<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), Reason> {
    match names.find(|name| OF_EXECUTIONS.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Reason::Forbidden(format!(
            "{} belongs to an execution; a workflow update cannot change it",
            quote(name)
        ))),
    }
}

fn no_node(nodes: &[Value], id: &str) -> Reason {
    let near = nearest(id, nodes.iter().filter_map(|node| text(node, "id")));
    let near = near.map(|near| format!("; did you mean {}?", quote(near)));
    Reason::NotFound(format!(
        "the workflow has no node {}{}",
        quote(id),
        near.unwrap_or_default()
    ))
}

fn update_node(document: &mut Value, id: &str, changes: &Map<String, Value>) -> Result<(), Reason> {
    let nodes = list(document, "nodes")?;
    let Some(at) = nodes.iter().position(|node| text(node, "id") == Some(id)) else {
        return Err(no_node(nodes, id));
    };
    of_executions(changes.keys())?;
    if changes.get("id").is_some_and(|new| new.as_str() != Some(id)) {
        let message = format!(
            "the id of node {} cannot change; add a new node and remove this one",
            quote(id)
        );
        return Err(Reason::Forbidden(message));
    }
    let Some(node) = nodes[at].as_object_mut() else {
        return Ok(());
    };
    for (name, value) in changes {
        match value {
            Value::Null => drop(node.shift_remove(name)),
            value => drop(node.insert(name.clone(), value.clone())),
        }
    }
    Ok(())
}

fn remove_node(document: &mut Value, id: &str) -> Result<(), Reason> {
    let edges = document.get("edges").and_then(Value::as_array);
    let refers = |edge: &&Value| text(edge, "from") == Some(id) || text(edge, "to") == Some(id);
    let edge = edges.and_then(|edges| edges.iter().find(refers));
    let edge = edge.map(super::view::edge_name);
    let nodes = list(document, "nodes")?;
    let Some(at) = nodes.iter().position(|node| text(node, "id") == Some(id)) else {
        return Err(no_node(nodes, id));
    };
    if let Some(edge) = edge {
        let message = format!(
            "node {} cannot be removed: {edge} refers to it; remove its edges first",
            quote(id)
        );
        return Err(Reason::Conflict(message));
    }
    nodes.remove(at);
    Ok(())
}

fn add_edge(document: &mut Value, edge: &Value) -> Result<(), Reason> {
    let nodes = list(document, "nodes")?;
    for end in ["from", "to"] {
        if let Some(id) = text(edge, end)
            && !nodes.iter().any(|node| text(node, "id") == Some(id))
        {
            return Err(no_node(nodes, id));
        }
    }
    let edges = list(document, "edges")?;
    let same = |other: &Value| {
        let outcome = |edge: &Value| edge.pointer("/metadata/outcome").cloned();
        text(other, "from") == text(edge, "from")
            && text(other, "to") == text(edge, "to")
            && outcome(other) == outcome(edge)
    };
    if edge.is_object() && edges.iter().any(same) {
        let message = format!("{} exists already", super::view::edge_name(edge));
        return Err(Reason::Conflict(message));
    }
    edges.push(edge.clone());
    Ok(())
}

fn remove_edge(document: &mut Value, from: &str, to: &str, outcome: Option<&str>) -> Result<(), Reason> {
    let edges = list(document, "edges")?;
    let fits = |edge: &Value| {
        let named = edge.pointer("/metadata/outcome").and_then(Value::as_str);
        text(edge, "from") == Some(from) && text(edge, "to") == Some(to) && (outcome.is_none() || named == outcome)
    };
    let before = edges.len();
    edges.retain(|edge| !fits(edge));
    match edges.len() < before {
        true => Ok(()),
        false => Err(Reason::NotFound(format!(
            "the workflow has no edge {}",
            quote(&format!("{from}->{to}"))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        let task = |id: &str| json!({ "id": id, "type": "task", "name": id, "executor": { "type": "callback" } });
        json!({
            "workflow_id": "w", "name": "W", "version": "1.0.0",
            "nodes": [task("a"), task("b"), task("c")],
            "edges": [{ "from": "a", "to": "b" }],
        })
    }

    fn run(intents: Value) -> Result<Value, Refused> {
        let intents: Vec<Intent> = serde_json::from_value(intents).unwrap();
        apply(&document(), &intents)
    }

    #[test]
    fn intents_make_the_next_version() {
        let task = json!({ "id": "n", "type": "task", "executor": { "type": "callback" } });
        for (intents, version) in [
            (json!([]), "1.0.0"),
            (json!([{ "intent": "add_node", "node": task }]), "1.1.0"),
            (
                json!([{ "intent": "update_node", "node_id": "a", "changes": { "name": "A" } }]),
                "1.0.1",
            ),
            (
                json!([{ "intent": "update_node", "node_id": "a", "changes": { "retry_policy": { "max_attempts": 2 } } }]),
                "1.1.0",
            ),
            (json!([{ "intent": "remove_node", "node_id": "c" }]), "2.0.0"),
            (
                json!([{ "intent": "add_edge", "edge": { "from": "b", "to": "c" } }]),
                "1.1.0",
            ),
            (json!([{ "intent": "remove_edge", "from": "a", "to": "b" }]), "2.0.0"),
            (
                json!([
                    { "intent": "remove_edge", "from": "a", "to": "b" },
                    { "intent": "remove_node", "node_id": "b" },
                    { "intent": "add_edge", "edge": { "from": "a", "to": "c" } },
                ]),
                "2.0.0",
            ),
        ] {
            let new = run(intents.clone()).unwrap();
            assert_eq!(new["version"], version, "{intents}");
        }
        let new = run(json!([{ "intent": "update_node", "node_id": "a", "changes": { "name": null } }])).unwrap();
        assert_eq!(
            new["nodes"][0],
            json!({ "id": "a", "type": "task", "executor": { "type": "callback" } })
        );
    }

    #[test]
    fn intents_that_do_not_fit_are_refused_with_the_reason() {
        let cases = [
            (
                json!({ "intent": "add_node", "node": { "id": "a" } }),
                "already has a node `a`",
            ),
            (
                json!({ "intent": "add_node", "node": { "id": "n", "status": "RUNNING" } }),
                "`status` belongs to an execution",
            ),
            (
                json!({ "intent": "update_node", "node_id": "a", "changes": { "id": "z" } }),
                "the id of node `a` cannot change",
            ),
            (
                json!({ "intent": "update_node", "node_id": "a", "changes": { "state": {} } }),
                "`state` belongs to an execution",
            ),
            (
                json!({ "intent": "update_node", "node_id": "z", "changes": {} }),
                "has no node `z`",
            ),
            (
                json!({ "intent": "remove_node", "node_id": "b" }),
                "the edge `a->b` refers to it",
            ),
            (json!({ "intent": "remove_node", "node_id": "z" }), "has no node `z`"),
            (
                json!({ "intent": "add_edge", "edge": { "from": "a", "to": "z" } }),
                "has no node `z`",
            ),
            (
                json!({ "intent": "add_edge", "edge": { "from": "a", "to": "b" } }),
                "the edge `a->b` exists already",
            ),
            (
                json!({ "intent": "remove_edge", "from": "b", "to": "a" }),
                "has no edge `b->a`",
            ),
        ];
        for (intent, reason) in cases {
            let refused =
                run(json!([{ "intent": "add_edge", "edge": { "from": "b", "to": "c" } }, intent])).unwrap_err();
            assert_eq!(refused.intent, 1);
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        for malformed in [
            json!([{ "intent": "rename_workflow", "workflow_id": "x" }]),
            json!([{ "intent": "add_node" }]),
            json!([{ "intent": "remove_edge", "from": "a" }]),
            json!([{ "op": "replace", "path": "/name", "value": "x" }]),
        ] {
            assert!(serde_json::from_value::<Vec<Intent>>(malformed).is_err());
        }
    }
}
