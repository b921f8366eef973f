//! What must hold under concurrent calls.

use super::*;
use crate::runs::{Answer, Conflict, RunMessage};
use std::collections::BTreeSet;

/// Two runners never claim the same run, and together they claim all.
pub async fn claimers_never_share_a_run(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for index in 0..200 {
        pending(store, &format!("r{index}")).await;
    }
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let runner = runner();
                let mut mine = Vec::new();
                // A claim is empty while others have locked all runs that are left; `next_due` says that there are some.
                for _ in 0..10_000 {
                    let claimed = store.claim(claim(runner, 7, 1000)).await.unwrap();
                    if claimed.runs.is_empty() && claimed.next_due.is_none() {
                        break;
                    }
                    mine.extend(claimed.runs.into_iter().map(|run| run.id));
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert_eq!(all.len(), 200);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 200);
}

/// A message that arrives during a parking wakes the run, in either order.
pub async fn no_wake_up_is_lost(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for round in 0..200 {
        let (run, _) = held_run(store, &format!("r{round}"), Vec::new()).await;
        let message = RunMessage::Cancel {
            reason: "race".to_owned(),
        };
        let (theirs, ours) = (Arc::clone(store), Arc::clone(store));
        let delivering = tokio::spawn(async move { theirs.deliver(run, message, at(500)).await.unwrap() });
        let parking = tokio::spawn(async move { committed(&ours, park(run, 1, 2, None)).await });
        delivering.await.unwrap();
        parking.await.unwrap();
        let claimed = store.claim(claim(ME, 1, 500)).await.unwrap().runs;
        assert_eq!(
            claimed.len(),
            1,
            "round {round}: the run sleeps although it has a message"
        );
        committed(store, end(run, 2, 3, Status::Cancelled)).await;
    }
}

/// Of a concurrent answer and timeout exactly one wins.
pub async fn an_answer_or_a_close_wins_never_both(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut answered = 0;
    for round in 0..200 {
        let token = format!("t{round}");
        let (run, _) = held_run(store, &format!("r{round}"), vec![open("w", &token)]).await;
        let mut commit = step(run, 1, 2);
        commit.waits = vec![close("w")];
        let (theirs, ours) = (Arc::clone(store), Arc::clone(store));
        let answering = tokio::spawn(async move { theirs.answer(&token, "1", None, at(500)).await.unwrap() });
        let closing = tokio::spawn(async move { ours.commit(commit).await });
        match (answering.await.unwrap(), closing.await.unwrap()) {
            (Answer::Accepted { .. }, CommitAnswer::Conflict(Conflict::Answered { .. })) => answered += 1,
            (Answer::Closed, CommitAnswer::Committed { .. }) => {}
            other => panic!("round {round}: {other:?}"),
        }
        let payload = store.waits(run).await.unwrap().remove(0).payload;
        assert_eq!(
            payload.is_some(),
            store.load(run).await.unwrap().unwrap().journal.len() == 1
        );
    }
    tracing::debug!(answered, "answers that won");
}

/// The same commit sent many times is written once.
pub async fn one_commit_for_each_seq(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    for seq in 2..30 {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = Arc::clone(store);
                tokio::spawn(async move { store.commit(step(run, 1, seq)).await })
            })
            .collect();
        let mut written = 0;
        for task in tasks {
            match task.await.unwrap() {
                CommitAnswer::Committed { .. } => written += 1,
                answer => assert_eq!(answer, CommitAnswer::Conflict(Conflict::Seq)),
            }
        }
        assert_eq!(written, 1);
    }
    assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 29);
}

/// Of many runs that link one resource concurrently, one gets it and the others learn the owner.
pub async fn links_have_one_owner(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for round in 0..20 {
        let mut tasks = Vec::new();
        for index in 0..8 {
            let (run, _) = held_run(store, &format!("r{round}-{index}"), Vec::new()).await;
            let mut commit = step(run, 1, 2);
            commit.links = vec![link(&format!("m{round}"))];
            let store = Arc::clone(store);
            tasks.push(async move { (run, store.commit(commit).await) });
        }
        let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
        let (mut winners, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for task in tasks {
            match task.await.unwrap() {
                (run, CommitAnswer::Committed { .. }) => winners.insert(run),
                (_, CommitAnswer::Conflict(Conflict::Link { owner, .. })) => owners.insert(owner),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(winners, owners);
    }
}
