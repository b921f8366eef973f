//! Transfers that end before their time, or that something happens to.

use super::{world::*, *};
use crate::{ReadStore, Store, conformance::cluster::execute};
use std::{collections::BTreeSet, time::Duration};
use tokio::sync::Notify;

/// Runs a transfer until it has told this many times that rows are durable, and drops it there.
async fn interrupt(transfer: &Transfer, after: usize) {
    let (enough, told) = (Arc::new(Notify::new()), Mutex::new(0));
    let wake = enough.clone();
    let watch: Watch = Arc::new(move |step| {
        let mut told = told.lock().unwrap();
        *told += usize::from(matches!(step, Step::Moved(_)));
        if *told == after {
            wake.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = enough.notified() => {}
        ended = transfer.run_at(slow(), &watch) => panic!("it was not interrupted: {ended:?}"),
    }
}

/// What was interrupted lets go of its databases in a moment.
async fn resume(transfer: &Transfer) -> Result<Report> {
    for _ in 0..500 {
        match transfer.run_at(slow(), &silent()).await {
            Err(TransferError::Store(StoreError::Locked { .. })) => tokio::time::sleep(Duration::from_millis(10)).await,
            ended => return ended,
        }
    }
    panic!("the databases are not let go of");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_anywhere_it_goes_on_from_there() {
    let ground = Ground::new().await;
    let store = ground.open("a.db").unwrap();
    fill(&store).await;
    let before = told(&*store).await;
    drop(store);
    let (from, to) = (ground.sqlite("a.db"), ground.postgres());
    interrupt(&transfer(from.clone(), to.clone()), 1).await;
    let mut seen = BTreeSet::new();
    // Each goes on where the last one stood, and gets a little further.
    for after in 1..4 {
        let again = resumed(from.clone(), to.clone());
        interrupt_again(&again, after).await;
        let target = to.open(Side::Target, true).await.unwrap();
        match target.mark().await.unwrap() {
            Some(Mark::Arriving { done: Some(done), .. }) => seen.insert((done.table, done.after)),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(seen.len(), 3, "it does not get further: {seen:?}");
    let report = resume(&resumed(from, to)).await.unwrap();
    assert!(report.before > 0 && report.before < report.rows(), "{report:?}");
    assert_eq!(told(&ground.database.store().await).await, before);
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
    panic!("the source is not let go of");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_can_be_interrupted_too() {
    let ground = Ground::new().await;
    let store: Arc<dyn Store> = Arc::new(ground.database.store().await);
    fill(&store).await;
    let before = told(&*store).await;
    store.close().await.unwrap();
    drop(store);
    let (from, to) = (ground.postgres(), ground.sqlite("b.db"));
    interrupt(&transfer(from.clone(), to.clone()), 4).await;
    resume(&resumed(from, to)).await.unwrap();
    assert_eq!(told(&*ground.open("b.db").unwrap()).await, before);
}

/// While a transfer is not finished, neither database can be served; after it only the target can.
#[tokio::test(flavor = "multi_thread")]
async fn both_are_never_open() {
    let ground = Ground::new().await;
    let store = ground.open("a.db").unwrap();
    fill(&store).await;
    drop(store);
    let (from, to) = (ground.sqlite("a.db"), ground.postgres());
    interrupt(&transfer(from.clone(), to.clone()), 2).await;
    let connect = || crate::postgres::PostgresStore::connect(&ground.database.url, PostgresSettings::default());
    let refused = refusal(connect().await);
    assert!(
        refused.contains("is not finished") && refused.contains("--resume"),
        "{refused}"
    );
    while matches!(ground.open("a.db"), Err(StoreError::Locked { .. })) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = refusal(ground.open("a.db"));
    assert!(
        refused.contains("is being moved") && refused.contains("`fermata transfer --reopen URL`"),
        "{refused}"
    );
    // Without being told to go on it does not.
    let again = resume(&transfer(from.clone(), to.clone())).await;
    assert!(again.unwrap_err().to_string().contains("--resume"));
    resume(&resumed(from.clone(), to.clone())).await.unwrap();
    let refused = refusal(ground.open("a.db"));
    assert!(
        refused.contains("was moved to postgres://") && !refused.contains("fermata@"),
        "{refused}"
    );
    connect().await.unwrap().close().await.unwrap();
    // Taken back it is what it was, but another transfer's business.
    assert!(reopen(&from).await.unwrap());
    assert!(!reopen(&from).await.unwrap());
    ground.open("a.db").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_taken_back_cannot_be_resumed() {
    let ground = Ground::new().await;
    let store = ground.open("a.db").unwrap();
    fill(&store).await;
    drop(store);
    let (from, to) = (ground.sqlite("a.db"), ground.postgres());
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

/// A target that keeps something else than it was given.
#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_changed_is_a_failure() {
    for (table, trouble) in [
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
        let ground = Ground::new().await;
        let store = ground.open("a.db").unwrap();
        fill(&store).await;
        drop(store);
        let sql = format!(
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {trouble}; END $$;
             CREATE TRIGGER trouble BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION trouble()"
        );
        execute(&ground.database.url, &sql).await;
        let failed = transfer(ground.sqlite("a.db"), ground.postgres())
            .run(&silent())
            .await
            .unwrap_err();
        assert!(
            matches!(&failed, TransferError::Mismatch { table: which, .. } if *which == table),
            "{failed}"
        );
        assert!(failed.to_string().contains(table));
        // The target stays shut, and the source can be had back.
        let refused =
            refusal(crate::postgres::PostgresStore::connect(&ground.database.url, PostgresSettings::default()).await);
        assert!(refused.contains("is not finished"), "{refused}");
        assert!(reopen(&ground.sqlite("a.db")).await.unwrap());
        ground.open("a.db").unwrap();
    }
}

/// The source says that it was moved, and the target was not opened yet.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_at_the_last_step_it_is_finished() {
    let ground = Ground::new().await;
    let store = ground.open("a.db").unwrap();
    fill(&store).await;
    let before = told(&*store).await;
    drop(store);
    let (from, to) = (ground.sqlite("a.db"), ground.postgres());
    let first = transfer(from.clone(), to.clone()).run(&silent()).await.unwrap();
    let mark = from.open(Side::Source, true).await.unwrap().mark().await.unwrap();
    let Some(Mark::Moved { transfer: id, .. }) = mark else {
        panic!("{mark:?}");
    };
    let (last, count) = (TABLES.last().unwrap(), first.tables.last().unwrap().rows);
    let newest = ground.database.store().await;
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
    assert_eq!(told(&ground.database.store().await).await, before);
    assert!(refusal(ground.open("a.db")).contains("was moved"));
}
