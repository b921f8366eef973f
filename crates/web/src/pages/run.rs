//! `/runs/{id}`: one run with its graph, timeline, events and data. `?node=` opens the drawer of a node.

use super::{
    Page, drawer,
    frame::{Frame, Tab},
    graph, json,
    parts::{ago, cut, exact, quoted, run_status, short_id, took},
    rerun,
    runs::{short_row, started_by},
    timeline,
};
use crate::{
    Web,
    door::As,
    error::ApiError,
    extract::{ExecutionId, Query},
    flow_views::WaitingForView,
};
use axum::extract::State;
use fermata_core::{Status, Timestamp};
use fermata_runtime::{
    NodeState, Progress, Scope, Session,
    timeline::{Entry, Level},
};
use fermata_store::reads::{RunRecord, Window};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

/// Events on a page.
const EVENTS: u32 = 200;
/// Children on a page.
const CHILDREN: u32 = 50;
/// How often the page of a run that has not ended asks for changes.
const POLL_MS: u32 = 1500;

/// The body of a command.
pub(super) const BY: &str = r#"{"reason": "in the dashboard"}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RunQuery {
    node: Option<String>,
    /// The first event that is shown.
    events: Option<u32>,
}

/// `GET /runs/{id}`
pub(crate) async fn page(
    State(web): State<Web>,
    As(session): As,
    ExecutionId(id): ExecutionId,
    Query(query): Query<RunQuery>,
) -> Result<Page, ApiError> {
    let reads = session.reads();
    let run = reads.run(id).await?;
    let now = session.now();
    let progress = reads.progress(&run).await?;
    let total = progress.as_ref().map_or(0, |progress| progress.entries);
    let last_page = u32::try_from(total.saturating_sub(u64::from(EVENTS))).unwrap_or(u32::MAX);
    let offset = query.events.unwrap_or(last_page);
    let window = Window { limit: EVENTS, offset };
    let (events, total) = reads.events(&run, window).await?;
    let children = reads.children(id, None, CHILDREN).await?;
    let chosen = query.node.as_deref();
    let drawer = match (&progress, chosen) {
        (Some(progress), Some(node)) => Some(drawer::of(&session, &run, progress, node).await?),
        _ => None,
    };
    let waits = waits(&session, &run, progress.as_ref(), now).await?;
    let edit = rerun::form(&session, &run, progress.as_ref()).await?;
    let mut frame = Frame::new(format!("{} {}", run.workflow_id, short_id(id)), Tab::Runs, &session);
    frame.poll = (!run.status.is_terminal()).then_some(POLL_MS);
    let seq = progress.as_ref().map_or(0, |progress| progress.seq);
    frame.stream = frame
        .poll
        .map(|_| format!("/api/v1/executions/{id}/stream?after={seq}"));
    Ok(frame.page(html! {
        div #run-head data-live { (head(&web, &session, &run, now)) (waits) }
        @if let Some(progress) = &progress {
            @let layout = web.graphs.layout(run.workflow_uid, run.workflow_version, &progress.plan);
            div.columns {
                (graph::panel(&graph::svg(&progress.plan, &layout, Some(progress), chosen), progress.nodes.len()))
                (timeline::panel(progress, run.created_at, run.started_at, run.ended_at.unwrap_or(now)))
            }
        }
        div.columns {
            div #data data-live { (data(&run)) }
            (events_panel(&events, offset, total))
        }
        div #children data-live {
            @if !children.items.is_empty() {
                section.card {
                    header { h2 { "Child runs" } span.muted { @if children.more { "the first " } (children.items.len()) } }
                    table.list { tbody { @for child in &children.items { (short_row(child, now)) } } }
                }
            }
        }
        aside #drawer data-live { @if let Some(drawer) = drawer { (drawer) } }
        div #edit data-live { @if let Some(edit) = edit { (edit) } }
    }))
}

fn head(web: &Web, session: &Session, run: &RunRecord, now: Timestamp) -> Markup {
    let may_act = session.caller().has(Scope::Execute);
    let has_ended = run.status.is_terminal();
    let to = |verb: &str| format!("/api/v1/executions/{}/{verb}", run.id);
    html! {
        div.head.run-head {
            nav.crumbs aria-label="Breadcrumb" { a href="/" { "Runs" } " / " span.mono { (run.id) } button.plain data-copy=(run.id) { "Copy" } }
            h1 { (run.workflow_id) span.muted { " v" (run.workflow_version) } }
            (run_status(run))
            span.grow {}
            button.button.js data-copy=(as_curl(web, run)) title="Start a run with the same trigger" { "Copy as curl" }
            @if may_act && has_ended { (rerun::buttons(run)) }
            @if may_act && !has_ended {
                @if run.paused_at.is_some() {
                    button.button.js data-post=(to("resume")) data-body=(BY)
                        data-title="Resume this run?" data-yes="Resume" data-text="The run goes on where it was paused." { "Resume" }
                } @else {
                    button.button.js data-post=(to("pause")) data-body=(BY)
                        data-title="Pause this run?" data-yes="Pause" data-text="Running actions finish. Nothing new starts until the run is resumed; its deadlines go on." { "Pause" }
                }
                button.button.danger.js data-post=(to("cancel"))
                    data-body=(BY)
                    data-title="Cancel this run?" data-yes="Cancel the run"
                    data-text="Nodes that have not ended are stopped. This cannot be undone." { "Cancel" }
            }
        }
        dl.facts {
            (fact("Duration", &took(run.started_at, run.ended_at, now)))
            (fact("Started", &html! { (exact(run.created_at)) " " span.muted { "(" (ago(run.created_at, now)) ")" } }))
            @if let Some(ended) = run.ended_at { (fact("Ended", &exact(ended))) }
            (fact("Started by", &started_by(run)))
            @if let Some(parent) = run.parent.filter(|_| run.rerun_of.is_some()) {
                (fact("Parent", &html! { a href=(format!("/runs/{parent}")) title=(parent) { "run " (short_id(parent)) } }))
            }
            @if !run.tenant.is_empty() { (fact("Tenant", &html! { (run.tenant) })) }
            @if !run.request_id.is_empty() && run.request_id != run.id.to_string() { (fact("Request id", &html! { span.mono title=(run.request_id) { (cut(&run.request_id, 40)) } })) }
            @if let Some(id) = &run.correlation_id { (fact("Correlation id", &html! { span.mono title=(id) { (cut(id, 40)) } })) }
            @if let Some(priority) = run.priority { (fact("Priority", &html! { (priority) })) }
            @if let Some(reason) = &run.reason { (fact("Reason", &html! { (cut(reason, 120)) })) }
        }
        @if let Some(error) = run.error.as_deref() { (failure(error)) }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// An error, as it is stored.
pub(super) fn failure(stored: &str) -> Markup {
    let value: Value = serde_json::from_str(stored).unwrap_or_default();
    let text = |name: &str| value[name].as_str();
    html! {
        div.failure role="note" {
            @if let Some(code) = text("code") { b.mono { (code) } " " }
            @if let Some(node) = text("node").or(text("nodeId")) { b { (node) } ": " }
            span.message { (cut(text("message").unwrap_or(stored), 2000)) }
        }
    }
}

/// A command that starts a run with the same trigger.
fn as_curl(web: &Web, run: &RunRecord) -> String {
    let base = web.settings().public_url.trim_end_matches('/');
    let url = quoted(&format!(
        "{base}/api/v1/workflows/{}/execute",
        super::parts::encoded(&run.workflow_id)
    ));
    let trigger = match run.trigger.len() > json::MAX_PREVIEW || run.trigger.is_empty() {
        true => "{}",
        false => run.trigger.as_str(),
    };
    let spec = run.spec.as_deref().filter(|spec| spec.len() <= json::MAX_PREVIEW);
    let spec = spec.map(|spec| format!(", \"spec\": {spec}")).unwrap_or_default();
    let body = quoted(&format!("{{\"trigger\": {trigger}{spec}}}"));
    format!("curl -X POST {url} \\\n  -H 'content-type: application/json' \\\n  -d {body}")
}

/// What a run that has not ended waits for.
async fn waits(
    session: &Session,
    run: &RunRecord,
    progress: Option<&Progress>,
    now: Timestamp,
) -> Result<Markup, ApiError> {
    if run.status.is_terminal() {
        return Ok(html! {});
    }
    if let Some(paused) = run.paused_at {
        return Ok(html! {
            p.waits { "Paused " (ago(paused, now)) ". Actions that were running finish; nothing new starts until the run is resumed." }
        });
    }
    if run.status == Status::Pending {
        let ahead = session.reads().ahead(run).await?;
        let waiting = WaitingForView::of(run).map(|mut waiting| {
            waiting.ahead = ahead;
            waiting
        });
        return Ok(html! {
            p.waits { @match waiting { Some(waiting) => (waiting.sentence()), None => "Waits for a free runner." } }
        });
    }
    let Some(progress) = progress else { return Ok(html! {}) };
    let nodes = progress.plan.nodes.iter().zip(&progress.nodes);
    let waiting: Vec<_> = nodes
        .filter(|(_, node)| {
            matches!(
                node.state,
                NodeState::Waiting | NodeState::Sleeping | NodeState::Retrying
            )
        })
        .collect();
    Ok(html! {
        @if !waiting.is_empty() {
            ul.waits {
                @for (node, state) in waiting.iter().take(5) {
                    li {
                        a href=(format!("?node={}", super::parts::encoded(node.id.as_str()))) data-swap { (node.id) }
                        @match state.state {
                            NodeState::Sleeping => { " sleeps" },
                            NodeState::Retrying => { " failed and waits for attempt " (state.attempt) },
                            _ if node.kind.awaits_children() => { " waits for child runs" },
                            _ => { " waits for an answer" },
                        }
                        @if let Some(items) = state.items { " · " (items.succeeded + items.failed) " of " (items.total) " items ended" }
                        @if let Some(until) = state.until { ", until " (exact(until)) " (" (ago(until, now)) ")" }
                    }
                }
                @if waiting.len() > 5 { li.muted { "and " (waiting.len() - 5) " more nodes" } }
            }
        }
    })
}

fn data(run: &RunRecord) -> Markup {
    let of = |part: &str| format!("/runs/{}/data/{part}", run.id);
    html! {
        section.card {
            header { h2 { "Data" } }
            @if run.trigger.is_empty() { p.muted.pad { "The trigger was removed by the retention." } }
            @else { (json::block("Trigger", &run.trigger, &of("trigger"))) }
            @if let Some(spec) = &run.spec { (json::block("Spec", spec, &of("spec"))) }
            @if let Some(request) = &run.request { (json::block("Request", request, &of("request"))) }
            @if let Some(outputs) = &run.outputs { (json::block("Outputs", outputs, &of("outputs"))) }
        }
    }
}

fn events_panel(events: &[Entry], offset: u32, total: u64) -> Markup {
    let page = |first: u32| format!("?events={first}");
    let has_more = u64::from(offset) + (events.len() as u64) < total;
    html! {
        section.card.events-card aria-label="Events" {
            header {
                h2 { "Events" }
                span.muted #event-count data-live { (total) }
                span.grow {}
                label.check { input type="checkbox" data-warnings; " Warnings only" }
                input.js type="search" placeholder="Filter" aria-label="Filter events" data-filter="#events li";
            }
            div #events data-live {
                ol.events {
                    @for event in events {
                        li.(level(event.level)) {
                            (exact(event.at))
                            span.seq { "#" (event.seq) }
                            span.message { (cut(&event.message, 400)) }
                        }
                    }
                }
                nav.pages {
                    @if offset > 0 { a.button href=(page(offset.saturating_sub(EVENTS))) data-swap { "Earlier" } }
                    @if has_more { a.button href=(page(offset.saturating_add(EVENTS))) data-swap { "Later" } }
                }
            }
        }
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "err",
    }
}
