//! `fermata run --mock` and `--dry-run` from outside: the example, the route, wrong mocks.

use crate::support::{fermata, folder, text, write};
use serde_json::json;
use std::path::{Path, PathBuf};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/dry-run")
        .join(name)
}

#[test]
fn the_example_shows_its_route_without_calling_anything() {
    let (order, mocks) = (example("order.yaml"), example("order.mocks.json"));
    let args = [
        "run",
        text(&order),
        "--mock",
        text(&mocks),
        "--input",
        "order=7",
        "--input",
        "amount=42",
    ];
    let ran = fermata(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.json()["status"],
        200,
        "the outputs of the last step, made from its schema: {ran:?}"
    );
    for line in [
        "↻ retrying   charge     http.request              attempt 1, HTTP_503: the service answered with status 503",
        "→ payment: condition `context.data.charge.body.status == 'pending'` is true: ",
        "✗ ship: after `charge`, the condition `context.data.charge.body.status == 'paid'` is false: ",
        "✓ succeeded  payment    core.wait",
        "↷ skipped    apologise  http.request",
        "made up",
        "mocked",
    ] {
        assert!(ran.stderr.contains(line), "{line}\n{}", ran.stderr);
    }
    let json = fermata(&[&args[..], &["--json"]].concat());
    let report = json.json();
    assert_eq!(report["virtualDurationMs"], 13 * 24 * 3600 * 1000 + 1000);
    assert_eq!(report["nodes"][0]["attempts"], 2);
    assert!(json.stderr.is_empty(), "{json:?}");
}

#[test]
fn warnings_have_their_place() {
    let folder = folder();
    let document = "id: w\ndisplayName: W\nstartNode: a\ntriggers:\n  - name: t\n    type: webhook\n    \
                    condition: order.total > 1\nnodes:\n  - id: a\n    actionType: core.echo\n";
    let file = write(&folder, "w.yaml", document);
    let report = fermata(&["run", text(&file), "--dry-run", "--json"]).json();
    let warning = &report["warnings"][0];
    assert_eq!(
        (&warning["code"], &warning["line"]),
        (&json!("UNKNOWN_NAME"), &json!(7)),
        "{report}"
    );
}

#[test]
fn exit_codes_are_those_of_run() {
    let folder = folder();
    let document = r#"{ "id": "w", "displayName": "W", "startNode": "call", "nodes": [
        { "id": "call", "actionType": "http.request", "parameters": { "url": "http://127.0.0.1:1/" } } ] }"#;
    let file = write(&folder, "w.json", document);
    let made = fermata(&["run", text(&file), "--dry-run"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let down = write(
        &folder,
        "down.yaml",
        "call: { error: { code: DOWN, message: down, retriable: false } }\n",
    );
    let failed = fermata(&["run", text(&file), "--mock", text(&down)]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("✗ failed     call  http.request"), "{failed:?}");
    let wrong = write(&folder, "wrong.json", json!({ "cal": { "outputs": {} } }).to_string());
    let refused = fermata(&["run", text(&file), "--mock", text(&wrong)]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("/cal: there is no node `cal`; did you mean `call`?"),
        "{refused:?}"
    );
    let missing = fermata(&["run", text(&file), "--mock", "none.json"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
}
