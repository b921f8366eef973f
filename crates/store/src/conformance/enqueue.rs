//! New runs.

use super::*;
use crate::definitions::{Enablement, Lifecycle};
use crate::reads::RunFilter;

async fn count(store: &Arc<dyn Store>) -> usize {
    let all = RunFilter {
        limit: 1000,
        ..Default::default()
    };
    store.runs(all).await.unwrap().items.len()
}

/// Every field can be read again.
pub async fn pending_run_is_stored_whole(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut run = new_run("r1");
    run.parent = Some(Parent::of(run_id()));
    run.tenant = "acme".to_owned();
    run.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    assert_eq!(store.enqueue(run.clone()).await.unwrap(), Enqueued::Created);
    let row = store.run(run.id).await.unwrap().unwrap();
    assert_eq!(
        (row.id, row.workflow_uid, row.workflow_id, row.workflow_version),
        (run.id, run.workflow_uid, run.workflow_id, 1)
    );
    assert_eq!(
        (row.request_id, row.tenant, row.status),
        (run.request_id, run.tenant, Status::Pending)
    );
    assert_eq!(
        (row.priority, row.correlation_id, row.principal),
        (run.priority, run.correlation_id, run.principal)
    );
    assert_eq!(row.traceparent, run.traceparent);
    assert_eq!(row.parent, run.parent.map(|parent| parent.run));
    assert_eq!((row.trigger, row.spec), (run.trigger, run.spec));
    assert_eq!(
        (row.created_at, row.wake_at, row.runner),
        (at(100), Some(at(100)), None)
    );
    assert_eq!(
        (row.started_at, row.ended_at, row.reason, row.error),
        (None, None, None, None)
    );
    assert_eq!((row.outputs, row.context_snapshot), (None, None));
    let stored = store.load(run.id).await.unwrap().unwrap();
    assert_eq!((stored.epoch, stored.takeovers, stored.journal.len()), (0, 0, 0));
    assert_eq!(stored.workflow_uid, run.workflow_uid);
    assert_eq!(stored.traceparent, run.traceparent);
}

/// A run that starts locally has its lease, its first journal row and its waits at once.
pub async fn locally_started_run_is_held_and_running(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    let row = store.run(id).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.started_at, row.held()),
        (Status::Running, Some(at(100)), true)
    );
    let stored = store.load(id).await.unwrap().unwrap();
    assert_eq!((stored.epoch, stored.takeovers), (1, 0));
    assert_eq!(stored.journal, [fermata_core::encode(&started())]);
    let waits = store.waits(id).await.unwrap();
    assert_eq!((waits.len(), waits[0].token.as_str(), waits[0].open), (1, "t1", true));
    assert!(store.claim(claim(ME, 9, 1000)).await.unwrap().runs.is_empty());
    committed(store, step(id, 1, 2)).await;
}

/// One run for each (tenant, requestId); another tenant may use the same.
pub async fn request_id_is_unique_for_each_tenant(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, _) = held_run(store, "r1", Vec::new()).await;
    let again = store.enqueue(new_run("r1")).await.unwrap();
    let status = Status::Running;
    assert_eq!(again, Enqueued::Existing { run: id, status });
    committed(store, end(id, 1, 2, Status::Failed)).await;
    let status = Status::Failed;
    assert_eq!(
        store.enqueue(new_run("r1")).await.unwrap(),
        Enqueued::Existing { run: id, status }
    );
    let mut other = new_run("r1");
    other.tenant = "acme".to_owned();
    assert_eq!(store.enqueue(other).await.unwrap(), Enqueued::Created);
    assert_eq!(count(store).await, 2);
}

/// The answer names the run and workflow that have the requestId.
pub async fn request_id_of_another_workflow(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let id = pending(store, "r1").await;
    let run = run_of("other", "r1");
    let workflow_id = WORKFLOW.to_owned();
    assert_eq!(
        store.enqueue(run).await.unwrap(),
        Enqueued::OtherWorkflow { run: id, workflow_id }
    );
    assert_eq!(count(store).await, 1);
}

/// Missing, never active, disabled, archived, another version.
pub async fn stale_starts_store_nothing(store: &Arc<dyn Store>) {
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    let first = draft(WORKFLOW, "one");
    store.save_draft(first, new_or_draft(WORKFLOW), None).await.unwrap();
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    store
        .publish(uid(WORKFLOW), "one", "{}", ACTIVATE, at(2))
        .await
        .unwrap();
    let change = |from, status, enabled| {
        let from = vec![from];
        store.set_enablement(
            uid(WORKFLOW),
            Enablement {
                from,
                status,
                enabled: Some(enabled),
                version: None,
                paused: None,
            },
            at(3),
        )
    };
    change(Lifecycle::Active, None, false).await.unwrap();
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    change(Lifecycle::Active, Some(Lifecycle::Archived), true)
        .await
        .unwrap();
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    change(Lifecycle::Archived, Some(Lifecycle::Active), true)
        .await
        .unwrap();
    let mut other = new_run("r1");
    other.workflow_version = 2;
    assert_eq!(store.enqueue(other).await.unwrap(), Enqueued::Stale);
    assert_eq!(count(store).await, 0);
    let id = pending(store, "r1").await;
    change(Lifecycle::Active, None, false).await.unwrap();
    let status = Status::Pending;
    let there = Enqueued::Existing { run: id, status };
    assert_eq!(
        store.enqueue(new_run("r1")).await.unwrap(),
        there,
        "a run that exists is found, whatever the workflow"
    );
}

/// A version asked for by number need not be the current one, but it must exist.
pub async fn pinned_versions_must_exist(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    store
        .save_draft(draft(WORKFLOW, "two"), existing_draft(WORKFLOW), None)
        .await
        .unwrap();
    store
        .publish(uid(WORKFLOW), "two", "{}", ACTIVATE, at(3))
        .await
        .unwrap();
    for (version, pinned, fits) in [
        (1, false, false),
        (2, false, true),
        (1, true, true),
        (0, true, false),
        (3, true, false),
    ] {
        let mut run = new_run(&format!("{version}{pinned}"));
        (run.workflow_version, run.pinned) = (version, pinned);
        let expected = if fits { Enqueued::Created } else { Enqueued::Stale };
        assert_eq!(
            store.enqueue(run).await.unwrap(),
            expected,
            "version {version}, pinned: {pinned}"
        );
    }
}

/// Concurrent requests with one requestId create one run; the others find it.
pub async fn concurrent_requests_make_one_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for round in 0..20 {
        let request = format!("r{round}");
        let tasks = (0..16).map(|_| {
            let (store, run) = (Arc::clone(store), new_run(&request));
            tokio::spawn(async move { (run.id, store.enqueue(run).await.unwrap()) })
        });
        let mut created = Vec::new();
        let mut found = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                (id, Enqueued::Created) => created.push(id),
                (_, Enqueued::Existing { run, .. }) => found.push(run),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((created.len(), found.len()), (1, 15));
        assert!(found.iter().all(|run| *run == created[0]));
    }
    assert_eq!(count(store).await, 20);
}

/// The engine decides whether drafts may run; it then pins a version.
pub async fn drafts_take_pinned_runs_only(store: &Arc<dyn Store>) {
    let first = draft(WORKFLOW, "one");
    store.save_draft(first, new_or_draft(WORKFLOW), None).await.unwrap();
    let mut pinned = new_run("r1");
    pinned.pinned = true;
    assert_eq!(
        store.enqueue(pinned.clone()).await.unwrap(),
        Enqueued::Stale,
        "no version yet"
    );
    store.snapshot(uid(WORKFLOW), "one", "{}", at(2)).await.unwrap();
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    assert_eq!(store.enqueue(pinned).await.unwrap(), Enqueued::Created);
}
