//! Several processes on one database, each with its own store.

use super::{TEST_TIMEOUT, process, store};
use crate::{
    ChangeHint,
    conformance::{cluster::Database, *},
    definitions::Deleted,
    postgres::PostgresSettings,
    runs::{Answer, CommitAnswer, Conflict, Enqueued, LocalStart, RunMessage},
};
use fermata_core::Status;
use std::collections::BTreeSet;
use tokio::{sync::broadcast::Receiver, time::timeout};

fn cancel() -> RunMessage {
    let reason = "enough".to_owned();
    RunMessage::Cancel { reason }
}

/// Waits until the expected hint is received.
async fn receives(changes: &mut Receiver<ChangeHint>, expected: ChangeHint) {
    let listening = async { while changes.recv().await.unwrap() != expected {} };
    timeout(TEST_TIMEOUT, listening)
        .await
        .unwrap_or_else(|_| panic!("{expected:?} was not received"));
}

/// A commit of a runner that lost its lease is fenced, whichever store it uses, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn previous_owner_is_fenced() {
    let database = Database::new().await;
    let (a, b) = (process(&database).await, process(&database).await);
    activate(&a, WORKFLOW).await;
    let (run, _) = held_run(&a, "r1", Vec::new()).await;
    committed(&a, step(run, 1, 2)).await;
    let other = runner();
    let mut takeover = claim(other, 1, 1000);
    takeover.dead_before = Some(at(1));
    let taken = b.claim(takeover).await.unwrap().runs.remove(0);
    assert_eq!((taken.id, taken.epoch, taken.journal.len()), (run, 2, 2));
    for store in [&a, &b] {
        assert_eq!(store.commit(end(run, 1, 3, Status::Failed)).await, CommitAnswer::Fenced);
    }
    let mut commit = end(run, 2, 3, Status::Succeeded);
    commit.runner = other;
    committed(&b, commit).await;
    assert_eq!(a.run(run).await.unwrap().unwrap().status, Status::Succeeded);
}

/// The same request sent to both processes concurrently creates one run, and all callers get its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_create_one_run() {
    let database = Database::new().await;
    let stores = [process(&database).await, process(&database).await];
    activate(&stores[0], WORKFLOW).await;
    for round in 0..40 {
        let request = format!("r{round}");
        let tasks: Vec<_> = (0..8)
            .map(|index| {
                let (store, mut run) = (stores[index % 2].clone(), new_run(&request));
                run.local_start = (index % 3 > 0).then(|| LocalStart {
                    runner: ME,
                    events: started(),
                    started_at: at(100),
                    waits: vec![open("w", &format!("{request}-{index}"))],
                });
                tokio::spawn(async move { (run.id, store.enqueue(run).await.unwrap()) })
            })
            .collect();
        let (mut created, mut found) = (Vec::new(), BTreeSet::new());
        for task in tasks {
            match task.await.unwrap() {
                (id, Enqueued::Created) => created.push(id),
                (_, Enqueued::Existing { run, .. }) => drop(found.insert(run)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(created.len(), 1);
        assert!(found.iter().all(|run| *run == created[0]), "{found:?}");
        let stored = stores[0].load(created[0]).await.unwrap().unwrap();
        let local_start = usize::from(stored.epoch == 1);
        assert_eq!(stored.journal.len(), local_start);
        assert_eq!(stores[1].waits(created[0]).await.unwrap().len(), local_start);
    }
    let orphans = super::query(
        &database.url,
        "SELECT (SELECT count(*) FROM execution_events WHERE workflow_execution_id NOT IN
           (SELECT id FROM workflow_executions)) + (SELECT count(*) FROM run_waits WHERE workflow_execution_id NOT IN
           (SELECT id FROM workflow_executions))",
    );
    assert_eq!(orphans.await, "0", "the losers of the race leave no rows");
}

/// A message from one process and a park commit from another, concurrently: the run becomes due, whichever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_processes() {
    let database = Database::new().await;
    let (a, b) = (process(&database).await, process(&database).await);
    activate(&a, WORKFLOW).await;
    for round in 0..100 {
        let (run, _) = held_run(&a, &format!("r{round}"), Vec::new()).await;
        let (on_b, on_a) = (b.clone(), a.clone());
        let delivering = tokio::spawn(async move { on_b.deliver(run, cancel(), at(500)).await.unwrap() });
        let parking = tokio::spawn(async move { committed(&on_a, park(run, 1, 2, None)).await });
        delivering.await.unwrap();
        parking.await.unwrap();
        let claimed = b.claim(claim(ME, 1, 500)).await.unwrap().runs;
        assert_eq!(claimed.len(), 1, "round {round}: the run sleeps despite its message");
        committed(&b, end(run, 2, 3, Status::Cancelled)).await;
    }
}

/// An answer in one process and a timeout in another: exactly one of them wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_answer_or_timeout_wins() {
    let database = Database::new().await;
    let (a, b) = (process(&database).await, process(&database).await);
    activate(&a, WORKFLOW).await;
    for round in 0..100 {
        let token = format!("t{round}");
        let (run, _) = held_run(&a, &format!("r{round}"), vec![open("w", &token)]).await;
        let mut commit = step(run, 1, 2);
        commit.waits = vec![close("w")];
        let (on_b, on_a) = (b.clone(), a.clone());
        let answering = tokio::spawn(async move { on_b.answer(&token, "1", None, at(500)).await.unwrap() });
        let closing = tokio::spawn(async move { on_a.commit(commit).await });
        let answered = match (answering.await.unwrap(), closing.await.unwrap()) {
            (Answer::Accepted { .. }, CommitAnswer::Conflict(Conflict::Answered { .. })) => true,
            (Answer::Closed, CommitAnswer::Committed { .. }) => false,
            other => panic!("round {round}: {other:?}"),
        };
        let payload = b.waits(run).await.unwrap().remove(0).payload;
        assert_eq!(payload.is_some(), answered);
    }
}

/// Two processes never claim the same run, together they claim all runs, and each new owner sees the whole journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_never_overlap() {
    let database = Database::new().await;
    let stores = [process(&database).await, process(&database).await];
    activate(&stores[0], WORKFLOW).await;
    for index in 0..120 {
        let mut run = new_run(&format!("r{index}"));
        run.priority = (index % 3 == 0).then_some(5);
        assert_eq!(stores[index % 2].enqueue(run).await.unwrap(), Enqueued::Created);
    }
    let tasks: Vec<_> = (0..6)
        .map(|index| {
            let (store, runner) = (stores[index % 2].clone(), runner());
            tokio::spawn(async move {
                let mut held = 0;
                loop {
                    let claimed = store.claim(claim(runner, 5, 1000)).await.unwrap();
                    if claimed.runs.is_empty() && claimed.next_due.is_none() {
                        return held;
                    }
                    for run in claimed.runs {
                        let steps = run.epoch as usize;
                        assert_eq!(run.journal.len(), steps - 1, "every owner added one row");
                        let mut commit = match steps {
                            4 => end(run.id, 4, 4, Status::Succeeded),
                            _ => park(run.id, run.epoch, steps as u32, Some(5)),
                        };
                        commit.runner = runner;
                        committed(&store, commit).await;
                        held += 1;
                    }
                }
            })
        })
        .collect();
    let mut held = 0;
    for task in tasks {
        held += task.await.unwrap();
    }
    assert_eq!(held, 480, "each run was held four times");
}

/// If runs of two processes link the same resources in any order, exactly one run gets them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_have_one_owner_among_processes() {
    let database = Database::new().await;
    let stores = [process(&database).await, process(&database).await];
    activate(&stores[0], WORKFLOW).await;
    for round in 0..20 {
        let mut tasks = Vec::new();
        for index in 0..6 {
            let store = stores[index % 2].clone();
            let (run, _) = held_run(&store, &format!("r{round}-{index}"), Vec::new()).await;
            let mut commit = step(run, 1, 2);
            commit.links = vec![link(&format!("a{round}")), link(&format!("b{round}"))];
            if index % 2 == 0 {
                commit.links.reverse();
            }
            tasks.push(tokio::spawn(async move { (run, store.commit(commit).await) }));
        }
        let (mut winners, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for task in tasks {
            match task.await.unwrap() {
                (run, CommitAnswer::Committed { .. }) => winners.insert(run),
                (_, CommitAnswer::Conflict(Conflict::Link { owner, .. })) => owners.insert(owner),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!((winners.len(), &winners), (1, &owners));
    }
}

/// A run never outlives the version it follows: deleting a workflow and starting a run of it exclude each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_and_starting_exclude_each_other() {
    let database = Database::new().await;
    let (a, b) = (process(&database).await, process(&database).await);
    let (mut deleted, mut kept) = (0, 0);
    for round in 0..60 {
        let id = format!("w{round}");
        a.save_draft(draft(&id, "one"), new_or_draft(&id), None).await.unwrap();
        a.snapshot(uid(&id), "one", "{}", at(2)).await.unwrap();
        let mut run = run_of(&id, &id);
        run.pinned = true;
        let starter = b.clone();
        let starting = tokio::spawn(async move { starter.enqueue(run).await.unwrap() });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let answer = a.delete_workflow(uid(&id)).await.unwrap();
        let version = a.definition(uid(&id), 1).await.unwrap();
        match (starting.await.unwrap(), answer) {
            (Enqueued::Created, Deleted::HasRuns(_)) => {
                kept += 1;
                assert!(version.is_some());
            }
            (Enqueued::Stale, Deleted::Deleted) => {
                deleted += 1;
                assert!(version.is_none());
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    tracing::debug!(deleted, kept, "which call won");
}

/// A message for a run that another process holds notifies that process and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_notifies_only_the_owning_process() {
    let database = Database::new().await;
    let (a, b, c) = (
        process(&database).await,
        process(&database).await,
        process(&database).await,
    );
    activate(&a, WORKFLOW).await;
    let owner = runner();
    b.heartbeat(&described(owner), at(100)).await.unwrap();
    let run = run_held_by(&b, owner, "r1", vec![open("w", "t1")]).await;
    let (mut there, mut elsewhere) = (b.changes(), c.changes());
    a.deliver(run, cancel(), at(200)).await.unwrap();
    receives(&mut there, ChangeHint::Messages(run)).await;
    assert_eq!(
        b.messages(run, 0).await.unwrap().len(),
        1,
        "the message is stored before the notification"
    );
    a.answer("t1", "1", None, at(201)).await.unwrap();
    receives(&mut there, ChangeHint::Messages(run)).await;
    // Notifications are ordered: when this one has arrived, all earlier ones have.
    let free = pending(&a, "r2").await;
    receives(&mut there, ChangeHint::Due(at(100))).await;
    receives(&mut elsewhere, ChangeHint::Due(at(100))).await;
    assert!(elsewhere.is_empty(), "no other notification");
    a.deliver(free, cancel(), at(300)).await.unwrap();
    receives(&mut elsewhere, ChangeHint::Due(at(300))).await;
    b.retire(owner).await.unwrap();
    receives(&mut elsewhere, ChangeHint::Due(at(0))).await;
}

/// A message for a free run is sent to all processes if the sender does not execute runs. A sender that executes runs
/// claims the run itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_a_free_run_notifies_workers() {
    let database = Database::new().await;
    let (api, worker) = (process(&database).await, process(&database).await);
    activate(&api, WORKFLOW).await;
    let mut accepting = described(runner());
    accepting.role = "api".to_owned();
    api.heartbeat(&accepting, at(100)).await.unwrap();
    worker.heartbeat(&described(runner()), at(100)).await.unwrap();
    let run = pending(&api, "r1").await;
    let mut there = worker.changes();
    api.deliver(run, cancel(), at(200)).await.unwrap();
    receives(&mut there, ChangeHint::Messages(run)).await;
    let mut elsewhere = api.changes();
    worker.deliver(run, cancel(), at(300)).await.unwrap();
    receives(&mut elsewhere, ChangeHint::Due(at(300))).await;
    pending(&worker, "r2").await;
    assert_eq!(
        elsewhere.recv().await.unwrap(),
        ChangeHint::Due(at(100)),
        "no other notification in between"
    );
}

/// Without NOTIFY no hints are sent, and polling finds the messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_can_be_disabled() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        hints: false,
        ..Default::default()
    };
    let (a, b) = (
        store(&database.url, settings.clone()).await,
        store(&database.url, settings).await,
    );
    activate(&a, WORKFLOW).await;
    let owner = runner();
    b.heartbeat(&described(owner), at(100)).await.unwrap();
    let run = run_held_by(&b, owner, "r1", Vec::new()).await;
    let changes = b.changes();
    a.deliver(run, cancel(), at(200)).await.unwrap();
    assert_eq!(b.runs_with_messages(owner).await.unwrap(), [run]);
    assert!(changes.is_empty());
}

/// Concurrent claims choose the same most urgent runs. A claim that finds them locked takes other runs that are due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_takes_other_runs_if_the_chosen_ones_are_locked() {
    let database = Database::new().await;
    let store = process(&database).await;
    activate(&store, WORKFLOW).await;
    let mut runs = Vec::new();
    for index in 0..20 {
        runs.push(pending(&store, &format!("r{index}")).await);
    }
    let (other, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let lock = "BEGIN; SELECT id FROM workflow_executions ORDER BY wake_at, id LIMIT 7 FOR NO KEY UPDATE";
    other.batch_execute(lock).await.unwrap();
    let claimed = store.claim(claim(runner(), 7, 1000)).await.unwrap().runs;
    let claimed: Vec<_> = claimed.iter().map(|run| run.id).collect();
    assert_eq!(claimed, runs[7..14]);
    drop(other);
    let _ = connection.await;
}
