//! `fermata validate` from outside.

use crate::support::{Process, fermata, folder, text, write};
use std::path::Path;

const GOOD: &str = r#"{ "id": "good", "displayName": "Good", "startNode": "a",
  "nodes": [{ "id": "a", "actionType": "core.echo" }] }"#;
const BAD: &str = r#"{ "id": "bad", "displayName": "Bad", "startNode": "a", "nodes": [
  { "id": "a", "actionType": "core.ehco", "edges": [{ "targetNode": "bb" }] },
  { "id": "b", "actionType": "core.echo" } ] }"#;

#[test]
fn all_problems_of_all_files_are_reported() {
    let folder = folder();
    write(&folder, "one/good.json", GOOD);
    write(&folder, "one/two/bad.json", BAD);
    write(&folder, "one/broken.yaml", "id: [");
    write(&folder, "one/.hidden.json", "{");
    write(&folder, "one/notes.txt", "{");
    let checked = fermata(&["validate", text(folder.path())]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for piece in [
        "UNKNOWN_ACTION",
        "did you mean `core.echo`?",
        "UNKNOWN_NODE",
        "bad.json:2:",
        "broken.yaml:1:",
    ] {
        assert!(checked.stdout.contains(piece), "{piece}: {}", checked.stdout);
    }
    let summary = checked.stdout.lines().last().unwrap();
    assert!(summary.starts_with("3 files: 1 valid, 2 with "), "{summary}");
    assert!(!checked.stdout.contains('\x1b'));
}

#[test]
fn json_output_lists_problems() {
    let folder = folder();
    let (good, bad) = (write(&folder, "good.json", GOOD), write(&folder, "bad.json", BAD));
    let checked = fermata(&["validate", "--json", text(&good), text(&bad), "/nowhere.json"]);
    assert_eq!(checked.code, Some(2));
    let answer = checked.json();
    assert_eq!(answer["valid"], false);
    assert_eq!(answer["files"][0]["valid"], true);
    assert_eq!(answer["files"][0]["workflowId"], "good");
    assert_eq!(answer["files"][1]["problems"][0]["code"], "UNKNOWN_ACTION");
    assert_eq!(answer["files"][1]["problems"][0]["line"], 2);
    assert_eq!(answer["files"][2]["problems"][0]["code"], "UNREADABLE");
}

#[test]
fn valid_document_from_stdin_exits_with_0() {
    let checked = Process::start(&["validate", "-"], &[], GOOD).output();
    assert_eq!((checked.code, checked.stdout.as_str()), (Some(0), "1 file: 1 valid\n"));
    assert_eq!(fermata(&["validate"]).code, Some(2));
    let empty = folder();
    let checked = fermata(&["validate", text(empty.path())]);
    assert_eq!(checked.code, Some(2));
    assert!(checked.stderr.contains("there is no document"), "{checked:?}");
}

/// Mocks of dry runs, which lie beside their documents, are left out.
#[test]
fn examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let checked = fermata(&["validate", text(&examples)]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn configured_limits_apply() {
    let folder = folder();
    let bad = write(&folder, "bad.json", BAD);
    let config = write(&folder, "fermata.toml", "[limits]\nmax_nodes_per_workflow = 1\n");
    let checked = fermata(&["validate", text(&bad), "--config", text(&config)]);
    assert!(checked.stdout.contains("TOO_MANY_NODES"), "{}", checked.stdout);
    let config = write(&folder, "fermata.toml", "[limits]\nmax_nodes = 1\n");
    let checked = fermata(&["validate", text(&bad), "--config", text(&config)]);
    assert_eq!(checked.code, Some(2));
    assert!(
        checked
            .stderr
            .contains("fermata.toml:2: unknown key `limits.max_nodes`"),
        "{checked:?}"
    );
}
