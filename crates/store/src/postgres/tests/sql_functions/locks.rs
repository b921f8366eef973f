//! Locks that an application holds in a long transaction: work that needs them waits, and all other work continues.

use super::*;
use crate::{
    StoreError,
    conformance::{ME, committed, held_run, link, new_run, open, pending, run_of, step},
    postgres::{
        PostgresSettings,
        address::Address,
        batch::Session,
        work::{MemberResult, Outcome, Work},
    },
    runs::{Answer, CommitAnswer, Conflict, Delivery, Enqueued, RunMessage},
};
use fermata_core::Status;
use futures::{FutureExt, future::BoxFuture};

/// A store with a single committer, so that all work shares it.
async fn one_committer(lock_timeout: Duration) -> (Database, Arc<dyn Store>, App) {
    let (database, _, app) = setup().await;
    let settings = PostgresSettings {
        committers: 1,
        lock_timeout,
        ..Default::default()
    };
    let store = super::super::store(&database.url, settings).await;
    (database, store, app)
}

async fn long_lock_timeout() -> (Database, Arc<dyn Store>, App) {
    one_committer(TEST_TIMEOUT * 2).await
}

fn cancel() -> RunMessage {
    let reason = "enough".to_owned();
    RunMessage::Cancel { reason }
}

/// Locks the row of a run until the session ends its transaction.
async fn lock(app: &App, run: RunId) {
    let lock = format!("BEGIN; SELECT 1 FROM workflow_executions WHERE id = '{run}' FOR UPDATE");
    app.run(&lock).await;
}

/// Starts a call, and checks that it is not answered yet.
fn blocked<'a, T>(call: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    let mut call = call.boxed();
    assert!((&mut call).now_or_never().is_none());
    call
}

async fn in_time<T>(call: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(TEST_TIMEOUT, call).await;
    answer.expect("an answer in time")
}

/// Checks that work of other runs is written several times while a call waits.
async fn others_are_written<T>(store: &Arc<dyn Store>, waiting: &mut BoxFuture<'_, T>) {
    let others = async {
        let request = Uuid::now_v7().to_string();
        let (other, _) = held_run(store, &request, Vec::new()).await;
        for seq in 2..12 {
            committed(store, step(other, 1, seq)).await;
        }
        let delivered = store.deliver(other, cancel(), now()).await.unwrap();
        assert!(matches!(delivered, Delivery::Delivered { .. }));
    };
    in_time(others).await;
    assert!(waiting.now_or_never().is_none(), "it did not wait for the lock");
}

/// Commits of locked runs wait in order. Commits of other runs do not wait, however many runs are locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_locked_runs_wait() {
    let (_database, store, app) = long_lock_timeout().await;
    let requests: Vec<String> = (0..100).map(|index| format!("r{index}")).collect();
    let runs = requests.iter().map(|request| held_run(&store, request, Vec::new()));
    let runs = futures::future::join_all(runs).await;
    app.run("BEGIN; SELECT 1 FROM workflow_executions FOR UPDATE").await;
    let both = |(run, _)| [2, 3].map(|seq| blocked(store.commit(step(run, 1, seq))));
    let mut waiting: Vec<_> = runs.iter().copied().flat_map(both).collect();
    for _ in 0..3 {
        others_are_written(&store, &mut waiting[0]).await;
    }
    app.run("COMMIT").await;
    for answer in in_time(futures::future::join_all(waiting)).await {
        assert_eq!(answer, CommitAnswer::Committed { message_seq: 0 });
    }
    for (run, _) in runs {
        assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 3);
    }
}

/// Starts of a locked workflow wait; other members of the same batch do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_starts_of_a_locked_workflow_wait() {
    let (database, store, app) = long_lock_timeout().await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    app.run("BEGIN; SELECT 1 FROM workflows FOR UPDATE").await;
    let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
    let mut session = Session::connect(&address, TEST_TIMEOUT).await.unwrap();
    let start = |workflow: &str| {
        let run = Box::new(run_of(workflow, workflow));
        Work::Enqueue { run, first: None }
    };
    let commit = Work::Commit {
        commit: Box::new(step(run, 1, 2)),
        text: Some("[]".to_owned()),
    };
    let batch = [start(WORKFLOW), commit, start("there-is-no-such")];
    let (results, _) = session.write(&batch.each_ref()).await.unwrap();
    assert!(
        matches!(
            &results[..],
            [
                MemberResult::Locked,
                MemberResult::Done(Outcome::Committed(CommitAnswer::Committed { .. })),
                MemberResult::Done(Outcome::Enqueued(Enqueued::Stale))
            ]
        ),
        "{results:?}"
    );
    let waiting = blocked(store.enqueue(new_run("r2")));
    app.run("COMMIT").await;
    assert_eq!(in_time(waiting).await.unwrap(), Enqueued::Created);
}

/// Messages for a locked run are stored when the lock is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_a_locked_run_waits() {
    let (_database, store, app) = long_lock_timeout().await;
    let (run, _) = held_run(&store, "r1", vec![open("w", "t1")]).await;
    lock(&app, run).await;
    let mut answer = blocked(store.answer("t1", "1", None, now()));
    others_are_written(&store, &mut answer).await;
    let mut delivery = blocked(store.deliver(run, cancel(), now()));
    others_are_written(&store, &mut delivery).await;
    assert!((&mut answer).now_or_never().is_none());
    app.run("ROLLBACK").await;
    assert!(matches!(in_time(answer).await, Ok(Answer::Accepted { .. })));
    let status = Status::Running;
    assert_eq!(in_time(delivery).await.unwrap(), Delivery::Delivered { status });
    assert_eq!(store.messages(run, 0).await.unwrap().len(), 2);
}

/// A message waits for a session that is completing the run, and then gets the committed status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_waits_for_an_uncommitted_completion() {
    let (_database, store, app) = long_lock_timeout().await;
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
        let mut delivery = blocked(store.deliver(run, cancel(), now()));
        others_are_written(&store, &mut delivery).await;
        app.run(end).await;
        assert_eq!(in_time(delivery).await.unwrap(), expected);
    }
}

/// If a session has started a request without committing, an enqueue of the same request waits for the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_same_request_waits_for_an_uncommitted_start() {
    let (_database, store, app) = long_lock_timeout().await;
    for (request, end) in [("r1", "COMMIT"), ("r2", "ROLLBACK")] {
        app.run("BEGIN").await;
        let started = app.started(request).await;
        let mut enqueued = blocked(store.enqueue(new_run(request)));
        others_are_written(&store, &mut enqueued).await;
        pending(&store, &format!("another than {request}")).await;
        app.run(end).await;
        let expected = match end {
            "COMMIT" => Enqueued::Existing {
                run: started,
                status: Status::Pending,
            },
            _ => Enqueued::Created,
        };
        assert_eq!(in_time(enqueued).await.unwrap(), expected);
    }
}

/// However many members wait for uncommitted starts of sessions, other work is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiting_members_do_not_starve_others() {
    let (_database, store, app) = long_lock_timeout().await;
    let requests: Vec<String> = (0..20).map(|index| format!("r{index}")).collect();
    app.run("BEGIN").await;
    for request in &requests {
        app.started(request).await;
    }
    let mut waiting: Vec<_> = requests.iter().map(|id| blocked(store.enqueue(new_run(id)))).collect();
    others_are_written(&store, &mut waiting[0]).await;
    app.run("ROLLBACK").await;
    for answer in in_time(futures::future::join_all(waiting)).await {
        assert_eq!(answer.unwrap(), Enqueued::Created);
    }
}

/// If a session has linked a resource without committing, a commit that links the same resource waits for the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_same_resource_waits_for_an_uncommitted_link() {
    let (_database, store, app) = long_lock_timeout().await;
    let acquired = app.held("r1").await;
    let made = app.record(acquired, "n", "Succeeded", 1).await.unwrap();
    app.run("BEGIN").await;
    let sql = "SELECT sp_link_external_resource($1, $2, 'slack', 'message', 'm1', 'https://example.com')";
    app.one(sql, &[&acquired.0, &made]).await.unwrap();
    let (run, _) = held_run(&store, "r2", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.links = vec![link("m1")];
    let mut linking = blocked(store.commit(commit));
    others_are_written(&store, &mut linking).await;
    app.run("COMMIT").await;
    match in_time(linking).await {
        CommitAnswer::Conflict(Conflict::Link { owner, .. }) => assert_eq!(owner, acquired),
        other => panic!("{other:?}"),
    }
}

/// After `lock_timeout` a call fails with `Busy`: nothing was written, and the caller may retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_timeout_is_reported_as_busy() {
    let (_database, store, app) = one_committer(Duration::from_millis(100)).await;
    let (run, _) = held_run(&store, "r1", vec![open("w", "t1")]).await;
    lock(&app, run).await;
    assert!(matches!(
        in_time(store.commit(step(run, 1, 2))).await,
        CommitAnswer::Unknown(_)
    ));
    let delivered = in_time(store.deliver(run, cancel(), now())).await;
    assert!(matches!(delivered, Err(StoreError::Busy(_))), "{delivered:?}");
    let answered = in_time(store.answer("t1", "1", None, now())).await;
    assert!(matches!(answered, Err(StoreError::Busy(_))), "{answered:?}");
    app.run("COMMIT").await;
    let stored = store.load(run).await.unwrap().unwrap();
    assert_eq!(
        (stored.journal.len(), stored.message_seq),
        (1, 0),
        "nothing was written"
    );
    committed(&store, step(run, 1, 2)).await;
    assert!(matches!(
        store.answer("t1", "1", None, now()).await,
        Ok(Answer::Accepted { .. })
    ));
    app.run("BEGIN").await;
    app.started("r2").await;
    let enqueued = in_time(store.enqueue(new_run("r2"))).await;
    assert!(matches!(enqueued, Err(StoreError::Busy(_))), "{enqueued:?}");
    app.run("ROLLBACK").await;
    pending(&store, "r2").await;
    assert_eq!(store.held(ME, None, 9).await.unwrap().len(), 1);
}

/// A lock on a whole table blocks all members. They are then no longer tried one by one, so all of them fail in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_lock_is_reported_as_busy_to_all() {
    let (_database, store, app) = one_committer(Duration::from_secs(1)).await;
    app.run("BEGIN; LOCK TABLE workflow_executions IN SHARE MODE").await;
    let runs = (0..1000).map(|index| store.enqueue(new_run(&format!("r{index}"))));
    for answer in in_time(futures::future::join_all(runs)).await {
        assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
    }
    app.run("COMMIT").await;
    assert_eq!(in_time(store.enqueue(new_run("r1"))).await.unwrap(), Enqueued::Created);
}
