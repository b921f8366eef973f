//! Deliveries of triggers, and events.

use super::{
    triggers::{SECOND, created, delivery, event, listed, started, trigger},
    *,
};
use crate::triggers::{DeliveryFilter, DeliveryState, Recorded, Settled, TriggerDelivery, TriggerType, request_id};

/// An occurrence has one delivery, and it is settled once.
pub async fn deliveries_are_settled_once(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let hook = created(store, trigger(TriggerType::Webhook, "{}")).await;
    let first = delivery(&hook, "one", 5 * SECOND);
    assert_eq!(store.add_delivery(first.clone()).await.unwrap(), None);
    let again = delivery(&hook, "one", 6 * SECOND);
    assert_eq!(
        store.add_delivery(again).await.unwrap(),
        Some(first.clone()),
        "nothing changes"
    );
    assert_eq!(store.delivery(first.id).await.unwrap(), Some(first.clone()));
    let ended = Settled::Ended {
        state: DeliveryState::Filtered,
        reason: Some("the condition is false".to_owned()),
        saw: Some(r#"{"trigger.a":1}"#.to_owned()),
    };
    assert!(store.settle_delivery(hook.id, "one", ended.clone()).await.unwrap());
    assert!(!store.settle_delivery(hook.id, "one", started(first.run)).await.unwrap());
    assert!(
        !store.settle_delivery(hook.id, "two", ended).await.unwrap(),
        "there is no such delivery"
    );
    let settled = store.occurrence(hook.id, "one").await.unwrap().unwrap();
    assert_eq!((settled.state, settled.retry_at), (DeliveryState::Filtered, None));
    assert_eq!(
        (settled.saw.as_deref(), settled.payload),
        (Some(r#"{"trigger.a":1}"#), first.payload)
    );
    let second = delivery(&hook, "two", 7 * SECOND);
    store.add_delivery(second.clone()).await.unwrap();
    let other = run_id();
    assert!(store.settle_delivery(hook.id, "two", started(other)).await.unwrap());
    let started = store.delivery(second.id).await.unwrap().unwrap();
    assert_eq!((started.state, started.run), (DeliveryState::Started, other));
    assert_eq!((started.payload, started.request), (None, None), "the run has them");
    let ids: Vec<Uuid> = listed(store, hook.id)
        .await
        .into_iter()
        .map(|delivery| delivery.id)
        .collect();
    assert_eq!(ids, [second.id, first.id], "newest first");
    let filtered = DeliveryFilter {
        trigger: hook.id,
        state: Some(DeliveryState::Filtered),
        before: None,
        limit: 9,
    };
    assert_eq!(store.deliveries(filtered).await.unwrap().items.len(), 1);
    let older = DeliveryFilter {
        trigger: hook.id,
        state: None,
        before: Some(second.id),
        limit: 9,
    };
    assert_eq!(store.deliveries(older).await.unwrap().items.len(), 1);
}

/// A delivery that a process took and did not settle is taken again when its time has come: a crash loses none.
pub async fn deliveries_survive_a_crash(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let hook = created(store, trigger(TriggerType::Webhook, "{}")).await;
    for (name, received) in [("a", 1), ("b", 2), ("c", 3)] {
        store
            .add_delivery(delivery(&hook, name, received * SECOND))
            .await
            .unwrap();
    }
    assert_eq!(store.trigger_work().await.unwrap().next_delivery, Some(at(SECOND)));
    let take = async |now: i64, until: i64| {
        let taken = store
            .take_deliveries(at(now * SECOND), at(until * SECOND), 10)
            .await
            .unwrap();
        taken
            .into_iter()
            .map(|delivery| delivery.occurrence)
            .collect::<Vec<_>>()
    };
    assert_eq!(take(2, 30).await, ["a", "b"]);
    assert_eq!(take(3, 30).await, ["c"], "the others are taken already");
    assert_eq!(take(29, 60).await, [""; 0]);
    store.settle_delivery(hook.id, "a", started(run_id())).await.unwrap();
    store
        .settle_delivery(hook.id, "b", Settled::Later(at(40 * SECOND)))
        .await
        .unwrap();
    assert_eq!(take(30, 60).await, ["c"], "its process crashed");
    assert_eq!(take(40, 60).await, ["b"]);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                store
                    .take_deliveries(at(60 * SECOND), at(90 * SECOND), 1)
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.unwrap().into_iter().map(|delivery| delivery.occurrence));
    }
    taken.sort();
    assert_eq!(taken, ["b", "c"], "two processes never take the same");
}

/// The run of a delivery and its row are one batch; the row replaces one that started nothing.
pub async fn runs_are_stored_with_their_delivery(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let hook = created(store, trigger(TriggerType::Webhook, "{}")).await;
    let run = |occurrence: &str| {
        let mut new = new_run(&request_id(hook.id, occurrence));
        let started = TriggerDelivery {
            state: DeliveryState::Started,
            run: new.id,
            payload: None,
            request: None,
            retry_at: None,
            ..delivery(&hook, occurrence, 5 * SECOND)
        };
        new.request = Some(r#"{"method":"POST"}"#.to_owned());
        new.delivery = Some(Box::new(started.clone()));
        (new, started)
    };
    let (new, started) = run("one");
    assert_eq!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Created);
    assert_eq!(store.delivery(started.id).await.unwrap(), Some(started.clone()));
    let stored = store.load(new.id).await.unwrap().unwrap();
    assert_eq!(stored.request.as_deref(), Some(r#"{"method":"POST"}"#));
    assert_eq!(store.run(new.id).await.unwrap().unwrap().request, stored.request);
    // The same occurrence again.
    let (again, other) = run("one");
    assert!(matches!(store.enqueue(again).await.unwrap(), Enqueued::Existing { run, .. } if run == new.id));
    assert_eq!(store.delivery(other.id).await.unwrap(), None);
    let filtered = TriggerDelivery {
        state: DeliveryState::Filtered,
        retry_at: None,
        ..delivery(&hook, "two", SECOND)
    };
    store.add_delivery(filtered.clone()).await.unwrap();
    let (new, started) = run("two");
    store.enqueue(new.clone()).await.unwrap();
    assert_eq!(store.delivery(filtered.id).await.unwrap(), None);
    let replaced = store.delivery(started.id).await.unwrap().unwrap();
    assert_eq!(
        (replaced.state, replaced.run, replaced.payload),
        (DeliveryState::Started, new.id, None)
    );
    // A refused start stores no delivery.
    let (mut stale, refused) = run("three");
    stale.workflow_version = 9;
    assert_eq!(store.enqueue(stale).await.unwrap(), Enqueued::Stale);
    assert_eq!(store.delivery(refused.id).await.unwrap(), None);
}

/// An event and all its deliveries are stored, or none of them; a duplicate stores nothing.
pub async fn events_are_recorded_whole(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let one = created(store, trigger(TriggerType::Event, r#"{"type":"order.paid"}"#)).await;
    let two = created(store, trigger(TriggerType::Event, r#"{"type":"order.*"}"#)).await;
    let both = |occurrence: &str, received| {
        vec![
            delivery(&one, occurrence, received),
            delivery(&two, occurrence, received),
        ]
    };
    let batch = vec![
        (event("e2", SECOND), both("e2", SECOND)),
        (event("e1", SECOND), both("e1", SECOND)),
        (event("e2", SECOND), both("doubled", SECOND)),
    ];
    let answers = store.record_events(batch, at(0)).await.unwrap();
    use Recorded::*;
    assert_eq!(answers, [Stored, Stored, Duplicate]);
    let again = vec![(event("e1", 2 * SECOND), both("again", 2 * SECOND))];
    assert_eq!(store.record_events(again, at(0)).await.unwrap(), [Duplicate]);
    assert_eq!(listed(store, one.id).await.len(), 2);
    let late = vec![(event("e1", 3 * SECOND), both("late", 3 * SECOND))];
    assert_eq!(
        store.record_events(late, at(SECOND)).await.unwrap(),
        [Stored],
        "its time is over"
    );
    assert_eq!(
        (listed(store, one.id).await.len(), listed(store, two.id).await.len()),
        (3, 3)
    );
    assert_eq!(store.unmatched_events(10).await.unwrap(), []);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(store);
            let events = ["x", "y", "z"].map(|id| (event(id, SECOND), both(id, SECOND)));
            tokio::spawn(async move { store.record_events(events.to_vec(), at(0)).await.unwrap() })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += task
            .await
            .unwrap()
            .into_iter()
            .filter(|answer| *answer == Stored)
            .count();
    }
    assert_eq!(stored, 3, "each event is stored by one caller");
    assert_eq!(listed(store, one.id).await.len(), 6);
}

/// Deliveries and events are removed by age, those that are not settled never.
pub async fn deliveries_are_removed_by_age(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let hook = created(store, trigger(TriggerType::Webhook, "{}")).await;
    for (name, received, state) in [
        ("old", 10, DeliveryState::Filtered),
        ("older", 5, DeliveryState::Refused),
        ("open", 5, DeliveryState::Pending),
        ("new", 30, DeliveryState::Filtered),
    ] {
        let mut delivery = delivery(&hook, name, received * SECOND);
        delivery.state = state;
        delivery.retry_at = delivery.retry_at.filter(|_| state.is_open());
        store.add_delivery(delivery).await.unwrap();
    }
    let events = vec![
        (event("a", 5 * SECOND), Vec::new()),
        (event("b", 30 * SECOND), Vec::new()),
    ];
    store.record_events(events, at(0)).await.unwrap();
    let prune = async |limit| store.prune_triggers(at(20 * SECOND), limit).await.unwrap();
    assert_eq!(prune(1).await, 2, "one delivery and one event");
    assert_eq!(prune(10).await, 1);
    assert_eq!(prune(10).await, 0);
    let left: Vec<String> = listed(store, hook.id)
        .await
        .into_iter()
        .map(|delivery| delivery.occurrence)
        .collect();
    assert_eq!(left, ["new", "open"]);
    let again = vec![(event("b", 31 * SECOND), Vec::new())];
    assert_eq!(store.record_events(again, at(0)).await.unwrap(), [Recorded::Duplicate]);
}
