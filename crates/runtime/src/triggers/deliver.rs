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
    compiled::Compiled,
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
    /// Processes a delivery that is pending or queued. Returns what became of it, as far as it is known. `trigger` is its trigger, if
    /// that was read just now.
    pub(super) async fn process_delivery(
        &self,
        delivery: TriggerDelivery,
        trigger: Option<Trigger>,
    ) -> Result<Settled, EngineError> {
        let (settled, is_stored) = self.decide(&delivery, trigger).await?;
        if !is_stored {
            let store = &self.shared.store;
            let (trigger, occurrence) = (delivery.trigger, delivery.occurrence.as_str());
            store.settle_delivery(trigger, occurrence, settled.clone()).await?;
        }
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

    /// What becomes of a delivery, and whether that is stored already: with its run.
    async fn decide(
        &self,
        delivery: &TriggerDelivery,
        trigger: Option<Trigger>,
    ) -> Result<(Settled, bool), EngineError> {
        let trigger = match trigger {
            Some(trigger) => Some(trigger),
            None => self.shared.store.trigger(delivery.trigger).await?,
        };
        let Some(trigger) = trigger else {
            return Ok((refused("the trigger was deleted"), false));
        };
        match self.judged(delivery, &trigger).await? {
            Ok(occurrence) => self.start_stored(&trigger, occurrence).await,
            Err(settled) => Ok((settled, false)),
        }
    }

    /// The occurrence of a delivery whose run may start, or what becomes of the delivery otherwise.
    async fn judged(
        &self,
        delivery: &TriggerDelivery,
        trigger: &Trigger,
    ) -> Result<Result<Occurrence, Settled>, EngineError> {
        let shared = &self.shared;
        if trigger.kind == TriggerType::Schedule && !trigger.enabled {
            return Ok(Err(refused("the schedule was disabled")));
        }
        if !self.may_begin(delivery).await? {
            return Ok(Err(Settled::Later(shared.clock.now().plus_millis(AGAIN_MS))));
        }
        let text = delivery.payload.as_deref().unwrap_or("{}");
        let payload = shared.offload.parse(text).await;
        let request = delivery
            .request
            .as_deref()
            .map(serde_json::from_str::<Value>)
            .transpose();
        let (Ok(payload), Ok(request)) = (payload, request) else {
            return Ok(Err(refused("the stored payload is not JSON")));
        };
        let occurrence = Occurrence {
            delivery: delivery.clone(),
            payload: Arc::new(payload),
            request: Arc::new(request.unwrap_or_else(|| json!({}))),
            memory: None,
        };
        let verdict = match judge(shared, trigger, &occurrence.payload, &occurrence.request, text.len()).await {
            Judged::Here(verdict) => verdict,
            Judged::Elsewhere(question) => match question.ask(shared, trigger).await {
                Some(verdict) => verdict,
                None => return Ok(Err(Settled::Later(shared.clock.now().plus_millis(AGAIN_MS)))),
            },
        };
        match verdict.is_true {
            true => Ok(Ok(occurrence)),
            false => Ok(Err(filtered(trigger, &verdict))),
        }
    }

    /// Starts the run of a stored delivery. If the run is new, the delivery is settled in the same transaction.
    async fn start_stored(
        &self,
        trigger: &Trigger,
        mut occurrence: Occurrence,
    ) -> Result<(Settled, bool), EngineError> {
        let shared = &self.shared;
        let delivery = &mut occurrence.delivery;
        (delivery.state, delivery.retry_at) = (DeliveryState::Started, None);
        (delivery.payload, delivery.request) = (None, None);
        let keeps_payload = self.merges_starts(trigger).await?;
        let settled = match self.start_occurrence(trigger, occurrence, true).await {
            Ok(accepted) => {
                let run = accepted.run;
                return Ok((Settled::Started { run, keeps_payload }, accepted.created));
            }
            Err(EngineError::Refused(Refusal::RateLimited { allowance, .. })) => {
                let pause = allowance.retry_after.map_or(0, |pause| pause.as_millis() as u64);
                Settled::Later(shared.clock.now().plus_millis(pause.max(AGAIN_MS)))
            }
            Err(EngineError::Refused(Refusal::KeepsChanging(_))) => {
                Settled::Later(shared.clock.now().plus_millis(AGAIN_MS))
            }
            Err(EngineError::Refused(refusal)) => refused(&describe(&refusal)),
            Err(error @ EngineError::Unusable { .. }) => refused(&error.to_string()),
            Err(error) => return Err(error),
        };
        Ok((settled, false))
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

    /// Whether the payload of a schedule of this workflow is empty.
    async fn has_empty_payload(&self, trigger: &Trigger) -> Result<bool, EngineError> {
        let compiled = self.current_plan(trigger).await?;
        Ok(compiled.is_some_and(|compiled| compiled.plan.empty_schedule_payload))
    }

    /// Whether starts of this workflow are merged, so that a run may have the payload of another delivery.
    async fn merges_starts(&self, trigger: &Trigger) -> Result<bool, EngineError> {
        let compiled = self.current_plan(trigger).await?;
        let flow = compiled.as_ref().and_then(|compiled| compiled.plan.flow.as_ref());
        Ok(flow.is_some_and(|flow| flow.debounce.is_some() || flow.unique.is_some()))
    }

    /// The plan of the current version of a trigger's workflow.
    async fn current_plan(&self, trigger: &Trigger) -> Result<Option<Arc<Compiled>>, EngineError> {
        let workflows = self.shared.workflows.of(&trigger.tenant);
        let head = workflows.head(&trigger.workflow_uid.to_string(), false).await?;
        match head.current_version {
            Some(version) => Ok(Some(workflows.compiled(head.uid, &head.id, version).await?)),
            None => Ok(None),
        }
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
        let delivery = started.delivery.id;
        match self.start_occurrence(trigger, started, true).await {
            Ok(accepted) if accepted.created => Ok(Occurred::started(delivery, &accepted)),
            Ok(accepted) => {
                // Another run has the occurrence, or the start was merged with another one. The delivery keeps what it carried.
                let known = TriggerDelivery {
                    run: accepted.run,
                    state: DeliveryState::Started,
                    retry_at: None,
                    ..self.shared.stored_form(&occurrence).await
                };
                let there = shared.store.add_delivery(known).await?;
                Ok(Occurred::started(there.map_or(delivery, |there| there.id), &accepted))
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
