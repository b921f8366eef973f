//! The triggers of a workflow with their last deliveries.

use super::parts::{ago, cut, exact};
use crate::error::ApiError;
use fermata_core::Timestamp;
use fermata_runtime::{
    Scope, Session,
    triggers::{DeliveryList, DeliveryState, Trigger, TriggerDelivery, TriggerList, TriggerType},
};
use fermata_store::definitions::Workflow;
use maud::{Markup, html};

const TRIGGERS: u32 = 20;
const DELIVERIES: u32 = 5;

/// Schedules that are read for the next fire times.
const SCHEDULES: u32 = 500;

/// The enabled schedules with the time at which each fires next; none if the caller may not see triggers.
pub(super) async fn upcoming(session: &Session) -> Result<Vec<(Trigger, Timestamp)>, ApiError> {
    if !session.caller().has(Scope::Manage) {
        return Ok(Vec::new());
    }
    let list = TriggerList {
        kind: Some(TriggerType::Schedule),
        enabled: Some(true),
        limit: SCHEDULES,
        ..TriggerList::default()
    };
    let triggers = session.triggers();
    let mut upcoming = Vec::new();
    for trigger in triggers.list(list).await?.items {
        // The stored time is only when the scheduler looks at it next.
        let config = serde_json::from_str(&trigger.config).unwrap_or_default();
        let times = triggers.preview(trigger.kind, &config, 1).ok();
        if let Some(first) = times.and_then(|times| times.first().copied()) {
            upcoming.push((trigger, first));
        }
    }
    Ok(upcoming)
}

/// A trigger, its last deliveries, and when it fires next.
pub(super) type Shown = (Trigger, Vec<TriggerDelivery>, Option<Timestamp>);

pub(super) async fn triggers(session: &Session, workflow: &Workflow) -> Result<Vec<Shown>, ApiError> {
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

pub(super) fn panel(triggers: &[Shown], now: Timestamp) -> Markup {
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
