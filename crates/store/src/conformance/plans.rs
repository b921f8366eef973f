//! Plans: one for each version, stored with it, and never changed.

use super::{ACTIVATE, activate, at, draft, new_or_draft, release_new, uid};
use crate::{
    Store,
    definitions::{DraftRule, Enablement, Lifecycle, Published, Release, ReleaseRule, Released},
};
use std::sync::Arc;

async fn plan(store: &Arc<dyn Store>, version: u32) -> Option<String> {
    store.plan(uid("w"), version).await.unwrap()
}

/// Publishing, a snapshot and a release each store the plan with the version they make.
pub async fn plans_are_stored_with_their_versions(store: &Arc<dyn Store>) {
    store
        .save_draft(draft("w", "one"), new_or_draft("w"), None)
        .await
        .unwrap();
    assert_eq!(plan(store, 1).await, None);
    store.snapshot(uid("w"), "one", "snapshot", at(2)).await.unwrap();
    assert_eq!(plan(store, 1).await.as_deref(), Some("snapshot"));
    store
        .save_draft(draft("w", "two"), DraftRule::Existing { uid: uid("w") }, None)
        .await
        .unwrap();
    store
        .publish(uid("w"), "two", "published", ACTIVATE, at(3))
        .await
        .unwrap();
    assert_eq!(plan(store, 2).await.as_deref(), Some("published"));
    let release = Release {
        rule: ReleaseRule::Existing {
            uid: uid("w"),
            after: None,
        },
        plan: "released".to_owned(),
        ..release_new("w", "three")
    };
    assert!(matches!(store.release(release).await.unwrap(), Released::Version(_)));
    assert_eq!(plan(store, 3).await.as_deref(), Some("released"));
    assert_eq!(plan(store, 1).await.as_deref(), Some("snapshot"));
    assert_eq!(plan(store, 4).await, None);
    assert_eq!(store.plan(uid("other"), 1).await.unwrap(), None);
}

/// The policies in a plan are settled: publishing the same document again does not change them.
pub async fn publishing_the_same_keeps_the_plan(store: &Arc<dyn Store>) {
    store
        .save_draft(draft("w", "one"), new_or_draft("w"), None)
        .await
        .unwrap();
    store.publish(uid("w"), "one", "first", ACTIVATE, at(2)).await.unwrap();
    store.publish(uid("w"), "one", "second", ACTIVATE, at(3)).await.unwrap();
    store
        .save_draft(draft("w", "one"), DraftRule::Existing { uid: uid("w") }, None)
        .await
        .unwrap();
    store.publish(uid("w"), "one", "third", ACTIVATE, at(4)).await.unwrap();
    let release = Release {
        rule: ReleaseRule::Existing {
            uid: uid("w"),
            after: None,
        },
        plan: "fourth".to_owned(),
        ..release_new("w", "one")
    };
    store.release(release).await.unwrap();
    assert_eq!(plan(store, 1).await.as_deref(), Some("first"));
    assert_eq!(
        store.add_plan(uid("w"), 1, "fifth", at(5)).await.unwrap().as_deref(),
        Some("first")
    );
}

/// A refused publish stores no plan, and a plan needs its version.
pub async fn plans_need_their_versions(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    assert_eq!(
        store.publish(uid("w"), "no", "x", ACTIVATE, at(3)).await.unwrap(),
        Published::NoDraft
    );
    assert_eq!(plan(store, 2).await, None);
    assert_eq!(store.add_plan(uid("w"), 2, "x", at(3)).await.unwrap(), None);
    assert_eq!(store.add_plan(uid("other"), 1, "x", at(3)).await.unwrap(), None);
    assert_eq!(plan(store, 2).await, None);
}

/// Versions of a soft-deleted workflow keep their plans, for the runs in flight; plans of a deleted workflow are
/// deleted with it.
pub async fn plans_are_deleted_with_their_versions(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    let archive = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: Some(false),
        version: None,
        paused: None,
    };
    store.set_enablement(uid("w"), archive, at(3)).await.unwrap();
    store.delete_workflow(uid("w")).await.unwrap();
    assert_eq!(plan(store, 1).await, None);
    store.release(release_new("soft", "two")).await.unwrap();
    assert!(store.soft_delete_workflow(uid("soft"), at(5)).await.unwrap());
    assert_eq!(store.plan(uid("soft"), 1).await.unwrap().as_deref(), Some("{}"));
}
