//! `fermata workflows start`, `publish FOLDER`, `versions`, `rollback` and the changes of state, against a real server.

use crate::support::{Output, Process, Server, folder, text, write};
use serde_json::{Value, json};

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

fn echo(id: &str, says: &str) -> Value {
    json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "says": says, "to": "{{ trigger.name ?? 'all' }}" } } ] })
}

#[tokio::test]
async fn start_takes_input_and_waits_for_the_end() {
    let server = Server::start(&[]);
    server.publish(&echo("hello", "hi")).await;
    let started = at(&server, &["workflows", "start", "hello", "--input", "name=Ada"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let id = started.stdout.trim();
    assert_eq!(server.ended(id).await["outputs"], json!({ "says": "hi", "to": "Ada" }));

    let waited = at(
        &server,
        &["workflows", "start", "hello", "--input", "name=Bob", "--wait"],
    );
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(waited.json(), json!({ "says": "hi", "to": "Bob" }));
    assert!(waited.stderr.contains("✓ succeeded  a"), "{}", waited.stderr);
    let json = at(&server, &["workflows", "start", "hello", "--wait", "--json"]);
    assert_eq!(json.json()["status"], "Succeeded", "{json:?}");

    // The same request id is the same run.
    let arguments = ["workflows", "start", "hello", "--request-id", "once"];
    let (first, second) = (at(&server, &arguments), at(&server, &arguments));
    assert_eq!(first.stdout, second.stdout, "{first:?} {second:?}");

    let failing = json!({ "id": "fails", "displayName": "F", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.fail", "parameters": { "message": "out of stock" } } ] });
    server.publish(&failing).await;
    let failed = at(&server, &["workflows", "start", "fails", "--wait"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""), "{failed:?}");
    assert!(failed.stderr.contains("out of stock"), "{}", failed.stderr);
}

#[tokio::test]
async fn workflows_are_disabled_archived_and_brought_back() {
    let server = Server::start(&[]);
    server.publish(&echo("hello", "hi")).await;
    for (step, printed) in [
        ("disable", "hello is disabled\n"),
        ("enable", "hello is enabled\n"),
        ("archive", "hello is Archived\n"),
        ("reactivate", "hello is Active\n"),
    ] {
        let done = at(&server, &["workflows", step, "hello"]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), printed), "{done:?}");
    }
    at(&server, &["workflows", "disable", "hello"]);
    let refused = at(&server, &["workflows", "start", "hello"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("WORKFLOW_NOT_ACTIVE"), "{}", refused.stderr);
    let json = at(&server, &["workflows", "enable", "hello", "-o", "json"]);
    assert_eq!(json.json()["isEnabled"], true, "{json:?}");
}

#[tokio::test]
async fn rollback_activates_an_older_version() {
    let server = Server::start(&[]);
    let data = folder();
    for says in ["one", "two", "three"] {
        let file = write(&data, "hello.json", echo("hello", says).to_string());
        assert_eq!(at(&server, &["workflows", "publish", text(&file)]).code, Some(0));
    }
    let says = || at(&server, &["workflows", "start", "hello", "--wait"]).json()["says"].clone();
    let listed = at(&server, &["workflows", "versions", "hello"]);
    let rows: Vec<Vec<&str>> = listed
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!((rows.len(), &rows[1][..2]), (4, &["3", "current"][..]), "{listed:?}");

    let rolled = at(&server, &["workflows", "rollback", "hello"]);
    assert_eq!(
        (rolled.code, rolled.stdout.as_str()),
        (Some(0), "hello uses version 2 now, instead of 3\n"),
        "{rolled:?}"
    );
    assert_eq!(says(), "two");
    let rolled = at(&server, &["workflows", "rollback", "hello", "--to", "1"]);
    assert_eq!(rolled.code, Some(0), "{rolled:?}");
    assert_eq!(says(), "one");
    let oldest = at(&server, &["workflows", "rollback", "hello"]);
    assert!(
        oldest.code == Some(2) && oldest.stderr.contains("has no version before 1"),
        "{oldest:?}"
    );
    let missing = at(&server, &["workflows", "rollback", "hello", "--to", "9"]);
    assert!(
        missing.code == Some(1) && missing.stderr.contains("VERSION_NOT_FOUND"),
        "{missing:?}"
    );
    // Forwards too, and the number may stand alone.
    let rolled = at(&server, &["workflows", "rollback", "hello", "3"]);
    assert_eq!(
        (rolled.code, rolled.stdout.as_str()),
        (Some(0), "hello uses version 3 now, instead of 1\n"),
        "{rolled:?}"
    );
    assert_eq!(says(), "three");
    // By the uid too.
    let listed = at(&server, &["workflows", "list", "-o", "json"]).json();
    let uid = listed["items"][0]["uid"].as_str().expect("a uid");
    let versions = at(&server, &["workflows", "versions", uid, "-o", "json"]);
    assert_eq!(versions.json()["currentVersion"], 3, "{versions:?}");
    let rolled = at(&server, &["workflows", "rollback", uid]);
    assert!(
        rolled.stdout.ends_with("uses version 2 now, instead of 3\n"),
        "{rolled:?}"
    );
    let both = at(&server, &["workflows", "rollback", "hello", "3", "--to", "2"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[tokio::test]
async fn every_good_document_of_a_folder_is_published() {
    let server = Server::start(&[]);
    let data = folder();
    write(&data, "a.json", echo("a", "x").to_string());
    write(&data, "sub/b.json", echo("b", "x").to_string());
    write(&data, "notes.txt", "no document");
    let all = at(&server, &["workflows", "publish", text(data.path())]);
    assert_eq!(
        (all.code, all.stdout.as_str()),
        (Some(0), "published a as version 1\npublished b as version 1\n"),
        "{all:?}"
    );
    write(
        &data,
        "broken.json",
        echo("c", "x").to_string().replace("core.echo", "core.ehco"),
    );
    write(&data, "sub/b.json", echo("b", "y").to_string());
    let some = at(&server, &["workflows", "publish", text(data.path())]);
    assert_eq!(some.code, Some(2), "{some:?}");
    assert!(
        some.stdout.contains("a is unchanged") && some.stdout.contains("published b as version 2"),
        "{some:?}"
    );
    assert!(
        some.stderr.contains("1 of 3 documents") && some.stderr.contains("UNKNOWN_ACTION"),
        "{some:?}"
    );
    // A refusal of the server concerns one document too. `a` is the first one.
    at(&server, &["workflows", "archive", "a"]);
    write(&data, "sub/b.json", echo("b", "z").to_string());
    let some = at(&server, &["workflows", "publish", text(data.path())]);
    assert_eq!(some.code, Some(2), "{some:?}");
    assert_eq!(some.stdout, "published b as version 3\n", "{some:?}");
    for piece in ["a.json is not published: ", "2 of 3 documents"] {
        assert!(some.stderr.contains(piece), "{piece}: {some:?}");
    }
    let empty = folder();
    let none = at(&server, &["workflows", "publish", text(empty.path())]);
    assert_eq!(none.code, Some(2), "{none:?}");
}
