//! Child runs: starting them, and their ends as parents see them.

use super::*;
use crate::{
    children::{AwaitedChild, EndedChild, NodeAttempt, ParentLease},
    retention::RunDeletion,
    runs::{Delivery, RunMessage},
};

/// A child that its parent waits for, started under the lease of [`ME`].
fn awaited(parent: RunId, request_id: &str, item: Option<u32>) -> NewRun {
    NewRun {
        parent: Some(Parent {
            node: Some("call".into()),
            attempt: 2,
            item,
            waits: true,
            lease: Some(ParentLease { runner: ME, epoch: 1 }),
            depth: 3,
            lineage: vec![uid("one"), uid("two")],
            ..Parent::of(parent)
        }),
        ..new_run(request_id)
    }
}

/// Stores a child that [`ME`] holds.
async fn child(store: &Arc<dyn Store>, parent: RunId, request_id: &str, item: Option<u32>) -> RunId {
    let run = awaited(parent, request_id, item);
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    take(store, id).await;
    id
}

async fn end_child(store: &Arc<dyn Store>, child: RunId, status: Status) {
    let mut last = end(child, 1, 1, status);
    if let Some(change) = &mut last.status {
        change.outputs = Some(r#"{"x":1}"#.to_owned());
        change.error = Some(r#"{"code":"E"}"#.to_owned());
    }
    committed(store, last).await;
}

async fn awaited_by(store: &Arc<dyn Store>, parent: RunId, after: Option<RunId>, limit: u32) -> Vec<RunId> {
    let awaited = store.awaited_children(parent, after, limit).await.unwrap();
    awaited.into_iter().map(|child| child.run).collect()
}

async fn ended(store: &Arc<dyn Store>, parent: RunId) -> Vec<RunId> {
    let ended = store.ended_children(parent, 100).await.unwrap();
    ended.into_iter().map(|child| child.run).collect()
}

/// The node, attempt, item, depth and ancestors of a child are stored.
pub async fn children_know_their_parent(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    let child = child(store, parent, "child", Some(7)).await;
    let stored = store.load(child).await.unwrap().unwrap();
    assert_eq!(
        (stored.parent, stored.parent_waits, stored.depth),
        (Some(parent), true, 3)
    );
    assert_eq!(stored.lineage, [uid("one"), uid("two")]);
    let row = store.run(child).await.unwrap().unwrap();
    let node = row.parent_node.as_ref().map(NodeId::as_str);
    assert_eq!(
        (row.parent, node, row.parent_item, row.depth),
        (Some(parent), Some("call"), Some(7), 3)
    );
    let root = store.load(parent).await.unwrap().unwrap();
    assert_eq!(
        (root.parent, root.parent_waits, root.depth, root.lineage),
        (None, false, 0, vec![])
    );
    assert_eq!(store.run(parent).await.unwrap().unwrap().depth, 0);
}

/// A child starts only while its parent is held under the lease that the child names. A repeated start finds the child.
pub async fn children_start_only_under_the_lease_of_their_parent(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    let first = awaited(parent, "first", None);
    assert_eq!(store.enqueue(first.clone()).await.unwrap(), Enqueued::Created);
    let mut stale = awaited(parent, "stale", None);
    if let Some(parent) = &mut stale.parent {
        parent.lease = Some(ParentLease { runner: ME, epoch: 2 });
    }
    assert_eq!(store.enqueue(stale).await.unwrap(), Enqueued::ParentLost);
    let unknown = awaited(run_id(), "unknown", None);
    assert_eq!(store.enqueue(unknown).await.unwrap(), Enqueued::ParentLost);
    committed(store, end(parent, 1, 2, Status::Cancelled)).await;
    let late = awaited(parent, "late", None);
    assert_eq!(store.enqueue(late).await.unwrap(), Enqueued::ParentLost);
    let status = Status::Pending;
    let found = Enqueued::Existing { run: first.id, status };
    assert_eq!(store.enqueue(first).await.unwrap(), found);
    assert_eq!(store.children(parent, None, 9).await.unwrap().items.len(), 1);
}

/// Ended children are listed until the parent has seen them; the marks go with the commit, and with no other.
pub async fn ends_are_seen_once(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    let mut children = Vec::new();
    for index in 0..3 {
        children.push(child(store, parent, &format!("child {index}"), Some(index)).await);
    }
    children.sort();
    assert_eq!(ended(store, parent).await, []);
    assert_eq!(awaited_by(store, parent, None, 9).await, children);
    assert_eq!(awaited_by(store, parent, Some(children[0]), 1).await, children[1..2]);
    let first = store.awaited_children(parent, None, 1).await.unwrap().remove(0);
    let item = store.run(children[0]).await.unwrap().unwrap().parent_item;
    let expected = AwaitedChild {
        run: children[0],
        node: "call".into(),
        attempt: 2,
        item,
    };
    assert_eq!(first, expected);
    for child in &children {
        end_child(store, *child, Status::Failed).await;
    }
    assert_eq!(store.awaited_children(parent, None, 9).await.unwrap(), []);
    assert_eq!(ended(store, parent).await, children);
    let first = store.ended_children(parent, 1).await.unwrap().remove(0);
    let mut expected = EndedChild {
        run: children[0],
        node: "call".into(),
        attempt: 2,
        item,
        status: Status::Failed,
        outputs: None,
        error: Some(r#"{"code":"E"}"#.to_owned()),
    };
    assert_eq!(first, expected, "the outputs of items are read at the end");
    let of = |attempt: u32, node: &str| NodeAttempt {
        run: parent,
        node: node.into(),
        attempt,
    };
    let results = store.item_results(&of(2, "call"), None, 9).await.unwrap();
    expected.outputs = Some(r#"{"x":1}"#.to_owned());
    assert_eq!((results.len(), &results[0]), (3, &expected));
    let rest = store.item_results(&of(2, "call"), Some(children[1]), 9).await.unwrap();
    assert_eq!(rest, results[2..]);
    assert_eq!(store.item_results(&of(2, "call"), None, 1).await.unwrap(), results[..1]);
    assert_eq!(store.item_results(&of(1, "call"), None, 9).await.unwrap(), []);
    assert_eq!(store.item_results(&of(2, "other"), None, 9).await.unwrap(), []);
    let mut fenced = step(parent, 2, 2);
    fenced.children_seen = children.clone();
    assert_eq!(store.commit(fenced).await, CommitAnswer::Fenced);
    assert_eq!(ended(store, parent).await, children, "a fenced commit changes nothing");
    let mut seen = step(parent, 1, 2);
    seen.children_seen = children[..2].to_vec();
    committed(store, seen).await;
    assert_eq!(ended(store, parent).await, children[2..]);
    assert!(!store.load(children[0]).await.unwrap().unwrap().parent_waits);
}

/// A child that its parent does not wait for is never listed.
pub async fn ends_of_independent_children_are_not_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    let mut run = awaited(parent, "child", None);
    if let Some(parent) = &mut run.parent {
        parent.waits = false;
    }
    let id = run.id;
    store.enqueue(run).await.unwrap();
    assert_eq!(store.awaited_children(parent, None, 9).await.unwrap(), []);
    take(store, id).await;
    end_child(store, id, Status::Succeeded).await;
    assert_eq!(ended(store, parent).await, []);
    assert_eq!(store.parents_of_ended_children(None, 9).await.unwrap(), []);
}

/// At most one message about ended children is unread. It wakes a parked parent.
pub async fn one_message_about_ended_children_is_unread(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    committed(store, park(parent, 1, 2, None)).await;
    let status = Status::Running;
    for time in [200, 201, 202] {
        let delivered = store
            .deliver(parent, RunMessage::ChildrenEnded, at(time))
            .await
            .unwrap();
        assert_eq!(delivered, Delivery::Delivered { status });
    }
    let messages = store.messages(parent, 0).await.unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].seq, &messages[0].message), (1, &RunMessage::ChildrenEnded));
    assert_eq!(store.run(parent).await.unwrap().unwrap().wake_at, Some(at(200)));
    let stored = take(store, parent).await;
    let mut consumed = step(parent, stored.epoch, 3);
    consumed.messages_seen = 1;
    committed(store, consumed).await;
    store.deliver(parent, RunMessage::ChildrenEnded, at(300)).await.unwrap();
    assert_eq!(
        store.messages(parent, 0).await.unwrap().len(),
        1,
        "the first was consumed"
    );
}

/// The sweep finds each parent once. A parent that is over needs no ends: the message removes their marks.
pub async fn parents_of_unseen_ends_are_found(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut parents = Vec::new();
    for name in ["a", "b"] {
        let (parent, _) = held_run(store, name, vec![]).await;
        for index in 0..2 {
            let child = child(store, parent, &format!("{name} {index}"), Some(index)).await;
            end_child(store, child, Status::Succeeded).await;
        }
        parents.push(parent);
    }
    parents.sort();
    assert_eq!(store.parents_of_ended_children(None, 9).await.unwrap(), parents);
    assert_eq!(store.parents_of_ended_children(None, 1).await.unwrap(), parents[..1]);
    assert_eq!(
        store.parents_of_ended_children(Some(parents[0]), 9).await.unwrap(),
        parents[1..]
    );
    committed(store, end(parents[0], 1, 2, Status::Cancelled)).await;
    let status = Status::Cancelled;
    let delivered = store
        .deliver(parents[0], RunMessage::ChildrenEnded, at(300))
        .await
        .unwrap();
    assert_eq!(delivered, Delivery::Terminal { status });
    assert_eq!(store.parents_of_ended_children(None, 9).await.unwrap(), parents[1..]);
    assert_eq!(ended(store, parents[0]).await, []);
    assert_eq!(ended(store, parents[1]).await.len(), 2);
}

/// An awaited child is not deleted before its parent has seen its end.
pub async fn unseen_ends_are_not_deleted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, _) = held_run(store, "parent", vec![]).await;
    let child = child(store, parent, "child", None).await;
    end_child(store, child, Status::Succeeded).await;
    assert_eq!(store.delete_run(child).await.unwrap(), RunDeletion::Unfinished);
    assert_eq!(ended(store, parent).await, [child]);
    let mut seen = step(parent, 1, 2);
    seen.children_seen = vec![child];
    committed(store, seen).await;
    assert_eq!(store.delete_run(child).await.unwrap(), RunDeletion::Deleted);
}
