//! How fast the SQLite store takes the rows of three-step runs, and nothing else.
//!
//! ```text
//! cargo run --release -p fermata-store --example raw -- [folder] [runs] [preloaded runs]
//! ```
//!
//! 256 tasks each send the writes of one run after the other: a born enqueue, then three commits with a journal
//! row and an attempt, the last of which ends the run.

use fermata_core::{Event, NodeId, Outcome, Output, RunId, RunnerId, Shape, Status, Timestamp};
use fermata_store::{
    Store,
    definitions::{Draft, Release, ReleaseRule},
    runs::{Attempt, AttemptStatus, Born, CommitAnswer, NewRun, Principal, RunCommit, StatusChange, Then},
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

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let runs: u64 = arguments
        .next()
        .map_or(100_000, |text| text.parse().expect("a number of runs"));
    let preloaded: u64 = arguments
        .next()
        .map_or(0, |text| text.parse().expect("a number of runs"));
    let path = folder.join(format!("raw-{}.db", std::process::id()));

    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).expect("a new database"));
    let draft = Draft {
        id: "three-steps".to_owned(),
        display_name: "Three steps".to_owned(),
        description: None,
        dialect: "dataworkflows".to_owned(),
        source: b"{}".to_vec(),
        checksum: "1".to_owned(),
        at: now(),
    };
    let release = Release {
        draft,
        rule: ReleaseRule::New { uid: Uuid::now_v7() },
        enabled: true,
    };
    store.release(release).await.expect("a version");
    if preloaded > 0 {
        measure(&store, preloaded, "preload").await;
        store.close().await.expect("closing");
        drop(store);
        let start = Instant::now();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).expect("the same database"));
        println!("reopened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        measure(&store, runs, "measured").await;
        store.close().await.expect("closing");
    } else {
        measure(&store, runs, "measured").await;
        store.close().await.expect("closing");
    }
    let size = std::fs::metadata(&path).map(|data| data.len()).unwrap_or(0);
    println!("file: {} MB, {} bytes a run", size >> 20, size / (runs + preloaded));
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    Timestamp(i64::try_from(since.as_micros()).expect("a clock before the year 294,000"))
}

/// Seconds of processor time so far, where the system tells. It says more than the clock on a busy machine.
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

async fn measure(store: &Arc<dyn Store>, runs: u64, name: &str) {
    let left = Arc::new(AtomicU64::new(runs));
    let runner = RunnerId(Uuid::now_v7());
    let (start, busy) = (Instant::now(), processor_time());
    let tasks: Vec<_> = (0..TASKS)
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

async fn one_run(store: &Arc<dyn Store>, runner: RunnerId, times: &mut Vec<Duration>) {
    let (id, at) = (RunId(Uuid::now_v7()), now());
    let opened = |node: &str| Event::Opened {
        node: node.into(),
        at,
        until: None,
        verdict: None,
    };
    let started = Event::Started {
        at,
        deadline: Some(at.plus_millis(3_600_000)),
        vars: Default::default(),
    };
    let run = NewRun {
        id,
        workflow_id: "three-steps".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: Uuid::now_v7().to_string(),
        trigger: r#"{"customer":{"id":4711,"name":"Ada"},"amount":12.5}"#.to_owned(),
        spec: None,
        priority: None,
        correlation_id: Some(id.to_string()),
        principal: Principal::default(),
        parent: None,
        created_at: at,
        born: Some(Born {
            runner,
            events: vec![started, opened("one")],
            started_at: at,
            waits: Vec::new(),
        }),
    };
    let begin = Instant::now();
    store.enqueue(run).await.expect("a stored run");
    times.push(begin.elapsed());
    let nodes = ["one", "two", "three"];
    for (index, node) in nodes.into_iter().enumerate() {
        let mut events = vec![Event::Finished {
            node: node.into(),
            attempt: 1,
            outcome: Outcome::Succeeded(Output {
                bytes: 120,
                shape: Shape::Object,
            }),
        }];
        events.push(Event::Routed {
            node: node.into(),
            taken: if index < 2 { vec![0] } else { Vec::new() },
            verdicts: Vec::new(),
        });
        events.extend(nodes.get(index + 1).map(|next| opened(next)));
        let begin = Instant::now();
        let answer = store
            .commit(commit(
                id,
                runner,
                index as u32 + 2,
                node.into(),
                events,
                at,
                index == 2,
            ))
            .await;
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
        }],
        links: Vec::new(),
        waits: Vec::new(),
        inbox_seen: 0,
        status,
        dead_letter: None,
        then: Then::Keep,
    }
}
