//! Triggers, deliveries and events in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    definitions::{Lifecycle, Workflow},
    reads::Page,
    triggers::{
        Delivered, DeliveryFilter, DeliveryState, DueTrigger, Fire, LastDelivery, Recorded, Settled, StoredEvent,
        Trigger, TriggerDelivery, TriggerFilter, TriggerStore, TriggerType, TriggerWork, declared, first_id_at,
    },
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use std::{collections::BTreeMap, ops::Bound};
use uuid::Uuid;

/// The tables of triggers.
#[derive(Default)]
pub(super) struct Tables {
    triggers: BTreeMap<Uuid, Trigger>,
    /// By trigger and occurrence.
    deliveries: BTreeMap<(Uuid, String), TriggerDelivery>,
    /// By tenant, source and id; with whether they are matched.
    events: BTreeMap<(String, String, String), (StoredEvent, bool)>,
}

#[async_trait]
impl TriggerStore for MemoryStore {
    async fn create_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.change(|state| state.create_trigger(trigger), |created| *created)
    }

    async fn update_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.change(|state| state.triggers.update(trigger), |updated| *updated)
    }

    async fn delete_trigger(&self, id: Uuid) -> Result<bool> {
        self.change(
            |state| state.triggers.triggers.remove(&id).is_some(),
            |removed| *removed,
        )
    }

    async fn rotate_segment(&self, id: Uuid, segment: Uuid, until: Timestamp, at: Timestamp) -> Result<bool> {
        let rotate = |state: &mut State| {
            let trigger = state.triggers.triggers.get_mut(&id);
            let Some(trigger) = trigger.filter(|trigger| trigger.segment.is_some()) else {
                return false;
            };
            let old = trigger.segment.replace(segment);
            trigger.old_segment = old.map(|old| (old, until));
            trigger.updated_at = at;
            true
        };
        self.change(rotate, |rotated| *rotated)
    }

    async fn trigger(&self, id: Uuid) -> Result<Option<Trigger>> {
        self.with(|state| state.triggers.triggers.get(&id).cloned())
    }

    async fn webhook(&self, segment: Uuid, now: Timestamp) -> Result<Option<Trigger>> {
        self.with(|state| {
            let mut all = state.triggers.triggers.values();
            let is_old = |old: Option<(Uuid, Timestamp)>| old.is_some_and(|(old, until)| old == segment && until > now);
            all.find(|trigger| trigger.segment == Some(segment) || is_old(trigger.old_segment))
                .cloned()
        })
    }

    async fn triggers(&self, filter: TriggerFilter) -> Result<Page<Trigger>> {
        self.with(|state| {
            let after = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
            let all = state.triggers.triggers.range((after, Bound::Unbounded));
            let fitting = all.map(|(_, trigger)| trigger).filter(|trigger| filter.fits(trigger));
            let items = fitting.take(filter.limit as usize + 1).cloned().collect();
            Page::cut(items, filter.limit)
        })
    }

    async fn event_triggers(&self, tenant: &str, event_type: &str) -> Result<Vec<Trigger>> {
        self.with(|state| {
            let of_type = |trigger: &&Trigger| {
                let exact = trigger.event_type.as_deref();
                trigger.kind == TriggerType::Event
                    && trigger.enabled
                    && trigger.tenant == tenant
                    && exact.is_none_or(|exact| exact == event_type)
            };
            state.triggers.triggers.values().filter(of_type).cloned().collect()
        })
    }

    async fn fire_due(&self, now: Timestamp, limit: u32, fire: Fire) -> Result<Vec<Delivered>> {
        self.with(|state| state.fire_due(now, limit, &fire))
    }

    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>> {
        self.with(|state| match state.triggers.insert(&delivery) {
            true => None,
            false => state.triggers.deliveries.get(&key(&delivery)).cloned(),
        })
    }

    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>> {
        self.with(|state| {
            let all = state.triggers.deliveries.values_mut();
            let mut due: Vec<_> = all
                .filter(|delivery| delivery.retry_at.is_some_and(|at| at <= now))
                .collect();
            due.sort_by_key(|delivery| delivery.retry_at);
            due.truncate(limit as usize);
            due.iter_mut().for_each(|delivery| delivery.retry_at = Some(until));
            due.into_iter().map(|delivery| delivery.clone()).collect()
        })
    }

    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool> {
        self.with(|state| {
            let delivery = state.triggers.deliveries.get_mut(&(trigger, occurrence.to_owned()));
            let Some(delivery) = delivery.filter(|delivery| delivery.state.is_open()) else {
                return false;
            };
            match settled {
                Settled::Later(at) => delivery.retry_at = Some(at),
                Settled::Started { run, keeps_payload } => {
                    let kept = (delivery.payload.take(), delivery.request.take());
                    (delivery.payload, delivery.request) = if keeps_payload { kept } else { (None, None) };
                    delivery.run = run;
                    delivery.start();
                }
                Settled::Ended { state, reason, saw } => {
                    (delivery.state, delivery.reason, delivery.saw) = (state, reason, saw);
                    delivery.retry_at = None;
                }
            }
            true
        })
    }

    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>> {
        self.with(|state| {
            let mut all = state.triggers.deliveries.values();
            all.find(|delivery| delivery.id == id).cloned()
        })
    }

    async fn occurrence(&self, trigger: Uuid, occurrence: &str) -> Result<Option<TriggerDelivery>> {
        self.with(|state| {
            let found = state.triggers.deliveries.get(&(trigger, occurrence.to_owned()));
            found.cloned()
        })
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>> {
        self.with(|state| {
            let fits = |delivery: &&TriggerDelivery| {
                delivery.trigger == filter.trigger
                    && filter.before.is_none_or(|before| delivery.id < before)
                    && filter.state.is_none_or(|state| state == delivery.state)
            };
            let mut items: Vec<_> = state.triggers.deliveries.values().filter(fits).cloned().collect();
            items.sort_by_key(|delivery| std::cmp::Reverse(delivery.id));
            items.truncate(filter.limit as usize + 1);
            for delivery in &mut items {
                (delivery.payload, delivery.request) = (None, None);
            }
            Page::cut(items, filter.limit)
        })
    }

    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>> {
        self.with(|state| {
            let record = |(event, deliveries): (StoredEvent, Vec<TriggerDelivery>)| {
                let there = state.triggers.events.get(&event_key(&event));
                if there.is_some_and(|(there, _)| there.received_at > duplicate_after) {
                    return Recorded::Duplicate;
                }
                state.triggers.matched(event);
                for delivery in &deliveries {
                    state.triggers.insert(delivery);
                }
                Recorded::Stored
            };
            events.into_iter().map(record).collect()
        })
    }

    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>> {
        self.with(|state| {
            let unmatched = state.triggers.events.values().filter(|(_, matched)| !matched);
            unmatched.take(limit as usize).map(|(event, _)| event.clone()).collect()
        })
    }

    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool> {
        self.with(|state| {
            let there = state.triggers.events.get(&event_key(&event));
            if there.is_none_or(|(_, matched)| *matched) {
                return false;
            }
            state.triggers.matched(event);
            for delivery in &deliveries {
                state.triggers.insert(delivery);
            }
            true
        })
    }

    async fn trigger_work(&self) -> Result<TriggerWork> {
        self.with(|state| {
            let tables = &state.triggers;
            TriggerWork {
                next_fire: tables
                    .triggers
                    .values()
                    .filter_map(|trigger| trigger.next_fire_at)
                    .min(),
                next_delivery: tables
                    .deliveries
                    .values()
                    .filter_map(|delivery| delivery.retry_at)
                    .min(),
                has_unmatched: tables.events.values().any(|(_, matched)| !matched),
            }
        })
    }

    async fn prune_triggers(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.with(|state| {
            let tables = &mut state.triggers;
            let first = first_id_at(before);
            let mut old: Vec<_> = tables
                .deliveries
                .values()
                .filter(|delivery| delivery.id < first && delivery.retry_at.is_none())
                .map(|delivery| (delivery.id, key(delivery)))
                .collect();
            old.sort();
            old.truncate(limit as usize);
            for (_, key) in &old {
                tables.deliveries.remove(key);
            }
            let events = tables.events.iter();
            let events = events.filter(|(_, (event, matched))| event.received_at < before && *matched);
            let events: Vec<_> = events.map(|(key, _)| key.clone()).take(limit as usize).collect();
            for key in &events {
                tables.events.remove(key);
            }
            (old.len() + events.len()) as u64
        })
    }
}

impl Tables {
    fn update(&mut self, trigger: Trigger) -> bool {
        let Some(there) = self.triggers.get_mut(&trigger.id) else {
            return false;
        };
        let old = there.clone();
        *there = Trigger {
            workflow_uid: old.workflow_uid,
            workflow_id: old.workflow_id,
            tenant: old.tenant,
            name: old.name,
            old_segment: old.old_segment,
            last: old.last,
            created_at: old.created_at,
            ..trigger
        };
        true
    }

    /// Removes the triggers of a workflow.
    pub(super) fn remove_of(&mut self, uid: Uuid) {
        self.triggers.retain(|_, trigger| trigger.workflow_uid != uid);
    }

    fn of(&self, uid: Uuid) -> Vec<Trigger> {
        let all = self.triggers.values().filter(|trigger| trigger.workflow_uid == uid);
        all.cloned().collect()
    }

    /// Disables or enables the triggers of a workflow whose state changed.
    pub(super) fn follow(&mut self, uid: Uuid, before: Lifecycle, after: Lifecycle, at: Timestamp) {
        for trigger in declared::follow(self.of(uid), before, after, at) {
            self.update(trigger);
        }
    }

    /// False if the occurrence has a delivery.
    fn insert(&mut self, delivery: &TriggerDelivery) -> bool {
        let key = key(delivery);
        let is_new = !self.deliveries.contains_key(&key);
        if is_new {
            self.deliveries.insert(key, delivery.clone());
        }
        is_new
    }

    /// Stores an event as matched, without its data.
    fn matched(&mut self, event: StoredEvent) {
        let data = String::new();
        let key = event_key(&event);
        self.events.insert(key, (StoredEvent { data, ..event }, true));
    }

    /// Stores the delivery of a run that was just stored.
    pub(super) fn started(&mut self, delivery: &TriggerDelivery) {
        if self.insert(delivery) {
            return;
        }
        if let Some(there) = self.deliveries.get_mut(&key(delivery))
            && there.state != DeliveryState::Started
        {
            (there.id, there.run) = (delivery.id, delivery.run);
            (there.payload, there.request) = (delivery.payload.clone(), delivery.request.clone());
            there.start();
        }
    }
}

impl TriggerDelivery {
    fn start(&mut self) {
        self.state = DeliveryState::Started;
        (self.reason, self.saw) = (None, None);
        self.retry_at = None;
    }
}

impl State {
    fn create_trigger(&mut self, trigger: Trigger) -> bool {
        let is_possible = self.live(trigger.workflow_uid).is_some();
        if is_possible {
            self.triggers.triggers.insert(trigger.id, trigger);
        }
        is_possible
    }

    /// Makes the declared triggers of a workflow those of this plan, which is current now. `before` is the plan that was current.
    pub(super) fn reconcile_triggers(&mut self, workflow: &Workflow, before: &str, plan: &str, at: Timestamp) {
        let there = self.triggers.of(workflow.uid);
        let changes = declared::reconcile(workflow, there, &declared::of_plan(before), declared::of_plan(plan), at);
        for id in &changes.removed {
            self.triggers.triggers.remove(id);
        }
        for trigger in changes.created {
            self.triggers.triggers.insert(trigger.id, trigger);
        }
        for trigger in changes.changed {
            self.triggers.update(trigger);
        }
    }

    fn fire_due(&mut self, now: Timestamp, limit: u32, fire: &Fire) -> Vec<Delivered> {
        let all = self.triggers.triggers.values();
        let mut due: Vec<(Timestamp, Uuid)> = all
            .filter_map(|trigger| Some((trigger.next_fire_at.filter(|at| *at <= now)?, trigger.id)))
            .collect();
        due.sort();
        due.truncate(limit as usize);
        let mut fired = Vec::new();
        for (_, id) in due {
            let Some(trigger) = self.triggers.triggers.get(&id).cloned() else {
                continue;
            };
            let (is_running, is_queued) = self.running(&trigger);
            let mut due = DueTrigger {
                trigger,
                now,
                is_running,
                is_queued,
            };
            let firing = fire(&due);
            for delivery in firing.deliveries {
                if !self.triggers.insert(&delivery) {
                    continue;
                }
                due.trigger.last = LastDelivery::of(&delivery).or(due.trigger.last);
                fired.push(Delivered {
                    trigger: due.trigger.clone(),
                    delivery,
                });
            }
            if let Some(trigger) = self.triggers.triggers.get_mut(&id) {
                (trigger.fired_until, trigger.next_fire_at) = (firing.fired_until, firing.next_fire_at);
                trigger.last = due.trigger.last;
            }
        }
        fired
    }

    fn running(&self, trigger: &Trigger) -> (bool, bool) {
        let Some(last) = &trigger.last else {
            return (false, false);
        };
        let delivery = self.triggers.deliveries.get(&(trigger.id, last.occurrence.clone()));
        let run = delivery.map_or(last.run, |delivery| delivery.run);
        let status = self.runs.get(&run).map(|run| run.status);
        last.running(delivery.map(|delivery| delivery.state), status)
    }
}

fn key(delivery: &TriggerDelivery) -> (Uuid, String) {
    (delivery.trigger, delivery.occurrence.clone())
}

fn event_key(event: &StoredEvent) -> (String, String, String) {
    (event.tenant.clone(), event.source.clone(), event.id.clone())
}
