//! Commits hang because a synchronous standby is missing. Callers get an error, and a repeated request takes effect
//! once.

use crate::support::Server;
use fermata_store::{cluster::Cluster, conformance::cluster::execute};
use serde_json::json;

/// The server answers after the larger of the first two, plus `connect_timeout` and a second: 12 s. Test clients wait
/// for a minute, so the test fails if the server waits for several such periods or for the statement timeout.
const TIMEOUTS: [(&str, &str); 4] = [
    ("FERMATA_DATABASE__POSTGRES__PATIENCE_MS", "1s"),
    ("FERMATA_DATABASE__POSTGRES__LOCK_TIMEOUT_MS", "1s"),
    ("FERMATA_DATABASE__POSTGRES__CONNECT_TIMEOUT_MS", "10s"),
    ("FERMATA_DATABASE__POSTGRES__STATEMENT_TIMEOUT_MS", "1m"),
];

async fn set_synchronous_standbys(cluster: &Cluster, standbys: &str) {
    let url = cluster.url("postgres");
    execute(
        &url,
        &format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"),
    )
    .await;
    execute(&url, "SELECT pg_reload_conf()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unconfirmed_start_returns_503_and_can_be_repeated() {
    let cluster = Cluster::start(false, &[]);
    let server = Server::start_with(&["--database", &cluster.url("postgres")], &TIMEOUTS);
    server
        .add(&json!({ "name": "n", "tasks": { "rest": { "sleep": "1ms" } } }))
        .await;
    set_synchronous_standbys(&cluster, "missing").await;
    let path = "/api/v1/workflows/n/execute?wait=30s";
    // Starts can succeed until the server has loaded the new configuration.
    let mut number = 0;
    let (body, error) = loop {
        let body = json!({ "requestId": format!("r{number}") });
        let (status, answer) = server.post(path, &body).await;
        if status == 503 {
            break (body, answer);
        }
        assert!(status == 200 && number < 1000, "{status}: {answer}");
        number += 1;
    };
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("repeat it with the same requestId"), "{error}");

    set_synchronous_standbys(&cluster, "").await;
    let (status, run) = server.post(path, &body).await;
    assert_eq!((status, &run["status"]), (200, &json!("Succeeded")), "{run}");
    let (_, all) = server.get(&format!("/api/v1/executions?requestId=r{number}")).await;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
}
