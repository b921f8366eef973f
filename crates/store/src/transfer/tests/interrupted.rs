//! Interrupted and failed transfers.

use super::{world::*, *};
use crate::{ReadStore, Store, conformance::cluster::execute};
use std::{collections::BTreeSet, time::Duration};
use tokio::sync::Notify;

/// Runs a transfer until it has reported `after` transactions, and drops it then.
async fn interrupt(transfer: &Transfer, after: usize) {
    let (enough, reports) = (Arc::new(Notify::new()), Mutex::new(0));
    let wake = enough.clone();
    let watch: Watch = Arc::new(move |step| {
        let mut reports = reports.lock().unwrap();
        *reports += usize::from(matches!(step, Step::Moved(_)));
        if *reports == after {
            wake.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = enough.notified() => {}
        ended = transfer.run_at(small_batches(), &watch) => panic!("it was not interrupted: {ended:?}"),
    }
}

/// Retries until the interrupted transfer has released its databases.
async fn resume(transfer: &Transfer) -> Result<Report> {
    for _ in 0..500 {
        match transfer.run_at(small_batches(), &no_progress()).await {
            Err(TransferError::Store(StoreError::Locked { .. })) => tokio::time::sleep(Duration::from_millis(10)).await,
            ended => return ended,
        }
    }
    panic!("the databases stay locked");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfer_resumes_where_it_stopped() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    let before = dump(&*store).await;
    drop(store);
    let (from, to) = (fixture.sqlite("a.db"), fixture.postgres());
    interrupt(&transfer(from.clone(), to.clone()), 1).await;
    let mut seen = BTreeSet::new();
    // Each resumed transfer makes some progress.
    for after in 1..4 {
        let again = resumed(from.clone(), to.clone());
        interrupt_again(&again, after).await;
        let target = to.open(Side::Target, true).await.unwrap();
        match target.mark().await.unwrap() {
            Some(Mark::Arriving { done: Some(done), .. }) => seen.insert((done.table, done.after)),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(seen.len(), 3, "no progress: {seen:?}");
    let report = resume(&resumed(from, to)).await.unwrap();
    assert!(report.before > 0 && report.before < report.rows(), "{report:?}");
    assert_eq!(dump(&fixture.database.store().await).await, before);
}

async fn interrupt_again(transfer: &Transfer, after: usize) {
    for _ in 0..500 {
        let source = transfer.from.open(Side::Source, true).await;
        match source {
            Err(TransferError::Store(StoreError::Locked { .. })) => tokio::time::sleep(Duration::from_millis(10)).await,
            opened => {
                drop(opened.unwrap());
                return interrupt(transfer, after).await;
            }
        }
    }
    panic!("the source stays locked");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_to_sqlite_can_be_interrupted() {
    let fixture = Fixture::new().await;
    let store: Arc<dyn Store> = Arc::new(fixture.database.store().await);
    fill(&store).await;
    let before = dump(&*store).await;
    store.close().await.unwrap();
    drop(store);
    let (from, to) = (fixture.postgres(), fixture.sqlite("b.db"));
    interrupt(&transfer(from.clone(), to.clone()), 4).await;
    resume(&resumed(from, to)).await.unwrap();
    assert_eq!(dump(&*fixture.open("b.db").unwrap()).await, before);
}

/// While a transfer is not finished, neither database can be served; after it only the target can.
#[tokio::test(flavor = "multi_thread")]
async fn source_and_target_are_never_both_open() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    drop(store);
    let (from, to) = (fixture.sqlite("a.db"), fixture.postgres());
    interrupt(&transfer(from.clone(), to.clone()), 2).await;
    let connect = || crate::postgres::PostgresStore::connect(&fixture.database.url, PostgresSettings::default());
    let refused = refusal(connect().await);
    assert!(
        refused.contains("is not finished") && refused.contains("--resume"),
        "{refused}"
    );
    while matches!(fixture.open("a.db"), Err(StoreError::Locked { .. })) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = refusal(fixture.open("a.db"));
    assert!(
        refused.contains("is being moved") && refused.contains("`fermata transfer --reopen URL`"),
        "{refused}"
    );
    // Without `--resume` it is not resumed.
    let again = resume(&transfer(from.clone(), to.clone())).await;
    assert!(again.unwrap_err().to_string().contains("--resume"));
    resume(&resumed(from.clone(), to.clone())).await.unwrap();
    let refused = refusal(fixture.open("a.db"));
    assert!(
        refused.contains("was moved to postgres://") && !refused.contains("fermata@"),
        "{refused}"
    );
    connect().await.unwrap().close().await.unwrap();
    // A reopened source can be used again.
    assert!(reopen(&from).await.unwrap());
    assert!(!reopen(&from).await.unwrap());
    fixture.open("a.db").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reopened_source_cannot_be_resumed() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    drop(store);
    let (from, to) = (fixture.sqlite("a.db"), fixture.postgres());
    interrupt(&transfer(from.clone(), to.clone()), 2).await;
    while let Err(error) = reopen(&from).await {
        assert!(
            matches!(error, TransferError::Store(StoreError::Locked { .. })),
            "{error}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let again = resume(&resumed(from, to.clone())).await.unwrap_err().to_string();
    assert!(again.contains("may have changed since"), "{again}");
    let refused = reopen(&to).await.unwrap_err().to_string();
    assert!(refused.contains("is not finished"), "{refused}");
}

/// Triggers in the target change or drop rows; the comparison must fail.
#[tokio::test(flavor = "multi_thread")]
async fn changed_rows_fail_the_comparison() {
    for (table, fault) in [
        (
            "action_executions",
            "NEW.outputs_json := NEW.outputs_json || ' '; RETURN NEW",
        ),
        (
            "run_waits",
            "IF NEW.token = 'open' THEN RETURN NULL; END IF; RETURN NEW",
        ),
        ("workflow_executions", "NEW.lease_owner := NEW.id; RETURN NEW"),
    ] {
        let fixture = Fixture::new().await;
        let store = fixture.open("a.db").unwrap();
        fill(&store).await;
        drop(store);
        let sql = format!(
            "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {fault}; END $$;
             CREATE TRIGGER fault BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fault()"
        );
        execute(&fixture.database.url, &sql).await;
        let failed = transfer(fixture.sqlite("a.db"), fixture.postgres())
            .run(&no_progress())
            .await
            .unwrap_err();
        assert!(
            matches!(&failed, TransferError::Mismatch { table: which, .. } if *which == table),
            "{failed}"
        );
        assert!(failed.to_string().contains(table));
        // The target cannot be opened, and the source can be reopened.
        let refused =
            refusal(crate::postgres::PostgresStore::connect(&fixture.database.url, PostgresSettings::default()).await);
        assert!(refused.contains("is not finished"), "{refused}");
        assert!(reopen(&fixture.sqlite("a.db")).await.unwrap());
        fixture.open("a.db").unwrap();
    }
}

/// The source is marked as moved, but the mark of the target was not removed yet.
#[tokio::test(flavor = "multi_thread")]
async fn transfer_interrupted_at_the_last_step_can_be_resumed() {
    let fixture = Fixture::new().await;
    let store = fixture.open("a.db").unwrap();
    fill(&store).await;
    let before = dump(&*store).await;
    drop(store);
    let (from, to) = (fixture.sqlite("a.db"), fixture.postgres());
    let first = transfer(from.clone(), to.clone()).run(&no_progress()).await.unwrap();
    let mark = from.open(Side::Source, true).await.unwrap().mark().await.unwrap();
    let Some(Mark::Moved { transfer: id, .. }) = mark else {
        panic!("{mark:?}");
    };
    let (last, count) = (TABLES.last().unwrap(), first.tables.last().unwrap().rows);
    let newest = fixture.database.store().await;
    let runs = newest
        .runs(crate::reads::RunFilter {
            limit: 1,
            ..Default::default()
        })
        .await
        .unwrap();
    newest.close().await.unwrap();
    let mut arrival = Arrival {
        transfer: id,
        from: String::new(),
        done: None,
    };
    arrival.note(last, count as usize, &[Value::Id(runs.items[0].id.0)]);
    let mut target = to.open(Side::Target, true).await.unwrap();
    assert!(target.set_mark(None, Some(&arrival.mark())).await.unwrap());
    drop(target);
    let second = resume(&resumed(from.clone(), to)).await.unwrap();
    assert_eq!((second.before, &second.tables), (first.rows(), &first.tables));
    assert_eq!(dump(&fixture.database.store().await).await, before);
    assert!(refusal(fixture.open("a.db")).contains("was moved"));
}
