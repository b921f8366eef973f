//! Runners: heartbeats, the runs they hold, and which of those have pending messages.

use super::*;
use crate::{
    reads::{Order, RunFilter},
    runs::RunMessage,
};

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

const SECOND: i64 = 1_000_000;

/// Heartbeats are stored by the database's clock. Its offset is measured again with each heartbeat, so a time that is read
/// back differs a little from the one that was given.
fn assert_near(left: Timestamp, right: Timestamp) {
    assert!(left.0.abs_diff(right.0) < SECOND.unsigned_abs(), "{left:?} {right:?}");
}

async fn beat(store: &Arc<dyn Store>, id: RunnerId, time: i64) {
    store.heartbeat(&described(id), at(time)).await.unwrap();
}

/// The runners, with the number of runs that they hold.
async fn listed(store: &Arc<dyn Store>) -> Vec<(RunnerId, u64)> {
    let page = store.runners(None, 100).await.unwrap();
    assert!(!page.more);
    page.items
        .iter()
        .map(|record| (record.runner.id, record.held))
        .collect()
}

async fn tell(store: &Arc<dyn Store>, run: RunId) {
    let reason = "enough".to_owned();
    store
        .deliver(run, RunMessage::Cancel { reason }, at(500))
        .await
        .unwrap();
}

/// Newest first, in pages, each with the number of runs that it holds.
pub async fn runners_are_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    assert_eq!(listed(store).await, []);
    let (first, second, third) = (runner(), runner(), runner());
    for (id, time) in [(second, 20), (first, 10), (third, 30)] {
        beat(store, id, time).await;
    }
    for request in ["r1", "r2", "r3"] {
        run_held_by(store, second, request, Vec::new()).await;
    }
    let parked = run_held_by(store, third, "r4", Vec::new()).await;
    held_run(store, "r5", Vec::new()).await;
    assert_eq!(listed(store).await, [(third, 1), (second, 3), (first, 0)]);
    let mut parking = park(parked, 1, 2, Some(900));
    parking.runner = third;
    committed(store, parking).await;
    assert_eq!(listed(store).await, [(third, 0), (second, 3), (first, 0)]);
    let page = store.runners(None, 2).await.unwrap();
    assert_eq!((page.items.len(), page.more), (2, true));
    let rest = store.runners(Some(page.items[1].runner.id), 2).await.unwrap();
    assert_eq!((rest.items.len(), rest.more), (1, false));
    assert_eq!(rest.items[0].runner, described(first));
    assert_near(rest.items[0].heartbeat_at, at(10));
    store.retire(second).await.unwrap();
    assert_eq!(listed(store).await, [(third, 0), (first, 0)]);
}

/// A heartbeat changes only the time of the last heartbeat.
pub async fn a_heartbeat_keeps_the_description(store: &Arc<dyn Store>) {
    beat(store, ME, 10).await;
    beat(store, ME, 20 * SECOND).await;
    let page = store.runners(None, 9).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.items[0].runner, described(ME));
    assert_near(page.items[0].heartbeat_at, at(20 * SECOND));
}

/// Runners without a heartbeat for a day are deleted, unless they hold runs.
pub async fn silent_runners_are_deleted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (idle, holder, awake) = (runner(), runner(), runner());
    for id in [idle, holder, awake] {
        beat(store, id, 1000).await;
    }
    let run = run_held_by(store, holder, "r1", Vec::new()).await;
    beat(store, awake, 1000 + DAY).await;
    assert_eq!(
        listed(store).await,
        [(awake, 0), (holder, 1), (idle, 0)],
        "a day is not over"
    );
    beat(store, awake, 1001 + DAY).await;
    assert_eq!(listed(store).await, [(awake, 0), (holder, 1)]);
    let mut last = end(run, 1, 2, Status::Succeeded);
    last.runner = holder;
    committed(store, last).await;
    beat(store, awake, 1002 + DAY).await;
    assert_eq!(listed(store).await, [(awake, 0)]);
}

/// Messages that were not consumed, of runs that this runner holds.
pub async fn pending_messages_of_held_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (mine, _) = held_run(store, "r1", Vec::new()).await;
    let (quiet, _) = held_run(store, "r2", Vec::new()).await;
    let theirs = run_held_by(store, runner(), "r3", Vec::new()).await;
    let free = pending(store, "r4").await;
    let unread = || async { store.runs_with_messages(ME).await.unwrap() };
    assert_eq!(unread().await, []);
    for run in [mine, theirs, free] {
        tell(store, run).await;
    }
    assert_eq!(unread().await, [mine]);
    tell(store, mine).await;
    let mut commit = step(mine, 1, 2);
    commit.messages_seen = 1;
    committed(store, commit.clone()).await;
    assert_eq!(unread().await, [mine], "the second message was not consumed");
    (commit.seq, commit.messages_seen) = (3, 2);
    committed(store, commit).await;
    assert_eq!(unread().await, []);
    assert_eq!(take(store, free).await.message_seq, 1);
    assert_eq!(
        unread().await,
        [free],
        "the runner that claims a run gets its pending messages"
    );
    tell(store, quiet).await;
    committed(store, park(quiet, 1, 2, Some(900))).await;
    committed(store, end(free, 1, 1, Status::Cancelled)).await;
    assert_eq!(unread().await, [], "what was given away or is over has none");
}

/// The runs that a runner holds according to the store.
pub async fn held_runs_are_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut mine = Vec::new();
    for index in 0..5 {
        let (run, _) = held_run(store, &format!("r{index}"), Vec::new()).await;
        mine.push(Lease { run, epoch: 1 });
    }
    run_held_by(store, runner(), "theirs", Vec::new()).await;
    pending(store, "free").await;
    mine.sort_by_key(|lease| lease.run);
    assert_eq!(store.held(ME, None, 100).await.unwrap(), mine);
    assert_eq!(store.held(ME, None, 2).await.unwrap(), mine[..2]);
    assert_eq!(store.held(ME, Some(mine[1].run), 100).await.unwrap(), mine[2..]);
    assert_eq!(store.held(runner(), None, 100).await.unwrap(), []);
    committed(store, park(mine[0].run, 1, 2, Some(1))).await;
    committed(store, end(mine[1].run, 1, 2, Status::Failed)).await;
    assert_eq!(store.held(ME, None, 100).await.unwrap(), mine[2..]);
    take(store, mine[0].run).await;
    mine[0].epoch = 2;
    assert_eq!(store.held(ME, None, 1).await.unwrap(), mine[..1]);
}

/// A held run names its runner, and lists can be filtered by runner.
pub async fn runs_name_their_runner(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let them = runner();
    let mut mine = Vec::new();
    for index in 0..5 {
        mine.push(held_run(store, &format!("r{index}"), Vec::new()).await.0);
    }
    let theirs = run_held_by(store, them, "theirs", Vec::new()).await;
    pending(store, "free").await;
    committed(store, end(mine[4], 1, 2, Status::Failed)).await;
    assert_eq!(store.run(theirs).await.unwrap().unwrap().runner, Some(them));
    assert_eq!(store.run(mine[4]).await.unwrap().unwrap().runner, None);

    let runs_of = async |filter: RunFilter| {
        let page = store.runs(filter).await.unwrap();
        let all = page.items.into_iter().map(|run| (run.id, run.runner));
        (all.collect::<Vec<_>>(), page.next.is_some())
    };
    let of = |owner: RunnerId, limit: u32| RunFilter {
        runner: Some(owner),
        limit,
        ..Default::default()
    };
    mine.truncate(4);
    mine.sort();
    let held = |runs: &[RunId]| runs.iter().map(|run| (*run, Some(ME))).collect::<Vec<_>>();
    let mut filter = of(ME, 3);
    filter.order = Order::OldestFirst;
    assert_eq!(runs_of(filter.clone()).await, (held(&mine[..3]), true));
    filter.from = Some(mine[3]);
    assert_eq!(runs_of(filter).await, (held(&mine[3..]), false));
    mine.reverse();
    let mut filter = of(ME, 9);
    assert_eq!(runs_of(filter.clone()).await, (held(&mine), false));
    filter.before = Some(mine[1]);
    assert_eq!(runs_of(filter.clone()).await, (held(&mine[2..]), false));
    filter.request_id = Some("theirs".to_owned());
    assert_eq!(runs_of(filter).await, (Vec::new(), false));
    let mut filter = of(them, 9);
    filter.request_id = Some("theirs".to_owned());
    assert_eq!(runs_of(filter.clone()).await, (vec![(theirs, Some(them))], false));
    (filter.request_id, filter.workflows) = (None, vec![uid("another")]);
    assert_eq!(runs_of(filter).await, (Vec::new(), false));
}

/// A declined claim is not counted, and does not reset the count.
pub async fn declined_claims_are_not_counted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    let decline = |epoch: u64, wake_at: i64| {
        let mut commit = step(run, epoch, 0);
        commit.events.clear();
        commit.then = Then::Decline { wake_at: at(wake_at) };
        commit
    };
    assert_eq!(take(store, run).await.takeovers, 1);
    committed(store, decline(1, 300)).await;
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (record.status, record.held(), record.wake_at),
        (Status::Pending, false, Some(at(300)))
    );
    // The first runner dies, the second declines the run, the third finds it as the second did.
    let mut request = claim(runner(), 1, 1000);
    assert_eq!(store.claim(request.clone()).await.unwrap().runs[0].takeovers, 1);
    (request.runner, request.dead_before) = (ME, Some(at(900)));
    for epoch in [3, 4] {
        let claimed = store.claim(request.clone()).await.unwrap().runs;
        assert_eq!((claimed[0].epoch, claimed[0].takeovers), (epoch, 2));
        committed(store, decline(epoch, 400)).await;
    }
    assert_eq!(store.commit(decline(4, 400)).await, CommitAnswer::Fenced);
    take(store, run).await;
    tell(store, run).await;
    committed(store, decline(5, 9000)).await;
    let wake_at = store.run(run).await.unwrap().unwrap().wake_at;
    assert_eq!(wake_at, Some(at(9000)), "pending messages do not make it due at once");
    tell(store, run).await;
    let wake_at = store.run(run).await.unwrap().unwrap().wake_at;
    assert_eq!(wake_at, Some(at(500)), "what comes later does");
}

/// A claim that failed because of the run itself is counted.
pub async fn failed_claims_are_counted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    for epoch in 1..=3 {
        assert_eq!(u64::from(take(store, run).await.takeovers), epoch);
        let mut commit = step(run, epoch, 0);
        commit.events.clear();
        commit.then = Then::GiveUp {
            wake_at: at(300),
            examined: 0,
        };
        committed(store, commit).await;
        let record = store.run(run).await.unwrap().unwrap();
        assert_eq!((record.held(), record.wake_at), (false, Some(at(300))));
    }
    take(store, run).await;
    committed(store, park(run, 4, 1, Some(1))).await;
    assert_eq!(take(store, run).await.takeovers, 1);
}

/// An examined message does not make a run due before its time. A message that arrives between the check and the commit
/// does, and so does a later one.
pub async fn messages_wake_given_up_runs(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    tell(store, run).await;
    let give_up = |epoch: u64, examined: u64| {
        let mut commit = step(run, epoch, 0);
        commit.events.clear();
        commit.then = Then::GiveUp {
            wake_at: at(9000),
            examined,
        };
        commit
    };
    let due = async || store.run(run).await.unwrap().unwrap().wake_at;
    take(store, run).await;
    committed(store, give_up(1, 1)).await;
    assert_eq!(due().await, Some(at(9000)), "it was looked at");
    assert_eq!(store.messages(run, 0).await.unwrap().len(), 1, "and stays");
    take(store, run).await;
    tell(store, run).await;
    let commit = give_up(2, 1);
    let now = commit.at;
    committed(store, commit).await;
    assert_eq!(due().await, Some(now), "the second was not looked at");
    take(store, run).await;
    committed(store, give_up(3, 2)).await;
    assert_eq!(due().await, Some(at(9000)));
    tell(store, run).await;
    assert_ne!(due().await, Some(at(9000)), "what comes later wakes it");
}
