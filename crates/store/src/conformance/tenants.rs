//! Tenants: what belongs to one is unique within it, and its own comes before what is shared.

use super::*;
use crate::{
    callbacks::{CallbackFilter, RegisteredCallback, Registration},
    conformance::callbacks::callback,
    definitions::{Released, Saved, Workflow, WorkflowFilter},
    reads::{Order, RunFilter},
};

/// A document of a tenant, for a workflow that does not exist yet. The uid is that of `key`.
fn release_of(tenant: &str, id: &str, key: &str) -> Release {
    Release {
        draft: Draft {
            tenant: tenant.to_owned(),
            ..draft(id, key)
        },
        rule: ReleaseRule::New {
            uid: uid(key),
            most: None,
        },
        ..release_new(id, key)
    }
}

async fn released(store: &Arc<dyn Store>, release: Release) -> Workflow {
    match store.release(release).await.unwrap() {
        Released::Version(publication) => publication.workflow,
        other => panic!("{other:?}"),
    }
}

async fn found(store: &Arc<dyn Store>, tenant: &str, name: &str) -> Option<Uuid> {
    let workflow = store.workflow(tenant, name).await.unwrap();
    workflow.map(|workflow| workflow.uid)
}

/// A name is unique within its tenant, and a lookup finds the tenant's own workflow before the shared one.
pub async fn own_workflows_come_before_shared_ones(store: &Arc<dyn Store>) {
    let shared = released(store, release_of("", "w", "shared")).await;
    assert_eq!(found(store, "acme", "w").await, Some(shared.uid), "shared with all");
    let own = released(store, release_of("acme", "w", "acme's")).await;
    assert_eq!((own.tenant.as_str(), own.latest_version), ("acme", Some(1)));
    let other = released(store, release_of("other", "w", "other's")).await;
    released(store, release_of("acme", "x", "x")).await;
    assert_eq!(found(store, "acme", "w").await, Some(own.uid));
    assert_eq!(found(store, "other", "w").await, Some(other.uid));
    assert_eq!(found(store, "third", "w").await, Some(shared.uid));
    assert_eq!(found(store, "", "w").await, Some(shared.uid));
    assert_eq!(found(store, "", "x").await, None, "it belongs to a tenant");
    assert_eq!(found(store, "other", "x").await, None);
    assert_eq!(store.workflow_by_uid(uid("x")).await.unwrap().unwrap().tenant, "acme");

    let again = store.release(release_of("acme", "w", "again")).await.unwrap();
    assert_eq!(again, Released::Exists(crate::definitions::Lifecycle::Active));
    assert!(store.soft_delete_workflow(own.uid, at(9)).await.unwrap());
    assert_eq!(found(store, "acme", "w").await, Some(shared.uid), "it is visible again");
    assert_eq!(found(store, "other", "w").await, Some(other.uid));
    let new = released(store, release_of("acme", "w", "again")).await;
    assert_eq!(
        new.latest_version,
        Some(2),
        "version numbers continue within the tenant"
    );
}

/// Drafts belong to the tenant that saves them.
pub async fn drafts_belong_to_tenants(store: &Arc<dyn Store>) {
    activate(store, "w").await;
    let own = Draft {
        tenant: "acme".to_owned(),
        ..draft("w", "acme's")
    };
    let rule = DraftRule::NewOrDraft {
        uid: uid("acme's"),
        most: None,
    };
    let saved = store.save_draft(own.clone(), rule, None).await.unwrap();
    assert_eq!(saved, Saved::Saved { created: true }, "the shared one does not matter");
    assert_eq!(store.draft(uid("acme's")).await.unwrap(), Some(own.clone()));
    assert_eq!(store.draft(uid("w")).await.unwrap(), None);
    let rule = DraftRule::NewOrDraft {
        uid: uid("unused"),
        most: None,
    };
    let again = store.save_draft(own, rule, None).await.unwrap();
    assert_eq!(again, Saved::Saved { created: false });
    let published = store
        .publish(uid("acme's"), "acme's", "{}", ACTIVATE, at(2))
        .await
        .unwrap();
    assert!(matches!(published, Published::Version(publication) if publication.version == 1));
    assert_eq!(found(store, "acme", "w").await, Some(uid("acme's")));
    assert_eq!(found(store, "", "w").await, Some(uid("w")));
}

/// Concurrent creations, as drafts and as versions, do not exceed the limit of a tenant. Other tenants and existing workflows are not
/// affected, and a deleted workflow makes room.
pub async fn workflows_of_a_tenant_are_limited(store: &Arc<dyn Store>) {
    const MOST: Option<u32> = Some(3);
    released(store, release_of("other", "w", "other's")).await;
    let mut tasks = Vec::new();
    for number in 0..16 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let id = format!("w{number}");
            let mut release = release_of("acme", &id, &id);
            if number % 2 == 0 {
                release.rule = ReleaseRule::New {
                    uid: uid(&id),
                    most: MOST,
                };
                let released = store.release(release).await.unwrap();
                assert!(
                    matches!(released, Released::Version(_) | Released::Full),
                    "{released:?}"
                );
                return (released != Released::Full).then_some(id);
            }
            let rule = DraftRule::NewOrDraft {
                uid: uid(&id),
                most: MOST,
            };
            let saved = store.save_draft(release.draft, rule, None).await.unwrap();
            assert!(
                matches!(saved, Saved::Saved { created: true } | Saved::Full),
                "{saved:?}"
            );
            (saved != Saved::Full).then_some(id)
        }));
    }
    let mut created = Vec::new();
    for task in tasks {
        created.extend(task.await.unwrap());
    }
    assert_eq!(created.len(), 3, "{created:?}");

    let save = async |tenant: &str, id: &str| {
        let rule = DraftRule::NewOrDraft {
            uid: Uuid::now_v7(),
            most: MOST,
        };
        let own = Draft {
            tenant: tenant.to_owned(),
            ..draft(id, "again")
        };
        store.save_draft(own, rule, None).await.unwrap()
    };
    assert_ne!(save("acme", &created[0]).await, Saved::Full, "it exists");
    assert_eq!(save("acme", "new").await, Saved::Full);
    assert_eq!(save("other", "new").await, Saved::Saved { created: true });
    assert!(store.soft_delete_workflow(uid(&created[0]), at(9)).await.unwrap());
    assert_eq!(save("acme", "new").await, Saved::Saved { created: true });
    assert_eq!(save("acme", "newer").await, Saved::Full);
}

/// Concurrent creations of one name in several tenants make one workflow for each tenant.
pub async fn concurrent_creations_in_tenants(store: &Arc<dyn Store>) {
    let mut tasks = Vec::new();
    for number in 0..12 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let tenant = ["", "acme", "other"][number % 3];
            store
                .release(release_of(tenant, "w", &format!("u{number}")))
                .await
                .unwrap()
        }));
    }
    let mut created = 0;
    for task in tasks {
        created += usize::from(matches!(task.await.unwrap(), Released::Version(_)));
    }
    assert_eq!(created, 3);
}

/// A tenant's list has its own workflows and the shared ones that they do not hide. Pages continue at (name, tenant).
pub async fn workflows_are_listed_by_tenant(store: &Arc<dyn Store>) {
    for (tenant, id) in [
        ("", "a"),
        ("acme", "a"),
        ("other", "a"),
        ("acme", "b"),
        ("", "c"),
        ("other", "c"),
        ("", "d"),
    ] {
        released(store, release_of(tenant, id, &format!("{tenant}/{id}"))).await;
    }
    released(store, release_of("acme", "d", "gone")).await;
    store.soft_delete_workflow(uid("gone"), at(9)).await.unwrap();
    for (tenant, expected) in [
        (None, vec!["/a", "acme/a", "other/a", "acme/b", "/c", "other/c", "/d"]),
        (Some("acme"), vec!["acme/a", "acme/b", "/c", "/d"]),
        (Some("other"), vec!["other/a", "other/c", "/d"]),
        (Some("third"), vec!["/a", "/c", "/d"]),
        (Some(""), vec!["/a", "/c", "/d"]),
    ] {
        for limit in [1, 2, 100] {
            let mut filter = WorkflowFilter {
                tenant: tenant.map(str::to_owned),
                limit,
                ..Default::default()
            };
            let mut seen = Vec::new();
            loop {
                let page = store.workflows(filter.clone()).await.unwrap();
                assert!(page.items.len() <= limit as usize);
                filter.after = page.items.last().map(|row| (row.id.clone(), row.tenant.clone()));
                seen.extend(page.items.iter().map(|row| format!("{}/{}", row.tenant, row.id)));
                if !page.more {
                    break;
                }
            }
            assert_eq!(seen, expected, "{tenant:?}, pages of {limit}");
        }
    }
}

/// Registered callbacks belong to tenants as workflows do.
pub async fn callbacks_belong_to_tenants(store: &Arc<dyn Store>) {
    let of = |tenant: &str, id: &str, service: &str| RegisteredCallback {
        tenant: tenant.to_owned(),
        ..callback(id, service)
    };
    let all = vec![
        of("", "a", "billing"),
        of("acme", "a", "own"),
        of("other", "b", "theirs"),
        of("", "c", "billing"),
    ];
    assert_eq!(store.register_callbacks(all).await.unwrap(), Registration::Registered);
    let service = async |tenant: &str, id: &str| {
        let found = store.registered_callback(tenant, id).await.unwrap();
        found.map(|callback| callback.service_name)
    };
    assert_eq!(service("acme", "a").await.as_deref(), Some("own"));
    assert_eq!(service("other", "a").await.as_deref(), Some("billing"));
    assert_eq!(service("", "a").await.as_deref(), Some("billing"));
    assert_eq!(service("acme", "b").await, None);
    let taken = store.register_callbacks(vec![of("acme", "a", "thief")]).await.unwrap();
    let owner = ("a".to_owned(), "own".to_owned());
    let (id, service_name) = owner;
    assert_eq!(taken, Registration::Taken { id, service_name });
    for (tenant, expected) in [
        (None, vec!["/a", "acme/a", "other/b", "/c"]),
        (Some("acme"), vec!["acme/a", "/c"]),
        (Some("other"), vec!["/a", "other/b", "/c"]),
        (Some(""), vec!["/a", "/c"]),
    ] {
        for limit in [1, 100] {
            let mut filter = CallbackFilter {
                tenant: tenant.map(str::to_owned),
                after: None,
                limit,
            };
            let mut seen = Vec::new();
            loop {
                let page = store.registered_callbacks(filter.clone()).await.unwrap();
                filter.after = page.items.last().map(|row| (row.id.clone(), row.tenant.clone()));
                seen.extend(page.items.iter().map(|row| format!("{}/{}", row.tenant, row.id)));
                if !page.more {
                    break;
                }
            }
            assert_eq!(seen, expected, "{tenant:?}, pages of {limit}");
        }
    }
    assert!(
        !store.delete_callback("third", "a").await.unwrap(),
        "not the shared one"
    );
    assert!(store.delete_callback("acme", "a").await.unwrap());
    assert_eq!(service("acme", "a").await.as_deref(), Some("billing"));
}

/// The workflows that name a callback: of a tenant, or of all.
pub async fn plans_are_searched_by_tenant(store: &Arc<dyn Store>) {
    for tenant in ["", "acme", "other"] {
        let name = format!("of {tenant}");
        let release = Release {
            plan: "needle".to_owned(),
            ..release_of(tenant, &name, &name)
        };
        released(store, release).await;
    }
    let search = |tenant: &'static str| store.active_workflows_containing(tenant, "needle", 10);
    assert_eq!(search("").await.unwrap(), ["of ", "of acme", "of other"]);
    assert_eq!(search("acme").await.unwrap(), ["of acme"]);
    assert!(search("third").await.unwrap().is_empty());
}

/// Lists of a tenant's runs, in pages, for every filter that has an index of its own. The place where a page ends is a run of
/// the tenant.
pub async fn runs_are_listed_by_tenant(store: &Arc<dyn Store>) {
    for name in ["a", "b"] {
        activate(store, name).await;
    }
    let mut all = Vec::new();
    for number in 0..24 {
        let tenant = ["", "acme", "other"][number % 3];
        let workflow = ["a", "b"][number / 3 % 2];
        let run = NewRun {
            tenant: tenant.to_owned(),
            ..run_of(workflow, &format!("r{number}"))
        };
        let id = run.id;
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
        let status = match number / 6 {
            0 => Status::Pending,
            1 => Status::Failed,
            _ => Status::Succeeded,
        };
        if status != Status::Pending {
            let epoch = take(store, id).await.epoch;
            committed(store, end(id, epoch, 1, status)).await;
        }
        all.push((id, tenant, workflow, status));
    }
    for tenant in ["acme", "other", "", "third"] {
        for workflow in [None, Some("a"), Some("b")] {
            for statuses in [vec![], vec![Status::Failed], vec![Status::Pending, Status::Succeeded]] {
                for order in [Order::NewestFirst, Order::OldestFirst] {
                    let fits = |run: &&(RunId, &str, &str, Status)| {
                        run.1 == tenant
                            && workflow.is_none_or(|workflow| run.2 == workflow)
                            && (statuses.is_empty() || statuses.contains(&run.3))
                    };
                    let mut expected: Vec<RunId> = all.iter().filter(fits).map(|run| run.0).collect();
                    if order == Order::NewestFirst {
                        expected.reverse();
                    }
                    let mut filter = RunFilter {
                        tenant: Some(tenant.to_owned()),
                        workflows: workflow.map(uid).into_iter().collect(),
                        statuses: statuses.clone(),
                        order,
                        limit: 2,
                        ..Default::default()
                    };
                    let mut seen = Vec::new();
                    loop {
                        let page = store.runs(filter.clone()).await.unwrap();
                        seen.extend(page.items.iter().map(|run| run.id));
                        let Some(next) = page.next else { break };
                        assert!(expected.contains(&next), "{filter:?}");
                        match order {
                            Order::NewestFirst => filter.before = Some(next),
                            Order::OldestFirst => {
                                filter.from = Some(RunId(Uuid::from_u128(next.0.as_u128() + 1)));
                            }
                        }
                    }
                    assert_eq!(seen, expected, "{filter:?}");
                }
            }
        }
    }
    for (tenant, request, expected) in [("acme", "r1", 1), ("acme", "r0", 0), ("", "r0", 1), ("other", "r1", 0)] {
        let filter = RunFilter {
            tenant: Some(tenant.to_owned()),
            request_id: Some(request.to_owned()),
            limit: 9,
            ..Default::default()
        };
        assert_eq!(
            store.runs(filter).await.unwrap().items.len(),
            expected,
            "{tenant} {request}"
        );
    }
}
