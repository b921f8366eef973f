//! `fermata dev` from outside: the examples, folders that are republished on change, lines about runs, `--reset`.

use crate::support::{Process, Server, eventually, folder, text, write};
use serde_json::{Value, json};

fn echo(id: &str, says: &str) -> String {
    json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "says": says } } ] })
    .to_string()
}

#[tokio::test]
async fn examples_are_published_and_run_once() {
    let folder = folder();
    let mut server = Server::dev(folder.path(), &[]);
    assert!(server.ready.contains("data in .fermata/dev.db"), "{}", server.ready);
    for piece in [
        "/api/v1/workflows/onboard-project/execute",
        "/api/v1/workflows/checkout-flow/trigger",
        "http://playground.localhost/",
        "fermata run",
        "workflows start onboard-project --wait",
        "a schedule starts heartbeat, next at",
        " starts incoming",
        "Ctrl-C",
        "--reset",
    ] {
        server.process().wait_for_line(piece);
    }
    server.process().wait_for_line("23 of 23 sample runs succeeded");
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
        "score_routing",
    ] {
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
    for workflow in workflows {
        assert_eq!(workflow["status"], "Active", "{workflow}");
        let id = workflow["id"].as_str().unwrap();
        if ["expense-approval", "refund_approval", "user_onboarding"].contains(&id) {
            continue; // they wait for answers
        }
        if id == "heartbeat" {
            continue; // its schedule may have started another run just now
        }
        let (_, runs) = server.get(&format!("/api/v1/executions?workflowId={id}")).await;
        assert_eq!(runs["items"][0]["status"], "Succeeded", "{runs}");
    }
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());

    // Another start finds what the first one did.
    let server = Server::dev(folder.path(), &[]);
    server.process().wait_for_line("Ctrl-C");
    let (_, runs) = server.get("/api/v1/executions").await;
    assert_eq!(samples(&runs), 22, "{runs}");
}

/// The runs that no other run started, without those of the workflow that a schedule starts every minute.
fn samples(runs: &Value) -> usize {
    let runs = runs["items"].as_array().unwrap().iter();
    runs.filter(|run| run["parentExecutionId"].is_null() && run["workflowId"] != "heartbeat")
        .count()
}

#[tokio::test]
async fn archived_example_stays_archived() {
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
async fn reset_is_refused_while_the_database_is_in_use() {
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
    assert_eq!(samples(&runs), 22, "{runs}");

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
async fn folder_is_published_again_on_change() {
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
        .wait_for_line("order.json has errors; order keeps its current version");
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
        .wait_for_line("order.json was deleted; the workflow order stays published");
    server.process().wait_for_line("published twin.json as version 4");
    eventually("the twin", || async {
        (says(&server, "order").await == "I am order too").then_some(())
    })
    .await;

    std::fs::remove_file(documents.path().join("sub/other.json")).unwrap();
    server
        .process()
        .wait_for_line("sub/other.json was deleted; the workflow other stays published");
    assert_eq!(says(&server, "other").await, "x");
    write(&documents, "new.yaml", echo("new", "new"));
    server.process().wait_for_line("published new.yaml as version 1");
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
}

#[test]
fn missing_folder_is_refused() {
    let data = folder();
    let refused = Process::start_in(data.path(), &["dev", "nowhere"], &[], "").output();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("nowhere is not a folder"), "{}", refused.stderr);
}

#[tokio::test]
async fn runs_are_shown_as_they_start_and_end() {
    let (data, documents) = (folder(), folder());
    write(&documents, "order.json", echo("order", "one"));
    let failing = json!({ "id": "fails", "displayName": "F", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.fail", "parameters": { "message": "out of stock" } } ] });
    write(&documents, "fails.json", failing.to_string());
    let sleeps = json!({ "id": "sleeps", "displayName": "S", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.delay", "parameters": { "durationMs": 600_000 } } ] });
    write(&documents, "sleeps.json", sleeps.to_string());
    let handled = json!({ "id": "handled", "displayName": "H", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.fail", "onFailure": "b" }, { "id": "b", "actionType": "core.fail", "onFailure": "c" },
        { "id": "c", "actionType": "core.echo" } ] });
    write(&documents, "handled.json", handled.to_string());
    let server = Server::dev(data.path(), &[text(documents.path())]);
    let id = server.execute("order", &json!({})).await;
    let started = server.process().wait_for_line("→ order  started");
    let ended = server.process().wait_for_line("✓ order  succeeded after");
    assert!(started.ends_with(&id) && ended.ends_with(&id), "{started} {ended}");
    let id = server.execute("fails", &json!({})).await;
    let ended = server.process().wait_for_line("✗ fails  failed after");
    assert!(
        ended.contains(" at a  ") && ended.contains(&id) && ended.ends_with("out of stock"),
        "{ended}"
    );
    let id = server.execute("handled", &json!({})).await;
    let ended = server.process().wait_for_line("✓ handled  succeeded after");
    assert!(ended.ends_with(&format!("; 2 tasks failed  {id}")), "{ended}");
    let id = server.execute("sleeps", &json!({})).await;
    server.process().wait_for_line("→ sleeps  started");
    let cancel = format!("/api/v1/executions/{id}/cancel");
    server.post(&cancel, &json!({ "reason": "ordered twice" })).await;
    let ended = server.process().wait_for_line("✗ sleeps  was cancelled after");
    assert!(ended.contains(&id), "{ended}");
}

/// Under load most lines are left out and counted.
#[tokio::test]
async fn only_some_of_many_runs_are_shown() {
    let (data, documents) = (folder(), folder());
    write(&documents, "order.json", echo("order", "one"));
    let server = Server::dev(data.path(), &[text(documents.path())]);
    let none = json!({});
    futures::future::join_all((0..150).map(|_| server.execute("order", &none))).await;
    let line = server.process().wait_for_line("more runs started or ended");
    assert!(line.starts_with("… "), "{line}");
}

/// A document that can be published, but is probably not what was meant.
#[tokio::test]
async fn warnings_are_printed_as_validate_prints_them() {
    let (data, documents) = (folder(), folder());
    let odd = json!({ "name": "odd", "tasks": {
        "a": { "url": "http://playground.localhost/echo/a", "timeout": 5 } } });
    let path = write(&documents, "odd.json", odd.to_string());
    let checked = Process::start(&["validate", text(&path)], &[], "").output();
    let warning = checked.stdout.lines().next().expect("a warning").to_owned();
    assert!(warning.starts_with("warning["), "{checked:?}");
    let server = Server::dev(data.path(), &[text(documents.path())]);
    server.process().wait_for_line("published odd.json as version 1");
    assert!(server.process().log().contains(&warning), "{}", server.process().log());
}

/// The lines that `dev` prints for a folder can be copied into a shell and succeed.
#[tokio::test]
async fn lines_to_try_work_for_a_folder_of_the_user() {
    let (data, documents) = (folder(), folder());
    let order = json!({ "id": "order", "displayName": "O", "startNode": "a",
        "triggerSchema": { "type": "object", "required": ["id"], "properties": { "id": { "type": "integer", "minimum": 3 } } },
        "nodes": [{ "id": "a", "actionType": "core.echo", "parameters": { "id": "{{ trigger.id }}" } }] });
    write(&documents, "order.json", order.to_string());
    let server = Server::dev(data.path(), &[text(documents.path())]);
    server.process().wait_for_line("Ctrl-C stops the server");
    let log = server.process().log();
    let (_, tries) = log.split_once("\nTry:\n").expect("lines to try");
    let lines: Vec<&str> = tries.lines().take_while(|line| line.starts_with("  ")).collect();
    assert_eq!(lines.len(), 4, "{log}");
    for line in lines.iter().filter(|line| !line.contains("curl")) {
        let ran = std::process::Command::new("sh")
            .args(["-c", line])
            .output()
            .expect("a shell");
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{line}: {ran:?}");
        let expected = if line.contains(" list") { "order@1" } else { "\"id\": 3" };
        assert!(shown.contains(expected), "{line}: {shown}");
    }
    let curl = lines
        .iter()
        .find(|line| line.contains("curl"))
        .expect("a line with curl");
    assert!(curl.contains("/workflows/order/execute?wait=30s"), "{curl}");
}
