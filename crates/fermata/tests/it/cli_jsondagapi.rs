//! `fermata run`, `validate` and `graph` with jsondagapi documents.

use crate::support::{Process, Server, fermata, folder, home, text};
use serde_json::json;
use std::path::Path;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jsondagapi");
    text(&folder.join(name)).to_owned()
}

const VALID: &str = r#"validate_input={"state": {"valid": true}}"#;

#[test]
fn expressions_over_the_state_choose_the_path() {
    for (score, taken, skipped) in [("0.9", "accept", "review"), ("0.3", "review", "accept")] {
        let input = format!("score={score}");
        let ran = fermata(&["run", &example("score-routing.yaml"), "--json", "--input", &input]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let report = ran.json();
        assert_eq!(report["outputs"]["user_type"], "new", "the default");
        assert_eq!(report["skipped"][0]["nodeId"], skipped, "{report}");
        let steps = report["steps"].as_array().unwrap();
        assert!(steps.iter().any(|step| step["nodeId"] == taken), "{report}");
    }
    let ran = fermata(&["run", &example("score-routing.yaml")]);
    assert_eq!(ran.code, Some(2), "an input is missing: {ran:?}");
}

const DECIDES_FIRST: &str = r#"
workflow_id: decides_first
name: Decides first
version: 1.0.0
inputs: { score: { type: number } }
nodes:
  - { id: check, type: decision, executor: { type: callback } }
  - { id: low, type: task, executor: { type: http, config: { url: "http://playground.localhost/echo/low" } } }
  - { id: high, type: task, executor: { type: http, config: { url: "http://playground.localhost/echo/high" } } }
edges:
  - { from: check, to: high, condition: { type: expression, language: cel, expression: "score > 1" } }
  - { from: check, to: low, condition: { type: expression, language: cel, expression: "score <= 1" } }
"#;

/// It ends with the start of its run, and is shown like every other node.
#[test]
fn a_decision_may_be_the_first_node() {
    let run = |more: &[&str]| {
        Process::start(
            &[&["run", "-", "--input", "score=1"], more].concat(),
            &[],
            DECIDES_FIRST,
        )
        .output()
    };
    let report = run(&["--json"]).json();
    assert_eq!(report["steps"][0]["nodeId"], "check", "{report}");
    assert_eq!(report["steps"][0]["status"], "Succeeded", "{report}");
    let shown = run(&[]).stderr;
    assert!(
        shown.contains("after `check`, the condition `score > 1` is false"),
        "{shown}"
    );
    let dry = run(&["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(dry.stderr.contains("✓ succeeded  check"), "{dry:?}");
}

#[test]
fn requests_are_answered_from_the_command_line() {
    let file = example("user-onboarding.json");
    let ran = fermata(&[
        "run",
        &file,
        "--json",
        "--input",
        "user=ada",
        "--callback",
        VALID,
        "--callback",
        r#"risk_decision={"outcome": "approve"}"#,
        "--callback",
        r#"approve_user={"state": {"approved": true}}"#,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.json()["outputs"], json!({ "valid": true, "approved": true }));

    let ran = fermata(&[
        "run",
        &file,
        "--json",
        "--callback",
        VALID,
        "--callback",
        r#"risk_decision={"outcome": "maybe"}"#,
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.json()["error"]["code"], "UNKNOWN_OUTCOME");

    let ran = fermata(&["run", &file, "--timeout", "1s"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stderr
            .contains("validate_input waits for an answer: POST http://127.0.0.1:"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn documents_are_shown_and_rolled_back() {
    let server = Server::on(&home(), &[], &[]);
    let at = |arguments: &[&str]| Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output();
    let source = std::fs::read_to_string(example("score-routing.yaml")).unwrap();
    let folder = folder();
    for version in ["1.0.0", "1.1.0"] {
        let changed = source.replace("version: 1.0.0", &format!("version: {version}"));
        let file = folder.path().join("score.yaml");
        std::fs::write(&file, changed).unwrap();
        let published = at(&["workflows", "publish", text(&file)]);
        assert_eq!(published.code, Some(0), "{published:?}");
    }
    let shown = at(&["workflows", "get", "score_routing"]).stdout;
    assert!(shown.contains("Active") && shown.contains("\nversion 2\n"), "{shown}");
    let first = at(&[
        "workflows",
        "get",
        "score_routing",
        "--definition",
        "--version",
        "1.0.0",
    ]);
    assert_eq!(first.stdout.trim_end(), source.trim_end());
    let rolled_back = at(&["workflows", "rollback", "score_routing"]);
    assert_eq!(
        rolled_back.stdout, "score_routing uses version 1 now, instead of 2\n",
        "{rolled_back:?}"
    );
    let versions = at(&["workflows", "versions", "score_routing", "--json"]).json();
    assert_eq!(versions["currentVersion"], 1);
}

#[test]
fn documents_are_checked_and_drawn() {
    for name in ["user-onboarding.json", "score-routing.yaml", "refund-approval.yaml"] {
        assert_eq!(fermata(&["validate", &example(name)]).code, Some(0), "{name}");
    }
    let drawn = fermata(&["graph", &example("score-routing.yaml")]).stdout;
    for piece in ["n1{\"check<br/>core.pass\"}", "score #60;= 0.8", "n0 --> n1"] {
        assert!(drawn.contains(piece), "{piece}: {drawn}");
    }
    let drawn = fermata(&["graph", &example("user-onboarding.json")]).stdout;
    assert!(drawn.contains("n1 -->|\"approve\"| n2"), "{drawn}");
}

#[test]
fn children_of_a_list_use_the_playground() {
    let child = example("greet-guest.yaml");
    let ran = fermata(&["run", &example("invite-guests.yaml"), "--with", &child]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let greetings = ["ada", "grace", "joan"].iter().enumerate();
    let greetings: Vec<_> = greetings
        .map(|(at, name)| json!({ "guest": name, "place": at }))
        .collect();
    let outputs: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(outputs, json!({ "greetings": greetings }));
    assert!(ran.stderr.contains("3 of 3 items ended"), "{}", ran.stderr);
}
