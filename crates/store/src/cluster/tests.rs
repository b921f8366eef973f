//! Throw-away servers: start, stop, kill, failover to a standby, and removal when dropped.

use super::*;
use crate::conformance::cluster::execute;

async fn number(url: &str, sql: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let number = client.query_one(sql, &[]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    number
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_rows_are_on_the_standby_after_the_primary_is_killed() {
    let root = std::env::temp_dir();
    let (first, second) = tokio::task::block_in_place(|| {
        let first = Cluster::create(&root, true, &[]).unwrap();
        let second = first.standby(&root, true, &[]).unwrap();
        (first, second)
    });
    let synchronous = format!("ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'");
    execute(&first.url("postgres"), &synchronous).await;
    execute(&first.url("postgres"), "SELECT pg_reload_conf()").await;
    execute(&first.url("postgres"), "CREATE TABLE t (n bigint)").await;
    for n in 0..5 {
        execute(&first.url("postgres"), &format!("INSERT INTO t VALUES ({n})")).await;
    }
    tokio::task::block_in_place(|| {
        first.stop(Stop::Kill);
        second.promote().unwrap();
    });
    let count = "SELECT count(*) FROM t WHERE NOT pg_is_in_recovery()";
    assert_eq!(number(&second.url("postgres"), count).await, 5);
    // A killed server can be restarted, even if some of its processes are still running.
    tokio::task::block_in_place(|| first.restart().unwrap());
    let sql = "SELECT count(*) FROM t";
    assert_eq!(number(&first.url("postgres"), sql).await, 5);
    let folders = [first.folder().to_owned(), second.folder().to_owned()];
    drop((first, second));
    assert!(
        folders.iter().all(|folder| !folder.exists()),
        "the data directories are removed"
    );
}
