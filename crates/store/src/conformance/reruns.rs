//! Runs that repeat others: what they keep is copied, and their chain shares resources.

use super::*;
use crate::{
    flow::{Flow, Key, Place},
    reads::Window,
    retention::RunDeletion,
    runs::{NewRerun, RerunOf},
};

const ALL: Window = Window { limit: 100, offset: 0 };

/// A run that has ended, with two attempts of `a`, one of `b` and one of `c`.
async fn ended(store: &Arc<dyn Store>, request_id: &str) -> RunId {
    let (run, _) = held_run(store, request_id, vec![]).await;
    let mut commit = end(run, 1, 2, Status::Failed);
    commit.attempts = vec![
        attempt("a", 1, 110),
        attempt("a", 2, 120),
        attempt("b", 1, 130),
        attempt("c", 1, 140),
    ];
    commit.attempts[0].status = AttemptStatus::RetriableFailure;
    commit.links = vec![link("of the first")];
    committed(store, commit).await;
    run
}

/// A run that repeats `run` and keeps the attempts of these nodes.
fn repeats(request_id: &str, run: RunId, root: RunId, nodes: &[&str]) -> NewRun {
    NewRun {
        rerun: Some(Box::new(NewRerun {
            source: RerunOf { run, root },
            text: r#"{"parameters":{"c":{"größe":1.50}}}"#.to_owned(),
            nodes: nodes.iter().map(|node| NodeId::from(*node)).collect(),
        })),
        ..new_run(request_id)
    }
}

async fn stored(store: &Arc<dyn Store>, run: NewRun) -> RunId {
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

/// The attempts of a run: node, attempt, output, and the run that made it.
async fn attempts(store: &Arc<dyn Store>, run: RunId) -> Vec<(String, u32, Option<String>, Option<RunId>)> {
    let (rows, total) = store.actions(run, ALL).await.unwrap();
    assert_eq!(rows.len() as u64, total);
    let row = |row: Attempt| (row.node.to_string(), row.attempt, row.outputs, row.reused_from);
    rows.into_iter().map(row).collect()
}

/// The attempts of the kept nodes are copied whole, and no others; the copies do not depend on the first run.
pub async fn kept_attempts_are_copied(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let first = ended(store, "first").await;
    let second = stored(store, repeats("second", first, first, &["a", "b", "unknown"])).await;
    let kept = |of: RunId| {
        let row = |node: &str, attempt, end| (node.to_owned(), attempt, Some(format!(r#"{{"end":{end}}}"#)), Some(of));
        vec![row("a", 1, 110), row("a", 2, 120), row("b", 1, 130)]
    };
    assert_eq!(attempts(store, second).await, kept(first));
    let original = store.attempt(first, &"a".into(), 1).await.unwrap().unwrap();
    let copy = store.attempt(second, &"a".into(), 1).await.unwrap().unwrap();
    assert_eq!(original.reused_from, None);
    assert_eq!(
        copy,
        Attempt {
            reused_from: Some(first),
            ..original
        }
    );
    let last = store.last_attempts(second, &["a".into()]).await.unwrap();
    assert_eq!((last.len(), last[0].attempt), (1, 2));
    let row = store.run(second).await.unwrap().unwrap();
    let of = RerunOf {
        run: first,
        root: first,
    };
    assert_eq!(row.rerun_of, Some(of));
    assert_eq!(store.run(first).await.unwrap().unwrap().rerun_of, None);
    let taken = take(store, second).await;
    let text = r#"{"parameters":{"c":{"größe":1.50}}}"#;
    assert_eq!(taken.rerun.as_deref(), Some(text));
    assert!(taken.journal.is_empty());
    assert_eq!(store.load(first).await.unwrap().unwrap().rerun, None);
    // A copy of a copy names the run that made it.
    committed(store, end(second, taken.epoch, 1, Status::Failed)).await;
    let third = stored(store, repeats("third", second, first, &["a", "b"])).await;
    assert_eq!(attempts(store, third).await, kept(first));
    assert_eq!(store.delete_run(first).await.unwrap(), RunDeletion::Deleted);
    assert_eq!(store.delete_run(second).await.unwrap(), RunDeletion::Deleted);
    assert_eq!(attempts(store, third).await, kept(first));
    let row = store.run(third).await.unwrap().unwrap();
    assert_eq!(row.rerun_of.map(|of| (of.run, of.root)), Some((second, first)));
}

/// Copies are there with a local start and with a run that has to wait, too.
pub async fn kept_attempts_are_stored_with_every_start(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let first = ended(store, "first").await;
    let place = Place {
        key: Key {
            key: "k".to_owned(),
            value: "v".to_owned(),
        },
        limit: 1,
        version: 1,
        refuse: false,
        tenant: false,
    };
    let flow = Flow {
        places: vec![place],
        ..Flow::default()
    };
    let start = LocalStart {
        runner: ME,
        events: started(),
        started_at: at(100),
        waits: vec![],
    };
    for (request, expected) in [("now", Enqueued::Created), ("later", Enqueued::Waiting)] {
        let run = NewRun {
            flow: Some(Box::new(flow.clone())),
            local_start: Some(start.clone()),
            ..repeats(request, first, first, &["a"])
        };
        let id = run.id;
        assert_eq!(store.enqueue(run).await.unwrap(), expected);
        assert_eq!(attempts(store, id).await.len(), 2, "{request}");
        let stored = store.load(id).await.unwrap().unwrap();
        assert_eq!(stored.journal.len(), usize::from(request == "now"));
    }
}

/// A repeated request makes one run. Without the run that it repeats nothing is stored.
pub async fn reruns_are_stored_once_and_need_their_source(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let first = ended(store, "first").await;
    let again = repeats("again", first, first, &["a"]);
    let status = Status::Pending;
    let found = Enqueued::Existing { run: again.id, status };
    assert_eq!(store.enqueue(again.clone()).await.unwrap(), Enqueued::Created);
    assert_eq!(store.enqueue(again.clone()).await.unwrap(), found);
    let other = repeats("again", first, first, &["a", "b"]);
    assert_eq!(store.enqueue(other).await.unwrap(), found);
    assert_eq!(attempts(store, again.id).await.len(), 2);
    assert_eq!(store.delete_run(first).await.unwrap(), RunDeletion::Deleted);
    assert_eq!(store.enqueue(again.clone()).await.unwrap(), found);
    let late = repeats("late", first, first, &["a"]);
    assert_eq!(store.enqueue(late.clone()).await.unwrap(), Enqueued::SourceLost);
    assert_eq!(store.run(late.id).await.unwrap(), None);
    assert!(attempts(store, late.id).await.is_empty());
}

/// Runs of one chain may link the same resource, also if a run between them is gone. Others may not.
pub async fn resources_are_shared_in_a_chain(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let first = ended(store, "first").await;
    let linking = async |run: RunId| {
        let epoch = take(store, run).await.epoch;
        let mut commit = end(run, epoch, 1, Status::Failed);
        commit.links = vec![link("of the first")];
        store.commit(commit).await
    };
    let is_committed = |answer: &CommitAnswer| matches!(answer, CommitAnswer::Committed { .. });
    let second = stored(store, repeats("second", first, first, &[])).await;
    assert!(is_committed(&linking(second).await));
    let third = stored(store, repeats("third", second, first, &[])).await;
    let sibling = stored(store, repeats("sibling", first, first, &[])).await;
    assert_eq!(store.delete_run(second).await.unwrap(), RunDeletion::Deleted);
    assert!(is_committed(&linking(third).await));
    assert!(is_committed(&linking(sibling).await));
    let stranger = pending(store, "stranger").await;
    let refused = linking(stranger).await;
    assert!(
        matches!(&refused, CommitAnswer::Conflict(Conflict::Link { owner, .. }) if *owner == first),
        "{refused:?}"
    );
    // A resource that a rerun links first belongs to the chain as well.
    let fourth = stored(store, repeats("fourth", third, first, &[])).await;
    let mut commit = step(fourth, take(store, fourth).await.epoch, 1);
    commit.links = vec![link("new")];
    committed(store, commit).await;
    let fifth = stored(store, repeats("fifth", first, first, &[])).await;
    let mut commit = step(fifth, take(store, fifth).await.epoch, 1);
    commit.links = vec![link("new")];
    committed(store, commit).await;
    assert_eq!(store.links(fourth, ALL).await.unwrap().1, 1);
}
