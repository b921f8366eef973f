//! `fermata executions` and `fermata workflows` against a real server, and against none.

use crate::support::{Output, Process, Server, Signal, fermata, folder, text, write};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const ORDER: &str = r#"{ "id": "order", "displayName": "Order", "startNode": "a", "nodes": [
  { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n ?? 1 }}" }, "edges": [
    { "targetNode": "b", "condition": "trigger.n > 1" }, { "targetNode": "c" } ] },
  { "id": "b", "actionType": "core.fail", "parameters": { "message": "no stock", "retriable": true },
    "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1 } } },
  { "id": "c", "actionType": "core.echo", "parameters": { "done": true } } ] }"#;

const LONG: &str = r#"{ "id": "long", "displayName": "Long", "startNode": "first", "nodes": [
  { "id": "first", "actionType": "core.echo", "edges": [{ "targetNode": "pause" }] },
  { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 3000000 } } ] }"#;

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

#[tokio::test]
async fn documents_are_published_listed_and_shown() {
    let folder = folder();
    let server = Server::start(&[]);
    let file = write(&folder, "order.json", ORDER);
    let published = at(&server, &["workflows", "publish", text(&file)]);
    assert_eq!(
        (published.code, published.stdout.as_str()),
        (Some(0), "published order as version 1\n"),
        "{published:?}"
    );
    // The server's problems are drawn where they stand.
    let broken = write(
        &folder,
        "broken.json",
        ORDER.replace("core.fail", "core.fial").replace("\"c\" }", "\"cc\" }"),
    );
    let refused = at(&server, &["workflows", "publish", text(&broken)]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    for piece in [
        "error[UNKNOWN_NODE]",
        "broken.json:3:",
        "^^^^",
        "help: did you mean `core.fail`?",
        "is not published",
    ] {
        assert!(refused.stderr.contains(piece), "{piece}: {}", refused.stderr);
    }

    // Nothing is left of what could not be published: no draft beside the version, no new workflow.
    let unknown_action = ORDER.replace("core.fail", "core.fial");
    let broken = write(&folder, "broken.json", &unknown_action);
    assert_eq!(at(&server, &["workflows", "publish", text(&broken)]).code, Some(2));
    let (status, answer) = server.get("/api/v1/workflows/order/draft").await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (404, &json!("NO_DRAFT")),
        "{answer}"
    );
    let new = write(&folder, "new.json", unknown_action.replace("\"order\"", "\"new\""));
    let refused = at(&server, &["workflows", "publish", text(&new)]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("is not published"),
        "{refused:?}"
    );
    assert_eq!(server.get("/api/v1/workflows/new").await.0, 404);

    let listed = at(&server, &["workflows", "list", "--status", "Active"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    assert!(listed.stdout.contains("order  Active  1"), "{}", listed.stdout);
    let shown = at(&server, &["workflows", "get", "order", "-o", "json"]);
    assert_eq!(shown.json()["currentVersion"], 1);
    let document = at(
        &server,
        &["workflows", "get", "order", "--definition", "--version", "1"],
    );
    assert_eq!(document.json()["startNode"], "a");

    let missing = at(&server, &["workflows", "archive", "no/such thing"]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("WORKFLOW_NOT_FOUND (status 404)"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn unchanged_document_makes_no_version_and_archive_works() {
    let folder = folder();
    let server = Server::start(&[]);
    let file = write(&folder, "order.json", ORDER);
    at(&server, &["workflows", "publish", text(&file)]);
    let again = at(&server, &["workflows", "publish", text(&file)]);
    assert!(
        again.stdout.contains("unchanged") && again.stdout.contains("version 1"),
        "{again:?}"
    );
    let changed = write(
        &folder,
        "order.yaml",
        "# with a remark\nid: order\ndisplayName: Order\nstartNode: a\nnodes:\n  - id: a\n    actionType: core.echo\n",
    );
    let published = at(&server, &["workflows", "publish", text(&changed)]);
    assert_eq!(published.stdout, "published order as version 2\n", "{published:?}");

    let document = at(&server, &["workflows", "get", "order", "--definition"]);
    assert!(document.stdout.starts_with("# with a remark"), "{document:?}");
    let archived = at(&server, &["workflows", "archive", "order"]);
    assert_eq!(
        (archived.code, archived.stdout.as_str()),
        (Some(0), "order is Archived\n"),
        "{archived:?}"
    );
}

#[tokio::test]
async fn runs_are_listed_shown_and_cancelled() {
    let server = Server::start(&[]);
    server.publish(&serde_json::from_str(ORDER).unwrap()).await;
    server.publish(&serde_json::from_str(LONG).unwrap()).await;
    for n in 0..5 {
        let id = server.execute("order", &json!({ "trigger": { "n": n } })).await;
        server.ended(&id).await;
    }
    let listed = at(&server, &["executions", "list", "--limit", "2"]);
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");
    assert!(listed.stderr.contains("there are more"), "{listed:?}");
    let failed = at(
        &server,
        &[
            "executions",
            "list",
            "--status",
            "Failed",
            "--workflow",
            "order",
            "--all",
            "-o",
            "json",
        ],
    );
    assert_eq!(failed.json()["items"].as_array().unwrap().len(), 3, "{failed:?}");
    let wrong = at(&server, &["executions", "list", "--status", "Broken"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("INVALID_PARAMETER"), "{wrong:?}");

    let id = failed.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let shown = at(&server, &["executions", "get", &id]);
    assert_eq!(shown.code, Some(0));
    for piece in ["status      Failed", "at b: no stock", "RetriableFailure", "NODE"] {
        assert!(shown.stdout.contains(piece), "{piece}: {}", shown.stdout);
    }

    let id = server.execute("long", &json!({})).await;
    let cancelled = at(&server, &["executions", "cancel", &id, "--reason", "ordered twice"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(server.ended(&id).await["status"], "Cancelled");
    let shown = at(&server, &["executions", "get", &id]);
    assert!(shown.stdout.contains("ordered twice"), "{}", shown.stdout);
}

#[tokio::test]
async fn list_follows_all_pages() {
    let server = Server::start(&[]);
    server.publish(&serde_json::from_str(ORDER).unwrap()).await;
    let nothing = json!({});
    let starts = (0..1050).map(|_| server.execute("order", &nothing));
    futures::future::join_all(starts).await;
    let all = at(&server, &["executions", "list", "--all", "-o", "json"]);
    let all = all.json();
    let ids: std::collections::HashSet<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["id"].to_string())
        .collect();
    assert_eq!((ids.len(), &all["more"]), (1050, &json!(false)));
    let some = at(&server, &["executions", "list", "--limit", "1001", "-o", "json"]);
    assert_eq!(
        (some.json()["items"].as_array().unwrap().len(), &some.json()["more"]),
        (1001, &json!(true))
    );
}

#[tokio::test]
async fn watch_shows_steps_as_run_does() {
    let server = Server::start(&[]);
    server.publish(&serde_json::from_str(ORDER).unwrap()).await;
    server.publish(&serde_json::from_str(LONG).unwrap()).await;
    let id = server.execute("order", &json!({ "trigger": { "n": 1 } })).await;
    let watched = at(&server, &["executions", "watch", &id]);
    assert_eq!(watched.code, Some(0), "{watched:?}");
    for piece in [
        "✓ succeeded  a  core.echo",
        "↷ skipped    b  core.fail",
        "no edge to it was taken: after `a`, the condition `trigger.n > 1` is false: trigger.n is 1",
        "✓ succeeded  c",
        "order succeeded after",
    ] {
        assert!(watched.stderr.contains(piece), "{piece}: {}", watched.stderr);
    }
    assert_eq!(watched.json(), json!({ "done": true }));

    let id = server.execute("order", &json!({ "trigger": { "n": 2 } })).await;
    let watched = at(&server, &["executions", "watch", &id]);
    assert_eq!((watched.code, watched.stdout.as_str()), (Some(1), ""), "{watched:?}");
    for piece in [
        "↻ retrying   b",
        "attempt 1/2",
        "✗ failed     b",
        "order failed after",
        "at b: no stock",
    ] {
        assert!(watched.stderr.contains(piece), "{piece}: {}", watched.stderr);
    }

    // One that is still going on: its steps come as they settle, and its end ends the watching.
    let id = server.execute("long", &json!({})).await;
    let limited = at(&server, &["executions", "watch", &id, "--timeout", "50ms"]);
    assert_eq!(limited.code, Some(3), "{limited:?}");
    let mut watcher = Process::start(&["executions", "watch", &id, "--server", &server.url], &[], "");
    watcher.wait_for_line("✓ succeeded  first");
    server
        .post(&format!("/api/v1/executions/{id}/cancel"), &json!({}))
        .await;
    let watched = watcher.output();
    assert_eq!(watched.code, Some(1), "{watched:?}");
    assert!(watched.stderr.contains("long was cancelled"), "{}", watched.stderr);
    let unknown = at(
        &server,
        &["executions", "watch", "00000000-0000-7000-8000-000000000000"],
    );
    assert!(
        unknown.code == Some(1) && unknown.stderr.contains("EXECUTION_NOT_FOUND"),
        "{unknown:?}"
    );
}

/// A server that is not Fermata and gives one answer.
async fn stranger(answer: &'static str) -> (String, tokio::task::JoinHandle<tokio::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    });
    (url, answering)
}

#[tokio::test]
async fn unreachable_server_is_reported_with_the_remedy() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let ran = fermata(&["executions", "list", "--server", &url]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    for piece in [
        url.as_str(),
        "cannot be reached",
        "connection refused",
        "fermata dev",
        "--server",
    ] {
        assert!(ran.stderr.contains(piece), "{piece}: {}", ran.stderr);
    }
    for wrong in ["ftp://x", "", "http://"] {
        let ran = fermata(&["workflows", "list", "--server", wrong]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("write it like http://127.0.0.1:7070"), "{ran:?}");
    }
    let (url, answering) = stranger("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno").await;
    let mut asking = Process::start(&["workflows", "list", "--server", &url], &[], "");
    let _stream = answering.await.unwrap();
    let ran = tokio::task::spawn_blocking(move || asking.output()).await.unwrap();
    assert!(
        ran.code == Some(1) && ran.stderr.contains("is not a Fermata server"),
        "{ran:?}"
    );
}

/// JSON with status 200 that another program could answer to the same request.
#[tokio::test]
async fn another_json_service_is_recognised() {
    let (url, answering) = stranger("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"items\": []}").await;
    let mut asking = Process::start(&["workflows", "list", "--server", &url], &[], "");
    let _stream = answering.await.unwrap();
    let ran = tokio::task::spawn_blocking(move || asking.output()).await.unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains("is not a Fermata server"), "{ran:?}");
}

#[tokio::test]
async fn server_address_is_taken_as_dev_prints_it() {
    let server = Server::start(&[]);
    let bare = server.url.strip_prefix("http://").unwrap();
    for address in [
        server.url.clone(),
        bare.to_owned(),
        format!("{bare}/"),
        format!("{}/api/v1", server.url),
    ] {
        let listed = fermata(&["workflows", "list", "--server", &address]);
        assert_eq!(listed.code, Some(0), "{address}: {listed:?}");
    }
}

#[tokio::test]
async fn ctrl_c_ends_watch_but_not_the_run() {
    let server = Server::start(&[]);
    server.publish(&serde_json::from_str(LONG).unwrap()).await;
    let id = server.execute("long", &json!({})).await;
    let mut watcher = Process::start(&["executions", "watch", &id, "--server", &server.url], &[], "");
    watcher.wait_for_line("✓ succeeded  first");
    watcher.signal(Signal::INT);
    assert_eq!(watcher.output().code, Some(130));
    assert_eq!(server.execution(&id).await["status"], "Running");
}

/// A step that waits, one that sleeps, one that follows.
const TASKS: &str = r#"# with a remark
name: tasks
description: Two pauses
tasks:
  called: { wait_for_webhook: { timeout: 1h } }
  nap: { sleep: 20ms }
  long: { needs: [nap], sleep: 1h }
  end: { needs: [called, long], sleep: 0 }
"#;

#[tokio::test]
async fn workflows_without_drafts_are_published_shown_and_deleted() {
    let folder = folder();
    let server = Server::start(&[]);
    let file = write(&folder, "tasks.yaml", TASKS);
    for expected in [
        "published tasks as version 1\n",
        "tasks is unchanged: version 1 is the same document\n",
    ] {
        let published = at(&server, &["workflows", "publish", text(&file)]);
        assert_eq!(
            (published.code, published.stdout.as_str()),
            (Some(0), expected),
            "{published:?}"
        );
    }
    let changed = write(&folder, "changed.yaml", TASKS.replace("20ms", "10ms"));
    let published = at(&server, &["workflows", "publish", text(&changed)]);
    assert_eq!(published.stdout, "published tasks as version 2\n", "{published:?}");
    let broken = write(&folder, "broken.yaml", TASKS.replace("[nap]", "[npa]"));
    let refused = at(&server, &["workflows", "publish", text(&broken)]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    for piece in ["broken.yaml:7:", "did you mean `nap`?", "is not published"] {
        assert!(refused.stderr.contains(piece), "{piece}: {}", refused.stderr);
    }

    let listed = at(&server, &["workflows", "list"]);
    assert!(listed.stdout.contains("tasks  Active  2"), "{}", listed.stdout);
    let shown = at(&server, &["workflows", "get", "tasks"]);
    for piece in ["Two pauses", "Active", "runlater", "\nversion 2\n"] {
        assert!(shown.stdout.contains(piece), "{piece}: {}", shown.stdout);
    }
    let document = at(&server, &["workflows", "get", "tasks", "--definition"]);
    assert_eq!(document.stdout.trim_end(), TASKS.replace("20ms", "10ms").trim_end());
    let first = at(
        &server,
        &["workflows", "get", "tasks", "--definition", "--version", "1"],
    );
    assert_eq!(first.stdout.trim_end(), TASKS.trim_end());

    let deleted = at(&server, &["workflows", "delete", "tasks"]);
    assert_eq!(
        (deleted.code, deleted.stdout.as_str()),
        (Some(0), "tasks is deleted\n"),
        "{deleted:?}"
    );
    let gone = at(&server, &["workflows", "delete", "tasks"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("WORKFLOW_NOT_FOUND (status 404)"), "{gone:?}");
    let again = at(&server, &["workflows", "publish", text(&file), "-o", "json"]);
    assert_eq!(again.json()["data"]["name"], "tasks", "{again:?}");
}

#[tokio::test]
async fn get_shows_what_open_steps_wait_for() {
    let folder = folder();
    let server = Server::start(&[]);
    let file = write(&folder, "tasks.yaml", TASKS);
    at(&server, &["workflows", "publish", text(&file)]);
    let id = server.execute("tasks", &json!({})).await;
    let mut watching = Process::start(&["executions", "watch", &id], &[("FERMATA_SERVER", &server.url)], "");
    watching.wait_for_line("⏸ waiting    called  core.wait");
    watching.wait_for_line("✓ succeeded  nap     core.delay");
    watching.wait_for_line("⏸ sleeping   long    core.delay");
    let shown = at(&server, &["executions", "get", &id]);
    let row = |node: &str, now: &str| {
        let line = shown
            .stdout
            .lines()
            .find(|line| line.starts_with(node) && line.contains(now));
        line.unwrap_or_else(|| panic!("{node} {now}: {}", shown.stdout))
            .to_owned()
    };
    let in_an_hour = |row: &str| row.contains("in 59 min") || row.contains("in 1 h");
    assert!(in_an_hour(&row("long", "sleeping")), "{}", shown.stdout);
    let waiting = row("called", "waiting");
    assert!(in_an_hour(&waiting), "{waiting}");
    let (_, url) = waiting
        .split_once("a callback: POST to ")
        .expect("the callback URL is shown");
    assert!(url.starts_with(&format!("{}/wh/", server.url)), "{waiting}");
    let cancelled = at(&server, &["executions", "cancel", &id]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let watched = watching.output();
    assert_eq!(watched.code, Some(1), "{watched:?}");
    assert!(watched.stderr.contains("↷ skipped    called"), "{}", watched.stderr);
    let over = at(&server, &["executions", "get", &id]);
    assert!(!over.stdout.contains("NOW"), "{}", over.stdout);
}
