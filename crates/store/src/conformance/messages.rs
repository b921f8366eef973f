//! Messages and answers.

use super::*;
use crate::{
    ChangeHint,
    reads::RunFilter,
    runs::{Answer, Delivery, RunMessage, StoredMessage},
};

fn cancel(reason: &str) -> RunMessage {
    RunMessage::Cancel {
        reason: reason.to_owned(),
    }
}

/// Messages are kept in the order of their delivery.
pub async fn messages_are_numbered_and_kept(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    let status = Status::Running;
    assert_eq!(
        store.deliver(run, cancel("one"), at(1)).await.unwrap(),
        Delivery::Delivered { status }
    );
    let node = NodeId::from("w");
    let accepted = store.answer("t1", r#"{"ok":true}"#, None, at(2)).await.unwrap();
    assert_eq!(
        accepted,
        Answer::Accepted {
            run,
            node: node.clone()
        }
    );
    store.deliver(run, cancel("three"), at(3)).await.unwrap();
    let stored = |seq, time, message| StoredMessage {
        seq,
        at: at(time),
        message,
    };
    let expected = [
        stored(1, 1, cancel("one")),
        stored(2, 2, RunMessage::Callback { node, attempt: 1 }),
        stored(3, 3, cancel("three")),
    ];
    assert_eq!(store.messages(run, 0).await.unwrap(), expected);
    assert_eq!(store.messages(run, 1).await.unwrap(), expected[1..]);
    assert_eq!(store.messages(run, 3).await.unwrap(), []);
    let wait = store.waits(run).await.unwrap().remove(0);
    assert_eq!((wait.open, wait.payload.as_deref()), (false, Some(r#"{"ok":true}"#)));
    assert_eq!(store.load(run).await.unwrap().unwrap().message_seq, 3);
}

/// Messages that a commit has seen are deleted; numbers continue.
pub async fn consumed_messages_are_deleted(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    store.deliver(run, cancel("one"), at(1)).await.unwrap();
    store.deliver(run, cancel("two"), at(2)).await.unwrap();
    let mut commit = step(run, 1, 2);
    commit.messages_seen = 1;
    assert_eq!(committed(store, commit).await, 2);
    assert_eq!(store.messages(run, 0).await.unwrap().len(), 1);
    committed(store, step(run, 1, 3)).await;
    assert_eq!(
        store.load(run).await.unwrap().unwrap().messages_seen,
        1,
        "it never decreases"
    );
    let mut commit = step(run, 1, 4);
    commit.messages_seen = 2;
    committed(store, commit).await;
    store.deliver(run, cancel("three"), at(3)).await.unwrap();
    assert_eq!(store.messages(run, 0).await.unwrap()[0].seq, 3);
}

/// A commit with an `messages_seen` beyond the last message loses no later message.
pub async fn messages_seen_beyond_the_last_one_lose_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let mut commit = park(run, 1, 2, None);
    commit.messages_seen = 5;
    committed(store, commit).await;
    store.deliver(run, cancel("one"), at(1)).await.unwrap();
    let claimed = store.claim(claim(ME, 1, 1)).await.unwrap().runs.remove(0);
    assert_eq!((claimed.message_seq, claimed.messages_seen), (1, 0));
    assert_eq!(store.messages(run, claimed.messages_seen).await.unwrap().len(), 1);
}

/// A message makes a free run due, but never later than it was; a held run learns of it from its commits.
pub async fn delivery_wakes_free_runs_only(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let wake_at = async || store.run(run).await.unwrap().unwrap().wake_at;
    let held = wake_at().await;
    assert!(held.is_some(), "a held run can be found when its owner dies");
    store.deliver(run, cancel("one"), at(1)).await.unwrap();
    assert_eq!(wake_at().await, held);
    let mut parking = park(run, 1, 2, None);
    parking.messages_seen = 1;
    committed(store, parking).await;
    assert_eq!(wake_at().await, None);
    store.deliver(run, cancel("two"), at(700)).await.unwrap();
    assert_eq!(wake_at().await, Some(at(700)));
    store.deliver(run, cancel("three"), at(800)).await.unwrap();
    assert_eq!(wake_at().await, Some(at(700)));
    store.deliver(run, cancel("four"), at(600)).await.unwrap();
    assert_eq!(wake_at().await, Some(at(600)));
    assert_eq!(store.claim(claim(ME, 1, 600)).await.unwrap().runs[0].message_seq, 4);
}

/// A pause is shown from its delivery on, one of a paused run adds nothing, and a run that has ended is not paused.
pub async fn pauses_show_at_once_and_count_once(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let status = Status::Running;
    let deliver = async |message: RunMessage, time| store.deliver(run, message, at(time)).await.unwrap();
    let paused_at = async || {
        let filter = RunFilter {
            limit: 1,
            ..RunFilter::default()
        };
        let listed = store.runs(filter).await.unwrap().items.remove(0);
        let read = store.run(run).await.unwrap().unwrap();
        assert_eq!(listed.paused_at, read.paused_at);
        read.paused_at
    };
    let numbered = async || store.load(run).await.unwrap().unwrap().message_seq;
    assert_eq!(deliver(RunMessage::Resume, 1).await, Delivery::Delivered { status });
    assert_eq!((paused_at().await, numbered().await), (None, 0));
    assert_eq!(deliver(RunMessage::Pause, 2).await, Delivery::Delivered { status });
    assert_eq!(deliver(RunMessage::Pause, 3).await, Delivery::Delivered { status });
    assert_eq!((paused_at().await, numbered().await), (Some(at(2)), 1));
    let message = StoredMessage {
        seq: 1,
        at: at(2),
        message: RunMessage::Pause,
    };
    assert_eq!(store.messages(run, 0).await.unwrap(), [message]);
    committed(store, park(run, 1, 2, None)).await;
    assert_eq!(deliver(RunMessage::Resume, 4).await, Delivery::Delivered { status });
    assert_eq!((paused_at().await, numbered().await), (None, 2));
    deliver(RunMessage::Pause, 5).await;
    let claimed = store.claim(claim(ME, 1, 600)).await.unwrap().runs.remove(0);
    assert_eq!(claimed.message_seq, 3);
    committed(store, end(run, claimed.epoch, 3, Status::Failed)).await;
    assert_eq!(paused_at().await, None);
    let terminal = Delivery::Terminal { status: Status::Failed };
    assert_eq!(deliver(RunMessage::Resume, 6).await, terminal);
}

/// Terminal and unknown runs receive no messages.
pub async fn terminal_and_unknown_runs_get_no_messages(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    committed(store, end(run, 1, 2, Status::Failed)).await;
    let status = Status::Failed;
    assert_eq!(
        store.deliver(run, cancel("one"), at(1)).await.unwrap(),
        Delivery::Terminal { status }
    );
    assert!(store.messages(run, 0).await.unwrap().is_empty());
    assert_eq!(store.run(run).await.unwrap().unwrap().wake_at, None);
    assert_eq!(
        store.deliver(run_id(), cancel("one"), at(1)).await.unwrap(),
        Delivery::NotFound
    );
    let status = Status::Pending;
    let waiting = pending(store, "r2").await;
    assert_eq!(
        store.deliver(waiting, cancel("one"), at(1)).await.unwrap(),
        Delivery::Delivered { status }
    );
}

/// The first answer is kept; it wakes a parked run.
pub async fn a_wait_is_answered_once(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    committed(store, park(run, 1, 2, None)).await;
    assert!(matches!(
        store.answer("t1", "1", None, at(300)).await.unwrap(),
        Answer::Accepted { .. }
    ));
    assert_eq!(store.answer("t1", "2", None, at(301)).await.unwrap(), Answer::Closed);
    assert_eq!(store.waits(run).await.unwrap()[0].payload.as_deref(), Some("1"));
    let claimed = store.claim(claim(ME, 1, 300)).await.unwrap().runs.remove(0);
    assert_eq!((claimed.id, claimed.message_seq), (run, 1));
}

/// Answers to closed, unknown or terminal waits are refused and change nothing.
pub async fn answers_to_closed_unknown_or_ended(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1"), open("x", "t2")]).await;
    assert_eq!(
        store.answer("unknown", "1", None, at(1)).await.unwrap(),
        Answer::NotFound
    );
    let mut commit = step(run, 1, 2);
    commit.waits = vec![close("w")];
    committed(store, commit).await;
    assert_eq!(store.answer("t1", "1", None, at(1)).await.unwrap(), Answer::Closed);
    committed(store, end(run, 1, 3, Status::Succeeded)).await;
    assert_eq!(store.answer("t2", "1", None, at(1)).await.unwrap(), Answer::Closed);
    assert!(
        store
            .waits(run)
            .await
            .unwrap()
            .iter()
            .all(|wait| wait.payload.is_none())
    );
    assert!(store.messages(run, 0).await.unwrap().is_empty());
}

/// A wait accepts no answer from its deadline on, even if its run has not processed the timeout.
pub async fn answers_after_the_deadline_are_refused(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let waits = vec![open("v", "t1"), open("w", "t2"), open("x", "t3"), limit("v", 300)];
    let (run, _) = held_run(store, "r1", waits).await;
    let mut commit = step(run, 1, 2);
    commit.waits = vec![limit("w", 500), open("y", "t4"), limit("y", 500)];
    committed(store, commit).await;
    let accepted = async |token: &str, time: i64| match store.answer(token, "1", None, at(time)).await.unwrap() {
        Answer::Accepted { .. } => true,
        Answer::Closed => false,
        other => panic!("{token}: {other:?}"),
    };
    assert!(!accepted("t1", 300).await && !accepted("t1", 900).await);
    assert!(!accepted("t2", 500).await && accepted("t2", 499).await);
    assert!(accepted("t3", 900).await, "it has not opened, or has no limit");
    assert!(!accepted("t4", 500).await && accepted("t4", 1).await);
    assert_eq!(
        store.messages(run, 0).await.unwrap().len(),
        3,
        "refused answers write nothing"
    );
}

/// Opening an existing token changes nothing, so a commit can be repeated.
pub async fn reopening_a_token_changes_nothing(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    store.answer("t1", "1", None, at(1)).await.unwrap();
    let mut commit = step(run, 1, 2);
    commit.waits = vec![open("w", "t1")];
    committed(store, commit).await;
    let waits = store.waits(run).await.unwrap();
    assert_eq!(
        (waits.len(), waits[0].open, waits[0].payload.as_deref()),
        (1, false, Some("1"))
    );
}

/// Each attempt has a wait of its own: a token answers only its attempt, and a closed attempt takes no answer.
pub async fn each_attempt_has_its_own_token(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    let second = WaitChange::Open {
        node: "w".into(),
        attempt: 2,
        token: "t2".to_owned(),
    };
    let mut commit = step(run, 1, 2);
    commit.waits = vec![close("w"), second];
    committed(store, commit).await;
    assert_eq!(store.answer("t1", "1", None, at(5)).await.unwrap(), Answer::Closed);
    store.answer("t2", "2", Some("ann"), at(6)).await.unwrap();
    let waits = store.waits(run).await.unwrap();
    let shown = waits
        .iter()
        .map(|wait| (wait.attempt, wait.open, wait.answered_by.as_deref(), wait.answered_at));
    let expected = [(1, false, None, None), (2, false, Some("ann"), Some(at(6)))];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let messages = store.messages(run, 0).await.unwrap();
    let node = NodeId::from("w");
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].message, RunMessage::Callback { node, attempt: 2 });
}

/// Subscribers are notified of claimable runs and of messages.
pub async fn changes_are_notified(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut changes = store.changes();
    let mut received = |count: usize| {
        let all: Vec<ChangeHint> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
        assert_eq!(all.len(), count, "{all:?}");
        all
    };
    let run = pending(store, "r1").await;
    assert_eq!(received(1), [ChangeHint::Due(at(100))]);
    let (held, _) = held_run(store, "r2", Vec::new()).await;
    received(0);
    store.deliver(held, cancel("one"), at(7)).await.unwrap();
    assert_eq!(received(1), [ChangeHint::Messages(held)]);
    store.deliver(run, cancel("one"), at(7)).await.unwrap();
    assert_eq!(received(2), [ChangeHint::Messages(run), ChangeHint::Due(at(7))]);
    let mut parking = park(held, 1, 2, Some(900));
    parking.messages_seen = 1;
    committed(store, parking).await;
    assert_eq!(received(1), [ChangeHint::Due(at(900))]);
    take(store, held).await;
    let mut forever = park(held, 2, 3, None);
    forever.messages_seen = 1;
    committed(store, forever).await;
    received(0);
}
