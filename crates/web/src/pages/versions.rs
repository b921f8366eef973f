//! Versions of a workflow: their list, and `/workflows/{id}/difference?from=1&to=2`, the difference of two of them as text and as
//! a graph. `draft` stands for the draft.

use super::{
    Page,
    difference::{Edit, Line, lines},
    frame::{Frame, Tab},
    graph, graph_difference, json,
    parts::{cut, exact},
    workflow::may_manage,
    workflows::address,
};
use crate::{
    door::As,
    error::ApiError,
    extract::{Name, Query},
};
use fermata_core::Plan;
use fermata_runtime::Session;
use fermata_store::definitions::{Lifecycle, VersionRow, Workflow};
use maud::{Markup, html};
use serde::Deserialize;
use std::sync::Arc;

/// The most versions that can be chosen.
const VERSIONS: u32 = 200;
/// Unchanged lines around changed ones.
const CONTEXT: usize = 3;
/// The most lines of a difference that a page shows.
const MAX_LINES: usize = 4000;
/// The most characters of a line that a page shows.
const MAX_LINE: usize = 1000;

/// The list of the versions of a workflow.
pub(super) fn panel(
    versions: &[VersionRow],
    workflow: &Workflow,
    shown: Option<u32>,
    has_draft: bool,
    may_manage: bool,
) -> Markup {
    let may_activate = may_manage && workflow.status != Lifecycle::Archived;
    let difference = |from: u32, to: &str| format!("{}/difference?from={from}&to={to}", address(workflow));
    html! {
        div #versions data-live {
            section.card {
                header { h2 { "Versions" } span.muted { (versions.len()) } }
                @if versions.is_empty() && !has_draft { p.muted.pad { "None yet." } }
                @else {
                    table.list { tbody {
                        @if has_draft {
                            tr {
                                td { "Draft" }
                                td.wide {}
                                td.num.actions { @if let Some(newest) = versions.first() { a.plain href=(difference(newest.version, "draft")) { "Compare" } } }
                            }
                        }
                        @for (at, version) in versions.iter().enumerate() {
                            @let number = version.version;
                            tr data-row {
                                td { a.main href=(format!("{}?version={number}", address(workflow))) aria-current=[(Some(number) == shown).then_some("true")] { "Version " (number) }
                                    @if Some(number) == workflow.current_version { " " span.tag { "current" } }
                                    span.detail.flush { (exact(version.created_at)) } }
                                td.mono.muted.wide title=(version.checksum) { (cut(&version.checksum, 13)) }
                                td.num.actions {
                                    @if let Some(before) = versions.get(at + 1) { a.plain href=(difference(before.version, &number.to_string())) { "Compare" } }
                                    @if may_activate && Some(number) != workflow.current_version {
                                        button.plain.js data-post=(format!("/api/v1/workflows/{}/versions/{number}/activate", workflow.uid))
                                            data-title=(format!("Activate version {number}?")) data-yes="Activate"
                                            data-text="New runs use this version. Runs that have started stay on theirs." { "Activate" }
                                    }
                                }
                            }
                        }
                    } }
                }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DifferenceQuery {
    from: Option<String>,
    to: Option<String>,
}

/// One side of a difference.
struct Side {
    name: String,
    source: String,
    /// A draft with problems has none.
    plan: Option<Arc<Plan>>,
}

/// `GET /workflows/{id}/difference?from=1&to=2`
pub(crate) async fn difference(
    As(session): As,
    Name(reference): Name,
    Query(query): Query<DifferenceQuery>,
) -> Result<Page, ApiError> {
    let reads = session.reads();
    let workflow = reads.workflow(&reference).await?;
    let versions = reads.versions(&workflow.uid.to_string(), None, VERSIONS).await?.items;
    let has_draft = reads.draft(&workflow).await?.is_some();
    let newest = |at: usize| versions.get(at).map(|row| row.version.to_string());
    let to = query.to.or_else(|| newest(0)).unwrap_or_else(|| "draft".to_owned());
    let from = query.from.or_else(|| newest(1)).unwrap_or_else(|| to.clone());
    let old = side(&session, &workflow, &from).await?;
    let new = side(&session, &workflow, &to).await?;
    let choice = |name: &'static str, label: &'static str, chosen: &str| {
        html! {
            label.field { span { (label) }
                select name=(name) {
                    @if has_draft { option value="draft" selected[chosen == "draft"] { "Draft" } }
                    @for row in &versions { option value=(row.version) selected[chosen == row.version.to_string()] { "Version " (row.version) } }
                }
            }
        }
    };
    let frame = Frame::new(
        format!("{}: {} and {}", workflow.id, old.name, new.name),
        Tab::Workflows,
        &session,
    );
    Ok(frame.page(html! {
        div.head {
            nav.crumbs aria-label="Breadcrumb" { a href="/workflows" { "Workflows" } " / " a href=(address(&workflow)) { (workflow.id) } " / difference" }
            h1 { (old.name) " → " (new.name) }
            form.filters action=(format!("{}/difference", address(&workflow))) method="get" {
                (choice("from", "From", &from))
                (choice("to", "To", &to))
                button.button { "Compare" }
            }
            @if may_manage(&session, &workflow) && has_draft { a.button href=(format!("{}/edit", address(&workflow))) { "Edit draft" } }
        }
        div.columns {
            (text_panel(&old.source, &new.source))
            div.stack {
                @match (&old.plan, &new.plan) {
                    (Some(old), Some(new)) => (graph_panels(old, new)),
                    _ => section.card { header { h2 { "Graph" } } p.pad.muted { "The draft has problems, so it has no graph. The editor shows them." } },
                }
            }
        }
    }))
}

async fn side(session: &Session, workflow: &Workflow, name: &str) -> Result<Side, ApiError> {
    let reads = session.reads();
    let text = json::readable;
    if name == "draft" {
        let draft = reads.draft(workflow).await?;
        let missing = || ApiError::not_found("NO_DRAFT", format!("workflow `{}` has no draft", workflow.id));
        let draft = draft.ok_or_else(missing)?;
        let checked = session.workflows().validate(&draft.source, "draft").await;
        return Ok(Side {
            name: "Draft".to_owned(),
            source: text(&draft.source),
            plan: checked
                .ok()
                .and_then(|checked| checked.outcome.ok())
                .map(|(plan, _)| Arc::new(plan)),
        });
    }
    let wrong = |_| ApiError::parameter("`from` and `to` must be a version, or `draft`");
    let version: u32 = name.parse().map_err(wrong)?;
    let definition = reads.definition(workflow, version).await?;
    Ok(Side {
        name: format!("Version {version}"),
        source: text(&definition.source),
        plan: Some(reads.plan(workflow, version).await?),
    })
}

fn graph_panels(old: &Plan, new: &Plan) -> Markup {
    let changes = graph_difference::Changes::of(old, new);
    html! {
        (graph::panel(&changes.svg(), changes.count()))
        (changes.list())
    }
}

fn text_panel(old: &str, new: &str) -> Markup {
    let all = lines(old, new);
    let count = |edit: Edit| all.iter().filter(|line| line.edit == edit).count();
    html! {
        section.card {
            header {
                h2 { "Source" }
                span.muted { (count(Edit::Removed)) " removed, " (count(Edit::Added)) " added" }
            }
            (text(&all))
        }
    }
}

/// A difference of texts as a table.
pub(super) fn text(all: &[Line<'_>]) -> Markup {
    let is_near = |at: usize| {
        let near = all[at.saturating_sub(CONTEXT)..]
            .iter()
            .take(at.min(CONTEXT) + CONTEXT + 1);
        near.clone().any(|line| line.edit != Edit::Kept)
    };
    let mut rows: Vec<Result<&Line<'_>, usize>> = Vec::new();
    for (at, line) in all.iter().enumerate() {
        match (is_near(at), rows.last_mut()) {
            (true, _) => rows.push(Ok(line)),
            (false, Some(Err(left_out))) => *left_out += 1,
            (false, _) => rows.push(Err(1)),
        }
    }
    let is_same = all.iter().all(|line| line.edit == Edit::Kept);
    html! {
        @if is_same { p.pad.muted { "The texts are equal." } }
        @else {
            div.scroll.difference tabindex="0" role="region" aria-label="Difference of the sources" {
                table { tbody { @for row in rows.iter().take(MAX_LINES) { (text_row(row)) } } }
                @if rows.len() > MAX_LINES { p.note { "Only the first " (MAX_LINES) " lines are shown." } }
            }
        }
    }
}

fn text_row(row: &Result<&Line<'_>, usize>) -> Markup {
    let number = |number: Option<usize>| html! { td.number { @if let Some(number) = number { (number) } } };
    html! {
        @match row {
            Err(left_out) => tr.left-out { td colspan="4" { "⋯ " (left_out) @if *left_out == 1 { " line" } @else { " lines" } } },
            Ok(line) => {
                @let text = cut(line.text, MAX_LINE);
                @match line.edit {
                    Edit::Kept => tr { (number(line.old)) (number(line.new)) td.sign {} td { (text) } },
                    Edit::Removed => tr.removed { (number(line.old)) (number(line.new)) td.sign { "−" } td { del { (text) } } },
                    Edit::Added => tr.added { (number(line.old)) (number(line.new)) td.sign { "+" } td { ins { (text) } } },
                }
            },
        }
    }
}
