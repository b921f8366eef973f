//! `fermata dev` from outside: examples that ran, folders that are followed, data that can be thrown away.

use crate::support::{Process, Server, eventually, folder, text, write};
use serde_json::{Value, json};

fn echo(id: &str, says: &str) -> String {
    json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "says": says } } ] })
    .to_string()
}

#[tokio::test]
async fn the_examples_are_published_and_have_run() {
    let folder = folder();
    let mut server = Server::dev(folder.path(), &[]);
    assert!(server.ready.contains("data in .fermata/dev.db"), "{}", server.ready);
    for piece in [
        "/api/v1/workflows/onboard-project/execute",
        "/api/v1/workflows/checkout-flow/trigger",
        "http://playground.localhost/",
        "fermata run",
        "Ctrl-C",
        "--reset",
    ] {
        server.process().wait_for_line(piece);
    }
    server.process().wait_for_line("11 of 11 sample runs succeeded");
    let (_, workflows) = server.get("/api/v1/workflows").await;
    let workflows = workflows["items"].as_array().unwrap();
    let ids: Vec<&str> = workflows
        .iter()
        .map(|workflow| workflow["id"].as_str().unwrap())
        .collect();
    for id in [
        "status-report",
        "onboard-project",
        "fanout-fanin",
        "retry-demo",
        "http-fallback",
        "reminder",
        "order-processing",
        "trial-expiry",
        "checkout-flow",
        "api-example",
        "flaky-service",
    ] {
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
    for workflow in workflows {
        assert_eq!(workflow["status"], "Active", "{workflow}");
        let id = workflow["id"].as_str().unwrap();
        let (_, runs) = server.get(&format!("/api/v1/executions?workflowId={id}")).await;
        assert_eq!(runs["items"][0]["status"], "Succeeded", "{runs}");
    }
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());

    // Another start finds what the first one did.
    let server = Server::dev(folder.path(), &[]);
    server.process().wait_for_line("Ctrl-C");
    let (_, runs) = server.get("/api/v1/executions").await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 11, "{runs}");
}

#[tokio::test]
async fn an_example_that_was_archived_stays_so() {
    let folder = folder();
    let mut server = Server::dev(folder.path(), &[]);
    let (status, _) = server
        .post("/api/v1/workflows/order-processing/archive", &Value::Null)
        .await;
    assert_eq!(status, 200);
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
    let server = Server::dev(folder.path(), &[]);
    assert!(
        server
            .process()
            .log()
            .contains("runlater/order-processing.json is not run: workflow `order-processing` is Archived"),
        "{}",
        server.process().log()
    );
}

#[tokio::test]
async fn a_reset_needs_a_database_that_nobody_uses() {
    let folder = folder();
    let mut server = Server::dev(folder.path(), &[]);
    let held = Process::start_in(folder.path(), &["dev", "--reset", "--listen", "127.0.0.1:0"], &[], "").output();
    assert_eq!(held.code, Some(1), "{held:?}");
    assert!(held.stderr.contains("in use"), "{}", held.stderr);
    server.execute("fanout-fanin", &json!({})).await;
    server.kill9();
    let server = Server::dev(folder.path(), &["--reset"]);
    assert!(server.process().log().contains("deleted .fermata/dev.db"));
    let (_, runs) = server.get("/api/v1/executions").await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 11, "{runs}");

    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    let database = format!("sqlite:{}", text(&other));
    let refused = Process::start(&["dev", "--reset", "--database", &database], &[], "").output();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("another application") && other.exists(),
        "{}",
        refused.stderr
    );
}

async fn says(server: &Server, workflow: &str) -> Value {
    let (_, run) = server
        .post(&format!("/api/v1/workflows/{workflow}/execute?wait=30s"), &json!({}))
        .await;
    run["outputs"]["says"].clone()
}

#[tokio::test]
async fn a_folder_is_published_again_at_every_change() {
    let (data, documents) = (folder(), folder());
    write(&documents, "order.json", echo("order", "one"));
    write(&documents, "sub/other.json", echo("other", "x"));
    let mut server = Server::dev(data.path(), &[text(documents.path())]);
    server.process().wait_for_line("workflows  order, other");
    assert_eq!(says(&server, "order").await, "one");

    write(&documents, "order.json", echo("order", "two, longer"));
    server.process().wait_for_line("republished order.json as version 2");
    assert_eq!(says(&server, "order").await, "two, longer");

    // A broken edit is located, and the last good version stays.
    write(
        &documents,
        "order.json",
        echo("order", "three").replace("core.echo", "core.ehco"),
    );
    server.process().wait_for_line("UNKNOWN_ACTION");
    server.process().wait_for_line("--> order.json:1:");
    server
        .process()
        .wait_for_line("order.json has errors; order stays as it was");
    assert_eq!(says(&server, "order").await, "two, longer");
    write(&documents, "order.json", echo("order", "four"));
    server.process().wait_for_line("republished order.json as version 3");

    write(&documents, "twin.json", echo("order", "I am order too"));
    server
        .process()
        .wait_for_line("twin.json has the same id as order.json (order); it is not published");
    assert_eq!(says(&server, "order").await, "four");

    // The twin takes over when the first is gone.
    std::fs::remove_file(documents.path().join("order.json")).unwrap();
    server
        .process()
        .wait_for_line("order.json is gone; the workflow order stays as it is");
    server.process().wait_for_line("published twin.json as version 4");
    eventually("the twin", || async {
        (says(&server, "order").await == "I am order too").then_some(())
    })
    .await;

    std::fs::remove_file(documents.path().join("sub/other.json")).unwrap();
    server
        .process()
        .wait_for_line("sub/other.json is gone; the workflow other stays as it is");
    assert_eq!(says(&server, "other").await, "x");
    write(&documents, "new.yaml", echo("new", "new"));
    server.process().wait_for_line("published new.yaml as version 1");
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
}

#[test]
fn a_folder_must_be_there() {
    let data = folder();
    let refused = Process::start_in(data.path(), &["dev", "nowhere"], &[], "").output();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("nowhere is not a folder"), "{}", refused.stderr);
}
