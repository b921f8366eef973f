//! A synchronous standby is away, and commits hang. Callers hear so, and nothing that they repeat happens twice.

use crate::support::Server;
use fermata_store::{cluster::Cluster, conformance::cluster::execute};
use serde_json::json;

/// An answer comes after their sum and a second. Clients here wait for a minute, which is less than five times that, and
/// less than the database would be given.
const TIMES: [(&str, &str); 4] = [
    ("FERMATA_DATABASE__POSTGRES__PATIENCE_MS", "1s"),
    ("FERMATA_DATABASE__POSTGRES__LOCK_TIMEOUT_MS", "1s"),
    ("FERMATA_DATABASE__POSTGRES__CONNECT_TIMEOUT_MS", "10s"),
    ("FERMATA_DATABASE__POSTGRES__STATEMENT_TIMEOUT_MS", "1m"),
];

async fn wait_for(cluster: &Cluster, standbys: &str) {
    let url = cluster.url("postgres");
    execute(
        &url,
        &format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"),
    )
    .await;
    execute(&url, "SELECT pg_reload_conf()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_not_confirmed_is_told_and_may_be_repeated() {
    let cluster = Cluster::start(false, &[]);
    let server = Server::start_with(&["--database", &cluster.url("postgres")], &TIMES);
    server
        .add(&json!({ "name": "n", "tasks": { "rest": { "sleep": "1ms" } } }))
        .await;
    wait_for(&cluster, "nobody").await;
    let path = "/api/v1/workflows/n/execute?wait=30s";
    // Until the server knows whom to wait for, starts may get through.
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

    wait_for(&cluster, "").await;
    let (status, run) = server.post(path, &body).await;
    assert_eq!((status, &run["status"]), (200, &json!("Succeeded")), "{run}");
    let (_, all) = server.get(&format!("/api/v1/executions?requestId=r{number}")).await;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
}
