//! Measures how fast a store writes the rows of three-step runs, without the engine.
//!
//! ```text
//! cargo run --release -p fermata-store --example raw -- [folder] [runs] [preloaded runs]
//! cargo run --release -p fermata-store --features cluster --example raw -- postgres [runs] [tasks] [committers]
//! cargo run --release -p fermata-store --example raw -- postgres://… [runs] [tasks] [committers]
//! ```
//!
//! With PostgreSQL (a throw-away server, or an empty database) it also measures the raw limit: the same rows with the
//! same statements, step by step, without locks, reads and decisions. Both are measured alternately, so that other load
//! on the machine affects both.
//!
//! 256 tasks each send the writes of one run after another: an enqueue with a local start, then three commits with a
//! journal row and an attempt; the last one ends the run.

use fermata_core::{Event, NodeId, Outcome, Output, RunId, RunnerId, Shape, Status, Timestamp};
use fermata_store::{
    Store,
    definitions::{Draft, Release, ReleaseRule},
    postgres::{
        PostgresSettings, PostgresStore,
        raw::{Pace, RawWriter, Script},
    },
    runs::{Attempt, AttemptStatus, CommitAnswer, LocalStart, NewRun, Principal, RunCommit, StatusChange, Then},
    sqlite::SqliteStore,
};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

const TASKS: usize = 256;
/// The workflow of all runs.
const WORKFLOW: Uuid = Uuid::from_u128(7);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_default();
    let mut number = |otherwise: u64| {
        let given = arguments.next();
        given.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    if place.starts_with("postgres") {
        let (runs, tasks, committers) = (number(20_000), number(TASKS as u64), number(0));
        return postgres(&place, runs, tasks as usize, committers as usize).await;
    }
    let (runs, preloaded) = (number(100_000), number(0));
    let folder = match place.as_str() {
        "" => std::env::temp_dir(),
        place => PathBuf::from(place),
    };
    let path = folder.join(format!("raw-{}.db", std::process::id()));

    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).expect("a new database"));
    release(&store).await;
    if preloaded > 0 {
        measure(&store, TASKS, preloaded, "preload").await;
        store.close().await.expect("closing");
        drop(store);
        let start = Instant::now();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).expect("the same database"));
        println!("reopened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        measure(&store, TASKS, runs, "measured").await;
        store.close().await.expect("closing");
    } else {
        measure(&store, TASKS, runs, "measured").await;
        store.close().await.expect("closing");
    }
    let size = std::fs::metadata(&path).map(|data| data.len()).unwrap_or(0);
    println!("file: {} MB, {} bytes a run", size >> 20, size / (runs + preloaded));
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
}

async fn release(store: &Arc<dyn Store>) {
    let draft = Draft {
        id: "three-steps".to_owned(),
        tenant: String::new(),
        display_name: "Three steps".to_owned(),
        description: None,
        dialect: "dataworkflows".to_owned(),
        source: b"{}".to_vec(),
        checksum: "1".to_owned(),
        at: now(),
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
    store.release(release).await.expect("a version");
}

/// A server that stops with this process, and its address.
#[cfg(feature = "cluster")]
fn server() -> (String, Box<dyn std::any::Any>) {
    let options = ["shared_buffers=256MB", "max_wal_size=4GB"];
    let cluster = fermata_store::cluster::Cluster::create(&std::env::temp_dir(), true, &options).expect("a server");
    (cluster.url("postgres"), Box::new(cluster))
}

#[cfg(not(feature = "cluster"))]
fn server() -> (String, Box<dyn std::any::Any>) {
    panic!("a server of its own needs `--features cluster`");
}

async fn postgres(place: &str, runs: u64, tasks: usize, committers: usize) {
    let (url, _server) = match place {
        "postgres" => server(),
        url => (url.to_owned(), Box::new(()) as _),
    };
    let mut settings = PostgresSettings::default();
    if committers > 0 {
        settings.committers = committers;
    }
    let store = PostgresStore::connect(&url, settings).await;
    let store: Arc<dyn Store> = Arc::new(store.expect("an empty database"));
    release(&store).await;
    measure(&store, tasks, runs / 4, "warming up").await;
    for _ in 0..3 {
        raw(&url, tasks, runs).await;
        measure(&store, tasks, runs, "store").await;
    }
    store.close().await.expect("closing");
}

/// Two connections; each writes the runs of half of the tasks as a batch.
async fn raw(url: &str, tasks: usize, runs: u64) {
    let runner = RunnerId(Uuid::now_v7());
    let left = Arc::new(AtomicU64::new(runs));
    let (start, busy) = (Instant::now(), processor_time());
    let writers: Vec<_> = (0..2)
        .map(|_| tokio::spawn(write_raw(url.to_owned(), runner, tasks / 2, Arc::clone(&left))))
        .collect();
    for writer in writers {
        writer.await.expect("a writer that ends well");
    }
    let took = start.elapsed().as_secs_f64();
    let busy = (processor_time() - busy) * 1e6 / runs as f64;
    println!(
        "raw: {runs} runs in {took:.2} s = {:.0} runs/s, {busy:.0} µs of processor each",
        runs as f64 / took
    );
}

async fn write_raw(url: String, runner: RunnerId, batch: usize, left: Arc<AtomicU64>) {
    let mut writer = RawWriter::connect(&url).await.expect("a connection");
    let (model, commits) = script(runner);
    let script = Script::new(&model, &commits);
    let take = |left: u64| (left > 0).then(|| left.saturating_sub(batch as u64));
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let runs: Vec<_> = (0..batch).map(|_| new_run(runner)).collect();
        writer.write(&runs, &script, Pace::StepByStep).await.expect("rows");
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    Timestamp(i64::try_from(since.as_micros()).expect("a clock before the year 294,000"))
}

/// CPU seconds so far, where the system reports them. On a busy machine they say more than wall time.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(11)
        .take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

async fn measure(store: &Arc<dyn Store>, tasks: usize, runs: u64, name: &str) {
    let left = Arc::new(AtomicU64::new(runs));
    let runner = RunnerId(Uuid::now_v7());
    let (start, busy) = (Instant::now(), processor_time());
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, left) = (Arc::clone(store), Arc::clone(&left));
            tokio::spawn(async move {
                let mut times = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    one_run(&store, runner, &mut times).await;
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a task that ends well"));
    }
    let took = start.elapsed().as_secs_f64();
    let busy = (processor_time() - busy) * 1e6 / runs as f64;
    times.sort();
    let part = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{name}: {runs} runs in {took:.2} s = {:.0} runs/s, {busy:.0} µs of processor each; a write takes {:.1} ms (median), {:.1} ms (99%), {:.1} ms (max)",
        runs as f64 / took,
        part(0.5),
        part(0.99),
        part(1.0),
    );
}

/// A run that starts locally.
fn new_run(runner: RunnerId) -> NewRun {
    let (id, at) = (RunId(Uuid::now_v7()), now());
    let started = Event::Started {
        at,
        deadline: Some(at.plus_millis(3_600_000)),
        vars: Default::default(),
    };
    NewRun {
        id,
        workflow_uid: WORKFLOW,
        workflow_id: "three-steps".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: Uuid::now_v7().to_string(),
        trigger: r#"{"customer":{"id":4711,"name":"Ada"},"amount":12.5}"#.to_owned(),
        spec: None,
        priority: None,
        correlation_id: Some(id.to_string()),
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal::default(),
        parent: None,
        created_at: at,
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: Some(LocalStart {
            runner,
            events: vec![started, opened("one", at)],
            started_at: at,
            waits: Vec::new(),
        }),
    }
}

fn opened(node: &str, at: Timestamp) -> Event {
    Event::Opened {
        node: node.into(),
        at,
        until: None,
        verdict: None,
    }
}

/// A run and its commits.
fn script(runner: RunnerId) -> (NewRun, Vec<RunCommit>) {
    let run = new_run(runner);
    let (id, at) = (run.id, run.created_at);
    let nodes = ["one", "two", "three"];
    let commits = nodes.into_iter().enumerate().map(|(index, node)| {
        let mut events = vec![Event::Finished {
            node: node.into(),
            attempt: 1,
            outcome: Outcome::Succeeded(Output {
                bytes: 120,
                shape: Shape::Object,
            }),
            chosen: None,
            skipped: None,
            queued_ms: None,
        }];
        events.push(Event::Routed {
            node: node.into(),
            taken: if index < 2 { vec![0] } else { Vec::new() },
            verdicts: Vec::new(),
        });
        events.extend(nodes.get(index + 1).map(|next| opened(next, at)));
        commit(id, runner, index as u32 + 2, node.into(), events, at, index == 2)
    });
    let commits = commits.collect();
    (run, commits)
}

async fn one_run(store: &Arc<dyn Store>, runner: RunnerId, times: &mut Vec<Duration>) {
    let (run, commits) = script(runner);
    let begin = Instant::now();
    store.enqueue(run).await.expect("a stored run");
    times.push(begin.elapsed());
    for commit in commits {
        let begin = Instant::now();
        let answer = store.commit(commit).await;
        times.push(begin.elapsed());
        assert!(matches!(answer, CommitAnswer::Committed { .. }), "{answer:?}");
    }
}

fn commit(
    run: RunId,
    runner: RunnerId,
    seq: u32,
    node: NodeId,
    mut events: Vec<Event>,
    at: Timestamp,
    last: bool,
) -> RunCommit {
    let status = last.then(|| StatusChange {
        status: Status::Succeeded,
        started_at: None,
        ended_at: Some(at),
        reason: None,
        error: None,
        outputs: Some(r#"{"id":"ch_1234567890","status":"paid"}"#.to_owned()),
        context_snapshot: None,
    });
    events.extend(last.then_some(Event::Ended {
        at,
        status: Status::Succeeded,
        reason: None,
        missing_outputs: Vec::new(),
    }));
    RunCommit {
        run,
        runner,
        epoch: 1,
        seq,
        at,
        events,
        attempts: vec![Attempt {
            node,
            attempt: 1,
            action_type: "http.request".to_owned(),
            status: AttemptStatus::Succeeded,
            parameters: Some(r#"{"url":"https://api.example.com/charges","method":"POST","body":{"amount":12.5}}"#.to_owned()),
            outputs: Some(
                r#"{"status":200,"headers":{"content-type":"application/json"},"body":{"id":"ch_1234567890","status":"paid"}}"#
                    .to_owned(),
            ),
            error: None,
            started_at: Some(at),
            ended_at: at,
            reused_from: None,
        }],
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0,
        status,
        dead_letter: None,
        usage: None,
        state: None,
        then: Then::Keep,
    }
}
