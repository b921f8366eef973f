//! Rows, pages, windows.

use super::*;
use crate::{
    reads::{RunFilter, Window},
    runs::Letter,
};

fn filter(limit: u32) -> RunFilter {
    RunFilter {
        limit,
        ..Default::default()
    }
}

async fn ids(store: &Arc<dyn Store>, filter: RunFilter) -> (Vec<RunId>, bool) {
    let page = store.runs(filter).await.unwrap();
    (page.items.into_iter().map(|run| run.id).collect(), page.more)
}

/// Each page goes on where the last one ended.
pub async fn runs_are_paged_newest_first(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    assert_eq!(ids(store, filter(5)).await, (Vec::new(), false));
    let mut runs = Vec::new();
    for index in 0..5 {
        runs.push(pending(store, &format!("r{index}")).await);
    }
    runs.sort();
    runs.reverse();
    assert_eq!(ids(store, filter(5)).await, (runs.clone(), false));
    assert_eq!(ids(store, filter(2)).await, (runs[..2].to_vec(), true));
    let mut next = filter(2);
    next.before = Some(runs[1]);
    assert_eq!(ids(store, next.clone()).await, (runs[2..4].to_vec(), true));
    next.before = Some(runs[3]);
    assert_eq!(ids(store, next.clone()).await, (runs[4..].to_vec(), false));
    next.before = Some(runs[4]);
    assert_eq!(ids(store, next).await, (Vec::new(), false));
}

/// Every combination of filters gives what fits all of them.
pub async fn runs_are_filtered(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let mut rows = Vec::new();
    for index in 0..60 {
        let mut run = new_run(&format!("r{index}"));
        run.workflow_id = [WORKFLOW, "other"][index % 2].to_owned();
        run.tenant = ["", "acme", "zeta"][index % 3].to_owned();
        run.born = (index % 5 != 0).then(|| Born {
            runner: runner(),
            events: started(),
            started_at: at(100),
            waits: Vec::new(),
        });
        let id = run.id;
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
        let end_with = [
            None,
            None,
            Some(Status::Succeeded),
            Some(Status::Failed),
            Some(Status::Cancelled),
        ][index % 5];
        if let Some(status) = end_with {
            committed(store, end(id, 1, 2, status)).await;
        }
        rows.push(store.run(id).await.unwrap().unwrap());
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let statuses = Status::ALL.map(Some).into_iter().chain([None]);
    for status in statuses {
        for workflow_id in [None, Some(WORKFLOW.to_owned()), Some("nobody".to_owned())] {
            for tenant in [None, Some(String::new()), Some("acme".to_owned())] {
                for before in [None, Some(rows[30].id)] {
                    let workflow_id = workflow_id.clone();
                    let filter = RunFilter {
                        workflow_id,
                        status,
                        tenant: tenant.clone(),
                        before,
                        limit: 100,
                    };
                    let fits = |row: &&crate::reads::RunRecord| {
                        status.is_none_or(|status| status == row.status)
                            && filter.workflow_id.as_ref().is_none_or(|id| *id == row.workflow_id)
                            && tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
                            && before.is_none_or(|before| row.id < before)
                    };
                    let expected: Vec<_> = rows.iter().filter(fits).cloned().collect();
                    assert_eq!(store.runs(filter.clone()).await.unwrap().items, expected, "{filter:?}");
                }
            }
        }
    }
}

/// The last attempt of some nodes or of all, and any one.
pub async fn attempts_by_node_and_number(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = born(store, "r1", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.attempts = vec![
        attempt("b", 1, 10),
        attempt("a", 2, 12),
        attempt("a", 1, 11),
        attempt("a", 10, 13),
    ];
    committed(store, commit).await;
    let last = async |nodes: &[&str]| {
        let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId::from(*node)).collect();
        let last = store.last_attempts(run, &nodes).await.unwrap();
        last.into_iter()
            .map(|action| (action.node.to_string(), action.attempt))
            .collect::<Vec<_>>()
    };
    assert_eq!(last(&[]).await, [("a".to_owned(), 10), ("b".to_owned(), 1)]);
    assert_eq!(
        last(&["b", "none", "a", "b"]).await,
        [("a".to_owned(), 10), ("b".to_owned(), 1)]
    );
    assert_eq!(last(&["b"]).await, [("b".to_owned(), 1)]);
    assert_eq!(last(&["none"]).await, []);
    let one = store.attempt(run, &"a".into(), 2).await.unwrap().unwrap();
    assert_eq!((one.attempt, one.ended_at), (2, at(12)));
    assert_eq!(store.attempt(run, &"a".into(), 3).await.unwrap(), None);
}

/// Oldest first, with the number of all.
pub async fn windows_of_actions(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = born(store, "r1", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.attempts = [("d", 10), ("c", 30), ("b", 20), ("a", 20)]
        .map(|(node, end)| attempt(node, 1, end))
        .to_vec();
    committed(store, commit).await;
    let nodes = async |limit, offset| {
        let (actions, total) = store.actions(run, Window { limit, offset }).await.unwrap();
        (
            actions
                .into_iter()
                .map(|action| action.node.to_string())
                .collect::<Vec<_>>()
                .join(""),
            total,
        )
    };
    assert_eq!(nodes(10, 0).await, ("dabc".to_owned(), 4));
    assert_eq!(nodes(2, 1).await, ("ab".to_owned(), 4));
    assert_eq!(nodes(2, 4).await, (String::new(), 4));
}

/// Oldest first, with the number of all.
pub async fn windows_of_events(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = born(store, "r1", Vec::new()).await;
    for seq in 2..=5 {
        committed(store, step(run, 1, seq)).await;
    }
    let places = async |limit, offset| {
        let (events, total) = store.events(run, Window { limit, offset }).await.unwrap();
        (events.into_iter().map(|event| event.seq).collect::<Vec<_>>(), total)
    };
    assert_eq!(places(10, 0).await, (vec![1, 2, 3, 4, 5], 5));
    assert_eq!(places(2, 3).await, (vec![4, 5], 5));
    assert_eq!(places(2, 5).await, (vec![], 5));
}

/// In the order in which they were made.
pub async fn links_are_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = born(store, "r1", Vec::new()).await;
    for (seq, id) in [(2, "b"), (3, "a")] {
        let mut commit = step(run, 1, seq);
        commit.links = vec![link(id)];
        committed(store, commit).await;
    }
    let links = store.links(run).await.unwrap();
    assert_eq!(
        links.iter().map(|link| link.resource_id.as_str()).collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(
        (links[0].node.as_str(), links[0].system.as_str(), links[0].attempt),
        ("a", "slack", 1)
    );
}

/// Asking for what is not there is no error.
pub async fn missing_runs_have_nothing(store: &Arc<dyn Store>) {
    let run = run_id();
    let window = Window { limit: 5, offset: 0 };
    assert_eq!(store.run(run).await.unwrap(), None);
    assert_eq!(store.load(run).await.unwrap(), None);
    assert_eq!(store.actions(run, window).await.unwrap(), (Vec::new(), 0));
    assert_eq!(store.events(run, window).await.unwrap(), (Vec::new(), 0));
    assert!(store.links(run).await.unwrap().is_empty());
    assert!(store.inbox(run, 0).await.unwrap().is_empty());
    assert!(store.waits(run).await.unwrap().is_empty());
    assert!(store.last_attempts(run, &[]).await.unwrap().is_empty());
    assert_eq!(store.attempt(run, &"a".into(), 1).await.unwrap(), None);
}

/// Loading shows the lease as it is and does not change it.
pub async fn load_shows_the_lease(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    take(store, run).await;
    let letter = Letter::Cancel { reason: "x".to_owned() };
    store.deliver(run, letter, at(1)).await.unwrap();
    for _ in 0..2 {
        let stored = store.load(run).await.unwrap().unwrap();
        assert_eq!(
            (stored.epoch, stored.takeovers, stored.inbox_seq, stored.inbox_seen),
            (1, 1, 1, 0)
        );
    }
}

/// A closed store says so, to everyone.
pub async fn ping_and_close(store: &Arc<dyn Store>) {
    use crate::StoreError::Closed;
    activate(store, WORKFLOW).await;
    let (run, _) = born(store, "r1", Vec::new()).await;
    store.ping().await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.ping().await, Err(Closed)));
    assert!(matches!(store.run(run).await, Err(Closed)));
    assert!(matches!(store.enqueue(new_run("r2")).await, Err(Closed)));
    assert!(matches!(store.commit(step(run, 1, 2)).await, CommitAnswer::Unknown(_)));
}
