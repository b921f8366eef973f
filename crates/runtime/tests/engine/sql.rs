//! Runs that applications start by SQL in their own transactions, and an engine on the same PostgreSQL that runs them.

use crate::{
    http::{answer, service},
    support::{PATIENCE, Scripted, workflow},
};
use fermata_core::{RunId, Status, decode};
use fermata_runtime::{
    Ended, Engine, Mask, Settings,
    actions::{HttpSettings, Registry},
    clock::SystemClock,
    timeline,
};
use fermata_store::{
    ChangeHint, ReadStore, Store,
    conformance::cluster::Database,
    dead_letters::{DeadLetterFilter, DeadReason},
    postgres::PostgresStore,
    reads::{RunFilter, Window},
    runs::Answer,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

const ALL: Window = Window { limit: 1000, offset: 0 };
/// Longer than any test: what happens within it was not found by polling.
const NEVER: Duration = Duration::from_secs(3600);

/// An engine, its database, and a session of an application.
struct Bed {
    engine: Engine,
    store: Arc<PostgresStore>,
    app: Client,
    calls: Arc<Mutex<Vec<(Value, String)>>>,
    tasks: [JoinHandle<()>; 2],
    // Dropped last.
    _database: Database,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Bed {
    async fn new(poll_interval: Duration) -> Bed {
        let database = Database::new().await;
        let store = Arc::new(database.store().await);
        let http = HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        };
        let said = Scripted::new("test.say", |parameters, _| {
            Ok(json!({ "said": parameters["what"] }).into())
        });
        let calls = said.calls.clone();
        let registry = Registry::builtin(&http).unwrap().with_action(Arc::new(said));
        let settings = Settings {
            poll_interval,
            lease_ttl: Duration::from_millis(600),
            ..Settings::default()
        };
        let engine = Engine::new(store.clone(), registry, settings, Arc::new(SystemClock));
        let (app, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
        let worker = engine.clone();
        let tasks = [
            tokio::spawn(async move { worker.run().await }),
            tokio::spawn(async move { drop(connection.await) }),
        ];
        let bed = Bed {
            engine,
            store,
            app,
            calls,
            tasks,
            _database: database,
        };
        bed.until_notified().await;
        bed
    }

    /// Waits until the engine receives notifications of the database.
    async fn until_notified(&self) {
        let mut hints = self.store.changes();
        let notified = async {
            loop {
                self.sql("NOTIFY fermata_news, 'test d0'").await;
                let hint = tokio::time::timeout(Duration::from_millis(50), hints.recv()).await;
                if let Ok(Ok(ChangeHint::Due(_))) = hint {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, notified).await.expect("a notification");
    }

    async fn publish(&self, document: Value) {
        let text = document.to_string();
        let saved = self
            .engine
            .workflows()
            .save(text.as_bytes(), "test.json")
            .await
            .unwrap();
        self.engine.workflows().publish(&saved.workflow.id, true).await.unwrap();
    }

    async fn sql(&self, sql: &str) {
        let done = self.app.batch_execute(sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    async fn start(&self, request: &str, trigger: Value) -> RunId {
        let sql = "SELECT execution_id FROM sp_start_workflow_execution('under-test', $1, $2::text::jsonb)";
        let row = self
            .app
            .query_one(sql, &[&request, &trigger.to_string()])
            .await
            .unwrap();
        RunId(row.get(0))
    }

    async fn acquire(&self, run: RunId) -> bool {
        let row = self
            .app
            .query_one("SELECT sp_try_acquire_execution($1)", &[&run.0])
            .await;
        row.unwrap().get(0)
    }

    async fn end(&self, run: RunId) -> Arc<Ended> {
        self.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends")
    }

    /// The values that were recorded, in order.
    fn said(&self) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|(parameters, _)| parameters["what"].clone()).collect()
    }
}

fn says_it() -> Value {
    workflow(json!([{ "id": "say", "actionType": "test.say", "parameters": { "what": "{{ trigger.what }}" } }]))
}

fn outputs(ended: &Ended) -> Value {
    serde_json::from_str(ended.outputs.as_deref().unwrap_or("null")).unwrap()
}

/// Without polling: the commit itself notifies the engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_starts_a_run_and_rollback_does_not() {
    let bed = Bed::new(NEVER).await;
    bed.publish(says_it()).await;
    bed.sql("CREATE TABLE orders (id integer)").await;
    bed.sql("BEGIN; INSERT INTO orders VALUES (1)").await;
    let undone = bed.start("r1", json!({ "what": "never" })).await;
    bed.sql("ROLLBACK; BEGIN; INSERT INTO orders VALUES (2)").await;
    let run = bed.start("r1", json!({ "what": { "n": [1, null, "é"] } })).await;
    assert_eq!(bed.store.run(run).await.unwrap(), None);
    bed.sql("COMMIT").await;
    let ended = bed.end(run).await;
    assert_eq!(ended.status, Status::Succeeded);
    assert_eq!(outputs(&ended), json!({ "said": { "n": [1, null, "é"] } }));
    assert_eq!(bed.store.run(undone).await.unwrap(), None);
    let filter = RunFilter {
        limit: 10,
        ..RunFilter::default()
    };
    let all = bed.store.runs(filter).await.unwrap().items;
    assert_eq!(all.iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
    assert_eq!(bed.said().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_sql_are_found_by_their_fields() {
    let bed = Bed::new(NEVER).await;
    let mut document = says_it();
    document["searchable"] = json!(["what"]);
    bed.publish(document).await;
    let run = bed.start("r1", json!({ "what": "x1" })).await;
    bed.start("r2", json!({ "what": "x2" })).await;
    assert_eq!(bed.end(run).await.status, Status::Succeeded);
    let filter = RunFilter {
        fields: vec![("what".to_owned(), vec!["x1".to_owned()])],
        limit: 10,
        ..RunFilter::default()
    };
    let found = bed.store.runs(filter).await.unwrap().items;
    assert_eq!(found.iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_transaction_may_start_many_runs() {
    let bed = Bed::new(NEVER).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let mut runs = Vec::new();
    for n in 0..150 {
        runs.push(bed.start(&format!("r{n}"), json!({ "what": n })).await);
    }
    bed.sql("COMMIT").await;
    for run in runs {
        assert_eq!(bed.end(run).await.status, Status::Succeeded);
    }
    let mut said: Vec<_> = bed.said().iter().filter_map(Value::as_u64).collect();
    said.sort_unstable();
    assert_eq!(said, (0..150).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_notification_is_found_by_polling() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("SET fermata.notify = off").await;
    let run = bed.start("r1", json!({ "what": 1 })).await;
    assert_eq!(bed.end(run).await.status, Status::Succeeded);
}

/// Tokens of waits are created with the first commit of the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_of_a_run_started_by_sql_have_an_address() {
    let ok = answer("200 OK", "content-type: application/json\r\n", "{}");
    let (url, requests) = service(vec![ok]).await;
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(json!({ "name": "under-test", "tasks": {
        "create": { "url": url, "body": { "callback_url": "{{wait.paid.url}}" } },
        "paid": { "needs": ["create"], "wait_for_webhook": { "timeout": "1h" } },
        "thank": { "needs": ["paid"], "url": url, "body": { "sum": "{{tasks.paid.body.sum}}" } },
    } }))
    .await;
    let run = bed.start("r1", json!({})).await;
    let asked = async {
        while requests.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .expect("the service is called");
    let body = |at: usize| -> Value {
        let requests = requests.lock().unwrap();
        serde_json::from_str(requests[at].split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let callback = body(0)["callback_url"].as_str().unwrap().to_owned();
    let token = callback.rsplit('/').next().unwrap();
    assert!(token.len() >= 32, "{callback}");
    let answered = bed.engine.answer(token, r#"{"sum":12}"#).await.unwrap();
    assert!(
        matches!(answered, Answer::Accepted { run: of, .. } if of == run),
        "{answered:?}"
    );
    assert_eq!(bed.end(run).await.status, Status::Succeeded);
    assert_eq!(body(1), json!({ "sum": 12 }));
}

/// A request that the API would refuse is dead-lettered before the run starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_an_invalid_trigger_is_dead_lettered() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    let mut document = says_it();
    document["triggerSchema"] = json!({ "type": "object", "required": ["what"] });
    bed.publish(document).await;
    let wrong = bed.start("wrong", json!({ "when": 1 })).await;
    let sql = "SELECT execution_id FROM sp_start_workflow_execution('under-test', 'deep', $1::text::jsonb)";
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let deep = RunId(bed.app.query_one(sql, &[&deep]).await.unwrap().get(0));
    // The same for a run that a session acquired and left.
    bed.sql("BEGIN").await;
    let left = bed.start("left", json!("what")).await;
    assert!(bed.acquire(left).await);
    bed.sql("COMMIT").await;
    bed.sql("UPDATE runners SET heartbeat_at = 0 WHERE role = 'sql'").await;
    let right = bed.start("right", json!({ "what": 1 })).await;
    assert_eq!(bed.end(right).await.status, Status::Succeeded);
    for run in [wrong, deep, left] {
        let ended = bed.end(run).await;
        assert_eq!(
            (ended.status, ended.reason.as_deref()),
            (Status::Failed, Some("dead_letter"))
        );
        let error: Value = serde_json::from_str(ended.error.as_deref().unwrap()).unwrap();
        assert_eq!(error["code"], "WFENG005", "{error}");
    }
    let filter = DeadLetterFilter {
        reason: Some(DeadReason::InvalidTrigger),
        limit: 10,
        ..DeadLetterFilter::default()
    };
    let dead_letters = bed.engine.reads().dead_letters(filter).await.unwrap().items;
    let dead_lettered: BTreeSet<RunId> = dead_letters.iter().map(|dead_letter| dead_letter.run).collect();
    assert_eq!(dead_lettered, BTreeSet::from([wrong, deep, left]));
    assert_eq!(bed.said(), [json!(1)]);
}

/// The workflow was archived while the transaction was open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_an_archived_workflow_is_cancelled() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let run = bed.start("r1", json!({ "what": 1 })).await;
    bed.engine.workflows().archive("under-test").await.unwrap();
    bed.sql("COMMIT").await;
    let ended = bed.end(run).await;
    assert_eq!(
        (ended.status, ended.reason.as_deref()),
        (Status::Cancelled, Some("workflow_archived"))
    );
    assert_eq!(bed.said(), Vec::<Value>::new());
}

/// The engine does not touch a run that a session holds, and shows its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_may_execute_a_run_itself() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let held = bed.start("held", json!({ "what": "not by the engine" })).await;
    assert!(bed.acquire(held).await);
    bed.sql("COMMIT").await;
    // The engine polls for due runs and for runs of dead runners.
    let others = bed.start("other", json!({ "what": "by the engine" })).await;
    assert_eq!(bed.end(others).await.status, Status::Succeeded);
    let sql = "SELECT sp_record_action_attempt($1, 'say', 'test.say', 'Succeeded', p_outputs => '{\"said\": 1}')";
    bed.app.query_one(sql, &[&held.0]).await.unwrap();
    let sql = "SELECT sp_complete_workflow($1, 'Succeeded', '{\"say\": {\"said\": 1}}')";
    bed.app.query_one(sql, &[&held.0]).await.unwrap();
    assert_eq!(bed.end(held).await.status, Status::Succeeded);
    assert_eq!(bed.said(), [json!("by the engine")]);
    // The overview and the timeline.
    bed.engine.reads().overview(held).await.unwrap();
    let (rows, _) = bed.store.events(held, ALL).await.unwrap();
    let lines: Vec<String> = rows
        .iter()
        .flat_map(|row| timeline::entries(row.seq, row.at, &decode(&row.data).unwrap(), None, &Mask::default()))
        .map(|entry| entry.message)
        .collect();
    assert_eq!(lines, ["the run started", "the run ended: Succeeded"]);
}

/// When a session sends no heartbeat for too long, the engine starts the run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_takes_over_a_run_that_a_session_left() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let run = bed.start("r1", json!({ "what": 7 })).await;
    assert!(bed.acquire(run).await);
    let sql = "SELECT sp_record_action_attempt($1, 'say', 'test.say', 'Failed', p_error => '{\"code\": \"X\"}')";
    bed.app.query_one(sql, &[&run.0]).await.unwrap();
    bed.sql("COMMIT; UPDATE runners SET heartbeat_at = 0 WHERE role = 'sql'")
        .await;
    let ended = bed.end(run).await;
    assert_eq!(
        (ended.status, outputs(&ended)),
        (Status::Succeeded, json!({ "said": 7 }))
    );
    let (attempts, _) = bed.store.actions(run, ALL).await.unwrap();
    let attempts: Vec<_> = attempts.iter().map(|row| (row.attempt, row.status.as_str())).collect();
    assert_eq!(attempts, [(1, "Succeeded")]);
    let refused = bed
        .app
        .query_one("SELECT sp_complete_workflow($1, 'Failed')", &[&run.0])
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error.code().map(|state| state.code()), Some("WF002"));
}

/// The engine does not wait for a session that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_takes_over_a_run_whose_session_ended() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let run = bed.start("r1", json!({ "what": 7 })).await;
    assert!(bed.acquire(run).await);
    bed.sql("COMMIT").await;
    bed.tasks[1].abort();
    let ended = bed.end(run).await;
    assert_eq!(
        (ended.status, outputs(&ended)),
        (Status::Succeeded, json!({ "said": 7 }))
    );
}

/// A session cannot read messages, so the engine takes the run over and ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_held_by_a_session_can_be_cancelled() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    bed.publish(says_it()).await;
    bed.sql("BEGIN").await;
    let run = bed.start("r1", json!({ "what": 7 })).await;
    assert!(bed.acquire(run).await);
    bed.sql("COMMIT").await;
    assert_eq!(bed.engine.cancel(run, "cancelled").await.unwrap(), Status::Running);
    assert_eq!(bed.end(run).await.status, Status::Cancelled);
    assert!(!bed.acquire(run).await);
    assert_eq!(bed.said(), Vec::<Value>::new());
}

/// Runs that were started by SQL ask for a place at their first claim. A session gets none that waits, and the place of a run that it
/// completes is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_started_by_sql_wait_for_a_place() {
    let bed = Bed::new(Duration::from_millis(20)).await;
    let mut document =
        workflow(json!([{ "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 600_000 } }]));
    document["concurrency"] = json!({ "limit": 1, "key": "{{ trigger.key }}" });
    bed.publish(document).await;
    bed.sql("BEGIN").await;
    let first = bed.start("r1", json!({ "key": 1 })).await;
    assert!(!bed.acquire(first).await, "a runner decides whether it may begin");
    let second = bed.start("r2", json!({ "key": 1 })).await;
    bed.sql("COMMIT").await;
    let begun = async |run: RunId, expected: bool| {
        let settled = async {
            loop {
                let record = bed.store.run(run).await.unwrap().unwrap();
                let waits = record.flow.as_ref().is_some_and(|flow| flow.waiting.is_some());
                if if expected {
                    record.status == Status::Running
                } else {
                    waits
                } {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, settled)
            .await
            .expect("it begins or waits");
    };
    begun(first, true).await;
    begun(second, false).await;
    assert!(!bed.acquire(second).await, "it waits");
    bed.engine.cancel(first, "enough").await.unwrap();
    assert_eq!(bed.end(first).await.status, Status::Cancelled);
    begun(second, true).await;
    let keyless = bed.start("r3", json!({})).await;
    assert_eq!(
        bed.end(keyless).await.status,
        Status::Failed,
        "its key cannot be rendered"
    );
}
