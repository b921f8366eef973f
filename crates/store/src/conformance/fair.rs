//! Claims while a workflow or tenant has a backlog.

use super::*;
use std::collections::BTreeMap;

/// Stores runs of a tenant and workflow that are due from `from` on, one after another.
async fn waiting(store: &Arc<dyn Store>, tenant: &str, workflow: &str, count: i64, from: i64) {
    stored(store, tenant, workflow, count, from, None).await;
}

async fn stored(store: &Arc<dyn Store>, tenant: &str, workflow: &str, count: i64, from: i64, priority: Option<i32>) {
    for time in from..from + count {
        let mut run = run_of(workflow, &format!("{workflow}-{time}"));
        run.tenant = tenant.to_owned();
        (run.created_at, run.priority) = (at(time), priority);
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    }
}

/// How many runs of each tenant and workflow a claim gets; checks that each group comes in order.
async fn shares(store: &Arc<dyn Store>, limit: u32, now: i64) -> BTreeMap<(String, String), usize> {
    let claimed = store.claim(claim(runner(), limit, now)).await.unwrap().runs;
    let mut shares: BTreeMap<(String, String), usize> = BTreeMap::new();
    for run in claimed {
        *shares.entry((run.tenant, run.workflow_id)).or_default() += 1;
    }
    shares
}

fn of(shares: &BTreeMap<(String, String), usize>, tenant: &str, workflow: &str) -> usize {
    let group = (tenant.to_owned(), workflow.to_owned());
    shares.get(&group).copied().unwrap_or(0)
}

async fn activate_all(store: &Arc<dyn Store>) {
    for workflow in ["big", "small", "tiny"] {
        activate(store, workflow).await;
    }
}

/// A workflow with a backlog gets at most half of the places while others wait; both halves are ordered by due time.
pub async fn a_backlog_takes_half(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "", "big", 60, 1).await;
    waiting(store, "", "small", 20, 1000).await;
    waiting(store, "", "tiny", 3, 500).await;
    let claimed = store.claim(claim(runner(), 20, 5000)).await.unwrap();
    let mut requests = Vec::new();
    for run in &claimed.runs {
        requests.push(store.run(run.id).await.unwrap().unwrap().request_id);
    }
    let of = |workflow: &str, from: i64, count: i64| {
        (from..from + count)
            .map(|time| format!("{workflow}-{time}"))
            .collect::<Vec<_>>()
    };
    let expected = [of("big", 1, 10), of("tiny", 500, 3), of("small", 1000, 7)].concat();
    assert_eq!(requests, expected);
    assert_eq!(claimed.next_due, Some(at(11)));
}

/// Places that others do not need go to the runs that are due longest.
pub async fn unused_places_go_to_the_backlog(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "", "big", 60, 1).await;
    let alone = shares(store, 20, 5000).await;
    assert_eq!(of(&alone, "", "big"), 20);
    waiting(store, "", "small", 3, 1000).await;
    let first = shares(store, 20, 5000).await;
    assert_eq!((of(&first, "", "big"), of(&first, "", "small")), (17, 3));
    let rest = shares(store, 100, 5000).await;
    assert_eq!(of(&rest, "", "big"), 23);
}

/// A tenant with many workflows counts as one tenant; so do all runs without a tenant.
pub async fn tenants_share_too(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "acme", "big", 30, 1).await;
    waiting(store, "acme", "tiny", 30, 100).await;
    waiting(store, "zeta", "big", 8, 1000).await;
    waiting(store, "", "small", 8, 2000).await;
    let first = shares(store, 20, 5000).await;
    assert_eq!(of(&first, "acme", "big") + of(&first, "acme", "tiny"), 10, "{first:?}");
    assert_eq!(
        (of(&first, "zeta", "big"), of(&first, "", "small")),
        (8, 2),
        "{first:?}"
    );
    let second = shares(store, 20, 5000).await;
    assert_eq!(of(&second, "", "small"), 6);
    assert_eq!(second.values().sum::<usize>(), 20);
    assert!(
        of(&second, "acme", "big") <= 10,
        "nor does its workflow get more: {second:?}"
    );
}

/// Claims of one run at a time are shared too.
pub async fn single_places_are_shared(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "", "big", 80, 1).await;
    waiting(store, "", "small", 40, 1000).await;
    let mut small = 0;
    for round in 0..40 {
        let share = shares(store, 1, 5000 + round * 1009).await;
        assert_eq!(share.values().sum::<usize>(), 1);
        small += of(&share, "", "small");
    }
    assert!((10..=30).contains(&small), "{small} of 40");
}

/// Only due runs count for the shares.
pub async fn sleeping_runs_take_no_share(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "", "big", 40, 1).await;
    waiting(store, "", "small", 20, 9000).await;
    waiting(store, "", "tiny", 1, 900).await;
    waiting(store, "", "tiny", 9, 9000).await;
    let first = shares(store, 20, 5000).await;
    assert_eq!((of(&first, "", "big"), of(&first, "", "tiny")), (19, 1), "{first:?}");
}

/// A store may visit some groups at a time, as long as it reaches all of them.
pub async fn others_are_found_among_many(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "", "big", 60, 1).await;
    for tenant in 0..300 {
        waiting(store, &format!("t{tenant}"), "small", 1, 9000).await;
    }
    waiting(store, "zeta", "tiny", 3, 1000).await;
    let mut found = 0;
    for _ in 0..2 {
        found += of(&shares(store, 20, 5000).await, "zeta", "tiny");
    }
    assert_eq!(found, 3);
}

/// Priority applies within the places of a workflow, and takes none of others.
pub async fn shares_hold_under_priority(store: &Arc<dyn Store>) {
    activate_all(store).await;
    waiting(store, "acme", "big", 40, 1).await;
    stored(store, "acme", "big", 40, 100, Some(9)).await;
    waiting(store, "", "small", 20, 1000).await;
    waiting(store, "zeta", "big", 20, 2000).await;
    let claimed = store.claim(claim(runner(), 20, 5000)).await.unwrap().runs;
    let mut urgent = 0;
    for run in claimed.iter().filter(|run| run.tenant == "acme") {
        let record = store.run(run.id).await.unwrap().unwrap();
        urgent += usize::from(record.priority == Some(9));
    }
    let acme = claimed.iter().filter(|run| run.tenant == "acme").count();
    assert_eq!((acme, urgent), (10, 10));
    assert!(claimed.iter().any(|run| run.workflow_id == "small"));
}
