//! Large databases: memory does not grow with the data, and an interrupted transfer can be resumed.

use super::Ends;
use crate::support::{PATIENCE, Process, Signal};
use fermata_core::{RunId, Timestamp};
use fermata_store::{
    definitions::{Draft, Release, ReleaseRule},
    runs::{NewRun, Principal},
};
use std::time::{Duration, Instant};
use uuid::Uuid;

const RUNS: usize = 300;
/// The payload of each run, in bytes.
const PAYLOAD: usize = 1 << 20;
/// The workflow of all runs.
const WORKFLOW: Uuid = Uuid::from_u128(7);

/// Stores pending runs with large payloads.
async fn fill(ends: &Ends) {
    let store = ends.from.store().await;
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
    store.release(release).await.expect("a workflow");
    for number in 0..RUNS {
        let run = NewRun {
            id: RunId(Uuid::now_v7()),
            workflow_uid: WORKFLOW,
            workflow_id: "w".to_owned(),
            workflow_version: 1,
            pinned: false,
            tenant: String::new(),
            request_id: number.to_string(),
            trigger: format!("\"{}\"", noise(number as u64)),
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
            local_start: None,
        };
        store.enqueue(run).await.expect("a run");
    }
    store.close().await.expect("a closed file");
}

/// Text that cannot be compressed much.
fn noise(seed: u64) -> String {
    let mut rng = seed;
    let characters = std::iter::repeat_with(|| char::from(b'A' + (crate::crash::throw(&mut rng) % 58) as u8));
    characters.filter(char::is_ascii_alphanumeric).take(PAYLOAD).collect()
}

/// Starts a transfer with additional arguments.
fn start(ends: &Ends, more: &[&str]) -> Process {
    let arguments = ends.arguments(more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Process::start(&arguments, &[], "")
}

/// The peak memory of a process in megabytes; `None` if it has ended.
fn peak(process: &Process) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfer_of_large_payloads_resumes_with_bounded_memory() {
    let ends = Ends::new();
    fill(&ends).await;
    // This table is the last one and has nearly all of the data.
    let mut terminated = start(&ends, &[]);
    terminated.wait_for_line("workflow_executions: 300 rows");
    terminated.signal(Signal::TERM);
    let output = terminated.output();
    assert_eq!(output.code, Some(143), "{output:?}");
    assert!(output.stderr.contains("--resume"), "{output:?}");
    let mut killed = start(&ends, &["--resume"]);
    killed.wait_for_line("workflow_executions: 300 rows");
    killed.signal(Signal::KILL);
    assert_eq!(killed.output().code, None);

    let mut last = start(&ends, &["--resume", "--json"]);
    let (mut most, deadline) = (0, Instant::now() + PATIENCE);
    while let Some(peak) = peak(&last) {
        most = most.max(peak);
        assert!(Instant::now() < deadline, "the transfer does not end:\n{}", last.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let output = last.output();
    assert_eq!(output.code, Some(0), "{output:?}");
    let report = output.json();
    // The runs, and one row each for the workflow, its version and its plan.
    assert_eq!(report["rows"], RUNS + 3, "{report}");
    assert!(report["rowsBefore"].as_u64() >= Some(2), "{report}");
    println!("{most} MB for {} MB, {report:#}", (RUNS * PAYLOAD) >> 20);
    assert!(most > 0 && most < 120, "{most} MB of memory were used");
}
