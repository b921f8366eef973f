//! `fermata graph`, `schema` and `completions` from outside.

use crate::support::{Process, fermata, folder, text, write};
use std::path::Path;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dataworkflows");
    text(&folder.join(name)).to_owned()
}

#[test]
fn documents_are_drawn_in_mermaid_and_dot() {
    let drawn = fermata(&["graph", &example("onboard-project.json")]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    for piece in [
        "flowchart TD",
        "n0[\"get-item<br/>core.echo\"]",
        "n0 -->|\"context.data['get-item'].items[0].Status === 'Approved'\"| n1",
        "n0 -.->|\"onFailure\"| n3",
    ] {
        assert!(drawn.stdout.contains(piece), "{piece}: {}", drawn.stdout);
    }
    let drawn = fermata(&["graph", &example("reminder.yaml"), "-o", "dot"]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    assert!(drawn.stdout.starts_with("digraph \"reminder\" {"), "{}", drawn.stdout);
    assert!(drawn.stdout.contains("style=rounded"), "{}", drawn.stdout);
}

#[test]
fn graph_of_an_invalid_document_is_refused() {
    let folder = folder();
    let broken = write(
        &folder,
        "broken.json",
        r#"{ "id": "x", "startNode": "a", "nodes": [] }"#,
    );
    let drawn = fermata(&["graph", text(&broken)]);
    assert_eq!((drawn.code, drawn.stdout.as_str()), (Some(2), ""), "{drawn:?}");
    assert!(drawn.stderr.contains("broken.json:1:"), "{}", drawn.stderr);
}

#[test]
fn schema_command_prints_the_schema_in_use() {
    let printed = fermata(&["schema"]);
    assert_eq!(printed.code, Some(0));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/dataworkflows.json");
    assert_eq!(printed.stdout, std::fs::read_to_string(file).unwrap());
    assert_eq!(fermata(&["schema", "dataworkflows"]).stdout, printed.stdout);
    let jsondagapi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/jsondagapi.json");
    assert_eq!(
        fermata(&["schema", "jsondagapi"]).stdout,
        std::fs::read_to_string(jsondagapi).unwrap()
    );
    let runlater = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/runlater.json");
    assert_eq!(
        fermata(&["schema", "runlater"]).stdout,
        std::fs::read_to_string(runlater).unwrap()
    );
    assert_eq!(fermata(&["schema", "cobol"]).code, Some(2));
}

#[test]
fn completions_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = fermata(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{script:?}");
        assert!(script.stdout.contains("executions"), "{shell}: {}", script.stdout);
    }
    // A shell that closes the pipe early is no failure.
    assert_eq!(Process::start(&["completions", "bash"], &[], "").output().code, Some(0));
}
