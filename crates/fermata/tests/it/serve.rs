//! `fermata serve` from outside: starting, answering, stopping, starting again.

use crate::support::{Process, Server, Signal, eventually, fermata, folder, text, write};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn echo() -> Value {
    json!({ "id": "echo", "displayName": "Echo", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "got": "{{ trigger.n }}" } } ] })
}

fn pause(millis: u64) -> Value {
    json!({ "id": "pause", "displayName": "Pause", "startNode": "before", "nodes": [
        { "id": "before", "actionType": "core.echo", "edges": [{ "targetNode": "pause" }] },
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": millis },
          "edges": [{ "targetNode": "after" }] },
        { "id": "after", "actionType": "core.echo", "parameters": { "done": true } } ] })
}

/// Calls a service of the test and then ends.
fn call(url: &str) -> Value {
    json!({ "id": "call", "displayName": "Call", "startNode": "call", "nodes": [
        { "id": "call", "actionType": "http.request", "parameters": { "url": url },
          "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1 } },
          "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo", "parameters": { "status": "{{ context.data.call.status }}" } } ] })
}

async fn service() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

/// The next request, read up to the end of its head.
async fn request(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream
}

async fn say_ok(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    stream.write_all(answer).await.unwrap();
}

#[tokio::test]
async fn server_answers_and_stops_on_a_signal() {
    let mut server = Server::start(&[]);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        server
            .ready
            .starts_with(&format!("fermata {version} listening on http://127.0.0.1:"))
    );
    assert!(
        server.ready.contains(", data in ") && server.ready.ends_with(" ms"),
        "{}",
        server.ready
    );
    assert_eq!(server.get("/health/ready").await.0, 200);
    server.publish(&echo()).await;
    let (status, run) = server
        .post(
            "/api/v1/workflows/echo/execute?wait=30s",
            &json!({ "trigger": { "n": 7 } }),
        )
        .await;
    assert_eq!(
        (status, &run["status"], &run["outputs"]),
        (200, &json!("Succeeded"), &json!({ "got": 7 })),
        "{run}"
    );
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
}

#[tokio::test]
async fn sleeping_run_continues_after_a_restart() {
    let mut server = Server::start(&[]);
    server.publish(&pause(1500)).await;
    server.publish(&echo()).await;
    let sleeping = server.execute("pause", &json!({})).await;
    let over = server.execute("echo", &json!({ "trigger": { "n": 1 } })).await;
    server.ended(&over).await;
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
    server.restart();
    assert_eq!(server.execution(&over).await["status"], "Succeeded");
    let run = server.ended(&sleeping).await;
    assert_eq!(
        (&run["status"], &run["outputs"]),
        (&json!("Succeeded"), &json!({ "done": true })),
        "{run}"
    );
}

#[tokio::test]
async fn run_continues_after_a_crash() {
    let (service, url) = service().await;
    let mut server = Server::start(&[]);
    server.publish(&call(&url)).await;
    let id = server.execute("call", &json!({})).await;
    let unanswered = request(&service).await;
    server.kill9();
    drop(unanswered);
    server.restart();
    say_ok(request(&service).await).await;
    let run = server.ended(&id).await;
    assert_eq!(
        (&run["status"], &run["outputs"]),
        (&json!("Succeeded"), &json!({ "status": 200 })),
        "{run}"
    );
}

#[tokio::test]
async fn running_action_may_finish_before_the_exit() {
    let (service, url) = service().await;
    let mut server = Server::start(&[]);
    server.publish(&call(&url)).await;
    let id = server.execute("call", &json!({})).await;
    let stream = request(&service).await;
    server.process().signal(Signal::TERM);
    server.process().wait_for_line("stopping");
    say_ok(stream).await;
    assert_eq!(server.wait(), Some(0), "{}", server.process().log());
    server.restart();
    // The service answers no more: the run succeeds only if the first answer was recorded.
    drop(service);
    let run = server.ended(&id).await;
    assert_eq!(
        (&run["status"], &run["outputs"]),
        (&json!("Succeeded"), &json!({ "status": 200 })),
        "{run}"
    );
}

#[tokio::test]
async fn second_signal_ends_the_process_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (service, url) = service().await;
        let mut server = Server::start(&[]);
        server.publish(&call(&url)).await;
        server.execute("call", &json!({})).await;
        let _unanswered = request(&service).await;
        server.process().signal(signal);
        server.process().wait_for_line("stopping");
        server.process().signal(signal);
        assert_eq!(server.wait(), Some(code), "{}", server.process().log());
    }
}

#[tokio::test]
async fn action_is_stopped_after_the_grace_period() {
    let (service, url) = service().await;
    let grace = [("FERMATA_ORCHESTRATION__SHUTDOWN_GRACE_MS", "50")];
    let mut server = Server::start_with(&[], &grace);
    server.publish(&call(&url)).await;
    let id = server.execute("call", &json!({})).await;
    let unanswered = request(&service).await;
    assert_eq!(server.stop(), Some(0), "{}", server.process().log());
    drop(unanswered);
    server.restart();
    say_ok(request(&service).await).await;
    assert_eq!(server.ended(&id).await["status"], "Succeeded");
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let folder = folder();
    let place = |name: &str| text(&folder.path().join(name)).to_owned();
    let url = |name: &str| format!("sqlite:{}", place(name));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"{}\"\n[log]\nlevel = \"debug\"\n",
        url("file.db")
    );
    let config = write(&folder, "fermata.toml", config);
    let ready = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut all = vec!["serve", "--config", text(&config)];
        all.extend(arguments);
        Process::start(&all, environment, "").wait_for_line("listening on http://127.0.0.1:")
    };
    let by_env = [("FERMATA_DATABASE__URL", &*url("env.db"))];
    assert!(ready(&[], &[]).contains(&place("file.db")));
    assert!(ready(&[], &by_env).contains(&place("env.db")));
    assert!(ready(&["--database", &url("flag.db")], &by_env).contains(&place("flag.db")));
}

#[tokio::test]
async fn logs_can_be_json() {
    let mut server = Server::start_with(&[], &[("FERMATA_LOG__FORMAT", "json")]);
    assert_eq!(server.stop(), Some(0));
    for line in server.process().log().lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

/// A start that fails says why in one line, without passwords.
fn is_refused(arguments: &[&str], code: i32, says: &str) {
    let ended = fermata(&[&["serve"], arguments].concat());
    assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with("fermata: ") && !ended.stderr.contains("secret"),
        "{}",
        ended.stderr
    );
}

#[test]
fn failed_start_is_one_clear_line() {
    let folder = folder();
    let server = Server::start(&[]);
    let address = server.url.trim_start_matches("http://");
    let config = write(&folder, "bad.toml", "[server]\nlissten = \"x\"\n");
    let in_use = "is in use by another process; stop it first";
    is_refused(&["--listen", address], 1, in_use);
    for (arguments, says) in [
        (&["--listen", "nonsense"], "`nonsense` is not an address"),
        (
            &["--database", "postgres://a:secret@b:c/d"],
            "invalid value for option `port`",
        ),
        (
            &["--config", text(&config)],
            "bad.toml:2: unknown key `server.lissten`; did you mean",
        ),
        (&["--config", "/nowhere.toml"], "/nowhere.toml cannot be read"),
    ] {
        is_refused(arguments, 2, says);
    }
    assert_eq!(fermata(&["serve", "--lissten", "x"]).code, Some(2));
}

#[test]
fn sqlite_files_that_cannot_be_used_are_refused() {
    let folder = folder();
    let url = |name: &str| format!("sqlite:{}", text(&folder.path().join(name)));
    let server = Server::start(&["--database", &url("held.db")]);
    let damaged = [b"SQLite format 3\0".as_slice(), &[7; 4096]].concat();
    write(&folder, "damaged.db", damaged);
    write(&folder, "text.db", "this is text, not a database".repeat(100));
    let other = rusqlite::Connection::open(folder.path().join("other.db")).unwrap();
    other
        .execute_batch("CREATE TABLE t (x); PRAGMA application_id = 42;")
        .unwrap();
    drop(other);
    let holder = format!("(process {})", server.process().id());
    for (name, says) in [
        ("held.db", holder.as_str()),
        ("damaged.db", "damaged.db cannot be used"),
        ("text.db", "file is not a database"),
        ("other.db", "the database of another application"),
        ("", "it is a folder"),
        ("text.db/x/f.db", "cannot be opened"),
    ] {
        is_refused(&["--listen", "127.0.0.1:0", "--database", &url(name)], 1, says);
    }
}

#[tokio::test]
async fn database_lock_is_free_after_a_crash() {
    let mut server = Server::start(&[]);
    server.publish(&echo()).await;
    server.kill9();
    server.restart();
    let id = server.execute("echo", &json!({ "trigger": { "n": 1 } })).await;
    let seen = eventually("an end", || async {
        let run = server.execution(&id).await;
        (run["status"] == "Succeeded").then_some(run)
    });
    assert_eq!(seen.await["outputs"], json!({ "got": 1 }));
}
