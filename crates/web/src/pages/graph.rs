//! The graph of a plan as SVG. Its layout is computed once for each version.

use super::{
    layers::{HEIGHT, Layout, Point, WIDTH, layout},
    parts::{cut, encoded, node_kind},
};
use fermata_core::{Kind, Node, Plan, When};
use fermata_runtime::{NodeProgress, NodeState, Progress};
use maud::{Markup, html};
use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

/// The most layouts that are kept. A layout of 2,000 nodes has about 100 KB.
const MAX_LAYOUTS: usize = 100;

/// Layouts by workflow and version. A version never changes.
#[derive(Default)]
pub(crate) struct Graphs(Mutex<HashMap<(Uuid, u32), Arc<Layout>>>);

impl Graphs {
    pub(super) fn layout(&self, workflow: Uuid, version: u32, plan: &Plan) -> Arc<Layout> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = known().get(&(workflow, version)) {
            return layout.clone();
        }
        let made = Arc::new(layout(plan.nodes.len(), &edges(plan)));
        let mut all = known();
        if all.len() >= MAX_LAYOUTS {
            all.clear();
        }
        all.insert((workflow, version), made.clone());
        made
    }
}

/// The edges of a plan as pairs of positions of nodes.
pub(super) fn edges(plan: &Plan) -> Vec<(usize, usize)> {
    let of = |node: fermata_core::NodeIx| {
        plan.node(node)
            .edges
            .iter()
            .map(move |edge| (node.at(), edge.target.at()))
    };
    plan.indices().flat_map(of).collect()
}

/// Around the graph.
const MARGIN: f32 = 16.0;
/// How far apart edges leave and reach a node, if there is room.
const APART: f32 = 7.0;

/// A node as it is drawn.
pub(super) struct DrawnNode<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// Under the name.
    pub note: String,
    /// Its class, and the name of its icon. A node of a plan (`plan`) has no icon.
    pub kind: &'static str,
    /// Its state in a word; empty for a node of a plan.
    pub word: &'a str,
    /// Where it leads; none if it cannot be selected.
    pub href: Option<String>,
}

/// An edge as it is drawn.
pub(super) struct DrawnEdge {
    pub from: usize,
    pub to: usize,
    pub class: &'static str,
    pub is_failure: bool,
}

/// The graph of a run or, without progress, of a plan.
pub(super) fn svg(plan: &Plan, layout: &Layout, progress: Option<&Progress>, chosen: Option<&str>) -> Markup {
    let state = |at: usize| progress.map(|progress| &progress.nodes[at]);
    let nodes: Vec<DrawnNode<'_>> = plan.indices().map(|ix| drawn(plan.node(ix), state(ix.at()))).collect();
    let edges = drawn_edges(plan, |from, edge| edge_class(state(from), edge));
    draw(&nodes, &edges, layout, chosen)
}

/// A node of a plan that leads nowhere.
pub(super) fn unlinked(node: &Node) -> DrawnNode<'_> {
    DrawnNode {
        href: None,
        ..drawn(node, None)
    }
}

/// The edges of a plan, in the order of [`edges`]. `class` gets a node and the number of its edge.
pub(super) fn drawn_edges(plan: &Plan, class: impl Fn(usize, usize) -> &'static str) -> Vec<DrawnEdge> {
    let mut edges = Vec::new();
    for ix in plan.indices() {
        for (at, edge) in plan.node(ix).edges.iter().enumerate() {
            edges.push(DrawnEdge {
                from: ix.at(),
                to: edge.target.at(),
                class: class(ix.at(), at),
                is_failure: is_failure(edge.when),
            });
        }
    }
    edges
}

/// Nodes and edges at the places of a layout with the same nodes and edges.
pub(super) fn draw(nodes: &[DrawnNode<'_>], edges: &[DrawnEdge], layout: &Layout, chosen: Option<&str>) -> Markup {
    let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN);
    let bends = |at: usize| layout.bends.get(at).map_or(&[][..], Vec::as_slice);
    let ends = ends(edges, layout);
    html! {
        svg.graph width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) role="group" aria-label="Graph" {
            defs {
                marker #arrow viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse" {
                    path d="M0 0.5 7.5 4 0 7.5z" fill="context-stroke";
                }
            }
            g transform=(format!("translate({MARGIN} {MARGIN})")) {
                @for (at, edge) in edges.iter().enumerate() {
                    @let path = path(layout, edge, ends[at], bends(at));
                    path.edge.(edge.class).on-failure[edge.is_failure] d=(path) marker-end="url(#arrow)" {}
                }
                @for (node, place) in nodes.iter().zip(&layout.nodes) { (draw_node(node, *place, chosen)) }
            }
        }
    }
}

pub(super) fn is_failure(when: When) -> bool {
    matches!(when, When::Failure | When::Unhandled)
}

fn edge_class(from: Option<&NodeProgress>, edge: usize) -> &'static str {
    match from {
        None => "open",
        Some(node) if node.state == NodeState::Skipped => "dead",
        Some(node) => match &node.taken {
            None => "open",
            Some(taken) if taken.contains(&(edge as u32)) => "taken",
            Some(_) => "dead",
        },
    }
}

fn drawn<'a>(node: &'a Node, progress: Option<&'a NodeProgress>) -> DrawnNode<'a> {
    let id = node.id.as_str();
    DrawnNode {
        id,
        name: node.title.as_deref().unwrap_or(id),
        note: match progress {
            Some(progress) if progress.reused_from.is_some() => format!("{} · kept", action(&node.kind)),
            Some(progress) if progress.attempt > 1 => format!("{} · attempt {}", action(&node.kind), progress.attempt),
            _ => action(&node.kind).to_owned(),
        },
        kind: progress.map_or("plan", |progress| node_kind(progress.state)),
        word: progress.map_or("", |progress| progress.word.as_str()),
        href: Some(format!("?node={}", encoded(id))),
    }
}

fn draw_node(node: &DrawnNode<'_>, (x, y): Point, chosen: Option<&str>) -> Markup {
    let DrawnNode {
        id, name, kind, word, ..
    } = node;
    let class = format!("s-{kind}");
    let label = format!("{name} {word}");
    let place = format!("translate({:.1} {:.1})", x - WIDTH / 2.0, y - HEIGHT / 2.0);
    let has_icon = *kind != "plan";
    let content = html! {
        title { (name) " (" (id) ")" @if !word.is_empty() { ": " (word) } }
        rect width=(WIDTH) height=(HEIGHT) rx="9" {}
        @if has_icon {
            svg.icon x="12" y="15" width="14" height="14" { use href=(format!("#i-{kind}")); }
        }
        @let indent = if has_icon { 34 } else { 14 };
        text.name x=(indent) y="19" { (cut(name, 24)) }
        text.kind x=(indent) y="34" { (cut(&node.note, 28)) }
    };
    html! {
        @match &node.href {
            Some(href) => a.node.(class) href=(href) data-node=(id) data-swap aria-label=(label)
                aria-current=[(chosen == Some(*id)).then_some("true")] transform=(place) { (content) },
            None => g.node.(class) data-node=(id) role="img" aria-label=(label) transform=(place) { (content) },
        }
    }
}

/// What a node is, for people.
pub(super) fn action(kind: &Kind) -> &str {
    match kind {
        Kind::Pass => "decision",
        Kind::Wait { .. } => "wait for callback",
        kind => kind.action_type(),
    }
}

/// Where each edge leaves its source and reaches its target: side by side, in the order of where they go and come from, so that many
/// edges of a node do not lie on each other.
fn ends(edges: &[DrawnEdge], layout: &Layout) -> Vec<(f32, f32)> {
    let x = |node: usize| layout.nodes[node].0;
    let bends = |at: usize| layout.bends.get(at).into_iter().flatten();
    let mut ends: Vec<(f32, f32)> = edges.iter().map(|edge| (x(edge.from), x(edge.to))).collect();
    let all = || edges.iter().enumerate();
    let leave = all().map(|(at, edge)| (edge.from, bends(at).next().map_or(x(edge.to), |bend| bend.0), at));
    spread(leave.collect(), |at, offset| ends[at].0 += offset);
    let reach = all().map(|(at, edge)| (edge.to, bends(at).next_back().map_or(x(edge.from), |bend| bend.0), at));
    spread(reach.collect(), |at, offset| ends[at].1 += offset);
    ends
}

/// Moves the edges of each node apart: node, place of the other end, edge.
fn spread(mut all: Vec<(usize, f32, usize)>, mut shift: impl FnMut(usize, f32)) {
    all.sort_by(|left, right| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)));
    for edges in all
        .chunk_by(|left, right| left.0 == right.0)
        .filter(|edges| edges.len() > 1)
    {
        let last = (edges.len() - 1) as f32;
        let room = (last * APART).min(WIDTH - 40.0);
        for (rank, (_, _, edge)) in edges.iter().enumerate() {
            shift(*edge, room * (rank as f32 / last - 0.5));
        }
    }
}

/// From the bottom of a node through the bends to the top of another.
fn path(layout: &Layout, edge: &DrawnEdge, ends: (f32, f32), bends: &[Point]) -> String {
    let (mut x, mut y) = (ends.0, layout.nodes[edge.from].1 + HEIGHT / 2.0);
    let mut path = format!("M{x:.1} {y:.1}");
    let end = (ends.1, layout.nodes[edge.to].1 - HEIGHT / 2.0);
    // A bend is a straight line as high as a node, so that the edge passes between nodes.
    let stops = bends.iter().map(|(x, y)| (*x, y - HEIGHT / 2.0, y + HEIGHT / 2.0));
    for (next, top, bottom) in stops.chain([(end.0, end.1, end.1)]) {
        let middle = (y + top) / 2.0;
        let _ = write!(path, "C{x:.1} {middle:.1} {next:.1} {middle:.1} {next:.1} {top:.1}");
        if bottom > top {
            let _ = write!(path, "V{bottom:.1}");
        }
        (x, y) = (next, bottom);
    }
    path
}

/// How many nodes there are, in words.
pub(super) fn counted(nodes: usize) -> String {
    format!("{nodes} {}", if nodes == 1 { "node" } else { "nodes" })
}

/// The graph with its tools.
pub(super) fn panel(graph: &Markup, nodes: usize) -> Markup {
    html! {
        section.card.graph-card aria-label="Graph" {
            header {
                h2 { "Graph" }
                span.muted #node-count { (counted(nodes)) }
                span.grow {}
                input.js type="search" placeholder="Find node" aria-label="Find node" data-find-node;
                button.plain.js data-zoom="out" aria-label="Zoom out" { "−" }
                button.plain.js data-zoom="fit" aria-label="Fit" { "Fit" }
                button.plain.js data-zoom="in" aria-label="Zoom in" { "+" }
            }
            div.graph-view tabindex="0" role="region" aria-label="Graph, scrollable" { div #graph data-live { (graph) } }
        }
    }
}
