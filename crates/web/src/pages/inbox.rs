//! `/inbox`: approvals, decisions and tasks that wait for an answer; `/inbox/{id}`: one of them with its form.

use super::{
    Page, forms,
    frame::{Frame, Tab},
    json,
    parts::{ago, cut, empty, exact, mark, short_id},
};
use crate::{
    door::As,
    error::ApiError,
    extract::{ItemId, Query},
    paging,
};
use fermata_core::Timestamp;
use fermata_runtime::Scope;
use fermata_store::inbox::{ItemFilter, ItemKind, ItemStatus, StoredItem};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

const LIMIT: u32 = 50;
const POLL_MS: u32 = 3000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxQuery {
    status: Option<String>,
    queue: Option<String>,
    cursor: Option<String>,
}

/// `GET /inbox`
pub(crate) async fn list(As(session): As, Query(query): Query<InboxQuery>) -> Result<Page, ApiError> {
    let word = query
        .status
        .as_deref()
        .filter(|word| !word.is_empty())
        .unwrap_or("pending");
    let unknown = || ApiError::parameter("`status` must be pending, answered or closed");
    let status = ItemStatus::parse(word).ok_or_else(unknown)?;
    let filter = ItemFilter {
        status: Some(status),
        queue: query.queue.clone().filter(|queue| !queue.is_empty()),
        after: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: LIMIT,
        ..ItemFilter::default()
    };
    let page = session.inbox().list(filter).await?;
    let now = session.now();
    let mut frame = Frame::new("Inbox", Tab::Inbox, &session);
    frame.poll = query.cursor.is_none().then_some(POLL_MS);
    let next = page
        .next
        .map(|last| format!("/inbox?status={word}&cursor={}", paging::after_id(last)));
    Ok(frame.page(html! {
        div.head {
            h1 { "Inbox" }
            nav.choices aria-label="Status" {
                @for (of, name) in [("pending", "Waiting"), ("answered", "Answered"), ("closed", "Closed")] {
                    a href=(format!("/inbox?status={of}")) aria-current=[(of == word).then_some("true")] { (name) }
                }
            }
        }
        div #inbox data-live {
            @if page.items.is_empty() {
                @match word {
                    "pending" => (empty("Nothing waits for you", "Approvals, decisions and tasks of runs appear here.", None)),
                    _ => (empty("Nothing here", "No request has this status.", None)),
                }
            } @else {
                table.list {
                    thead { tr { th { "Request" } th.wide { "Workflow" } th.wide { "Queue" } th { "Since" } th { @if word == "answered" { "Answered by" } @else { "Until" } } } }
                    tbody { @for item in &page.items { (row(item, now)) } }
                }
            }
            nav.pages { @if let Some(next) = next { a.button href=(next) { "More" } } }
        }
    }))
}

fn details(item: &StoredItem) -> Value {
    serde_json::from_str(&item.item.details).unwrap_or_default()
}

fn title(item: &StoredItem, details: &Value) -> String {
    let given = details["title"].as_str().filter(|title| !title.is_empty());
    given.map_or_else(|| format!("{} {}", item.item.kind.as_str(), item.node), str::to_owned)
}

fn row(item: &StoredItem, now: Timestamp) -> Markup {
    let details = details(item);
    html! {
        tr data-row {
            td { a.main href=(format!("/inbox/{}", item.item.id)) { (cut(&title(item, &details), 120)) } span.detail.flush { (item.item.kind.as_str()) } }
            td.wide { (item.item.workflow_id) @if !item.item.tenant.is_empty() { " " span.tag { (item.item.tenant) } } }
            td.wide { (item.item.queue) }
            td { (ago(item.created_at, now)) }
            td {
                @if item.status == ItemStatus::Answered { (item.answered_by.as_deref().unwrap_or("not known")) }
                @else if let Some(deadline) = item.deadline { (ago(deadline, now)) }
                @else { span.muted { "–" } }
            }
        }
    }
}

/// `GET /inbox/{id}`
pub(crate) async fn page(As(session): As, ItemId(id): ItemId) -> Result<Page, ApiError> {
    let task = session.inbox().get(id).await?;
    let missing = || ApiError::not_found("ITEM_NOT_FOUND", format!("the inbox has no item {id}"));
    let task = task.ok_or_else(missing)?;
    let (item, now) = (&task.item, session.now());
    let details = details(item);
    let title = title(item, &details);
    let is_open = item.status == ItemStatus::Pending && item.deadline.is_none_or(|deadline| deadline > now);
    let holder = item.lease.as_ref().filter(|lease| is_open && lease.until > now);
    let mut frame = Frame::new(cut(&title, 60), Tab::Inbox, &session);
    frame.poll = is_open.then_some(POLL_MS);
    let state = task.state.to_string();
    Ok(frame.page(html! {
        div.head {
            nav.crumbs aria-label="Breadcrumb" { a href="/inbox" { "Inbox" } " / " span.mono { (short_id(id)) } }
            h1 { (title) }
        }
        div.narrow {
            @if let Some(text) = details["description"].as_str() { p.text { (text) } }
            dl.facts {
                div { dt { "Run" } dd { a href=(format!("/runs/{}?node={}", item.run, super::parts::encoded(item.node.as_str()))) { (item.item.workflow_id) " " span.mono { (short_id(item.run)) } } } }
                div { dt { "Kind" } dd { (item.item.kind.as_str()) } }
                div { dt { "Since" } dd { (exact(item.created_at)) } }
                @if let Some(deadline) = item.deadline { div { dt { "Until" } dd { (exact(deadline)) " (" (ago(deadline, now)) ")" } } }
            }
            div #answer data-live=[(!is_open).then_some("")] {
                @match (is_open, holder) {
                    (true, Some(lease)) => { p.waits { "The worker " b { (lease.worker) } " works on it until " (exact(lease.until)) "." } },
                    (true, None) if session.caller().has(Scope::Execute) => (form(item, &details)),
                    (true, None) => { p.waits { "It waits for an answer. You may not answer it: that needs the scope workflows:execute." } },
                    (false, _) => (answered(item)),
                }
            }
            section.card { (json::block("What the node sees", &state, &format!("/api/v1/inbox/{id}"))) }
        }
    }))
}

fn answered(item: &StoredItem) -> Markup {
    html! {
        div.card.pad.answered data-answered {
            @if item.status == ItemStatus::Answered {
                p { (mark("succeeded", "Answered")) " by " b { (item.answered_by.as_deref().unwrap_or("someone whose name is not known")) }
                    @if let Some(at) = item.answered_at { ", " (exact(at)) } }
                @if let Some(payload) = &item.payload { (json::block("Answer", payload, &format!("/api/v1/inbox/{}", item.item.id))) }
            } @else {
                p { (mark("cancelled", "Closed")) " It ended without an answer." }
            }
        }
    }
}

fn form(item: &StoredItem, details: &Value) -> Markup {
    let outcomes: Vec<&str> = details["outcomes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let shape = match item.item.kind {
        ItemKind::Approval => "approval",
        ItemKind::Decision => "decision",
        ItemKind::Task => "task",
    };
    let has_fields = match item.item.kind {
        ItemKind::Approval => details["fields"].is_object(),
        ItemKind::Decision => false,
        ItemKind::Task => true,
    };
    html! {
        form.card.form data-answer=(format!("/api/v1/inbox/{}/answer", item.item.id)) data-shape=(shape) {
            @if has_fields { (forms::fields(Some(&details["fields"]).filter(|fields| fields.is_object()))) }
            p.error role="alert" data-error {}
            div.buttons {
                @if outcomes.is_empty() { button.button.primary name="outcome" value="" { "Answer" } }
                @for outcome in &outcomes { button.button name="outcome" value=(outcome) { (outcome) } }
            }
            noscript { p.error { "Answering needs JavaScript." } }
        }
    }
}
