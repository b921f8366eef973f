//! Advancing a run.

use super::*;
use crate::{
    reads::Window,
    runs::{Answer, Conflict},
};

pub(crate) const ALL: Window = Window { limit: 1000, offset: 0 };

async fn held(store: &Arc<dyn Store>) -> RunId {
    activate(store, WORKFLOW).await;
    held_run(store, "r1", Vec::new()).await.0
}

/// All data of a run.
async fn everything(store: &Arc<dyn Store>, run: RunId) -> String {
    let parts = (
        store.run(run).await.unwrap(),
        store.load(run).await.unwrap(),
        store.links(run, ALL).await.unwrap(),
    );
    let rows = (
        store.actions(run, ALL).await.unwrap(),
        store.events(run, ALL).await.unwrap(),
    );
    format!(
        "{parts:?} {rows:?} {:?} {:?}",
        store.waits(run).await.unwrap(),
        store.messages(run, 0).await.unwrap()
    )
}

/// A commit that changes as much as possible.
fn greedy(run: RunId, epoch: u64, seq: u32) -> RunCommit {
    let mut commit = end(run, epoch, seq, Status::Failed);
    commit.attempts = vec![attempt("a", 1, 10)];
    commit.links = vec![link("mine")];
    commit.waits = vec![open("new", "new-token"), close("w")];
    commit.messages_seen = 9;
    commit
}

/// Committed rows can be read, in order.
pub async fn journal_and_attempts_are_written(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let mut second = step(run, 1, 2);
    second.attempts = vec![attempt("a", 1, 10), attempt("b", 1, 11)];
    assert_eq!(committed(store, second).await, 0);
    committed(store, step(run, 1, 3)).await;
    let (events, total) = store.events(run, ALL).await.unwrap();
    assert_eq!((events.len(), total), (3, 3));
    assert_eq!(events.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        (events[1].at, &events[1].data),
        (at(202), &fermata_core::encode(&[event("a")]))
    );
    let (actions, total) = store.actions(run, ALL).await.unwrap();
    assert_eq!((actions.len(), total), (2, 2));
    let expected = attempt("a", 1, 10);
    assert_eq!((&actions[0].node, actions[0].attempt), (&expected.node, 1));
    assert_eq!(
        (&actions[0].action_type, actions[0].status),
        (&expected.action_type, expected.status)
    );
    assert_eq!(
        (&actions[0].parameters, &actions[0].outputs),
        (&expected.parameters, &expected.outputs)
    );
    assert_eq!(
        (actions[0].started_at, actions[0].ended_at),
        (expected.started_at, expected.ended_at)
    );
}

/// After a takeover, commits of the previous owner change nothing.
pub async fn old_epochs_change_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = run_held_by(store, runner(), "r1", vec![open("w", "t1")]).await;
    let mut request = claim(ME, 1, 1000);
    request.dead_before = Some(at(0));
    assert_eq!(store.claim(request).await.unwrap().runs[0].epoch, 2);
    let before = everything(store, run).await;
    assert_eq!(store.commit(greedy(run, 1, 2)).await, CommitAnswer::Fenced);
    assert_eq!(
        store.commit(greedy(run, 3, 2)).await,
        CommitAnswer::Fenced,
        "nor of an epoch there never was"
    );
    assert_eq!(store.commit(park(run, 1, 2, Some(1))).await, CommitAnswer::Fenced);
    assert_eq!(everything(store, run).await, before);
    committed(store, greedy(run, 2, 2)).await;
}

/// The epoch alone is not enough: another runner could guess it.
pub async fn only_the_owner_commits(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let owner = runner();
    let run = run_held_by(store, owner, "r1", vec![open("w", "t1")]).await;
    let before = everything(store, run).await;
    assert_eq!(store.commit(greedy(run, 1, 2)).await, CommitAnswer::Fenced);
    assert_eq!(store.commit(park(run, 1, 2, Some(1))).await, CommitAnswer::Fenced);
    assert_eq!(everything(store, run).await, before);
    let mut theirs = greedy(run, 1, 2);
    theirs.runner = owner;
    committed(store, theirs).await;
}

/// Parking releases the lease, although the epoch stays the newest.
pub async fn unheld_runs_are_fenced(store: &Arc<dyn Store>) {
    let run = held(store).await;
    committed(store, park(run, 1, 2, Some(500))).await;
    let before = everything(store, run).await;
    assert_eq!(store.commit(greedy(run, 1, 3)).await, CommitAnswer::Fenced);
    assert_eq!(everything(store, run).await, before);
    let free = pending(store, "r2").await;
    assert_eq!(store.commit(greedy(free, 0, 1)).await, CommitAnswer::Fenced);
}

/// A commit to a run that does not exist is fenced.
pub async fn unknown_runs_are_fenced(store: &Arc<dyn Store>) {
    let run = run_id();
    assert_eq!(store.commit(greedy(run, 1, 1)).await, CommitAnswer::Fenced);
    assert_eq!(store.run(run).await.unwrap(), None);
    assert_eq!(store.events(run, ALL).await.unwrap().1, 0);
}

/// A commit that is sent twice or leaves a gap is refused completely.
pub async fn seq_must_be_next(store: &Arc<dyn Store>) {
    let run = held(store).await;
    committed(store, step(run, 1, 2)).await;
    let before = everything(store, run).await;
    for seq in [0, 1, 2, 4, u32::MAX] {
        assert_eq!(
            store.commit(greedy(run, 1, seq)).await,
            CommitAnswer::Conflict(Conflict::Seq),
            "{seq}"
        );
    }
    assert_eq!(everything(store, run).await, before);
    committed(store, step(run, 1, 3)).await;
}

/// Without events the seq is not checked and no journal row is written.
pub async fn no_events_no_journal_row(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let mut quiet = step(run, 1, 77);
    quiet.events.clear();
    quiet.attempts = vec![attempt("a", 1, 10)];
    committed(store, quiet.clone()).await;
    quiet.attempts.clear();
    quiet.then = Then::Park { wake_at: None };
    committed(store, quiet).await;
    assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 1);
    assert_eq!(store.actions(run, ALL).await.unwrap().1, 1);
    assert!(!store.run(run).await.unwrap().unwrap().held());
}

/// A status change overwrites only the fields that it sets.
pub async fn status_changes_keep_what_is_not_given(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    let epoch = take(store, run).await.epoch;
    let mut start = step(run, epoch, 1);
    start.status = Some(StatusChange {
        status: Status::Running,
        started_at: Some(at(150)),
        ended_at: None,
        reason: None,
        error: None,
        outputs: None,
        context_snapshot: Some("{}".to_owned()),
    });
    committed(store, start).await;
    let row = store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.started_at, row.ended_at, row.held()),
        (Status::Running, Some(at(150)), None, true)
    );
    let mut last = end(run, epoch, 2, Status::Failed);
    if let Some(change) = &mut last.status {
        change.reason = Some("action_failed".to_owned());
        change.error = Some(r#"{"code":"X"}"#.to_owned());
    }
    committed(store, last).await;
    let row = store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.started_at, row.ended_at),
        (Status::Failed, Some(at(150)), Some(at(202)))
    );
    assert_eq!(
        (row.reason.as_deref(), row.error.as_deref()),
        (Some("action_failed"), Some(r#"{"code":"X"}"#))
    );
    assert_eq!(
        (row.outputs.as_deref(), row.context_snapshot.as_deref()),
        (Some(r#"{"out":true}"#), Some("{}"))
    );
    assert_eq!((row.held(), row.wake_at), (false, None));
}

/// After a terminal status nothing changes any more, with any epoch. A terminal status also overrides parking.
pub async fn terminal_is_final(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let mut last = end(run, 1, 2, Status::Succeeded);
    last.then = Then::Park { wake_at: Some(at(1)) };
    committed(store, last).await;
    let before = everything(store, run).await;
    let row = store.run(run).await.unwrap().unwrap();
    assert_eq!((row.status, row.held(), row.wake_at), (Status::Succeeded, false, None));
    for commit in [
        greedy(run, 1, 3),
        step(run, 1, 3),
        park(run, 1, 3, Some(1)),
        step(run, 2, 3),
    ] {
        assert_eq!(store.commit(commit).await, CommitAnswer::Fenced);
    }
    assert_eq!(everything(store, run).await, before);
}

/// A parked run is free, and due at its wake time.
pub async fn parking_releases_the_run(store: &Arc<dyn Store>) {
    let run = held(store).await;
    committed(store, park(run, 1, 2, Some(5000))).await;
    let row = store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (row.held(), row.wake_at, row.status),
        (false, Some(at(5000)), Status::Running)
    );
    let early = store.claim(claim(ME, 1, 4999)).await.unwrap();
    assert_eq!((early.runs.len(), early.next_due), (0, Some(at(5000))));
    assert_eq!(store.claim(claim(ME, 1, 5000)).await.unwrap().runs[0].epoch, 2);
    committed(store, park(run, 2, 3, None)).await;
    let never = store.claim(claim(ME, 1, i64::MAX)).await.unwrap();
    assert_eq!((never.runs.len(), never.next_due), (0, None));
}

/// A message that arrived before the parking and was not seen makes the run due at once.
pub async fn parking_with_unseen_messages_is_due_at_once(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let message = crate::runs::RunMessage::Cancel {
        reason: "enough".to_owned(),
    };
    store.deliver(run, message, at(150)).await.unwrap();
    assert_eq!(
        committed(store, step(run, 1, 2)).await,
        1,
        "the commit reports the pending message"
    );
    committed(store, park(run, 1, 3, Some(5000))).await;
    assert_eq!(store.run(run).await.unwrap().unwrap().wake_at, Some(at(203)));
    let claimed = store.claim(claim(ME, 1, 203)).await.unwrap().runs.remove(0);
    assert_eq!((claimed.message_seq, claimed.messages_seen), (1, 0));
    let mut seen = park(run, 2, 4, Some(5000));
    seen.messages_seen = 1;
    committed(store, seen).await;
    assert_eq!(
        store.run(run).await.unwrap().unwrap().wake_at,
        Some(at(5000)),
        "a message that was seen does not"
    );
}

/// A resource belongs to one run.
pub async fn links_are_unique_across_runs(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let (other, _) = held_run(store, "r2", Vec::new()).await;
    let mut first = step(run, 1, 2);
    first.links = vec![link("m1")];
    committed(store, first).await;
    let mut second = step(other, 1, 2);
    second.links = vec![link("m2"), link("m1")];
    let conflict = Conflict::Link {
        link: link("m1"),
        owner: run,
    };
    assert_eq!(store.commit(second.clone()).await, CommitAnswer::Conflict(conflict));
    assert_eq!(store.links(other, ALL).await.unwrap(), (Vec::new(), 0));
    second.links.pop();
    committed(store, second).await;
    let links = store.links(run, ALL).await.unwrap().0;
    assert_eq!(
        (links.len(), links[0].resource_id.as_str(), links[0].created_at),
        (1, "m1", at(202))
    );
    assert_eq!(links[0].url.as_deref(), Some("https://example.com/m1"));
}

/// The same resource again, by its own run, is no conflict and no second row.
pub async fn own_links_again_are_fine(store: &Arc<dyn Store>) {
    let run = held(store).await;
    for seq in [2, 3] {
        let mut commit = step(run, 1, seq);
        commit.links = vec![link("m1"), link("m1")];
        committed(store, commit).await;
    }
    let links = store.links(run, ALL).await.unwrap().0;
    assert_eq!((links.len(), links[0].created_at), (1, at(202)));
}

/// A commit with a conflict writes nothing, whatever else it contains.
pub async fn a_conflict_writes_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (other, _) = held_run(store, "r1", Vec::new()).await;
    let mut theirs = step(other, 1, 2);
    theirs.links = vec![link("taken")];
    committed(store, theirs).await;
    let (run, _) = held_run(store, "r2", vec![open("w", "t1")]).await;
    store.answer("t1", "1", None, at(150)).await.unwrap();
    let before = everything(store, run).await;
    let mut linking = greedy(run, 1, 2);
    linking.links.push(link("taken"));
    assert!(matches!(
        store.commit(linking).await,
        CommitAnswer::Conflict(Conflict::Link { .. })
    ));
    let mut closing = greedy(run, 1, 2);
    closing.messages_seen = 0;
    let node = NodeId::from("w");
    assert_eq!(
        store.commit(closing).await,
        CommitAnswer::Conflict(Conflict::Answered { node })
    );
    assert_eq!(everything(store, run).await, before);
    assert_eq!(
        store.answer("new-token", "1", None, at(160)).await.unwrap(),
        Answer::NotFound
    );
}

/// A refused member does not affect the others of its batch.
pub async fn conflicts_do_not_fail_other_members(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (owner, _) = held_run(store, "owner", Vec::new()).await;
    let mut first = step(owner, 1, 2);
    first.links = vec![link("m1")];
    committed(store, first).await;
    let mut runs = Vec::new();
    for index in 0..60 {
        runs.push(held_run(store, &format!("r{index}"), Vec::new()).await.0);
    }
    let tasks = runs.iter().enumerate().map(|(index, run)| {
        let mut commit = end(*run, 1, 2, Status::Succeeded);
        match index % 4 {
            0 => commit.links = vec![link("m1")],
            1 => commit.epoch = 9,
            2 => commit.seq = 7,
            _ => {}
        }
        let store = Arc::clone(store);
        tokio::spawn(async move { store.commit(commit).await })
    });
    for (index, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = task.await.unwrap();
        let expected = match index % 4 {
            0 => matches!(answer, CommitAnswer::Conflict(Conflict::Link { .. })),
            1 => answer == CommitAnswer::Fenced,
            2 => answer == CommitAnswer::Conflict(Conflict::Seq),
            _ => matches!(answer, CommitAnswer::Committed { .. }),
        };
        assert!(expected, "{index}: {answer:?}");
        let status = store.run(runs[index]).await.unwrap().unwrap().status;
        assert_eq!(status == Status::Succeeded, index % 4 == 3);
    }
}

/// An attempt has one outcome: the first that was recorded.
pub async fn the_first_record_of_an_attempt_is_kept(store: &Arc<dyn Store>) {
    let run = held(store).await;
    for (seq, ended_at) in [(2, 10), (3, 20)] {
        let mut commit = step(run, 1, seq);
        commit.attempts = vec![attempt("a", 1, ended_at)];
        committed(store, commit).await;
    }
    let (actions, _) = store.actions(run, ALL).await.unwrap();
    assert_eq!((actions.len(), actions[0].ended_at), (1, at(10)));
}

/// A closed wait accepts no answer. Closing applies to all tokens of a node, and the same commit may open a new token.
pub async fn waits_close_for_good(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1"), open("x", "t2")]).await;
    let mut commit = step(run, 1, 2);
    commit.waits = vec![close("w"), open("w", "t3"), close("never opened")];
    committed(store, commit).await;
    let open: Vec<_> = store
        .waits(run)
        .await
        .unwrap()
        .into_iter()
        .map(|wait| (wait.token, wait.open))
        .collect();
    assert_eq!(
        open,
        [
            ("t1".to_owned(), false),
            ("t3".to_owned(), true),
            ("t2".to_owned(), true)
        ]
    );
    assert_eq!(store.answer("t1", "1", None, at(300)).await.unwrap(), Answer::Closed);
    assert!(matches!(
        store.answer("t3", "1", None, at(300)).await.unwrap(),
        Answer::Accepted { .. }
    ));
}

/// A timeout loses against an answer that came first.
pub async fn an_unseen_answer_refuses_a_close(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1"), open("x", "t2")]).await;
    store.answer("t1", "1", None, at(300)).await.unwrap();
    let mut other = step(run, 1, 2);
    other.waits = vec![close("x")];
    committed(store, other).await;
    let mut commit = step(run, 1, 3);
    commit.waits = vec![close("w")];
    let node = NodeId::from("w");
    assert_eq!(
        store.commit(commit).await,
        CommitAnswer::Conflict(Conflict::Answered { node })
    );
    assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 2);
}

/// A run that has seen the answer may close the wait.
pub async fn a_seen_answer_allows_a_close(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    store.answer("t1", r#"{"yes":1}"#, None, at(300)).await.unwrap();
    let mut commit = step(run, 1, 2);
    commit.waits = vec![close("w")];
    commit.messages_seen = 1;
    committed(store, commit).await;
    let wait = store.waits(run).await.unwrap().remove(0);
    assert_eq!((wait.open, wait.payload.as_deref()), (false, Some(r#"{"yes":1}"#)));
}

/// A terminal commit deletes the messages of a run and closes its waits.
pub async fn terminal_closes_waits_and_deletes_messages(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1"), open("x", "t2")]).await;
    store.answer("t2", "1", None, at(150)).await.unwrap();
    committed(store, end(run, 1, 2, Status::Cancelled)).await;
    assert!(store.messages(run, 0).await.unwrap().is_empty());
    assert!(store.waits(run).await.unwrap().iter().all(|wait| !wait.open));
    assert_eq!(store.answer("t1", "1", None, at(300)).await.unwrap(), Answer::Closed);
}

/// A resource whose key is too long for an index of PostgreSQL.
fn unstorable(run: RunId) -> RunCommit {
    let mut commit = greedy(run, 1, 2);
    commit.links = vec![link("fine"), link(&"x".repeat(5000))];
    commit
}

/// Data that a store cannot hold is `Rejected`, not `Unknown`. The run is not changed and can still be failed.
pub async fn a_rejected_commit_writes_nothing(store: &Arc<dyn Store>) {
    let run = held(store).await;
    let before = everything(store, run).await;
    for _ in 0..2 {
        match store.commit(unstorable(run)).await {
            CommitAnswer::Rejected(what) => assert!(what.contains("`a`") && what.len() < 500, "{what}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(everything(store, run).await, before);
    let mut failed = end(run, 1, 2, Status::Failed);
    failed.events.clear();
    committed(store, failed).await;
    assert_eq!(store.run(run).await.unwrap().unwrap().status, Status::Failed);
}

/// Commits that are sent together with one that is rejected are written.
pub async fn rejected_commits_do_not_fail_other_members(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut tasks = Vec::new();
    for index in 0..30 {
        let (run, _) = held_run(store, &format!("r{index}"), Vec::new()).await;
        let commit = if index % 10 == 3 {
            unstorable(run)
        } else {
            step(run, 1, 2)
        };
        let store = store.clone();
        tasks.push(tokio::spawn(async move { store.commit(commit).await }));
    }
    for (index, task) in tasks.into_iter().enumerate() {
        match (task.await.unwrap(), index % 10 == 3) {
            (CommitAnswer::Committed { .. }, false) | (CommitAnswer::Rejected(_), true) => {}
            other => panic!("{index}: {other:?}"),
        }
    }
}
