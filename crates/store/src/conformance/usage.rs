//! Counting the steps of tenants.

use super::*;
use crate::usage::{Usage, month_of};

const MONTH: i64 = 31 * 86_400_000_000;

fn counting(commit: RunCommit, tenant: &str, steps: u32) -> RunCommit {
    RunCommit {
        usage: Some(Usage {
            tenant: tenant.to_owned(),
            steps,
        }),
        ..commit
    }
}

async fn usage(store: &Arc<dyn Store>, tenant: &str, time: i64) -> u64 {
    store.usage(tenant, month_of(at(time))).await.unwrap()
}

/// A commit counts in the month of its time, and one that is refused counts nothing.
pub async fn steps_are_counted_with_their_commit(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = held_run(store, "r1", Vec::new()).await.0;
    assert_eq!(usage(store, "acme", 0).await, 0);
    committed(store, counting(step(run, 1, 2), "acme", 2)).await;
    committed(store, counting(step(run, 1, 3), "acme", 3)).await;
    committed(store, counting(step(run, 1, 4), "größe", 1)).await;
    let later = RunCommit {
        at: at(MONTH),
        ..step(run, 1, 5)
    };
    committed(store, counting(later, "acme", 7)).await;
    assert_eq!(
        store.commit(counting(step(run, 9, 6), "acme", 100)).await,
        CommitAnswer::Fenced
    );
    let wrong = store.commit(counting(step(run, 1, 9), "acme", 100)).await;
    assert!(matches!(wrong, CommitAnswer::Conflict(_)), "{wrong:?}");
    assert_eq!(usage(store, "acme", 0).await, 5);
    assert_eq!(usage(store, "acme", MONTH).await, 7);
    assert_eq!(usage(store, "größe", 0).await, 1);
    assert_eq!(usage(store, "other", 0).await, 0);
}

/// Commits of many runs at the same time, which share batches, are all counted.
pub async fn concurrent_counts_add_up(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(held_run(store, &format!("r{number}"), Vec::new()).await.0);
    }
    let commits = runs.into_iter().map(|run| {
        let store = store.clone();
        tokio::spawn(async move {
            for seq in 2..12 {
                let tenant = ["a", "b"][seq as usize % 2];
                committed(&store, counting(step(run, 1, seq), tenant, 1)).await;
            }
        })
    });
    for commit in commits.collect::<Vec<_>>() {
        commit.await.unwrap();
    }
    assert_eq!((usage(store, "a", 0).await, usage(store, "b", 0).await), (100, 100));
}
