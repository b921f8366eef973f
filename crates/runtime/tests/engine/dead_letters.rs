//! Dead letters: runs that cannot be read or crash their runner, and requeueing.

use crate::{
    log_capture::LogCapture,
    support::{Bed, PATIENCE, Place, workflow},
};
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use fermata_runtime::{
    Again, Engine, EngineError, Observer, Refusal, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::{Clock, SystemClock},
};
use fermata_store::{
    dead_letters::{DeadLetter, DeadLetterFilter, DeadReason},
    runs::{Answer, Claim, Enqueued, NewRun, Principal},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use uuid::Uuid;

/// A workflow whose trigger must have a number `n`.
fn counted() -> Value {
    let mut document = workflow(json!([
        { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n }}" } },
    ]));
    document["triggerSchema"] = json!({
        "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } }
    });
    document
}

fn quick() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(20),
        lease_ttl: Duration::from_millis(300),
        poison_delay: Duration::from_millis(50),
        ..Settings::default()
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

/// A run to be stored without the checks of the engine.
async fn unchecked_run(store: &Place, trigger: &str) -> NewRun {
    NewRun {
        id: RunId(Uuid::now_v7()),
        workflow_uid: store.workflow("", "under-test").await.unwrap().unwrap().uid,
        workflow_id: "under-test".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: "acme".to_owned(),
        request_id: Uuid::now_v7().to_string(),
        trigger: trigger.to_owned(),
        spec: Some(r#"{"s":1}"#.to_owned()),
        priority: Some(3),
        correlation_id: Some("trace-7".to_owned()),
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal {
            user_id: "ada".to_owned(),
            display_name: None,
            email: Some("ada@example.com".to_owned()),
        },
        parent: None,
        created_at: now(),
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: None,
    }
}

async fn dead_letters(engine: &Engine) -> Vec<DeadLetter> {
    let filter = DeadLetterFilter {
        limit: 100,
        ..DeadLetterFilter::default()
    };
    engine.reads().dead_letters(filter).await.unwrap().items
}

/// Lets a runner claim a run and then send no heartbeat.
async fn die_with(store: &Place, run: RunId) -> u32 {
    let claim = Claim {
        runner: RunnerId(Uuid::now_v7()),
        limit: 1,
        now: now(),
        only: vec![run],
        dead_before: Some(Timestamp(i64::MAX)),
    };
    store.claim(claim).await.unwrap().runs[0].takeovers
}

#[tokio::test]
async fn run_with_an_unreadable_trigger_is_dead_lettered_and_others_continue() {
    let log = LogCapture::begin();
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&counted()).await;
    let bad = [
        ("{\"n\": ", "not JSON"),
        ("{\"n\": \"s3cret\"}", "/n"),
        ("{}", "\"n\" is a required property"),
    ];
    for (trigger, why) in bad {
        let run = unchecked_run(&bed.store, trigger).await;
        let id = run.id;
        assert_eq!(bed.store.enqueue(run).await.unwrap(), Enqueued::Created);
        let ended = bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
        assert_eq!(
            (ended.status, ended.reason.as_deref()),
            (Status::Failed, Some("dead_letter"))
        );
        let error: Value = serde_json::from_str(ended.error.as_deref().unwrap()).unwrap();
        assert_eq!(error["code"], "WFENG005");
        let dead_letter = dead_letters(&bed.engine).await.remove(0);
        assert_eq!((dead_letter.run, dead_letter.reason), (id, DeadReason::InvalidTrigger));
        assert!(
            dead_letter.last_error.as_deref().unwrap().contains(why),
            "{dead_letter:?}"
        );
    }
    let good = unchecked_run(&bed.store, "{\"n\": 7}").await;
    let id = good.id;
    bed.store.enqueue(good).await.unwrap();
    let ended = bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    assert_eq!(dead_letters(&bed.engine).await.len(), 3);
    bed.until_counted((1, 3, 0)).await;
    let lines = log.take();
    let logged = lines.iter().filter(|line| line.contains("dead-lettered"));
    assert_eq!(logged.count(), 3, "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("s3cret")), "{lines:?}");
}

#[tokio::test]
async fn run_that_crashes_its_runner_is_dead_lettered_and_can_be_requeued() {
    let store = Place::new().await;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let engine = Engine::new(Arc::clone(&store), registry, quick(), Arc::new(SystemClock));
    let document = counted();
    engine
        .workflows()
        .save(document.to_string().as_bytes(), "t.json")
        .await
        .unwrap();
    engine.workflows().publish("under-test", true).await.unwrap();
    let mut run = unchecked_run(&store, "{\"n\": 5}").await;
    run.request = Some("{\"method\":\"POST\",\"headers\":{\"x-shop\":\"7\"}}".to_owned());
    let (id, request_id, request) = (run.id, run.request_id.clone(), run.request.clone());
    store.enqueue(run).await.unwrap();
    for takeovers in 1..=3 {
        assert_eq!(die_with(&store, id).await, takeovers);
    }
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    let ended = engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(
        (ended.status, ended.reason.as_deref()),
        (Status::Failed, Some("dead_letter"))
    );
    let dead_letter = dead_letters(&engine).await.remove(0);
    assert_eq!(
        (dead_letter.reason, dead_letter.attempts, dead_letter.run),
        (DeadReason::Poison, 4, id)
    );
    let dead_letter = engine.reads().dead_letter(dead_letter.id).await.unwrap();
    let payload: Value = serde_json::from_str(&dead_letter.payload).unwrap();
    let expected = json!({
        "workflowId": "under-test", "workflowVersion": 1, "requestId": request_id, "tenantId": "acme",
        "trigger": { "n": 5 }, "spec": { "s": 1 }, "priority": 3, "correlationId": "trace-7",
        "request": { "method": "POST", "headers": { "x-shop": "7" } },
        "principal": { "userId": "ada", "displayName": null, "email": "ada@example.com" },
    });
    assert_eq!(payload, expected);

    let again = engine.requeue(dead_letter.id, Again::Current).await.unwrap();
    assert!(again.created && again.run != id);
    assert!(dead_letters(&engine).await.is_empty());
    let ended = engine.wait(again.run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    let record = store.run(again.run).await.unwrap().unwrap();
    assert_eq!(record.request_id, format!("fermata:requeue:{}", dead_letter.id));
    assert_eq!((record.tenant.as_str(), record.priority), ("acme", Some(3)));
    let value = |text: Option<String>| text.map(|text| serde_json::from_str::<Value>(&text).unwrap());
    assert_eq!(value(record.request.clone()), value(request));
    assert_eq!(
        (record.trigger.as_str(), record.spec.as_deref()),
        ("{\"n\":5}", Some("{\"s\":1}"))
    );
    assert_eq!(
        (record.correlation_id.as_deref(), record.principal.user_id.as_str()),
        (Some("trace-7"), "ada")
    );
    let twice = engine.requeue(dead_letter.id, Again::Current).await.unwrap();
    assert_eq!((twice.run, twice.created), (again.run, false));
    assert_eq!(store.run(id).await.unwrap().unwrap().status, Status::Failed, "final");
}

/// A queue may be turned off. Then the log names no dead letter.
#[tokio::test]
async fn run_without_a_dead_letter_is_logged_as_such() {
    let log = LogCapture::begin();
    let settings = Settings {
        dead_letters: None,
        ..quick()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    bed.publish(&counted()).await;
    let run = unchecked_run(&bed.store, "{}").await;
    let id = run.id;
    bed.store.enqueue(run).await.unwrap();
    bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert!(dead_letters(&bed.engine).await.is_empty());
    // The line may be written a moment after the end is committed.
    let logged = async {
        loop {
            if let Some(line) = log.take().into_iter().find(|line| line.contains("a run failed")) {
                return line;
            }
            tokio::task::yield_now().await;
        }
    };
    let line = tokio::time::timeout(PATIENCE, logged).await.expect("it is logged");
    assert!(
        line.contains(&id.to_string()) && line.contains("it has no dead letter"),
        "{line}"
    );
    assert!(!line.contains("dead_letter=") && !line.contains("queue="), "{line}");
}

/// A run on its second and third try continues if its runner survives.
#[tokio::test]
async fn run_within_the_poison_limit_continues() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&counted()).await;
    let store = bed.store.clone();
    bed.engine.stop();
    let run = unchecked_run(&store, "{\"n\": 5}").await;
    let id = run.id;
    store.enqueue(run).await.unwrap();
    for takeovers in 1..=2 {
        assert_eq!(die_with(&store, id).await, takeovers);
    }
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let next = Bed::on(store, quick(), registry);
    let ended = next.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    assert!(dead_letters(&next.engine).await.is_empty());
}

#[tokio::test]
async fn dead_letters_that_cannot_be_requeued_are_kept() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&counted()).await;
    for trigger in ["nonsense", "{}"] {
        let run = unchecked_run(&bed.store, trigger).await;
        let id = run.id;
        bed.store.enqueue(run).await.unwrap();
        bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    }
    let all = dead_letters(&bed.engine).await;
    let requeue = |dead_letter: &DeadLetter| bed.engine.requeue(dead_letter.id, Again::Current);
    match requeue(&all[1]).await {
        Err(EngineError::Refused(Refusal::DeadLetterUnusable { what, .. })) => assert!(what.contains("trigger")),
        other => panic!("{other:?}"),
    }
    match requeue(&all[0]).await {
        Err(EngineError::Refused(Refusal::InvalidTrigger { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(dead_letters(&bed.engine).await.len(), 2);
    match bed.engine.requeue(Uuid::now_v7(), Again::Current).await {
        Err(EngineError::Refused(Refusal::DeadLetterNotFound(_))) => {}
        other => panic!("{other:?}"),
    }
    let none = DeadLetterFilter {
        reason: Some(DeadReason::Poison),
        ..DeadLetterFilter::default()
    };
    assert_eq!(bed.engine.purge(none).await.unwrap(), 0);
    assert_eq!(bed.engine.purge(DeadLetterFilter::default()).await.unwrap(), 2);
    assert!(dead_letters(&bed.engine).await.is_empty());
}

/// The version of the dead letter is used if requested.
#[tokio::test]
async fn requeue_uses_the_same_version_or_the_current_one() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&counted()).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let run = unchecked_run(&bed.store, "{\"n\": \"x\"}").await;
        let id = run.id;
        bed.store.enqueue(run).await.unwrap();
        bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
        ids.push(dead_letters(&bed.engine).await[0].id);
    }
    let mut lenient = counted();
    lenient["triggerSchema"] = json!({ "type": "object" });
    let text = lenient.to_string();
    bed.engine
        .workflows()
        .save_draft("under-test", text.as_bytes(), "t.json", None)
        .await
        .unwrap();
    bed.engine.workflows().publish("under-test", true).await.unwrap();
    assert!(
        bed.engine.requeue(ids[0], Again::Same).await.is_err(),
        "it still does not fit"
    );
    let run = bed.engine.requeue(ids[1], Again::Current).await.unwrap().run;
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    assert_eq!(bed.store.run(run).await.unwrap().unwrap().workflow_version, 2);
}

/// A new workflow with the name of a deleted one is another workflow.
#[tokio::test]
async fn dead_letter_of_a_deleted_workflow_is_not_requeued() {
    let bed = Bed::with(quick(), |registry| registry).await;
    bed.publish(&counted()).await;
    let run = unchecked_run(&bed.store, "{}").await;
    let (id, old) = (run.id, run.workflow_uid);
    bed.store.enqueue(run).await.unwrap();
    bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    bed.store.soft_delete_workflow(old, now()).await.unwrap();
    bed.publish(&counted()).await;
    let dead_letter = dead_letters(&bed.engine).await.remove(0);
    let refused = bed
        .engine
        .requeue(dead_letter.id, Again::Current)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("its workflow `under-test` was deleted"), "{refused}");
    let new = bed.store.workflow("", "under-test").await.unwrap().unwrap().uid;
    for (workflow, count) in [(old, 1), (new, 0)] {
        let filter = DeadLetterFilter {
            workflow_uid: Some(workflow),
            limit: 9,
            ..DeadLetterFilter::default()
        };
        assert_eq!(
            bed.engine.reads().dead_letters(filter).await.unwrap().items.len(),
            count
        );
    }
}

#[tokio::test]
async fn run_fails_also_if_dead_letters_are_not_kept() {
    let settings = Settings {
        dead_letters: None,
        ..quick()
    };
    let bed = Bed::with(settings, |registry| registry).await;
    bed.publish(&counted()).await;
    let run = unchecked_run(&bed.store, "{}").await;
    let id = run.id;
    bed.store.enqueue(run).await.unwrap();
    let ended = bed.engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.reason.as_deref(), Some("dead_letter"));
    assert!(dead_letters(&bed.engine).await.is_empty());
}

/// A parked run is not poison, however often it is parked and claimed. Its wait is closed when it is dead-lettered.
#[tokio::test]
async fn dead_lettering_closes_the_waits_of_a_run() {
    let bed = Bed::with(quick(), |registry| registry).await;
    let document = json!({
        "name": "waits", "tasks": { "hook": { "wait_for_webhook": { "timeout": "1h" } } }
    });
    let text = document.to_string();
    let added = bed.engine.workflows().add(text.as_bytes(), "t.json").await;
    added.unwrap_or_else(|error| panic!("{error:?}"));
    let request = Request {
        workflow_id: "waits".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let run = bed.engine.start(request).await.unwrap().run;
    bed.engine.stop();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while bed.store.run(run).await.unwrap().unwrap().held() {
        assert!(tokio::time::Instant::now() < deadline, "it is not parked");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for takeovers in 1..=3 {
        assert_eq!(die_with(&bed.store, run).await, takeovers);
    }
    let token = bed.store.waits(run).await.unwrap().remove(0).token;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let next = Bed::on(bed.store.clone(), quick(), registry);
    let ended = next.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.reason.as_deref(), Some("dead_letter"));
    assert_eq!(next.engine.answer(&token, "{}").await.unwrap(), Answer::Closed);
}

/// Panics inside the driver when an attempt of a certain run begins.
struct Trap(Mutex<Option<RunId>>);

impl Observer for Trap {
    fn started(&self, run: RunId, _node: &NodeId, _attempt: u32) {
        let caught = *self.0.lock().unwrap() == Some(run);
        assert!(!caught, "caught in a trap");
    }

    fn committed(&self, _: RunId, _: &[fermata_core::Event], _: &[fermata_store::runs::Attempt]) {}
}

#[tokio::test]
async fn run_whose_driver_panics_is_quarantined_and_then_dead_lettered() {
    let store = Place::new().await;
    let trap = Arc::new(Trap(Mutex::new(None)));
    let engine = Engine::with_observer(
        Arc::clone(&store),
        Registry::builtin(&HttpSettings::default()).unwrap(),
        quick(),
        Arc::new(SystemClock),
        Some(trap.clone()),
    );
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    engine
        .workflows()
        .save(counted().to_string().as_bytes(), "t.json")
        .await
        .unwrap();
    engine.workflows().publish("under-test", true).await.unwrap();
    let id = RunId(Uuid::now_v7());
    *trap.0.lock().unwrap() = Some(id);
    let request = |id: RunId| Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({ "n": 1 }),
        id: Some(id),
        ..Request::default()
    };
    engine.start(request(id)).await.unwrap();
    let (_, other) = engine
        .start_and_wait(request(RunId(Uuid::now_v7())), PATIENCE)
        .await
        .unwrap();
    assert_eq!(other.expect("it ends").status, Status::Succeeded, "other runs continue");
    let ended = engine.wait(id, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.reason.as_deref(), Some("dead_letter"));
    let dead_letter = dead_letters(&engine).await.remove(0);
    assert_eq!(dead_letter.attempts, 3, "as many as `max_poison_retries`");
    assert!(dead_letter.last_error.unwrap().contains("caught in a trap"));
}
