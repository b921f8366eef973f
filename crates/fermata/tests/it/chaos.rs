//! The fault rig for a short time: it finds no violation, and it does find one when fencing is off.
//!
//! `rig chaos --seconds 600` is the long version. The rig runs in this process, on the `fermata` binary of this build.

use fermata_rig::chaos::{Kind, Options, chaos};
use serde_json::Value;
use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Much longer than a run takes: the rig bounds itself.
const PATIENCE: Duration = Duration::from_secs(300);

/// The report as JSON.
async fn report(options: Options) -> Value {
    let fermata = PathBuf::from(env!("CARGO_BIN_EXE_fermata"));
    let report = tokio::time::timeout(PATIENCE, chaos(&options, &fermata)).await;
    let report = report.expect("the rig ends in time").expect("the rig runs");
    serde_json::to_value(report).expect("a report is JSON")
}

fn options(folder: &Path, seed: u64, seconds: u64) -> Options {
    // PostgreSQL does not run as root. If this process does, another user needs access to the folder.
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("our own folder");
    Options {
        seed: Some(seed),
        seconds,
        dir: Some(folder.to_owned()),
        ..Options::default()
    }
}

fn count(report: &Value, place: &str) -> u64 {
    report.pointer(place).and_then(Value::as_u64).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_lost_stuck_or_doubled_under_all_faults() {
    let folder = crate::support::folder();
    let report = report(options(folder.path(), 5, 25)).await;
    assert_eq!(report["violations"], serde_json::json!([]), "{report:#}");
    for kind in [
        "kill", "stop", "cut", "delay", "hang", "commit", "restart", "standby", "failover",
    ] {
        assert!(count(&report, &format!("/faults/{kind}")) > 0, "no {kind}: {report:#}");
    }
    // Without load the absence of violations proves nothing.
    for place in [
        "/acknowledged/starts",
        "/acknowledged/callbacks",
        "/acknowledged/cancels",
        "/acknowledged/occurrences",
        "/instants",
        "/droppedAfterCommit",
        "/takeovers",
    ] {
        assert!(count(&report, place) > 0, "no {place}: {report:#}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// While a process is stopped past its lease, many of its attempts wait for a slot. None of them may start afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_processes_start_nothing_that_was_taken_over() {
    let folder = crate::support::folder();
    let report = report(Options {
        rate: 20.0,
        only: vec![Kind::Stop],
        ..options(folder.path(), 3, 15)
    })
    .await;
    assert_eq!(report["violations"], serde_json::json!([]), "{report:#}");
    for place in ["/faults/stop", "/takeovers"] {
        assert!(count(&report, place) > 0, "no {place}: {report:#}");
    }
}

/// Without fencing, a process that was stopped past its lease commits to runs that another process holds.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn commits_without_a_lease_are_found_when_fencing_is_off() {
    let folder = crate::support::folder();
    let report = report(Options {
        rate: 20.0,
        only: vec![Kind::Stop],
        without_fencing: true,
        ..options(folder.path(), 1, 15)
    })
    .await;
    let violations = report["violations"].as_array().expect("a list");
    let zombies = violations.iter().filter(|violation| violation["rule"] == "zombie");
    assert!(zombies.count() > 0, "{report:#}");
    // The files that help to find the cause are kept.
    let kept = report["folder"].as_str().expect("a folder");
    for name in [
        "acknowledged.log",
        "effects.log",
        "runs.json",
        "runner-1.1.log",
        "primary.log",
    ] {
        assert!(Path::new(kept).join(name).is_file(), "{name} is not in {kept}");
    }
}
