//! Pruning and deleting finished runs.

use super::*;
use crate::{
    clock::wall,
    reads::{RunFilter, Window},
    retention::{Ages, PruneBatch, Pruned, Retention, RunDeletion},
};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
const ALL: Window = Window { limit: 100, offset: 0 };

/// Everything that ended is kept for ten days.
fn ten_days() -> Retention {
    let age = Some(DAY * 10);
    Retention {
        ages: Ages {
            succeeded: age,
            failed: age,
            cancelled: age,
            dead_letters: age,
        },
        ..Retention::default()
    }
}

/// As if ids of today were 50 days old: what is due is then a question of the end alone.
fn batch(retention: Retention) -> PruneBatch {
    PruneBatch {
        retention: Arc::new(retention),
        now: Timestamp(wall().0 + (DAY * 50).as_micros() as i64),
        after: None,
        limit: 100,
        dry_run: false,
    }
}

/// Prunes in one step: how many runs were deleted, and how many emptied.
async fn prune(store: &Arc<dyn Store>, retention: Retention) -> (u64, u64) {
    let pruned = store.prune(batch(retention)).await.unwrap();
    assert_eq!(pruned.next, None);
    (pruned.deleted, pruned.emptied)
}

/// A run with rows in all tables that ended some days before [`batch`]'s now.
async fn ended(store: &Arc<dyn Store>, request_id: &str, status: Status, days: i64) -> RunId {
    let (run, _) = held_run(store, request_id, vec![open("w", &format!("token-{request_id}"))]).await;
    let mut first = step(run, 1, 2);
    first.attempts = vec![attempt("a", 1, 150)];
    first.links = vec![link(request_id)];
    committed(store, first).await;
    let mut last = end(run, 1, 3, status);
    if let Some(change) = &mut last.status {
        let ago = (DAY * 50).as_micros() as i64 - days * DAY.as_micros() as i64;
        change.ended_at = Some(Timestamp(wall().0 + ago));
        change.error = Some(r#"{"code":"E"}"#.to_owned());
        change.reason = Some("why".to_owned());
    }
    committed(store, last).await;
    run
}

/// How many rows there are of a run, beside its own.
async fn rows(store: &Arc<dyn Store>, run: RunId) -> [usize; 4] {
    [
        store.events(run, ALL).await.unwrap().0.len(),
        store.actions(run, ALL).await.unwrap().0.len(),
        store.links(run, ALL).await.unwrap().0.len(),
        store.waits(run).await.unwrap().len(),
    ]
}

async fn exists(store: &Arc<dyn Store>, run: RunId) -> bool {
    store.run(run).await.unwrap().is_some()
}

/// A run goes with its rows in all tables, and other runs keep theirs.
pub async fn finished_runs_are_removed_whole(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let old = ended(store, "old", Status::Succeeded, 11).await;
    let young = ended(store, "young", Status::Succeeded, 9).await;
    assert_eq!(rows(store, old).await, [3, 1, 1, 1]);
    assert_eq!(prune(store, Retention::default()).await, (0, 0));
    assert_eq!(prune(store, ten_days()).await, (1, 0));
    assert!(!exists(store, old).await && exists(store, young).await);
    assert_eq!(
        (rows(store, old).await, rows(store, young).await),
        ([0; 4], [3, 1, 1, 1])
    );
    let listed = RunFilter {
        limit: 10,
        ..RunFilter::default()
    };
    assert_eq!(store.runs(listed).await.unwrap().items.len(), 1);
    // The resource can be linked to another run now.
    let (run, _) = held_run(store, "next", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.links = vec![link("old")];
    committed(store, commit).await;
    assert_eq!(prune(store, ten_days()).await, (0, 0));
}

/// Neither pruning nor a request removes a run in flight.
pub async fn unfinished_runs_are_kept(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (held, _) = held_run(store, "held", Vec::new()).await;
    let waiting = pending(store, "pending").await;
    let (parked, _) = held_run(store, "parked", Vec::new()).await;
    committed(store, park(parked, 1, 2, None)).await;
    let keeps_nothing = Retention {
        ages: Ages {
            succeeded: Some(Duration::ZERO),
            failed: Some(Duration::ZERO),
            cancelled: Some(Duration::ZERO),
            dead_letters: Some(Duration::ZERO),
        },
        ..Retention::default()
    };
    assert_eq!(prune(store, keeps_nothing).await, (0, 0));
    for run in [held, waiting, parked] {
        assert_eq!(store.delete_run(run).await.unwrap(), RunDeletion::Unfinished);
        assert!(exists(store, run).await);
    }
}

/// A workflow with ages of its own follows those.
pub async fn ages_by_status_and_workflow(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let succeeded = ended(store, "s", Status::Succeeded, 20).await;
    let failed = ended(store, "f", Status::Failed, 20).await;
    let cancelled = ended(store, "c", Status::Cancelled, 20).await;
    let by_status = Retention {
        ages: Ages {
            succeeded: Some(DAY * 10),
            failed: Some(DAY * 30),
            ..Ages::default()
        },
        ..Retention::default()
    };
    let with = |name: &str, ages: Ages| Retention {
        workflows: [(name.to_owned(), ages)].into(),
        ..by_status.clone()
    };
    assert_eq!(prune(store, with(WORKFLOW, Ages::default())).await, (0, 0));
    assert_eq!(prune(store, with("another", Ages::default())).await, (1, 0));
    assert!(!exists(store, succeeded).await && exists(store, failed).await && exists(store, cancelled).await);
    assert_eq!(prune(store, with(WORKFLOW, ten_days().ages)).await, (2, 0));
}

/// The row stays, and with it the key, until the keys' own age.
pub async fn kept_keys_leave_empty_rows(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = ended(store, "key", Status::Failed, 20).await;
    let keys = |days: u32| Retention {
        keys: Some(DAY * days),
        ..ten_days()
    };
    assert_eq!(prune(store, keys(30)).await, (0, 1));
    assert_eq!(prune(store, keys(30)).await, (0, 0), "it is emptied once");
    assert_eq!(rows(store, run).await, [0; 4]);
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!((record.status, record.request_id.as_str()), (Status::Failed, "key"));
    assert_eq!((record.trigger.as_str(), record.spec, record.error), ("", None, None));
    assert_eq!((record.outputs, record.correlation_id), (None, None));
    assert_eq!((record.principal.email, record.principal.display_name), (None, None));
    let again = store.enqueue(new_run("key")).await.unwrap();
    let status = Status::Failed;
    assert_eq!(again, Enqueued::Existing { run, status });
    assert_eq!(prune(store, keys(15)).await, (1, 0));
    assert_eq!(store.enqueue(new_run("key")).await.unwrap(), Enqueued::Created);
    // The reason of a failure is a word of the engine, the reason of a cancel is text of the caller.
    let cancelled = ended(store, "cancelled", Status::Cancelled, 20).await;
    assert_eq!(prune(store, keys(30)).await, (0, 1));
    assert_eq!(record.reason.as_deref(), Some("why"));
    assert_eq!(store.run(cancelled).await.unwrap().unwrap().reason, None);
}

/// A step removes at most as many runs as it may, and the next one continues after it.
pub async fn pruning_goes_on_where_it_stopped(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for number in 0..5 {
        ended(store, &format!("r{number}"), Status::Succeeded, 20).await;
        ended(store, &format!("y{number}"), Status::Succeeded, 5).await;
    }
    let mut after = None;
    let mut steps = Vec::new();
    loop {
        let mut batch = batch(ten_days());
        (batch.limit, batch.after) = (2, after);
        let pruned = store.prune(batch).await.unwrap();
        steps.push(pruned.deleted);
        after = pruned.next;
        if after.is_none() || steps.len() > 10 {
            break;
        }
    }
    assert_eq!(steps, [2, 2, 1]);
}

/// Counting is the same as removing, without the removal.
pub async fn dry_runs_change_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = ended(store, "r", Status::Succeeded, 20).await;
    let mut dry = batch(ten_days());
    dry.dry_run = true;
    let expected = Pruned {
        deleted: 1,
        ..Pruned::default()
    };
    assert_eq!(store.prune(dry.clone()).await.unwrap(), expected);
    assert_eq!(store.prune(dry).await.unwrap(), expected);
    assert_eq!(rows(store, run).await, [3, 1, 1, 1]);
}

/// A child run lives as long as the run that started it, and keeps it while it has not ended.
pub async fn child_runs_go_with_their_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let parent = ended(store, "parent", Status::Succeeded, 20).await;
    let mut child = new_run("child");
    (child.parent, child.created_at) = (Some(Parent::of(parent)), at(300));
    let id = child.id;
    store.enqueue(child).await.unwrap();
    assert_eq!(prune(store, ten_days()).await, (0, 0));
    assert_eq!(store.delete_run(parent).await.unwrap(), RunDeletion::Unfinished);
    end_child(store, id, 1).await;
    assert_eq!(prune(store, ten_days()).await, (2, 0));
    assert!(!exists(store, parent).await && !exists(store, id).await);

    let parent = ended(store, "young parent", Status::Succeeded, 1).await;
    let mut child = new_run("old child");
    (child.parent, child.created_at) = (Some(Parent::of(parent)), at(300));
    let id = child.id;
    store.enqueue(child).await.unwrap();
    end_child(store, id, 20).await;
    assert_eq!(prune(store, ten_days()).await, (0, 0));
    assert!(exists(store, parent).await && exists(store, id).await);
}

/// Ends a pending run some days before [`batch`]'s now.
async fn end_child(store: &Arc<dyn Store>, id: RunId, days: u32) {
    take(store, id).await;
    let mut last = end(id, 1, 1, Status::Succeeded);
    last.events = started();
    if let Some(change) = &mut last.status {
        change.ended_at = Some(Timestamp(wall().0 + (DAY * (50 - days)).as_micros() as i64));
    }
    committed(store, last).await;
}

/// A finished run is deleted whatever its age.
pub async fn single_runs_are_deleted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = ended(store, "r", Status::Succeeded, 1).await;
    let other = ended(store, "other", Status::Succeeded, 1).await;
    assert_eq!(store.delete_run(run).await.unwrap(), RunDeletion::Deleted);
    assert_eq!(store.delete_run(run).await.unwrap(), RunDeletion::NotFound);
    assert_eq!(store.delete_run(run_id()).await.unwrap(), RunDeletion::NotFound);
    assert_eq!(
        (rows(store, run).await, rows(store, other).await),
        ([0; 4], [3, 1, 1, 1])
    );
}

/// The idempotency key goes with the row.
pub async fn deleted_keys_can_be_used_again(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = ended(store, "r", Status::Succeeded, 1).await;
    store.delete_run(run).await.unwrap();
    assert_eq!(store.enqueue(new_run("r")).await.unwrap(), Enqueued::Created);
}
