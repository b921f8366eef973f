//! The graph of a plan as SVG. Its layout is computed once for each version.

use super::{
    layers::{HEIGHT, Layout, Point, WIDTH, layout},
    parts::{cut, encoded, node_kind},
};
use fermata_core::{Kind, Plan, When};
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

fn edges(plan: &Plan) -> Vec<(usize, usize)> {
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

/// The graph of a run or, without progress, of a plan.
pub(super) fn svg(plan: &Plan, layout: &Layout, progress: Option<&Progress>, chosen: Option<&str>) -> Markup {
    let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN);
    let state = |at: usize| progress.map(|progress| &progress.nodes[at]);
    let mut bends = layout.bends.iter();
    html! {
        svg.graph width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) role="group" aria-label="Graph" {
            defs {
                marker #arrow viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse" {
                    path d="M0 0.5 7.5 4 0 7.5z" fill="context-stroke";
                }
            }
            g transform=(format!("translate({MARGIN} {MARGIN})")) {
                @for ix in plan.indices() {
                    @for (at, edge) in plan.node(ix).edges.iter().enumerate() {
                        @let path = path(layout, ix.at(), edge.target.at(), bends.next().map_or(&[][..], Vec::as_slice));
                        path.edge.(edge_class(state(ix.at()), at)).on-failure[is_failure(edge.when)] d=(path) marker-end="url(#arrow)" {}
                    }
                }
                @for ix in plan.indices() {
                    (node(plan, ix, layout.nodes[ix.at()], state(ix.at()), chosen))
                }
            }
        }
    }
}

fn is_failure(when: When) -> bool {
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

fn node(
    plan: &Plan,
    ix: fermata_core::NodeIx,
    (x, y): Point,
    progress: Option<&NodeProgress>,
    chosen: Option<&str>,
) -> Markup {
    let node = plan.node(ix);
    let id = node.id.as_str();
    let kind = progress.map_or("plan", |progress| node_kind(progress.state));
    let word = progress.map_or("", |progress| progress.word.as_str());
    let name = node.title.as_deref().unwrap_or(id);
    let note = match progress {
        Some(progress) if progress.reused_from.is_some() => format!("{} · kept", action(&node.kind)),
        Some(progress) if progress.attempt > 1 => format!("{} · attempt {}", action(&node.kind), progress.attempt),
        _ => action(&node.kind).to_owned(),
    };
    let (left, top) = (x - WIDTH / 2.0, y - HEIGHT / 2.0);
    html! {
        a.node.(format!("s-{kind}")) href=(format!("?node={}", encoded(id))) data-node=(id) data-swap
            aria-label=(format!("{name} {word}")) aria-current=[(chosen == Some(id)).then_some("true")]
            transform=(format!("translate({left:.1} {top:.1})")) {
            title { (name) " (" (id) ")" @if !word.is_empty() { ": " (word) } }
            rect width=(WIDTH) height=(HEIGHT) rx="9" {}
            @if progress.is_some() {
                svg.icon x="12" y="15" width="14" height="14" { use href=(format!("#i-{kind}")); }
            }
            @let indent = if progress.is_some() { 34 } else { 14 };
            text.name x=(indent) y="19" { (cut(name, 24)) }
            text.kind x=(indent) y="34" { (cut(&note, 28)) }
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

/// From the bottom of a node through the bends to the top of another.
fn path(layout: &Layout, from: usize, to: usize, bends: &[Point]) -> String {
    let (mut x, mut y) = (layout.nodes[from].0, layout.nodes[from].1 + HEIGHT / 2.0);
    let mut path = format!("M{x:.1} {y:.1}");
    let end = (layout.nodes[to].0, layout.nodes[to].1 - HEIGHT / 2.0);
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

/// The graph with its tools.
pub(super) fn panel(graph: &Markup, nodes: usize) -> Markup {
    html! {
        section.card.graph-card aria-label="Graph" {
            header {
                h2 { "Graph" }
                span.muted { (nodes) @if nodes == 1 { " node" } @else { " nodes" } }
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
