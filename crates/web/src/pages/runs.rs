//! `/`: the runs, newest first. The filters are those of `GET /api/v1/executions`, in the address.

use super::{
    Page, accepts_html, bulk,
    filters::{LIMIT, address, filter_form, filters, stream, wrong_filter},
    frame::{Frame, Tab},
    parts::{ago, cut, empty, exact, quoted, run_status, short_id, took},
};
use crate::{
    Web,
    api::{
        list::{ListQuery, find},
        no_route,
    },
    door::As,
    error::ApiError,
    extract::Query,
    flow_views::WaitingForView,
    paging,
};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use fermata_core::{Status, Timestamp};
use fermata_store::reads::RunRecord;
use maud::{Markup, html};

/// How often the first page asks for changes while it has no stream.
const POLL_MS: u32 = 3000;

/// `GET /`
pub(crate) async fn page(
    State(web): State<Web>,
    As(session): As,
    headers: HeaderMap,
    uri: Uri,
    Query(mut query): Query<ListQuery>,
) -> Result<(StatusCode, Page), ApiError> {
    // Clients of the API find nothing here, as before there were pages.
    if !accepts_html(&headers) {
        return Err(no_route(uri).await);
    }
    query.limit = query.limit.or(Some(LIMIT));
    let found = match find(&session, query.clone()).await {
        Ok(found) => found,
        // The filters stay, so that they can be mended.
        Err(error) if error.status == StatusCode::BAD_REQUEST => {
            let frame = Frame::new("Runs", Tab::Runs, &session);
            return Ok((StatusCode::BAD_REQUEST, wrong_filter(frame, &query, &error)));
        }
        Err(error) => return Err(error),
    };
    let now = session.now();
    let is_first = query.cursor.is_none();
    let has_filter = !filters(&query).is_empty();
    let next = found.next.map(|last| address(&query, Some(&paging::after_run(last))));
    let mut frame = Frame::new("Runs", Tab::Runs, &session);
    frame.poll = is_first.then_some(POLL_MS);
    frame.stream = is_first.then(|| stream(&query)).flatten();
    let can_act = bulk::can_act(&session);
    let shows_tenant = session.caller().tenant().is_none();
    let page = frame.page(html! {
        div.head {
            h1 { "Runs" }
            a.plain href="/bulk" { "Bulk jobs" }
            (filter_form(&query))
        }
        div #runs data-live {
            @if found.items.is_empty() {
                @match (has_filter || !is_first, found.next.is_some()) {
                    (true, true) => (empty("No match on this page", "The first 20,000 runs were examined. Older ones may match.", None)),
                    (true, false) => (empty("No runs match", "No run has these properties. Remove a filter to see more.", None)),
                    (false, _) => (nothing_yet(&web)),
                }
            } @else {
                table.list {
                    thead { tr {
                        @if can_act { th.pick { input.js type="checkbox" data-pick-all aria-label="Select all runs on this page"; } }
                        th { "Status" } th { "Workflow" } th.wide { "Run" } th.wide { "Started by" } th { "Started" } th.num { "Duration" }
                    } }
                    tbody { @for run in &found.items { (row(run, now, shows_tenant, can_act)) } }
                }
            }
            nav.pages aria-label="Pages" {
                @if !is_first { a.button href=(address(&query, None)) { "Newest" } }
                @if let Some(next) = next { a.button href=(next) rel="next" { "Older" } }
            }
        }
        @if can_act { (bulk::bar(&session, &query)) }
    });
    Ok((StatusCode::OK, page))
}

fn nothing_yet(web: &Web) -> Markup {
    let base = web.settings().public_url.trim_end_matches('/');
    let url = quoted(&format!("{base}/api/v1/workflows/hello/execute"));
    let command = format!("curl -X POST {url} -H 'content-type: application/json' -d '{{\"trigger\": {{}}}}'");
    let sentence = "Runs appear here as soon as a workflow is started. Publish one, then start it:";
    empty("No runs yet", sentence, Some(&command))
}

fn row(run: &RunRecord, now: Timestamp, shows_tenant: bool, can_act: bool) -> Markup {
    let to = format!("/runs/{}", run.id);
    let name = format!("Select run {} of {}", short_id(run.id), run.workflow_id);
    html! {
        tr data-row {
            @if can_act { td.pick { input.js type="checkbox" data-pick=(run.id) aria-label=(name); } }
            td.state { (run_status(run)) (detail(run, now)) }
            td {
                a.main href=(to) { (run.workflow_id) }
                span.muted { " v" (run.workflow_version) }
                @if shows_tenant && !run.tenant.is_empty() { " " span.tag { (run.tenant) } }
            }
            td.wide.mono { a href=(to) title=(run.id) tabindex="-1" { (short_id(run.id)) } }
            td.wide { (started_by(run)) }
            td title=(exact_text(run.created_at)) { (ago(run.created_at, now)) }
            td.num { (took(run.started_at, run.ended_at, now)) }
        }
    }
}

fn exact_text(at: Timestamp) -> String {
    crate::time::Iso(at).to_string()
}

/// What else there is to say about the status: why it failed, or what it waits for.
fn detail(run: &RunRecord, now: Timestamp) -> Markup {
    let failure = run
        .error
        .as_deref()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let failure = failure.as_ref();
    let text = |name: &str| failure.and_then(|failure| failure[name].as_str());
    let node = text("node").or(text("nodeId"));
    html! {
        @if let Some(message) = text("message").filter(|_| run.status == Status::Failed) {
            span.detail title=(message) { @if let Some(node) = node { b { (node) } ": " } (cut(message, 90)) }
        } @else if let Some(reason) = &run.reason {
            span.detail title=(reason) { (cut(reason, 90)) }
        } @else if run.paused_at.is_some() {
            span.detail { "paused" }
        } @else if WaitingForView::of(run).is_some() {
            span.detail { "waits to begin" }
        } @else if let Some(wake) = run.wake_at.filter(|_| run.status == Status::Running && !run.held()) {
            span.detail { "waits, continues " (ago(wake, now)) }
        } @else if run.status == Status::Running && !run.held() {
            span.detail { "waits" }
        }
    }
}

/// How the requestIds of runs that triggers started begin.
const OF_TRIGGERS: &str = "fermata:trigger:";

/// The run that it repeats, the parent, a trigger, or the user that requested it.
pub(super) fn started_by(run: &RunRecord) -> Markup {
    let principal = &run.principal;
    let name = principal.display_name.as_ref().filter(|name| !name.is_empty());
    html! {
        @if let Some(of) = run.rerun_of {
            "rerun of " a href=(format!("/runs/{}", of.run)) title=(of.run) { (short_id(of.run)) }
        } @else if let Some(parent) = run.parent {
            a href=(format!("/runs/{parent}")) title=(parent) { "run " (short_id(parent)) }
            @if let Some(node) = &run.parent_node { span.muted { " · " (cut(node.as_str(), 24)) } }
        } @else if run.request_id.starts_with(OF_TRIGGERS) { "a trigger" }
        @else if let Some(name) = name { (name) }
        @else if !principal.user_id.is_empty() { (principal.user_id) }
        @else { span.muted { "API" } }
    }
}

/// One run in a list of few runs.
pub(super) fn short_row(run: &RunRecord, now: Timestamp) -> Markup {
    html! {
        tr data-row {
            td.state { (run_status(run)) (detail(run, now)) }
            td { a.main href=(format!("/runs/{}", run.id)) { (run.workflow_id) } span.muted.mono { " " (short_id(run.id)) } }
            td { (exact(run.created_at)) }
            td.num { (took(run.started_at, run.ended_at, now)) }
        }
    }
}
