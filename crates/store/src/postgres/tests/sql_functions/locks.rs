//! What an application locks in a long transaction: whoever needs it waits, and nobody else does.

use super::*;
use crate::{
    StoreError,
    conformance::{ME, committed, held_run, link, new_run, open, pending, run_of, step},
    postgres::{
        PostgresSettings,
        address::Address,
        batch::Session,
        work::{Fate, Outcome, Work},
    },
    runs::{Answer, CommitAnswer, Conflict, Delivery, Enqueued, InboxMessage},
};
use fermata_core::Status;
use futures::{FutureExt, future::BoxFuture};

/// One committer, so that all share it.
async fn one_committer(lock_timeout: Duration) -> (Database, Arc<dyn Store>, App) {
    let (database, _, app) = bed().await;
    let settings = PostgresSettings {
        committers: 1,
        lock_timeout,
        ..Default::default()
    };
    let store = super::super::store(&database.url, settings).await;
    (database, store, app)
}

async fn patient() -> (Database, Arc<dyn Store>, App) {
    one_committer(PATIENCE * 2).await
}

fn cancel() -> InboxMessage {
    let reason = "enough".to_owned();
    InboxMessage::Cancel { reason }
}

/// Locks the row of a run until the session says otherwise.
async fn lock(app: &App, run: RunId) {
    let lock = format!("BEGIN; SELECT 1 FROM workflow_executions WHERE id = '{run}' FOR UPDATE");
    app.run(&lock).await;
}

/// Sends something that cannot be answered yet.
fn sent<'a, T>(call: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    let mut call = call.boxed();
    assert!((&mut call).now_or_never().is_none());
    call
}

async fn soon<T>(call: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    answer.expect("nobody else's lock is in the way")
}

/// Others are written, and written again, while something waits.
async fn others_go_on<T>(store: &Arc<dyn Store>, waiting: &mut BoxFuture<'_, T>) {
    let others = async {
        let request = Uuid::now_v7().to_string();
        let (other, _) = held_run(store, &request, Vec::new()).await;
        for seq in 2..12 {
            committed(store, step(other, 1, seq)).await;
        }
        let delivered = store.deliver(other, cancel(), now()).await.unwrap();
        assert!(matches!(delivered, Delivery::Delivered { .. }));
    };
    soon(others).await;
    assert!(waiting.now_or_never().is_none(), "it was locked");
}

/// Steps of locked runs wait in their order, those of others do not wait, however many are locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_runs_that_are_locked_wait() {
    let (_database, store, app) = patient().await;
    let requests: Vec<String> = (0..100).map(|index| format!("r{index}")).collect();
    let runs = requests.iter().map(|request| held_run(&store, request, Vec::new()));
    let runs = futures::future::join_all(runs).await;
    app.run("BEGIN; SELECT 1 FROM workflow_executions FOR UPDATE").await;
    let both = |(run, _)| [2, 3].map(|seq| sent(store.commit(step(run, 1, seq))));
    let mut waiting: Vec<_> = runs.iter().copied().flat_map(both).collect();
    for _ in 0..3 {
        others_go_on(&store, &mut waiting[0]).await;
    }
    app.run("COMMIT").await;
    for answer in soon(futures::future::join_all(waiting)).await {
        assert_eq!(answer, CommitAnswer::Committed { inbox_seq: 0 });
    }
    for (run, _) in runs {
        assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 3);
    }
}

/// Starts of a locked workflow wait; whatever shares a batch with them does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_starts_of_the_workflow_that_is_locked_wait() {
    let (database, store, app) = patient().await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    app.run("BEGIN; SELECT 1 FROM workflows FOR UPDATE").await;
    let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
    let mut session = Session::connect(&address, PATIENCE).await.unwrap();
    let start = |workflow: &str| {
        let run = Box::new(run_of(workflow, workflow));
        Work::Enqueue { run, first: None }
    };
    let commit = Work::Commit {
        commit: Box::new(step(run, 1, 2)),
        text: Some("[]".to_owned()),
    };
    let batch = [start(WORKFLOW), commit, start("there-is-no-such")];
    let (fates, _) = session.write(&batch.each_ref()).await.unwrap();
    assert!(
        matches!(
            &fates[..],
            [
                Fate::Locked,
                Fate::Done(Outcome::Committed(CommitAnswer::Committed { .. })),
                Fate::Done(Outcome::Enqueued(Enqueued::Stale))
            ]
        ),
        "{fates:?}"
    );
    let waiting = sent(store.enqueue(new_run("r2")));
    app.run("COMMIT").await;
    assert_eq!(soon(waiting).await.unwrap(), Enqueued::Created);
}

/// Mail for a locked run comes in when the lock is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_for_a_locked_run_waits() {
    let (_database, store, app) = patient().await;
    let (run, _) = held_run(&store, "r1", vec![open("w", "t1")]).await;
    lock(&app, run).await;
    let mut answer = sent(store.answer("t1", "1", now()));
    others_go_on(&store, &mut answer).await;
    let mut delivery = sent(store.deliver(run, cancel(), now()));
    others_go_on(&store, &mut delivery).await;
    assert!((&mut answer).now_or_never().is_none());
    app.run("ROLLBACK").await;
    assert!(matches!(soon(answer).await, Ok(Answer::Accepted { .. })));
    let status = Status::Running;
    assert_eq!(soon(delivery).await.unwrap(), Delivery::Delivered { status });
    assert_eq!(store.inbox(run, 0).await.unwrap().len(), 2);
}

/// A run that its session completes is over once that is committed, and whoever waited learns so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_for_a_run_that_is_being_completed_waits() {
    let (_database, store, app) = patient().await;
    for (end, expected) in [
        (
            "ROLLBACK",
            Delivery::Delivered {
                status: Status::Running,
            },
        ),
        (
            "COMMIT",
            Delivery::Terminal {
                status: Status::Succeeded,
            },
        ),
    ] {
        let run = app.held(end).await;
        app.run("BEGIN").await;
        app.complete(run, "Succeeded").await.unwrap();
        let mut delivery = sent(store.deliver(run, cancel(), now()));
        others_go_on(&store, &mut delivery).await;
        app.run(end).await;
        assert_eq!(soon(delivery).await.unwrap(), expected);
    }
}

/// A request that a session has started and not committed: who sends it again waits for the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_request_that_is_being_started_waits() {
    let (_database, store, app) = patient().await;
    for (request, end) in [("r1", "COMMIT"), ("r2", "ROLLBACK")] {
        app.run("BEGIN").await;
        let theirs = app.started(request).await;
        let mut enqueued = sent(store.enqueue(new_run(request)));
        others_go_on(&store, &mut enqueued).await;
        pending(&store, &format!("another than {request}")).await;
        app.run(end).await;
        let expected = match end {
            "COMMIT" => Enqueued::Existing {
                run: theirs,
                status: Status::Pending,
            },
            _ => Enqueued::Created,
        };
        assert_eq!(soon(enqueued).await.unwrap(), expected);
    }
}

/// However many wait for what sessions have not committed, the others get their batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_wait_leave_batches_for_others() {
    let (_database, store, app) = patient().await;
    let requests: Vec<String> = (0..20).map(|index| format!("r{index}")).collect();
    app.run("BEGIN").await;
    for request in &requests {
        app.started(request).await;
    }
    let mut waiting: Vec<_> = requests.iter().map(|id| sent(store.enqueue(new_run(id)))).collect();
    for _ in 0..3 {
        others_go_on(&store, &mut waiting[0]).await;
    }
    app.run("ROLLBACK").await;
    for answer in soon(futures::future::join_all(waiting)).await {
        assert_eq!(answer.unwrap(), Enqueued::Created);
    }
}

/// A resource that a session has linked and not committed: a run that wants it waits for the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_run_that_wants_a_linked_resource_waits() {
    let (_database, store, app) = patient().await;
    let theirs = app.held("r1").await;
    let made = app.record(theirs, "n", "Succeeded", 1).await.unwrap();
    app.run("BEGIN").await;
    let sql = "SELECT sp_link_external_resource($1, $2, 'slack', 'message', 'm1', 'https://example.com')";
    app.one(sql, &[&theirs.0, &made]).await.unwrap();
    let (run, _) = held_run(&store, "r2", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.links = vec![link("m1")];
    let mut linking = sent(store.commit(commit));
    others_go_on(&store, &mut linking).await;
    app.run("COMMIT").await;
    match soon(linking).await {
        CommitAnswer::Conflict(Conflict::Link { owner, .. }) => assert_eq!(owner, theirs),
        other => panic!("{other:?}"),
    }
}

/// Who has waited long enough is told that nothing was written and that it may be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_not_waited_for_without_end() {
    let (_database, store, app) = one_committer(Duration::from_millis(100)).await;
    let (run, _) = held_run(&store, "r1", vec![open("w", "t1")]).await;
    lock(&app, run).await;
    assert!(matches!(
        soon(store.commit(step(run, 1, 2))).await,
        CommitAnswer::Unknown(_)
    ));
    let delivered = soon(store.deliver(run, cancel(), now())).await;
    assert!(matches!(delivered, Err(StoreError::Busy(_))), "{delivered:?}");
    let answered = soon(store.answer("t1", "1", now())).await;
    assert!(matches!(answered, Err(StoreError::Busy(_))), "{answered:?}");
    app.run("COMMIT").await;
    let stored = store.load(run).await.unwrap().unwrap();
    assert_eq!((stored.journal.len(), stored.inbox_seq), (1, 0), "nothing was written");
    committed(&store, step(run, 1, 2)).await;
    assert!(matches!(
        store.answer("t1", "1", now()).await,
        Ok(Answer::Accepted { .. })
    ));
    app.run("BEGIN").await;
    app.started("r2").await;
    let enqueued = soon(store.enqueue(new_run("r2"))).await;
    assert!(matches!(enqueued, Err(StoreError::Busy(_))), "{enqueued:?}");
    app.run("ROLLBACK").await;
    pending(&store, "r2").await;
    assert_eq!(store.held(ME, None, 9).await.unwrap().len(), 1);
}

/// Who locks a whole table is in everybody's way. Nobody is tried one by one then, and all are told in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_told_when_a_table_is_locked() {
    let (_database, store, app) = one_committer(Duration::from_secs(1)).await;
    app.run("BEGIN; LOCK TABLE workflow_executions IN SHARE MODE").await;
    let runs = (0..1000).map(|index| store.enqueue(new_run(&format!("r{index}"))));
    for answer in soon(futures::future::join_all(runs)).await {
        assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
    }
    app.run("COMMIT").await;
    assert_eq!(soon(store.enqueue(new_run("r1"))).await.unwrap(), Enqueued::Created);
}
