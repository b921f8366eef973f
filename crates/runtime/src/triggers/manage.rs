//! Triggers as a caller manages them: creating, changing, firing, rotating, listing, replaying.
//!
//! What must stay true:
//! * A tenant sees and changes its own triggers only. Their runs belong to it, also those of a shared workflow.
//! * A trigger that a document declares is changed by publishing another document, not here.
//! * Changes are recorded in the audit trail.

use super::{
    Occurred,
    condition::problem,
    deliver::{Occurrence, pending},
    events::{Chain, EventAnswer, NewEvent},
    schedule::schedule_of,
    webhook::{Received, WebhookRequest},
};
use crate::{
    audit::Recorder,
    caller::Caller,
    engine::Engine,
    error::{EngineError, Refusal},
    reads::MAX_PAGE,
    session::Session,
};
use fermata_core::Timestamp;
use fermata_store::{
    audit::describe,
    reads::Page,
    triggers::{
        DeliveryFilter, DeliveryState, Trigger, TriggerDelivery, TriggerFilter, TriggerType, declared::exact_event_type,
    },
};
use fermata_triggers::{TriggerConfig, bounded_id, request::as_trigger, schedule::occurrence_id};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// The most fire times of a preview.
const MAX_PREVIEW: u32 = 100;
/// The longest condition, in bytes.
const MAX_CONDITION: usize = 10_000;

/// Triggers, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Triggers<'a> {
    pub(crate) engine: &'a Engine,
    /// Whose triggers are seen, and whose changes are recorded; `None` for all, without records.
    pub(crate) caller: Option<&'a Caller>,
}

impl Engine {
    /// Triggers of all tenants. A request uses [`Session::triggers`].
    pub fn triggers(&self) -> Triggers<'_> {
        Triggers {
            engine: self,
            caller: None,
        }
    }
}

impl Session {
    /// Receives a request for a webhook. Its path segment is the credential, so the caller does not matter.
    pub async fn receive_webhook(&self, segment: &str, request: WebhookRequest) -> Result<Received, EngineError> {
        self.engine.receive_webhook(segment, request).await
    }
}

/// A trigger to create.
#[derive(Debug, Clone)]
pub struct NewTrigger {
    /// The workflow: its name or its uid.
    pub workflow: String,
    /// What it reacts to.
    pub kind: TriggerType,
    /// Its configuration.
    pub config: Value,
    /// JavaScript that must be true for an occurrence to start a run.
    pub condition: Option<String>,
    /// Whether it starts runs.
    pub enabled: bool,
}

/// A change of a trigger. What is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct TriggerUpdate {
    /// Must be the type that it has.
    pub kind: Option<TriggerType>,
    /// Its configuration.
    pub config: Option<Value>,
    /// Its condition; `Some(None)` removes it.
    pub condition: Option<Option<String>>,
    /// Whether it starts runs.
    pub enabled: Option<bool>,
}

/// Which triggers to list.
#[derive(Debug, Clone, Default)]
pub struct TriggerList {
    /// Only those of this workflow: its name or its uid.
    pub workflow: Option<String>,
    /// Only those of this type.
    pub kind: Option<TriggerType>,
    /// Only those with this enabled flag.
    pub enabled: Option<bool>,
    /// Only those after this id.
    pub after: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

/// Which deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct DeliveryList {
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only those before this one in the list (older).
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

impl<'a> Triggers<'a> {
    fn tenant(&self) -> Option<&'a str> {
        self.caller.and_then(Caller::tenant)
    }

    async fn record<T>(
        &self,
        action: &str,
        target: &str,
        change: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        match self.caller {
            None => change.await,
            Some(caller) => {
                let engine = self.engine;
                Recorder { engine, caller }.record(action, target, change).await
            }
        }
    }

    /// Triggers, by id.
    pub async fn list(&self, list: TriggerList) -> Result<Page<Trigger>, EngineError> {
        let workflow_uid = match &list.workflow {
            None => None,
            Some(reference) => {
                let tenant = self.tenant().unwrap_or_default();
                let found = self.engine.workflows_of(tenant).find(reference).await?;
                match found {
                    Some(workflow) => Some(workflow.uid),
                    None => return Ok(Page::default()),
                }
            }
        };
        let filter = TriggerFilter {
            tenant: self.tenant().map(str::to_owned),
            workflow_uid,
            kind: list.kind,
            enabled: list.enabled,
            after: list.after,
            limit: list.limit.min(MAX_PAGE),
        };
        Ok(self.engine.shared.store.triggers(filter).await?)
    }

    /// One trigger.
    pub async fn get(&self, id: Uuid) -> Result<Trigger, EngineError> {
        let found = self.engine.shared.store.trigger(id).await?;
        let visible = found.filter(|trigger| self.tenant().is_none_or(|tenant| tenant == trigger.tenant));
        visible.ok_or_else(|| Refusal::TriggerNotFound(id).into())
    }

    /// The trigger, for a change.
    async fn own(&self, id: Uuid) -> Result<Trigger, EngineError> {
        let trigger = self.get(id).await?;
        describe(|row| row.tenant.clone_from(&trigger.tenant));
        Ok(trigger)
    }

    /// The same, unless a document declares it.
    async fn changeable(&self, id: Uuid) -> Result<Trigger, EngineError> {
        let trigger = self.own(id).await?;
        match &trigger.name {
            None => Ok(trigger),
            Some(name) => Err(Refusal::DeclaredTrigger {
                id,
                workflow: trigger.workflow_id.clone(),
                name: name.clone(),
            }
            .into()),
        }
    }

    /// Creates a trigger. It is ready when this returns.
    pub async fn create(&self, new: NewTrigger) -> Result<Trigger, EngineError> {
        let create = async {
            let shared = &self.engine.shared;
            let tenant = self.tenant().unwrap_or_default();
            let workflow = self.engine.workflows_of(tenant).resolve(&new.workflow).await?;
            let config = self.check(new.kind, &new.config, new.condition.as_deref()).await?;
            let now = shared.clock.now();
            let id = Uuid::new_v4();
            let owner = self.tenant().map_or(workflow.tenant, str::to_owned);
            if new.kind == TriggerType::Schedule {
                shared.settings.tiers.check_schedule(&owner)?;
            }
            describe(|row| {
                row.target = id.to_string();
                row.tenant.clone_from(&owner);
                row.detail = Some(format!("{} of workflow {}", new.kind.as_str(), workflow.id));
            });
            let mut trigger = Trigger {
                id,
                workflow_uid: workflow.uid,
                workflow_id: workflow.id,
                tenant: owner,
                kind: new.kind,
                name: None,
                enabled: new.enabled,
                disabled_by_archive: false,
                event_type: exact_event_type(new.kind, &config),
                config,
                condition: new.condition,
                segment: Some(id).filter(|_| new.kind == TriggerType::Webhook),
                old_segment: None,
                fired_until: None,
                next_fire_at: None,
                last: None,
                created_at: now,
                updated_at: now,
            };
            count_from(&mut trigger, now);
            match shared.store.create_trigger(trigger.clone()).await? {
                true => Ok(trigger),
                false => Err(Refusal::WorkflowNotFound(new.workflow).into()),
            }
        };
        let created = self.record("trigger.create", "", create).await?;
        self.engine.shared.triggers.wake.notify_one();
        Ok(created)
    }

    /// Changes a trigger.
    pub async fn update(&self, id: Uuid, change: TriggerUpdate) -> Result<Trigger, EngineError> {
        let update = async {
            let mut trigger = self.changeable(id).await?;
            if change.kind.is_some_and(|kind| kind != trigger.kind) {
                let problem = (
                    "/triggerType".to_owned(),
                    "cannot be changed; create another trigger".to_owned(),
                );
                return Err(Refusal::InvalidTriggerConfig(vec![problem]).into());
            }
            let was = (trigger.config.clone(), trigger.enabled);
            if let Some(condition) = change.condition {
                trigger.condition = condition;
            }
            let config = match change.config {
                Some(config) => config,
                None => serde_json::from_str(&trigger.config).unwrap_or_else(|_| json!({})),
            };
            trigger.config = self.check(trigger.kind, &config, trigger.condition.as_deref()).await?;
            trigger.event_type = exact_event_type(trigger.kind, &trigger.config);
            trigger.enabled = change.enabled.unwrap_or(trigger.enabled);
            self.store_change(trigger, was).await
        };
        self.record("trigger.update", &id.to_string(), update).await
    }

    /// Enables or disables a trigger. For a declared one this lasts until its workflow is published again.
    pub async fn set_enabled(&self, id: Uuid, enabled: bool) -> Result<Trigger, EngineError> {
        let action = if enabled { "trigger.enable" } else { "trigger.disable" };
        let change = async {
            let mut trigger = self.own(id).await?;
            let was = (trigger.config.clone(), trigger.enabled);
            trigger.enabled = enabled;
            self.store_change(trigger, was).await
        };
        self.record(action, &id.to_string(), change).await
    }

    /// Stores a changed trigger. A schedule that changed or was enabled counts from now.
    async fn store_change(&self, mut trigger: Trigger, was: (String, bool)) -> Result<Trigger, EngineError> {
        let shared = &self.engine.shared;
        let now = shared.clock.now();
        if was != (trigger.config.clone(), trigger.enabled) {
            count_from(&mut trigger, now);
        }
        trigger.disabled_by_archive = false;
        trigger.updated_at = now;
        match shared.store.update_trigger(trigger.clone()).await? {
            true => {
                shared.triggers.wake.notify_one();
                Ok(trigger)
            }
            false => Err(Refusal::TriggerNotFound(trigger.id).into()),
        }
    }

    /// Removes a trigger.
    pub async fn delete(&self, id: Uuid) -> Result<(), EngineError> {
        let delete = async {
            self.changeable(id).await?;
            match self.engine.shared.store.delete_trigger(id).await? {
                true => Ok(()),
                false => Err(Refusal::TriggerNotFound(id).into()),
            }
        };
        self.record("trigger.delete", &id.to_string(), delete).await
    }

    /// Gives a webhook another path segment. The old one is accepted for `grace`.
    pub async fn rotate(&self, id: Uuid, grace: Duration) -> Result<Trigger, EngineError> {
        let rotate = async {
            let trigger = self.own(id).await?;
            let shared = &self.engine.shared;
            let now = shared.clock.now();
            let until = now.plus_millis(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
            if trigger.kind != TriggerType::Webhook {
                let problem = (String::new(), "only the URL of a webhook can be rotated".to_owned());
                return Err(Refusal::InvalidTriggerConfig(vec![problem]).into());
            }
            match shared.store.rotate_segment(id, Uuid::new_v4(), until, now).await? {
                true => self.get(id).await,
                false => Err(Refusal::TriggerNotFound(id).into()),
            }
        };
        self.record("trigger.rotate", &id.to_string(), rotate).await
    }

    /// Fires a trigger of any type by hand. The same `request_id` fires it once.
    pub async fn fire(&self, id: Uuid, payload: Value, request_id: Option<String>) -> Result<Occurred, EngineError> {
        let trigger = self.get(id).await?;
        let shared = &self.engine.shared;
        let name = match request_id {
            Some(request_id) => format!("fire:{}", bounded_id(&request_id)),
            None => format!("fire:{}", shared.ids.next()),
        };
        let is_empty = payload.is_null() || payload.as_object().is_some_and(Map::is_empty);
        let payload = match trigger.kind {
            // As if it were due now.
            TriggerType::Schedule if is_empty => json!({ "scheduledAt": occurrence_id(shared.clock.now()) }),
            _ => as_trigger(payload),
        };
        let bytes = payload.to_string().len();
        let occurrence = Occurrence {
            delivery: pending(shared, &trigger, name),
            payload: Arc::new(payload),
            request: Arc::new(json!({ "firedBy": self.who() })),
            memory: None,
        };
        self.engine.occur(&trigger, occurrence, bytes).await
    }

    fn who(&self) -> &str {
        let principal = self.caller.and_then(|caller| caller.identity().principal.as_ref());
        principal.map_or("anonymous", |principal| principal.user_id.as_str())
    }

    /// Deliveries of a trigger, newest first, without payloads.
    pub async fn deliveries(&self, id: Uuid, list: DeliveryList) -> Result<Page<TriggerDelivery>, EngineError> {
        self.get(id).await?;
        let filter = DeliveryFilter {
            trigger: id,
            state: list.state,
            before: list.before,
            limit: list.limit.min(MAX_PAGE),
        };
        Ok(self.engine.shared.store.deliveries(filter).await?)
    }

    /// One delivery with its payload and request. A started one that has none of its own has those of its run, as long as that
    /// exists.
    pub async fn delivery(&self, id: Uuid) -> Result<TriggerDelivery, EngineError> {
        let store = &self.engine.shared.store;
        let found = store.delivery(id).await?;
        let visible = found.filter(|delivery| self.tenant().is_none_or(|tenant| tenant == delivery.tenant));
        let mut delivery = visible.ok_or(Refusal::DeliveryNotFound(id))?;
        if delivery.state == DeliveryState::Started
            && delivery.payload.is_none()
            && let Some(run) = store.run(delivery.run).await?.filter(|run| !run.trigger.is_empty())
        {
            delivery.payload = Some(run.trigger);
            delivery.request = run.request;
        }
        Ok(delivery)
    }

    /// Delivers the payload and request of an earlier delivery again, as a new occurrence.
    pub async fn replay(&self, id: Uuid) -> Result<Occurred, EngineError> {
        let delivery = self.delivery(id).await?;
        let trigger = self.get(delivery.trigger).await?;
        let shared = &self.engine.shared;
        let Some(text) = delivery.payload else {
            return Err(Refusal::UnreplayableDelivery(id).into());
        };
        let payload = shared.offload.parse(&text).await;
        let payload = payload.map_err(|_| Refusal::UnreplayableDelivery(id))?;
        let request = delivery
            .request
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        let mut request: Value = request.unwrap_or_else(|| json!({}));
        if let Value::Object(members) = &mut request {
            members.insert("replayOf".to_owned(), id.to_string().into());
        }
        let occurrence = Occurrence {
            delivery: pending(shared, &trigger, format!("replay:{}", shared.ids.next())),
            payload: Arc::new(payload),
            request: Arc::new(request),
            memory: None,
        };
        self.engine.occur(&trigger, occurrence, text.len()).await
    }

    /// Checks a configuration; for a schedule returns its next fire times.
    ///
    /// # Errors
    /// [`Refusal::InvalidTriggerConfig`] with all problems.
    pub fn preview(&self, kind: TriggerType, config: &Value, count: u32) -> Result<Vec<Timestamp>, EngineError> {
        match parse(kind, config)? {
            TriggerConfig::Schedule(schedule) => {
                let now = self.engine.shared.clock.now();
                Ok(schedule.upcoming(now, count.min(MAX_PREVIEW) as usize))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Publishes events. `tenant` is the one that the request names.
    pub async fn publish(&self, events: Vec<NewEvent>, tenant: Option<&str>) -> Result<Vec<EventAnswer>, EngineError> {
        let tenant = match (self.tenant(), tenant) {
            (Some(own), Some(named)) if own != named => return Err(Refusal::OtherTenant.into()),
            (Some(own), _) => own,
            (None, named) => named.unwrap_or_default(),
        };
        self.engine.publish_events(tenant, events, Chain::default()).await
    }

    /// The configuration as text, if it and the condition are right.
    async fn check(&self, kind: TriggerType, config: &Value, condition: Option<&str>) -> Result<String, EngineError> {
        parse(kind, config)?;
        let wrong = match condition {
            None => None,
            Some(condition) if condition.len() > MAX_CONDITION => {
                Some(format!("must not be longer than {MAX_CONDITION} bytes"))
            }
            Some(condition) => problem(&self.engine.shared, condition).await,
        };
        match wrong {
            Some(wrong) => Err(Refusal::InvalidTriggerConfig(vec![("/activationCondition".to_owned(), wrong)]).into()),
            None => Ok(config.to_string()),
        }
    }
}

/// A checked configuration.
fn parse(kind: TriggerType, config: &Value) -> Result<TriggerConfig, EngineError> {
    let pure = match kind {
        TriggerType::Webhook => fermata_triggers::TriggerType::Webhook,
        TriggerType::Schedule => fermata_triggers::TriggerType::Schedule,
        TriggerType::Event => fermata_triggers::TriggerType::Event,
        TriggerType::Manual => fermata_triggers::TriggerType::Manual,
    };
    TriggerConfig::parse(pure, config).map_err(|problems| {
        let problems = problems.into_iter();
        let problems = problems.map(|problem| (format!("/configJson{}", problem.pointer), problem.message));
        Refusal::InvalidTriggerConfig(problems.collect()).into()
    })
}

/// Makes a schedule count from `now`: earlier fire times are not caught up.
fn count_from(trigger: &mut Trigger, now: Timestamp) {
    let schedule = match trigger.kind == TriggerType::Schedule && trigger.enabled {
        true => schedule_of(&trigger.config),
        false => None,
    };
    trigger.fired_until = schedule.as_ref().map(|_| now);
    trigger.next_fire_at = schedule.and_then(|schedule| schedule.first_due(trigger.id, now));
}
