//! Dry runs in the editor: the form, the route on the graph, and the result.

use super::{
    graph::{DrawnNode, draw, drawn_edges, edges, unlinked},
    json,
    layers::layout,
    parts::{cut, duration, mark},
    run::failure,
};
use fermata_core::Plan;
use fermata_runtime::dry_run::{DryRunNode, DryRunReport, Made};
use maud::{Markup, html};
use std::collections::HashMap;

pub(super) fn form() -> Markup {
    html! {
        section.card aria-label="Dry run" {
            header { h2 { "Dry run" } span.muted { "no effects, nothing is stored" } }
            form.form #dry-run {
                label { span { "Trigger" } textarea name="trigger" rows="3" spellcheck="false" { "{}" } }
                label { span { "Mocks" } textarea name="mocks" rows="2" spellcheck="false" { "{}" }
                    small.muted { "What nodes return, by their ids: " code { "{\"charge\": {\"outputs\": {…}}}" } } }
                p.error role="alert" data-error {}
                div.buttons { button.button.js data-dry-run { "Dry run" } }
            }
            div #dry-result aria-live="polite" {}
        }
    }
}

/// The graph with the route that was taken.
pub(super) fn graph(plan: &Plan, report: &DryRunReport) -> Markup {
    let by_id: HashMap<&str, &DryRunNode> = report.nodes.iter().map(|node| (node.node_id.as_str(), node)).collect();
    let found = |at: usize| by_id.get(plan.nodes[at].id.as_str()).copied();
    let nodes: Vec<DrawnNode<'_>> = plan
        .nodes
        .iter()
        .map(|node| {
            let drawn = unlinked(node);
            match by_id.get(node.id.as_str()) {
                None => drawn,
                Some(ran) => DrawnNode {
                    kind: kind(ran),
                    word: ran.status.as_str(),
                    ..drawn
                },
            }
        })
        .collect();
    let class = |from: usize, edge: usize| match found(from) {
        Some(node) if node.skip_reason.is_some() => "dead",
        Some(node) => match node.edges.get(edge) {
            None => "open",
            Some(edge) if edge.taken => "taken",
            Some(_) => "dead",
        },
        None => "open",
    };
    let layout = layout(plan.nodes.len(), &edges(plan));
    draw(&nodes, &drawn_edges(plan, class), &layout, None)
}

/// The state of a node. Its status is a word of the dialect.
fn kind(node: &DryRunNode) -> &'static str {
    match node {
        node if node.skip_reason.is_some() => "skipped",
        node if node.error.is_some() => "failed",
        node if node.ended_after_ms.is_some() => "succeeded",
        _ => "pending",
    }
}

pub(super) fn result(report: &DryRunReport) -> Markup {
    let kind_of_run = match report.status.as_str() {
        "Succeeded" => "succeeded",
        "Failed" => "failed",
        _ => "cancelled",
    };
    let took = duration(report.virtual_duration_ms.saturating_mul(1000));
    html! {
        div.pad {
            p { (mark(kind_of_run, &report.status)) " after " (took) " of virtual time"
                @if let Some(reason) = &report.reason { span.muted { " " (cut(reason, 200)) } } }
        }
        @if let Some(error) = &report.error { div.pad { (failure(&error.to_string())) } }
        section.data { header { h3 { "Outputs" } } (json::plain(&report.outputs.to_string())) }
        table.list {
            thead { tr { th { "Node" } th { "State" } th.num { "Ended after" } } }
            tbody { @for node in &report.nodes {
                tr {
                    td { (node.node_id)
                        span.detail.flush {
                            (node.action_type)
                            @match node.mock { Some(Made::Given) => " · mocked", Some(Made::Made) => " · made up", None => "" }
                            @if node.attempts > 1 { " · " (node.attempts) " attempts" }
                        }
                        @if let Some(reason) = &node.skip_reason { span.detail.flush { (cut(reason, 300)) } }
                    }
                    td { (mark(kind(node), &node.status)) }
                    td.num { @if let Some(after) = node.ended_after_ms { (duration(after.saturating_mul(1000))) } @else { "–" } }
                }
            } }
        }
    }
}
