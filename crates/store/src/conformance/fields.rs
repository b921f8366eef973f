//! Runs are found by searchable fields and tags.

use super::*;
use crate::{
    fields::RunField,
    reads::{Order, RunFilter},
    retention::RunDeletion,
};

fn field(name: &str, value: &str) -> RunField {
    RunField {
        field: name.to_owned(),
        value: value.to_owned(),
    }
}

async fn add(store: &Arc<dyn Store>, workflow: &str, tenant: &str, request: &str, fields: &[(&str, &str)]) -> RunId {
    let run = NewRun {
        tenant: tenant.to_owned(),
        fields: fields.iter().map(|(name, value)| field(name, value)).collect(),
        ..run_of(workflow, request)
    };
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

/// Publishes a further version of a workflow.
async fn publish(store: &Arc<dyn Store>, workflow: &str, checksum: &str, plan: &str) {
    let saved = store.save_draft(draft(workflow, checksum), existing_draft(workflow), None);
    saved.await.unwrap();
    let published = store
        .publish(uid(workflow), checksum, plan, ACTIVATE, at(3))
        .await
        .unwrap();
    assert!(matches!(published, Published::Version(_)), "{published:?}");
}

/// All runs that match, page by page.
async fn found(store: &Arc<dyn Store>, mut filter: RunFilter) -> Vec<RunId> {
    filter.limit = 2;
    let mut seen = Vec::new();
    for _ in 0..100 {
        let page = store.runs(filter.clone()).await.unwrap();
        seen.extend(page.items.iter().map(|run| run.id));
        match (page.next, filter.order) {
            (None, _) => return seen,
            (next, Order::NewestFirst) => filter.before = next,
            (Some(next), Order::OldestFirst) => filter.from = Some(RunId(Uuid::from_u128(next.0.as_u128() + 1))),
        }
    }
    panic!("the list does not end: {filter:?}");
}

fn with(fields: &[(&str, &[&str])]) -> RunFilter {
    let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let fields = fields.iter().map(|(name, of)| ((*name).to_owned(), values(of)));
    RunFilter {
        fields: fields.collect(),
        ..RunFilter::default()
    }
}

/// Several values of a field are alternatives; several fields must all fit.
pub async fn runs_are_found_by_fields(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let mut all = Vec::new();
    for place in 0..5 {
        let fields = [("order", "7"), ("city", if place % 2 == 0 { "Rome" } else { "Oslo" })];
        all.push(add(store, WORKFLOW, "", &format!("r{place}"), &fields).await);
    }
    let of_acme = add(store, "other", "acme", "a1", &[("order", "7")]).await;
    let eight = add(store, "other", "", "r8", &[("order", "8")]).await;
    add(store, WORKFLOW, "", "plain", &[]).await;
    let newest = |ids: &[RunId]| -> Vec<RunId> { ids.iter().rev().copied().collect() };

    let everything = [all.as_slice(), &[of_acme]].concat();
    assert_eq!(found(store, with(&[("order", &["7"])])).await, newest(&everything));
    let oldest = RunFilter {
        order: Order::OldestFirst,
        ..with(&[("order", &["7"])])
    };
    assert_eq!(found(store, oldest).await, everything);
    let both = [everything.as_slice(), &[eight]].concat();
    assert_eq!(found(store, with(&[("order", &["8", "7"])])).await, newest(&both));
    let rome = [all[0], all[2], all[4]];
    for filter in [
        with(&[("order", &["7"]), ("city", &["Rome"])]),
        with(&[("city", &["Rome"]), ("order", &["7", "8"])]),
    ] {
        assert_eq!(found(store, filter).await, newest(&rome));
    }
    for (filter, expected) in [
        (with(&[("order", &["70"])]), vec![]),
        (with(&[("Order", &["7"])]), vec![]),
        (with(&[("order", &["rome"])]), vec![]),
    ] {
        assert_eq!(found(store, filter.clone()).await, expected, "{filter:?}");
    }
    let of = |tenant: &str| RunFilter {
        tenant: Some(tenant.to_owned()),
        ..with(&[("order", &["7"])])
    };
    assert_eq!(found(store, of("acme")).await, [of_acme]);
    assert_eq!(found(store, of("")).await, newest(&all));
    assert_eq!(found(store, of("evil")).await, []);
    let narrowed = RunFilter {
        workflows: vec![uid("other")],
        statuses: vec![Status::Pending],
        ..with(&[("order", &["7", "8"])])
    };
    assert_eq!(found(store, narrowed).await, [eight, of_acme]);
    let from = RunFilter {
        from: Some(all[1]),
        before: Some(all[3]),
        ..with(&[("order", &["7"])])
    };
    assert_eq!(found(store, from).await, [all[2], all[1]]);
}

/// A run has the tags of the version that it follows.
pub async fn runs_are_found_by_tags(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let before = add(store, WORKFLOW, "", "r1", &[]).await;
    publish(store, WORKFLOW, "two", r#"{"v":1,"plan":{"tags":["eu","billing"]}}"#).await;
    publish(store, "other", "two", r#"{"v":1,"plan":{"tags":["us"]}}"#).await;
    let second = |workflow: &str, request: &str| NewRun {
        workflow_version: 2,
        ..run_of(workflow, request)
    };
    let mut ids = Vec::new();
    for run in [second(WORKFLOW, "r2"), second("other", "r3"), second(WORKFLOW, "r4")] {
        ids.push(run.id);
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    }
    let tagged = |tags: &[&str]| RunFilter {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..RunFilter::default()
    };
    assert_eq!(found(store, tagged(&["eu"])).await, [ids[2], ids[0]]);
    assert_eq!(found(store, tagged(&["us", "billing"])).await, [ids[2], ids[1], ids[0]]);
    assert_eq!(found(store, tagged(&["EU"])).await, []);
    assert!(!found(store, tagged(&["eu", "us"])).await.contains(&before));
    let of = async |tags: &[&str], limit| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        store.tagged(tags, limit).await.unwrap()
    };
    let mut both = vec![uid(WORKFLOW), uid("other")];
    both.sort_unstable();
    assert_eq!(of(&["eu", "us"], 10).await, both);
    assert_eq!(of(&["us"], 10).await, [uid("other")]);
    assert_eq!(of(&["eu", "us"], 1).await.len(), 1);
    assert!(of(&["none"], 10).await.is_empty());
}

/// The index follows the payload, and nothing of it is left when the run is deleted.
pub async fn fields_are_replaced_and_removed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let id = add(store, WORKFLOW, "", "r1", &[("order", "1"), ("city", "Rome")]).await;
    store.set_fields(id, "", vec![field("order", "2")]).await.unwrap();
    assert_eq!(found(store, with(&[("order", &["1"])])).await, []);
    assert_eq!(found(store, with(&[("city", &["Rome"])])).await, []);
    assert_eq!(found(store, with(&[("order", &["2"])])).await, [id]);
    let claimed = store.claim(claim(ME, 1, 1000)).await.unwrap();
    assert_eq!(claimed.runs.len(), 1);
    let mut last = end(id, 1, 1, Status::Succeeded);
    last.events = started();
    committed(store, last).await;
    assert_eq!(store.delete_run(id).await.unwrap(), RunDeletion::Deleted);
    // A run without fields under the same id would show rows that were left.
    let again = NewRun { id, ..new_run("r2") };
    assert_eq!(store.enqueue(again).await.unwrap(), Enqueued::Created);
    assert_eq!(found(store, with(&[("order", &["2"])])).await, []);
}

/// Lists of several workflows, of given runs, and of the runs of a trigger.
pub async fn runs_are_found_by_several_workflows(store: &Arc<dyn Store>) {
    let names: Vec<String> = (0..60).map(|number| format!("w{number}")).collect();
    let mut ids = Vec::new();
    for name in &names {
        activate(store, name).await;
        ids.push(add(store, name, "", &format!("fermata:trigger:{name}:1"), &[]).await);
    }
    let of = |count: usize| RunFilter {
        workflows: names.iter().take(count).map(|name| uid(name)).collect(),
        ..RunFilter::default()
    };
    // With an index for each workflow, and without.
    for count in [1, 3, 50, 51, 60] {
        let expected: Vec<RunId> = ids.iter().take(count).rev().copied().collect();
        assert_eq!(found(store, of(count)).await, expected, "{count}");
    }
    let given = RunFilter {
        ids: vec![ids[4], ids[7], run_id()],
        ..RunFilter::default()
    };
    assert_eq!(found(store, given.clone()).await, [ids[7], ids[4]]);
    let narrowed = RunFilter {
        workflows: vec![uid("w4")],
        ..given
    };
    assert_eq!(found(store, narrowed).await, [ids[4]]);
    let by_trigger = RunFilter {
        request_prefix: Some("fermata:trigger:w5:".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(found(store, by_trigger).await, [ids[5]]);
}
