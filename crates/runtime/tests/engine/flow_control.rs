//! `concurrency`, `rate`, `debounce`, `unique` and the tier's `concurrent_runs`: never more runs than the limit, nothing lost.

use crate::support::{Bed, Gated, PATIENCE, Place, Scripted, workflow};
use fermata_core::{RunId, Status};
use fermata_runtime::{
    EngineError, Refusal, Request, Settings, Tier, Tiers,
    actions::{HttpSettings, Registry},
};
use fermata_store::{
    conformance::home::{Home, Kind},
    flow::FlowStep,
    reads::{RunFilter, RunRecord},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// A step that waits for permits, and counts how many of them execute.
#[derive(Clone)]
struct Steps {
    permits: Arc<Semaphore>,
    /// Now, and at most.
    active: Arc<(AtomicI64, AtomicI64)>,
}

impl Steps {
    fn new() -> Steps {
        Steps {
            permits: Arc::new(Semaphore::new(0)),
            active: Arc::default(),
        }
    }

    fn action(&self) -> Gated {
        let active = self.active.clone();
        let script = move |_: &Value, _: &_| {
            let now = active.0.fetch_add(1, Ordering::SeqCst) + 1;
            active.1.fetch_max(now, Ordering::SeqCst);
            std::thread::yield_now();
            active.0.fetch_sub(1, Ordering::SeqCst);
            Ok(Scripted::nothing())
        };
        Gated(Scripted::new("test.gated", script), self.permits.clone())
    }

    fn registry(&self) -> Registry {
        let http = HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        };
        Registry::builtin(&http).unwrap().with_action(Arc::new(self.action()))
    }

    async fn bed(&self, settings: Settings) -> Bed {
        Bed::on(Place::new().await, settings, self.registry())
    }
}

fn quick() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// A workflow with one gated step and this flow control.
fn limited(flow: Value) -> Value {
    let mut document = workflow(json!([{ "id": "step", "actionType": "test.gated", "parameters": {} }]));
    for (rule, value) in flow.as_object().unwrap() {
        document[rule] = value.clone();
    }
    document
}

impl Bed {
    async fn begin(&self, trigger: Value) -> Result<RunId, EngineError> {
        self.begin_for("", trigger).await
    }

    async fn begin_for(&self, tenant: &str, trigger: Value) -> Result<RunId, EngineError> {
        let request = Request {
            workflow_id: "under-test".to_owned(),
            tenant: tenant.to_owned(),
            trigger,
            ..Request::default()
        };
        Ok(self.engine.start(request).await?.run)
    }

    async fn record(&self, run: RunId) -> RunRecord {
        self.store.run(run).await.unwrap().unwrap()
    }

    async fn ends(&self, run: RunId) -> Status {
        let ended = self.engine.wait(run, PATIENCE).await.unwrap();
        ended.unwrap_or_else(|| panic!("{run} does not end")).status
    }

    /// Whether it waits for a place.
    async fn waits(&self, run: RunId) -> bool {
        let record = self.record(run).await;
        let waits = record.flow.is_some_and(|flow| flow.waiting.is_some());
        assert_eq!(waits, record.status == Status::Pending);
        waits
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_runs_than_the_limit_are_active() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    let concurrency = json!({ "limit": 2, "key": "{{ trigger.customer }}" });
    bed.publish(&limited(json!({ "concurrency": concurrency }))).await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(bed.begin(json!({ "customer": "a" })).await.unwrap());
    }
    let other = bed.begin(json!({ "customer": 7 })).await.unwrap();
    assert!(!bed.waits(other).await);
    let mut waiting = 0;
    for run in &runs {
        waiting += usize::from(bed.waits(*run).await);
    }
    assert_eq!(waiting, 4);
    steps.permits.add_permits(7);
    for run in runs.into_iter().chain([other]) {
        assert_eq!(bed.ends(run).await, Status::Succeeded);
        assert_eq!(bed.record(run).await.flow, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_of_two_processes_stay_within_the_limit() {
    let steps = Steps::new();
    let place = Place::new().await;
    let beds = [
        Bed::on(place.clone(), quick(), steps.registry()),
        Bed::on(place, quick(), steps.registry()),
    ];
    beds[0]
        .publish(&limited(json!({ "concurrency": { "limit": 3 } })))
        .await;
    steps.permits.add_permits(1000);
    let mut runs = Vec::new();
    for at in 0..100 {
        runs.push(beds[at % 2].begin(json!({})).await.unwrap());
    }
    for run in runs {
        assert_eq!(beds[0].ends(run).await, Status::Succeeded);
    }
    let most = steps.active.1.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_keys_refuse_if_the_document_says_so() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "concurrency": { "limit": 1, "onLimit": "refuse" } })))
        .await;
    let first = bed.begin(json!({})).await.unwrap();
    let refused = bed.begin(json!({})).await;
    assert!(
        matches!(&refused, Err(EngineError::Refused(Refusal::ConcurrencyLimit { .. }))),
        "{refused:?}"
    );
    steps.permits.add_permits(2);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    let next = bed.begin(json!({})).await.unwrap();
    assert_eq!(bed.ends(next).await, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_rendered_are_refused() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "unique": { "key": "{{ trigger.id }}" } })))
        .await;
    for trigger in [
        json!({}),
        json!({ "id": null }),
        json!({ "id": "" }),
        json!({ "id": "x".repeat(2000) }),
    ] {
        let refused = bed.begin(trigger).await;
        assert!(
            matches!(
                &refused,
                Err(EngineError::Refused(Refusal::InvalidFlowKey { rule: "unique", .. }))
            ),
            "{refused:?}"
        );
    }
    let long = json!({ "id": "x".repeat(1000) });
    let first = bed.begin(long.clone()).await.unwrap();
    assert_eq!(bed.begin(long).await.unwrap(), first, "one run at a time");
    assert_ne!(bed.begin(json!({ "id": "y" })).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_waiters_end_at_once() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "concurrency": { "limit": 1 } }))).await;
    let first = bed.begin(json!({})).await.unwrap();
    let second = bed.begin(json!({})).await.unwrap();
    let third = bed.begin(json!({})).await.unwrap();
    bed.engine.cancel(second, "not needed").await.unwrap();
    assert_eq!(bed.ends(second).await, Status::Cancelled);
    assert!(bed.waits(third).await);
    steps.permits.add_permits(2);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    assert_eq!(bed.ends(third).await, Status::Succeeded);
}

/// Waits until the store says so.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{what} does not happen"));
}

/// Publishes another version of the workflow.
async fn publish_again(bed: &Bed, document: Value) {
    let source = document.to_string();
    let workflows = bed.engine.workflows();
    let saved = workflows
        .save_draft("under-test", source.as_bytes(), "t.json", None)
        .await;
    saved.unwrap();
    workflows.publish("under-test", true).await.unwrap();
}

/// A limit that is raised during a pause counts after the resume, also for runs of the older version.
#[tokio::test(flavor = "multi_thread")]
async fn limit_that_changes_during_a_pause_counts_after_it() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    let of_limit = |limit: u32| limited(json!({ "concurrency": { "limit": limit } }));
    bed.publish(&of_limit(1)).await;
    let workflows = bed.engine.workflows();
    workflows.set_paused("under-test", true).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(bed.begin(json!({})).await.unwrap());
    }
    publish_again(&bed, of_limit(3)).await;
    for run in &runs {
        let flow = bed.record(*run).await.flow.unwrap();
        assert_eq!((flow.is_paused(), flow.held), (true, 0), "it is still paused");
    }
    workflows.set_paused("under-test", false).await.unwrap();
    let mut counts = (0, 0);
    until("three begin, and two wait for a place", async || {
        counts = (0, 0);
        for run in &runs {
            let record = bed.record(*run).await;
            let waits = record.flow.unwrap().waiting.is_some();
            counts.0 += u32::from(record.status == Status::Running);
            counts.1 += u32::from(record.status == Status::Pending && waits);
        }
        counts == (3, 2)
    })
    .await;
    steps.permits.add_permits(5);
    for run in runs {
        assert_eq!(bed.ends(run).await, Status::Succeeded);
    }
}

/// Archiving a paused workflow cancels the runs that wait, whatever they wait for, and a later reactivation is not paused.
#[tokio::test(flavor = "multi_thread")]
async fn paused_workflows_can_be_archived() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "concurrency": { "limit": 1 } }))).await;
    let first = bed.begin(json!({})).await.unwrap();
    let waits_for_place = bed.begin(json!({})).await.unwrap();
    let workflows = bed.engine.workflows();
    workflows.set_paused("under-test", true).await.unwrap();
    let waits_for_resume = bed.begin(json!({})).await.unwrap();
    assert!(bed.record(waits_for_resume).await.flow.unwrap().is_paused());
    let archived = workflows.archive("under-test").await.unwrap();
    assert_eq!(archived.paused_at, None);
    for run in [waits_for_place, waits_for_resume] {
        assert_eq!(bed.ends(run).await, Status::Cancelled);
        assert_eq!(bed.record(run).await.reason.as_deref(), Some("workflow_archived"));
    }
    steps.permits.add_permits(2);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    workflows.reactivate("under-test").await.unwrap();
    let again = bed.begin(json!({})).await.unwrap();
    assert_eq!(bed.ends(again).await, Status::Succeeded);
}

/// A place that becomes free during a pause admits nothing.
#[tokio::test(flavor = "multi_thread")]
async fn free_places_of_a_paused_workflow_admit_nothing() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "concurrency": { "limit": 1 } }))).await;
    let first = bed.begin(json!({})).await.unwrap();
    let (second, third) = (bed.begin(json!({})).await.unwrap(), bed.begin(json!({})).await.unwrap());
    let workflows = bed.engine.workflows();
    workflows.set_paused("under-test", true).await.unwrap();
    steps.permits.add_permits(3);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    until("both wait for the resume", async || {
        let (second, third) = (bed.record(second).await, bed.record(third).await);
        second.flow.unwrap().is_paused() && third.flow.unwrap().is_paused()
    })
    .await;
    assert_eq!(bed.record(second).await.status, Status::Pending);
    workflows.set_paused("under-test", false).await.unwrap();
    assert_eq!(bed.ends(second).await, Status::Succeeded);
    assert_eq!(bed.ends(third).await, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn published_limits_apply_to_runs_that_wait() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    let of_limit = |limit: u32| limited(json!({ "concurrency": { "limit": limit, "key": "{{ trigger.id }}" } }));
    bed.publish(&of_limit(1)).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(bed.begin(json!({ "id": "a" })).await.unwrap());
    }
    publish_again(&bed, of_limit(2)).await;
    let has_place = async |run| bed.record(run).await.flow.unwrap().waiting.is_none();
    assert!(has_place(runs[1]).await, "it has its place when publishing returns");
    until("it begins", async || {
        bed.record(runs[1]).await.status == Status::Running
    })
    .await;
    assert!(bed.waits(runs[2]).await && bed.waits(runs[3]).await);
    // After a rollback the limit is 1 again: the two that are active end before another begins.
    bed.engine.workflows().activate("under-test", 1).await.unwrap();
    steps.permits.add_permits(1);
    until("one of them ends", async || {
        let ended = [bed.record(runs[0]).await, bed.record(runs[1]).await];
        ended.iter().any(|run| run.status == Status::Succeeded)
    })
    .await;
    assert!(bed.waits(runs[2]).await);
    publish_again(&bed, limited(json!({}))).await;
    until("all begin without a limit", async || {
        has_place(runs[2]).await && has_place(runs[3]).await
    })
    .await;
    steps.permits.add_permits(3);
    for run in runs {
        assert_eq!(bed.ends(run).await, Status::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_are_cancelled_when_their_workflow_is_archived() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "concurrency": { "limit": 1 } }))).await;
    let first = bed.begin(json!({})).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(bed.begin(json!({})).await.unwrap());
    }
    bed.engine.workflows().archive("under-test").await.unwrap();
    for run in waiting {
        assert_eq!(bed.ends(run).await, Status::Cancelled);
        let record = bed.record(run).await;
        assert_eq!(record.reason.as_deref(), Some("workflow_archived"));
    }
    assert_eq!(bed.record(first).await.status, Status::Running, "it holds the place");
    steps.permits.add_permits(1);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn debounced_starts_begin_once_with_the_last_payload() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    let debounce = json!({ "quiet": "300ms", "key": "{{ trigger.id }}" });
    let document = limited(json!({ "debounce": debounce, "searchable": ["n"] }));
    bed.publish(&document).await;
    let first = bed.begin(json!({ "id": 1, "n": 1 })).await.unwrap();
    assert_eq!(bed.record(first).await.flow.unwrap().step, FlowStep::Debounce);
    assert_eq!(bed.begin(json!({ "id": 1, "n": 2 })).await.unwrap(), first);
    let other = bed.begin(json!({ "id": 2, "n": 3 })).await.unwrap();
    assert_ne!(other, first);
    steps.permits.add_permits(2);
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    assert_eq!(bed.ends(other).await, Status::Succeeded);
    assert_eq!(bed.record(first).await.trigger, r#"{"id":1,"n":2}"#);
    for (n, expected) in [("1", vec![]), ("2", vec![first]), ("3", vec![other])] {
        let filter = RunFilter {
            fields: vec![("n".to_owned(), vec![n.to_owned()])],
            limit: 9,
            ..RunFilter::default()
        };
        let page = bed.engine.reads().runs(filter).await.unwrap();
        let found: Vec<RunId> = page.items.iter().map(|run| run.id).collect();
        assert_eq!(found, expected, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_beyond_the_rate_begin_later() {
    let steps = Steps::new();
    let bed = steps.bed(quick()).await;
    bed.publish(&limited(json!({ "rate": { "limit": "1/1s" } }))).await;
    steps.permits.add_permits(3);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(bed.begin(json!({})).await.unwrap());
    }
    let last = bed.record(runs[2]).await;
    assert_eq!(last.flow.unwrap().step, FlowStep::Rate);
    let mut windows = Vec::new();
    for run in runs {
        assert_eq!(bed.ends(run).await, Status::Succeeded);
        windows.push(bed.record(run).await.started_at.unwrap().0 / 1_000_000);
    }
    windows.dedup();
    assert_eq!(windows.len(), 3, "each began in a second of its own: {windows:?}");
}

fn recursive() -> Value {
    let mut document = workflow(json!([
        { "id": "step", "actionType": "core.echo", "parameters": {}, "edges": [
            { "targetNode": "again", "condition": "trigger.depth > 0" }, { "targetNode": "end", "condition": "trigger.depth === 0" }] },
        { "id": "again", "nodeType": "subworkflow", "workflowId": "under-test", "parameters": { "depth": 0 } },
        { "id": "end", "actionType": "core.echo", "parameters": {} }
    ]));
    document["concurrency"] = json!({ "limit": 1 });
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn awaited_children_share_the_place_of_their_ancestor() {
    let steps = Steps::new();
    let mut settings = quick();
    settings.dialects.allow_recursion = true;
    let tier = Arc::new(Tier {
        name: "small".to_owned(),
        concurrent_runs: Some(1),
        ..Tier::default()
    });
    settings.tiers = Arc::new(Tiers::new([("acme".to_owned(), tier)], None));
    let bed = steps.bed(settings).await;
    bed.publish(&recursive()).await;
    let first = bed.begin_for("acme", json!({ "depth": 1 })).await.unwrap();
    let second = bed.begin_for("acme", json!({ "depth": 1 })).await.unwrap();
    assert_eq!(bed.ends(first).await, Status::Succeeded);
    assert_eq!(bed.ends(second).await, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_limit_the_runs_of_a_tenant() {
    let steps = Steps::new();
    let mut settings = quick();
    let tier = Arc::new(Tier {
        name: "small".to_owned(),
        concurrent_runs: Some(2),
        ..Tier::default()
    });
    settings.tiers = Arc::new(Tiers::new([("acme".to_owned(), tier)], None));
    let bed = steps.bed(settings).await;
    bed.publish(&limited(json!({}))).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(bed.begin_for("acme", json!({})).await.unwrap());
    }
    let other = bed.begin_for("other", json!({})).await.unwrap();
    assert!(bed.record(other).await.flow.is_none());
    assert!(bed.waits(runs[4]).await);
    steps.permits.add_permits(6);
    for run in runs.into_iter().chain([other]) {
        assert_eq!(bed.ends(run).await, Status::Succeeded);
    }
}

/// Operators and other programs may end runs by SQL, without handing over their places.
#[tokio::test(flavor = "multi_thread")]
async fn places_of_runs_that_were_ended_by_sql_are_freed() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let steps = Steps::new();
        let place = Place::on(Home::of(kind)).await;
        let bed = Bed::on(place, quick(), steps.registry());
        let flow = json!({ "concurrency": { "limit": 1 }, "unique": { "key": "{{ trigger.id }}" } });
        bed.publish(&limited(flow)).await;
        let first = bed.begin(json!({ "id": 1 })).await.unwrap();
        let second = bed.begin(json!({ "id": 2 })).await.unwrap();
        assert!(bed.waits(second).await);
        let end = "UPDATE workflow_executions SET status = 'Cancelled', end_time = created_at, lease_owner = NULL, wake_at = NULL
            WHERE status = 'Running'";
        bed.store.home.execute(end).await;
        until("the sweep hands over the place", async || {
            bed.record(second).await.status == Status::Running
        })
        .await;
        let again = bed.begin(json!({ "id": 1 })).await.unwrap();
        assert_ne!(again, first, "its unique key is free");
        steps.permits.add_permits(3);
        assert_eq!(bed.ends(second).await, Status::Succeeded);
        assert_eq!(bed.ends(again).await, Status::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_dies_keeps_its_places() {
    let steps = Steps::new();
    let place = Place::new().await;
    let settings = Settings {
        lease_ttl: Duration::from_millis(600),
        ..quick()
    };
    let bed = Bed::on(place.clone(), settings.clone(), steps.registry());
    bed.publish(&limited(json!({ "concurrency": { "limit": 1 } }))).await;
    let first = bed.begin(json!({})).await.unwrap();
    let second = bed.begin(json!({})).await.unwrap();
    bed.engine.crash();
    let heir = Bed::on(place, settings, steps.registry());
    steps.permits.add_permits(10);
    assert_eq!(heir.ends(first).await, Status::Succeeded);
    assert_eq!(heir.ends(second).await, Status::Succeeded);
    assert_eq!(steps.active.1.load(Ordering::SeqCst), 1);
}
