//! All content is moved unchanged, and runs continue in the target.

use super::{world::*, *};
use crate::{
    ReadStore, RunStore, Store,
    conformance::*,
    runs::{Answer, CommitAnswer},
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::NoTls;

#[tokio::test(flavor = "multi_thread")]
async fn content_survives_both_directions() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    let before = dump(&*store).await;
    store.close().await.unwrap();
    drop(store);
    let (watch, steps) = recorded_progress();
    let there = transfer(fixture.sqlite("a.db"), fixture.postgres())
        .run_at(small_batches(), &watch)
        .await
        .unwrap();
    assert!(
        there.tables.iter().all(|table| table.rows > 0),
        "nothing was there to move: {there:?}"
    );
    let moved = steps
        .lock()
        .unwrap()
        .iter()
        .map(|step| match step {
            Step::Moved(rows) => *rows,
            _ => 0,
        })
        .sum::<u64>();
    assert_eq!(moved, there.rows());
    let store = fixture.database.store().await;
    assert_eq!(dump(&store).await, before);
    store.close().await.unwrap();
    drop(store);
    let back = transfer(fixture.postgres(), fixture.sqlite("b.db"))
        .run_at(small_batches(), &no_progress())
        .await
        .unwrap();
    assert_eq!(back.tables, there.tables);
    let store = fixture.open("b.db").unwrap();
    assert_eq!(dump(&*store).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_released_and_epochs_kept() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    let world = fill(&store).await;
    drop(store);
    transfer(fixture.sqlite("a.db"), fixture.postgres())
        .run(&no_progress())
        .await
        .unwrap();
    let store = fixture.database.store().await;
    assert!(!store.run(world.held).await.unwrap().unwrap().held());
    // The previous owner is fenced.
    assert_eq!(store.commit(step(world.held, 1, 2)).await, CommitAnswer::Fenced);
    // It can be claimed without waiting for its owner to expire, and the sleeping run is not due yet.
    let claimed = store.claim(claim(runner(), 10, 4_999)).await.unwrap();
    let epochs: BTreeMap<_, _> = claimed.runs.iter().map(|run| (run.id, run.epoch)).collect();
    assert_eq!(
        epochs,
        BTreeMap::from([(world.pending, 1), (world.held, 2), (world.limited, 1)])
    );
    assert_eq!(store.messages(world.held, 0).await.unwrap().len(), 1);
    assert_eq!(claimed.next_due, Some(at(5_000)));
    // Tokens of waits are still valid, and an answered token stays closed.
    let answered = store.answer("open2", "{}", None, at(400)).await.unwrap();
    assert_eq!(
        answered,
        Answer::Accepted {
            run: world.parked,
            node: "b".into()
        }
    );
    assert_eq!(
        store.answer("asked", "{}", None, at(400)).await.unwrap(),
        Answer::Closed
    );
    let claimed = store.claim(claim(runner(), 10, 4_999)).await.unwrap();
    assert_eq!(
        claimed.runs.iter().map(|run| run.id).collect::<Vec<_>>(),
        [world.parked]
    );
}

/// Fails if a table or column is added to a schema but not to `TABLES`.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_and_column_is_moved() {
    let fixture = Fixture::new().await;
    drop(fixture.open("a.db").unwrap());
    let moved_table = |(table, _): &(String, String)| table != "runners" && !table.starts_with("fermata_");
    let moved: BTreeSet<(String, String)> = TABLES
        .iter()
        .flat_map(|table| {
            table
                .columns
                .iter()
                .map(|column| (table.name.to_owned(), column.name.to_owned()))
        })
        .collect();
    let (client, wire) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
    tokio::spawn(wire);
    let sql = "SELECT table_name::text, column_name::text FROM information_schema.columns
        JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_schema = 'public' AND table_type = 'BASE TABLE'";
    let rows = client.query(sql, &[]).await.unwrap();
    let theirs: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .filter(moved_table)
        .collect();
    assert_eq!(theirs, moved);
    let connection = rusqlite::Connection::open(fixture.file("a.db")).unwrap();
    let sql = "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
        WHERE m.type = 'table' AND m.name NOT IN ('meta', 'schema_version', 'runners')";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let ours: BTreeSet<(String, String)> = rows.map(|row| row.unwrap()).collect();
    assert_eq!(ours, moved);
}

/// A change of any column changes the checksum that PostgreSQL computes.
#[tokio::test(flavor = "multi_thread")]
async fn checksums_cover_every_column() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    drop(store);
    transfer(fixture.sqlite("a.db"), fixture.postgres())
        .run(&no_progress())
        .await
        .unwrap();
    let target = fixture.postgres().open(Side::Target, true).await.unwrap();
    let (client, wire) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
    tokio::spawn(wire);
    for table in TABLES {
        let mut sum = target.sum(table, Side::Target).await.unwrap();
        for column in table.columns {
            let other = match column.kind {
                value::Kind::Text if column.name == "status" && table.name == "workflows" => {
                    "CASE status WHEN 'Draft' THEN 'Active' ELSE 'Draft' END".to_owned()
                }
                value::Kind::Text if column.name == "status" => {
                    "CASE status WHEN 'Failed' THEN 'Succeeded' ELSE 'Failed' END".to_owned()
                }
                value::Kind::Text if column.name == "trigger_type" => {
                    "CASE trigger_type WHEN 'Event' THEN 'Manual' ELSE 'Event' END".to_owned()
                }
                value::Kind::Text if column.name == "state" => {
                    "CASE state WHEN 'refused' THEN 'filtered' ELSE 'refused' END".to_owned()
                }
                value::Kind::Text => format!("COALESCE({} || ' ', '')", column.name),
                value::Kind::Bytes => format!("{}::bytea || '\\x00'", column.name),
                value::Kind::Number | value::Kind::Integer => format!("COALESCE({} + 1000, 0)", column.name),
                value::Kind::Flag => format!("COALESCE(NOT {}, true)", column.name),
                value::Kind::Id => "'00000000-0000-0000-0000-000000000000'".to_owned(),
            };
            let place = format!("(SELECT ctid FROM {} LIMIT 1)", table.name);
            let change = format!(
                "UPDATE {} SET {} = {other} WHERE ctid = {place}",
                table.name, column.name
            );
            client
                .batch_execute(&change)
                .await
                .unwrap_or_else(|error| panic!("{change}: {error:?}"));
            let changed = target.sum(table, Side::Target).await.unwrap();
            assert_ne!(
                changed.hashes, sum.hashes,
                "{} of {} is not in its checksum",
                column.name, table.name
            );
            assert_eq!(changed.rows, sum.rows);
            sum = changed;
        }
    }
}
