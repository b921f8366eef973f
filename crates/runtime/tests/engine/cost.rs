//! The cost of a plain three-step run in rows and commits. If a change makes these numbers larger, every run becomes slower:
//! measure it with `fermata bench` first.

use crate::support::{PATIENCE, workflow};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
};
use fermata_store::{Store, conformance::cluster::Database};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio_postgres::{Client, NoTls};

/// Longer than the test: nothing but the runs should write.
const NEVER: Duration = Duration::from_secs(3600);

/// How many runs are measured.
const RUNS: i64 = 5;

/// `table: inserted, updated, deleted` of each table that was written to. Sessions report their counts when they end.
async fn written(client: &Client) -> Vec<String> {
    let sql = "SELECT relname || ': ' || n_tup_ins || ', ' || n_tup_upd || ', ' || n_tup_del FROM pg_stat_user_tables
        WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND relname NOT IN ('runners', 'fermata_meta') ORDER BY relname";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Resets the counters once nothing else is connected.
async fn forget(client: &Client) {
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let alone = async {
        while client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, alone).await.expect("other sessions end");
}

async fn engine(database: &Database) -> (Engine, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(database.store().await);
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let settings = Settings {
        poll_interval: NEVER,
        lease_ttl: NEVER,
        ..Settings::default()
    };
    let engine = Engine::new(store.clone(), registry, settings, Arc::new(SystemClock));
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    tokio::time::timeout(PATIENCE, engine.ready())
        .await
        .expect("a heartbeat");
    (engine, store)
}

/// One row of the run, written and updated once; four journal rows, one for each commit; three attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_run_writes_nine_rows_in_four_commits() {
    let database = Database::new().await;
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let document = workflow(json!([
        { "id": "a", "actionType": "core.echo", "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo", "edges": [{ "targetNode": "c" }] },
        { "id": "c", "actionType": "core.echo" },
    ]));
    let (publisher, store) = engine(&database).await;
    let saved = publisher
        .workflows()
        .save(document.to_string().as_bytes(), "t.json")
        .await;
    publisher
        .workflows()
        .publish(&saved.unwrap().workflow.id, true)
        .await
        .unwrap();
    publisher.stop();
    store.close().await.unwrap();
    forget(&client).await;
    client.execute("SELECT pg_stat_reset()", &[]).await.unwrap();

    let (engine, store) = engine(&database).await;
    for number in 0..RUNS {
        let request = Request {
            workflow_id: "under-test".to_owned(),
            trigger: json!({ "n": number }),
            ..Request::default()
        };
        let (_, ended) = engine.start_and_wait(request, PATIENCE).await.unwrap();
        assert_eq!(ended.expect("it ends").status, Status::Succeeded);
    }
    engine.stop();
    store.close().await.unwrap();
    forget(&client).await;
    let runs = |rows: i64| rows * RUNS;
    let expected = [
        format!("action_executions: {}, 0, 0", runs(3)),
        format!("execution_events: {}, 0, 0", runs(4)),
        format!("workflow_executions: {}, {}, 0", runs(1), runs(1)),
    ];
    assert_eq!(written(&client).await, expected);
    drop(client);
    let _ = connection.await;
}
