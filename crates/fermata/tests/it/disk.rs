//! A SQLite file that cannot grow, and one that is taken away, as a server sees them.

use crate::support::{Server, eventually, folder};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

fn echo() -> Value {
    json!({ "id": "echo", "displayName": "Echo", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "got": "{{ trigger.text }}" } } ] })
}

/// Limits the size of the files that a process may write.
fn limit_files(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(server.process().id()).unwrap());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// The process keeps running, is not ready, and is ready again when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_makes_the_server_unready() {
    let data = folder();
    let url = format!("sqlite:{}", data.path().join("fermata.db").display());
    let server = Server::start(&["--database", &url]);
    server.publish(&echo()).await;
    assert_eq!(server.get("/health/ready").await.0, 200);
    // Less than the database has by now.
    limit_files(&server, Some(4096));
    let body = json!({ "trigger": { "text": "x".repeat(100_000) } });
    let (status, answer) = server.post("/api/v1/workflows/echo/execute", &body).await;
    assert!(status >= 500, "{status}: {answer}");
    let (status, answer) = server.get("/health/ready").await;
    assert_eq!(
        (status, &answer["checks"]["database"]),
        (503, &json!("failed")),
        "{answer}"
    );
    limit_files(&server, None);
    eventually("readiness", || async {
        let (status, _) = server.get("/health/ready").await;
        (status == 200).then_some(())
    })
    .await;
    let (status, answer) = server.post("/api/v1/workflows/echo/execute?wait=30s", &body).await;
    assert_eq!((status, &answer["status"]), (200, &json!("Succeeded")), "{answer}");
}

/// Nothing is accepted into a file that was deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_database_file_accepts_no_starts() {
    let data = folder();
    let path = data.path().join("fermata.db");
    let server = Server::start(&["--database", &format!("sqlite:{}", path.display())]);
    server.publish(&echo()).await;
    std::fs::remove_file(&path).unwrap();
    for _ in 0..3 {
        let (status, answer) = server.post("/api/v1/workflows/echo/execute", &json!({})).await;
        assert_eq!(status, 503, "{answer}");
    }
    assert_eq!(server.get("/health/ready").await.0, 503);
    server.process().wait_for_line("nothing is acknowledged any more");
}
