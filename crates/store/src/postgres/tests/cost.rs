//! The cost of a run for the server. The rows of a whole run are counted in the engine tests (`engine/cost.rs`).

use super::{TEST_TIMEOUT, query};
use crate::{
    conformance::{cluster::Database, *},
    flow::{Flow, Key, Place},
    postgres::{
        PostgresSettings,
        address::Address,
        batch::Session,
        work::{MemberResult, Outcome, Work},
    },
    runs::{CommitAnswer, Enqueued, LocalStart, RunCommit, journal_text},
};
use fermata_core::Status;

/// Every batch takes two round trips: one that locks and reads, one that writes and commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_two_round_trips() {
    let database = Database::new().await;
    let store = super::store(&database.url, PostgresSettings::default()).await;
    activate(&store, WORKFLOW).await;
    let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
    let mut session = Session::connect(&address, TEST_TIMEOUT).await.unwrap();
    let mut run = new_run("r1");
    run.local_start = Some(LocalStart {
        runner: ME,
        events: started(),
        started_at: at(100),
        waits: Vec::new(),
    });
    let id = run.id;
    let start = Work::Enqueue {
        run: Box::new(run),
        first: journal_text(started()),
    };
    let commit = |seq: u32, end_it: bool| {
        let mut commit = match end_it {
            true => end(id, 1, seq, Status::Succeeded),
            false => step(id, 1, seq),
        };
        commit.attempts = vec![attempt(&format!("n{seq}"), 1, 10)];
        let text = journal_text(std::mem::take(&mut commit.events));
        let commit = Box::new(commit);
        Work::Commit { commit, text }
    };
    for (number, work) in [start, commit(2, false), commit(3, false), commit(4, true)]
        .iter()
        .enumerate()
    {
        let (results, _) = session.write(&[work]).await.unwrap();
        let done = matches!(
            &results[..],
            [MemberResult::Done(
                Outcome::Enqueued(Enqueued::Created) | Outcome::Committed(CommitAnswer::Committed { .. })
            )]
        );
        assert!(done, "{number}: {results:?}");
        assert_eq!(session.round_trips(), 2 * (number as u64 + 1), "after {number}");
    }
}

/// A batch with concurrency keys has one round trip more, which locks the rows of its keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_cost_one_round_trip() {
    let database = Database::new().await;
    let store = super::store(&database.url, PostgresSettings::default()).await;
    activate(&store, WORKFLOW).await;
    let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
    let mut session = Session::connect(&address, TEST_TIMEOUT).await.unwrap();
    let mut run = new_run("r1");
    run.flow = Some(Box::new(Flow {
        places: vec![Place {
            key: Key {
                key: "k".to_owned(),
                value: String::new(),
            },
            limit: 1,
            version: 1,
            refuse: false,
            tenant: false,
        }],
        ..Flow::default()
    }));
    run.local_start = Some(LocalStart {
        runner: ME,
        events: started(),
        started_at: at(100),
        waits: Vec::new(),
    });
    let id = run.id;
    let start = Work::Enqueue {
        run: Box::new(run),
        first: journal_text(started()),
    };
    let commit = |mut commit: RunCommit| {
        let text = journal_text(std::mem::take(&mut commit.events));
        let commit = Box::new(commit);
        Work::Commit { commit, text }
    };
    let (middle, last) = (commit(step(id, 1, 2)), commit(end(id, 1, 3, Status::Succeeded)));
    let mut expected = 0;
    for (work, round_trips) in [(start, 3), (middle, 2), (last, 3)] {
        session.write(&[&work]).await.unwrap();
        expected += round_trips;
        assert_eq!(session.round_trips(), expected, "{work:?}");
    }
    assert_eq!(query(&database.url, "SELECT COUNT(*) FROM flow_keys").await, "0");
}

/// Every run writes to each index of this table, except partial indexes that do not include it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_have_only_the_expected_indexes() {
    let database = Database::new().await;
    let sql = "SELECT string_agg(indexname, ' ' ORDER BY indexname COLLATE \"C\") FROM pg_indexes
        WHERE tablename = 'workflow_executions' AND ";
    let full = query(&database.url, &format!("{sql} indexdef NOT LIKE '% WHERE %'")).await;
    assert_eq!(
        full,
        "ix_executions_workflow ux_executions_request workflow_executions_pkey"
    );
    // A plain run that one process starts and ends is, while it runs, only in `ix_executions_held` and
    // `ix_executions_status`.
    let partial = query(&database.url, &format!("{sql} indexdef LIKE '% WHERE %'")).await;
    assert_eq!(
        partial,
        "ix_executions_correlation ix_executions_due ix_executions_ended_children ix_executions_group ix_executions_held ix_executions_parent \
         ix_executions_priority ix_executions_status ix_executions_tenant ix_executions_tenant_status \
         ix_executions_tenant_workflow ix_executions_unfreed ix_executions_unread ix_executions_waiting"
    );
}
