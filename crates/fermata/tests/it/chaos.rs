//! The fault rig, for a short time: nothing is found, and something is found where there is something to find.
//!
//! `fermata chaos --seconds 600` is the long version.

use crate::support::{Output, Process};
use serde_json::Value;
use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path, time::Duration};

/// Much longer than it takes: the rig bounds itself.
const PATIENCE: Duration = Duration::from_secs(300);

fn chaos(folder: &Path, arguments: &[&str]) -> Output {
    // PostgreSQL does not run as root; if we are, another user has to get in.
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("our own folder");
    let dir = folder.to_str().expect("a path of a test is text");
    let all = [&["chaos", "--json", "--dir", dir], arguments].concat();
    let path = std::env::var("PATH").unwrap_or_default();
    Process::start(&all, &[("PATH", &path)], "").output_within(PATIENCE)
}

fn count(report: &Value, place: &str) -> u64 {
    report.pointer(place).and_then(Value::as_u64).unwrap_or_default()
}

#[test]
fn nothing_is_lost_stuck_or_doubled_when_everything_fails() {
    let folder = crate::support::folder();
    let output = chaos(folder.path(), &["--seed", "5", "--seconds", "25"]);
    let report = output.json();
    assert_eq!(output.code, Some(0), "{report:#}\n{}", output.stderr);
    assert_eq!(report["violations"], serde_json::json!([]));
    for kind in [
        "kill", "stop", "cut", "delay", "hang", "commit", "restart", "standby", "failover",
    ] {
        assert!(count(&report, &format!("/faults/{kind}")) > 0, "no {kind}: {report:#}");
    }
    // What was not under load proves nothing.
    for place in [
        "/acknowledged/starts",
        "/acknowledged/callbacks",
        "/acknowledged/cancels",
        "/droppedAfterCommit",
        "/takeovers",
    ] {
        assert!(count(&report, place) > 0, "no {place}: {report:#}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Processes that are stopped past their lease while many attempts wait for a slot start none of them when they go on.
#[test]
fn stopped_processes_start_nothing_that_was_taken_over() {
    let folder = crate::support::folder();
    let arguments = ["--seed", "3", "--seconds", "15", "--rate", "20", "--only", "stop"];
    let output = chaos(folder.path(), &arguments);
    let report = output.json();
    assert_eq!(output.code, Some(0), "{report:#}\n{}", output.stderr);
    for place in ["/faults/stop", "/takeovers"] {
        assert!(count(&report, place) > 0, "no {place}: {report:#}");
    }
}

/// Without fencing, a process that was stopped past its lease goes on as if nothing had happened.
#[cfg(debug_assertions)]
#[test]
fn commits_of_zombies_are_found_when_they_are_not_refused() {
    let folder = crate::support::folder();
    let arguments = [
        "--seed",
        "1",
        "--seconds",
        "15",
        "--rate",
        "20",
        "--only",
        "stop",
        "--without-fencing",
    ];
    let output = chaos(folder.path(), &arguments);
    let report = output.json();
    assert_eq!(output.code, Some(1), "{report:#}\n{}", output.stderr);
    let violations = report["violations"].as_array().expect("a list");
    let zombies = violations.iter().filter(|violation| violation["rule"] == "zombie");
    assert!(zombies.count() > 0, "{report:#}");
    // What is of use for finding the cause stays.
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
