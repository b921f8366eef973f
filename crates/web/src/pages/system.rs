//! `/system`: numbers, queue, runners, schedules, dead letters, retention, keys, the audit trail and the database, for administrators.

use super::{
    Page,
    frame::{Frame, Tab},
    json, load,
    parts::{ago, cut, duration, empty, exact, mark, short_id},
};
use crate::{Web, door::As, error::ApiError};
use axum::extract::State;
use fermata_core::Timestamp;
use fermata_store::{
    audit::{AuditFilter, AuditRow},
    dead_letters::{DeadLetter, DeadLetterFilter},
    keys::{ApiKey, KeyFilter},
    retention::{Ages, Retention},
    runners::RunnerRecord,
};
use maud::{Markup, html};
use std::time::Duration;

const ROWS: u32 = 50;
const POLL_MS: u32 = 5000;

/// `GET /system`
pub(crate) async fn page(State(web): State<Web>, As(session): As) -> Result<Page, ApiError> {
    let reads = session.reads();
    let now = session.now();
    let runners = reads.runners(None, ROWS).await?;
    let letters = DeadLetterFilter {
        limit: ROWS,
        ..DeadLetterFilter::default()
    };
    let letters = reads.dead_letters(letters).await?;
    let keys = KeyFilter {
        limit: ROWS,
        ..KeyFilter::default()
    };
    let keys = session.keys().list(keys).await?;
    let audit = AuditFilter {
        limit: ROWS,
        ..AuditFilter::default()
    };
    let audit = session.audit().list(audit).await?;
    let charts = load::charts(&session).await?;
    let queue = load::queue(&session).await?;
    let schedules = load::schedules(&session).await?;
    let database = reads.database().await?;
    let mut frame = Frame::new("System", Tab::System, &session);
    frame.poll = Some(POLL_MS);
    let (settings, is_installation) = (web.settings(), session.caller().tenant().is_none());
    Ok(frame.page(html! {
        div.head { h1 { "System" } }
        dl.facts #installation data-live {
            div { dt { "Version" } dd { (env!("CARGO_PKG_VERSION")) } }
            @if let Some(database) = &database {
                div { dt { "Database" } dd { (database.kind) } }
                @if let Some(bytes) = database.bytes { div { dt { "Database size" } dd { (json::bytes(usize::try_from(bytes).unwrap_or(usize::MAX))) } } }
                @if database.schema > 0 { div { dt { "Schema" } dd { (database.schema) } } }
            }
            @if is_installation {
                div { dt { "Address" } dd { (settings.public_url) } }
                div { dt { "Role of this process" } dd { (format!("{:?}", settings.role)) } }
                div { dt { "Lease" } dd { (duration(settings.lease_ttl.as_micros() as u64)) } }
                div { dt { "Parallel actions" } dd { (settings.max_parallel_actions) } }
            }
        }
        div.stack #system data-live {
            (charts)
            div.columns { (queue) (schedules) }
            @if is_installation { (panel("Runners", &runners_table(&runners.items, now), runners.more)) }
            (panel("Dead letters", &letters_table(&letters.items, now), letters.more))
            @if is_installation { (panel("Retention", &retention_table(&settings.retention), false)) }
            (panel("API keys", &keys_table(&keys.items, now), keys.more))
            (panel("Audit trail", &audit_table(&audit.items), audit.next.is_some()))
        }
    }))
}

fn panel(title: &str, content: &Markup, more: bool) -> Markup {
    html! {
        section.card {
            header { h2 { (title) } }
            div.scroll { (content) }
            @if more { p.muted.pad { "Only the newest are shown. The API has all." } }
        }
    }
}

fn runners_table(runners: &[(RunnerRecord, bool)], now: Timestamp) -> Markup {
    html! {
        @if runners.is_empty() { p.muted.pad { "No process executes runs at the moment." } }
        @else {
            table.list {
                thead { tr { th { "Runner" } th { "State" } th.wide { "Role" } th.wide { "Version" } th.num { "Runs held" } th { "Last heartbeat" } } }
                tbody { @for (record, is_alive) in runners {
                    tr data-row {
                        td { a.main.mono href=(format!("/?runnerId={}", record.runner.id)) title=(record.runner.id) { (short_id(record.runner.id)) } span.detail.flush { (record.runner.host) ", process " (record.runner.pid) } }
                        td { @if *is_alive { (mark("succeeded", "Alive")) } @else { (mark("failed", "No heartbeat")) } }
                        td.wide { (record.runner.role) }
                        td.wide { (record.runner.version) }
                        td.num { (record.held) }
                        td { (ago(record.heartbeat_at, now)) }
                    }
                } }
            }
        }
    }
}

fn letters_table(letters: &[DeadLetter], now: Timestamp) -> Markup {
    html! {
        @if letters.is_empty() { (empty("No dead letters", "Runs that no runner could continue would be here.", None)) }
        @else {
            table.list {
                thead { tr { th { "Run" } th { "Reason" } th { "When" } th {} } }
                tbody { @for letter in letters {
                    tr data-row {
                        td { a.main href=(format!("/runs/{}", letter.run)) { (letter.workflow_id) } " " span.muted.mono { (short_id(letter.run)) }
                            @if !letter.tenant.is_empty() { " " span.tag { (letter.tenant) } } }
                        td { (letter.reason.as_str()) @if let Some(error) = &letter.last_error { span.detail.flush title=(error) { (cut(error, 160)) } } }
                        td { (ago(letter.at, now)) }
                        td.num { button.plain.js data-post=(format!("/api/v1/admin/dead-letters/{}/requeue", letter.id))
                            data-title="Start this run again?" data-text="A new run with the same trigger is started." data-yes="Requeue" { "Requeue" } }
                    }
                } }
            }
        }
    }
}

/// How long things are kept, with the exceptions by workflow.
fn retention_table(retention: &Retention) -> Markup {
    let age = |age: Option<Duration>| match age {
        Some(age) => duration(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
        None => "for ever".to_owned(),
    };
    let row = |name: &str, ages: &Ages| {
        html! {
            tr {
                td { (name) }
                td.num { (age(ages.succeeded)) }
                td.num { (age(ages.failed)) }
                td.num { (age(ages.cancelled)) }
                td.num { (age(ages.dead_letters)) }
            }
        }
    };
    html! {
        table.list.matrix {
            thead { tr { th { "Workflow" } th.num { "Succeeded" } th.num { "Failed" } th.num { "Cancelled" } th.num { "Dead letters" } } }
            tbody {
                (row(if retention.workflows.is_empty() { "all" } else { "others" }, &retention.ages))
                @for (name, ages) in &retention.workflows { (row(name, ages)) }
            }
        }
        p.note { "Idempotency keys: " @match retention.keys { Some(keys) => (age(Some(keys))), None => "as long as their runs" }
            ". Audit trail: " (age(retention.audit)) "." }
    }
}

fn keys_table(keys: &[ApiKey], now: Timestamp) -> Markup {
    html! {
        @if keys.is_empty() { (empty("No API keys", "Create one on the command line:", Some("fermata keys create --name ci --scopes workflows:execute,workflows:read --tenant TENANT"))) }
        @else {
            table.list {
                thead { tr { th { "Name" } th { "State" } th.wide { "Scopes" } th.wide { "Tenant" } th { "Created" } } }
                tbody { @for key in keys {
                    tr data-row {
                        td { (key.name) span.detail.flush.mono { (key.id) } }
                        td { @match (key.revoked_at, key.expires_at) {
                            (Some(_), _) => (mark("cancelled", "Revoked")),
                            (None, Some(at)) if at <= now => (mark("cancelled", "Expired")),
                            (None, _) => (mark("succeeded", "Valid")),
                        } }
                        td.wide { (key.scopes) }
                        td.wide { @if key.tenant.is_empty() { span.muted { "all" } } @else { (key.tenant) } }
                        td { (ago(key.created_at, now)) }
                    }
                } }
            }
        }
    }
}

fn audit_table(rows: &[AuditRow]) -> Markup {
    html! {
        @if rows.is_empty() { p.muted.pad { "Nothing was changed yet." } }
        @else {
            table.list {
                thead { tr { th { "When" } th { "Who" } th { "Action" } th.wide { "Target" } th { "Outcome" } } }
                tbody { @for row in rows {
                    tr data-row {
                        td { (exact(row.at)) }
                        td { @if row.who.is_empty() { span.muted { (row.credential) } } @else { (row.who) } }
                        td { (row.action) @if let Some(detail) = &row.detail { span.detail.flush { (cut(detail, 120)) } } }
                        td.wide.mono { (cut(&row.target, 60)) }
                        td { (row.outcome.as_str()) }
                    }
                } }
            }
        }
    }
}
