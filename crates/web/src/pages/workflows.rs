//! `/workflows`: the workflows, with their last runs and the next time a schedule starts them.

use super::{
    Page,
    chart::{estimate, success_rate},
    frame::{Frame, Tab},
    parts::{ago, cut, empty, encoded, status_kind},
    triggers,
};
use crate::{
    Web,
    door::As,
    error::ApiError,
    extract::{Query, name},
    paging,
};
use axum::extract::State;
use fermata_core::Timestamp;
use fermata_runtime::{Scope, Session, stats::Span};
use fermata_store::{
    definitions::{Lifecycle, Workflow, WorkflowFilter},
    reads::{RunFilter, RunRecord},
    stats::RunCounts,
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};
use uuid::Uuid;

const LIMIT: u32 = 30;
/// Runs that are shown as marks.
const MARKS: u32 = 14;
const POLL_MS: u32 = 5000;
/// The time that numbers are about.
const NUMBERS_OF: Duration = Duration::from_secs(24 * 60 * 60);
/// The workflows of which one read returns the numbers: those with the most runs.
const MOST_NUMBERS: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowsQuery {
    search: Option<String>,
    cursor: Option<String>,
}

/// `GET /workflows`
pub(crate) async fn page(
    State(web): State<Web>,
    As(session): As,
    Query(query): Query<WorkflowsQuery>,
) -> Result<Page, ApiError> {
    let search = query.search.filter(|text| !text.is_empty());
    if let Some(search) = &search {
        name("search", search)?;
    }
    let filter = WorkflowFilter {
        search: search.clone(),
        after: query.cursor.as_deref().map(paging::name).transpose()?,
        limit: LIMIT,
        ..WorkflowFilter::default()
    };
    let found = session.reads().workflows(filter).await?;
    let now = session.now();
    let next_fires = next_fires(&session).await?;
    let numbers = numbers(&session, &found.items).await?;
    let mut rows = Vec::new();
    for workflow in &found.items {
        let runs = last_runs(&session, workflow, MARKS).await?;
        let next = next_fires.get(&workflow.uid).copied();
        rows.push(row(workflow, &runs, numbers.get(&workflow.uid), next, now));
    }
    let last = found.items.last().filter(|_| found.more);
    let search_part = search
        .as_deref()
        .map(|text| format!("&search={}", encoded(text)))
        .unwrap_or_default();
    let next = last.map(|last| {
        format!(
            "/workflows?cursor={}{search_part}",
            paging::after_name(&last.id, &last.tenant)
        )
    });
    let mut frame = Frame::new("Workflows", Tab::Workflows, &session);
    frame.poll = Some(POLL_MS);
    Ok(frame.page(html! {
        div.head {
            h1 { "Workflows" }
            form.filters action="/workflows" method="get" role="search" {
                label.field.search { span { "Search" } input type="search" name="search" value=[search.as_deref()] placeholder="name" data-query spellcheck="false"; }
                button.button { "Filter" }
            }
            @if session.caller().has(Scope::Manage) { a.button href="/workflows/new" { "New workflow" } }
        }
        div #workflows data-live {
            @if rows.is_empty() {
                @if search.is_some() || query.cursor.is_some() { (empty("No workflow matches", "No name contains this text.", None)) }
                @else { (nothing_yet(&web)) }
            } @else {
                table.list {
                    thead { tr { th { "Workflow" } th.wide { "State" } th { "Last runs" } th.num { "Success, 24 h" } th.num.wide { "P50" } th.num.wide { "P95" } th.wide { "Next" } th.num.wide { "Version" } } }
                    tbody { @for row in rows { (row) } }
                }
            }
            nav.pages { @if let Some(next) = next { a.button href=(next) rel="next" { "More" } } }
        }
    }))
}

fn nothing_yet(web: &Web) -> Markup {
    let server = web.settings().public_url.trim_end_matches('/');
    let command = format!("fermata workflows publish workflow.yaml --server {server}");
    empty(
        "No workflows yet",
        "A workflow is a document of nodes. Publish one:",
        Some(&command),
    )
}

/// The newest runs of a workflow, newest first.
pub(super) async fn last_runs(session: &Session, workflow: &Workflow, limit: u32) -> Result<Vec<RunRecord>, ApiError> {
    let filter = RunFilter {
        workflows: vec![workflow.uid],
        limit,
        ..RunFilter::default()
    };
    Ok(session.reads().runs(filter).await?.items)
}

/// The last 24 hours.
pub(super) fn last_day(session: &Session) -> Span {
    Span::last(NUMBERS_OF, session.now())
}

/// The numbers of these workflows. One read has those of the workflows with the most runs; only if there are more, the others are
/// read one by one.
async fn numbers(session: &Session, workflows: &[Workflow]) -> Result<HashMap<Uuid, RunCounts>, ApiError> {
    let span = last_day(session);
    let stats = session.stats(span, None, None, MOST_NUMBERS).await?;
    let is_complete = stats.workflows.len() < MOST_NUMBERS as usize;
    let mut numbers: HashMap<Uuid, RunCounts> = stats
        .workflows
        .into_iter()
        .map(|(uid, _, counts)| (uid, counts))
        .collect();
    for workflow in workflows.iter().filter(|_| !is_complete) {
        if let Entry::Vacant(unknown) = numbers.entry(workflow.uid) {
            let stats = session.stats(span, Some(workflow.uid), None, 1).await?;
            unknown.insert(stats.all);
        }
    }
    Ok(numbers)
}

/// The next fire time of each workflow with a schedule, if the caller may see triggers.
async fn next_fires(session: &Session) -> Result<HashMap<Uuid, Timestamp>, ApiError> {
    let mut next: HashMap<Uuid, Timestamp> = HashMap::new();
    for (trigger, first) in triggers::upcoming(session).await? {
        let known = next.entry(trigger.workflow_uid).or_insert(first);
        *known = first.min(*known);
    }
    Ok(next)
}

/// The state of a workflow in one word.
pub(super) fn state(workflow: &Workflow) -> Markup {
    let (kind, word) = match (workflow.status, workflow.enabled) {
        (Lifecycle::Draft, _) => ("pending", "Draft"),
        (Lifecycle::Archived, _) => ("cancelled", "Archived"),
        (Lifecycle::Active, false) => ("waiting", "Disabled"),
        (Lifecycle::Active, true) if workflow.paused_at.is_some() => ("waiting", "Paused"),
        (Lifecycle::Active, true) => ("succeeded", "Active"),
    };
    super::parts::mark(kind, word)
}

/// The address of a workflow. Workflows of different tenants may have the same name, so their address has the uid. So has that of
/// a workflow called `new`, which is the path of a page.
pub(super) fn address(workflow: &Workflow) -> String {
    match workflow.tenant.is_empty() && workflow.id != "new" {
        true => format!("/workflows/{}", encoded(&workflow.id)),
        false => format!("/workflows/{}", workflow.uid),
    }
}

/// Runs as marks, oldest first, so that the newest is on the right.
pub(super) fn marks(runs: &[RunRecord]) -> Markup {
    html! {
        span.marks {
            @for run in runs.iter().rev() {
                a.(format!("s-{}", status_kind(run.status))) href=(format!("/runs/{}", run.id)) title=(format!("{} {}", run.status.as_str(), run.id)) {
                    svg.icon width="14" height="14" aria-label=(run.status.as_str()) role="img" { use href=(format!("#i-{}", status_kind(run.status))); }
                }
            }
        }
    }
}

fn row(
    workflow: &Workflow,
    runs: &[RunRecord],
    numbers: Option<&RunCounts>,
    next: Option<Timestamp>,
    now: Timestamp,
) -> Markup {
    let rate = numbers.and_then(success_rate);
    let quantile = |part: f64| numbers.and_then(|counts| counts.quantile(part)).map(estimate);
    let or_none = |text: Option<String>| html! { @match text { Some(text) => (text), None => span.muted { "–" } } };
    let ended = numbers.map(|counts| {
        format!(
            "{} succeeded, {} failed, {} cancelled",
            counts.succeeded, counts.failed, counts.cancelled
        )
    });
    html! {
        tr data-row {
            td {
                a.main href=(address(workflow)) { (workflow.id) }
                @if !workflow.tenant.is_empty() { " " span.tag { (workflow.tenant) } }
                span.detail.flush { (cut(&workflow.display_name, 90)) }
            }
            td.wide { (state(workflow)) }
            td { @if runs.is_empty() { span.muted { "none" } } @else { (marks(runs)) } }
            td.num.rate title=[ended] { (or_none(rate)) }
            td.num.wide { (or_none(quantile(0.5))) }
            td.num.wide { (or_none(quantile(0.95))) }
            td.wide { @match next { Some(next) => (ago(next, now)), None => span.muted { "–" } } }
            td.num.wide { @match workflow.current_version { Some(version) => { (version) }, None => span.muted { "–" } } }
        }
    }
}
