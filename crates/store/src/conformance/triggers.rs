//! Triggers: how they are stored, how schedules are fired, and what they do with their workflow.

use super::*;
use crate::{
    definitions::{Enablement, Lifecycle},
    triggers::{
        DeliveryFilter, DeliveryState, DueTrigger, Fire, Firing, Settled, StoredEvent, Trigger, TriggerDelivery,
        TriggerFilter, TriggerType,
    },
};
use std::collections::BTreeSet;

pub(super) const SECOND: i64 = 1_000_000;

pub(crate) fn trigger(kind: TriggerType, config: &str) -> Trigger {
    let id = Uuid::new_v4();
    Trigger {
        id,
        workflow_uid: uid(WORKFLOW),
        workflow_id: WORKFLOW.to_owned(),
        tenant: String::new(),
        kind,
        name: None,
        enabled: true,
        disabled_by_archive: false,
        config: config.to_owned(),
        condition: Some("trigger.a > 1".to_owned()),
        segment: Some(id).filter(|_| kind == TriggerType::Webhook),
        old_segment: None,
        event_type: crate::triggers::declared::exact_event_type(kind, config),
        fired_until: None,
        next_fire_at: None,
        last: None,
        created_at: at(1),
        updated_at: at(1),
    }
}

/// A schedule that is due every second.
pub(crate) fn schedule(due: i64) -> Trigger {
    Trigger {
        fired_until: Some(at(0)),
        next_fire_at: Some(at(due)),
        ..trigger(TriggerType::Schedule, r#"{"every":"1s"}"#)
    }
}

pub(crate) fn delivery(trigger: &Trigger, occurrence: &str, received: i64) -> TriggerDelivery {
    TriggerDelivery {
        id: id_at(received),
        trigger: trigger.id,
        occurrence: occurrence.to_owned(),
        tenant: trigger.tenant.clone(),
        received_at: at(received),
        state: DeliveryState::Pending,
        run: run_id(),
        reason: None,
        saw: None,
        payload: Some(r#"{"a":1}"#.to_owned()),
        request: Some(r#"{"method":"POST"}"#.to_owned()),
        after: None,
        retry_at: Some(at(received)),
    }
}

/// A UUIDv7 of this time.
pub(super) fn id_at(micros: i64) -> Uuid {
    let (seconds, nanos) = (micros as u64 / 1_000_000, (micros as u64 % 1_000_000) as u32 * 1000);
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos))
}

pub(crate) fn event(id: &str, received: i64) -> StoredEvent {
    StoredEvent {
        tenant: String::new(),
        source: "shop".to_owned(),
        id: id.to_owned(),
        event_type: "order.paid".to_owned(),
        received_at: at(received),
        attributes: format!(r#"{{"id":"{id}"}}"#),
        data: r#"{"total":5}"#.to_owned(),
    }
}

/// Fires each due second as a pending delivery.
pub(crate) fn every_second() -> Fire {
    Arc::new(|due: &DueTrigger| {
        let next = due.trigger.next_fire_at.unwrap_or(due.now);
        Firing {
            deliveries: vec![delivery(&due.trigger, &next.0.to_string(), due.now.0)],
            fired_until: Some(next),
            next_fire_at: Some(Timestamp(next.0 + SECOND)),
        }
    })
}

pub(super) fn started(run: RunId) -> Settled {
    let keeps_payload = false;
    Settled::Started { run, keeps_payload }
}

pub(super) async fn created(store: &Arc<dyn Store>, trigger: Trigger) -> Trigger {
    assert!(store.create_trigger(trigger.clone()).await.unwrap());
    trigger
}

pub(super) async fn all(store: &Arc<dyn Store>) -> Vec<Trigger> {
    let filter = TriggerFilter {
        limit: 100,
        ..TriggerFilter::default()
    };
    store.triggers(filter).await.unwrap().items
}

pub(super) async fn listed(store: &Arc<dyn Store>, trigger: Uuid) -> Vec<TriggerDelivery> {
    let filter = DeliveryFilter {
        trigger,
        state: None,
        before: None,
        limit: 100,
    };
    store.deliveries(filter).await.unwrap().items
}

/// A trigger is read as it was stored, changed and removed.
pub async fn triggers_are_stored_changed_and_removed(store: &Arc<dyn Store>) {
    let first = trigger(TriggerType::Webhook, "{}");
    assert!(!store.create_trigger(first.clone()).await.unwrap(), "no workflow");
    activate(store, WORKFLOW).await;
    let first = created(store, first).await;
    assert_eq!(store.trigger(first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(store.webhook(first.id, at(5)).await.unwrap(), Some(first.clone()));
    let changed = Trigger {
        config: r#"{"respond":"result"}"#.to_owned(),
        condition: None,
        enabled: false,
        updated_at: at(7),
        ..first.clone()
    };
    assert!(store.update_trigger(changed.clone()).await.unwrap());
    assert_eq!(store.trigger(first.id).await.unwrap(), Some(changed.clone()));
    let segment = Uuid::new_v4();
    assert!(store.rotate_segment(first.id, segment, at(50), at(9)).await.unwrap());
    let rotated = store.webhook(segment, at(20)).await.unwrap().unwrap();
    assert_eq!(rotated.old_segment, Some((first.id, at(50))));
    assert_eq!(store.webhook(first.id, at(49)).await.unwrap(), Some(rotated));
    assert_eq!(store.webhook(first.id, at(50)).await.unwrap(), None, "its time is over");
    assert!(store.delete_trigger(first.id).await.unwrap());
    assert!(!store.delete_trigger(first.id).await.unwrap());
    assert!(!store.update_trigger(changed).await.unwrap());
    assert_eq!(store.webhook(segment, at(20)).await.unwrap(), None);
}

/// Lists are filtered and paged; event triggers are found by their type and tenant.
pub async fn triggers_are_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let mut ids = BTreeSet::new();
    for number in 0..5 {
        let kind = TriggerType::ALL[number % 4];
        let enabled = number != 4;
        ids.insert(
            created(
                store,
                Trigger {
                    enabled,
                    ..trigger(kind, r#"{"type":"order.*"}"#)
                },
            )
            .await
            .id,
        );
    }
    let other = Trigger {
        workflow_uid: uid("other"),
        tenant: "acme".to_owned(),
        ..trigger(TriggerType::Event, r#"{"type":"order.paid"}"#)
    };
    let other = created(store, other).await;
    let list = async |filter: TriggerFilter| store.triggers(filter).await.unwrap();
    let of = |limit| TriggerFilter {
        limit,
        ..TriggerFilter::default()
    };
    let own = list(TriggerFilter {
        tenant: Some(String::new()),
        ..of(9)
    })
    .await;
    assert_eq!(own.items.iter().map(|trigger| trigger.id).collect::<BTreeSet<_>>(), ids);
    let first = list(TriggerFilter {
        tenant: Some(String::new()),
        ..of(3)
    })
    .await;
    assert!(first.more && first.items.len() == 3);
    let rest = list(TriggerFilter {
        after: Some(first.items[2].id),
        tenant: Some(String::new()),
        ..of(3)
    })
    .await;
    assert_eq!((rest.items.len(), rest.more), (2, false));
    let of_other = list(TriggerFilter {
        workflow_uid: Some(uid("other")),
        ..of(9)
    })
    .await;
    assert_eq!(of_other.items, std::slice::from_ref(&other));
    let hooks = list(TriggerFilter {
        kind: Some(TriggerType::Webhook),
        ..of(9)
    })
    .await;
    assert_eq!(hooks.items.len(), 2);
    let disabled = list(TriggerFilter {
        enabled: Some(false),
        ..of(9)
    })
    .await;
    assert_eq!(disabled.items.len(), 1);
    for config in [r#"{"type":"order.paid"}"#, r#"{"type":"order.*"}"#] {
        let disabled = Trigger {
            enabled: false,
            tenant: "acme".to_owned(),
            ..trigger(TriggerType::Event, config)
        };
        created(store, disabled).await;
    }
    assert_eq!(store.event_triggers("acme", "order.paid").await.unwrap(), [other]);
    assert_eq!(store.event_triggers("acme", "order.sent").await.unwrap(), []);
    let globs = store.event_triggers("", "order.sent").await.unwrap();
    assert_eq!(globs.len(), 1, "without an exact type it is a candidate for all");
    assert_eq!(store.event_triggers("ac\0me", "x").await.unwrap(), []);
}

/// A due schedule is fired once for each instant, and advanced with its deliveries.
pub async fn due_schedules_are_fired(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let due = created(store, schedule(5 * SECOND)).await;
    let later = created(store, schedule(9 * SECOND)).await;
    assert_eq!(store.trigger_work().await.unwrap().next_fire, Some(at(5 * SECOND)));
    assert_eq!(store.fire_due(at(4 * SECOND), 10, every_second()).await.unwrap(), []);
    let fired = store.fire_due(at(6 * SECOND), 10, every_second()).await.unwrap();
    assert_eq!(fired.len(), 1);
    assert_eq!(fired[0].delivery.trigger, due.id);
    let row = store.trigger(due.id).await.unwrap().unwrap();
    assert_eq!(
        (row.fired_until, row.next_fire_at),
        (Some(at(5 * SECOND)), Some(at(6 * SECOND)))
    );
    assert_eq!(row.last.clone().map(|last| last.run), Some(fired[0].delivery.run));
    let both = store.fire_due(at(9 * SECOND), 10, every_second()).await.unwrap();
    assert_eq!(both.len(), 2, "one instant of each");
    assert_eq!(
        store.fire_due(at(9 * SECOND), 1, every_second()).await.unwrap().len(),
        1,
        "at most the limit"
    );
    assert_eq!(listed(store, later.id).await.len(), 1);
    // An instant that was fired before is not fired again, even if the schedule is set back.
    let back = Trigger {
        next_fire_at: Some(at(5 * SECOND)),
        ..row
    };
    assert!(store.update_trigger(back).await.unwrap());
    let again: Vec<_> = store.fire_due(at(5 * SECOND), 10, every_second()).await.unwrap();
    assert_eq!(again, []);
}

/// Many processes fire the same schedules: each instant has one delivery.
pub async fn instants_fire_once_for_concurrent_callers(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut triggers = Vec::new();
    for _ in 0..20 {
        triggers.push(created(store, schedule(SECOND)).await.id);
    }
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut fired = Vec::new();
                for now in 1..=10 {
                    // Schedules that another caller fires are left out, so an empty answer does not mean that all are fired.
                    for _ in 0..50 {
                        let some = store.fire_due(at(now * SECOND), 7, every_second()).await.unwrap();
                        fired.extend(
                            some.into_iter()
                                .map(|one| (one.delivery.trigger, one.delivery.occurrence)),
                        );
                        let next = store.trigger_work().await.unwrap().next_fire;
                        if next.is_none_or(|next| next > at(now * SECOND)) {
                            break;
                        }
                    }
                }
                fired
            })
        })
        .collect();
    let mut fired = Vec::new();
    for task in tasks {
        fired.extend(task.await.unwrap());
    }
    while store
        .trigger_work()
        .await
        .unwrap()
        .next_fire
        .is_some_and(|next| next <= at(10 * SECOND))
    {
        let some = store.fire_due(at(10 * SECOND), 100, every_second()).await.unwrap();
        fired.extend(
            some.into_iter()
                .map(|one| (one.delivery.trigger, one.delivery.occurrence)),
        );
    }
    let distinct: BTreeSet<_> = fired.iter().cloned().collect();
    assert_eq!((fired.len(), distinct.len()), (200, 200), "20 schedules, 10 instants");
    for trigger in triggers {
        assert_eq!(listed(store, trigger).await.len(), 10);
    }
}

/// A due schedule knows whether its last run has ended.
pub async fn schedules_know_their_last_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let due = created(store, schedule(SECOND)).await;
    let seen: Arc<std::sync::Mutex<Vec<(bool, bool)>>> = Arc::default();
    let fire = |state: DeliveryState| -> Fire {
        let seen = Arc::clone(&seen);
        Arc::new(move |due: &DueTrigger| {
            seen.lock().unwrap().push((due.is_running, due.is_queued));
            let mut firing = every_second()(due);
            firing.deliveries.iter_mut().for_each(|delivery| delivery.state = state);
            firing
        })
    };
    let fired = store
        .fire_due(at(SECOND), 1, fire(DeliveryState::Pending))
        .await
        .unwrap();
    let first = &fired[0].delivery;
    store
        .fire_due(at(2 * SECOND), 1, fire(DeliveryState::Skipped))
        .await
        .unwrap();
    // The run of the first delivery starts, under another id: it was merged with another start.
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    assert!(
        store
            .settle_delivery(due.id, &first.occurrence, started(run))
            .await
            .unwrap()
    );
    store
        .fire_due(at(3 * SECOND), 1, fire(DeliveryState::Skipped))
        .await
        .unwrap();
    committed(store, end(run, 1, 2, Status::Succeeded)).await;
    store
        .fire_due(at(4 * SECOND), 1, fire(DeliveryState::Queued))
        .await
        .unwrap();
    store
        .fire_due(at(5 * SECOND), 1, fire(DeliveryState::Skipped))
        .await
        .unwrap();
    let seen = seen.lock().unwrap().clone();
    let expected = [
        (false, false),
        (true, false),
        (true, false),
        (false, false),
        (true, true),
    ];
    assert_eq!(seen, expected, "nothing yet, pending, running, ended, queued");
}

/// Archiving disables triggers and reactivating enables those; deleting a workflow deletes them.
pub async fn triggers_follow_their_workflow(store: &Arc<dyn Store>) {
    let declared = |cron: &str| {
        format!(
            r#"{{"v":1,"plan":{{"triggers":[{{"name":"daily","kind":"Schedule","enabled":true,"config":{{"cron":"{cron}"}}}},{{"name":"hook","kind":"Webhook","enabled":true,"config":{{}}}}]}}}}"#
        )
    };
    let first = Release {
        plan: declared("@daily"),
        ..release_new("w", "one")
    };
    store.release(first).await.unwrap();
    let made = all(store).await;
    let named = |all: &[Trigger], name: &str| {
        all.iter()
            .find(|one| one.name.as_deref() == Some(name))
            .cloned()
            .unwrap()
    };
    let (daily, hook) = (named(&made, "daily"), named(&made, "hook"));
    assert_eq!((daily.next_fire_at.is_some(), hook.segment), (true, Some(hook.id)));
    let existing = |checksum: &str, plan: String| Release {
        rule: ReleaseRule::Existing {
            uid: uid("w"),
            after: None,
        },
        plan,
        ..release_new("w", checksum)
    };
    store.release(existing("two", declared("@hourly"))).await.unwrap();
    let changed = named(&all(store).await, "daily");
    assert_eq!(
        (changed.id, changed.config.as_str()),
        (daily.id, r#"{"cron":"@hourly"}"#)
    );
    assert_eq!(named(&all(store).await, "hook"), hook, "it did not change");
    store.release(existing("three", "{}".to_owned())).await.unwrap();
    assert_eq!(all(store).await, [], "no longer declared");
    // Back to version 1.
    let shown = crate::definitions::VersionShown {
        version: 1,
        display_name: "W".to_owned(),
        description: None,
        dialect: "dataWorkflows".to_owned(),
    };
    let change = |status, version| Enablement {
        from: vec![Lifecycle::Active, Lifecycle::Archived],
        status,
        enabled: None,
        version,
        paused: None,
    };
    store
        .set_enablement(uid("w"), change(None, Some(shown)), at(20))
        .await
        .unwrap();
    assert_eq!(named(&all(store).await, "daily").config, r#"{"cron":"@daily"}"#);
    let own = Trigger {
        workflow_uid: uid("w"),
        enabled: false,
        ..trigger(TriggerType::Manual, "{}")
    };
    created(store, own).await;
    store
        .set_enablement(uid("w"), change(Some(Lifecycle::Archived), None), at(30))
        .await
        .unwrap();
    assert!(
        all(store)
            .await
            .iter()
            .all(|trigger| !trigger.enabled && trigger.next_fire_at.is_none())
    );
    store
        .set_enablement(uid("w"), change(Some(Lifecycle::Active), None), at(40))
        .await
        .unwrap();
    let back = all(store).await;
    assert_eq!(
        back.iter().filter(|trigger| trigger.enabled).count(),
        2,
        "what was disabled before stays disabled"
    );
    assert_eq!(
        named(&back, "daily").fired_until,
        Some(at(40)),
        "what it missed is not caught up"
    );
    store.soft_delete_workflow(uid("w"), at(50)).await.unwrap();
    assert_eq!(all(store).await, []);
}
