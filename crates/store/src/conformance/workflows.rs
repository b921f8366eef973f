//! Workflows, drafts, versions.

use super::*;
use crate::definitions::{Deleted, DraftGuard, Enablement, Lifecycle, Saved, VersionShown, WorkflowFilter};

/// The result of a publish: the version, whether it is new, and the state of the workflow.
fn version(published: Published) -> (u32, bool, Lifecycle) {
    match published {
        Published::Version(publication) => (publication.version, publication.created, publication.workflow.status),
        other => panic!("{other:?}"),
    }
}

/// A draft is read as it was saved, shows in its workflow, and is deleted when it is published.
pub async fn drafts_are_saved_and_published(store: &Arc<dyn Store>) {
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    assert_eq!(store.workflow("", "w").await.unwrap(), None);
    let first = draft("w", "one");
    let saved = store.save_draft(first, new_or_draft("w"), None).await.unwrap();
    assert_eq!(saved, Saved::Saved { created: true });
    assert_eq!(store.draft(uid("w")).await.unwrap(), Some(draft("w", "one")));
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!(
        (row.display_name.as_str(), row.status, row.enabled),
        ("Name of w", Lifecycle::Draft, true)
    );
    assert_eq!((row.current_version, row.latest_version), (None, None));
    assert_eq!((row.created_at, row.updated_at), (at(1), at(1)));

    let mut second = draft("w", "two");
    second.display_name = "Other".to_owned();
    second.at = at(5);
    assert_eq!(
        store
            .save_draft(second.clone(), existing_draft("w"), None)
            .await
            .unwrap(),
        Saved::Saved { created: false }
    );
    assert_eq!(store.draft(uid("w")).await.unwrap(), Some(second));
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!(
        (row.display_name.as_str(), row.created_at, row.updated_at),
        ("Other", at(1), at(5))
    );

    store.publish(uid("w"), "two", "{}", ACTIVATE, at(6)).await.unwrap();
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
}

/// A draft is saved only in the states that its rule allows.
pub async fn draft_rules(store: &Arc<dyn Store>) {
    assert_eq!(
        store
            .save_draft(draft("w", "one"), existing_draft("w"), None)
            .await
            .unwrap(),
        Saved::NotFound
    );
    assert_eq!(store.workflow("", "w").await.unwrap(), None);
    activate(store, "w").await;
    let mut new = draft("w", "two");
    assert_eq!(
        store.save_draft(new.clone(), new_or_draft("w"), None).await.unwrap(),
        Saved::Refused(Lifecycle::Active)
    );
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    new.display_name = "Later".to_owned();
    let saved = store.save_draft(new, existing_draft("w"), None).await.unwrap();
    assert_eq!(saved, Saved::Saved { created: false });
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!(
        row.display_name, "Name of w",
        "a published workflow shows its version, not its draft"
    );
    store.publish(uid("w"), "two", "{}", ACTIVATE, at(9)).await.unwrap();
    assert_eq!(store.workflow("", "w").await.unwrap().unwrap().display_name, "Later");
}

/// A draft that would replace an unknown one is refused, with the checksum of the stored one.
pub async fn if_match_guards_drafts(store: &Arc<dyn Store>) {
    let is = |checksum: &str| DraftGuard::Is(vec!["other".to_owned(), checksum.to_owned()]);
    let save = |checksum, rule, guard| store.save_draft(draft("w", checksum), rule, Some(guard));
    let saved = |created| Saved::Saved { created };
    for guard in [is("zero"), DraftGuard::Present] {
        assert_eq!(
            save("one", new_or_draft("w"), guard).await.unwrap(),
            Saved::Changed(None)
        );
        assert_eq!(store.workflow("", "w").await.unwrap(), None);
    }
    let first = save("one", new_or_draft("w"), DraftGuard::Absent);
    assert_eq!(first.await.unwrap(), saved(true));
    for guard in [is("zero"), DraftGuard::Absent] {
        assert_eq!(
            save("two", existing_draft("w"), guard).await.unwrap(),
            Saved::Changed(Some("one".to_owned()))
        );
        assert_eq!(store.draft(uid("w")).await.unwrap().unwrap().checksum, "one");
    }
    for (checksum, guard) in [("two", is("one")), ("three", DraftGuard::Present)] {
        assert_eq!(save(checksum, existing_draft("w"), guard).await.unwrap(), saved(false));
    }
}

/// Publishing X, Y, X creates three versions. Versions never change.
pub async fn publishing_numbers_versions(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    for (number, checksum) in [(2, "two"), (3, "one")] {
        store
            .save_draft(draft("w", checksum), existing_draft("w"), None)
            .await
            .unwrap();
        let published = store
            .publish(uid("w"), checksum, "{}", ACTIVATE, at(10 + i64::from(number)))
            .await
            .unwrap();
        assert_eq!(version(published), (number, true, Lifecycle::Active));
    }
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((row.current_version, row.latest_version), (Some(3), Some(3)));
    let first = store.definition(uid("w"), 1).await.unwrap().unwrap();
    assert_eq!((first.checksum.as_str(), first.created_at), ("one", at(2)));
    let second = store.definition(uid("w"), 2).await.unwrap().unwrap();
    assert_eq!((second.source.as_slice(), second.version), (b"# two".as_slice(), 2));
    assert_eq!(store.definition(uid("w"), 4).await.unwrap(), None);
    assert_eq!(store.definition(uid("unknown"), 1).await.unwrap(), None);
}

/// A repeated publish, for example after a lost response, creates no version. It still activates the workflow.
pub async fn publishing_the_same_is_no_new_version(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    let disable = Enablement {
        from: vec![Lifecycle::Active],
        status: None,
        enabled: Some(false),
        version: None,
        paused: None,
    };
    store.set_enablement(uid("w"), disable, at(3)).await.unwrap();
    assert_eq!(
        version(store.publish(uid("w"), "one", "{}", ACTIVATE, at(4)).await.unwrap()),
        (1, false, Lifecycle::Active)
    );
    store
        .save_draft(draft("w", "one"), existing_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(
        version(store.publish(uid("w"), "one", "{}", ACTIVATE, at(5)).await.unwrap()),
        (1, false, Lifecycle::Active)
    );
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    assert!(store.workflow("", "w").await.unwrap().unwrap().enabled);
}

/// Only the draft that the caller names is published.
pub async fn publishing_needs_the_draft_it_names(store: &Arc<dyn Store>) {
    assert_eq!(
        store.publish(uid("w"), "one", "{}", ACTIVATE, at(1)).await.unwrap(),
        Published::NotFound
    );
    activate(store, "w").await;
    assert_eq!(
        store.publish(uid("w"), "two", "{}", ACTIVATE, at(3)).await.unwrap(),
        Published::NoDraft
    );
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(
        store.publish(uid("w"), "three", "{}", ACTIVATE, at(3)).await.unwrap(),
        Published::Changed
    );
    assert_eq!(store.workflow("", "w").await.unwrap().unwrap().latest_version, Some(1));
    assert!(store.draft(uid("w")).await.unwrap().is_some());
}

/// A version can be published without becoming current.
pub async fn activation_is_optional(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(
        version(
            store
                .publish(uid("w"), "two", "{}", Activation::Stage, at(3))
                .await
                .unwrap()
        ),
        (2, true, Lifecycle::Active)
    );
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((row.current_version, row.latest_version), (Some(1), Some(2)));
    assert_eq!(
        version(store.publish(uid("w"), "two", "{}", ACTIVATE, at(4)).await.unwrap()),
        (2, false, Lifecycle::Active)
    );
    assert_eq!(store.workflow("", "w").await.unwrap().unwrap().current_version, Some(2));
}

/// Status and flag change together, and only from the states that the rule names.
pub async fn enablement_follows_its_rule(store: &Arc<dyn Store>) {
    let change = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    };
    assert_eq!(
        store.set_enablement(uid("w"), change.clone(), at(3)).await.unwrap(),
        None
    );
    activate(store, "w").await;
    let (row, done) = store
        .set_enablement(uid("w"), change.clone(), at(3))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (row.status, row.enabled, row.updated_at, done),
        (Lifecycle::Archived, false, at(3), true)
    );
    assert_eq!(store.workflow("", "w").await.unwrap(), Some(row.clone()));
    let again = store.set_enablement(uid("w"), change, at(4)).await.unwrap().unwrap();
    assert_eq!(again, (row, false), "its rule does not allow this state");
    let enable = Enablement {
        from: vec![Lifecycle::Archived, Lifecycle::Active],
        status: None,
        enabled: Some(true),
        version: None,
        paused: None,
    };
    let (row, done) = store.set_enablement(uid("w"), enable, at(5)).await.unwrap().unwrap();
    assert_eq!((row.status, row.enabled, done), (Lifecycle::Archived, true, true));
}

/// An older version becomes the current one again, with its name; status, flag and newest version follow the rule.
pub async fn an_older_version_can_be_activated(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    let newer = Draft {
        display_name: "Newer".to_owned(),
        ..draft("w", "two")
    };
    store.save_draft(newer, existing_draft("w"), None).await.unwrap();
    store.publish(uid("w"), "two", "{}", ACTIVATE, at(3)).await.unwrap();
    let disable = Enablement {
        from: vec![Lifecycle::Active],
        status: None,
        enabled: Some(false),
        version: None,
        paused: None,
    };
    store.set_enablement(uid("w"), disable, at(4)).await.unwrap();
    let older = Enablement {
        from: vec![Lifecycle::Draft, Lifecycle::Active],
        status: Some(Lifecycle::Active),
        enabled: None,
        version: Some(VersionShown {
            version: 1,
            display_name: "Older".to_owned(),
            description: Some("first".to_owned()),
            dialect: "other".to_owned(),
        }),
        paused: None,
    };
    let (row, done) = store
        .set_enablement(uid("w"), older.clone(), at(5))
        .await
        .unwrap()
        .unwrap();
    assert!(done);
    assert_eq!((row.current_version, row.latest_version), (Some(1), Some(2)));
    assert_eq!((row.status, row.enabled), (Lifecycle::Active, false), "the flag stays");
    assert_eq!(
        (
            row.display_name.as_str(),
            row.description.as_deref(),
            row.dialect.as_str()
        ),
        ("Older", Some("first"), "other")
    );
    assert_eq!(store.workflow("", "w").await.unwrap(), Some(row.clone()));
    // New versions continue after the newest, not after the current one.
    store
        .save_draft(draft("w", "three"), existing_draft("w"), None)
        .await
        .unwrap();
    let published = store.publish(uid("w"), "three", "{}", ACTIVATE, at(6)).await.unwrap();
    assert_eq!(version(published).0, 3);
    store.set_enablement(uid("w"), archive(), at(7)).await.unwrap();
    let (row, done) = store.set_enablement(uid("w"), older, at(8)).await.unwrap().unwrap();
    assert_eq!(
        (row.current_version, done),
        (Some(3), false),
        "not while it is archived"
    );
}

/// Workflows are listed by id, in pages. Search and dialect ignore case.
pub async fn workflows_are_paged_and_filtered(store: &Arc<dyn Store>) {
    for id in ["c", "a", "Ärger", "b"] {
        activate(store, id).await;
    }
    let disabled = draft("d", "one");
    store.save_draft(disabled, new_or_draft("d"), None).await.unwrap();
    let list = |filter: WorkflowFilter| async move {
        let page = store.workflows(filter).await.unwrap();
        (page.items.into_iter().map(|row| row.id).collect::<Vec<_>>(), page.more)
    };
    let all = WorkflowFilter {
        limit: 10,
        ..Default::default()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(list(all.clone()).await, (names(&["a", "b", "c", "d", "Ärger"]), false));
    let mut page = all.clone();
    page.limit = 2;
    assert_eq!(list(page.clone()).await, (names(&["a", "b"]), true));
    page.after = Some(("b".to_owned(), String::new()));
    page.limit = 3;
    assert_eq!(list(page).await, (names(&["c", "d", "Ärger"]), false));
    let mut drafts = all.clone();
    drafts.status = Some(Lifecycle::Draft);
    assert_eq!(list(drafts).await.0, names(&["d"]));
    let mut enabled = all.clone();
    enabled.enabled = Some(false);
    assert_eq!(list(enabled).await.0, names(&[]));
    let mut dialect = all.clone();
    dialect.dialect = Some("DataWorkflows".to_owned());
    assert_eq!(list(dialect.clone()).await.0.len(), 5);
    dialect.dialect = Some("runlater".to_owned());
    assert_eq!(list(dialect).await.0, names(&[]));
    let mut search = all;
    search.search = Some("OF ÄRG".to_owned());
    assert_eq!(list(search).await.0, names(&["Ärger"]));
}

fn archive() -> Enablement {
    Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    }
}

/// An archived workflow must be reactivated before it is published; its draft stays.
pub async fn archived_workflows_are_not_published(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    store.set_enablement(uid("w"), archive(), at(3)).await.unwrap();
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    let before = store.workflow("", "w").await.unwrap();
    for activation in [ACTIVATE, Activation::Stage] {
        assert_eq!(
            store.publish(uid("w"), "two", "{}", activation, at(4)).await.unwrap(),
            Published::Refused(Lifecycle::Archived)
        );
    }
    assert_eq!(store.workflow("", "w").await.unwrap(), before);
    assert!(store.draft(uid("w")).await.unwrap().is_some());
    assert_eq!(store.definition(uid("w"), 2).await.unwrap(), None);
}

/// A snapshot is a version for runs of a draft; the draft is kept.
pub async fn snapshots_keep_the_draft(store: &Arc<dyn Store>) {
    assert_eq!(
        store.snapshot(uid("w"), "one", "{}", at(1)).await.unwrap(),
        Published::NotFound
    );
    let first = draft("w", "one");
    store.save_draft(first, new_or_draft("w"), None).await.unwrap();
    for created in [true, false] {
        assert_eq!(
            version(store.snapshot(uid("w"), "one", "{}", at(2)).await.unwrap()),
            (1, created, Lifecycle::Draft)
        );
    }
    assert_eq!(store.draft(uid("w")).await.unwrap().unwrap().checksum, "one");
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!(
        (row.current_version, row.latest_version, row.status),
        (None, Some(1), Lifecycle::Draft)
    );
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(
        store.snapshot(uid("w"), "one", "{}", at(3)).await.unwrap(),
        Published::Changed
    );
    assert_eq!(
        version(store.snapshot(uid("w"), "two", "{}", at(3)).await.unwrap()),
        (2, true, Lifecycle::Draft)
    );
    assert_eq!(
        version(store.publish(uid("w"), "two", "{}", ACTIVATE, at(4)).await.unwrap()),
        (2, false, Lifecycle::Active)
    );
    assert_eq!(
        store.snapshot(uid("w"), "two", "{}", at(5)).await.unwrap(),
        Published::Refused(Lifecycle::Active)
    );
}

/// Drafts and archived workflows without runs can be deleted. Version numbers are not used again.
pub async fn workflows_without_runs_are_deleted(store: &Arc<dyn Store>) {
    assert_eq!(store.delete_workflow(uid("w")).await.unwrap(), Deleted::NotFound);
    let first = draft("w", "one");
    store.save_draft(first.clone(), new_or_draft("w"), None).await.unwrap();
    assert_eq!(store.delete_workflow(uid("w")).await.unwrap(), Deleted::Deleted);
    assert_eq!(store.workflow("", "w").await.unwrap(), None);
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);

    activate(store, "w").await;
    store
        .save_draft(draft("w", "two"), existing_draft("w"), None)
        .await
        .unwrap();
    store.publish(uid("w"), "two", "{}", ACTIVATE, at(3)).await.unwrap();
    assert_eq!(
        store.delete_workflow(uid("w")).await.unwrap(),
        Deleted::Refused(Lifecycle::Active)
    );
    store.set_enablement(uid("w"), archive(), at(3)).await.unwrap();
    store
        .save_draft(draft("w", "three"), existing_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(store.delete_workflow(uid("w")).await.unwrap(), Deleted::Deleted);
    assert_eq!(store.workflow("", "w").await.unwrap(), None);
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    assert_eq!(store.definition(uid("w"), 1).await.unwrap(), None);

    store.save_draft(first, new_or_draft("w"), None).await.unwrap();
    let row = store.workflow("", "w").await.unwrap().unwrap();
    assert_eq!((row.current_version, row.latest_version), (None, None));
    assert_eq!(
        version(store.publish(uid("w"), "one", "{}", ACTIVATE, at(5)).await.unwrap()),
        (3, true, Lifecycle::Active)
    );

    activate(store, WORKFLOW).await;
    pending(store, "r1").await;
    assert_eq!(
        store.delete_workflow(uid(WORKFLOW)).await.unwrap(),
        Deleted::Refused(Lifecycle::Active)
    );
    store.set_enablement(uid(WORKFLOW), archive(), at(3)).await.unwrap();
    assert_eq!(
        store.delete_workflow(uid(WORKFLOW)).await.unwrap(),
        Deleted::HasRuns(Lifecycle::Archived)
    );
    assert!(store.definition(uid(WORKFLOW), 1).await.unwrap().is_some());
}

/// Versions are listed in pages, without their documents.
pub async fn versions_are_listed_newest_first(store: &Arc<dyn Store>) {
    assert!(store.versions(uid("w"), None, 9).await.unwrap().items.is_empty());
    activate(store, "w").await;
    for (number, checksum) in [(2, "two"), (3, "one"), (4, "four")] {
        store
            .save_draft(draft("w", checksum), existing_draft("w"), None)
            .await
            .unwrap();
        store
            .publish(uid("w"), checksum, "{}", ACTIVATE, at(number))
            .await
            .unwrap();
    }
    let list = |before, limit| async move {
        let page = store.versions(uid("w"), before, limit).await.unwrap();
        let rows = page
            .items
            .into_iter()
            .map(|row| (row.version, row.checksum, row.created_at.0));
        (rows.collect::<Vec<_>>(), page.more)
    };
    let row = |version: u32, checksum: &str, at: i64| (version, checksum.to_owned(), at);
    assert_eq!(list(None, 2).await, (vec![row(4, "four", 4), row(3, "one", 3)], true));
    assert_eq!(
        list(Some(3), 2).await,
        (vec![row(2, "two", 2), row(1, "one", 2)], false)
    );
    assert_eq!(list(Some(1), 2).await, (Vec::new(), false));
}
