//! Dead letters.

use super::*;

/// The tenant of the dead letters of a workflow.
fn tenant_of(workflow: &str) -> &'static str {
    if workflow == "b" { "" } else { "acme" }
}

fn dead_letter(run: RunId, workflow: &str, reason: DeadReason) -> DeadLetter {
    DeadLetter {
        id: Uuid::now_v7(),
        at: at(700),
        reason,
        run,
        workflow_uid: uid(workflow),
        workflow_id: workflow.to_owned(),
        workflow_version: 1,
        tenant: tenant_of(workflow).to_owned(),
        attempts: 4,
        last_error: Some("it took its runner down".to_owned()),
        payload: r#"{"trigger":{"a":1}}"#.to_owned(),
    }
}

/// The commit that dead-letters a run: no journal row, no events.
fn dead_lettering(run: RunId, epoch: u64, dead_letter: DeadLetter) -> RunCommit {
    let mut commit = end(run, epoch, 0, Status::Failed);
    commit.events.clear();
    if let Some(change) = &mut commit.status {
        change.reason = Some("dead_letter".to_owned());
    }
    commit.dead_letter = Some(Box::new(dead_letter));
    commit
}

/// Dead-letters a run of a workflow; returns the id of the dead letter.
async fn dead_lettered(store: &Arc<dyn Store>, workflow: &str, reason: DeadReason) -> Uuid {
    let run = run_of(workflow, &Uuid::now_v7().to_string());
    let id = run.id;
    store.enqueue(run).await.unwrap();
    take(store, id).await;
    let dead_letter = dead_letter(id, workflow, reason);
    let dead_letter_id = dead_letter.id;
    committed(store, dead_lettering(id, 1, dead_letter)).await;
    dead_letter_id
}

async fn ids(store: &Arc<dyn Store>, filter: DeadLetterFilter) -> (Vec<Uuid>, bool) {
    let page = store.dead_letters(filter).await.unwrap();
    (page.items.iter().map(|dead_letter| dead_letter.id).collect(), page.more)
}

fn all() -> DeadLetterFilter {
    DeadLetterFilter {
        limit: 100,
        ..Default::default()
    }
}

/// The dead letter and the end of the run are one commit; the waits of the run close.
pub async fn a_run_is_dead_lettered(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", vec![open("w", "t1")]).await;
    let dead_letter = dead_letter(run, WORKFLOW, DeadReason::Poison);
    committed(store, dead_lettering(run, 1, dead_letter.clone())).await;
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (record.status, record.reason.as_deref()),
        (Status::Failed, Some("dead_letter"))
    );
    assert!(!record.held() && record.wake_at.is_none());
    assert!(!store.waits(run).await.unwrap()[0].open);
    assert_eq!(
        store.load(run).await.unwrap().unwrap().journal.len(),
        1,
        "nothing was written there"
    );
    assert_eq!(
        store.dead_letter(dead_letter.id).await.unwrap(),
        Some(dead_letter.clone())
    );
    let listed = store.dead_letters(all()).await.unwrap();
    let payload = String::new();
    assert_eq!(
        (listed.items, listed.more),
        (vec![DeadLetter { payload, ..dead_letter }], false)
    );
    assert_eq!(store.dead_letter(Uuid::now_v7()).await.unwrap(), None);
}

/// A runner that does not hold a run cannot dead-letter it.
pub async fn dead_lettering_is_fenced(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let theirs = run_held_by(store, runner(), "r1", Vec::new()).await;
    let (run, _) = held_run(store, "r2", Vec::new()).await;
    let dead_letter = |run| dead_letter(run, WORKFLOW, DeadReason::Poison);
    assert_eq!(
        store.commit(dead_lettering(theirs, 1, dead_letter(theirs))).await,
        CommitAnswer::Fenced
    );
    assert_eq!(
        store.commit(dead_lettering(run, 2, dead_letter(run))).await,
        CommitAnswer::Fenced
    );
    assert_eq!(ids(store, all()).await, (Vec::new(), false));
    committed(store, dead_lettering(run, 1, dead_letter(run))).await;
    assert_eq!(
        store.commit(dead_lettering(run, 1, dead_letter(run))).await,
        CommitAnswer::Fenced
    );
    assert_eq!(ids(store, all()).await.0.len(), 1, "once is enough");
}

/// The newest first.
pub async fn dead_letters_are_paged_and_filtered(store: &Arc<dyn Store>) {
    let (poison, trigger) = (DeadReason::Poison, DeadReason::InvalidTrigger);
    activate(store, "a").await;
    activate(store, "b").await;
    let mut letters = Vec::new();
    for (workflow, reason) in [
        ("a", poison),
        ("b", trigger),
        ("a", trigger),
        ("b", poison),
        ("a", poison),
    ] {
        letters.push((dead_lettered(store, workflow, reason).await, workflow, reason));
    }
    letters.reverse();
    let of = |fits: &dyn Fn(&str, DeadReason) -> bool| -> (Vec<Uuid>, bool) {
        let fitting = letters.iter().filter(|(_, workflow, reason)| fits(workflow, *reason));
        (fitting.map(|(id, ..)| *id).collect(), false)
    };
    assert_eq!(ids(store, all()).await, of(&|_, _| true));
    for reason in [None, Some(poison), Some(trigger)] {
        for workflow in [None, Some("a"), Some("b"), Some("c")] {
            for tenant in [None, Some(""), Some("acme"), Some("other")] {
                let filter = DeadLetterFilter {
                    reason,
                    workflow_uid: workflow.map(uid),
                    tenant: tenant.map(str::to_owned),
                    ..all()
                };
                let fits = |its: &str, why: DeadReason| {
                    workflow.is_none_or(|workflow| workflow == its)
                        && reason.is_none_or(|reason| reason == why)
                        && tenant.is_none_or(|tenant| tenant == tenant_of(its))
                };
                let found = ids(store, filter).await;
                assert_eq!(found, of(&fits), "{reason:?} {workflow:?} {tenant:?}");
            }
        }
    }
    let mut page = DeadLetterFilter { limit: 2, ..all() };
    let mut seen = Vec::new();
    loop {
        let (ids, more) = ids(store, page.clone()).await;
        page.before = ids.last().copied();
        seen.extend(ids);
        if !more {
            break;
        }
    }
    assert_eq!(seen, of(&|_, _| true).0);
}

/// Dead letters are deleted one by one, or all that match a filter.
pub async fn dead_letters_are_deleted(store: &Arc<dyn Store>) {
    let (poison, trigger) = (DeadReason::Poison, DeadReason::InvalidTrigger);
    activate(store, "a").await;
    activate(store, "b").await;
    let first = dead_lettered(store, "a", poison).await;
    let second = dead_lettered(store, "b", trigger).await;
    let third = dead_lettered(store, "b", poison).await;
    let fourth = dead_lettered(store, "b", poison).await;
    assert!(store.delete_dead_letter(first).await.unwrap());
    assert!(!store.delete_dead_letter(first).await.unwrap());
    assert_eq!(ids(store, all()).await.0, [fourth, third, second]);
    let filter = DeadLetterFilter {
        reason: Some(poison),
        workflow_uid: Some(uid("b")),
        limit: 1,
        ..all()
    };
    assert_eq!(
        store.purge_dead_letters(filter.clone()).await.unwrap(),
        1,
        "no more than the limit"
    );
    assert_eq!(ids(store, all()).await.0, [third, second]);
    let older = DeadLetterFilter {
        before: Some(third),
        ..all()
    };
    assert_eq!(store.purge_dead_letters(older).await.unwrap(), 1);
    assert_eq!(store.purge_dead_letters(filter.clone()).await.unwrap(), 1);
    assert_eq!(store.purge_dead_letters(filter).await.unwrap(), 0);
    assert_eq!(ids(store, all()).await, (Vec::new(), false));
}
