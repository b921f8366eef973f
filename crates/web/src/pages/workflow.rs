//! `/workflows/{id}`: one workflow with its graph, run form, runs, triggers, versions and source.

use super::{
    Page, chart, forms,
    frame::{Frame, Tab},
    graph, json,
    parts::{cut, empty, encoded},
    runs::short_row,
    triggers, versions,
    workflows::{address, last_day, last_runs, marks, state},
};
use crate::{
    Web,
    door::As,
    error::ApiError,
    extract::{Name, Query},
};
use axum::extract::State;
use fermata_core::{Join, Kind, Node, Plan, Timestamp};
use fermata_runtime::{Scope, Session};
use fermata_store::{
    definitions::{Lifecycle, Workflow},
    stats::RunCounts,
};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

const RUNS: u32 = 20;
const VERSIONS: u32 = 50;
const POLL_MS: u32 = 4000;
/// The most bytes of a document that the page shows.
const MAX_SOURCE: usize = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowQuery {
    version: Option<u32>,
    node: Option<String>,
}

/// `GET /workflows/{id}`
pub(crate) async fn page(
    State(web): State<Web>,
    As(session): As,
    Name(reference): Name,
    Query(query): Query<WorkflowQuery>,
) -> Result<Page, ApiError> {
    let reads = session.reads();
    let workflow = reads.workflow(&reference).await?;
    let now = session.now();
    let versions = reads.versions(&workflow.uid.to_string(), None, VERSIONS).await?.items;
    let version = query.version.or(workflow.current_version).or(workflow.latest_version);
    let shown = match version {
        Some(version) => Some((
            reads.plan(&workflow, version).await?,
            reads.definition(&workflow, version).await?,
        )),
        None => None,
    };
    let runs = last_runs(&session, &workflow, RUNS).await?;
    let triggers = match session.caller().has(Scope::Manage) {
        true => triggers::triggers(&session, &workflow).await?,
        false => Vec::new(),
    };
    let draft = reads.draft(&workflow).await?;
    let source = match &shown {
        Some((_, definition)) => Some(definition.source.as_slice()),
        None => draft.as_ref().map(|draft| draft.source.as_slice()),
    };
    let span = last_day(&session);
    let stats = session.stats(span, Some(workflow.uid), None, 1).await?;
    let plan = shown.as_ref().map(|(plan, _)| plan);
    let mut frame = Frame::new(workflow.id.clone(), Tab::Workflows, &session);
    frame.poll = Some(POLL_MS);
    Ok(frame.page(html! {
        (head(&session, &workflow, draft.is_some()))
        div #facts data-live { (facts(&stats.all)) }
        div.columns {
            @if let (Some(plan), Some(version)) = (plan, version) {
                @let layout = web.graphs.layout(workflow.uid, version, plan);
                (graph::panel(&graph::svg(plan, &layout, None, query.node.as_deref()), plan.nodes.len()))
            } @else {
                section.card { (empty("No version yet", "This workflow has a draft only. Publish it here, or:", Some(&format!("fermata workflows publish {}", workflow.id)))) }
            }
            div.stack {
                @if session.caller().has(Scope::Execute) && workflow.status == Lifecycle::Active { (run_form(&workflow, plan.and_then(|plan| plan.trigger_schema.as_ref()))) }
                div #numbers data-live { div.card.pad { (chart::THROUGHPUT.drawn(&stats, span)) } }
                (runs_panel(&runs, &workflow, now))
            }
        }
        div.columns {
            div #source-panel data-live { (source_panel(source, version)) }
            div.stack {
                (triggers::panel(&triggers, now))
                (versions::panel(&versions, &workflow, version, draft.is_some(), may_manage(&session, &workflow)))
            }
        }
        aside #drawer data-live {
            @if let (Some(plan), Some(node)) = (plan, query.node.as_deref()) { (drawer(plan, node)?) }
        }
    }))
}

/// Whether the caller may change this workflow.
pub(super) fn may_manage(session: &Session, workflow: &Workflow) -> bool {
    let caller = session.caller();
    caller.has(Scope::Manage) && caller.tenant().is_none_or(|own| own == workflow.tenant)
}

/// The numbers of the last 24 hours.
fn facts(counts: &RunCounts) -> Markup {
    let facts = [
        ("Success", chart::success_rate(counts)),
        ("P50", counts.quantile(0.5).map(chart::estimate)),
        ("P95", counts.quantile(0.95).map(chart::estimate)),
        ("Started", Some(counts.started.to_string())),
        ("Ended", Some(counts.ended().to_string())),
    ];
    html! {
        dl.facts aria-label="The last 24 hours" {
            @for (name, value) in facts { div { dt { (name) ", 24 h" } dd { (value.as_deref().unwrap_or("–")) } } }
        }
    }
}

fn head(session: &Session, workflow: &Workflow, has_draft: bool) -> Markup {
    let may_manage = may_manage(session, workflow);
    let action = |name: &str, title: &str, text: &str, yes: &str, is_danger: bool| {
        html! {
            button.button.js.danger[is_danger] data-post=(format!("/api/v1/workflows/{}/{name}", workflow.uid))
                data-title=(title) data-text=(text) data-yes=(yes) { (yes) }
        }
    };
    let is_archived = workflow.status == Lifecycle::Archived;
    html! {
        div #workflow-head data-live {
            div.head {
                nav.crumbs aria-label="Breadcrumb" { a href="/workflows" { "Workflows" } " / " span { (workflow.id) } }
                h1 { (workflow.id) }
                (state(workflow))
                @if !workflow.tenant.is_empty() { span.tag { (workflow.tenant) } }
                span.tag { (workflow.dialect) }
                span.grow {}
                @if may_manage {
                    a.button href=(format!("{}/edit", address(workflow))) { "Edit" @if has_draft { " draft" } }
                    @if has_draft && !is_archived {
                        (action("publish", "Publish the draft?", "New runs use the new version. Runs that have started stay on their version.", "Publish", false))
                    }
                    @match (workflow.status, workflow.enabled) {
                        (Lifecycle::Active, true) => {
                            @if workflow.paused_at.is_some() {
                                (action("resume", "Resume this workflow?", "Runs that wait begin.", "Resume", false))
                            } @else {
                                (action("pause", "Pause this workflow?", "New runs wait until it is resumed. Runs that have begun go on.", "Pause", false))
                            }
                            (action("disable", "Disable this workflow?", "New runs are refused. Runs that have started go on.", "Disable", false))
                            (action("archive", "Archive this workflow?", "New runs are refused and its triggers are disabled. It can be reactivated.", "Archive", true))
                        },
                        (Lifecycle::Active, false) => (action("enable", "Enable this workflow?", "New runs can start again.", "Enable", false)),
                        (Lifecycle::Archived, _) => (action("reactivate", "Reactivate this workflow?", "New runs can start again.", "Reactivate", false)),
                        (Lifecycle::Draft, _) => {},
                    }
                }
            }
            p.muted.lead { (workflow.display_name) @if let Some(text) = &workflow.description { " · " (cut(text, 300)) } }
        }
    }
}

fn run_form(workflow: &Workflow, schema: Option<&serde_json::Value>) -> Markup {
    html! {
        section.card {
            header { h2 { "Run" } span.muted { @if schema.is_some() { "made from the trigger schema" } @else { "any JSON" } } }
            form.form data-run=(format!("/api/v1/workflows/{}/execute", workflow.uid)) data-request-id=(Uuid::now_v7()) {
                (forms::fields(schema))
                p.error role="alert" data-error {}
                div.buttons { button.button.primary { "Start a run" } }
                noscript { p.error { "Starting a run here needs JavaScript." } }
            }
        }
    }
}

fn runs_panel(runs: &[fermata_store::reads::RunRecord], workflow: &Workflow, now: Timestamp) -> Markup {
    html! {
        section.card {
            header { h2 { "Last runs" } span.grow {} a.plain href=(format!("/?workflowId={}", encoded(&workflow.uid.to_string()))) { "All" } }
            div #last-runs data-live {
                @if runs.is_empty() { p.muted.pad { "It has not run yet." } }
                @else {
                    p.pad { (marks(runs)) }
                    table.list { tbody { @for run in runs.iter().take(5) { (short_row(run, now)) } } }
                }
            }
        }
    }
}

fn source_panel(source: Option<&[u8]>, version: Option<u32>) -> Markup {
    let text = source
        .map(|source| String::from_utf8_lossy(source).into_owned())
        .unwrap_or_default();
    let cut_at = text.floor_char_boundary(MAX_SOURCE);
    html! {
        section.card {
            header {
                h2 { "Source" }
                span.muted { @match version { Some(version) => { "version " (version) }, None => "draft" } " · " (json::bytes(text.len())) }
                span.grow {}
                button.plain.js data-copy-next { "Copy" }
            }
            pre.source tabindex="0" { (&text[..cut_at]) @if cut_at < text.len() { "…" } }
        }
    }
}

/// A node as it is in the document.
fn drawer(plan: &Plan, id: &str) -> Result<Markup, ApiError> {
    let missing = || {
        ApiError::not_found(
            "NODE_OR_EDGE_NOT_FOUND",
            format!("this version has no node `{}`", cut(id, 100)),
        )
    };
    let node: &Node = plan.node(plan.find(id).ok_or_else(missing)?);
    let parameters = match &node.kind {
        Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } | Kind::Request { parameters, .. } => {
            Some(parameters.to_string())
        }
        Kind::Wait { .. } | Kind::Pass => None,
    };
    let retry = &node.policies.retry;
    Ok(html! {
        div.drawer role="dialog" aria-label=(format!("Node {id}")) {
            header {
                div { h2 { (node.title.as_deref().unwrap_or(id)) } p.muted.mono { (id) " · " (graph::action(&node.kind)) } }
                span.grow {}
                a.plain href="?" data-swap data-close aria-label="Close" { "✕" }
            }
            div.pad {
                p { "Timeout of an attempt: " (super::parts::duration(node.policies.timeout_ms.saturating_mul(1000))) }
                p { "Attempts: at most " (retry.max_attempts) }
                @if let Join::Guard(condition) = &node.join { p { "Runs if " code { (cut(condition, 1000)) } } }
                @for edge in &node.edges {
                    @let target = &plan.node(edge.target).id;
                    p { "→ " a href=(format!("?node={}", encoded(target.as_str()))) data-swap { (target) }
                        @if let Some(condition) = &edge.condition { " if " code { (cut(condition, 1000)) } } }
                }
            }
            @if let Some(parameters) = &parameters { section.data { header { h3 { "Parameters" } } (json::plain(parameters)) } }
        }
    })
}
