//! What an installation does: numbers over time, the queue, and the schedules that are due next.

use super::{
    chart,
    parts::{ago, cut, encoded},
    triggers,
    workflows::last_day,
};
use crate::error::ApiError;
use fermata_core::Timestamp;
use fermata_runtime::{Session, triggers::Trigger};
use fermata_store::reads::{MAX_QUEUE_DEPTH, QueueDepth};
use maud::{Markup, html};

/// Schedules and workflows in a list.
const ROWS: usize = 10;

/// Charts of the last 24 hours.
pub(super) async fn charts(session: &Session) -> Result<Markup, ApiError> {
    let span = last_day(session);
    let stats = session.stats(span, None, None, 1).await?;
    let rate = chart::success_rate(&stats.all);
    let quantile = |part: f64| stats.all.quantile(part).map(chart::estimate);
    let facts = [
        ("Started", Some(stats.all.started.to_string())),
        ("Ended", Some(stats.all.ended().to_string())),
        ("Success", rate),
        ("P50", quantile(0.5)),
        ("P95", quantile(0.95)),
    ];
    Ok(html! {
        section.card {
            header { h2 { "Last 24 hours" } span.muted { "parts of " (span.step) " min" } }
            div.pad {
                dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value.as_deref().unwrap_or("–")) } } } }
                div.charts {
                    (chart::THROUGHPUT.drawn(&stats, span))
                    (chart::STARTS.drawn(&stats, span))
                    (chart::LATENCY.drawn(&stats, span))
                    (chart::QUEUE.drawn(&stats, span))
                }
            }
        }
    })
}

/// The runs that wait for a runner now.
pub(super) async fn queue(session: &Session) -> Result<Markup, ApiError> {
    let mut depths = session.reads().queue().await?;
    depths.sort_by_key(|depth| depth.oldest);
    let total: u64 = depths.iter().map(|depth| depth.runs).sum();
    Ok(queue_panel(&depths, total, session.now()))
}

fn queue_panel(depths: &[QueueDepth], total: u64, now: Timestamp) -> Markup {
    html! {
        section.card {
            header { h2 { "Queue" }
                span.muted { @if total >= u64::from(MAX_QUEUE_DEPTH) { "at least " } (total) @if total == 1 { " run is" } @else { " runs are" } " due and wait for a runner" } }
            @if let Some(first) = depths.first() {
                table.list {
                    thead { tr { th { "Workflow" } th.num { "Runs" } th { "The oldest is due since" } } }
                    tbody { @for depth in depths.iter().take(ROWS) {
                        tr data-row {
                            td { a.main href=(format!("/?workflowId={}", depth.workflow_uid)) { (depth.workflow_id) }
                                @if !depth.tenant.is_empty() { " " span.tag { (depth.tenant) } } }
                            td.num { (depth.runs) }
                            td { (ago(depth.oldest, now)) }
                        }
                    } }
                }
                @if depths.len() > ROWS { p.muted.pad { "and " (depths.len() - ROWS) " more workflows; the oldest run is due since " (ago(first.oldest, now)) } }
            } @else { p.muted.pad { "Nothing waits." } }
        }
    }
}

/// The schedules that fire next.
pub(super) async fn schedules(session: &Session) -> Result<Markup, ApiError> {
    let mut due = triggers::upcoming(session).await?;
    due.sort_by_key(|(_, at)| *at);
    let now = session.now();
    Ok(html! {
        section.card {
            header { h2 { "Schedules due next" } span.muted { (due.len()) } }
            @if due.is_empty() { p.muted.pad { "No schedule is enabled." } }
            @else {
                table.list {
                    thead { tr { th { "Workflow" } th { "Next" } th.wide { "Schedule" } } }
                    tbody { @for (trigger, at) in due.iter().take(ROWS) { (schedule(trigger, *at, now)) } }
                }
            }
        }
    })
}

fn schedule(trigger: &Trigger, at: Timestamp, now: Timestamp) -> Markup {
    html! {
        tr data-row {
            td { a.main href=(format!("/workflows/{}", encoded(&trigger.workflow_uid.to_string()))) { (trigger.workflow_id) }
                @if let Some(name) = &trigger.name { span.detail.flush { (cut(name, 80)) } } }
            td { (ago(at, now)) }
            td.wide.mono.small { (cut(&trigger.config, 120)) }
        }
    }
}
