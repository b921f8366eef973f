//! Triggers: what starts runs. One pipeline serves webhooks, schedules, events and manual fires:
//! occurrence (durable, deduplicated) → condition → flow control → enqueue.
//!
//! | file | content |
//! | --- | --- |
//! | `manage.rs` | creating, changing, listing and rotating triggers |
//! | `webhook.rs` | requests to webhooks |
//! | `events.rs` | published events, and the action that publishes |
//! | `schedule.rs` | which deliveries a due schedule makes |
//! | `deliver.rs` | processing one delivery |
//! | `condition.rs` | activation conditions |
//! | `work.rs` | the background task: fires schedules, processes deliveries, matches events |
//!
//! What must stay true:
//! * What was acknowledged is durable, as a run or as a delivery that any process takes after a crash.
//! * An occurrence starts at most one run: its run has a requestId made of trigger and occurrence.
//! * A webhook answers a stranger the same for an unknown, disabled, unsigned and wrongly signed request.

mod condition;
mod deliver;
mod events;
mod manage;
mod schedule;
mod webhook;
mod work;

pub(crate) use deliver::inherited;
pub use events::{EventAnswer, EventPublisher, NewEvent};
pub use fermata_store::triggers::{DeliveryState, Trigger, TriggerDelivery, TriggerType};
pub use manage::{DeliveryList, NewTrigger, TriggerList, TriggerUpdate, Triggers};
pub use webhook::{Received, WebhookRequest};
pub(crate) use work::{Waiting, run};

use crate::engine::Accepted;
use fermata_core::RunId;
use serde_json::Value;
use uuid::Uuid;

/// What became of an occurrence, as far as it is known when it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurred {
    /// The delivery.
    pub delivery: Uuid,
    /// Its state.
    pub state: DeliveryState,
    /// The run, if it is stored or will be.
    pub run: Option<RunId>,
    /// Why it was filtered or refused.
    pub reason: Option<String>,
    /// Whether the occurrence was known before.
    pub is_duplicate: bool,
}

impl Occurred {
    fn of(delivery: &TriggerDelivery, is_duplicate: bool) -> Occurred {
        let has_run = delivery.state.is_open() || delivery.state == DeliveryState::Started;
        Occurred {
            delivery: delivery.id,
            state: delivery.state,
            run: has_run.then_some(delivery.run),
            reason: delivery.reason.clone(),
            is_duplicate,
        }
    }

    fn started(delivery: Uuid, accepted: &Accepted) -> Occurred {
        Occurred {
            delivery,
            state: DeliveryState::Started,
            run: Some(accepted.run),
            reason: None,
            is_duplicate: !accepted.created,
        }
    }
}

/// Settings of triggers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerSettings {
    /// Whether webhooks are received.
    pub enable_webhooks: bool,
    /// Whether schedules fire.
    pub enable_schedules: bool,
    /// Whether events are accepted and matched.
    pub enable_events: bool,
    /// The path below which webhooks are received.
    pub webhook_base_path: String,
    /// How many runs in a row may be started by events of each other.
    pub max_chain_depth: u32,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        TriggerSettings {
            enable_webhooks: true,
            enable_schedules: true,
            enable_events: true,
            webhook_base_path: "/api/v1/triggers".to_owned(),
            max_chain_depth: 10,
        }
    }
}

/// How many events led to a run, from its `request`.
pub(crate) fn chain_depth(request: Option<&Value>) -> u32 {
    let depth = request.and_then(|request| request.pointer("/chain/depth")?.as_u64());
    depth.map_or(0, |depth| u32::try_from(depth).unwrap_or(u32::MAX))
}
