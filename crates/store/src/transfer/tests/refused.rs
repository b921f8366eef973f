//! Transfers that are refused and change nothing.

use super::{world::*, *};
use crate::{
    Store,
    conformance::{cluster::execute, *},
    postgres::{PostgresSettings, PostgresStore},
};

async fn refused(transfer: &Transfer) -> String {
    let real = transfer.run(&no_progress()).await.unwrap_err().to_string();
    // A dry run is refused with the same message.
    let dry_run = transfer.dry_run().await.unwrap_err().to_string();
    assert_eq!(dry_run, real);
    real
}

#[tokio::test(flavor = "multi_thread")]
async fn non_empty_target_is_refused() {
    let fixture = Fixture::new().await;
    drop(fixture.open("a.db").unwrap());
    let sql = "INSERT INTO workflow_version_marks (workflow_id, latest_version) VALUES ('w', 3)";
    execute(&fixture.database.url, sql).await;
    let why = refused(&transfer(fixture.sqlite("a.db"), fixture.postgres())).await;
    assert!(why.contains("is not empty: workflow_version_marks has rows"), "{why}");
    fixture.open("a.db").unwrap();
    fixture.database.store().await.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn source_in_use_is_refused() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    let why = refused(&transfer(fixture.sqlite("a.db"), fixture.postgres())).await;
    assert!(why.contains("is in use by another process"), "{why}");
    drop(store);
    let store = fixture.database.store().await;
    let there = transfer(fixture.postgres(), fixture.sqlite("b.db"));
    let why = there.run(&no_progress()).await.unwrap_err().to_string();
    assert!(why.contains("connections of other Fermata processes"), "{why}");
    store.close().await.unwrap();
    // The database can be used again after the refused transfer.
    fixture.database.store().await.close().await.unwrap();
    there.run(&no_progress()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn target_in_use_is_refused() {
    let fixture = Fixture::new().await;
    drop(fixture.open("a.db").unwrap());
    let store = fixture.database.store().await;
    let there = transfer(fixture.sqlite("a.db"), fixture.postgres());
    let why = there.run(&no_progress()).await.unwrap_err().to_string();
    assert!(why.contains("connections of other Fermata processes"), "{why}");
    store.close().await.unwrap();
    drop(fixture.open("a.db").unwrap());
    there.run(&no_progress()).await.unwrap();
}

/// A runner whose connections have another `application_name` is detected by its heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn runner_with_recent_heartbeat_counts_as_user() {
    let fixture = Fixture::new().await;
    drop(fixture.open("a.db").unwrap());
    let sql = "INSERT INTO runners (id, heartbeat_at, started_at, pid, host, version, role)
        SELECT gen_random_uuid(), (extract(epoch FROM clock_timestamp() - interval '1s' * s) * 1000000)::bigint, 1, 1,
          'h', 'v', 'all' FROM unnest(ARRAY[{}]) AS s";
    execute(&fixture.database.url, &sql.replace("{}", "1, 600")).await;
    let there = transfer(fixture.sqlite("a.db"), fixture.postgres());
    let why = there.run(&no_progress()).await.unwrap_err().to_string();
    assert!(why.contains("1 runners with a heartbeat"), "{why}");
    execute(
        &fixture.database.url,
        "DELETE FROM runners WHERE heartbeat_at > (SELECT MIN(heartbeat_at) FROM runners)",
    )
    .await;
    there.run(&no_progress()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_transfers_are_refused() {
    let fixture = Fixture::new().await;
    let nothing = transfer(fixture.sqlite("no.db"), fixture.postgres());
    assert!(refused(&nothing).await.contains("there is no such file"));
    assert!(!fixture.file("no.db").exists());
    drop(fixture.open("a.db").unwrap());
    let why = refused(&resumed(fixture.sqlite("a.db"), fixture.postgres())).await;
    assert!(why.contains("start one without --resume"), "{why}");
    let why = refused(&transfer(fixture.postgres(), fixture.postgres())).await;
    assert!(why.contains("is both the source and the target"), "{why}");
    // A source that was moved is not moved again.
    transfer(fixture.sqlite("a.db"), fixture.postgres())
        .run(&no_progress())
        .await
        .unwrap();
    let other = Fixture::new().await;
    let why = refused(&transfer(fixture.sqlite("a.db"), other.postgres())).await;
    assert!(why.contains("was moved to"), "{why}");
}

/// PostgreSQL cannot store a text with NUL; the error names the row and column.
#[tokio::test(flavor = "multi_thread")]
async fn texts_with_nul_are_refused() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    activate(&store, WORKFLOW).await;
    let mut run = new_run("zero");
    run.correlation_id = Some("a\0b".to_owned());
    let id = run.id;
    store.enqueue(run).await.unwrap();
    drop(store);
    let transfer = transfer(fixture.sqlite("a.db"), fixture.postgres());
    let dry_run = transfer.dry_run().await.unwrap_err().to_string();
    let why = transfer.run(&no_progress()).await.unwrap_err().to_string();
    for why in [dry_run, why] {
        assert!(
            why.contains("`correlation_id` of workflow_executions") && why.contains(&id.0.to_string()),
            "{why}"
        );
    }
}

/// A key that is too long for an index of PostgreSQL is detected before any row is moved.
#[tokio::test(flavor = "multi_thread")]
async fn keys_too_long_for_an_index_are_refused() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    activate(&store, WORKFLOW).await;
    let (run, _) = held_run(&store, "long", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.attempts = vec![attempt(&"n".repeat(3000), 1, 10)];
    committed(&store, commit).await;
    drop(store);
    let transfer = transfer(fixture.sqlite("a.db"), fixture.postgres());
    let dry_run = transfer.dry_run().await.unwrap_err().to_string();
    let why = transfer.run(&no_progress()).await.unwrap_err().to_string();
    for why in [dry_run, why] {
        assert!(why.contains("`node_id` of action_executions"), "{why}");
        assert!(why.contains("has 3000 bytes"), "{why}");
        assert!(why.len() < 500, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_changes_nothing() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    store.close().await.unwrap();
    drop(store);
    let bytes = std::fs::read(fixture.file("a.db")).unwrap();
    for to in [fixture.postgres(), fixture.sqlite("b.db")] {
        let report = transfer(fixture.sqlite("a.db"), to).dry_run().await.unwrap();
        assert!(
            report
                .tables
                .iter()
                .all(|table| table.rows > 0 && table.checksum.is_none()),
            "{report:?}"
        );
    }
    assert!(
        bytes == std::fs::read(fixture.file("a.db")).unwrap(),
        "the source was changed"
    );
    assert!(!fixture.file("b.db").exists());
    fixture.open("a.db").unwrap();
}

/// The table in `mark.rs`.
#[test]
fn marks_decide_where_a_transfer_starts() {
    use mark::Done;
    use start::{Reason, Start, decide};
    let (one, two) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let to = String::new;
    let leaving = |transfer| Some(Mark::Leaving { transfer, to: to() });
    let moved = |transfer| Some(Mark::Moved { transfer, to: to() });
    let done = Done {
        table: "workflows".to_owned(),
        after: vec!["w".to_owned()],
        rows: 1,
    };
    let arriving = |transfer, done: Option<&Done>| {
        Some(Mark::Arriving {
            transfer,
            from: to(),
            done: done.cloned(),
        })
    };
    let at = |transfer| Ok(Start::At(transfer, done.clone()));
    let source = |mark: Option<Mark>| Err(Reason::Source(mark.unwrap()));
    let target = |mark: Option<Mark>| Err(Reason::Target(mark.unwrap()));
    for (resume, from, to, expected) in [
        (false, None, None, Ok(Start::Anew)),
        (true, None, None, Err(Reason::Nothing)),
        (true, None, arriving(one, None), Ok(Start::Anew)),
        (false, None, arriving(one, None), Ok(Start::Anew)),
        (true, leaving(one), arriving(one, None), Ok(Start::Anew)),
        (true, leaving(two), arriving(one, None), source(leaving(two))),
        (true, leaving(one), arriving(one, Some(&done)), at(one)),
        (true, moved(one), arriving(one, Some(&done)), at(one)),
        (
            false,
            leaving(one),
            arriving(one, Some(&done)),
            Err(Reason::Interrupted),
        ),
        (true, None, arriving(one, Some(&done)), Err(Reason::Changed)),
        (true, leaving(two), arriving(one, Some(&done)), Err(Reason::Changed)),
        (true, leaving(one), None, source(leaving(one))),
        (false, leaving(one), None, source(leaving(one))),
        (false, moved(one), None, source(moved(one))),
        (true, moved(one), None, source(moved(one))),
        (false, None, moved(one), target(moved(one))),
        (false, None, leaving(one), target(leaving(one))),
        (false, arriving(one, None), None, source(arriving(one, None))),
    ] {
        assert_eq!(
            decide(resume, from.clone(), to.clone()),
            expected,
            "{resume} {from:?} {to:?}"
        );
    }
}

/// A dry run leaves an older schema as it is, and says what to do. The transfer itself migrates the source.
#[tokio::test(flavor = "multi_thread")]
async fn dry_run_of_an_older_schema_is_refused() {
    let fixture = Fixture::new().await;
    drop(fixture.open("a.db").unwrap());
    SqliteStore::migrate_back(&fixture.file("a.db")).unwrap();
    PostgresStore::migrate_back(&fixture.database.url, &PostgresSettings::default())
        .await
        .unwrap();
    for transfer in [
        transfer(fixture.sqlite("a.db"), fixture.postgres()),
        transfer(fixture.postgres(), fixture.sqlite("b.db")),
    ] {
        let why = transfer.dry_run().await.unwrap_err().to_string();
        for part in [
            "(1 migrations are missing)",
            "fermata migrate up",
            "Nothing was changed",
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
    let there = transfer(fixture.sqlite("a.db"), fixture.postgres());
    there.run(&no_progress()).await.unwrap();
}
