//! Bulk jobs: the runs of a job never change, each result is recorded once, and a cancelled job gives out nothing more.

use super::*;
use crate::{
    bulk::{BulkChange, BulkItem, BulkJob, BulkState, BulkStep, ItemState},
    clock::wall,
};

fn job(tenant: &str, total: u64) -> BulkJob {
    BulkJob {
        id: Uuid::now_v7(),
        tenant: tenant.to_owned(),
        action: r#"{"action":"delete"}"#.to_owned(),
        query: Some("tag:é".to_owned()),
        caller: "{}".to_owned(),
        state: BulkState::Ready,
        total,
        done: 0,
        refused: 0,
        failed: 0,
        epoch: 0,
        retry_at: None,
        created_at: at(5),
        started_at: None,
        ended_at: None,
    }
}

/// A job with this many runs.
async fn added(store: &Arc<dyn Store>, tenant: &str, count: usize) -> (BulkJob, Vec<RunId>) {
    let job = job(tenant, count as u64);
    let runs: Vec<RunId> = (0..count).map(|_| run_id()).collect();
    let backwards = runs.iter().rev().copied().collect();
    store.add_bulk(job.clone(), backwards).await.unwrap();
    (job, runs)
}

async fn changed(store: &Arc<dyn Store>, job: &BulkJob, change: BulkChange, time: i64) -> BulkJob {
    store.change_bulk(job.id, change, at(time)).await.unwrap().unwrap()
}

async fn took(store: &Arc<dyn Store>, now: i64, until: i64) -> Option<BulkJob> {
    store.take_bulk(at(now), at(until)).await.unwrap()
}

fn result(run: RunId, state: ItemState) -> BulkItem {
    let is_done = state == ItemState::Done;
    BulkItem {
        run,
        state,
        code: (!is_done).then(|| "CODE".to_owned()),
        message: (!is_done).then(|| "why".to_owned()),
        created: is_done.then_some(RunId(Uuid::nil())),
    }
}

async fn advanced(
    store: &Arc<dyn Store>,
    job: &BulkJob,
    results: Vec<BulkItem>,
    limit: u32,
    now: i64,
) -> Option<Vec<RunId>> {
    let step = BulkStep {
        job: job.id,
        epoch: job.epoch,
        results,
        limit,
        now: at(now),
        until: at(now + 100),
    };
    store.advance_bulk(step).await.unwrap()
}

async fn seen(store: &Arc<dyn Store>, job: &BulkJob) -> BulkJob {
    store.bulk(job.id).await.unwrap().unwrap()
}

/// From the preview to the end: the runs are given out once, by id, and every result is kept.
pub async fn jobs_act_on_their_runs_once(store: &Arc<dyn Store>) {
    let (job, runs) = added(store, "", 5).await;
    assert_eq!(seen(store, &job).await, job);
    assert_eq!(took(store, 100, 200).await, None, "it was not started");
    assert_eq!(store.next_bulk().await.unwrap(), None);

    let started = changed(store, &job, BulkChange::Start, 10).await;
    assert_eq!((started.state, started.started_at), (BulkState::Running, Some(at(10))));
    assert_eq!(
        changed(store, &job, BulkChange::Start, 20).await,
        started,
        "the second start does nothing"
    );
    assert_eq!(store.next_bulk().await.unwrap(), Some(at(10)));

    let held = took(store, 10, 110).await.unwrap();
    assert_eq!(held.epoch, 1);
    assert_eq!(changed(store, &job, BulkChange::Start, 20).await, held);
    assert_eq!(advanced(store, &held, vec![], 2, 20).await, Some(runs[..2].to_vec()));
    let results = vec![result(runs[0], ItemState::Done), result(runs[1], ItemState::Refused)];
    assert_eq!(
        advanced(store, &held, results.clone(), 2, 30).await,
        Some(runs[2..4].to_vec())
    );
    // Results that were recorded do not change, and are not counted again. A run of another job has no result here.
    let again = [
        results,
        vec![result(runs[0], ItemState::Failed), result(run_id(), ItemState::Done)],
    ]
    .concat();
    assert_eq!(advanced(store, &held, again, 9, 40).await, Some(runs[2..].to_vec()));
    let rest = runs[2..].iter().map(|run| result(*run, ItemState::Failed)).collect();
    assert_eq!(advanced(store, &held, rest, 9, 50).await, None);

    let ended = seen(store, &job).await;
    assert_eq!(
        (ended.state, ended.ended_at, ended.retry_at),
        (BulkState::Finished, Some(at(50)), None)
    );
    assert_eq!((ended.done, ended.refused, ended.failed, ended.total), (1, 1, 3, 5));
    for change in [BulkChange::Start, BulkChange::Cancel] {
        assert_eq!(changed(store, &job, change, 60).await, ended);
    }
    assert_eq!(advanced(store, &held, vec![], 9, 70).await, None);
    assert_eq!(took(store, 1000, 2000).await, None);

    let items = async |state, after, limit| {
        let page = store.bulk_items(job.id, state, after, limit).await.unwrap();
        let ids: Vec<RunId> = page.items.iter().map(|item| item.run).collect();
        (ids, page.more)
    };
    assert_eq!(items(None, None, 2).await, (runs[..2].to_vec(), true));
    assert_eq!(items(None, Some(runs[1]), 9).await, (runs[2..].to_vec(), false));
    assert_eq!(
        items(Some(ItemState::Failed), None, 2).await,
        (runs[2..4].to_vec(), true)
    );
    assert_eq!(
        items(Some(ItemState::Failed), Some(runs[3]), 9).await,
        (vec![runs[4]], false)
    );
    assert_eq!(items(Some(ItemState::Pending), None, 9).await, (vec![], false));
    let page = store
        .bulk_items(job.id, Some(ItemState::Refused), None, 9)
        .await
        .unwrap();
    assert_eq!(page.items, [result(runs[1], ItemState::Refused)]);
    let page = store.bulk_items(job.id, Some(ItemState::Done), None, 9).await.unwrap();
    assert_eq!(page.items, [result(runs[0], ItemState::Done)]);
    assert_eq!(store.bulk_items(run_id().0, None, None, 9).await.unwrap().items, []);
}

/// A process that dies loses nothing; one that comes back too late changes nothing.
pub async fn jobs_survive_a_crash(store: &Arc<dyn Store>) {
    let (job, runs) = added(store, "", 4).await;
    changed(store, &job, BulkChange::Start, 10).await;
    let dead = took(store, 10, 110).await.unwrap();
    assert_eq!(advanced(store, &dead, vec![], 2, 20).await, Some(runs[..2].to_vec()));
    let results = vec![result(runs[0], ItemState::Done), result(runs[1], ItemState::Done)];
    assert_eq!(advanced(store, &dead, results, 1, 30).await, Some(vec![runs[2]]));
    assert_eq!(took(store, 129, 300).await, None, "it is held");
    assert_eq!(store.next_bulk().await.unwrap(), Some(at(130)));
    let heir = took(store, 130, 300).await.unwrap();
    assert_eq!((heir.epoch, heir.done), (2, 2));
    assert_eq!(advanced(store, &heir, vec![], 9, 140).await, Some(runs[2..].to_vec()));
    let late = vec![result(runs[2], ItemState::Failed)];
    assert_eq!(advanced(store, &dead, late, 9, 150).await, None);
    assert_eq!(seen(store, &job).await.failed, 0);
    let rest = runs[2..].iter().map(|run| result(*run, ItemState::Done)).collect();
    assert_eq!(advanced(store, &heir, rest, 9, 160).await, None);
    let ended = seen(store, &job).await;
    assert_eq!((ended.state, ended.done), (BulkState::Finished, 4));
}

/// A cancelled job records the slice that was in flight, and gives out no other.
pub async fn cancelled_jobs_stop(store: &Arc<dyn Store>) {
    let (ready, _) = added(store, "", 2).await;
    let cancelled = changed(store, &ready, BulkChange::Cancel, 10).await;
    assert_eq!(
        (cancelled.state, cancelled.ended_at),
        (BulkState::Cancelled, Some(at(10)))
    );
    assert_eq!(
        changed(store, &ready, BulkChange::Start, 20).await,
        cancelled,
        "it cannot be started"
    );

    let (job, runs) = added(store, "", 4).await;
    changed(store, &job, BulkChange::Start, 10).await;
    let held = took(store, 10, 110).await.unwrap();
    assert_eq!(advanced(store, &held, vec![], 1, 20).await, Some(vec![runs[0]]));
    let stopping = changed(store, &job, BulkChange::Cancel, 30).await;
    assert_eq!((stopping.state, stopping.ended_at), (BulkState::Cancelling, None));
    assert_eq!(changed(store, &job, BulkChange::Start, 35).await, stopping);
    let results = vec![result(runs[0], ItemState::Done)];
    assert_eq!(advanced(store, &held, results, 9, 40).await, None);
    let over = seen(store, &job).await;
    assert_eq!(
        (over.state, over.done, over.ended_at),
        (BulkState::Cancelled, 1, Some(at(40)))
    );
    assert_eq!(
        advanced(store, &held, vec![result(runs[1], ItemState::Done)], 9, 50).await,
        None
    );
    assert_eq!((seen(store, &job).await, took(store, 1000, 2000).await), (over, None));

    // Without a process that holds it, the next one ends it without acting.
    let (job, _) = added(store, "", 4).await;
    changed(store, &job, BulkChange::Start, 10).await;
    changed(store, &job, BulkChange::Cancel, 20).await;
    let held = took(store, 30, 130).await.unwrap();
    assert_eq!(advanced(store, &held, vec![], 9, 40).await, None);
    assert_eq!(seen(store, &job).await.state, BulkState::Cancelled);
}

/// Two processes never hold one job, and start it once.
pub async fn one_process_holds_a_job(store: &Arc<dyn Store>) {
    for _ in 0..10 {
        let (job, _) = added(store, "", 3).await;
        let starts = (0..4).map(|time| changed(store, &job, BulkChange::Start, 10 + time));
        let started = futures::future::join_all(starts).await;
        assert!(started.iter().all(|other| other.started_at == started[0].started_at));
        let takes = (0..4).map(|_| took(store, 100, 200));
        let taken: Vec<BulkJob> = futures::future::join_all(takes).await.into_iter().flatten().collect();
        assert_eq!(taken.len(), 1);
        changed(store, &job, BulkChange::Cancel, 120).await;
        assert_eq!(advanced(store, &taken[0], vec![], 9, 130).await, None);
    }
}

/// Jobs are listed by tenant, newest first, and removed by age, except while they run.
pub async fn jobs_are_listed_and_removed(store: &Arc<dyn Store>) {
    let (old, _) = added(store, "acme", 3).await;
    let (running, runs) = added(store, "", 3).await;
    let (ready, _) = added(store, "acme", 1).await;
    changed(store, &running, BulkChange::Start, 10).await;
    let listed = async |tenant, before, limit| {
        let page = store.bulks(tenant, before, limit).await.unwrap();
        let ids: Vec<Uuid> = page.items.iter().map(|job| job.id).collect();
        (ids, page.more)
    };
    assert_eq!(listed(None, None, 9).await, (vec![ready.id, running.id, old.id], false));
    assert_eq!(listed(None, None, 1).await, (vec![ready.id], true));
    assert_eq!(listed(Some("acme"), None, 9).await, (vec![ready.id, old.id], false));
    assert_eq!(listed(Some("acme"), Some(ready.id), 9).await, (vec![old.id], false));
    assert_eq!(listed(Some("evil"), None, 9).await, (vec![], false));

    assert_eq!(store.prune_bulks(Timestamp(wall().0 - 60_000_000), 9).await.unwrap(), 0);
    let soon = Timestamp(wall().0 + 60_000_000);
    let mut removed = 0;
    for _ in 0..20 {
        match store.prune_bulks(soon, 2).await.unwrap() {
            0 => break,
            rows => removed += rows,
        }
        let started = store.change_bulk(old.id, BulkChange::Start, at(20)).await.unwrap();
        assert!(
            started.is_none_or(|job| job.state == BulkState::Cancelled),
            "it has lost runs"
        );
    }
    assert_eq!(removed, 6, "two jobs with four runs");
    assert_eq!(listed(None, None, 9).await, (vec![running.id], false));
    assert_eq!(
        store.change_bulk(old.id, BulkChange::Start, at(20)).await.unwrap(),
        None
    );
    let held = took(store, 30, 130).await.unwrap();
    assert_eq!(advanced(store, &held, vec![], 9, 40).await, Some(runs));
}
