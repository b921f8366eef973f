//! Tests of the SQLite store only: reopening, locks, damage, full disks, query plans.

mod files;
mod plans;
mod rejected;

use super::*;
use crate::{
    ReadStore, Result, RunStore, RunnerStore, StoreError, WorkflowStore,
    definitions::{Draft, Release, ReleaseRule},
    runners::Runner,
    runs::{Claim, CommitAnswer, Enqueued, LocalStart, NewRun, Principal, RunCommit, StatusChange, Then},
};
use fermata_core::{Event, RunId, RunnerId, Status, Timestamp};
use rusqlite::Connection;
use std::{fs, path::PathBuf, sync::Arc};
use uuid::Uuid;

/// The runner that holds the runs of these tests.
const RUNNER: RunnerId = RunnerId(Uuid::from_u128(7));

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("fermata.db")
    }

    fn open(&self) -> Result<SqliteStore> {
        SqliteStore::open(&self.path())
    }
}

fn started() -> Vec<Event> {
    vec![Event::Started {
        at: Timestamp(1),
        deadline: None,
        vars: Default::default(),
    }]
}

const WORKFLOW: Uuid = Uuid::from_u128(7);

async fn activate(store: &SqliteStore) {
    let draft = Draft {
        id: "w".to_owned(),
        tenant: String::new(),
        display_name: "W".to_owned(),
        description: None,
        dialect: "dataworkflows".to_owned(),
        source: b"{}".to_vec(),
        checksum: "1".to_owned(),
        at: Timestamp(1),
    };
    let release = Release {
        draft,
        rule: ReleaseRule::New {
            uid: WORKFLOW,
            most: None,
        },
        enabled: true,
        plan: "{}".to_owned(),
    };
    store.release(release).await.unwrap();
}

fn new_run(request_id: &str) -> NewRun {
    NewRun {
        id: RunId(Uuid::now_v7()),
        workflow_uid: WORKFLOW,
        workflow_id: "w".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: request_id.to_owned(),
        trigger: "{}".to_owned(),
        spec: None,
        priority: None,
        correlation_id: None,
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal::default(),
        parent: None,
        created_at: Timestamp(1),
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: Some(LocalStart {
            runner: RUNNER,
            events: started(),
            started_at: Timestamp(1),
            waits: Vec::new(),
        }),
    }
}

fn last(run: RunId) -> RunCommit {
    RunCommit {
        run,
        runner: RUNNER,
        epoch: 1,
        seq: 2,
        at: Timestamp(2),
        events: started(),
        attempts: Vec::new(),
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0,
        status: Some(StatusChange {
            status: Status::Succeeded,
            started_at: None,
            ended_at: Some(Timestamp(2)),
            reason: None,
            error: None,
            outputs: None,
            context_snapshot: None,
        }),
        dead_letter: None,
        usage: None,
        state: None,
        then: Then::Keep,
    }
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    activate(&store).await;
    let (open, done) = (new_run("r1"), new_run("r2"));
    let (open_id, done_id) = (open.id, done.id);
    let owner = Runner {
        id: RUNNER,
        host: "here".to_owned(),
        pid: 1,
        version: "0.1.0".to_owned(),
        role: "all".to_owned(),
        public_url: String::new(),
        started_at: Timestamp(1),
    };
    store.heartbeat(&owner, Timestamp(i64::MAX)).await.unwrap();
    store.enqueue(open).await.unwrap();
    store.enqueue(done).await.unwrap();
    assert_eq!(
        store.commit(last(done_id)).await,
        CommitAnswer::Committed { message_seq: 0 }
    );
    let before = (store.run(open_id).await.unwrap(), store.load(done_id).await.unwrap());
    drop(store);
    let store = folder.open().unwrap();
    assert_eq!(
        (store.run(open_id).await.unwrap(), store.load(done_id).await.unwrap()),
        before
    );
    let claim = Claim {
        runner: RunnerId(Uuid::now_v7()),
        limit: 9,
        now: Timestamp(0),
        only: Vec::new(),
        dead_before: Some(Timestamp(0)),
    };
    let claimed = store.claim(claim).await.unwrap().runs;
    assert_eq!(
        claimed.iter().map(|run| run.id).collect::<Vec<_>>(),
        [open_id],
        "leases from before are stale"
    );
    store.close().await.unwrap();
    drop(store);
    assert!(
        !folder.0.path().join("fermata.db-wal").exists(),
        "closing leaves one file"
    );
    folder.open().unwrap();
}

#[tokio::test]
async fn what_was_answered_survives_a_crash() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    activate(&store).await;
    let run = new_run("r1");
    let id = run.id;
    store.enqueue(run).await.unwrap();
    // A copy of the files at this moment is what a killed process leaves.
    let copy = Folder::new();
    for suffix in ["", "-wal"] {
        fs::copy(
            format!("{}{suffix}", folder.path().display()),
            format!("{}{suffix}", copy.path().display()),
        )
        .unwrap();
    }
    let revived = copy.open().unwrap();
    assert_eq!(revived.run(id).await.unwrap(), store.run(id).await.unwrap());
    assert!(revived.run(id).await.unwrap().is_some());
}

#[test]
fn missing_folders_are_created_or_the_error_says_why() {
    let folder = Folder::new();
    SqliteStore::open(&folder.0.path().join("a/b/c.db")).unwrap();
    fs::write(folder.0.path().join("file"), "x").unwrap();
    let error = SqliteStore::open(&folder.0.path().join("file/c.db")).err().unwrap();
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    let error = SqliteStore::open(folder.0.path()).err().unwrap();
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
}

#[tokio::test]
async fn a_second_store_is_refused_with_the_process_that_has_the_file() {
    let folder = Folder::new();
    let first = folder.open().unwrap();
    let error = folder.open().err().unwrap();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(
        error.to_string().contains(&format!("(process {})", std::process::id())),
        "{error}"
    );
    first.ping().await.unwrap();
    drop(first);
    folder.open().unwrap();
}

#[test]
fn a_foreign_writer_keeps_us_out() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let foreign = Connection::open(folder.path()).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = folder.open().err().unwrap();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    foreign.execute_batch("ROLLBACK").unwrap();
    folder.open().unwrap();
}

/// The file must be refused as damaged and stay as it is.
fn refused(folder: &Folder) -> String {
    let before = fs::read(folder.path()).unwrap();
    let error = folder.open().err().unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(fs::read(folder.path()).unwrap(), before);
    error.to_string()
}

#[tokio::test]
async fn damaged_files_are_refused_and_left_alone() {
    let garbage = Folder::new();
    fs::write(
        garbage.path(),
        "this is no database, and it is long enough to be looked at. ".repeat(100),
    )
    .unwrap();
    refused(&garbage);

    let truncated = Folder::new();
    let store = truncated.open().unwrap();
    activate(&store).await;
    store.close().await.unwrap();
    drop(store);
    let length = fs::metadata(truncated.path()).unwrap().len();
    fs::File::options()
        .write(true)
        .open(truncated.path())
        .unwrap()
        .set_len(length / 2)
        .unwrap();
    refused(&truncated);

    let emptied = Folder::new();
    fs::write(emptied.path(), "").unwrap();
    fs::write(format!("{}-wal", emptied.path().display()), "what was written last").unwrap();
    assert!(refused(&emptied).contains("log"));
    assert!(fs::metadata(format!("{}-wal", emptied.path().display())).unwrap().len() > 0);
}

#[test]
fn files_of_other_applications_are_refused() {
    let folder = Folder::new();
    Connection::open(folder.path())
        .unwrap()
        .execute_batch("CREATE TABLE runners (name TEXT)")
        .unwrap();
    assert!(refused(&folder).contains("another application"));
}

#[test]
fn files_for_newer_programs_are_refused() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let newer = "UPDATE meta SET value = '99.0.0' WHERE key = 'oldest_program'";
    Connection::open(folder.path()).unwrap().execute_batch(newer).unwrap();
    let before = fs::read(folder.path()).unwrap();
    match folder.open() {
        Err(StoreError::TooNew { needs, have, .. }) => {
            assert_eq!((needs.as_str(), have.as_str()), ("99.0.0", env!("CARGO_PKG_VERSION")));
        }
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(fs::read(folder.path()).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_reported_and_recovered_from() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().unwrap());
    activate(&store).await;
    let limit = |sql: &'static str| {
        store
            .writer
            .write(move |tx| tx.connection.query_row(sql, [], |_| Ok(())))
    };
    limit("PRAGMA max_page_count = 1").await.unwrap(); // SQLite never goes below what is used
    let mut stored = Vec::new();
    let mut full = 0;
    for index in 0..500 {
        let mut run = new_run(&format!("r{index}"));
        run.trigger = format!("\"{}\"", "x".repeat(2000));
        let id = run.id;
        match store.enqueue(run).await {
            Ok(Enqueued::Created) => stored.push(id),
            Err(StoreError::Full { .. }) => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(full > 400, "{full}");
    for _ in 0..2 {
        let ready = store.ping().await;
        assert!(
            matches!(ready, Err(StoreError::Full { .. })),
            "readiness fails: {ready:?}"
        );
    }
    let run = new_run("more");
    let id = run.id;
    limit("PRAGMA max_page_count = 1000000").await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    for id in stored.into_iter().chain([id]) {
        assert!(store.run(id).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_fails_fails_alone() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().unwrap());
    activate(&store).await;
    let taken = new_run("first");
    store.enqueue(taken.clone()).await.unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|index| {
            let mut run = new_run(&format!("r{index}"));
            if index % 8 == 0 {
                run.id = taken.id;
            }
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue(run).await })
        })
        .collect();
    for (index, task) in tasks.into_iter().enumerate() {
        let answer = task.await.unwrap();
        match index % 8 {
            0 => assert!(matches!(answer, Err(StoreError::Failed(_))), "{answer:?}"),
            _ => assert_eq!(answer.unwrap(), Enqueued::Created),
        }
    }
}

/// Reads of a runner do not wait for connections that slow reads use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_does_not_wait_behind_reads() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().unwrap());
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let mut slow = Vec::new();
    for _ in 0..readers::READERS {
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (reader, begun) = (store.clone(), begun.clone());
        let reading = tokio::spawn(async move {
            let read = move |_: &Connection| {
                begun.send(()).expect("the test waits for it");
                let _ = ends.recv(); // until the other side is dropped
                Ok(())
            };
            reader.readers.read(read).await
        });
        slow.push((reading, end));
        begins.recv().await.expect("it reads");
    }
    let control = store.control().expect("connections for control");
    let calls = async {
        assert!(control.held(RUNNER, None, 10).await.unwrap().is_empty());
        assert!(control.runs_with_messages(RUNNER).await.unwrap().is_empty());
        control.ping().await.unwrap();
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, calls).await.expect("answers");
    for (reading, end) in slow {
        drop(end);
        reading.await.unwrap().unwrap();
    }
}
