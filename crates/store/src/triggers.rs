//! Triggers, their deliveries, and published events.
//!
//! An *occurrence* is what a trigger reacts to: a request to its webhook, a fire time, an event, a manual fire. A *delivery* is
//! the row of one occurrence of one trigger, with what became of it.
//!
//! | state | meaning | payload in the row |
//! | --- | --- | --- |
//! | `pending` | it is durable and was not judged yet | yes |
//! | `queued` | it waits until the run of an earlier delivery has ended | yes |
//! | `started` | its run is stored | only if starts of the workflow are merged; otherwise the run has it |
//! | `filtered` | the activation condition was false | yes |
//! | `refused` | it may not start a run, for the reason that the row says | yes |
//! | `skipped` | the overlap policy of the schedule dropped it | no |
//!
//! What must stay true:
//! * (trigger, occurrence) is unique. The run of a delivery has the requestId [`request_id`], so an occurrence starts at most one
//!   run, however often its delivery is processed.
//! * A delivery that is pending or queued has a `retry_at`: a process that dies loses none.
//! * A due schedule is fired in one transaction: the deliveries are inserted and the schedule is advanced, or neither.
//! * An event and the deliveries of all triggers that it matches are stored in one transaction.
//! * Declared triggers have the state that the current version of their workflow says ([`declared`]): they change in the
//!   transaction that changes the workflow.

pub mod declared;
pub(crate) mod statements;

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::{RunId, Status, Timestamp};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How long deliveries and events are kept, and how long an event is a duplicate of an earlier one.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// Triggers, deliveries and events.
#[async_trait]
pub trait TriggerStore: Send + Sync {
    /// Stores a new trigger. False if its workflow is missing or deleted; then nothing is stored.
    async fn create_trigger(&self, trigger: Trigger) -> Result<bool>;

    /// Replaces type, configuration, condition and enablement of a trigger and its fire times. Its id, workflow, name and
    /// webhook segments stay. False if there is no such trigger.
    async fn update_trigger(&self, trigger: Trigger) -> Result<bool>;

    /// Removes a trigger. Its deliveries stay until their time is over.
    async fn delete_trigger(&self, id: Uuid) -> Result<bool>;

    /// Gives a webhook a new path segment. The old one is accepted until `until`.
    async fn rotate_segment(&self, id: Uuid, segment: Uuid, until: Timestamp, at: Timestamp) -> Result<bool>;

    /// The trigger with this id.
    async fn trigger(&self, id: Uuid) -> Result<Option<Trigger>>;

    /// The webhook with this path segment, its current one or an old one that is accepted at `now`.
    async fn webhook(&self, segment: Uuid, now: Timestamp) -> Result<Option<Trigger>>;

    /// Triggers by id.
    async fn triggers(&self, filter: TriggerFilter) -> Result<Page<Trigger>>;

    /// The enabled event triggers of a tenant that name this event type, or that have no exact type.
    async fn event_triggers(&self, tenant: &str, event_type: &str) -> Result<Vec<Trigger>>;

    /// Fires schedules that are due at `now`, at most `limit`, each in the same transaction as its deliveries: `fire` says which
    /// deliveries to insert and when the schedule is due again. Schedules that another process fires are left out. `fire` must
    /// be pure: it may be called more than once.
    async fn fire_due(&self, now: Timestamp, limit: u32, fire: Fire) -> Result<Vec<Delivered>>;

    /// Stores a delivery. If the occurrence has one already, that one is returned and nothing changes.
    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>>;

    /// Takes deliveries that are pending or queued and due at `now`: their `retry_at` becomes `until`, so that no other process
    /// takes them before. Longest-waiting first.
    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>>;

    /// Records what became of a pending or queued delivery. False if that was recorded before.
    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool>;

    /// One delivery, by its id.
    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>>;

    /// One delivery, by its occurrence.
    async fn occurrence(&self, trigger: Uuid, occurrence: &str) -> Result<Option<TriggerDelivery>>;

    /// Deliveries of a trigger, newest first, without payloads.
    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>>;

    /// Stores events with their deliveries, all of them or none. An event whose (tenant, source, id) was received after
    /// `duplicate_after` is a duplicate: nothing is stored for it.
    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>>;

    /// Events that were stored without being matched, longest-waiting first.
    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>>;

    /// Marks an event as matched and stores its deliveries, in one transaction. False if it is matched already.
    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool>;

    /// When there is something to do.
    async fn trigger_work(&self) -> Result<TriggerWork>;

    /// Removes deliveries and events that were received before this time, at most `limit` of each, and returns their number.
    /// Deliveries that are pending or queued stay.
    async fn prune_triggers(&self, before: Timestamp, limit: u32) -> Result<u64>;
}

/// Decides about a due schedule.
pub type Fire = Arc<dyn Fn(&DueTrigger) -> Firing + Send + Sync>;

/// What starts runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TriggerType {
    Webhook,
    Schedule,
    Event,
    Manual,
}

impl TriggerType {
    /// All types.
    pub const ALL: [TriggerType; 4] = [
        TriggerType::Webhook,
        TriggerType::Schedule,
        TriggerType::Event,
        TriggerType::Manual,
    ];

    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            TriggerType::Webhook => "Webhook",
            TriggerType::Schedule => "Schedule",
            TriggerType::Event => "Event",
            TriggerType::Manual => "Manual",
        }
    }

    /// The type called `word`, in any case.
    pub fn parse(word: &str) -> Option<TriggerType> {
        let mut all = TriggerType::ALL.into_iter();
        all.find(|kind| kind.as_str().eq_ignore_ascii_case(word))
    }
}

/// A trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// Its id, a UUIDv4: the first path segment of a webhook, which is a secret.
    pub id: Uuid,
    /// The workflow that it starts.
    pub workflow_uid: Uuid,
    /// The name of the workflow.
    pub workflow_id: String,
    /// The tenant that it belongs to, and so do its runs. Empty for none.
    pub tenant: String,
    /// What it reacts to.
    pub kind: TriggerType,
    /// Its name in the document that declares it; `None` if it was created over the API.
    pub name: Option<String>,
    /// Whether it starts runs.
    pub enabled: bool,
    /// Whether it was disabled because its workflow was archived.
    pub disabled_by_archive: bool,
    /// Its configuration, as JSON.
    pub config: String,
    /// JavaScript that must be true for an occurrence to start a run.
    pub condition: Option<String>,
    /// The path segment of a webhook.
    pub segment: Option<Uuid>,
    /// The segment before the last rotation, and until when it is accepted.
    pub old_segment: Option<(Uuid, Timestamp)>,
    /// The event type, if the configuration names exactly one.
    pub event_type: Option<String>,
    /// Fire times up to this one were fired or are not wanted.
    pub fired_until: Option<Timestamp>,
    /// When the schedule must be looked at next.
    pub next_fire_at: Option<Timestamp>,
    /// The last delivery that started a run or will.
    pub last: Option<LastDelivery>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its configuration last changed.
    pub updated_at: Timestamp,
}

/// The last delivery of a schedule that was not skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LastDelivery {
    pub occurrence: String,
    pub run: RunId,
    pub at: Timestamp,
}

impl LastDelivery {
    /// What a schedule remembers of a delivery; `None` if it was skipped.
    pub(crate) fn of(delivery: &TriggerDelivery) -> Option<LastDelivery> {
        delivery.state.is_open().then(|| LastDelivery {
            occurrence: delivery.occurrence.clone(),
            run: delivery.run,
            at: delivery.received_at,
        })
    }

    pub(crate) fn read(occurrence: Option<String>, run: Option<RunId>, at: Option<Timestamp>) -> Option<LastDelivery> {
        Some(LastDelivery {
            occurrence: occurrence?,
            run: run?,
            at: at?,
        })
    }

    /// Whether it has not ended, and whether it is queued: from the state of its delivery and the status of its run, as far as
    /// they exist.
    pub(crate) fn running(&self, state: Option<DeliveryState>, run: Option<Status>) -> (bool, bool) {
        let is_open = state.is_some_and(DeliveryState::is_open);
        let is_running = is_open || run.is_some_and(|status| !status.is_terminal());
        (is_running, state == Some(DeliveryState::Queued))
    }
}

/// Which triggers to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TriggerFilter {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those of this workflow.
    pub workflow_uid: Option<Uuid>,
    /// Only those of this type.
    pub kind: Option<TriggerType>,
    /// Only those with this enabled flag.
    pub enabled: Option<bool>,
    /// Only those after this id, for paging.
    pub after: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

impl TriggerFilter {
    /// Whether a trigger matches the filter, apart from the range of the page.
    pub(crate) fn fits(&self, trigger: &Trigger) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == trigger.tenant)
            && self.workflow_uid.is_none_or(|uid| uid == trigger.workflow_uid)
            && self.kind.is_none_or(|kind| kind == trigger.kind)
            && self.enabled.is_none_or(|enabled| enabled == trigger.enabled)
    }
}

/// A schedule that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTrigger {
    /// The trigger.
    pub trigger: Trigger,
    /// Now.
    pub now: Timestamp,
    /// Whether the last delivery has not started its run yet, or its run has not ended.
    pub is_running: bool,
    /// Whether the last delivery is queued.
    pub is_queued: bool,
}

/// What happens to a due schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Firing {
    /// The deliveries of the fire times, oldest first.
    pub deliveries: Vec<TriggerDelivery>,
    /// The newest fire time that is covered by this.
    pub fired_until: Option<Timestamp>,
    /// When the schedule is due again; `None` if never.
    pub next_fire_at: Option<Timestamp>,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DeliveryState {
    Pending,
    Queued,
    Started,
    Filtered,
    Refused,
    Skipped,
}

impl DeliveryState {
    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Queued => "queued",
            DeliveryState::Started => "started",
            DeliveryState::Filtered => "filtered",
            DeliveryState::Refused => "refused",
            DeliveryState::Skipped => "skipped",
        }
    }

    /// The state called `word`, in any case.
    pub fn parse(word: &str) -> Option<DeliveryState> {
        use DeliveryState::*;
        let all = [Pending, Queued, Started, Filtered, Refused, Skipped];
        all.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(word))
    }

    /// Whether it is not settled.
    pub fn is_open(self) -> bool {
        matches!(self, DeliveryState::Pending | DeliveryState::Queued)
    }
}

/// One occurrence of a trigger, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerDelivery {
    /// Its id, a UUIDv7 of the time when it was received.
    pub id: Uuid,
    /// The trigger.
    pub trigger: Uuid,
    /// The id of the occurrence, unique for the trigger.
    pub occurrence: String,
    /// The tenant of the trigger.
    pub tenant: String,
    /// When it was received.
    pub received_at: Timestamp,
    /// What became of it.
    pub state: DeliveryState,
    /// Its run; chosen when the delivery is made, so it may not exist.
    pub run: RunId,
    /// Why it was filtered, refused or skipped.
    pub reason: Option<String>,
    /// The values that the condition read, as JSON.
    pub saw: Option<String>,
    /// The trigger payload of its run, as JSON, unless the run has it.
    pub payload: Option<String>,
    /// The `request` of its run, as JSON, unless the run has it.
    pub request: Option<String>,
    /// The occurrence of the delivery before it that must end first: a queued one waits for it, a pending one cancels it.
    pub after: Option<String>,
    /// When it is processed, unless another process has done it by then. Only while it is pending or queued.
    pub retry_at: Option<Timestamp>,
}

/// The requestId of the run of an occurrence.
pub fn request_id(trigger: Uuid, occurrence: &str) -> String {
    format!("fermata:trigger:{trigger}:{occurrence}")
}

/// A delivery that was stored for a due schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The trigger.
    pub trigger: Trigger,
    /// The delivery.
    pub delivery: TriggerDelivery,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Its run is stored.
    Started {
        /// The run.
        run: RunId,
        /// Whether the delivery keeps its payload and request: the run may get those of a later one.
        keeps_payload: bool,
    },
    /// It starts nothing.
    Ended {
        /// `Filtered`, `Refused` or `Skipped`.
        state: DeliveryState,
        /// Why.
        reason: Option<String>,
        /// The values that the condition read, as JSON.
        saw: Option<String>,
    },
    /// It stays as it is and is processed again at this time.
    Later(Timestamp),
}

/// Which deliveries to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Of this trigger.
    pub trigger: Uuid,
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only those before this one in the list (older).
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: u32,
}

/// A published event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// The tenant that published it; empty for none.
    pub tenant: String,
    /// Its source.
    pub source: String,
    /// Its id, unique for its source.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// When it was received.
    pub received_at: Timestamp,
    /// All attributes, as JSON. They are the `request` of the runs that it starts.
    pub attributes: String,
    /// Its data, as JSON; empty once it was matched: the deliveries have it.
    pub data: String,
}

/// The result of storing an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is durable, and so are its deliveries.
    Stored,
    /// It was received before. Nothing was stored.
    Duplicate,
}

/// When there is something to do for triggers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriggerWork {
    /// The next fire time of any schedule.
    pub next_fire: Option<Timestamp>,
    /// When the next delivery is due.
    pub next_delivery: Option<Timestamp>,
    /// Whether an event was not matched yet.
    pub has_unmatched: bool,
}

/// The first delivery id of this time: ids are UUIDv7.
pub(crate) fn first_id_at(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.0 / 1000).unwrap_or(0);
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    Uuid::from_bytes(bytes)
}
