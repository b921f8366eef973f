//! Published versions follow the plan they were published with, whatever the current settings are. Runs whose plan cannot be
//! read still obey cancel, their deadline and the poison limit.

use crate::{
    log_capture::LogCapture,
    support::{Bed, PATIENCE, Place, workflow},
};
use fermata_core::{Kind, Language, Route, RunId, Status, When, plan::Name, plan::PlanBuilder, plan::Source};
use fermata_expr::logic::{LogicLanguage, encode};
use fermata_runtime::{
    EngineError, Refusal, Request, Settings,
    actions::{HttpSettings, Registry},
};
use fermata_store::{
    conformance::{
        cluster::execute,
        home::{Home, Kind as DatabaseKind},
    },
    dead_letters::{DeadLetterFilter, DeadReason},
};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// A plan of a later program.
const LATER: &str = r#"{"v":99,"graph":"something else"}"#;

/// Polls often, and parks at once.
fn quick() -> Settings {
    Settings {
        park_after: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        lease_ttl: Duration::from_millis(600),
        ..Settings::default()
    }
}

/// Blocks and functions are allowed in templates.
fn generous() -> Settings {
    let mut settings = quick();
    settings.dialects.templates.loops = true;
    settings.dialects.templates.functions = true;
    settings
}

/// Forbids everything that a document could need.
fn strict() -> Settings {
    let mut settings = quick();
    settings.dialects.max_nodes = 1;
    settings.dialects.document.max_bytes = 10;
    settings.dialects.document.max_values = 1;
    settings
}

fn next(place: &Place, settings: Settings) -> Bed {
    Bed::on(
        place.clone(),
        settings,
        Registry::builtin(&HttpSettings::default()).unwrap(),
    )
}

/// Stops an engine and waits until it has released its runs.
async fn stop(bed: Bed) -> Place {
    bed.engine.stop();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while bed.engine.active_runs() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "it does not release its runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bed.store
}

fn ask(trigger: Value) -> Request {
    Request {
        workflow_id: "under-test".to_owned(),
        trigger,
        ..Request::default()
    }
}

async fn uid(bed: &Bed) -> Uuid {
    bed.engine.reads().workflow("under-test").await.unwrap().uid
}

/// Pauses, then renders a template that needs a block and a function.
fn wordy() -> Value {
    workflow(json!([
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": "{{ trigger.ms }}" },
          "edges": [{ "targetNode": "say" }] },
        { "id": "say", "actionType": "core.echo",
          "parameters": { "text": "{{ for n in trigger.names }}{{ n | string.upcase }} {{ end }}" } },
    ]))
}

fn said(ended: &fermata_runtime::Ended) -> Value {
    serde_json::from_str(ended.outputs.as_deref().unwrap_or("null")).unwrap()
}

#[tokio::test]
async fn lowered_limits_do_not_affect_published_versions() {
    for forget in [false, true] {
        let bed = Bed::with(generous(), |registry| registry).await;
        bed.publish(&wordy()).await;
        let trigger = json!({ "ms": 300, "names": ["ada", "bob"] });
        let in_flight = bed.engine.start(ask(trigger.clone())).await.unwrap().run;
        let place = stop(bed).await;
        if forget {
            // As left by a program that stored no plans.
            place.home.set_plans(None).await;
        }
        let bed = next(&place, strict());
        let ended = bed.engine.wait(in_flight, PATIENCE).await.unwrap().expect("it ends");
        assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
        assert_eq!(said(&ended), json!({ "text": "ADA BOB " }));
        let (_, ended) = bed.engine.start_and_wait(ask(trigger), PATIENCE).await.unwrap();
        let ended = ended.expect("it ends");
        assert_eq!(
            (ended.status, said(&ended)),
            (Status::Succeeded, json!({ "text": "ADA BOB " }))
        );
        // New documents are checked against the current limits.
        let text = wordy().to_string();
        match bed
            .engine
            .workflows()
            .save_draft("under-test", text.as_bytes(), "t.json", None)
            .await
        {
            Err(EngineError::Refused(Refusal::InvalidDocument(_))) => {}
            other => panic!("{other:?}"),
        }
        let plan = place.plan(uid(&bed).await, 1).await.unwrap();
        assert!(plan.is_some(), "a version is compiled once");
    }
}

#[tokio::test]
async fn publishing_the_same_document_again_keeps_its_policies() {
    let document = workflow(json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]));
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&document).await;
    let place = stop(bed).await;
    let mut settings = quick();
    settings.dialects.policies.timeout_ms = 7;
    settings.dialects.workflow_timeout_ms = Some(7);
    let bed = next(&place, settings);
    let text = document.to_string();
    let workflows = bed.engine.workflows();
    workflows
        .save_draft("under-test", text.as_bytes(), "t.json", None)
        .await
        .unwrap();
    let published = workflows.publish("under-test", true).await.unwrap();
    assert_eq!((published.version, published.created), (1, false));
    let plan = &workflows.compiled(uid(&bed).await, "under-test", 1).await.unwrap().plan;
    assert_eq!(
        (plan.timeout_ms, plan.nodes[0].policies.timeout_ms),
        (Some(3_600_000), 300_000)
    );
}

/// A started run that sleeps, of a workflow whose plan cannot be read. `timeout_ms` is the run's.
async fn unreadable(settings: Settings, timeout_ms: u64) -> (Bed, RunId) {
    let bed = Bed::with(quick(), |registry| registry).await;
    let mut document = workflow(json!([
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 100 },
          "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo", "parameters": {} },
    ]));
    document["timeoutMs"] = timeout_ms.into();
    bed.publish(&document).await;
    let run = bed.engine.start(ask(json!({}))).await.unwrap().run;
    let place = stop(bed).await;
    place.home.set_plans(Some(LATER)).await;
    (next(&place, settings), run)
}

/// Waits until a run was claimed and released.
async fn quarantined(bed: &Bed, run: RunId) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let stored = bed.store.load(run).await.unwrap().unwrap();
        if stored.takeovers > 0 && stored.owner.is_none() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "it is not claimed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn run_with_an_unreadable_plan_can_be_cancelled() {
    let (bed, run) = unreadable(quick(), 3_600_000).await;
    quarantined(&bed, run).await;
    bed.engine.cancel(run, "not needed any more").await.unwrap();
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Cancelled);
    let record = bed.store.run(run).await.unwrap().unwrap();
    assert_eq!(record.reason.as_deref(), Some("not needed any more"));
    assert!(record.ended_at.is_some() && !record.held());
    bed.until_counted((0, 0, 1)).await;
}

#[tokio::test]
async fn run_with_an_unreadable_plan_ends_at_its_deadline() {
    let (bed, run) = unreadable(quick(), 1_500).await;
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(
        (ended.status, ended.reason.as_deref()),
        (Status::Failed, Some("timeout"))
    );
    assert!(ended.error.as_deref().unwrap().contains("RUN_TIMEOUT"));
}

#[tokio::test]
async fn run_with_an_unreadable_plan_is_dead_lettered_after_a_few_tries() {
    let settings = Settings {
        poison_delay: Duration::from_millis(20),
        ..quick()
    };
    let (bed, run) = unreadable(settings, 3_600_000).await;
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(
        (ended.status, ended.reason.as_deref()),
        (Status::Failed, Some("dead_letter"))
    );
    let filter = DeadLetterFilter {
        limit: 10,
        ..DeadLetterFilter::default()
    };
    let dead_letter = bed.engine.reads().dead_letters(filter).await.unwrap().items.remove(0);
    assert_eq!((dead_letter.reason, dead_letter.attempts), (DeadReason::Poison, 3));
    assert!(
        dead_letter.last_error.unwrap().contains("format 99"),
        "the dead letter names the cause"
    );
}

/// The scope is data: a plan that no dialect produces today defines its own roots.
#[tokio::test]
async fn plan_defines_what_its_expressions_see() {
    let bed = Bed::with(quick(), |registry| registry).await;
    // Runs need a stored version.
    bed.publish(&workflow(
        json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]),
    ))
    .await;
    let echo = |parameters: Value| Kind::Action {
        action: "core.echo".to_owned(),
        parameters,
    };
    let plan = PlanBuilder::new("under-test")
        .plan(|plan| {
            plan.scope.names = vec![
                Name::new("event.data", Source::Trigger),
                Name::new("event.kind", Source::Fixed(json!("row"))),
                Name::new("steps", Source::Entries),
                Name::new("state", Source::State),
            ];
        })
        .node(
            "first",
            echo(json!({ "count": 2, "by": "{{ event.data.by }}", "kind": "{{ event.kind }}" })),
        )
        .with(|node| node.merges_into_state = true)
        .edge(
            "second",
            fermata_core::When::Success,
            Some("state.count === 2 && steps.first.by === 'ada'"),
        )
        .node(
            "second",
            echo(json!({ "count": "{{ steps.first.count }}", "extra": "{{ state.extra }}" })),
        )
        .then("third")
        .node("third", echo(json!({ "state": "{{ state }}" })));
    let uid = uid(&bed).await;
    bed.engine.workflows().install(uid, plan.build().unwrap(), 1).unwrap();
    let trigger = json!({ "by": "ada", "count": 1, "extra": "kept" });
    let (_, ended) = bed.engine.start_and_wait(ask(trigger), PATIENCE).await.unwrap();
    let ended = ended.expect("it ends");
    assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
    let state = json!({ "by": "ada", "count": 2, "extra": "kept", "kind": "row" });
    assert_eq!(said(&ended), json!({ "state": state }));
}

/// Conditions that name their language. A condition that cannot be evaluated is not false: it fails the run.
#[tokio::test]
async fn jsonlogic_conditions_choose_one_edge_or_fail_the_run() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&workflow(
        json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]),
    ))
    .await;
    let echo = |parameters: Value| Kind::Action {
        action: "core.echo".to_owned(),
        parameters,
    };
    let rule = |rule: Value| encode(LogicLanguage::JsonLogic, &rule);
    let approve = rule(json!({ ">": [{ "var": "trigger.score" }, 0.8] }));
    let reject = rule(json!({ "<=": [{ "var": "trigger.score" }, 0.8] }));
    let plan = PlanBuilder::new("under-test")
        .plan(|plan| {
            plan.language = Language::Logic;
            plan.scope.names = vec![Name::new("trigger", Source::Trigger)];
        })
        .node("decide", echo(json!({})))
        .with(|node| node.route = Route::ExactlyOne)
        .edge("approve", When::Success, Some(&approve))
        .edge("reject", When::Success, Some(&reject))
        .node("approve", echo(json!({ "went": "approve" })))
        .node("reject", echo(json!({ "went": "reject" })));
    let uid = uid(&bed).await;
    bed.engine.workflows().install(uid, plan.build().unwrap(), 1).unwrap();
    let large = json!({ "score": 0.9, "text": "x".repeat(100_000) });
    for (trigger, went) in [
        (json!({ "score": 0.82 }), "approve"),
        (json!({ "score": "0.5" }), "reject"),
        (json!({}), "reject"), // a missing key is null, and null is 0
        (large, "approve"),
    ] {
        let (_, ended) = bed.engine.start_and_wait(ask(trigger), PATIENCE).await.unwrap();
        let ended = ended.expect("it ends");
        assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
        assert_eq!(said(&ended), json!({ "went": went }));
    }
    let trigger = json!({ "score": "high" });
    let (_, ended) = bed.engine.start_and_wait(ask(trigger), PATIENCE).await.unwrap();
    let ended = ended.expect("it ends");
    assert_eq!(ended.status, Status::Failed, "{ended:?}");
    let shown = format!("{ended:?}");
    assert!(
        shown.contains("CONDITION_EVALUATION_ERROR") && shown.contains("NaN"),
        "{shown}"
    );
}

/// Publishing checks all expressions, so such a plan is damaged: its runs must not be routed.
#[tokio::test]
async fn plan_with_a_damaged_condition_is_refused() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&workflow(
        json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]),
    ))
    .await;
    let uid = uid(&bed).await;
    for condition in [
        "score > 1",
        r#"{"language":"cel","expression":"(score"}"#,
        r#"{"language":"jsonlogic","expression":{"x":1}}"#,
    ] {
        let plan = PlanBuilder::new("under-test")
            .plan(|plan| plan.language = Language::Logic)
            .action("a", "core.echo")
            .edge("b", When::Success, Some(condition))
            .action("b", "core.echo");
        let installed = bed.engine.workflows().install(uid, plan.build().unwrap(), 1);
        assert!(installed.is_err(), "{condition}");
    }
}

/// While the database fails, a claimed run is released and claimed again soon. It is not quarantined (`poison_delay`), and the
/// tries are not counted.
#[tokio::test]
async fn run_that_could_not_be_read_is_tried_again_soon() {
    const HIDE: &str = "ALTER TABLE workflow_plans RENAME TO hidden_plans";
    const SHOW: &str = "ALTER TABLE hidden_plans RENAME TO workflow_plans";
    let place = Place::on(Home::of(DatabaseKind::Postgres)).await;
    let bed = next(&place, quick());
    bed.publish(&workflow(
        json!([{ "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 100 } }]),
    ))
    .await;
    let run = bed.engine.start(ask(json!({}))).await.unwrap().run;
    let place = stop(bed).await;
    execute(&place.home.url(), HIDE).await;
    let log = LogCapture::begin();
    let bed = next(&place, quick());
    let mut failures = 0;
    let several = async {
        while failures <= quick().max_poison_retries {
            let lines = log.take();
            failures += lines
                .iter()
                .filter(|line| line.contains("a run could not be read"))
                .count() as u32;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, several).await.expect("several tries");
    execute(&place.home.url(), SHOW).await;
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
}
