//! Processing one delivery: what it comes after, its condition, its run.
//!
//! What must stay true:
//! * Processing a delivery twice is harmless: its run has the same id and the same requestId.
//! * After an error of the store the delivery stays open and is taken again. It is settled only when its fate is durable.

use super::{
    Occurred,
    condition::{Judged, Verdict, judge},
};
use crate::{
    engine::{Accepted, Engine, Request},
    error::{EngineError, Refusal},
    memory::Share,
};
use fermata_core::RunId;
use fermata_store::{
    StoreError,
    triggers::{DeliveryState, Settled, Trigger, TriggerDelivery, TriggerType, request_id},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How long a delivery waits before it is processed again.
const AGAIN_MS: u64 = 1000;

/// The longest reason, in characters.
const MAX_REASON: usize = 1000;

/// An occurrence with its payloads read.
#[derive(Clone)]
pub(super) struct Occurrence {
    pub delivery: TriggerDelivery,
    pub payload: Arc<Value>,
    pub request: Arc<Value>,
    pub memory: Option<Arc<Share>>,
}

impl Engine {
    /// Processes a delivery that is pending or queued. Returns what became of it, as far as it is known.
    pub(super) async fn process_delivery(&self, delivery: TriggerDelivery) -> Result<Settled, EngineError> {
        let settled = self.decide(&delivery).await?;
        let store = &self.shared.store;
        let (trigger, occurrence) = (delivery.trigger, delivery.occurrence.as_str());
        store.settle_delivery(trigger, occurrence, settled.clone()).await?;
        if let Settled::Ended { state, reason, .. } = &settled {
            tracing::info!(
                delivery = %delivery.id,
                state = state.as_str(),
                reason,
                "an occurrence of a trigger started nothing"
            );
        }
        Ok(settled)
    }

    async fn decide(&self, delivery: &TriggerDelivery) -> Result<Settled, EngineError> {
        let shared = &self.shared;
        let Some(trigger) = shared.store.trigger(delivery.trigger).await? else {
            return Ok(refused("the trigger was deleted"));
        };
        if trigger.kind == TriggerType::Schedule && !trigger.enabled {
            return Ok(refused("the schedule was disabled"));
        }
        if !self.may_begin(delivery).await? {
            return Ok(Settled::Later(shared.clock.now().plus_millis(AGAIN_MS)));
        }
        let text = delivery.payload.as_deref().unwrap_or("{}");
        let payload = shared.offload.parse(text).await;
        let request = delivery
            .request
            .as_deref()
            .map(serde_json::from_str::<Value>)
            .transpose();
        let (Ok(payload), Ok(request)) = (payload, request) else {
            return Ok(refused("the stored payload is not JSON"));
        };
        let occurrence = Occurrence {
            delivery: delivery.clone(),
            payload: Arc::new(payload),
            request: Arc::new(request.unwrap_or_else(|| json!({}))),
            memory: None,
        };
        let verdict = match judge(shared, &trigger, &occurrence.payload, &occurrence.request, text.len()).await {
            Judged::Here(verdict) => verdict,
            Judged::Elsewhere(question) => match question.ask(shared, &trigger).await {
                Some(verdict) => verdict,
                None => return Ok(Settled::Later(shared.clock.now().plus_millis(AGAIN_MS))),
            },
        };
        if !verdict.is_true {
            return Ok(filtered(&trigger, &verdict));
        }
        match self.start_occurrence(&trigger, occurrence, false).await {
            Ok(accepted) => Ok(Settled::Started(accepted.run)),
            Err(EngineError::Refused(Refusal::RateLimited { allowance, .. })) => {
                let pause = allowance.retry_after.map_or(0, |pause| pause.as_millis() as u64);
                Ok(Settled::Later(shared.clock.now().plus_millis(pause.max(AGAIN_MS))))
            }
            Err(EngineError::Refused(Refusal::KeepsChanging(_))) => {
                Ok(Settled::Later(shared.clock.now().plus_millis(AGAIN_MS)))
            }
            Err(EngineError::Refused(refusal)) => Ok(refused(&describe(&refusal))),
            Err(error @ EngineError::Unusable { .. }) => Ok(refused(&error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Whether the delivery that must end first has ended. For `cancelRunning` its run is cancelled.
    async fn may_begin(&self, delivery: &TriggerDelivery) -> Result<bool, EngineError> {
        let Some(earlier) = &delivery.after else {
            return Ok(true);
        };
        let store = &self.shared.store;
        let Some(earlier) = store.occurrence(delivery.trigger, earlier).await? else {
            return Ok(true);
        };
        if earlier.state.is_open() {
            return Ok(false);
        }
        if earlier.state != DeliveryState::Started {
            return Ok(true);
        }
        let Some(run) = store.run(earlier.run).await?.filter(|run| !run.status.is_terminal()) else {
            return Ok(true);
        };
        if delivery.state == DeliveryState::Queued {
            return Ok(false);
        }
        match self.cancel(run.id, "the next fire time of its schedule").await {
            Ok(_) | Err(EngineError::Refused(Refusal::RunNotFound(_))) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Starts the run of an occurrence. With `is_new` the delivery is stored with the run.
    pub(super) async fn start_occurrence(
        &self,
        trigger: &Trigger,
        occurrence: Occurrence,
        is_new: bool,
    ) -> Result<Accepted, EngineError> {
        let Occurrence {
            delivery,
            payload,
            request,
            memory,
        } = occurrence;
        let payload = match trigger.kind {
            TriggerType::Schedule if self.has_empty_payload(trigger).await? => Value::Object(Map::new()),
            _ => Arc::unwrap_or_clone(payload),
        };
        let id = delivery.run;
        let request = Request {
            workflow_id: trigger.workflow_uid.to_string(),
            request_id: Some(request_id(trigger.id, &delivery.occurrence)),
            trigger: payload,
            request: Some(Arc::unwrap_or_clone(request)),
            tenant: trigger.tenant.clone(),
            delivery: is_new.then(|| Box::new(delivery)),
            memory,
            ..Request::default()
        };
        self.accept(id, request).await
    }

    /// Whether the payload of a schedule of this workflow is empty. The plan says so.
    async fn has_empty_payload(&self, trigger: &Trigger) -> Result<bool, EngineError> {
        let workflows = self.shared.workflows.of(&trigger.tenant);
        let head = workflows.head(&trigger.workflow_uid.to_string(), false).await?;
        let Some(version) = head.current_version else {
            return Ok(false);
        };
        let compiled = workflows.compiled(head.uid, &head.id, version).await?;
        Ok(compiled.plan.empty_schedule_payload)
    }

    /// Judges an occurrence and stores what became of it before it is acknowledged. Its delivery is `Pending` here.
    pub(super) async fn occur(
        &self,
        trigger: &Trigger,
        occurrence: Occurrence,
        bytes: usize,
    ) -> Result<Occurred, EngineError> {
        let shared = &self.shared;
        let judged = judge(shared, trigger, &occurrence.payload, &occurrence.request, bytes).await;
        let verdict = match judged {
            Judged::Here(verdict) => verdict,
            Judged::Elsewhere(_) => return self.store_pending(occurrence).await,
        };
        if !verdict.is_true {
            return self.end_occurrence(&occurrence, filtered(trigger, &verdict)).await;
        }
        let mut started = occurrence.clone();
        started.delivery.state = DeliveryState::Started;
        started.delivery.retry_at = None;
        let delivery = started.delivery.clone();
        match self.start_occurrence(trigger, started, true).await {
            Ok(accepted) if accepted.created => Ok(Occurred::started(delivery.id, &accepted)),
            Ok(accepted) => {
                // Another run has the occurrence, or the start was merged with another one. The delivery keeps what it carried.
                let known = TriggerDelivery {
                    run: accepted.run,
                    state: DeliveryState::Started,
                    retry_at: None,
                    ..self.shared.stored_form(&occurrence).await
                };
                let there = shared.store.add_delivery(known).await?;
                Ok(Occurred::started(
                    there.map_or(delivery.id, |there| there.id),
                    &accepted,
                ))
            }
            Err(EngineError::Refused(refusal)) if !matches!(refusal, Refusal::RateLimited { .. }) => {
                self.end_occurrence(&occurrence, refused(&describe(&refusal))).await?;
                Err(refusal.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Stores a delivery that the background task judges.
    async fn store_pending(&self, occurrence: Occurrence) -> Result<Occurred, EngineError> {
        let delivery = self.shared.stored_form(&occurrence).await;
        match self.shared.store.add_delivery(delivery.clone()).await? {
            Some(there) => Ok(Occurred::of(&there, true)),
            None => {
                let occurred = Occurred::of(&delivery, false);
                self.shared.hand_over(vec![delivery]);
                Ok(occurred)
            }
        }
    }

    /// Stores a delivery that starts nothing.
    async fn end_occurrence(&self, occurrence: &Occurrence, settled: Settled) -> Result<Occurred, EngineError> {
        let Settled::Ended { state, reason, saw } = settled else {
            return Ok(Occurred::of(&occurrence.delivery, false));
        };
        let delivery = TriggerDelivery {
            state,
            reason,
            saw,
            retry_at: None,
            ..self.shared.stored_form(occurrence).await
        };
        let there = self.shared.store.add_delivery(delivery.clone()).await?;
        Ok(Occurred::of(there.as_ref().unwrap_or(&delivery), there.is_some()))
    }
}

impl crate::engine::Shared {
    /// A delivery with its payload and request as texts.
    async fn stored_form(&self, occurrence: &Occurrence) -> TriggerDelivery {
        TriggerDelivery {
            payload: Some(self.offload.to_text(occurrence.payload.clone()).await),
            request: Some(self.offload.to_text(occurrence.request.clone()).await),
            ..occurrence.delivery.clone()
        }
    }
}

fn filtered(trigger: &Trigger, verdict: &Verdict) -> Settled {
    let condition = trigger.condition.as_deref().unwrap_or_default();
    Settled::Ended {
        state: DeliveryState::Filtered,
        reason: Some(short(&verdict.reason(condition))),
        saw: Some(Value::Object(verdict.saw.clone()).to_string()),
    }
}

pub(super) fn refused(reason: &str) -> Settled {
    Settled::Ended {
        state: DeliveryState::Refused,
        reason: Some(short(reason)),
        saw: None,
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}

/// A refusal with its details.
fn describe(refusal: &Refusal) -> String {
    match refusal {
        Refusal::InvalidTrigger { problems, .. } => {
            let problems: Vec<String> = problems
                .iter()
                .map(|(pointer, what)| format!("{pointer}: {what}"))
                .collect();
            format!("{refusal}: {}", problems.join("; "))
        }
        _ => refusal.to_string(),
    }
}

/// Whether an error of the store says that nothing is known about the outcome.
pub(super) fn is_unknown(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(StoreError::Unknown(_)))
}

/// The `request` of a child run: only the number of events that led to its parent.
pub(crate) fn inherited(chain_depth: u32) -> Option<Value> {
    (chain_depth > 0).then(|| json!({ "chain": { "depth": chain_depth } }))
}

/// A new delivery of an occurrence, pending.
pub(super) fn pending(shared: &crate::engine::Shared, trigger: &Trigger, occurrence: String) -> TriggerDelivery {
    let now = shared.clock.now();
    TriggerDelivery {
        id: shared.ids.next(),
        trigger: trigger.id,
        occurrence,
        tenant: trigger.tenant.clone(),
        received_at: now,
        state: DeliveryState::Pending,
        run: RunId(shared.ids.next()),
        reason: None,
        saw: None,
        payload: None,
        request: None,
        after: None,
        retry_at: Some(shared.retry_at(now)),
    }
}
