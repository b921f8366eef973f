//! Published events: stored with the deliveries of all triggers that they match, before they are acknowledged.
//!
//! What must stay true:
//! * An event matches triggers of its own tenant only.
//! * (tenant, source, id) is stored once in seven days.
//! * A run that an event started stores the length of its chain of events. Beyond `max_chain_depth` its events start nothing: the
//!   deliveries are refused with that reason, so a workflow that emits the event that starts it ends.

use super::deliver::pending;
use crate::{
    engine::{Engine, Shared},
    error::{EngineError, Refusal},
};
use fermata_core::{Failure, RunId, Timestamp, code};
use fermata_store::triggers::{DeliveryState, KEPT_FOR, Recorded, StoredEvent, Trigger, TriggerDelivery};
use fermata_triggers::{TriggerConfig, TriggerType, bounded_id, request::as_trigger};
use serde_json::{Map, Value, json};
use std::{fmt, sync::Arc, time::Duration};

/// An event to publish.
pub use fermata_triggers::Event as NewEvent;

/// The longest source or id that is stored as it is.
const LONGEST_KEY: usize = 500;

/// The pause before an event whose outcome is unknown is published again.
const PAUSE: Duration = Duration::from_millis(500);

/// What became of a published event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventAnswer {
    /// Its id.
    pub id: String,
    /// Its source.
    pub source: String,
    /// Whether it was received before. Then it starts nothing again.
    pub is_duplicate: bool,
    /// How many triggers it matched.
    pub matched: u32,
}

/// How an event came to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chain {
    /// How many events led to the run that published it.
    pub depth: u32,
    /// That run.
    pub run: Option<RunId>,
}

impl Engine {
    /// Stores events and starts the workflows whose triggers they match. All of it is durable when this returns.
    pub(crate) async fn publish_events(
        &self,
        tenant: &str,
        events: Vec<NewEvent>,
        chain: Chain,
    ) -> Result<Vec<EventAnswer>, EngineError> {
        let shared = &self.shared;
        if !shared.settings.triggers.enable_events {
            return Err(Refusal::TriggersDisabled("events").into());
        }
        let now = shared.clock.now();
        let mut batch = Vec::with_capacity(events.len());
        for event in events {
            if let Some(wrong) = wrong(&event) {
                return Err(Refusal::InvalidEvent(wrong).into());
            }
            let triggers = shared.store.event_triggers(tenant, &event.event_type).await?;
            let stored = StoredEvent {
                tenant: tenant.to_owned(),
                source: key(&event.source),
                id: key(&event.id),
                event_type: event.event_type.clone(),
                received_at: now,
                attributes: Value::Object(attributes(event.attributes.clone(), chain)).to_string(),
                data: String::new(),
            };
            let deliveries = shared
                .matches(&stored, &event.source, &event.data, triggers, chain.depth)
                .await;
            batch.push((stored, deliveries, event));
        }
        let stored = batch
            .iter()
            .map(|(stored, deliveries, _)| (stored.clone(), deliveries.clone()));
        let answers = shared
            .store
            .record_events(stored.collect(), duplicate_after(now))
            .await?;
        let mut open = Vec::new();
        let answers = batch.into_iter().zip(answers).map(|((_, deliveries, event), answer)| {
            let is_duplicate = answer == Recorded::Duplicate;
            let matched = if is_duplicate { 0 } else { deliveries.len() as u32 };
            if !is_duplicate {
                open.extend(deliveries.into_iter().filter(|delivery| delivery.state.is_open()));
            }
            EventAnswer {
                id: event.id,
                source: event.source,
                is_duplicate,
                matched,
            }
        });
        let answers = answers.collect();
        shared.hand_over(open);
        Ok(answers)
    }

    /// Matches an event that was stored by SQL.
    pub(super) async fn match_stored(&self, event: StoredEvent) -> Result<(), fermata_store::StoreError> {
        let shared = &self.shared;
        let triggers = shared.store.event_triggers(&event.tenant, &event.event_type).await?;
        let data: Value = serde_json::from_str(&event.data).unwrap_or(Value::Null);
        let deliveries = shared.matches(&event, &event.source, &data, triggers, 0).await;
        let open: Vec<TriggerDelivery> = deliveries
            .iter()
            .filter(|delivery| delivery.state.is_open())
            .cloned()
            .collect();
        if shared.store.match_event(event, deliveries).await? {
            shared.hand_over(open);
        }
        Ok(())
    }
}

impl Shared {
    /// The deliveries of the triggers that an event matches.
    async fn matches(
        &self,
        event: &StoredEvent,
        source: &str,
        data: &Value,
        triggers: Vec<Trigger>,
        depth: u32,
    ) -> Vec<TriggerDelivery> {
        let fits = |trigger: &Trigger| {
            let config = serde_json::from_str(&trigger.config).ok()?;
            match TriggerConfig::parse(TriggerType::Event, &config).ok()? {
                TriggerConfig::Event(config) => Some(config.matches_parts(&event.event_type, source, data)),
                _ => None,
            }
        };
        let matching: Vec<Trigger> = triggers
            .into_iter()
            .filter(|trigger| fits(trigger).unwrap_or(false))
            .collect();
        if matching.is_empty() {
            return Vec::new();
        }
        let payload = match data {
            Value::Null => json!({}),
            data => as_trigger(data.clone()),
        };
        let payload = self.offload.to_text(Arc::new(payload)).await;
        let most = self.settings.triggers.max_chain_depth;
        let is_too_deep = depth >= most;
        let delivery = |trigger: &Trigger| {
            let mut delivery = pending(self, trigger, occurrence(event));
            delivery.payload = Some(payload.clone());
            delivery.request = Some(event.attributes.clone());
            if is_too_deep {
                delivery.state = DeliveryState::Refused;
                delivery.retry_at = None;
                delivery.reason = Some(format!(
                    "{depth} events led to this one; triggers.max_chain_depth allows {most}"
                ));
            }
            delivery
        };
        matching.iter().map(delivery).collect()
    }
}

/// The occurrence of an event. An event whose id is used again after seven days is another one.
fn occurrence(event: &StoredEvent) -> String {
    bounded_id(&format!("{}\n{}\n{}", event.source, event.id, event.received_at.0))
}

/// The attributes of an event, with the chain that led to it.
fn attributes(mut attributes: Map<String, Value>, chain: Chain) -> Map<String, Value> {
    let mut link = Map::from_iter([("depth".to_owned(), (chain.depth + 1).into())]);
    if let Some(run) = chain.run {
        link.insert("execution".to_owned(), run.to_string().into());
    }
    attributes.insert("chain".to_owned(), Value::Object(link));
    attributes
}

/// A source or id as it is stored.
fn key(text: &str) -> String {
    match text.len() <= LONGEST_KEY && !text.chars().any(char::is_control) {
        true => text.to_owned(),
        false => bounded_id(text),
    }
}

fn wrong(event: &NewEvent) -> Option<String> {
    for (name, text) in [
        ("id", &event.id),
        ("source", &event.source),
        ("type", &event.event_type),
    ] {
        if text.is_empty() || text.contains('\0') {
            return Some(format!("the `{name}` of an event must not be empty"));
        }
    }
    None
}

/// Events after this time make later ones of the same id duplicates.
fn duplicate_after(now: Timestamp) -> Timestamp {
    Timestamp(now.0 - KEPT_FOR.as_micros() as i64)
}

/// Publishes the events of one run.
#[derive(Clone)]
pub struct EventPublisher {
    shared: Arc<Shared>,
    tenant: Arc<str>,
    chain: Chain,
}

impl fmt::Debug for EventPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventPublisher")
    }
}

impl EventPublisher {
    pub(crate) fn new(shared: Arc<Shared>, tenant: Arc<str>, run: RunId, depth: u32) -> EventPublisher {
        let chain = Chain { depth, run: Some(run) };
        EventPublisher { shared, tenant, chain }
    }

    /// Publishes an event. An outage of the database is waited out; the time limit of the attempt applies.
    ///
    /// # Errors
    /// If the event is refused.
    pub async fn publish(&self, event: NewEvent) -> Result<EventAnswer, Failure> {
        let engine = Engine {
            shared: self.shared.clone(),
        };
        loop {
            let published = engine
                .publish_events(&self.tenant, vec![event.clone()], self.chain)
                .await;
            match published.map(|mut answers| answers.pop()) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(Failure::permanent(code::INVALID_PARAMETERS, "the event was not stored")),
                Err(EngineError::Refused(refusal)) => {
                    return Err(Failure::permanent(code::INVALID_PARAMETERS, refusal.to_string()));
                }
                Err(error) => {
                    let what = "an event could not be published; trying again";
                    self.shared.health.retried(self.chain.run, &error, what);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
