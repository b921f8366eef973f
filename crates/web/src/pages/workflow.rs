//! `/workflows/{id}`: one workflow with its graph, run form, runs, triggers, versions and source.

use super::{
    Page, forms,
    frame::{Frame, Tab},
    graph, json,
    parts::{ago, cut, empty, encoded, exact},
    runs::short_row,
    workflows::{address, last_runs, marks, state},
};
use crate::{
    Web,
    door::As,
    error::ApiError,
    extract::{Name, Query},
};
use axum::extract::State;
use fermata_core::{Join, Kind, Node, Plan, Timestamp};
use fermata_runtime::{
    Scope, Session,
    triggers::{DeliveryList, DeliveryState, Trigger, TriggerDelivery, TriggerList},
};
use fermata_store::definitions::{Lifecycle, VersionRow, Workflow};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

const RUNS: u32 = 20;
const VERSIONS: u32 = 50;
const TRIGGERS: u32 = 20;
const DELIVERIES: u32 = 5;
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
        true => triggers(&session, &workflow).await?,
        false => Vec::new(),
    };
    let source = match &shown {
        Some((_, definition)) => Some(definition.source.clone()),
        None => reads.draft(&workflow).await?.map(|draft| draft.source),
    };
    let plan = shown.as_ref().map(|(plan, _)| plan);
    let mut frame = Frame::new(workflow.id.clone(), Tab::Workflows, &session);
    frame.poll = Some(POLL_MS);
    Ok(frame.page(html! {
        (head(&session, &workflow))
        div.columns {
            @if let (Some(plan), Some(version)) = (plan, version) {
                @let layout = web.graphs.layout(workflow.uid, version, plan);
                (graph::panel(&graph::svg(plan, &layout, None, query.node.as_deref()), plan.nodes.len()))
            } @else {
                section.card { (empty("No version yet", "This workflow has a draft only. Publish it:", Some(&format!("fermata workflows publish {}", workflow.id)))) }
            }
            div.stack {
                @if session.caller().has(Scope::Execute) && workflow.status == Lifecycle::Active { (run_form(&workflow, plan.and_then(|plan| plan.trigger_schema.as_ref()))) }
                (runs_panel(&runs, &workflow, now))
            }
        }
        div.columns {
            (source_panel(source.as_deref(), version))
            div.stack {
                (triggers_panel(&triggers, now))
                (versions_panel(&versions, &workflow, version))
            }
        }
        aside #drawer data-live {
            @if let (Some(plan), Some(node)) = (plan, query.node.as_deref()) { (drawer(plan, node)?) }
        }
    }))
}

fn head(session: &Session, workflow: &Workflow) -> Markup {
    let may_manage =
        session.caller().has(Scope::Manage) && session.caller().tenant().is_none_or(|own| own == workflow.tenant);
    let action = |name: &str, title: &str, text: &str, yes: &str, is_danger: bool| {
        html! {
            button.button.js.danger[is_danger] data-post=(format!("/api/v1/workflows/{}/{name}", workflow.uid))
                data-title=(title) data-text=(text) data-yes=(yes) { (yes) }
        }
    };
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
                    @match (workflow.status, workflow.enabled) {
                        (Lifecycle::Active, true) => {
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

fn versions_panel(versions: &[VersionRow], workflow: &Workflow, shown: Option<u32>) -> Markup {
    html! {
        section.card {
            header { h2 { "Versions" } span.muted { (versions.len()) } }
            @if versions.is_empty() { p.muted.pad { "None yet." } }
            @else {
                table.list { tbody {
                    @for version in versions {
                        tr data-row {
                            td { a.main href=(format!("{}?version={}", address(workflow), version.version)) aria-current=[(Some(version.version) == shown).then_some("true")] { "Version " (version.version) }
                                @if Some(version.version) == workflow.current_version { " " span.tag { "current" } } }
                            td.mono.muted.wide title=(version.checksum) { (cut(&version.checksum, 13)) }
                            td.num { (exact(version.created_at)) }
                        }
                    }
                } }
            }
        }
    }
}

async fn triggers(
    session: &Session,
    workflow: &Workflow,
) -> Result<Vec<(Trigger, Vec<TriggerDelivery>, Option<Timestamp>)>, ApiError> {
    let all = session.triggers();
    let list = TriggerList {
        workflow: Some(workflow.uid.to_string()),
        limit: TRIGGERS,
        ..TriggerList::default()
    };
    let mut found = Vec::new();
    for trigger in all.list(list).await?.items {
        let recent = DeliveryList {
            limit: DELIVERIES,
            ..DeliveryList::default()
        };
        let deliveries = all.deliveries(trigger.id, recent).await?.items;
        let config = serde_json::from_str(&trigger.config).unwrap_or_default();
        let is_due = trigger.enabled && trigger.next_fire_at.is_some();
        let next = is_due.then(|| all.preview(trigger.kind, &config, 1).ok()).flatten();
        found.push((trigger, deliveries, next.and_then(|times| times.first().copied())));
    }
    Ok(found)
}

fn triggers_panel(triggers: &[(Trigger, Vec<TriggerDelivery>, Option<Timestamp>)], now: Timestamp) -> Markup {
    html! {
        div #triggers data-live {
            @if !triggers.is_empty() {
                section.card {
                    header { h2 { "Triggers" } span.muted { (triggers.len()) } }
                    @for (trigger, deliveries, next) in triggers {
                        div.pad.trigger {
                            p {
                                b { (trigger.name.as_deref().unwrap_or(trigger.kind.as_str())) } " "
                                span.tag { (trigger.kind.as_str()) }
                                @if !trigger.enabled { " " span.tag { "disabled" } }
                                @if let Some(next) = next { span.muted { " next " (ago(*next, now)) } }
                            }
                            p.mono.small.muted { (cut(&trigger.config, 200)) }
                            @for delivery in deliveries {
                                p.small {
                                    (exact(delivery.received_at)) " " (delivery.state.as_str())
                                    @if delivery.state == DeliveryState::Started { " " a href=(format!("/runs/{}", delivery.run)) { "run" } }
                                    @if let Some(reason) = &delivery.reason { span.muted { " " (cut(reason, 120)) } }
                                }
                            }
                        }
                    }
                }
            }
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
