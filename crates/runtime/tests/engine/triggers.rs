//! Triggers, in simulated time on a store in memory: webhooks, schedules, events, declared triggers.
//!
//! Tokio's clock is paused, so waiting costs nothing and fire times are exact.

use crate::support::{Gated, Scripted};
use bytes::Bytes;
use fermata_core::{RunId, Status, Timestamp};
use fermata_runtime::{
    Caller, Engine, EngineError, Identity, Refusal, Role, Scopes, Session, Settings,
    actions::{HttpSettings, Registry},
    clock::{Clock, TokioClock},
    triggers::{
        DeliveryList, DeliveryState, NewEvent, NewTrigger, Occurred, Received, Trigger, TriggerDelivery, TriggerList,
        TriggerType, TriggerUpdate, WebhookRequest,
    },
};
use fermata_store::{ReadStore, RetentionStore, TriggerStore, memory::MemoryStore, reads::RunFilter};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// 2026-03-01T08:59:30Z.
const BEGIN: Timestamp = Timestamp(1_772_355_570_000_000);

/// An engine in simulated time.
struct Simulated {
    engine: Engine,
    store: MemoryStore,
    clock: Arc<TokioClock>,
    gate: Arc<Semaphore>,
}

fn settings() -> Settings {
    Settings {
        heartbeat_thread: false,
        ..Settings::default()
    }
}

impl Simulated {
    async fn new() -> Simulated {
        Simulated::on(MemoryStore::new(), settings(), Arc::new(TokioClock::starting_at(BEGIN))).await
    }

    async fn on(store: MemoryStore, settings: Settings, clock: Arc<TokioClock>) -> Simulated {
        let gate = Arc::new(Semaphore::new(0));
        let gated = Gated(Scripted::new("test.gate", |_, _| Ok(Scripted::nothing())), gate.clone());
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let registry = registry.with_action(Arc::new(gated));
        let engine = Engine::new(Arc::new(store.clone()), registry, settings, clock.clone());
        let worker = engine.clone();
        tokio::spawn(async move { worker.run().await });
        engine.ready().await;
        Simulated {
            engine,
            store,
            clock,
            gate,
        }
    }

    /// Another process on the same store.
    async fn beside(&self, settings: Settings) -> Simulated {
        Simulated::on(self.store.clone(), settings, self.clock.clone()).await
    }

    async fn publish(&self, document: Value) {
        let workflows = self.engine.workflows();
        let saved = workflows.save(document.to_string().as_bytes(), "test.json").await;
        let saved = saved.unwrap_or_else(|error| panic!("{error:?}"));
        workflows.publish(&saved.workflow.id, true).await.unwrap();
    }

    async fn create(&self, kind: TriggerType, config: Value, condition: Option<&str>) -> Trigger {
        let new = NewTrigger {
            workflow: "w".to_owned(),
            kind,
            config,
            condition: condition.map(str::to_owned),
            enabled: true,
        };
        let created = self.engine.triggers().create(new).await;
        created.unwrap_or_else(|error| panic!("{error:?}"))
    }

    async fn post(&self, trigger: &Trigger, body: &str, headers: &[(&str, &str)]) -> Result<Occurred, EngineError> {
        let segment = trigger.segment.expect("a webhook").to_string();
        match self.engine.receive_webhook(&segment, request(body, headers)).await? {
            Received::Accepted(occurred) => Ok(occurred),
            other => panic!("{other:?}"),
        }
    }

    async fn deliveries(&self, trigger: Uuid) -> Vec<TriggerDelivery> {
        let list = DeliveryList {
            limit: 100,
            ..DeliveryList::default()
        };
        let mut page = self.engine.triggers().deliveries(trigger, list).await.unwrap();
        page.items.reverse();
        page.items
    }

    async fn states(&self, trigger: Uuid) -> Vec<DeliveryState> {
        let deliveries = self.deliveries(trigger).await;
        deliveries.into_iter().map(|delivery| delivery.state).collect()
    }

    /// All runs, oldest first.
    async fn runs(&self) -> Vec<RunId> {
        let filter = RunFilter {
            limit: 1000,
            ..RunFilter::default()
        };
        let mut runs = self.store.runs(filter).await.unwrap().items;
        runs.reverse();
        runs.into_iter().map(|run| run.id).collect()
    }

    async fn ended(&self, run: RunId) -> (Status, Value) {
        let ended = self.engine.wait(run, Duration::from_secs(60)).await.unwrap();
        let ended = ended.expect("the run ends");
        (
            ended.status,
            serde_json::from_str(ended.outputs.as_deref().unwrap_or("null")).unwrap(),
        )
    }

    async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

fn request(body: &str, headers: &[(&str, &str)]) -> WebhookRequest {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    WebhookRequest {
        method: "POST".to_owned(),
        headers: map,
        query: Some("a=1".to_owned()),
        body: Bytes::from(body.to_owned()),
        memory: None,
    }
}

/// A workflow that shows what it was started with.
fn showing() -> Value {
    json!({ "id": "w", "displayName": "W", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "trigger": "{{ trigger }}", "request": "{{ request }}" } }] })
}

/// A workflow that ends when the test opens the gate.
fn gated() -> Value {
    json!({ "id": "w", "displayName": "W", "startNode": "a", "nodes": [{ "id": "a", "actionType": "test.gate" }] })
}

fn event(id: &str, event_type: &str, data: Value) -> NewEvent {
    let attributes = Map::from_iter([("id".to_owned(), id.into()), ("type".to_owned(), event_type.into())]);
    NewEvent {
        id: id.to_owned(),
        source: "shop".to_owned(),
        event_type: event_type.to_owned(),
        attributes,
        data,
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_starts_a_run_once_for_each_delivery() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let hook = bed.create(TriggerType::Webhook, json!({}), None).await;
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "d1"),
        ("authorization", "Bearer secret"),
    ];
    let first = bed.post(&hook, r#"{"n":5}"#, &headers).await.unwrap();
    assert_eq!((first.state, first.is_duplicate), (DeliveryState::Started, false));
    let (status, outputs) = bed.ended(first.run.unwrap()).await;
    assert_eq!(status, Status::Succeeded);
    assert_eq!(outputs["trigger"], json!({ "n": 5 }));
    assert_eq!(outputs["request"]["query"], json!({ "a": "1" }));
    assert_eq!(outputs["request"]["headers"]["idempotency-key"], json!("d1"));
    assert!(!outputs.to_string().contains("secret"), "{outputs}");
    let again = bed.post(&hook, r#"{"n":6}"#, &headers).await.unwrap();
    assert_eq!(
        (again.run, again.is_duplicate, again.delivery),
        (first.run, true, first.delivery)
    );
    let other = bed
        .post(&hook, "text", &[("content-type", "text/plain")])
        .await
        .unwrap();
    let (_, outputs) = bed.ended(other.run.unwrap()).await;
    assert_eq!(outputs["trigger"], json!({ "body": "text" }));
    assert_eq!(bed.runs().await.len(), 2);
    assert_eq!(bed.states(hook.id).await, [DeliveryState::Started; 2]);
    let shown = bed.engine.triggers().delivery(first.delivery).await.unwrap();
    assert_eq!(shown.payload.as_deref(), Some(r#"{"n":5}"#), "it is read from the run");
    let replayed = bed.engine.triggers().replay(first.delivery).await.unwrap();
    assert_ne!(replayed.run, first.run);
    let (_, outputs) = bed.ended(replayed.run.unwrap()).await;
    assert_eq!(outputs["trigger"], json!({ "n": 5 }));
    bed.store.delete_run(first.run.unwrap()).await.unwrap();
    let runs = bed.runs().await.len();
    let again = bed.post(&hook, r#"{"n":5}"#, &headers).await.unwrap();
    assert_eq!((again.delivery, again.is_duplicate), (first.delivery, true));
    assert_eq!(
        bed.runs().await.len(),
        runs,
        "the delivery is known after its run was deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn each_delivery_of_a_debounced_run_shows_its_own_payload() {
    let bed = Simulated::new().await;
    let mut document = showing();
    document["debounce"] = json!({ "quiet": "5s" });
    bed.publish(document).await;
    let plain = bed.create(TriggerType::Webhook, json!({}), None).await;
    // Deliveries of events are processed by the background task.
    let judged = bed.create(TriggerType::Event, json!({ "type": "a" }), None).await;
    let json = [("content-type", "application/json")];
    let first = bed.post(&plain, r#"{"n":1}"#, &json).await.unwrap();
    bed.post(&plain, r#"{"n":2}"#, &json).await.unwrap();
    for (id, n) in [("1", 3), ("2", 4)] {
        let events = vec![event(id, "a", json!({ "n": n }))];
        bed.engine.triggers().publish(events, None).await.unwrap();
        bed.sleep(1).await;
    }
    let (status, outputs) = bed.ended(first.run.unwrap()).await;
    assert_eq!((status, &outputs["trigger"]), (Status::Succeeded, &json!({ "n": 4 })));
    assert_eq!(bed.runs().await.len(), 1);
    let mut shown = Vec::new();
    for trigger in [&plain, &judged] {
        for delivery in bed.deliveries(trigger.id).await {
            assert_eq!(
                (delivery.state, delivery.run),
                (DeliveryState::Started, first.run.unwrap())
            );
            let whole = bed.engine.triggers().delivery(delivery.id).await.unwrap();
            shown.push(serde_json::from_str::<Value>(&whole.payload.unwrap()).unwrap()["n"].clone());
            assert!(whole.request.is_some());
        }
    }
    assert_eq!(shown, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn refused_webhook_requests_get_the_same_answer() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let config = json!({ "signature": { "scheme": "github", "secret": "NONE" } });
    let signed = bed.create(TriggerType::Webhook, config, None).await;
    let disabled = bed.create(TriggerType::Webhook, json!({}), None).await;
    bed.engine.triggers().set_enabled(disabled.id, false).await.unwrap();
    let wrong = [("x-hub-signature-256", "sha256=00")];
    let segment = |trigger: &Trigger| trigger.segment.unwrap().to_string();
    for (segment, headers) in [
        (Uuid::new_v4().to_string(), &[][..]),
        ("nothing".to_owned(), &[]),
        (segment(&disabled), &[]),
        (segment(&signed), &[]),
        (segment(&signed), &wrong),
    ] {
        let answer = bed.engine.receive_webhook(&segment, request("{}", headers)).await;
        assert!(
            matches!(answer, Err(EngineError::Refused(Refusal::NoWebhook))),
            "{answer:?}"
        );
    }
    assert_eq!(bed.runs().await, []);
    assert_eq!(
        bed.deliveries(signed.id).await,
        [],
        "a stranger cannot fill the database"
    );
}

#[tokio::test(start_paused = true)]
async fn false_condition_is_recorded_with_the_values_seen() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let condition = "trigger.total > 100 && request.query.a === '1'";
    let hook = bed.create(TriggerType::Webhook, json!({}), Some(condition)).await;
    let small = bed.post(&hook, r#"{"total":5}"#, &[]).await.unwrap();
    assert_eq!((small.state, small.run), (DeliveryState::Filtered, None));
    let shown = bed.engine.triggers().delivery(small.delivery).await.unwrap();
    let saw: Value = serde_json::from_str(shown.saw.as_deref().unwrap()).unwrap();
    assert_eq!(saw, json!({ "trigger.total": 5, "request.query.a": "1" }));
    assert_eq!(shown.payload.as_deref(), Some(r#"{"total":5}"#), "it can be replayed");
    let large = bed.post(&hook, r#"{"total":500}"#, &[]).await.unwrap();
    assert_eq!(large.state, DeliveryState::Started);
    // `trigger.items` is undefined: the condition throws, and that is false.
    let throwing = bed
        .create(TriggerType::Webhook, json!({}), Some("trigger.items.length > 0"))
        .await;
    let thrown = bed.post(&throwing, "{}", &[]).await.unwrap();
    assert_eq!(thrown.state, DeliveryState::Filtered);
    assert!(thrown.reason.unwrap().contains("could not be evaluated"));
    assert_eq!(bed.runs().await.len(), 1);
}

/// A condition that only the sandbox can evaluate is judged after the acknowledgement. In real time: the sandbox is a process, here
/// one that does not answer.
#[tokio::test]
async fn delivery_that_needs_the_sandbox_is_durable_first() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let hook = bed.create(TriggerType::Webhook, json!({}), None).await;
    let sandboxed = Trigger {
        condition: Some("(() => { let n = 0; for (const x of [1, 2]) { n += x; } return n === 3; })()".to_owned()),
        ..hook.clone()
    };
    assert!(bed.store.update_trigger(sandboxed).await.unwrap());
    let pending = bed.post(&hook, r#"{"n":1}"#, &[]).await.unwrap();
    assert_eq!((pending.state, pending.run.is_some()), (DeliveryState::Pending, true));
    for _ in 0..1000 {
        if !bed.states(hook.id).await[0].is_open() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let states = bed.states(hook.id).await;
    assert_eq!(states, [DeliveryState::Filtered], "what cannot be evaluated is false");
}

#[tokio::test(start_paused = true)]
async fn schedule_fires_once_for_each_instant_with_two_processes() {
    let bed = Simulated::new().await;
    let other = bed.beside(settings()).await;
    bed.publish(showing()).await;
    let minute = bed
        .create(TriggerType::Schedule, json!({ "cron": "* * * * *" }), None)
        .await;
    assert_eq!(minute.next_fire_at, Some(Timestamp(BEGIN.0 + 30_000_000)));
    bed.sleep(30 + 4 * 60 + 5).await;
    let deliveries = bed.deliveries(minute.id).await;
    let instants: Vec<&str> = deliveries.iter().map(|delivery| delivery.occurrence.as_str()).collect();
    let expected = ["09:00", "09:01", "09:02", "09:03", "09:04"].map(|time| format!("2026-03-01T{time}:00Z"));
    assert_eq!(instants, expected);
    for delivery in &deliveries {
        let instant: jiff::Timestamp = delivery.occurrence.parse().unwrap();
        let late = delivery.received_at.0 - instant.as_microsecond();
        assert!((0..100_000).contains(&late), "{} µs late", late);
        let (_, outputs) = other.ended(delivery.run).await;
        assert_eq!(outputs["trigger"], json!({ "scheduledAt": delivery.occurrence }));
    }
    assert_eq!(bed.runs().await.len(), 5);
    bed.engine.triggers().set_enabled(minute.id, false).await.unwrap();
    bed.sleep(600).await;
    bed.engine.triggers().set_enabled(minute.id, true).await.unwrap();
    bed.sleep(61).await;
    assert!(
        bed.deliveries(minute.id).await.len() <= 7,
        "what was missed is not caught up"
    );
}

/// A schedule that was down for a week starts one run, not thousands.
#[tokio::test(start_paused = true)]
async fn catch_up_is_bounded() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let latest = bed.create(TriggerType::Schedule, json!({ "every": "1m" }), None).await;
    let config = json!({ "every": "1m", "catchUp": { "mode": "all", "window": "30d" } });
    let all = bed.create(TriggerType::Schedule, config, None).await;
    let none = json!({ "every": "1m", "catchUp": { "mode": "none" } });
    let none = bed.create(TriggerType::Schedule, none, None).await;
    bed.engine.crash();
    bed.sleep(7 * 86_400 + 20).await;
    let after = Simulated::on(bed.store.reopen(), settings(), bed.clock.clone()).await;
    after.sleep(1).await;
    assert_eq!(after.deliveries(latest.id).await.len(), 1);
    assert_eq!(after.deliveries(all.id).await.len(), 100);
    assert_eq!(after.deliveries(none.id).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn overlap_policies_hold() {
    use DeliveryState::*;
    for (overlap, expected) in [
        ("allow", [Started, Started, Started]),
        ("skip", [Started, Skipped, Skipped]),
        ("queueOne", [Started, Queued, Skipped]),
        ("cancelRunning", [Started, Started, Started]),
    ] {
        let bed = Simulated::new().await;
        bed.publish(gated()).await;
        let config = json!({ "every": "1m", "overlap": overlap });
        let trigger = bed.create(TriggerType::Schedule, config, None).await;
        bed.sleep(155).await;
        assert_eq!(bed.states(trigger.id).await, expected, "{overlap}");
        let runs = bed.runs().await;
        let mut statuses = Vec::new();
        for run in &runs {
            statuses.push(bed.store.run(*run).await.unwrap().unwrap().status);
        }
        match overlap {
            "cancelRunning" => assert_eq!(statuses, [Status::Cancelled, Status::Cancelled, Status::Running]),
            "allow" => assert_eq!(statuses, [Status::Running; 3]),
            _ => assert_eq!(statuses, [Status::Running]),
        }
        if overlap == "queueOne" {
            bed.gate.add_permits(1);
            bed.sleep(3).await;
            assert_eq!(bed.states(trigger.id).await, [Started, Started, Skipped]);
            assert_eq!(
                bed.runs().await.len(),
                2,
                "the queued one starts when the first has ended"
            );
        }
    }
}

/// What a schedule has queued ends with it: after a deploy that disables it no run follows.
#[tokio::test(start_paused = true)]
async fn queued_occurrence_of_a_disabled_schedule_starts_nothing() {
    let bed = Simulated::new().await;
    bed.publish(gated()).await;
    let config = json!({ "every": "1m", "overlap": "queueOne" });
    let trigger = bed.create(TriggerType::Schedule, config, None).await;
    bed.sleep(95).await;
    let states = bed.states(trigger.id).await;
    assert_eq!(states, [DeliveryState::Started, DeliveryState::Queued]);
    bed.engine.triggers().set_enabled(trigger.id, false).await.unwrap();
    bed.gate.add_permits(2);
    bed.sleep(60).await;
    let states = bed.states(trigger.id).await;
    assert_eq!(states, [DeliveryState::Started, DeliveryState::Refused]);
    assert_eq!(bed.runs().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_starts_every_workflow_that_it_matches() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let exact = bed
        .create(TriggerType::Event, json!({ "type": "order.paid" }), None)
        .await;
    let glob = bed
        .create(
            TriggerType::Event,
            json!({ "type": "order.*", "match": { "country": "DE" } }),
            None,
        )
        .await;
    let other = bed
        .create(TriggerType::Event, json!({ "type": "order.sent" }), None)
        .await;
    let data = json!({ "country": "DE", "total": 5 });
    let events = vec![event("e1", "order.paid", data.clone())];
    let answers = bed.engine.triggers().publish(events.clone(), None).await.unwrap();
    assert_eq!((answers[0].matched, answers[0].is_duplicate), (2, false));
    let again = bed.engine.triggers().publish(events, None).await.unwrap();
    assert_eq!((again[0].matched, again[0].is_duplicate), (0, true));
    bed.sleep(1).await;
    assert_eq!(bed.states(exact.id).await, [DeliveryState::Started]);
    assert_eq!(bed.states(glob.id).await, [DeliveryState::Started]);
    assert_eq!(bed.states(other.id).await, []);
    let runs = bed.runs().await;
    assert_eq!(runs.len(), 2);
    let (_, outputs) = bed.ended(runs[0]).await;
    assert_eq!(outputs["trigger"], data);
    assert_eq!(outputs["request"]["type"], json!("order.paid"));
}

/// A workflow that emits the event that starts it ends after the configured number of events.
#[tokio::test(start_paused = true)]
async fn loop_of_events_is_cut() {
    let mut settings = settings();
    settings.triggers.max_chain_depth = 4;
    let bed = Simulated::on(MemoryStore::new(), settings, Arc::new(TokioClock::starting_at(BEGIN))).await;
    bed.publish(json!({ "id": "w", "displayName": "W", "startNode": "a",
        "triggers": [{ "name": "ping", "type": "event", "config": { "type": "ping" } }],
        "nodes": [{ "id": "a", "actionType": "core.emit", "parameters": { "type": "ping", "data": { "n": 1 } } }] }))
        .await;
    let events = vec![event("first", "ping", json!({}))];
    bed.engine.triggers().publish(events, None).await.unwrap();
    bed.sleep(60).await;
    let runs = bed.runs().await;
    assert_eq!(runs.len(), 4);
    for run in &runs {
        assert_eq!(bed.ended(*run).await.0, Status::Succeeded);
    }
    let trigger = bed
        .engine
        .triggers()
        .list(TriggerList {
            limit: 9,
            ..TriggerList::default()
        })
        .await
        .unwrap();
    let deliveries = bed.deliveries(trigger.items[0].id).await;
    let refused = deliveries.last().unwrap();
    assert_eq!((deliveries.len(), refused.state), (5, DeliveryState::Refused));
    assert!(
        refused.reason.as_deref().unwrap().contains("max_chain_depth"),
        "{refused:?}"
    );
}

/// Otherwise a loop of events that passes through a child run would not be cut.
#[tokio::test(start_paused = true)]
async fn child_run_has_the_chain_of_its_parent() {
    let mut settings = settings();
    settings.triggers.max_chain_depth = 1;
    let bed = Simulated::on(MemoryStore::new(), settings, Arc::new(TokioClock::starting_at(BEGIN))).await;
    bed.publish(json!({ "id": "child", "displayName": "C", "startNode": "a",
        "nodes": [{ "id": "a", "actionType": "core.emit", "parameters": { "type": "pong" } }] }))
        .await;
    bed.publish(json!({ "id": "parent", "displayName": "P", "startNode": "a",
        "triggers": [{ "name": "ping", "type": "event", "config": { "type": "ping" } }],
        "nodes": [{ "id": "a", "nodeType": "subworkflow", "workflowId": "child" }] }))
        .await;
    bed.publish(showing()).await;
    let pong = bed.create(TriggerType::Event, json!({ "type": "pong" }), None).await;
    let events = vec![event("first", "ping", json!({}))];
    bed.engine.triggers().publish(events, None).await.unwrap();
    bed.sleep(60).await;
    let runs = bed.runs().await;
    assert_eq!(runs.len(), 2, "the parent and its child");
    for run in runs {
        assert_eq!(bed.ended(run).await.0, Status::Succeeded);
    }
    assert_eq!(bed.states(pong.id).await, [DeliveryState::Refused]);
}

/// A process that dies after it acknowledged loses nothing: another one starts the run, once.
#[tokio::test(start_paused = true)]
async fn acknowledged_occurrences_survive_a_crash() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let on_event = bed.create(TriggerType::Event, json!({ "type": "*" }), None).await;
    let schedule = bed
        .create(TriggerType::Schedule, json!({ "at": "2026-03-01T09:00:00Z" }), None)
        .await;
    // A process that accepts requests and does not work on them.
    let api = bed
        .beside(Settings {
            role: Role::Api,
            ..settings()
        })
        .await;
    bed.engine.crash();
    let events = (0..5)
        .map(|n| event(&format!("e{n}"), "x", json!({ "n": n })))
        .collect();
    api.engine.triggers().publish(events, None).await.unwrap();
    api.sleep(60).await;
    assert_eq!(bed.runs().await.len(), 0);
    // A process took the deliveries and the fire time, and crashed before it started anything.
    let now = bed.clock.now();
    let taken = bed
        .store
        .take_deliveries(now, now.plus_millis(10_000), 2)
        .await
        .unwrap();
    assert_eq!(taken.len(), 2);
    let after = Simulated::on(bed.store.reopen(), settings(), bed.clock.clone()).await;
    after.sleep(1).await;
    assert_eq!(
        after
            .states(on_event.id)
            .await
            .iter()
            .filter(|state| state.is_open())
            .count(),
        2
    );
    after.sleep(15).await;
    assert_eq!(after.states(on_event.id).await, [DeliveryState::Started; 5]);
    assert_eq!(after.states(schedule.id).await, [DeliveryState::Started]);
    assert_eq!(after.runs().await.len(), 6);
    assert!(
        after.runs().await.contains(&taken[0].run),
        "the run that was chosen with the delivery"
    );
}

#[tokio::test(start_paused = true)]
async fn declared_triggers_follow_the_document() {
    let bed = Simulated::new().await;
    let document = |triggers: Value| {
        let mut document = showing();
        document["triggers"] = triggers;
        document
    };
    let hook = json!({ "name": "hook", "type": "webhook" });
    let daily = json!({ "name": "daily", "type": "schedule", "config": { "cron": "0 9 * * *" } });
    bed.publish(document(json!([hook, daily]))).await;
    let all = async || {
        let list = TriggerList {
            limit: 9,
            ..TriggerList::default()
        };
        bed.engine.triggers().list(list).await.unwrap().items
    };
    let named = async |name: &str| {
        all()
            .await
            .into_iter()
            .find(|one| one.name.as_deref() == Some(name))
            .unwrap()
    };
    let first = named("hook").await;
    bed.post(&first, "{}", &[]).await.unwrap();
    bed.sleep(31).await;
    assert_eq!(bed.states(named("daily").await.id).await, [DeliveryState::Started]);
    let update = TriggerUpdate {
        enabled: Some(false),
        ..TriggerUpdate::default()
    };
    for refused in [
        bed.engine.triggers().update(first.id, update).await.map(drop),
        bed.engine.triggers().delete(first.id).await,
    ] {
        assert!(
            matches!(refused, Err(EngineError::Refused(Refusal::DeclaredTrigger { .. }))),
            "{refused:?}"
        );
    }
    // What the API disabled stays disabled when the same document, or another one that does not say otherwise, is published.
    bed.engine.triggers().set_enabled(first.id, false).await.unwrap();
    bed.engine.workflows().publish("w", true).await.unwrap();
    assert!(!named("hook").await.enabled);
    let second = document(json!([hook])).to_string();
    bed.engine
        .workflows()
        .save_draft("w", second.as_bytes(), "t", None)
        .await
        .unwrap();
    bed.engine.workflows().publish("w", true).await.unwrap();
    assert_eq!(all().await.len(), 1, "`daily` is no longer declared");
    assert!(!named("hook").await.enabled);
    bed.engine.triggers().set_enabled(first.id, true).await.unwrap();
    assert_eq!(named("hook").await.segment, first.segment, "its URL stays");
    bed.engine.workflows().activate("w", 1).await.unwrap();
    assert_eq!(all().await.len(), 2, "activating an older version brings it back");
    bed.engine.workflows().archive("w").await.unwrap();
    let archived = bed.post(&first, "{}", &[]).await;
    assert!(
        matches!(archived, Err(EngineError::Refused(Refusal::NoWebhook))),
        "{archived:?}"
    );
    bed.engine.workflows().reactivate("w").await.unwrap();
    bed.post(&first, "{}", &[]).await.unwrap();
    bed.engine.workflows().set_enabled("w", false).await.unwrap();
    let disabled = bed.post(&first, "{}", &[]).await;
    assert!(
        matches!(disabled, Err(EngineError::Refused(Refusal::NoWebhook))),
        "{disabled:?}"
    );
    assert_eq!(
        bed.states(first.id).await.last(),
        Some(&DeliveryState::Refused),
        "the owner sees why"
    );
}

#[tokio::test(start_paused = true)]
async fn runlater_documents_are_started_by_cron_and_webhook() {
    let bed = Simulated::new().await;
    let task = json!({ "nap": { "sleep": "1s" } });
    let cron = json!({ "name": "every-minute", "trigger": "cron", "cron_expression": "* * * * *", "tasks": task });
    let hook = json!({ "name": "by-hook", "trigger": "webhook", "tasks": task });
    for document in [&cron, &hook] {
        bed.engine
            .workflows()
            .add(document.to_string().as_bytes(), "t.json")
            .await
            .unwrap();
    }
    let list = TriggerList {
        limit: 9,
        kind: Some(TriggerType::Webhook),
        ..TriggerList::default()
    };
    let hook = bed.engine.triggers().list(list).await.unwrap().items.remove(0);
    let posted = bed.post(&hook, r#"{"order":7}"#, &[("x-shop", "de")]).await.unwrap();
    assert_eq!(bed.ended(posted.run.unwrap()).await.0, Status::Succeeded);
    bed.sleep(65).await;
    let runs = bed.runs().await;
    assert_eq!(runs.len(), 2);
    let scheduled = bed.store.run(runs[1]).await.unwrap().unwrap();
    assert_eq!(
        (scheduled.workflow_id.as_str(), scheduled.trigger.as_str()),
        ("every-minute", "{}")
    );
}

#[tokio::test(start_paused = true)]
async fn schedule_that_is_fired_by_hand_has_the_time_of_that() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let schedule = bed.create(TriggerType::Schedule, json!({ "every": "1h" }), None).await;
    for (payload, expected) in [
        (json!({}), json!({ "scheduledAt": "2026-03-01T08:59:30Z" })),
        (json!({ "n": 1 }), json!({ "n": 1 })),
    ] {
        let fired = bed.engine.triggers().fire(schedule.id, payload, None).await.unwrap();
        let run = bed.store.run(fired.run.unwrap()).await.unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&run.trigger).unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn triggers_belong_to_tenants() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    let session = |tenant: &str| -> Session {
        let identity = Identity::new("test".to_owned(), None, Some(tenant.to_owned()), Scopes::all()).unwrap();
        bed.engine.as_caller(Caller::new(Arc::new(identity), None))
    };
    let (acme, other) = (session("acme"), session("other"));
    let new = NewTrigger {
        workflow: "w".to_owned(),
        kind: TriggerType::Event,
        config: json!({ "type": "*" }),
        condition: None,
        enabled: true,
    };
    let trigger = acme.triggers().create(new).await.unwrap();
    assert_eq!(trigger.tenant, "acme");
    let unknown = |answer: Result<(), EngineError>| {
        assert!(
            matches!(answer, Err(EngineError::Refused(Refusal::TriggerNotFound(_)))),
            "{answer:?}"
        );
    };
    unknown(other.triggers().get(trigger.id).await.map(drop));
    unknown(
        other
            .triggers()
            .update(trigger.id, TriggerUpdate::default())
            .await
            .map(drop),
    );
    unknown(other.triggers().delete(trigger.id).await);
    unknown(other.triggers().set_enabled(trigger.id, false).await.map(drop));
    unknown(other.triggers().fire(trigger.id, json!({}), None).await.map(drop));
    unknown(other.triggers().rotate(trigger.id, Duration::ZERO).await.map(drop));
    unknown(
        other
            .triggers()
            .deliveries(trigger.id, DeliveryList::default())
            .await
            .map(drop),
    );
    let list = TriggerList {
        limit: 9,
        ..TriggerList::default()
    };
    assert_eq!(other.triggers().list(list.clone()).await.unwrap().items, []);
    let listed = acme.triggers().list(list).await.unwrap().items;
    assert_eq!(listed, std::slice::from_ref(&trigger));
    let theirs = other
        .triggers()
        .publish(vec![event("e", "x", json!({}))], None)
        .await
        .unwrap();
    assert_eq!(theirs[0].matched, 0);
    let own = acme
        .triggers()
        .publish(vec![event("e", "x", json!({}))], None)
        .await
        .unwrap();
    assert_eq!(
        (own[0].matched, own[0].is_duplicate),
        (1, false),
        "ids belong to tenants too"
    );
    let fired = acme
        .triggers()
        .fire(trigger.id, json!({ "n": 1 }), Some("r1".to_owned()))
        .await
        .unwrap();
    let again = acme
        .triggers()
        .fire(trigger.id, json!({ "n": 1 }), Some("r1".to_owned()))
        .await
        .unwrap();
    assert_eq!((fired.run, again.is_duplicate), (again.run, true));
    let delivery = other.triggers().delivery(fired.delivery).await;
    assert!(
        matches!(delivery, Err(EngineError::Refused(Refusal::DeliveryNotFound(_)))),
        "{delivery:?}"
    );
    let run = bed.store.run(fired.run.unwrap()).await.unwrap().unwrap();
    assert_eq!(run.tenant, "acme");
}

#[tokio::test(start_paused = true)]
async fn doubtful_triggers_are_warned_about() {
    let bed = Simulated::new().await;
    let mut document = showing();
    document["triggers"] = json!([
        { "name": "hook", "type": "webhook", "config": { "signature": { "scheme": "github", "secret": "NO_SUCH_SECRET" } } },
        { "name": "over", "type": "schedule", "config": { "at": "2026-03-01T08:59:29Z" } },
        { "name": "ended", "type": "schedule", "config": { "every": "1h", "endAt": "2026-03-01T08:00:00Z" } },
        { "name": "next", "type": "schedule", "config": { "at": "2026-03-01T08:59:31Z" } },
        { "name": "off", "type": "schedule", "enabled": false, "config": { "at": "2020-01-01T00:00:00Z" } },
    ]);
    let saved = bed
        .engine
        .workflows()
        .save(document.to_string().as_bytes(), "t.json")
        .await;
    let warnings = saved.unwrap().warnings;
    let shown: Vec<(&str, &str)> = warnings.iter().map(|one| (one.code, one.pointer.as_str())).collect();
    let expected = [
        ("UNKNOWN_SECRET", "/triggers/0/config/signature/secret"),
        ("SCHEDULE_IN_THE_PAST", "/triggers/1/config/at"),
        ("SCHEDULE_IN_THE_PAST", "/triggers/2/config/endAt"),
    ];
    assert_eq!(shown, expected, "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn wrong_triggers_are_refused() {
    let bed = Simulated::new().await;
    bed.publish(showing()).await;
    for (kind, config, condition) in [
        (TriggerType::Schedule, json!({ "cron": "0 0 30 2 *" }), None),
        (
            TriggerType::Schedule,
            json!({ "cron": "@daily", "timeZone": "Europe/Nowhere" }),
            None,
        ),
        (TriggerType::Event, json!({}), None),
        (TriggerType::Manual, json!({ "x": 1 }), None),
        (TriggerType::Webhook, json!({}), Some("trigger.a >")),
    ] {
        let new = NewTrigger {
            workflow: "w".to_owned(),
            kind,
            config: config.clone(),
            condition: condition.map(str::to_owned),
            enabled: true,
        };
        let refused = bed.engine.triggers().create(new).await;
        assert!(
            matches!(refused, Err(EngineError::Refused(Refusal::InvalidTriggerConfig(_)))),
            "{config}: {refused:?}"
        );
    }
    let times = bed
        .engine
        .triggers()
        .preview(TriggerType::Schedule, &json!({ "every": "1h" }), 3)
        .unwrap();
    assert_eq!(times.len(), 3);
}

/// A process dies before or after it has started what is due. Nothing that was acknowledged is lost, and nothing is started
/// twice. The store in memory has no pauses between its steps; kills of real processes hit those (`it/postgres/triggers.rs`).
#[tokio::test(start_paused = true)]
async fn process_may_crash_before_or_after_occurrences_start() {
    let mut started_before = std::collections::BTreeSet::new();
    for steps in 0..40 {
        let bed = Simulated::new().await;
        bed.publish(showing()).await;
        let on_event = bed
            .create(TriggerType::Event, json!({ "type": "*" }), Some("trigger.n >= 0"))
            .await;
        let at = json!({ "at": "2026-03-01T09:00:00Z" });
        let schedule = bed.create(TriggerType::Schedule, at, None).await;
        // The schedule is due when this task wakes; other tasks run only while this one yields.
        tokio::time::sleep(Duration::from_secs(30)).await;
        let events = (0..3).map(|n| event(&format!("e{n}"), "x", json!({ "n": n })));
        bed.engine.triggers().publish(events.collect(), None).await.unwrap();
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        bed.engine.crash();
        started_before.insert(bed.runs().await.len());
        let after = Simulated::on(bed.store.reopen(), settings(), bed.clock.clone()).await;
        after.sleep(30).await;
        assert_eq!(after.states(on_event.id).await, [DeliveryState::Started; 3], "{steps}");
        assert_eq!(after.states(schedule.id).await, [DeliveryState::Started], "{steps}");
        let deliveries = [after.deliveries(on_event.id).await, after.deliveries(schedule.id).await].concat();
        let mut runs: Vec<RunId> = deliveries.iter().map(|delivery| delivery.run).collect();
        runs.sort();
        let mut all = after.runs().await;
        all.sort();
        assert_eq!(all, runs, "{steps}: one run for each occurrence");
        for run in all {
            assert_eq!(after.ended(run).await.0, Status::Succeeded, "{steps}");
        }
        after.engine.crash();
    }
    assert!(
        started_before.contains(&0) && started_before.contains(&4),
        "{started_before:?}"
    );
}
