//! The messages that users see most, as golden files in `messages/`. To accept changes, run with `UPDATE_GOLDEN=1` and
//! read what was written.

use crate::support::{Output, Process, fermata, folder, text, write};
use std::path::Path;

/// Compares stderr (and stdout, for `validate`) with a golden file. `replaced` are parts that differ from run to run.
fn golden(name: &str, output: &Output, replaced: &[(&str, &str)]) {
    let mut shown = format!(
        "{}{}\n(exit code {})\n",
        output.stdout,
        output.stderr,
        output.code.unwrap_or(-1)
    );
    for (part, placeholder) in replaced {
        shown = shown.replace(part, placeholder);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/messages/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &shown).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, expected, "UPDATE_GOLDEN=1 accepts {name}");
}

/// Runs `validate` on a document in a file of this name.
fn validated(name: &str, file: &str, document: &str) {
    let data = folder();
    let path = write(&data, file, document);
    let checked = fermata(&["validate", text(&path)]);
    golden(name, &checked, &[(text(&path), file)]);
}

/// Runs a document; durations and ids are left out.
fn ran(name: &str, document: &str, arguments: &[&str]) {
    let mut all = vec!["run", "-"];
    all.extend(arguments);
    let mut output = Process::start(&all, &[], document).output();
    output.stderr = output
        .stderr
        .lines()
        .filter(|line| !line.contains("✓ succeeded") && !line.contains("⏸ waiting"))
        .map(|line| match line.split_once(" after ") {
            Some((before, after)) if before.ends_with("succeeded") || before.ends_with("failed") => {
                let rest = after
                    .split_once([';', ':', ' '])
                    .map_or("", |_| after.find([';', ':']).map_or("", |at| &after[at..]));
                format!("{before} after TIME{rest}\n")
            }
            _ => {
                let is_time = |word: &str| word.ends_with(" ms") || word.ends_with(" s"); // of a slow machine
                let words: Vec<&str> = line
                    .split("  ")
                    .map(str::trim)
                    .filter(|word| !word.is_empty() && !is_time(word))
                    .collect();
                format!("{}\n", words.join("  "))
            }
        })
        .collect();
    golden(name, &output, &[]);
}

#[test]
fn connection_refused() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    golden(
        "connection-refused",
        &fermata(&["executions", "list", "--server", &url]),
        &[(&url, "http://127.0.0.1:PORT")],
    );
}

#[test]
fn unknown_dialect() {
    validated(
        "unknown-dialect",
        "what.json",
        "{ \"name\": \"order\", \"nodes\": [] }\n",
    );
    validated(
        "misspelt-dialect",
        "order.yaml",
        "name: order\ntask:\n  a: { sleep: 1s }\n",
    );
}

#[test]
fn wrong_yaml_indentation() {
    validated(
        "yaml-indentation",
        "order.yaml",
        "name: order\ntasks:\n  charge:\n    url: https://example.com/\n   retries: 3\n",
    );
    validated(
        "yaml-tab",
        "order.yaml",
        "name: order\ntasks:\n\tcharge:\n\t\tsleep: 1s\n",
    );
}

#[test]
fn missing_duration_unit() {
    validated(
        "missing-unit",
        "order.yaml",
        "name: order\ntasks:\n  nap: { sleep: \"30\" }\n",
    );
    golden(
        "missing-unit-of-a-flag",
        &fermata(&["run", "order.yaml", "--timeout", "30"]),
        &[],
    );
}

#[test]
fn missing_path_in_runlater() {
    ran(
        "missing-path",
        r#"{ "name": "order", "tasks": {
            "charge": { "url": "http://playground.localhost/echo/charge/{{trigger.body.ordr_id}}" } } }"#,
        &["--input", "order_id=7"],
    );
}

#[test]
fn reasons_of_skipped_steps() {
    ran(
        "skipped-by-edge",
        r#"{ "id": "order", "displayName": "Order", "startNode": "check", "nodes": [
            { "id": "check", "actionType": "core.echo", "edges": [
                { "targetNode": "approve", "condition": "trigger.amount > 100" }, { "targetNode": "ship" } ] },
            { "id": "approve", "actionType": "core.echo" },
            { "id": "ship", "actionType": "core.echo" } ] }"#,
        &["--input", "amount=42"],
    );
    ran(
        "skipped-by-if",
        r#"{ "name": "order", "tasks": {
            "charge": { "url": "http://playground.localhost/echo/charge" },
            "refund": { "needs": ["charge"], "if": "tasks.charge.status_code != 200", "sleep": 1 } } }"#,
        &[],
    );
}

#[test]
fn wait_that_timed_out() {
    ran(
        "wait-timeout",
        r#"{ "name": "order", "tasks": { "payment": { "wait_for_webhook": { "timeout": "10ms" } } } }"#,
        &[],
    );
}
