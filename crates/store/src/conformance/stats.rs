//! Numbers of runs: sums by workflow and time.

use super::*;
use crate::stats::{RunCounts, StatsFilter, StatsRow};
use std::time::Duration;

fn row(minute: i64, runner: u128, workflow: &str, tenant: &str) -> StatsRow {
    StatsRow {
        minute,
        runner: RunnerId(Uuid::from_u128(runner)),
        workflow_uid: uid(workflow),
        workflow_id: workflow.to_owned(),
        tenant: tenant.to_owned(),
        counts: RunCounts::default(),
        waiting: None,
    }
}

fn ended(mut row: StatsRow, status: Status, count: u64, millis: u64) -> StatsRow {
    row.counts.started += count;
    for _ in 0..count {
        row.counts.end(status, Duration::from_millis(millis));
    }
    row
}

/// Rows of all processes are summed up by workflow and by time, for one tenant or all.
pub async fn numbers_are_summed_up(store: &Arc<dyn Store>) {
    let waits = |mut row: StatsRow, runs| {
        row.waiting = Some(runs);
        row
    };
    let rows = vec![
        waits(ended(row(100, 1, "a", ""), Status::Succeeded, 3, 2), 5),
        // Another process sees the same queue.
        waits(ended(row(100, 2, "a", ""), Status::Failed, 1, 2000), 7),
        waits(ended(row(100, 1, "b", "acme"), Status::Cancelled, 1, 50), 2),
        ended(row(101, 1, "a", "acme"), Status::Succeeded, 2, 2),
        ended(row(110, 1, "b", "acme"), Status::Succeeded, 9, 2),
        waits(row(111, 1, "a", ""), 1),
    ];
    store.write_stats(rows.clone()).await.unwrap();
    // A row that is written again replaces the one that is there.
    store.write_stats(rows).await.unwrap();
    let filter = StatsFilter {
        from: 100,
        until: 120,
        step: 10,
        limit: 10,
        ..StatsFilter::default()
    };
    let stats = store.stats(&filter).await.unwrap();
    let all = &stats.all;
    assert_eq!((all.started, all.succeeded, all.failed, all.cancelled), (16, 14, 1, 1));
    assert_eq!(all.durations.iter().sum::<u64>(), 16);
    let workflows = |stats: &crate::stats::Stats| {
        let each = stats.workflows.iter();
        each.map(|(id, name, counts)| {
            assert_eq!(*id, uid(name));
            (name.clone(), counts.ended())
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(workflows(&stats), [("b".to_owned(), 10), ("a".to_owned(), 6)]);
    assert_eq!(stats.workflows[1].2.failed, 1);
    let series = |stats: &crate::stats::Stats| {
        let each = stats.series.iter();
        each.map(|part| {
            let counts = &part.counts;
            assert_eq!(counts.durations.iter().sum::<u64>(), counts.ended());
            (
                part.minute,
                counts.started,
                counts.succeeded,
                counts.failed,
                counts.cancelled,
                part.waiting,
            )
        })
        .collect::<Vec<_>>()
    };
    // In minute 100 the queues of `a` and `b` had 7 and 2 runs.
    assert_eq!(series(&stats), [(100, 7, 5, 1, 1, 9), (110, 9, 9, 0, 0, 1)]);

    let of_tenant = StatsFilter {
        tenant: Some("acme".to_owned()),
        limit: 1,
        step: 1,
        ..filter.clone()
    };
    let stats = store.stats(&of_tenant).await.unwrap();
    assert_eq!((stats.all.ended(), workflows(&stats)), (12, vec![("b".to_owned(), 10)]));
    let expected = [(100, 1, 0, 0, 1, 2), (101, 2, 2, 0, 0, 0), (110, 9, 9, 0, 0, 0)];
    assert_eq!(series(&stats), expected);
    let of_workflow = StatsFilter {
        workflow_uid: Some(uid("a")),
        until: 101,
        ..filter.clone()
    };
    let stats = store.stats(&of_workflow).await.unwrap();
    assert_eq!((stats.all.ended(), workflows(&stats)), (4, vec![("a".to_owned(), 4)]));
    let nothing = StatsFilter {
        tenant: Some("a\0b".to_owned()),
        ..filter.clone()
    };
    assert_eq!(store.stats(&nothing).await.unwrap(), Default::default());

    assert_eq!(store.prune_stats(110).await.unwrap(), 4);
    assert_eq!(store.prune_stats(110).await.unwrap(), 0);
    assert_eq!(store.stats(&filter).await.unwrap().all.ended(), 9);
}
