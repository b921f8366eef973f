//! Bulk jobs: the bar on the list of runs that prepares them, `/bulk` with all jobs, and `/bulk/{id}` with one job and its results.

use super::{
    Page,
    filters::as_query,
    frame::{Frame, Tab},
    parts::{ago, cut, empty, encoded, exact, mark, run_status, short_id, took},
};
use crate::{
    api::list::ListQuery,
    door::As,
    error::ApiError,
    extract::{BulkId, Query},
    paging,
};
use fermata_core::RunId;
use fermata_runtime::{
    Scope, Session,
    bulk::{BulkAction, BulkItem, BulkJob, BulkState, ItemState},
};
use fermata_store::reads::{RunFilter, RunRecord};
use maud::{Markup, html};
use serde::Deserialize;
use std::collections::HashMap;

/// Jobs, or runs of a job, on a page.
const LIMIT: u32 = 50;
/// How often the page of a job that goes on asks for changes.
const POLL_MS: u32 = 1000;

/// Action, verb, and why a job leaves runs out.
const ACTIONS: [(&str, &str, &str); 5] = [
    ("cancel", "Cancel", "Runs that have ended cannot be cancelled."),
    ("pause", "Pause", "Runs that have ended or are paused cannot be paused."),
    ("resume", "Resume", "Only runs that are paused can be resumed."),
    (
        "rerun",
        "Rerun",
        "Only runs that have ended, and have something to repeat, can be repeated.",
    ),
    ("delete", "Delete", "Only runs that have ended can be deleted."),
];

/// Whether the caller can start any bulk job.
pub(super) fn can_act(session: &Session) -> bool {
    session.caller().has(Scope::Execute)
}

/// The bar that acts on the selected runs, and the fields of its dialogs. It appears when a run is selected.
pub(super) fn bar(session: &Session, query: &ListQuery) -> Markup {
    let can_delete = session.caller().has(Scope::Manage);
    let actions = ACTIONS.into_iter().filter(|(name, ..)| *name != "delete" || can_delete);
    html! {
        div #bulk .bulk role="region" aria-label="Selected runs" hidden data-hold data-query=[as_query(query)] {
            b data-selected aria-live="polite" title="The list does not change while runs are selected" {}
            button.plain data-select="page" { "All on this page" }
            @if as_query(query).is_some() { button.plain data-select="query" { "All that match the filters" } }
            button.plain data-select="none" { "Select none" }
            span.grow {}
            @for (name, verb, left_out) in actions {
                button.button.danger[matches!(name, "cancel" | "delete")] data-bulk=(name) data-verb=(verb) data-left-out=(left_out) { (verb) "…" }
            }
        }
        @for name in ["cancel", "pause", "resume"] { template #(format!("bulk-{name}")) { (reason_field(false)) } }
        template #bulk-rerun {
            fieldset.choice {
                legend { "Repeat" }
                label { input type="radio" name="failedOnly" value="" checked; " all nodes" }
                label { input type="radio" name="failedOnly" value="true"; " the nodes that failed, and what follows them" }
            }
            fieldset.choice {
                legend { "Version" }
                label { input type="radio" name="version" value="" checked; " that of each run" }
                label { input type="radio" name="version" value="\"latest\""; " the one that new runs follow" }
            }
        }
    }
}

/// A field for the reason of a command.
pub(super) fn reason_field(is_required: bool) -> Markup {
    html! {
        label.stacked {
            span { "Reason" @if !is_required { span.muted { " (optional)" } } }
            input name="reason" maxlength="200" autocomplete="off" required[is_required];
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobsQuery {
    cursor: Option<String>,
}

/// `GET /bulk`
pub(crate) async fn list(As(session): As, Query(query): Query<JobsQuery>) -> Result<Page, ApiError> {
    let before = query.cursor.as_deref().map(paging::id).transpose()?;
    let found = session.bulk().list(before, LIMIT).await?;
    let next = found.items.last().filter(|_| found.more);
    let next = next.map(|last| format!("/bulk?cursor={}", paging::after_id(last.id)));
    let now = session.now();
    let mut frame = Frame::new("Bulk jobs", Tab::Runs, &session);
    frame.poll = found.items.iter().any(goes_on).then_some(POLL_MS);
    Ok(frame.page(html! {
        div.head { nav.crumbs aria-label="Breadcrumb" { a href="/" { "Runs" } " / Bulk jobs" } h1 { "Bulk jobs" } }
        div #jobs data-live {
            @if found.items.is_empty() {
                (empty("No bulk jobs", "A bulk job does one thing to many runs. Select runs in the list of runs to prepare one. Jobs are kept for seven days.", None))
            } @else {
                table.list {
                    thead { tr { th { "State" } th { "Job" } th.wide { "Runs" } th { "Prepared" } th.num { "Duration" } } }
                    tbody {
                        @for job in &found.items {
                            tr data-row {
                                td.state { (state(job)) span.detail { (counts(job)) } }
                                td { a.main href=(format!("/bulk/{}", job.id)) { (title(job)) } }
                                td.wide { @match &job.query { Some(query) => span.mono title=(query) { (cut(query, 80)) }, None => span.muted { "selected" } } }
                                td { (ago(job.created_at, now)) }
                                td.num { (took(job.started_at, job.ended_at, now)) }
                            }
                        }
                    }
                }
            }
            nav.pages { @if let Some(next) = next { a.button href=(next) rel="next" { "Older" } } }
        }
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobQuery {
    state: Option<String>,
    cursor: Option<String>,
}

/// `GET /bulk/{id}`
pub(crate) async fn page(As(session): As, BulkId(id): BulkId, Query(query): Query<JobQuery>) -> Result<Page, ApiError> {
    let bulk = session.bulk();
    let job = bulk.get(id).await?;
    let chosen = query.state.as_deref().filter(|word| !word.is_empty());
    let wrong = || ApiError::parameter("`state` must be pending, done, refused or failed");
    let item_state = chosen
        .map(|word| ItemState::parse(word).ok_or_else(wrong))
        .transpose()?;
    let after = query.cursor.as_deref().map(paging::run).transpose()?;
    let found = bulk.items(id, item_state, after, LIMIT).await?;
    let runs = rows(&session, &found.items).await?;
    let part = chosen
        .map(|word| format!("state={}&", encoded(word)))
        .unwrap_or_default();
    let next = found.items.last().filter(|_| found.more);
    let next = next.map(|last| format!("?{part}cursor={}", paging::after_run(last.run)));
    let mut frame = Frame::new(title(&job), Tab::Runs, &session);
    frame.poll = goes_on(&job).then_some(POLL_MS);
    Ok(frame.page(html! {
        div #job data-live { (head(&session, &job)) }
        section.card {
            header {
                h2 { "Results" }
                nav.choices aria-label="Results" {
                    @for (word, name) in [("", "All"), ("pending", "Pending"), ("done", "Done"), ("refused", "Refused"), ("failed", "Failed")] {
                        a href=(format!("?state={word}")) aria-current=[(chosen.unwrap_or_default() == word).then_some("page")] { (name) }
                    }
                }
            }
            div #results data-live {
                @if found.items.is_empty() { p.muted.pad { "No run is in this state." } }
                @else { table.list { tbody { @for item in &found.items { (result(item, runs.get(&item.run))) } } } }
                nav.pages {
                    @if after.is_some() { a.button href=(format!("?state={}", chosen.unwrap_or_default())) { "First" } }
                    @if let Some(next) = next { a.button href=(next) rel="next" { "More" } }
                }
            }
        }
    }))
}

/// The runs of these items that still exist.
async fn rows(session: &Session, items: &[BulkItem]) -> Result<HashMap<RunId, RunRecord>, ApiError> {
    if items.is_empty() {
        return Ok(HashMap::new());
    }
    let filter = RunFilter {
        ids: items.iter().map(|item| item.run).collect(),
        limit: LIMIT,
        ..RunFilter::default()
    };
    let found = session.reads().runs(filter).await?;
    Ok(found.items.into_iter().map(|run| (run.id, run)).collect())
}

fn goes_on(job: &BulkJob) -> bool {
    matches!(job.state, BulkState::Running | BulkState::Cancelling)
}

fn verb(job: &BulkJob) -> (&'static str, &'static str) {
    let name = BulkAction::of(job).map_or("", |action| action.name());
    let known = ACTIONS.into_iter().find(|(known, ..)| *known == name);
    known.map_or(("", "Act on"), |(name, verb, _)| (name, verb))
}

/// `Cancel 312 runs`
fn title(job: &BulkJob) -> String {
    let runs = if job.total == 1 { "run" } else { "runs" };
    format!("{} {} {runs}", verb(job).1, job.total)
}

fn state(job: &BulkJob) -> Markup {
    match job.state {
        BulkState::Ready => mark("pending", "Not started"),
        BulkState::Running => mark("running", "Running"),
        BulkState::Cancelling => mark("running", "Stopping"),
        BulkState::Cancelled => mark("cancelled", "Stopped"),
        BulkState::Finished => mark("succeeded", "Finished"),
    }
}

fn counts(job: &BulkJob) -> String {
    let mut text = format!("{} of {} done", job.done, job.total);
    for (count, word) in [(job.refused, "refused"), (job.failed, "failed")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text
}

fn head(session: &Session, job: &BulkJob) -> Markup {
    let (name, _) = verb(job);
    let action = BulkAction::of(job);
    let may_act = action
        .as_ref()
        .is_some_and(|action| session.caller().has(action.scope()));
    let to = |verb: &str| format!("/api/v1/bulk/{}/{verb}", job.id);
    let title = title(job);
    let options = match &action {
        Some(BulkAction::Cancel { reason } | BulkAction::Pause { reason } | BulkAction::Resume { reason }) => {
            reason.as_ref().map(|reason| ("Reason", cut(reason, 200)))
        }
        Some(BulkAction::Rerun { failed_only, latest }) => {
            let nodes = if *failed_only {
                "the nodes that failed"
            } else {
                "all nodes"
            };
            let version = if *latest {
                "the version of new runs"
            } else {
                "the version of each run"
            };
            Some(("Repeats", format!("{nodes}, with {version}")))
        }
        Some(BulkAction::Delete) | None => None,
    };
    let ended = job.done + job.refused + job.failed;
    html! {
        div.head.run-head {
            nav.crumbs aria-label="Breadcrumb" { a href="/" { "Runs" } " / " a href="/bulk" { "Bulk jobs" } " / " span.mono { (job.id) } }
            h1 { (title) }
            (state(job))
            span.grow {}
            @if may_act && job.state == BulkState::Ready && job.total > 0 {
                button.button.danger.js data-post=(to("start")) data-title=(format!("{title}?")) data-yes=(title)
                    data-repeat=[(name == "delete").then_some(job.total)]
                    data-text="The job acts on exactly these runs, and on no run that was started later." { (title) }
            }
            @if may_act && !job.state.is_over() {
                button.button.js data-post=(to("cancel")) data-title="Stop this job?" data-yes="Stop the job"
                    data-text="Runs that were begun are finished first. What was done stays done." { "Stop" }
            }
        }
        @if job.state != BulkState::Ready {
            div.progress {
                progress max=(job.total.max(1)) value=(if job.total == 0 { 1 } else { ended }) aria-label="Runs with a result" {}
                span { (counts(job)) }
            }
        }
        dl.facts {
            div { dt { "Runs" } dd { @match &job.query { Some(query) => span.mono { (cut(query, 300)) }, None => "selected in the list" } } }
            @if let Some((name, text)) = options { div { dt { (name) } dd { (text) } } }
            div { dt { "Prepared" } dd { (exact(job.created_at)) " " span.muted { "(" (ago(job.created_at, session.now())) ")" } } }
            @if let Some(started) = job.started_at { div { dt { "Started" } dd { (exact(started)) } } }
            @if let Some(ended) = job.ended_at { div { dt { "Ended" } dd { (exact(ended)) } } }
        }
    }
}

/// What became of one run, and how it is now.
fn result(item: &BulkItem, run: Option<&RunRecord>) -> Markup {
    let (kind, word) = match item.state {
        ItemState::Pending => ("pending", "Pending"),
        ItemState::Done => ("succeeded", "Done"),
        ItemState::Refused => ("skipped", "Refused"),
        ItemState::Failed => ("failed", "Failed"),
    };
    html! {
        tr data-row {
            td.state {
                (mark(kind, word))
                @if let Some(message) = &item.message { span.detail title=[item.code.as_deref()] { (cut(message, 200)) } }
            }
            td {
                @match run {
                    Some(run) => { a.main href=(format!("/runs/{}", item.run)) { (run.workflow_id) } span.muted.mono { " " (short_id(item.run)) } },
                    None => { span.muted { "deleted" } span.muted.mono title=(item.run) { " " (short_id(item.run)) } },
                }
            }
            td { @if let Some(run) = run { (run_status(run)) } }
            td { @if let Some(new) = item.created { "new run " a.mono href=(format!("/runs/{new}")) title=(new) { (short_id(new)) } } }
        }
    }
}
