//! `fermata run` from outside.

use crate::support::{Process, Signal, fermata, folder, text, write};
use serde_json::json;
use std::path::{Path, PathBuf};

const GREET: &str = r#"{ "id": "greet", "displayName": "Greet", "startNode": "say",
  "triggerSchema": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } },
  "nodes": [
    { "id": "say", "actionType": "core.echo",
      "parameters": { "text": "Hello {{ trigger.name }}{{ vars.mark ?? '.' }}", "order": "{{ trigger.order ?? null }}" },
      "edges": [{ "targetNode": "never", "condition": "false" }, { "targetNode": "end" }] },
    { "id": "never", "actionType": "core.echo" },
    { "id": "end", "actionType": "core.echo", "parameters": { "said": "{{ context.data.say }}" } } ] }"#;

/// Fails three times; the second attempt waits no time.
const FAILING: &str = r#"{ "id": "failing", "displayName": "Failing", "startNode": "work", "nodes": [
    { "id": "work", "actionType": "core.fail", "parameters": { "message": "no stock", "retriable": true },
      "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1 } } } ] }"#;

const LONG: &str = r#"{ "id": "long", "displayName": "Long", "startNode": "first", "nodes": [
    { "id": "first", "actionType": "core.echo", "edges": [{ "targetNode": "pause" }] },
    { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 3000000 } } ] }"#;

#[test]
fn steps_go_to_stderr_and_outputs_to_stdout() {
    let folder = folder();
    let file = write(&folder, "greet.json", GREET);
    let ran = fermata(&[
        "run",
        text(&file),
        "--input",
        "name=Ada",
        "-i",
        "order.id=7",
        "--var",
        "mark=!",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.json(),
        json!({ "said": { "text": "Hello Ada!", "order": { "id": 7 } } })
    );
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("✓ succeeded  say    core.echo"), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("↷ skipped    never  core.echo")),
        "{lines:?}"
    );
    assert!(lines.last().unwrap().starts_with("greet succeeded after "), "{lines:?}");
    assert!(!ran.stderr.contains('\x1b'));
}

#[test]
fn secrets_in_outputs_are_not_printed() {
    let folder = folder();
    let document = r#"{ "id": "login", "displayName": "Login", "startNode": "in", "nodes": [
        { "id": "in", "actionType": "core.echo", "parameters": { "password": "{{ trigger.p }}", "n": 1 } } ] }"#;
    let file = write(&folder, "login.json", document);
    let shown = json!({ "password": "***", "n": 1 });
    let ran = fermata(&["run", text(&file), "--input", "p=s3cret"]);
    assert_eq!((ran.code, ran.json()), (Some(0), shown.clone()), "{ran:?}");
    let ran = fermata(&["run", text(&file), "--input", "p=s3cret", "--json"]);
    assert_eq!(ran.json()["outputs"], shown, "{ran:?}");
    assert!(
        !ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"),
        "{ran:?}"
    );
}

#[test]
fn input_is_read_from_files_and_stdin() {
    let folder = folder();
    let file = write(&folder, "greet.json", GREET);
    let input = write(&folder, "input.json", r#"{"name": "file"}"#);
    let ran = fermata(&["run", text(&file), "--input", &format!("@{}", text(&input))]);
    assert_eq!(ran.json()["said"]["text"], "Hello file.");
    let ran = Process::start(&["run", text(&file), "--input", "-"], &[], r#"{"name": "stdin"}"#).output();
    assert_eq!(ran.json()["said"]["text"], "Hello stdin.");
    let ran = Process::start(
        &["run", "-", "--input", "name=x"],
        &[("FERMATA_VARS__MARK", "?")],
        GREET,
    )
    .output();
    assert_eq!(ran.json()["said"]["text"], "Hello x?");
}

#[test]
fn json_output_is_one_object() {
    let folder = folder();
    let file = write(&folder, "failing.json", FAILING);
    let ran = fermata(&["run", "--json", text(&file)]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{ran:?}");
    let answer = ran.json();
    assert_eq!(answer["workflowId"], "failing");
    assert_eq!(answer["status"], "Failed");
    assert_eq!(answer["reason"], "action_failed");
    assert_eq!(answer["error"]["message"], "no stock");
    assert_eq!(answer["error"]["node"], "work");
    assert!(
        answer["executionId"].is_string() && answer["durationMs"].is_u64(),
        "{answer}"
    );
    let steps = answer["steps"].as_array().unwrap();
    let seen: Vec<_> = steps.iter().map(|step| (&step["attempt"], &step["status"])).collect();
    assert_eq!(
        seen,
        [(&json!(1), &json!("RetriableFailure")), (&json!(2), &json!("Failed"))]
    );
    assert_eq!(steps[0]["nodeId"], "work");
    assert_eq!(steps[0]["actionType"], "core.fail");
    assert_eq!(steps[1]["error"]["code"], "FAILED_ON_PURPOSE");
}

#[test]
fn failed_run_shows_step_and_error() {
    let folder = folder();
    let file = write(&folder, "failing.json", FAILING);
    let ran = fermata(&["run", text(&file)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    for piece in [
        "↻ retrying   work",
        "attempt 1/2",
        "✗ failed     work",
        "attempt 2/2",
        " at work: no stock",
    ] {
        assert!(ran.stderr.contains(piece), "{piece}: {}", ran.stderr);
    }
}

#[test]
fn wrong_call_or_document_exits_with_2() {
    let folder = folder();
    let file = write(&folder, "greet.json", GREET);
    let broken = write(&folder, "broken.json", GREET.replace("core.echo", "core.ehco"));
    let greet = text(&file);
    for (arguments, says) in [
        (&["run", text(&broken)][..], "did you mean `core.echo`?"),
        (&["run", "/nowhere.json"], "/nowhere.json cannot be read"),
        (&["run", greet], "does not fit the document's triggerSchema"),
        (
            &["run", greet, "--input", "name=1"],
            "/name: 1 is not of type \"string\"",
        ),
        (&["run", greet, "--input", "name"], "write it as key=value"),
        (&["run", greet, "--var", "=1"], "is not a key"),
        (&["run", greet, "--timeout", "30"], "the unit of `30` is missing"),
        (&["run", "-", "--input", "-"], "cannot both come from standard input"),
        (&["run"], "FILE"),
    ] {
        let ran = fermata(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
}

#[test]
fn timeout_exits_with_3() {
    let folder = folder();
    let file = write(&folder, "long.json", LONG);
    let ran = fermata(&["run", text(&file), "--timeout", "50ms", "--json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(ran.json()["status"], "Running");
    assert!(ran.stderr.contains("did not end within 50 ms"), "{}", ran.stderr);
}

#[test]
fn ctrl_c_cancels_the_run() {
    let folder = folder();
    let file = write(&folder, "long.json", LONG);
    let mut process = Process::start(&["run", text(&file)], &[], "");
    process.wait_for_line("✓ succeeded  first");
    process.signal(Signal::INT);
    let ran = process.output();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stderr.contains("↷ skipped    pause"), "{}", ran.stderr);
}

#[test]
fn every_example_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dataworkflows");
    let files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let documents = files
        .iter()
        .filter(|path| path.extension().is_some_and(|ending| ending != "md"));
    let mut count = 0;
    for file in documents {
        let child = |name: &str| text(&folder.join(name)).to_owned();
        let more = match file.file_name().and_then(|name| name.to_str()) {
            Some("parent-workflow.json") => vec!["--with".to_owned(), child("child-workflow.json")],
            Some("price-order.yaml") => vec!["--with".to_owned(), child("price-item.json")],
            Some("expense-approval.yaml") => [
                "--input",
                "employee=ann",
                "--input",
                "amount=120",
                "--callback",
                r#"ask={"outcome": "approved"}"#,
            ]
            .map(str::to_owned)
            .to_vec(),
            _ => Vec::new(),
        };
        let more = more.iter().map(String::as_str);
        let arguments: Vec<&str> = ["run", "--json", text(file)].into_iter().chain(more).collect();
        let ran = fermata(&arguments);
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", file.display());
        assert_ne!(ran.json()["outputs"], json!({}), "{}", file.display());
        count += 1;
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn help_and_version_are_printed() {
    let version = fermata(&["--version"]);
    assert_eq!(version.stdout, format!("fermata {}\n", env!("CARGO_PKG_VERSION")));
    for (arguments, says) in [
        (&["--help"][..], "fermata validate workflows/"),
        (&["run", "--help"], "--timeout was reached"),
        (&["serve", "--help"], "SIGTERM"),
        (&["validate", "--help"], "folders are walked"),
    ] {
        let help = fermata(arguments);
        assert!(help.code == Some(0) && help.stdout.contains(says), "{help:?}");
    }
    assert_eq!(fermata(&["fly"]).code, Some(2));
}
