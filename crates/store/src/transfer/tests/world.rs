//! A database with content in every table and column, and a dump of everything that a store returns.

use crate::{
    Store,
    audit::AuditFilter,
    bulk::{BulkJob, BulkState},
    callbacks::RegisteredCallback,
    children::Parent,
    conformance::callbacks::{callback, listed},
    conformance::inbox::offer,
    conformance::keys::api_key,
    conformance::*,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadReason},
    definitions::{Draft, Release, ReleaseRule, WorkflowFilter},
    inbox::{InboxItem, ItemClaim, ItemFilter, ItemHeartbeat, ItemKind},
    keys::KeyFilter,
    reads::{RunFilter, Window},
    runs::{AttemptStatus, NewRun, RunMessage, StatusChange, Then},
};
use fermata_core::{RunId, Status};
use std::sync::Arc;
use uuid::Uuid;

/// The runs in the database.
pub(super) struct World {
    /// Not claimed yet.
    pub(super) pending: RunId,
    /// Held with epoch 1, with one pending message. Its token is `open`.
    pub(super) held: RunId,
    /// Sleeps until 5,000. Its token `asked` was answered, `open2` was not.
    pub(super) parked: RunId,
    /// Holds the place of its key; not claimed yet.
    pub(super) limited: RunId,
}

/// Fills an empty store.
pub(super) async fn fill(store: &Arc<dyn Store>) -> World {
    workflows(store).await;
    let own = RegisteredCallback {
        tenant: "acme".to_owned(),
        ..callback("z", "third")
    };
    let callbacks = vec![callback("billing.charge", "größe"), callback("z", "other"), own];
    store.register_callbacks(callbacks).await.unwrap();
    for (number, tenant) in [(7, ""), (8, "größe")] {
        store.add_api_key(api_key(number, tenant)).await.unwrap();
    }
    store.revoke_api_key(api_key(8, "").id, None, at(9)).await.unwrap();
    store
        .add_audit(audit::row(3, "größe", "workflow.publish"))
        .await
        .unwrap();
    triggers(store).await;
    bulk_job(store).await;
    let pending = pending(store, "pending").await;
    let (held, _) = held_run(store, "held", vec![open("w", "open")]).await;
    let message = RunMessage::Cancel {
        reason: "no more \u{1F3B5} 'quoted' \"and\" \\ back\nslashed".to_owned(),
    };
    store.deliver(held, message, at(300)).await.unwrap();
    let parked = parked(store).await;
    succeeded(store, pending).await;
    dead_lettered(store).await;
    let limited = limited(store).await;
    World {
        pending,
        held,
        parked,
        limited,
    }
}

/// A schedule with a delivery, a rotated webhook, and an event.
async fn triggers(store: &Arc<dyn Store>) {
    use crate::conformance::triggers::{delivery, event, every_second, schedule, trigger};
    use crate::triggers::{Trigger, TriggerDelivery, TriggerType};
    let webhook = Trigger {
        name: Some("größe".to_owned()),
        tenant: "größe".to_owned(),
        disabled_by_archive: true,
        ..trigger(TriggerType::Webhook, "{}")
    };
    let on_event = trigger(TriggerType::Event, r#"{"type":"order.paid"}"#);
    for trigger in [&webhook, &on_event, &schedule(5)] {
        assert!(store.create_trigger(trigger.clone()).await.unwrap());
    }
    store
        .rotate_segment(webhook.id, Uuid::new_v4(), at(50), at(9))
        .await
        .unwrap();
    store.fire_due(at(6), 1, every_second()).await.unwrap();
    let whole = TriggerDelivery {
        reason: Some("größe".to_owned()),
        saw: Some("{}".to_owned()),
        after: Some("zero".to_owned()),
        ..delivery(&on_event, "one", 7)
    };
    store
        .record_events(vec![(event("größe", 7), vec![whole])], at(0))
        .await
        .unwrap();
}

/// A job that acts on two runs.
async fn bulk_job(store: &Arc<dyn Store>) {
    let job = BulkJob {
        id: Uuid::now_v7(),
        tenant: "größe".to_owned(),
        action: r#"{"action":"delete"}"#.to_owned(),
        query: Some("tag:größe".to_owned()),
        caller: "{}".to_owned(),
        state: BulkState::Ready,
        total: 2,
        done: 0,
        refused: 0,
        failed: 0,
        epoch: 0,
        retry_at: None,
        created_at: at(5),
        started_at: None,
        ended_at: None,
    };
    store.add_bulk(job, vec![run_id(), run_id()]).await.unwrap();
}

/// Runs with flow control: one holds a place, one waits for it, and two starts are one run.
async fn limited(store: &Arc<dyn Store>) -> RunId {
    use crate::flow::{Debounce, Flow, Key, Place};
    let key = |name: &str| Key {
        key: name.to_owned(),
        value: "größe".to_owned(),
    };
    let place = Place {
        key: key("place"),
        limit: 1,
        version: 1,
        refuse: false,
        tenant: false,
    };
    let debounce = Debounce {
        key: key("debounce"),
        quiet_ms: 60_000,
        max_ms: Some(600_000),
    };
    let placed = Flow {
        places: vec![place],
        ..Flow::default()
    };
    let debounced = Flow {
        debounce: Some(debounce),
        ..Flow::default()
    };
    let mut first = None;
    for (request, flow) in [("l1", &placed), ("l2", &placed), ("l3", &debounced), ("l4", &debounced)] {
        let run = NewRun {
            flow: Some(Box::new(flow.clone())),
            ..new_run(request)
        };
        first.get_or_insert(run.id);
        store.enqueue(run).await.unwrap();
    }
    first.expect("a run")
}

async fn workflows(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let rule = existing_draft(WORKFLOW);
    store.save_draft(draft(WORKFLOW, "two"), rule, None).await.unwrap();
    store.release(release_new("deleted", "one")).await.unwrap();
    store.soft_delete_workflow(uid("deleted"), at(9)).await.unwrap();
    // Two workflows with the same name.
    let again = Release {
        rule: ReleaseRule::New {
            uid: uid("again"),
            most: None,
        },
        plan: r#"{"plan":{"tags":["größe","eu"]}}"#.to_owned(),
        ..release_new("deleted", "two")
    };
    store.release(again).await.unwrap();
    let mut bare = draft("bare", "x");
    bare.description = None;
    bare.source = (0..=255).collect();
    store.save_draft(bare, new_or_draft("bare"), None).await.unwrap();
    // A workflow of a tenant with the name of a shared one, and a removed one.
    let of_tenant = |name: &str, id: &str| Release {
        rule: ReleaseRule::New {
            uid: uid(name),
            most: None,
        },
        draft: Draft {
            tenant: "acme".to_owned(),
            ..draft(id, "one")
        },
        ..release_new(id, "one")
    };
    store.release(of_tenant("acme's", WORKFLOW)).await.unwrap();
    store.release(of_tenant("acme's old", "old")).await.unwrap();
    store.soft_delete_workflow(uid("acme's old"), at(9)).await.unwrap();
    // A removed workflow, of which only the number of its last version is left.
    store
        .save_draft(draft("gone", "x"), new_or_draft("gone"), None)
        .await
        .unwrap();
    store.snapshot(uid("gone"), "x", "{}", at(3)).await.unwrap();
    store.delete_workflow(uid("gone")).await.unwrap();
}

async fn parked(store: &Arc<dyn Store>) -> RunId {
    let (run, _) = held_run(store, "parked", vec![open("a", "asked"), open("b", "open2")]).await;
    committed(store, park(run, 1, 2, Some(5_000))).await;
    store
        .answer("asked", r#"{"ünicode": "\u0000"}"#, None, at(310))
        .await
        .unwrap();
    let stored = take(store, run).await;
    let mut commit = park(run, stored.epoch, 3, Some(5_000));
    commit.messages_seen = 1;
    commit.state = Some(crate::runs::CachedState::Set(r#"{"members":{}}"#.to_owned()));
    store
        .write_stats(vec![crate::stats::StatsRow {
            minute: 5,
            runner: ME,
            workflow_uid: uid(WORKFLOW),
            workflow_id: WORKFLOW.to_owned(),
            tenant: "acme".to_owned(),
            counts: crate::stats::RunCounts {
                started: 3,
                succeeded: 2,
                ..Default::default()
            },
            waiting: Some(1),
        }])
        .await
        .unwrap();
    commit.usage = Some(crate::usage::Usage {
        tenant: "acme".to_owned(),
        steps: 3,
    });
    let mut failed = attempt("a", 1, 220);
    failed.status = AttemptStatus::RetriableFailure;
    failed.outputs = None;
    failed.error = Some(r#"{"message":""}"#.to_owned());
    failed.started_at = None;
    commit.attempts = vec![failed, attempt("a", 2, 230)];
    commit.waits = vec![offer(
        "b",
        1,
        InboxItem {
            id: Uuid::now_v7(),
            kind: ItemKind::Approval,
            queue: "q".to_owned(),
            tenant: "acme".to_owned(),
            workflow_id: WORKFLOW.to_owned(),
            details: "{}".to_owned(),
        },
    )];
    committed(store, commit).await;
    let claim = ItemClaim {
        queue: "q".to_owned(),
        tenant: None,
        worker: "w".to_owned(),
        limit: 1,
        until: at(900),
        now: at(400),
    };
    let item = store.claim_items(claim).await.unwrap().remove(0);
    let heartbeat = ItemHeartbeat {
        item: item.item.id,
        lease: item.lease.unwrap().id,
        tenant: None,
        until: at(950),
        progress: Some("1".to_owned()),
        now: at(410),
    };
    store.heartbeat_item(heartbeat).await.unwrap();
    run
}

async fn succeeded(store: &Arc<dyn Store>, parent: RunId) {
    let run = NewRun {
        tenant: "acme".to_owned(),
        parent: Some(Parent {
            node: Some("call".into()),
            attempt: 2,
            item: Some(7),
            waits: true,
            lineage: vec![uid(WORKFLOW)],
            ..Parent::of(parent)
        }),
        priority: Some(-3),
        spec: None,
        correlation_id: None,
        ..new_run("")
    };
    let id = run.id;
    store.enqueue(run).await.unwrap();
    let stored = take(store, id).await;
    let mut commit = end(id, stored.epoch, 1, Status::Succeeded);
    commit.links = vec![link("m1"), link("m2")];
    commit.attempts = vec![attempt("a", 1, 240)];
    if let Some(StatusChange { context_snapshot, .. }) = &mut commit.status {
        *context_snapshot = Some("{}".to_owned());
    }
    committed(store, commit).await;
    let rerun = crate::runs::NewRerun {
        source: crate::runs::RerunOf { run: id, root: id },
        text: r#"{"parameters":{"größe":{}}}"#.to_owned(),
        nodes: vec!["a".into()],
    };
    let rerun = NewRun {
        rerun: Some(Box::new(rerun)),
        fields: vec![crate::fields::RunField {
            field: "order".to_owned(),
            value: "größe".to_owned(),
        }],
        ..new_run("rerun")
    };
    let id = rerun.id;
    store.enqueue(rerun).await.unwrap();
    let stored = take(store, id).await;
    committed(store, end(id, stored.epoch, 1, Status::Failed)).await;
}

async fn dead_lettered(store: &Arc<dyn Store>) {
    let (run, _) = held_run(store, "dead_lettered", vec![open("w", "closed")]).await;
    let mut commit = end(run, 1, 0, Status::Failed);
    commit.events.clear();
    commit.then = Then::Keep;
    if let Some(change) = &mut commit.status {
        change.reason = Some("dead_letter".to_owned());
        change.error = Some("{}".to_owned());
    }
    commit.dead_letter = Some(Box::new(DeadLetter {
        id: Uuid::now_v7(),
        at: at(700),
        reason: DeadReason::Poison,
        run,
        workflow_uid: uid(WORKFLOW),
        workflow_id: WORKFLOW.to_owned(),
        workflow_version: 1,
        tenant: "acme".to_owned(),
        attempts: 4,
        last_error: Some("its runner crashed".to_owned()),
        payload: r#"{"trigger":{"a":1}}"#.to_owned(),
    }));
    committed(store, commit).await;
}

/// Everything that a store returns, as text, except leases. Two stores with the same content have equal dumps.
pub(super) async fn dump(store: &dyn Store) -> Vec<String> {
    let mut dump = Vec::new();
    let filter = WorkflowFilter {
        limit: 100,
        ..Default::default()
    };
    for workflow in store.workflows(filter).await.unwrap().items {
        dump.push(format!("{workflow:?}"));
        dump.push(format!("{:?}", store.draft(workflow.uid).await.unwrap()));
    }
    for id in [WORKFLOW, "deleted", "again", "bare", "gone", "acme's", "acme's old"] {
        dump.push(format!("{:?}", store.workflow_by_uid(uid(id)).await.unwrap()));
        let versions = store.versions(uid(id), None, 100).await.unwrap();
        dump.push(format!("{versions:?}"));
        dump.push(format!("{:?}", store.definition(uid(id), 1).await.unwrap()));
    }
    let filter = RunFilter {
        limit: 1000,
        ..Default::default()
    };
    dump.push(format!(
        "{:?}",
        store.registered_callbacks(listed(None, 100)).await.unwrap()
    ));
    dump.push(format!("{:?}", store.usage("acme", 197_001).await.unwrap()));
    let keys = KeyFilter {
        limit: 100,
        ..Default::default()
    };
    dump.push(format!("{:?}", store.api_keys(keys).await.unwrap()));
    let rows = AuditFilter {
        limit: 100,
        ..Default::default()
    };
    dump.push(format!("{:?}", store.audit(rows).await.unwrap()));
    let triggers = crate::triggers::TriggerFilter {
        limit: 100,
        ..Default::default()
    };
    for trigger in store.triggers(triggers).await.unwrap().items {
        let deliveries = crate::triggers::DeliveryFilter {
            trigger: trigger.id,
            state: None,
            before: None,
            limit: 100,
        };
        dump.push(format!("{trigger:?}"));
        for delivery in store.deliveries(deliveries).await.unwrap().items {
            dump.push(format!("{:?}", store.delivery(delivery.id).await.unwrap()));
        }
    }
    for run in store.runs(filter).await.unwrap().items {
        dump.extend(dump_run(store, run.id).await);
    }
    let filter = DeadLetterFilter {
        limit: 100,
        ..Default::default()
    };
    for dead_letter in store.dead_letters(filter).await.unwrap().items {
        dump.push(format!("{:?}", store.dead_letter(dead_letter.id).await.unwrap()));
    }
    dump
}

async fn dump_run(store: &dyn Store, run: RunId) -> Vec<String> {
    let window = Window { limit: 1000, offset: 0 };
    let mut record = store.run(run).await.unwrap().unwrap();
    let mut stored = store.load(run).await.unwrap().unwrap();
    (record.runner, stored.owner) = (None, None);
    vec![
        format!("{record:?}"),
        format!("{stored:?}"),
        format!("{:?}", store.events(run, window).await.unwrap()),
        format!("{:?}", store.actions(run, window).await.unwrap()),
        format!("{:?}", store.links(run, window).await.unwrap()),
        format!("{:?}", store.waits(run).await.unwrap()),
        format!("{:?}", store.items(items_of(run)).await.unwrap()),
        format!("{:?}", store.messages(run, 0).await.unwrap()),
        format!("{:?}", store.cached_state(run).await.unwrap()),
    ]
}

fn items_of(run: RunId) -> ItemFilter {
    ItemFilter {
        run: Some(run),
        limit: 9,
        ..ItemFilter::default()
    }
}
