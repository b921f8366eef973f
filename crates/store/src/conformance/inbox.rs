//! Items of the inbox: lists, claims, leases and answers.

use super::*;
use crate::{
    ChangeHint,
    inbox::{
        Heartbeat, InboxItem, ItemAnswer, ItemClaim, ItemFilter, ItemHeartbeat, ItemKind, ItemStatus, StoredItem,
        WaitRef, queue_number,
    },
    runs::{Answer, RunMessage},
};
use std::collections::BTreeSet;

fn item(queue: &str, tenant: &str) -> InboxItem {
    InboxItem {
        id: Uuid::now_v7(),
        kind: ItemKind::Task,
        queue: queue.to_owned(),
        tenant: tenant.to_owned(),
        workflow_id: WORKFLOW.to_owned(),
        details: r#"{"title":"Approve"}"#.to_owned(),
    }
}

pub(crate) fn offer(node: &str, attempt: u32, item: InboxItem) -> WaitChange {
    WaitChange::Offer {
        node: node.into(),
        attempt,
        item,
    }
}

/// A run with one item in a queue.
async fn offered(store: &Arc<dyn Store>, name: &str, queue: &str, tenant: &str) -> (RunId, Uuid) {
    let item = item(queue, tenant);
    let id = item.id;
    let (run, _) = held_run(store, name, vec![open("ask", &format!("token of {name}"))]).await;
    let mut commit = step(run, 1, 2);
    commit.waits = vec![offer("ask", 1, item)];
    committed(store, commit).await;
    (run, id)
}

fn claim_of(queue: &str, worker: &str, limit: u32, now: i64) -> ItemClaim {
    ItemClaim {
        queue: queue.to_owned(),
        tenant: None,
        worker: worker.to_owned(),
        limit,
        until: at(now + 100),
        now: at(now),
    }
}

async fn claimed(store: &Arc<dyn Store>, claim: ItemClaim) -> Vec<StoredItem> {
    store.claim_items(claim).await.unwrap()
}

async fn claim_one(store: &Arc<dyn Store>, queue: &str, now: i64) -> (Uuid, Uuid) {
    let mut items = claimed(store, claim_of(queue, "w", 1, now)).await;
    let item = items.remove(0);
    (item.item.id, item.lease.unwrap().id)
}

fn answer_to((of, lease): (WaitRef, Option<Uuid>), time: i64) -> ItemAnswer {
    ItemAnswer {
        of,
        lease,
        tenant: None,
        payload: r#"{"state":{}}"#.to_owned(),
        by: Some("ann".to_owned()),
        at: at(time),
    }
}

fn under(id: Uuid, lease: Uuid) -> (WaitRef, Option<Uuid>) {
    (WaitRef::Item(id), Some(lease))
}

fn heartbeat(item: Uuid, lease: Uuid, now: i64) -> ItemHeartbeat {
    ItemHeartbeat {
        item,
        lease,
        tenant: None,
        until: at(now + 100),
        progress: None,
        now: at(now),
    }
}

/// Everything about an item that an answer may change.
async fn state(store: &Arc<dyn Store>, run: RunId) -> String {
    let filter = ItemFilter {
        run: Some(run),
        limit: 9,
        ..Default::default()
    };
    let messages = store.messages(run, 0).await.unwrap();
    format!("{:?} {messages:?}", store.items(filter).await.unwrap())
}

/// An offered wait is in the inbox with everything that belongs to it; a plain wait is not.
pub async fn offered_waits_are_items(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r1", "q", "acme").await;
    held_run(store, "plain", vec![open("w", "plain")]).await;
    let found = store.item(id).await.unwrap().unwrap();
    assert_eq!((found.run, found.node.as_str(), found.attempt), (run, "ask", 1));
    assert_eq!(
        (found.token.as_str(), found.status),
        ("token of r1", ItemStatus::Pending)
    );
    assert_eq!((found.item.queue.as_str(), found.item.tenant.as_str()), ("q", "acme"));
    assert_eq!(
        (found.item.kind, found.item.details.as_str()),
        (ItemKind::Task, r#"{"title":"Approve"}"#)
    );
    assert_eq!((found.lease, found.created_at), (None, step(run, 1, 2).at));
    let all = ItemFilter {
        limit: 9,
        ..Default::default()
    };
    let page = store.items(all).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
    assert!(store.item(Uuid::now_v7()).await.unwrap().is_none());
    let node = NodeId::from("ask");
    let refs = [
        WaitRef::Item(id),
        WaitRef::Token("token of r1".to_owned()),
        WaitRef::Node { run, node },
    ];
    for of in refs {
        let wait = store.find_wait(&of).await.unwrap().unwrap();
        assert_eq!(
            (wait.run, wait.node.as_str(), wait.token.as_str()),
            (run, "ask", "token of r1")
        );
        assert_eq!((wait.tenant.as_deref(), wait.details.is_some()), (Some("acme"), true));
    }
    let plain = store
        .find_wait(&WaitRef::Token("plain".to_owned()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((plain.attempt, plain.tenant, plain.details), (1, None, None));
    assert_eq!(store.find_wait(&WaitRef::Item(Uuid::now_v7())).await.unwrap(), None);
}

/// An answer that arrived before the offer is kept: the offer puts nothing into the inbox.
pub async fn answered_waits_are_not_offered(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("ask", "t1")]).await;
    store.answer("t1", "1", None, at(150)).await.unwrap();
    let mut commit = step(run, 1, 2);
    let item = item("q", "");
    let id = item.id;
    commit.waits = vec![offer("ask", 1, item)];
    committed(store, commit).await;
    assert!(store.item(id).await.unwrap().is_none());
    assert!(claimed(store, claim_of("q", "w", 9, 200)).await.is_empty());
    assert_eq!(store.waits(run).await.unwrap()[0].payload.as_deref(), Some("1"));
}

/// Items are listed oldest first, by status, queue, tenant and run, in pages.
pub async fn items_are_filtered_and_paged(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut ids = Vec::new();
    let mut runs = Vec::new();
    for (name, queue, tenant) in [
        ("a", "q1", ""),
        ("b", "q1", "acme"),
        ("c", "q2", "acme"),
        ("d", "q2", ""),
    ] {
        let (run, id) = offered(store, name, queue, tenant).await;
        runs.push(run);
        ids.push(id);
    }
    store.answer("token of b", "1", None, at(300)).await.unwrap();
    committed(store, end(runs[3], 1, 3, Status::Cancelled)).await;
    let list = async |filter: ItemFilter| {
        let mut found = Vec::new();
        let mut filter = ItemFilter { limit: 1, ..filter };
        for _ in 0..20 {
            let page = store.items(filter.clone()).await.unwrap();
            assert!(page.items.len() <= 1);
            found.extend(page.items.into_iter().map(|item| item.item.id));
            filter.after = page.next;
            if page.next.is_none() {
                break;
            }
        }
        found
    };
    let pending = Some(ItemStatus::Pending);
    let some = |word: &str| Some(word.to_owned());
    let all = ItemFilter::default();
    let of = |status, queue, tenant| ItemFilter {
        status,
        queue,
        tenant,
        ..ItemFilter::default()
    };
    assert_eq!(list(all).await, ids);
    assert_eq!(list(of(pending, None, None)).await, [ids[0], ids[2]]);
    assert_eq!(list(of(pending, some("q1"), None)).await, [ids[0]]);
    assert_eq!(list(of(pending, None, some("acme"))).await, [ids[2]]);
    assert_eq!(list(of(pending, None, some(""))).await, [ids[0]]);
    assert!(list(of(pending, some("q1"), some("acme"))).await.is_empty());
    assert_eq!(list(of(Some(ItemStatus::Answered), None, None)).await, [ids[1]]);
    assert_eq!(list(of(Some(ItemStatus::Closed), None, None)).await, [ids[3]]);
    assert_eq!(list(of(None, some("q2"), None)).await, ids[2..]);
    assert_eq!(list(of(None, None, some("acme"))).await, ids[1..3]);
    assert_eq!(list(of(None, some("q2"), some("acme"))).await, [ids[2]]);
    assert_eq!(list(of(Some(ItemStatus::Answered), None, some("acme"))).await, [ids[1]]);
    assert_eq!(list(of(pending, some("q2"), some("acme"))).await, [ids[2]]);
    assert_eq!(list(of(None, None, some(""))).await, [ids[0], ids[3]]);
    assert!(list(of(None, None, some("other"))).await.is_empty());
    let run = ItemFilter {
        run: Some(runs[1]),
        ..ItemFilter::default()
    };
    assert_eq!(list(run).await, [ids[1]]);
}

/// Workers that claim at the same time never hold the same item, and get all items.
pub async fn two_workers_never_hold_the_same_item(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut expected = BTreeSet::new();
    for index in 0..24 {
        expected.insert(offered(store, &format!("r{index}"), "q", "").await.1);
    }
    let workers = (0..4).map(|worker| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            // A claim may be empty while another one holds the locks.
            for _ in 0..200 {
                let items = claimed(&store, claim_of("q", &format!("w{worker}"), 2, 300)).await;
                mine.extend(items.into_iter().map(|item| (item.item.id, item.lease.unwrap().id)));
                if mine.len() >= 24 {
                    break;
                }
            }
            mine
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    let items: BTreeSet<Uuid> = all.iter().map(|(item, _)| *item).collect();
    let leases: BTreeSet<Uuid> = all.iter().map(|(_, lease)| *lease).collect();
    assert_eq!(
        (items.len(), leases.len()),
        (all.len(), all.len()),
        "an item was claimed twice"
    );
    assert_eq!(items, expected);
}

/// A claim takes items of its queue and tenant, never-claimed ones first, then those whose lease lapsed longest ago.
pub async fn claims_are_in_order(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (_, first) = offered(store, "a", "q", "").await;
    let (_, second) = offered(store, "b", "q", "acme").await;
    let (_, other) = offered(store, "c", "other", "").await;
    let ids = |items: Vec<StoredItem>| items.into_iter().map(|item| item.item.id).collect::<Vec<_>>();
    let of_tenant = |tenant: &str, now| ItemClaim {
        tenant: Some(tenant.to_owned()),
        ..claim_of("q", "w", 9, now)
    };
    assert!(ids(claimed(store, of_tenant("beta", 200)).await).is_empty());
    assert_eq!(ids(claimed(store, of_tenant("acme", 200)).await), [second]);
    assert_eq!(ids(claimed(store, claim_of("q", "w", 9, 210)).await), [first]);
    assert!(
        ids(claimed(store, claim_of("q", "w", 9, 299)).await).is_empty(),
        "both leases hold"
    );
    assert_eq!(ids(claimed(store, claim_of("q", "w", 9, 500)).await), [second, first]);
    assert_eq!(ids(claimed(store, claim_of("other", "w", 9, 500)).await), [other]);
}

/// A lapsed lease makes the item claimable again under the same attempt, with a new lease. Nothing is accepted from the old
/// one.
pub async fn lapsed_leases_make_items_claimable_again(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r", "q", "").await;
    let (_, old) = claim_one(store, "q", 200).await;
    assert!(claimed(store, claim_of("q", "w2", 1, 299)).await.is_empty());
    let again = claimed(store, claim_of("q", "w2", 1, 300)).await.remove(0);
    let new = again.lease.unwrap();
    assert_eq!((again.item.id, again.attempt, again.node.as_str()), (id, 1, "ask"));
    assert!(new.id != old && new.worker == "w2");
    let before = state(store, run).await;
    let late = store.answer_item(answer_to(under(id, old), 310)).await.unwrap();
    assert_eq!(late, Answer::LeaseLapsed);
    let late = store.heartbeat_item(heartbeat(id, old, 310)).await.unwrap();
    assert_eq!(late, Heartbeat::LeaseLapsed);
    assert_eq!(state(store, run).await, before);
    let accepted = store.answer_item(answer_to(under(id, new.id), 320)).await.unwrap();
    assert_eq!(
        accepted,
        Answer::Accepted {
            run,
            node: "ask".into()
        }
    );
}

/// Answers after the lease has lapsed, under another lease, for another tenant, without a lease while a worker holds the
/// item, to unknown items, or a second time change nothing.
pub async fn refused_answers_change_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r", "q", "acme").await;
    let (_, lease) = claim_one(store, "q", 200).await;
    let before = state(store, run).await;
    let person = (WaitRef::Item(id), None);
    let node = (
        WaitRef::Node {
            run,
            node: "ask".into(),
        },
        None,
    );
    let other_tenant = |time| ItemAnswer {
        tenant: Some("beta".to_owned()),
        ..answer_to(under(id, lease), time)
    };
    let refused = [
        (answer_to(under(id, lease), 300), Answer::LeaseLapsed),
        (answer_to(under(id, lease), 900), Answer::LeaseLapsed),
        (answer_to(under(id, Uuid::now_v7()), 210), Answer::LeaseLapsed),
        (other_tenant(210), Answer::NotFound),
        (answer_to(under(Uuid::now_v7(), lease), 210), Answer::NotFound),
        (answer_to(person.clone(), 210), Answer::Leased),
        (answer_to(node.clone(), 210), Answer::Leased),
    ];
    for (answer, expected) in refused {
        let shown = format!("{answer:?}");
        assert_eq!(store.answer_item(answer).await.unwrap(), expected, "{shown}");
        assert_eq!(state(store, run).await, before, "{shown}");
    }
    let beat = ItemHeartbeat {
        tenant: Some("beta".to_owned()),
        ..heartbeat(id, lease, 210)
    };
    assert_eq!(store.heartbeat_item(beat).await.unwrap(), Heartbeat::NotFound);
    let unknown = heartbeat(Uuid::now_v7(), lease, 210);
    assert_eq!(store.heartbeat_item(unknown).await.unwrap(), Heartbeat::NotFound);
    assert_eq!(state(store, run).await, before);

    let own = ItemAnswer {
        tenant: Some("acme".to_owned()),
        ..answer_to(under(id, lease), 220)
    };
    let accepted = Answer::Accepted {
        run,
        node: "ask".into(),
    };
    assert_eq!(store.answer_item(own).await.unwrap(), accepted);
    let answered = state(store, run).await;
    for of in [under(id, lease), person, node] {
        let second = store.answer_item(answer_to(of, 221)).await.unwrap();
        assert_eq!(second, Answer::Closed);
    }
    assert_eq!(
        store.answer("token of r", "2", None, at(221)).await.unwrap(),
        Answer::Closed
    );
    assert_eq!(
        store.heartbeat_item(heartbeat(id, lease, 221)).await.unwrap(),
        Heartbeat::Closed
    );
    assert_eq!(state(store, run).await, answered);
}

/// An answer is stored with who gave it and when, and the run gets one message with the attempt.
pub async fn answers_reach_the_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r", "q", "").await;
    let person = (WaitRef::Item(id), None);
    store.answer_item(answer_to(person, 250)).await.unwrap();
    let item = store.item(id).await.unwrap().unwrap();
    assert_eq!(
        (item.status, item.answered_by.as_deref()),
        (ItemStatus::Answered, Some("ann"))
    );
    assert_eq!(
        (item.answered_at, item.payload.as_deref()),
        (Some(at(250)), Some(r#"{"state":{}}"#))
    );
    let messages = store.messages(run, 0).await.unwrap();
    let node = NodeId::from("ask");
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].message, RunMessage::Callback { node, attempt: 1 });
    assert!(claimed(store, claim_of("q", "w", 9, 300)).await.is_empty());
}

/// A wait is answered by its node too, also one that is not in the inbox. The newest attempt is meant.
pub async fn nodes_are_answered(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r", vec![open("w", "t1")]).await;
    let of = |node: &str| (WaitRef::Node { run, node: node.into() }, None);
    let mut commit = step(run, 1, 2);
    let second = WaitChange::Open {
        node: "w".into(),
        attempt: 2,
        token: "t2".to_owned(),
    };
    commit.waits = vec![close("w"), second];
    committed(store, commit).await;
    assert_eq!(
        store.answer_item(answer_to(of("other"), 250)).await.unwrap(),
        Answer::NotFound
    );
    let accepted = store.answer_item(answer_to(of("w"), 250)).await.unwrap();
    assert_eq!(accepted, Answer::Accepted { run, node: "w".into() });
    let waits = store.waits(run).await.unwrap();
    let answered: Vec<_> = waits.iter().map(|wait| wait.answered_at.is_some()).collect();
    assert_eq!(answered, [false, true]);
    assert_eq!(
        store.answer_item(answer_to(of("w"), 251)).await.unwrap(),
        Answer::Closed
    );
}

/// Heartbeats extend the lease and keep the progress; the token answers whatever the lease.
pub async fn heartbeats_extend_leases(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r", "q", "").await;
    let (_, lease) = claim_one(store, "q", 200).await;
    let beat = ItemHeartbeat {
        progress: Some(r#"{"done":3}"#.to_owned()),
        ..heartbeat(id, lease, 290)
    };
    assert_eq!(store.heartbeat_item(beat).await.unwrap(), Heartbeat::Extended);
    assert_eq!(
        store.heartbeat_item(heartbeat(id, lease, 295)).await.unwrap(),
        Heartbeat::Extended
    );
    let item = store.item(id).await.unwrap().unwrap();
    assert_eq!(item.progress.as_deref(), Some(r#"{"done":3}"#));
    assert_eq!(item.lease.map(|lease| lease.until), Some(at(395)));
    assert!(claimed(store, claim_of("q", "w2", 1, 394)).await.is_empty());
    let by_token = store.answer("token of r", "1", None, at(300)).await.unwrap();
    assert_eq!(
        by_token,
        Answer::Accepted {
            run,
            node: "ask".into()
        },
        "the token is a right of its own"
    );
}

/// Items past their deadline are neither claimed nor answered, and items of ended runs are closed.
pub async fn items_end_with_their_deadline_and_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, id) = offered(store, "r", "q", "").await;
    let mut commit = step(run, 1, 3);
    commit.waits = vec![limit("ask", 400)];
    committed(store, commit).await;
    let (_, lease) = claim_one(store, "q", 350).await;
    assert_eq!(
        store.answer_item(answer_to(under(id, lease), 400)).await.unwrap(),
        Answer::Closed
    );
    assert_eq!(
        store.heartbeat_item(heartbeat(id, lease, 400)).await.unwrap(),
        Heartbeat::Closed
    );
    assert!(claimed(store, claim_of("q", "w", 1, 900)).await.is_empty());
    committed(store, end(run, 1, 4, Status::Cancelled)).await;
    let item = store.item(id).await.unwrap().unwrap();
    assert_eq!(item.status, ItemStatus::Closed);
    assert!(claimed(store, claim_of("q", "w", 1, 390)).await.is_empty());
    assert_eq!(
        store.delete_run(run).await.unwrap(),
        crate::retention::RunDeletion::Deleted
    );
    assert!(store.item(id).await.unwrap().is_none());
}

/// Subscribers are notified of new items of a queue.
pub async fn offers_are_notified(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut changes = store.changes();
    offered(store, "r", "q", "").await;
    let hints: Vec<ChangeHint> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
    assert!(hints.contains(&ChangeHint::Inbox(queue_number("q"))), "{hints:?}");
}
