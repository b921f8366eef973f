//! Which deliveries a due schedule makes. Pure, apart from the ids.
//!
//! | overlap | the last run has ended | it has not ended |
//! | --- | --- | --- |
//! | `allow` | pending | pending |
//! | `skip` | pending | skipped |
//! | `queueOne` | pending | queued after it, if none is queued; else skipped |
//! | `cancelRunning` | pending | pending after it: the last run is cancelled first |
//!
//! Several instants at once (after an outage) are decided in their order, each after the one before. With `cancelRunning` only
//! the newest of them starts a run.

use super::work::HELD_FOR;
use crate::engine::{Shared, lock};
use fermata_core::{RunId, Timestamp};
use fermata_store::triggers::{DeliveryState, DueTrigger, Firing, TriggerDelivery};
use fermata_triggers::{Overlap, Schedule, TriggerConfig, TriggerType, schedule::occurrence_id};
use serde_json::json;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The schedule of a trigger.
pub(super) fn schedule_of(config: &str) -> Option<Box<Schedule>> {
    let config = serde_json::from_str(config).ok()?;
    match TriggerConfig::parse(TriggerType::Schedule, &config) {
        Ok(TriggerConfig::Schedule(schedule)) => Some(schedule),
        _ => None,
    }
}

/// Configurations of schedules that fired lately. Many schedules have the same one, and each fires again.
#[derive(Default)]
pub(super) struct Parsed(Mutex<HashMap<String, Arc<Schedule>>>);

/// The most configurations that are kept.
const MOST_PARSED: usize = 1000;

impl Parsed {
    fn get(&self, config: &str) -> Option<Arc<Schedule>> {
        if let Some(known) = lock(&self.0).get(config) {
            return Some(known.clone());
        }
        let schedule: Arc<Schedule> = schedule_of(config)?.into();
        let mut parsed = lock(&self.0);
        if parsed.len() >= MOST_PARSED {
            parsed.clear();
        }
        parsed.insert(config.to_owned(), schedule.clone());
        Some(schedule)
    }
}

/// What a due schedule fires.
pub(super) fn fire(shared: &Shared, due: &DueTrigger) -> Firing {
    let trigger = &due.trigger;
    let Some(schedule) = shared.triggers.parsed.get(&trigger.config) else {
        tracing::error!(trigger = %trigger.id, workflow = trigger.workflow_id, "a schedule cannot be read and does not fire");
        return Firing::default();
    };
    let at = trigger.next_fire_at.unwrap_or(due.now);
    let fired = schedule.fire(trigger.id, at, due.now);
    let fresh = |instant: &Timestamp| trigger.fired_until.is_none_or(|until| *instant > until);
    let instants: Vec<Timestamp> = fired.instants.into_iter().filter(fresh).collect();
    let last = trigger.last.as_ref().map(|last| last.occurrence.clone());
    let states = overlapping(schedule.overlap, due.is_running, due.is_queued, instants.len());
    let mut before = last.filter(|_| due.is_running);
    let mut deliveries = Vec::with_capacity(instants.len());
    for (instant, (state, is_after)) in instants.iter().zip(states) {
        let occurrence = occurrence_id(*instant);
        let delivery = delivery(shared, due, &occurrence, state, before.clone().filter(|_| is_after));
        if state.is_open() {
            before = Some(occurrence);
        }
        deliveries.push(delivery);
    }
    Firing {
        fired_until: instants.last().copied().or(trigger.fired_until),
        next_fire_at: fired.next,
        deliveries,
    }
}

fn delivery(
    shared: &Shared,
    due: &DueTrigger,
    occurrence: &str,
    state: DeliveryState,
    after: Option<String>,
) -> TriggerDelivery {
    let is_open = state.is_open();
    let facts = json!({ "scheduledAt": occurrence }).to_string();
    TriggerDelivery {
        id: shared.ids.next(),
        trigger: due.trigger.id,
        occurrence: occurrence.to_owned(),
        tenant: due.trigger.tenant.clone(),
        received_at: due.now,
        state,
        run: RunId(shared.ids.next()),
        reason: (!is_open).then(|| "the run of an earlier fire time has not ended".to_owned()),
        saw: None,
        payload: is_open.then(|| facts.clone()),
        request: is_open.then_some(facts),
        after,
        retry_at: is_open.then(|| due.now.plus_millis(HELD_FOR.as_millis() as u64)),
    }
}

/// The state of each delivery, and whether it comes after the one before it.
fn overlapping(overlap: Overlap, is_running: bool, is_queued: bool, count: usize) -> Vec<(DeliveryState, bool)> {
    use DeliveryState::{Pending, Queued, Skipped};
    let (mut is_running, mut is_queued) = (is_running, is_queued);
    let state = |index: usize| match overlap {
        Overlap::Allow => (Pending, false),
        Overlap::CancelRunning if index + 1 < count => (Skipped, false),
        Overlap::CancelRunning => (Pending, is_running),
        _ if !is_running => {
            is_running = true;
            (Pending, false)
        }
        Overlap::QueueOne if !is_queued => {
            is_queued = true;
            (Queued, true)
        }
        Overlap::QueueOne | Overlap::Skip => (Skipped, false),
    };
    (0..count).map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        actions::{HttpSettings, Registry},
        clock::SystemClock,
        engine::Engine,
        settings::Settings,
    };
    use fermata_store::{memory::MemoryStore, triggers};
    use uuid::Uuid;

    /// A schedule counts from when it was created, changed or enabled. With jitter the latest instant before that may become due
    /// after it.
    #[tokio::test]
    async fn instants_that_were_fired_or_are_not_wanted_do_not_fire() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store, registry, Settings::default(), Arc::new(SystemClock));
        let at = |time: &str| {
            Timestamp(
                format!("2026-03-01T{time}Z")
                    .parse::<jiff::Timestamp>()
                    .unwrap()
                    .as_microsecond(),
            )
        };
        let config = json!({ "cron": "0 * * * *", "jitter": "1h", "catchUp": { "mode": "latest", "window": "1h" } });
        let due = |until: &str, next: &str, now: &str| DueTrigger {
            trigger: triggers::Trigger {
                id: Uuid::from_u128(7),
                workflow_uid: Uuid::nil(),
                workflow_id: "w".to_owned(),
                tenant: String::new(),
                kind: triggers::TriggerType::Schedule,
                name: None,
                enabled: true,
                disabled_by_archive: false,
                config: config.to_string(),
                condition: None,
                segment: None,
                old_segment: None,
                event_type: None,
                fired_until: Some(at(until)),
                next_fire_at: Some(at(next)),
                last: None,
                created_at: at("08:00:00"),
                updated_at: at("08:00:00"),
            },
            now: at(now),
            is_running: false,
            is_queued: false,
        };
        let fired = |due: &DueTrigger| {
            let firing = fire(&engine.shared, due);
            let instants: Vec<String> = firing
                .deliveries
                .into_iter()
                .map(|delivery| delivery.occurrence)
                .collect();
            (instants, firing.fired_until)
        };
        let counts_from = fired(&due("09:59:59", "09:59:59", "09:59:59"));
        assert_eq!(counts_from, (vec![], Some(at("09:59:59"))), "09:00 was before");
        let next = fired(&due("08:30:00", "08:30:00", "09:59:59"));
        assert_eq!(next, (vec!["2026-03-01T09:00:00Z".to_owned()], Some(at("09:00:00"))));
        let again = fired(&due("09:00:00", "09:00:00", "09:59:59"));
        assert_eq!(again, (vec![], Some(at("09:00:00"))));
    }

    #[test]
    fn overlap_policies() {
        use DeliveryState::{Pending as P, Queued as Q, Skipped as S};
        use Overlap::*;
        for (overlap, running, queued, expected) in [
            (Allow, false, false, vec![(P, false), (P, false), (P, false)]),
            (Allow, true, false, vec![(P, false), (P, false), (P, false)]),
            (Skip, false, false, vec![(P, false), (S, false), (S, false)]),
            (Skip, true, false, vec![(S, false), (S, false), (S, false)]),
            (QueueOne, false, false, vec![(P, false), (Q, true), (S, false)]),
            (QueueOne, true, false, vec![(Q, true), (S, false), (S, false)]),
            (QueueOne, true, true, vec![(S, false), (S, false), (S, false)]),
            (CancelRunning, false, false, vec![(S, false), (S, false), (P, false)]),
            (CancelRunning, true, false, vec![(S, false), (S, false), (P, true)]),
        ] {
            assert_eq!(
                overlapping(overlap, running, queued, 3),
                expected,
                "{overlap:?} {running} {queued}"
            );
        }
    }
}
