//! Workflows without drafts: released in one step, known by a uid, soft-deleted and created again.

use super::*;
use crate::{
    definitions::{Deleted, Enablement, Lifecycle, Publication, Released, Saved, WorkflowFilter},
    reads::RunFilter,
};

fn existing(id: &str, checksum: &str) -> Release {
    Release {
        rule: ReleaseRule::Existing {
            uid: uid(id),
            after: None,
        },
        ..release_new(id, checksum)
    }
}

/// Makes a release that must succeed.
async fn released(store: &Arc<dyn Store>, release: Release) -> Publication {
    match store.release(release).await.unwrap() {
        Released::Version(publication) => publication,
        other => panic!("{other:?}"),
    }
}

/// A release that expects another latest version changes nothing.
pub async fn a_release_after_another_version_is_refused(store: &Arc<dyn Store>) {
    released(store, release_new("w", "one")).await;
    let after = |version: u32, checksum: &str| Release {
        rule: ReleaseRule::Existing {
            uid: uid("w"),
            after: Some(version),
        },
        ..release_new("w", checksum)
    };
    assert_eq!(released(store, after(1, "two")).await.version, 2);
    for version in [1, 3] {
        let answer = store.release(after(version, "three")).await.unwrap();
        assert!(matches!(answer, Released::Changed), "{answer:?}");
    }
    let workflow = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((workflow.latest_version, workflow.current_version), (Some(2), Some(2)));
    assert_eq!(released(store, after(2, "three")).await.version, 3);
}

async fn archive(store: &Arc<dyn Store>, id: &str) {
    let change = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    };
    store.set_enablement(uid(id), change, at(3)).await.unwrap();
}

/// A release creates the current version in one step; it is read as it was sent.
pub async fn a_release_is_current_at_once(store: &Arc<dyn Store>) {
    let mut first = release_new("w", "one");
    first.draft.at = at(5);
    let publication = released(store, first).await;
    assert_eq!((publication.version, publication.created), (1, true));
    let row = publication.workflow;
    assert_eq!((row.status, row.enabled), (Lifecycle::Active, true));
    assert_eq!((row.current_version, row.latest_version), (Some(1), Some(1)));
    assert_eq!((row.created_at, row.updated_at), (at(5), at(5)));
    assert_eq!(store.workflow("", "w").await.unwrap(), Some(row.clone()));
    assert_eq!(store.draft(uid("w")).await.unwrap(), None, "it never was a draft");
    let definition = store.definition(uid("w"), 1).await.unwrap().unwrap();
    assert_eq!(
        (
            definition.source.as_slice(),
            definition.checksum.as_str(),
            definition.created_at
        ),
        (b"# one".as_slice(), "one", at(5))
    );

    let mut second = existing("w", "two");
    (second.draft.display_name, second.draft.at) = ("Other".to_owned(), at(6));
    let publication = released(store, second).await;
    assert_eq!((publication.version, publication.created), (2, true));
    let later = publication.workflow;
    assert_eq!((later.uid, later.created_at, later.updated_at), (row.uid, at(5), at(6)));
    assert_eq!((later.display_name.as_str(), later.current_version), ("Other", Some(2)));
    assert_eq!(store.workflow("", "w").await.unwrap(), Some(later));
}

/// `New` needs a new workflow, `Existing` an existing one, and an archived workflow must be reactivated first. A
/// refusal changes nothing.
pub async fn release_rules(store: &Arc<dyn Store>) {
    assert_eq!(store.release(existing("w", "one")).await.unwrap(), Released::NotFound);
    assert_eq!(store.workflow("", "w").await.unwrap(), None);
    store
        .save_draft(draft("w", "one"), new_or_draft("w"), None)
        .await
        .unwrap();
    let exists = |status| Released::Exists(status);
    assert_eq!(
        store.release(release_new("w", "two")).await.unwrap(),
        exists(Lifecycle::Draft)
    );
    assert_eq!(released(store, existing("w", "two")).await.version, 1);
    assert_eq!(
        store.release(release_new("w", "three")).await.unwrap(),
        exists(Lifecycle::Active)
    );
    archive(store, "w").await;
    let before = store.workflow("", "w").await.unwrap();
    assert_eq!(
        store.release(release_new("w", "three")).await.unwrap(),
        exists(Lifecycle::Archived)
    );
    assert_eq!(
        store.release(existing("w", "three")).await.unwrap(),
        Released::Refused(Lifecycle::Archived)
    );
    assert_eq!(store.workflow("", "w").await.unwrap(), before);
    assert_eq!(store.definition(uid("w"), 2).await.unwrap(), None);
}

/// A release of the document of the newest version creates no new version; an existing draft is deleted.
pub async fn releasing_the_same_is_no_new_version(store: &Arc<dyn Store>) {
    released(store, release_new("w", "one")).await;
    store
        .save_draft(draft("w", "other"), existing_draft("w"), None)
        .await
        .unwrap();
    let again = released(store, existing("w", "one")).await;
    assert_eq!((again.version, again.created), (1, false));
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    assert_eq!(store.definition(uid("w"), 2).await.unwrap(), None);
    for (checksum, number) in [("two", 2), ("one", 3)] {
        assert_eq!(released(store, existing("w", checksum)).await.version, number);
    }
}

/// A version that was staged becomes current when its document is released.
pub async fn releasing_activates_what_was_staged(store: &Arc<dyn Store>) {
    released(store, release_new("w", "one")).await;
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    store
        .publish(uid("w"), "two", "{}", Activation::Stage, at(3))
        .await
        .unwrap();
    let again = released(store, existing("w", "two")).await;
    assert_eq!((again.version, again.created), (2, false));
    assert_eq!(again.workflow.current_version, Some(2));
}

/// A document may disable new runs, however it is published.
pub async fn documents_may_disable_new_runs(store: &Arc<dyn Store>) {
    let mut off = release_new(WORKFLOW, "one");
    off.enabled = false;
    assert!(!released(store, off).await.workflow.enabled);
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Stale);
    assert!(released(store, existing(WORKFLOW, "one")).await.workflow.enabled);
    assert_eq!(store.enqueue(new_run("r1")).await.unwrap(), Enqueued::Created);
    for enabled in [false, true] {
        let activation = Activation::Activate { enabled };
        store
            .publish(uid(WORKFLOW), "one", "{}", activation, at(4))
            .await
            .unwrap();
        let row = store.workflow("", WORKFLOW).await.unwrap().unwrap();
        assert_eq!((row.status, row.enabled), (Lifecycle::Active, enabled));
    }
}

/// A workflow keeps the uid it was made with, and is found by it.
pub async fn workflows_are_found_by_uid(store: &Arc<dyn Store>) {
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    assert_eq!(store.workflow_by_uid(first).await.unwrap(), None);
    let rule = DraftRule::NewOrDraft { uid: first, most: None };
    store.save_draft(draft("a", "one"), rule, None).await.unwrap();
    let mut b = release_new("b", "one");
    b.rule = ReleaseRule::New {
        uid: second,
        most: None,
    };
    released(store, b).await;
    store
        .save_draft(draft("a", "two"), new_or_draft("a"), None)
        .await
        .unwrap();
    let replaced = Release {
        rule: ReleaseRule::Existing {
            uid: first,
            after: None,
        },
        ..release_new("a", "three")
    };
    released(store, replaced).await;
    for (uid, id) in [(first, "a"), (second, "b")] {
        let found = store.workflow_by_uid(uid).await.unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.uid), (id, uid));
        assert_eq!(store.workflow("", id).await.unwrap(), Some(found));
    }
}

/// The name of a soft-deleted workflow is free, it accepts no runs and no changes, and its draft is deleted; its row
/// and versions stay.
pub async fn soft_deleted_workflows_are_kept_for_their_runs(store: &Arc<dyn Store>) {
    let hello = uid(WORKFLOW);
    assert!(!store.soft_delete_workflow(hello, at(1)).await.unwrap());
    let row = released(store, release_new(WORKFLOW, "one")).await.workflow;
    assert_eq!(row.deleted_at, None);
    released(store, release_new("other", "one")).await;
    let edit = store.save_draft(draft(WORKFLOW, "two"), existing_draft(WORKFLOW), None);
    edit.await.unwrap();
    assert!(store.soft_delete_workflow(hello, at(9)).await.unwrap());
    assert!(!store.soft_delete_workflow(hello, at(10)).await.unwrap());

    assert_eq!(store.workflow("", WORKFLOW).await.unwrap(), None);
    let left = store.workflow_by_uid(hello).await.unwrap().unwrap();
    assert_eq!((left.deleted_at, left.updated_at), (Some(at(9)), at(9)));
    assert_eq!((left.id, left.latest_version), (row.id, row.latest_version));
    assert_eq!(store.draft(hello).await.unwrap(), None);
    let all = WorkflowFilter {
        limit: 9,
        ..Default::default()
    };
    let listed = store.workflows(all).await.unwrap().items;
    assert_eq!(listed.into_iter().map(|row| row.id).collect::<Vec<_>>(), ["other"]);
    for pinned in [false, true] {
        let mut run = new_run("r1");
        run.pinned = pinned;
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Stale);
    }
    let change = Enablement {
        from: vec![Lifecycle::Active],
        status: None,
        enabled: Some(true),
        version: None,
        paused: None,
    };
    assert_eq!(store.set_enablement(hello, change, at(11)).await.unwrap(), None);
    assert_eq!(
        store.publish(hello, "one", "{}", ACTIVATE, at(11)).await.unwrap(),
        Published::NotFound
    );
    let edit = store.save_draft(draft(WORKFLOW, "two"), existing_draft(WORKFLOW), None);
    assert_eq!(edit.await.unwrap(), Saved::NotFound);
    assert_eq!(
        store.release(existing(WORKFLOW, "one")).await.unwrap(),
        Released::NotFound
    );
    assert_eq!(store.delete_workflow(hello).await.unwrap(), Deleted::NotFound);

    assert_eq!(
        store.definition(hello, 1).await.unwrap().unwrap().source,
        b"# one".to_vec()
    );
    assert_eq!(store.versions(hello, None, 9).await.unwrap().items.len(), 1);
}

fn runs_of(workflow: Uuid) -> RunFilter {
    RunFilter {
        workflows: vec![workflow],
        limit: 9,
        ..Default::default()
    }
}

/// Pending, parked and held runs continue to their ends and stay readable.
pub async fn runs_continue_after_their_workflow_is_deleted(store: &Arc<dyn Store>) {
    released(store, release_new(WORKFLOW, "one")).await;
    let waiting = pending(store, "waiting").await;
    let (parked, _) = held_run(store, "parked", vec![open("a", "token")]).await;
    committed(store, park(parked, 1, 2, None)).await;
    let (held, _) = held_run(store, "held", Vec::new()).await;
    assert!(store.soft_delete_workflow(uid(WORKFLOW), at(9)).await.unwrap());

    committed(store, end(held, 1, 2, Status::Succeeded)).await;
    let claimed = take(store, waiting).await;
    committed(store, end(waiting, claimed.epoch, 1, Status::Succeeded)).await;
    store.answer("token", "{}", None, at(300)).await.unwrap();
    let claimed = store.claim(claim(ME, 9, 300)).await.unwrap().runs;
    assert_eq!(claimed.iter().map(|run| run.id).collect::<Vec<_>>(), [parked]);
    committed(store, end(parked, claimed[0].epoch, 3, Status::Failed)).await;

    for (run, status) in [
        (waiting, Status::Succeeded),
        (parked, Status::Failed),
        (held, Status::Succeeded),
    ] {
        assert_eq!(store.run(run).await.unwrap().unwrap().status, status);
    }
    assert_eq!(store.runs(runs_of(uid(WORKFLOW))).await.unwrap().items.len(), 3);
}

/// A later workflow may have the name of a deleted one. It has its own uid, dates and versions, and new version
/// numbers.
pub async fn a_deleted_name_can_be_used_again(store: &Arc<dyn Store>) {
    let first = released(store, release_new("w", "one")).await.workflow;
    released(store, existing("w", "two")).await;
    archive(store, "w").await;
    store.soft_delete_workflow(first.uid, at(9)).await.unwrap();

    let mut again = release_new("w", "two");
    (again.draft.at, again.rule) = (
        at(20),
        ReleaseRule::New {
            uid: Uuid::now_v7(),
            most: None,
        },
    );
    let publication = released(store, again).await;
    assert_eq!(
        (publication.version, publication.created),
        (3, true),
        "the same document, but another workflow"
    );
    let second = publication.workflow;
    assert_ne!(second.uid, first.uid);
    assert_eq!((second.created_at, second.status), (at(20), Lifecycle::Active));
    assert!(second.enabled);
    let old = store.workflow_by_uid(first.uid).await.unwrap().unwrap();
    assert_eq!((old.id.as_str(), old.created_at), ("w", first.created_at));
    assert_eq!((old.deleted_at, old.status), (Some(at(9)), Lifecycle::Archived));
    assert_eq!(store.workflow("", "w").await.unwrap(), Some(second.clone()));
    assert_eq!(store.workflow_by_uid(second.uid).await.unwrap(), Some(second.clone()));
    for (workflow, expected) in [(first.uid, vec![2, 1]), (second.uid, vec![3])] {
        let versions = store.versions(workflow, None, 9).await.unwrap().items;
        let versions: Vec<u32> = versions.iter().map(|row| row.version).collect();
        assert_eq!(versions, expected);
    }
    assert_eq!(store.definition(second.uid, 1).await.unwrap(), None);

    store.soft_delete_workflow(second.uid, at(30)).await.unwrap();
    let rule = DraftRule::NewOrDraft {
        uid: Uuid::now_v7(),
        most: None,
    };
    let saved = store.save_draft(draft("w", "four"), rule, None).await.unwrap();
    assert_eq!(saved, Saved::Saved { created: true });
    let third = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((third.status, third.enabled), (Lifecycle::Draft, true));
    assert_eq!((third.current_version, third.latest_version), (None, None));
    match store.publish(third.uid, "four", "{}", ACTIVATE, at(31)).await.unwrap() {
        Published::Version(publication) => assert_eq!(publication.version, 4),
        other => panic!("{other:?}"),
    }
}

/// Releases a workflow with the name of a deleted one.
async fn created_again(store: &Arc<dyn Store>, name: &str) -> Publication {
    assert!(store.soft_delete_workflow(uid(name), at(9)).await.unwrap());
    let rule = ReleaseRule::New {
        uid: Uuid::now_v7(),
        most: None,
    };
    released(
        store,
        Release {
            rule,
            ..release_new(name, "again")
        },
    )
    .await
}

/// Lists, dead letters and claims keep the runs of a deleted workflow apart from those of a later one with its name.
pub async fn runs_belong_to_one_workflow_of_a_name(store: &Arc<dyn Store>) {
    released(store, release_new(WORKFLOW, "one")).await;
    let old = pending(store, "old").await;
    let again = created_again(store, WORKFLOW).await;
    let run = NewRun {
        workflow_uid: again.workflow.uid,
        workflow_version: again.version,
        ..new_run("new")
    };
    let new = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    for (workflow, expected) in [(uid(WORKFLOW), old), (again.workflow.uid, new)] {
        let listed = store.runs(runs_of(workflow)).await.unwrap().items;
        assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [expected]);
        let record = store.run(expected).await.unwrap().unwrap();
        assert_eq!((record.workflow_uid, record.workflow_id.as_str()), (workflow, WORKFLOW));
        let taken = take(store, expected).await;
        assert_eq!(taken.workflow_uid, workflow);
        assert_eq!(store.load(expected).await.unwrap().unwrap().workflow_uid, workflow);
    }
}

/// A requestId of a deleted workflow is not one of a later workflow with its name.
pub async fn request_ids_of_a_deleted_workflow_stay_taken(store: &Arc<dyn Store>) {
    released(store, release_new(WORKFLOW, "one")).await;
    let old = new_run("r1");
    assert_eq!(store.enqueue(old.clone()).await.unwrap(), Enqueued::Created);
    let again = created_again(store, WORKFLOW).await;
    assert_eq!(
        store.enqueue(new_run("r1")).await.unwrap(),
        Enqueued::Stale,
        "a caller that knows the old workflow of this name looks the name up again"
    );
    let status = Status::Pending;
    assert_eq!(
        store.enqueue(old.clone()).await.unwrap(),
        Enqueued::Existing { run: old.id, status },
        "the same run, sent again because its answer was lost"
    );
    let run = NewRun {
        workflow_uid: again.workflow.uid,
        workflow_version: again.version,
        ..new_run("r1")
    };
    let workflow_id = WORKFLOW.to_owned();
    assert_eq!(
        store.enqueue(run).await.unwrap(),
        Enqueued::OtherWorkflow {
            run: old.id,
            workflow_id
        }
    );
}

/// A draft can be deleted even if a deleted workflow of its name has runs; those keep their versions.
pub async fn drafts_over_old_runs_are_deleted(store: &Arc<dyn Store>) {
    released(store, release_new(WORKFLOW, "one")).await;
    pending(store, "r1").await;
    let old = uid(WORKFLOW);
    store.soft_delete_workflow(old, at(9)).await.unwrap();
    for _ in 0..2 {
        let uid = Uuid::now_v7();
        let save = store.save_draft(draft(WORKFLOW, "two"), DraftRule::NewOrDraft { uid, most: None }, None);
        save.await.unwrap();
        assert_eq!(store.delete_workflow(uid).await.unwrap(), Deleted::Deleted);
        assert_eq!(store.workflow("", WORKFLOW).await.unwrap(), None);
        assert_eq!(store.workflow_by_uid(uid).await.unwrap(), None);
        assert_eq!(store.draft(uid).await.unwrap(), None);
    }
    assert!(store.definition(old, 1).await.unwrap().is_some());
    let again = Release {
        rule: ReleaseRule::New {
            uid: Uuid::now_v7(),
            most: None,
        },
        ..release_new(WORKFLOW, "one")
    };
    let again = released(store, again).await;
    assert_eq!(again.version, 2);
    let change = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    };
    store.set_enablement(again.workflow.uid, change, at(3)).await.unwrap();
    assert_eq!(
        store.delete_workflow(again.workflow.uid).await.unwrap(),
        Deleted::Deleted,
        "the runs are of the old one"
    );
    assert!(store.definition(old, 1).await.unwrap().is_some());
}

/// Concurrent releases create one workflow, and a version for each replacement.
pub async fn concurrent_releases(store: &Arc<dyn Store>) {
    let tasks = |releases: Vec<Release>| {
        let spawn = |release: Release| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.release(release).await.unwrap() })
        };
        all(releases.into_iter().map(spawn).collect())
    };
    let new = (0..16).map(|index| Release {
        rule: ReleaseRule::New {
            uid: Uuid::from_u128(index),
            most: None,
        },
        ..release_new("w", &format!("new {index}"))
    });
    let answers = tasks(new.collect()).await;
    let made = |answer: &&Released| matches!(answer, Released::Version(_));
    assert_eq!(answers.iter().filter(made).count(), 1);
    let lost = |answer: &&Released| **answer == Released::Exists(Lifecycle::Active);
    assert_eq!(answers.iter().filter(lost).count(), 15);

    let uid = store.workflow("", "w").await.unwrap().unwrap().uid;
    let replace = (0..16).map(|index| Release {
        rule: ReleaseRule::Existing { uid, after: None },
        ..release_new("w", &format!("{index}"))
    });
    let mut numbers = Vec::new();
    for answer in tasks(replace.collect()).await {
        match answer {
            Released::Version(publication) => numbers.push(publication.version),
            other => panic!("{other:?}"),
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (2..=17).collect::<Vec<_>>());
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((row.current_version, row.latest_version), (Some(17), Some(17)));
}

async fn all<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}
