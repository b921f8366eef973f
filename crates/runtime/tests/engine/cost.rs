//! The cost of a plain three-step run in rows and commits. If a change makes these numbers larger, every run becomes slower:
//! measure it with `fermata bench` first.

use crate::{
    state::{claim, complete, tasks},
    support::{PATIENCE, workflow},
};
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
/// Heartbeats and numbers of runs are written by time, not by run.
async fn written(client: &Client) -> Vec<String> {
    let sql = "SELECT relname || ': ' || n_tup_ins || ', ' || n_tup_upd || ', ' || n_tup_del FROM pg_stat_user_tables
        WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND relname NOT IN ('runners', 'fermata_meta', 'run_stats') ORDER BY relname";
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
    engine_that_polls(database, NEVER).await
}

async fn engine_that_polls(database: &Database, poll_interval: Duration) -> (Engine, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(database.store().await);
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let settings = Settings {
        poll_interval,
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

/// Rows of a table that were read through an index.
async fn fetched(client: &Client, table: &str) -> i64 {
    let sql = "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = $1";
    client.query_one(sql, &[&table]).await.unwrap().get(0)
}

/// A run that leaves memory between its tasks reads few of its outputs again: a copy of the state covers the rest. Without it,
/// each of these tasks would read all outputs before it, together more than 3,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_run_does_not_read_all_outputs_for_each_task() {
    const TASKS: i64 = 80;
    let database = Database::new().await;
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let (engine, store) = engine_that_polls(&database, Duration::from_secs(1)).await;
    let document = tasks("chain", TASKS as usize).to_string();
    let added = engine.workflows().add(document.as_bytes(), "t.json").await;
    assert!(added.is_ok(), "{:?}", added.err());
    let request = Request {
        workflow_id: "chain".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let run = engine.start(request).await.unwrap().run;
    for number in 0..TASKS {
        let task = claim(&engine, "chain").await;
        let members = task.state.as_object().map_or(0, serde_json::Map::len);
        assert_eq!(members as i64, number);
        complete(&engine, &task, json!({ format!("member{number}"): number })).await;
    }
    let ended = engine.wait(run, PATIENCE).await.unwrap();
    assert_eq!(ended.expect("it ends").status, Status::Succeeded);
    engine.stop();
    store.close().await.unwrap();
    forget(&client).await;
    let rows = fetched(&client, "action_executions").await;
    assert!(rows < 20 * TASKS, "{rows} outputs were read for {TASKS} tasks");
    drop(client);
    let _ = connection.await;
}

/// A parent whose items end within `park_after` of each other stays in memory: it does not read its journal again for each end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_does_not_read_its_journal_for_each_item() {
    const ITEMS: i64 = 60;
    let database = Database::new().await;
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let (engine, store) = engine_that_polls(&database, Duration::from_secs(1)).await;
    let mut child = workflow(json!([{ "id": "say", "actionType": "core.echo" }]));
    child["id"] = json!("child");
    let mut parent = workflow(json!([{
        "id": "each", "nodeType": "subworkflow", "workflowId": "child", "forEach": "{{ trigger.items }}",
        "maxConcurrency": 1,
    }]));
    parent["id"] = json!("parent");
    for document in [&child, &parent] {
        let saved = engine.workflows().save(document.to_string().as_bytes(), "t.json").await;
        let id = saved.unwrap().workflow.id;
        engine.workflows().publish(&id, true).await.unwrap();
    }
    let request = Request {
        workflow_id: "parent".to_owned(),
        trigger: json!({ "items": (0..ITEMS).collect::<Vec<_>>() }),
        ..Request::default()
    };
    let (accepted, ended) = engine.start_and_wait(request, PATIENCE).await.unwrap();
    assert_eq!(ended.expect("it ends").status, Status::Succeeded);
    let all = fermata_store::reads::Window { limit: 1000, offset: 0 };
    let commits = store.events(accepted.run, all).await.unwrap().1 as i64;
    engine.stop();
    store.close().await.unwrap();
    forget(&client).await;
    // A commit reads the last row of the journal. A child has three.
    let rows = fetched(&client, "execution_events").await;
    let expected = 2 * commits + 3 * ITEMS;
    assert!(commits >= ITEMS, "each end has its own commit: {commits}");
    assert!(
        rows <= expected + 2 * commits,
        "{rows} journal rows were read in {commits} commits of the parent"
    );
    drop(client);
    let _ = connection.await;
}
