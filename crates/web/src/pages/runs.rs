//! `/`: the runs, newest first. The filters are those of `GET /api/v1/executions`, in the address.

use super::{
    Page, accepts_html,
    frame::{Frame, Tab},
    parts::{ago, cut, empty, encoded, exact, quoted, run_status, short_id, took},
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

/// Runs on a page, if the address does not say it.
const LIMIT: u32 = 50;

/// How often the first page asks for changes.
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
    let shows_tenant = session.caller().tenant().is_none();
    let page = frame.page(html! {
        div.head { h1 { "Runs" } (filter_form(&query)) }
        div #runs data-live {
            @if found.items.is_empty() {
                @match (has_filter || !is_first, found.next.is_some()) {
                    (true, true) => (empty("No match on this page", "The first 20,000 runs were examined. Older ones may match.", None)),
                    (true, false) => (empty("No runs match", "No run has these properties. Remove a filter to see more.", None)),
                    (false, _) => (nothing_yet(&web)),
                }
            } @else {
                table.list {
                    thead { tr { th { "Status" } th { "Workflow" } th.wide { "Run" } th.wide { "Started by" } th { "Started" } th.num { "Duration" } } }
                    tbody { @for run in &found.items { (row(run, now, shows_tenant)) } }
                }
            }
            nav.pages aria-label="Pages" {
                @if !is_first { a.button href=(address(&query, None)) { "Newest" } }
                @if let Some(next) = next { a.button href=(next) rel="next" { "Older" } }
            }
        }
    });
    Ok((StatusCode::OK, page))
}

fn wrong_filter(frame: Frame, query: &ListQuery, error: &ApiError) -> Page {
    frame.page(html! {
        div.head { h1 { "Runs" } (filter_form(query)) }
        div.failure role="alert" { (error.message) }
    })
}

fn nothing_yet(web: &Web) -> Markup {
    let base = web.settings().public_url.trim_end_matches('/');
    let url = quoted(&format!("{base}/api/v1/workflows/hello/execute"));
    let command = format!("curl -X POST {url} -H 'content-type: application/json' -d '{{\"trigger\": {{}}}}'");
    let sentence = "Runs appear here as soon as a workflow is started. Publish one, then start it:";
    empty("No runs yet", sentence, Some(&command))
}

fn row(run: &RunRecord, now: Timestamp, shows_tenant: bool) -> Markup {
    let to = format!("/runs/{}", run.id);
    html! {
        tr data-row {
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
            span.detail { "waits for its turn" }
        } @else if let Some(wake) = run.wake_at.filter(|_| run.status == Status::Running && !run.held()) {
            span.detail { "waits, continues " (ago(wake, now)) }
        } @else if run.status == Status::Running && !run.held() {
            span.detail { "waits" }
        }
    }
}

/// The run that it repeats, the parent, or the user that requested it.
pub(super) fn started_by(run: &RunRecord) -> Markup {
    let principal = &run.principal;
    let name = principal.display_name.as_ref().filter(|name| !name.is_empty());
    html! {
        @if let Some(of) = run.rerun_of {
            "rerun of " a href=(format!("/runs/{}", of.run)) title=(of.run) { (short_id(of.run)) }
        } @else if let Some(parent) = run.parent {
            a href=(format!("/runs/{parent}")) title=(parent) { "run " (short_id(parent)) }
            @if let Some(node) = &run.parent_node { span.muted { " · " (cut(node.as_str(), 24)) } }
        } @else if let Some(name) = name { (name) }
        @else if !principal.user_id.is_empty() { (principal.user_id) }
        @else { span.muted { "API" } }
    }
}

/// The filters in an address: name and value.
fn filters(query: &ListQuery) -> Vec<(&'static str, &str)> {
    let all = [
        ("query", &query.query),
        ("status", &query.status),
        ("workflowId", &query.workflow_id),
        ("tenantId", &query.tenant_id),
        ("correlationId", &query.correlation_id),
        ("requestId", &query.request_id),
        ("runnerId", &query.runner_id),
        ("createdAfter", &query.created_after),
        ("createdBefore", &query.created_before),
        ("search", &query.search),
    ];
    let given = all
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)));
    given.filter(|(_, value)| !value.is_empty()).collect()
}

/// The address of the list with the same filters.
fn address(query: &ListQuery, cursor: Option<&str>) -> String {
    let order = query.order.as_deref().map(|order| ("order", order));
    let limit = query
        .limit
        .filter(|limit| *limit != LIMIT)
        .map(|limit| limit.to_string());
    let all = filters(query).into_iter().chain(order);
    let all = all.chain(limit.as_deref().map(|limit| ("limit", limit)));
    let all = all.chain(cursor.map(|cursor| ("cursor", cursor)));
    let pairs: Vec<String> = all.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    match pairs.is_empty() {
        true => "/".to_owned(),
        false => format!("/?{}", pairs.join("&")),
    }
}

fn filter_form(query: &ListQuery) -> Markup {
    let chosen = query.status.as_deref().unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    // Filters without a field stay as they are.
    let fields = ["status", "workflowId", "query"];
    html! {
        form.filters action="/" method="get" role="search" {
            label.field { span { "Status" }
                select name="status" data-submit {
                    option value="" { "All" }
                    @for status in Status::ALL {
                        option value=(status.as_str()) selected[chosen == status.as_str()] { (status.as_str()) }
                    }
                    @if !chosen.is_empty() && Status::ALL.iter().all(|status| status.as_str() != chosen) {
                        option value=(chosen) selected { (chosen) }
                    }
                }
            }
            label.field { span { "Workflow" } input name="workflowId" value=(text(&query.workflow_id)) placeholder="any" spellcheck="false" autocapitalize="off"; }
            label.field.search { span { "Query" }
                input type="search" name="query" value=(text(&query.query)) placeholder="status:failed workflow:order-* since:24h" data-query spellcheck="false" autocapitalize="off";
            }
            button.button { "Filter" }
            @for (name, value) in filters(query).into_iter().filter(|(name, _)| !fields.contains(name)) {
                input type="hidden" name=(name) value=(value);
                span.tag { (name) ": " (cut(value, 40)) }
            }
            @if !filters(query).is_empty() { a.plain href="/" { "Clear" } }
        }
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
