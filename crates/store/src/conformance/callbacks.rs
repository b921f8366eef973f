//! Registered callbacks.

use super::*;
use crate::{
    callbacks::{CallbackFilter, RegisteredCallback, Registration},
    definitions::{Enablement, Lifecycle},
};

pub(crate) fn callback(id: &str, service: &str) -> RegisteredCallback {
    RegisteredCallback {
        id: id.to_owned(),
        tenant: String::new(),
        service_name: service.to_owned(),
        environment: "test".to_owned(),
        base_url: "https://billing.example".to_owned(),
        path: format!("/{id}"),
        registered_at: at(5),
    }
}

/// A page of the callbacks of all tenants.
pub(crate) fn listed(after: Option<&str>, limit: u32) -> CallbackFilter {
    CallbackFilter {
        tenant: None,
        after: after.map(|id| (id.to_owned(), String::new())),
        limit,
    }
}

async fn ids(store: &Arc<dyn Store>) -> Vec<String> {
    let page = store.registered_callbacks(listed(None, 100)).await.unwrap();
    page.items.into_iter().map(|callback| callback.id).collect()
}

/// A service registers callbacks, replaces them, and they are removed.
pub async fn callbacks_are_registered_and_replaced(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let both = vec![callback("b", "billing"), callback("a", "billing")];
    assert_eq!(store.register_callbacks(both).await.unwrap(), Registration::Registered);
    assert_eq!(
        store.registered_callback("", "b").await.unwrap(),
        Some(callback("b", "billing"))
    );
    let moved = RegisteredCallback {
        environment: String::new(),
        base_url: "https://new.example".to_owned(),
        path: "/other".to_owned(),
        registered_at: at(9),
        ..callback("b", "billing")
    };
    let again = store.register_callbacks(vec![moved.clone()]).await.unwrap();
    assert_eq!(again, Registration::Registered);
    assert_eq!(store.registered_callback("", "b").await.unwrap(), Some(moved));
    assert_eq!(ids(store).await, ["a", "b"], "what is not named again stays");
    assert!(store.delete_callback("", "a").await.unwrap());
    assert!(!store.delete_callback("", "a").await.unwrap());
    assert_eq!(store.registered_callback("", "a").await.unwrap(), None);
    assert_eq!(store.registered_callback("", "a\0").await.unwrap(), None);
    assert!(!store.delete_callback("", "a\0").await.unwrap());
    assert_eq!(ids(store).await, ["b"]);
}

/// A registration that names the id of another service stores nothing.
pub async fn ids_belong_to_one_service(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let first = vec![callback("m", "billing")];
    store.register_callbacks(first).await.unwrap();
    let other = ["a", "m", "z"].map(|id| callback(id, "shipping"));
    let taken = Registration::Taken {
        id: "m".to_owned(),
        service_name: "billing".to_owned(),
    };
    assert_eq!(store.register_callbacks(other.to_vec()).await.unwrap(), taken);
    assert_eq!(ids(store).await, ["m"]);
    assert_eq!(
        store.registered_callback("", "m").await.unwrap(),
        Some(callback("m", "billing"))
    );
}

/// A page has at most the limit, and says whether there is more.
pub async fn callbacks_are_paged(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let all = (0..5).map(|number| callback(&format!("c{number}"), "s")).collect();
    store.register_callbacks(all).await.unwrap();
    let first = store.registered_callbacks(listed(None, 2)).await.unwrap();
    assert_eq!((first.items[1].id.as_str(), first.more), ("c1", true));
    let last = store.registered_callbacks(listed(Some("c2"), 2)).await.unwrap();
    assert_eq!(
        (last.items[0].id.as_str(), last.items.len(), last.more),
        ("c3", 2, false)
    );
}

/// Only the current plans of active workflows are searched.
pub async fn active_workflows_are_found_by_their_plan(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let text = r#""callback_id":"billing.charge""#;
    let plan = format!(r#"{{"nodes":[{{{text}}}]}}"#);
    for name in ["one", "two", "three", "deleted", "archived"] {
        let release = Release {
            plan: if name == "three" { "{}".to_owned() } else { plan.clone() },
            ..release_new(name, name)
        };
        store.release(release).await.unwrap();
    }
    store.soft_delete_workflow(uid("deleted"), at(9)).await.unwrap();
    let archive = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Archived),
        enabled: None,
        version: None,
        paused: None,
    };
    store
        .set_enablement(uid("archived"), archive, at(9))
        .await
        .unwrap()
        .unwrap();
    // The current version of `two` no longer has it.
    let replaced = Release {
        rule: ReleaseRule::Existing {
            uid: uid("two"),
            after: None,
        },
        ..release_new("two", "again")
    };
    store.release(replaced).await.unwrap();
    let found = |text: &'static str, limit| store.active_workflows_containing("", text, limit);
    assert_eq!(found(text, 10).await.unwrap(), ["one"]);
    assert_eq!(found("{", 2).await.unwrap(), ["one", "three"], "at most the limit");
    let none: [&str; 0] = [];
    assert_eq!(found("BILLING.charge", 10).await.unwrap(), none, "as it is written");
}
