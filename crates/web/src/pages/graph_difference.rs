//! The difference of two plans as one graph: nodes and edges of both, those that were added, removed and changed with a mark.
//!
//! What must stay true: nodes are the same if their ids are. An edge is matched by its source and target; if it differs otherwise, it
//! changed.

use super::{
    graph::{DrawnEdge, DrawnNode, action, draw, is_failure},
    layers::layout,
    parts::{cut, mark},
};
use fermata_core::{Edge, Node, Plan};
use maud::{Markup, html};
use serde_json::Value;

/// The most changes of one node that are listed.
const MAX_CHANGES: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Same,
    Added,
    Removed,
    Changed,
}

impl Change {
    /// The class and the icon, and the word.
    fn shown(self) -> (&'static str, &'static str) {
        match self {
            Change::Same => ("plan", ""),
            Change::Added => ("added", "added"),
            Change::Removed => ("removed", "removed"),
            Change::Changed => ("changed", "changed"),
        }
    }
}

struct ChangedNode<'a> {
    node: &'a Node,
    change: Change,
    /// What changed, each as path, before and after.
    details: Vec<(String, String, String)>,
}

struct ChangedEdge<'a> {
    from: usize,
    to: usize,
    edge: &'a Edge,
    change: Change,
    /// The edge before it changed.
    before: Option<&'a Edge>,
}

/// What differs between two plans.
pub(super) struct Changes<'a> {
    nodes: Vec<ChangedNode<'a>>,
    edges: Vec<ChangedEdge<'a>>,
}

impl<'a> Changes<'a> {
    pub fn of(old: &'a Plan, new: &'a Plan) -> Changes<'a> {
        let mut nodes: Vec<ChangedNode<'a>> = new
            .nodes
            .iter()
            .map(|node| {
                let before = old.find(node.id.as_str()).map(|ix| old.node(ix));
                let details = before.map(|before| details(before, node)).unwrap_or_default();
                let change = match before {
                    None => Change::Added,
                    Some(_) if details.is_empty() => Change::Same,
                    Some(_) => Change::Changed,
                };
                ChangedNode { node, change, details }
            })
            .collect();
        for node in &old.nodes {
            if new.find(node.id.as_str()).is_none() {
                nodes.push(ChangedNode {
                    node,
                    change: Change::Removed,
                    details: Vec::new(),
                });
            }
        }
        let place = |node: &Node| nodes.iter().position(|known| known.node.id == node.id);
        let of_plan = |plan: &'a Plan| {
            let places: Vec<Option<usize>> = plan.nodes.iter().map(place).collect();
            let mut edges: Vec<(usize, usize, &'a Edge)> = Vec::new();
            for (from, node) in plan.nodes.iter().enumerate() {
                for edge in &node.edges {
                    if let (Some(from), Some(to)) = (places[from], places[edge.target.at()]) {
                        edges.push((from, to, edge));
                    }
                }
            }
            edges
        };
        let edges = changed_edges(of_plan(old), of_plan(new));
        Changes { nodes, edges }
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn svg(&self) -> Markup {
        let pairs: Vec<(usize, usize)> = self.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        // Old and new edges together may have a cycle; an edge that would close one has no influence on the layers.
        let (laid, kept) = without_cycles(self.nodes.len(), &pairs);
        let mut layout = layout(self.nodes.len(), &laid);
        let mut bends = std::mem::take(&mut layout.bends).into_iter();
        layout.bends = kept
            .iter()
            .map(|kept| kept.then(|| bends.next()).flatten().unwrap_or_default())
            .collect();
        let nodes: Vec<DrawnNode<'_>> = self.nodes.iter().map(drawn).collect();
        let edges: Vec<DrawnEdge> = self
            .edges
            .iter()
            .map(|edge| DrawnEdge {
                from: edge.from,
                to: edge.to,
                class: match edge.change {
                    Change::Same => "open",
                    change => change.shown().0,
                },
                is_failure: is_failure(edge.edge.when),
            })
            .collect();
        draw(&nodes, &edges, &layout, None)
    }

    /// The changes in words.
    pub fn list(&self) -> Markup {
        let name = |at: usize| self.nodes[at].node.id.as_str();
        let nodes = self.nodes.iter().filter(|node| node.change != Change::Same);
        let edges = self.edges.iter().filter(|edge| edge.change != Change::Same);
        let is_same = nodes.clone().next().is_none() && edges.clone().next().is_none();
        html! {
            section.card {
                header { h2 { "Changes of the graph" } }
                @if is_same { p.pad.muted { "Nodes and edges are the same." } }
                @else {
                    ul.changes {
                        @for changed in nodes {
                            @let (kind, word) = changed.change.shown();
                            li {
                                (mark(kind, word)) " node " b { (changed.node.id) }
                                @for (path, before, after) in changed.details.iter().take(MAX_CHANGES) {
                                    p.small { span.muted { (path) ": " } del { (before) } " → " ins { (after) } }
                                }
                                @if changed.details.len() > MAX_CHANGES { p.small.muted { "and " (changed.details.len() - MAX_CHANGES) " more" } }
                            }
                        }
                        @for changed in edges {
                            @let (kind, word) = changed.change.shown();
                            li {
                                (mark(kind, word)) " edge " b { (name(changed.from)) } " → " b { (name(changed.to)) }
                                @if let Some(before) = changed.before { p.small { del { (described(before)) } " → " ins { (described(changed.edge)) } } }
                                @else { span.small.muted { " " (described(changed.edge)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn drawn<'a>(changed: &ChangedNode<'a>) -> DrawnNode<'a> {
    let node = changed.node;
    let id = node.id.as_str();
    let (kind, word) = changed.change.shown();
    let action = action(&node.kind);
    DrawnNode {
        id,
        name: node.title.as_deref().unwrap_or(id),
        note: match word {
            "" => action.to_owned(),
            word => format!("{word} · {action}"),
        },
        kind,
        word,
        href: None,
    }
}

/// An edge in words.
fn described(edge: &Edge) -> String {
    let value = serde_json::to_value(edge).unwrap_or_default();
    let part = |name: &str, before: &str| value[name].as_str().map(|text| format!("{before}{}", cut(text, 200)));
    let parts = [
        part("when", "on "),
        part("outcome", "outcome "),
        part("condition", "if "),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Edges of both plans: equal ones first, then those with the same ends are paired.
fn changed_edges<'a>(
    mut old: Vec<(usize, usize, &'a Edge)>,
    new: Vec<(usize, usize, &'a Edge)>,
) -> Vec<ChangedEdge<'a>> {
    // Targets are positions in a plan, so they are not compared.
    let is_equal = |left: &Edge, right: &Edge| {
        (left.when, &left.condition, &left.outcome) == (right.when, &right.condition, &right.outcome)
    };
    let mut take = |of: &dyn Fn(&(usize, usize, &'a Edge)) -> bool| {
        let at = old.iter().position(of)?;
        Some(old.remove(at).2)
    };
    let exact: Vec<bool> = new
        .iter()
        .map(|(from, to, edge)| {
            take(&|(old_from, old_to, old)| (old_from, old_to) == (from, to) && is_equal(old, edge)).is_some()
        })
        .collect();
    let mut all = Vec::with_capacity(new.len());
    for ((from, to, edge), is_exact) in new.into_iter().zip(exact) {
        let before = match is_exact {
            true => None,
            false => take(&|(old_from, old_to, _)| (*old_from, *old_to) == (from, to)),
        };
        let change = match (is_exact, before) {
            (true, _) => Change::Same,
            (false, Some(_)) => Change::Changed,
            (false, None) => Change::Added,
        };
        all.push(ChangedEdge {
            from,
            to,
            edge,
            change,
            before,
        });
    }
    let removed = old.into_iter().map(|(from, to, edge)| ChangedEdge {
        from,
        to,
        edge,
        change: Change::Removed,
        before: None,
    });
    all.extend(removed);
    all
}

/// The edges without those that would close a cycle, and which of all edges they are.
fn without_cycles(count: usize, edges: &[(usize, usize)]) -> (Vec<(usize, usize)>, Vec<bool>) {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut laid = Vec::with_capacity(edges.len());
    let mut kept = Vec::with_capacity(edges.len());
    for (from, to) in edges {
        let is_kept = !reaches(&after, *to, *from);
        if is_kept {
            after[*from].push(*to);
            laid.push((*from, *to));
        }
        kept.push(is_kept);
    }
    (laid, kept)
}

fn reaches(after: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; after.len()];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        if node == to {
            return true;
        }
        if !std::mem::replace(&mut seen[node], true) {
            open.extend(&after[node]);
        }
    }
    false
}

/// What differs between two nodes, without their edges.
fn details(old: &Node, new: &Node) -> Vec<(String, String, String)> {
    let value = |node: &Node| {
        let mut value = serde_json::to_value(node).unwrap_or_default();
        if let Some(members) = value.as_object_mut() {
            members.remove("edges");
        }
        value
    };
    let mut found = Vec::new();
    compare("", &value(old), &value(new), &mut found);
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<(String, String, String)>) {
    if old == new {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (old, new) {
        let names = before
            .keys()
            .chain(after.keys().filter(|name| !before.contains_key(*name)));
        for name in names {
            let path = match path {
                // What a node does is all there is to see.
                "" | "kind" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let part = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
            compare(&path, &part(before), &part(after), found);
        }
        return;
    }
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        value => cut(&value.to_string(), 200),
    };
    found.push((path.to_owned(), text(old), text(new)));
}
