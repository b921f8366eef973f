//! Leases.

use super::*;
use std::collections::BTreeSet;

async fn ids(store: &Arc<dyn Store>, request: Claim) -> Vec<RunId> {
    store
        .claim(request)
        .await
        .unwrap()
        .runs
        .into_iter()
        .map(|run| run.id)
        .collect()
}

/// Stores a run that became due at this time.
async fn due(store: &Arc<dyn Store>, time: i64) -> RunId {
    let mut run = new_run(&time.to_string());
    run.created_at = at(time);
    let id = run.id;
    store.enqueue(run).await.unwrap();
    id
}

fn taking_over(dead_before: i64) -> Claim {
    let mut request = claim(runner(), 10, 1000);
    request.dead_before = Some(at(dead_before));
    request
}

/// The run that is due longest goes first.
pub async fn free_runs_in_order_of_due_time(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (third, first, second) = (due(store, 30).await, due(store, 10).await, due(store, 20).await);
    assert_eq!(ids(store, claim(runner(), 10, 100)).await, [first, second, third]);
}

/// Runs that are due and not held are counted by workflow; later ones and held ones are not.
pub async fn queue_depths_count_due_runs_by_workflow(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    for time in [10, 20, 30, 500] {
        due(store, time).await;
    }
    let mut run = new_run("other");
    (run.workflow_uid, run.workflow_id, run.created_at) = (uid("other"), "other".to_owned(), at(40));
    store.enqueue(run).await.unwrap();
    let depths = async |now: i64| {
        let depths = store.queue_depths(at(now)).await.unwrap();
        let depths = depths.into_iter().map(|depth| {
            assert_eq!(depth.workflow_uid, uid(&depth.workflow_id));
            (depth.workflow_id, depth.runs, depth.oldest)
        });
        depths.collect::<Vec<_>>()
    };
    assert_eq!(depths(5).await, []);
    let both = |first: u64, oldest: i64| {
        [
            (WORKFLOW.to_owned(), first, at(oldest)),
            ("other".to_owned(), 1, at(40)),
        ]
    };
    assert_eq!(depths(100).await, both(3, 10));
    ids(store, claim(runner(), 1, 100)).await;
    assert_eq!(depths(100).await, both(2, 20));
    assert_eq!(depths(500).await, both(3, 20));
}

/// A run is claimed at its due time, not before.
pub async fn runs_are_not_claimed_before_they_are_due(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = due(store, 50).await;
    let early = store.claim(claim(runner(), 10, 49)).await.unwrap();
    assert_eq!((early.runs.len(), early.next_due), (0, Some(at(50))));
    assert_eq!(ids(store, claim(runner(), 10, 50)).await, [run]);
}

/// The limit is kept, and the result says when the next run is due.
pub async fn limit_and_next_due(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (first, second) = (due(store, 10).await, due(store, 20).await);
    due(store, 300).await;
    let one = store.claim(claim(runner(), 1, 100)).await.unwrap();
    assert_eq!((one.runs[0].id, one.next_due), (first, Some(at(20))));
    let none = store.claim(claim(runner(), 0, 100)).await.unwrap();
    assert_eq!((none.runs.len(), none.next_due), (0, Some(at(20))));
    let rest = store.claim(claim(runner(), 5, 100)).await.unwrap();
    assert_eq!(
        (rest.runs[0].id, rest.runs.len(), rest.next_due),
        (second, 1, Some(at(300)))
    );
    let last = store.claim(claim(runner(), 5, 300)).await.unwrap();
    assert_eq!((last.runs.len(), last.next_due), (1, None));
}

/// A claimed run has everything that is needed to continue it.
pub async fn claimed_runs_are_complete(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let id = pending(store, "r1").await;
    let first = take(store, id).await;
    assert_eq!((first.status, first.epoch, first.takeovers), (Status::Pending, 1, 1));
    assert_eq!(
        (first.trigger.as_str(), first.spec.as_deref()),
        (r#"{"a":1}"#, Some(r#"{"b":2}"#))
    );
    assert_eq!(
        (
            first.workflow_id.as_str(),
            first.workflow_version,
            first.tenant.as_str()
        ),
        (WORKFLOW, 1, "")
    );
    assert_eq!(
        (first.correlation_id.as_deref(), first.principal.user_id.as_str()),
        (Some("corr"), "u1")
    );
    assert!(first.journal.is_empty());
    assert!(store.run(id).await.unwrap().unwrap().held());
    committed(store, step(id, 1, 1)).await;
    committed(store, park(id, 1, 2, Some(5))).await;
    let free = store.load(id).await.unwrap().unwrap();
    assert_eq!((free.epoch, free.owner), (1, None), "no runner holds it");
    let second = take(store, id).await;
    assert_eq!((second.epoch, second.journal.len()), (2, 2));
    assert_eq!((first.owner, second.owner), (Some(ME), Some(ME)));
    assert_eq!(second.journal[0], fermata_core::encode(&[event("a")]));
    assert_eq!(store.load(id).await.unwrap(), Some(second));
}

/// Held runs are not claimed.
pub async fn held_runs_are_not_claimed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, _) = held_run(store, "r1", Vec::new()).await;
    assert!(ids(store, claim(runner(), 9, 1000)).await.is_empty());
    let mut only = claim(runner(), 9, 1000);
    only.only = vec![id];
    assert!(ids(store, only).await.is_empty());
}

/// A runner without a heartbeat, or with an old one, loses its runs, and its later commits are fenced.
pub async fn dead_owners_lose_their_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (never, _) = held_run(store, "r1", Vec::new()).await;
    let owner = runner();
    let lapsed = run_held_by(store, owner, "r2", Vec::new()).await;
    store.heartbeat(&described(owner), at(499)).await.unwrap();
    let free = pending(store, "r3").await;
    let heir = taking_over(500);
    let mut taken = ids(store, heir.clone()).await;
    assert_eq!(taken.pop(), Some(free), "runs that had begun come first");
    taken.sort();
    assert_eq!(taken, [never, lapsed]);
    assert_eq!(store.commit(step(never, 1, 2)).await, CommitAnswer::Fenced);
    let stored = store.load(lapsed).await.unwrap().unwrap();
    assert_eq!((stored.epoch, stored.takeovers), (2, 1));
    let mut commit = step(lapsed, 2, 2);
    commit.runner = heir.runner;
    committed(store, commit).await;
    let mut limited = taking_over(500);
    limited.limit = 1;
    assert_eq!(ids(store, limited).await.len(), 1);
}

/// Neither a backlog of free runs nor many runs of dead runners delay the others.
pub async fn dead_owners_runs_and_free_ones_share(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut orphans = BTreeSet::new();
    for index in 0..5 {
        orphans.insert(run_held_by(store, runner(), &format!("r{index}"), Vec::new()).await);
    }
    for time in 10..20 {
        due(store, time).await;
    }
    let heir = runner();
    for (limit, expected) in [(1, 1), (3, 2), (6, 2), (4, 0), (6, 0)] {
        let mut request = taking_over(500);
        (request.runner, request.limit) = (heir, limit);
        let taken = ids(store, request).await;
        let begun = taken.iter().filter(|run| orphans.contains(run)).count();
        assert_eq!(begun, expected, "of {limit}");
    }
    let mut request = taking_over(500);
    request.limit = 16;
    assert_eq!(
        ids(store, request).await.len(),
        15,
        "all that one runner held, and nothing is free"
    );
}

/// A recent heartbeat keeps the leases of a runner.
pub async fn heartbeats_keep_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, owner) = held_run(store, "r1", Vec::new()).await;
    store.heartbeat(&described(owner), at(400)).await.unwrap();
    store.heartbeat(&described(owner), at(500)).await.unwrap();
    assert!(ids(store, taking_over(500)).await.is_empty());
    assert_eq!(ids(store, taking_over(501)).await, [id]);
}

/// A runner that retires loses its runs at once.
pub async fn retired_runners_lose_their_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, owner) = held_run(store, "r1", Vec::new()).await;
    store.heartbeat(&described(owner), at(500)).await.unwrap();
    assert!(ids(store, taking_over(500)).await.is_empty());
    store.retire(owner).await.unwrap();
    assert_eq!(ids(store, taking_over(500)).await, [id]);
    store.retire(owner).await.unwrap();
}

/// A claim does not take over runs of its own runner.
pub async fn the_claiming_runner_is_alive(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, owner) = held_run(store, "r1", Vec::new()).await;
    let mut request = taking_over(500);
    request.runner = owner;
    assert!(ids(store, request.clone()).await.is_empty());
    request.only = vec![id];
    assert!(ids(store, request).await.is_empty());
}

/// A claim of several runs takes those that are free, up to the limit, and no others.
pub async fn only_these_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut free = Vec::new();
    for request in ["r1", "r2", "r3"] {
        free.push(pending(store, request).await);
    }
    let other = pending(store, "r4").await;
    let (held, _) = held_run(store, "r5", Vec::new()).await;
    let mut request = claim(runner(), 2, 50);
    request.only = vec![free[0], free[1], free[2], held, run_id()];
    assert_eq!(ids(store, request.clone()).await, free[..2]);
    request.limit = 10;
    assert_eq!(ids(store, request).await, free[2..]);
    assert!(!store.run(other).await.unwrap().unwrap().held());
}

/// A claim of one run takes it before it is due, if it is free or its owner is dead.
pub async fn only_one_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let id = run_held_by(store, runner(), "r1", Vec::new()).await;
    pending(store, "r2").await;
    let mut request = claim(ME, 5, 50);
    request.only = vec![run_id()];
    assert!(ids(store, request.clone()).await.is_empty(), "there is no such run");
    request.only = vec![id];
    assert!(ids(store, request.clone()).await.is_empty(), "it is held");
    request.dead_before = Some(at(0));
    assert_eq!(ids(store, request.clone()).await, [id], "its owner has no heartbeat");
    committed(store, park(id, 2, 2, None)).await;
    request.dead_before = None;
    assert_eq!(ids(store, request).await, [id], "it waits for a message");
    let record = store.run(id).await.unwrap().unwrap();
    assert!(
        record.wake_at.is_some() && record.held(),
        "it can be found when this owner dies, too"
    );
    assert_eq!(
        ids(store, {
            let mut request = taking_over(0);
            request.limit = 9;
            request
        })
        .await
        .len(),
        2
    );
}

/// Claims are counted until a commit succeeds.
pub async fn takeovers_count_and_reset(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let id = pending(store, "r1").await;
    let mut heir = taking_over(500);
    for takeovers in 1..=3 {
        heir.runner = runner();
        let claimed = store.claim(heir.clone()).await.unwrap().runs;
        assert_eq!(
            (claimed[0].takeovers, claimed[0].epoch),
            (takeovers, u64::from(takeovers))
        );
    }
    let mut commit = step(id, 3, 1);
    commit.runner = heir.runner;
    committed(store, commit).await;
    assert_eq!(store.load(id).await.unwrap().unwrap().takeovers, 0);
    heir.runner = ME;
    assert_eq!(store.claim(heir).await.unwrap().runs[0].takeovers, 1);
    committed(store, park(id, 4, 2, Some(1))).await;
    assert_eq!(take(store, id).await.takeovers, 1);
    let mut empty = step(id, 5, 9);
    empty.events.clear();
    committed(store, empty).await;
    assert_eq!(
        store.load(id).await.unwrap().unwrap().takeovers,
        0,
        "a commit without events counts"
    );
}

/// Terminal runs are never claimed.
pub async fn terminal_runs_are_never_claimed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (id, _) = held_run(store, "r1", Vec::new()).await;
    committed(store, end(id, 1, 2, Status::Cancelled)).await;
    assert!(ids(store, taking_over(1000)).await.is_empty());
    let mut request = taking_over(1000);
    request.only = vec![id];
    let claimed = store.claim(request).await.unwrap();
    assert_eq!((claimed.runs.len(), claimed.next_due), (0, None));
}

/// Stores a pending run of a workflow.
async fn prioritised(store: &Arc<dyn Store>, workflow: &str, time: i64, priority: Option<i32>) -> RunId {
    let mut run = run_of(workflow, &format!("{workflow}-{time}"));
    (run.created_at, run.priority) = (at(time), priority);
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

/// Runs of equal priority go by due time; no priority is priority 0.
pub async fn higher_priority_goes_first_within_a_workflow(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut runs = Vec::new();
    for (time, priority) in [
        (1, None),
        (2, Some(5)),
        (3, Some(0)),
        (4, Some(9)),
        (5, Some(5)),
        (6, None),
    ] {
        runs.push(prioritised(store, WORKFLOW, time, priority).await);
    }
    let order = [3, 1, 4, 0, 2, 5].map(|index: usize| runs[index]);
    assert_eq!(ids(store, claim(ME, 1, 100)).await, order[..1]);
    assert_eq!(ids(store, claim(ME, 3, 100)).await, order[1..4]);
    let rest = store.claim(claim(ME, 9, 100)).await.unwrap();
    assert_eq!(rest.runs.iter().map(|run| run.id).collect::<Vec<_>>(), order[4..]);
    assert_eq!(rest.next_due, None);
    // A run that was released is ordered by its priority again.
    committed(store, park(order[1], 1, 1, Some(50))).await;
    committed(store, park(order[3], 1, 1, Some(40))).await;
    assert_eq!(ids(store, claim(runner(), 1, 100)).await, [order[1]]);
    assert_eq!(ids(store, claim(runner(), 1, 100)).await, [order[3]]);
}

/// The priorities of a workflow apply only within its own places.
pub async fn priority_takes_no_place_of_others(store: &Arc<dyn Store>) {
    activate(store, "a").await;
    activate(store, "b").await;
    let first = prioritised(store, "a", 1, None).await;
    let second = prioritised(store, "b", 2, None).await;
    let urgent = prioritised(store, "b", 3, Some(9)).await;
    let last = prioritised(store, "a", 4, None).await;
    assert_eq!(ids(store, claim(runner(), 1, 100)).await, [first]);
    assert_eq!(ids(store, claim(runner(), 1, 100)).await, [urgent]);
    assert_eq!(ids(store, claim(runner(), 9, 100)).await, [second, last]);
}

/// Sleeping runs do not count, however many there are and whatever their priority.
pub async fn priority_applies_to_due_runs_only(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for time in 0..20 {
        prioritised(store, WORKFLOW, 500 + time, Some(9)).await;
    }
    let low = prioritised(store, WORKFLOW, 2, Some(1)).await;
    let none = prioritised(store, WORKFLOW, 1, None).await;
    let claimed = store.claim(claim(runner(), 9, 100)).await.unwrap();
    assert_eq!(claimed.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [low, none]);
    assert_eq!(claimed.next_due, Some(at(500)));
}

/// A priority below 0 goes after runs without a priority.
pub async fn lower_priority_waits(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let low = prioritised(store, WORKFLOW, 1, Some(-1)).await;
    let lowest = prioritised(store, WORKFLOW, 2, Some(i32::MIN)).await;
    let plain = prioritised(store, WORKFLOW, 3, None).await;
    let highest = prioritised(store, WORKFLOW, 4, Some(i32::MAX)).await;
    assert_eq!(ids(store, claim(runner(), 2, 100)).await, [highest, plain]);
    assert_eq!(ids(store, claim(runner(), 2, 100)).await, [low, lowest]);
}
