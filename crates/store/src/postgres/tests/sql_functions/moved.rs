//! Databases that take part in a transfer: the functions refuse to write, because no runner would execute the runs.

use super::*;
use crate::{
    StoreError,
    conformance::cluster::execute,
    postgres::{PostgresSettings, PostgresStore},
    transfer::{Place, Transfer, mark::Mark, reopen},
};
use fermata_core::Status;

/// Calls every function that writes.
async fn calls(app: &App, run: RunId, attempt: Uuid) -> [Result<(), Refused>; 5] {
    let link = "SELECT sp_link_external_resource($1, $2, 's', 't', 'i')";
    [
        app.start("new").await.map(drop),
        app.one(ACQUIRE, &[&run.0]).await.map(drop),
        app.record(run, "n", "Succeeded", 2).await.map(drop),
        app.one(link, &[&run.0, &attempt]).await.map(drop),
        app.complete(run, "Succeeded").await,
    ]
}

fn place(database: &Database) -> Place {
    Place::Postgres {
        url: database.url.clone(),
        settings: PostgresSettings::default(),
    }
}

async fn everything(app: &App) -> String {
    let sql = "SELECT (SELECT json_agg(e)::text FROM workflow_executions e)
        || (SELECT json_agg(a)::text FROM action_executions a) || (SELECT json_agg(r)::text FROM runners r)
        || (SELECT count(*) FROM workflow_resource_links)";
    app.one(sql, &[]).await.unwrap().get(0)
}

/// With any mark the functions refuse, as `serve` does, and change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_refuse_a_database_in_transfer() {
    let (database, store, app) = setup().await;
    let run = app.held("r1").await;
    let attempt = app.record(run, "n", "Failed", 1).await.unwrap();
    let before = everything(&app).await;
    let (transfer, elsewhere) = (Uuid::now_v7(), "sqlite:/data/it's \"100%\".db".to_owned());
    let (to, from) = (elsewhere.clone(), elsewhere.clone());
    for (mark, words) in [
        (
            Mark::Leaving {
                transfer,
                to: to.clone(),
            },
            "it is being moved to ",
        ),
        (Mark::Moved { transfer, to }, "it was moved to "),
        (
            Mark::Arriving {
                transfer,
                from,
                done: None,
            },
            "a transfer from ",
        ),
    ] {
        let set = "INSERT INTO fermata_meta (key, value) VALUES ('transfer', $1) RETURNING 1";
        app.one(set, &[&mark.to_text()]).await.unwrap();
        let opened = PostgresStore::connect(&database.url, PostgresSettings::default()).await;
        let Err(StoreError::Unopenable { what, .. }) = opened else {
            panic!("a marked database was opened");
        };
        let words = format!("{words}{elsewhere}");
        assert!(what.contains(&words), "{what}");
        for answer in calls(&app, run, attempt).await {
            expect(answer.clone(), "55000", "DATABASE_NOT_SERVED: ");
            expect(answer, "55000", words.strip_prefix("it ").unwrap_or(&words));
        }
        app.run("DELETE FROM fermata_meta WHERE key = 'transfer'").await;
    }
    assert_eq!(everything(&app).await, before);
    for answer in calls(&app, run, attempt).await {
        answer.unwrap();
    }
    assert_eq!(record(&store, run).await.status, Status::Succeeded);
}

/// Either a transfer waits for a transaction that has called a function, or the function sees the mark and refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn function_calls_and_transfers_exclude_each_other() {
    let (database, store, watcher) = setup().await;
    store.close().await.unwrap();
    let target = Database::new().await;
    let app = App::new(&database).await;
    // The function has read the mark, and then waits for the locked table.
    watcher
        .run("BEGIN; LOCK TABLE workflow_executions IN SHARE ROW EXCLUSIVE MODE")
        .await;
    let pid = app.pid().await;
    let calling = tokio::spawn(async move { (app.start("r1").await, app) });
    until_blocked(&App::new(&database).await, pid).await;
    let mark = Mark::Moved {
        transfer: Uuid::now_v7(),
        to: "elsewhere".to_owned(),
    };
    let set = "INSERT INTO fermata_meta (key, value) VALUES ('transfer', $1) RETURNING 1";
    watcher.one(set, &[&mark.to_text()]).await.unwrap();
    watcher.run("COMMIT").await;
    let (answer, app) = calling.await.unwrap();
    expect(answer, "55000", "was moved to elsewhere");

    // The other order: the function was called first, and the transfer waits only for a short time.
    assert!(reopen(&place(&database)).await.unwrap());
    app.run("BEGIN").await;
    assert!(!app.acquire(RunId(Uuid::now_v7())).await);
    let mut from = place(&database);
    if let Place::Postgres { settings, .. } = &mut from {
        settings.lock_timeout = Duration::from_millis(50);
    }
    let (to, resume) = (place(&target), false);
    let moved = Transfer { from, to, resume }.run(&(Arc::new(|_| {}) as _)).await;
    let why = moved.unwrap_err().to_string();
    assert!(why.contains("another session is writing to"), "{why}");
    app.run("COMMIT").await;
    execute(&database.url, "DELETE FROM fermata_meta WHERE key = 'transfer'").await;
    app.started("r1").await;
}
