//! The SQL interface (`migrations/0002_sql_functions.sql`), used as by applications: plain sessions and plain SQL.
//!
//! What must stay true: a start is part of the caller's transaction and follows the rules of `enqueue`; only the session
//! that acquired a run may record attempts and complete it; no text of a caller is executed as SQL.

mod events;
mod lease;
mod locks;
mod moved;
mod page;
mod resources;
mod rights;
mod spelling;
mod start;
mod strings;
mod together;

use crate::{
    Store,
    conformance::{ACTIVATE, WORKFLOW, cluster::Database, draft, existing_draft, new_or_draft, uid},
    definitions::{Enablement, Lifecycle},
    reads::RunRecord,
};
use fermata_core::{RunId, Timestamp};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls, Row, types::ToSql};
use uuid::Uuid;

/// The longest wait in a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

const START: &str = "SELECT execution_id, was_existing FROM sp_start_workflow_execution($1, $2, $3::text::jsonb)";
const ACQUIRE: &str = "SELECT sp_try_acquire_execution($1)";
const COMPLETE: &str = "SELECT sp_complete_workflow($1, $2, $3::text::jsonb)";

/// A session of an application.
struct App {
    client: Arc<Client>,
    connection: JoinHandle<()>,
}

impl Drop for App {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A refusal: SQLSTATE and message.
type Refused = (String, String);

impl App {
    async fn new(database: &Database) -> App {
        let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        App {
            client: Arc::new(client),
            connection,
        }
    }

    async fn run(&self, sql: &str) {
        let done = self.client.batch_execute(sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    async fn one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row, Refused> {
        self.client.query_one(sql, params).await.map_err(refused)
    }

    async fn number(&self, sql: &str) -> i64 {
        self.one(sql, &[]).await.unwrap().get(0)
    }

    async fn start(&self, request: &str) -> Result<(RunId, bool), Refused> {
        self.start_of(WORKFLOW, request).await
    }

    async fn start_of(&self, workflow: &str, request: &str) -> Result<(RunId, bool), Refused> {
        let row = self.one(START, &[&workflow, &request, &r#"{"a":1}"#]).await?;
        Ok((RunId(row.get(0)), row.get(1)))
    }

    /// Starts a run that must be new.
    async fn started(&self, request: &str) -> RunId {
        let (run, was_existing) = self.start(request).await.unwrap();
        assert!(!was_existing);
        run
    }

    async fn acquire(&self, run: RunId) -> bool {
        self.one(ACQUIRE, &[&run.0]).await.unwrap().get(0)
    }

    /// Starts a run and acquires it.
    async fn held(&self, request: &str) -> RunId {
        let run = self.started(request).await;
        assert!(self.acquire(run).await);
        run
    }

    async fn complete(&self, run: RunId, status: &str) -> Result<(), Refused> {
        let snapshot: Option<&str> = None;
        self.one(COMPLETE, &[&run.0, &status, &snapshot]).await.map(drop)
    }

    async fn record(&self, run: RunId, node: &str, status: &str, attempt: i32) -> Result<Uuid, Refused> {
        let sql = "SELECT sp_record_action_attempt($1, $2, 'core.echo', $3, $4)";
        let row = self.one(sql, &[&run.0, &node, &status, &attempt]).await?;
        Ok(row.get(0))
    }

    async fn pid(&self) -> i32 {
        self.one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
    }
}

fn refused(error: Error) -> Refused {
    match error.as_db_error() {
        Some(error) => (error.code().code().to_owned(), error.message().to_owned()),
        None => ("client".to_owned(), format!("{error:?}")),
    }
}

/// Checks that the call was refused with this SQLSTATE and a message that contains these words.
#[track_caller]
fn expect<T: std::fmt::Debug>(answer: Result<T, Refused>, state: &str, words: &str) {
    let (code, message) = answer.expect_err(words);
    assert_eq!(code, state, "{message}");
    assert!(message.contains(words), "{message} should contain: {words}");
}

/// A database with an active workflow, a store on it, and a session of an application.
async fn setup() -> (Database, Arc<dyn Store>, App) {
    let database = Database::new().await;
    let store: Arc<dyn Store> = Arc::new(database.store().await);
    publish(&store, WORKFLOW, "one").await;
    let app = App::new(&database).await;
    (database, store, app)
}

/// Publishes the next version of a workflow.
async fn publish(store: &Arc<dyn Store>, id: &str, checksum: &str) {
    let rule = match store.workflow("", id).await.unwrap() {
        Some(_) => existing_draft(id),
        None => new_or_draft(id),
    };
    store.save_draft(draft(id, checksum), rule, None).await.unwrap();
    store
        .publish(uid(id), checksum, "{}", ACTIVATE, Timestamp(2))
        .await
        .unwrap();
}

async fn set(store: &Arc<dyn Store>, id: &str, status: Option<Lifecycle>, enabled: bool) {
    let change = Enablement {
        from: vec![Lifecycle::Active],
        status,
        enabled: Some(enabled),
        version: None,
        paused: None,
    };
    let changed = store.set_enablement(uid(id), change, Timestamp(3)).await.unwrap();
    assert!(changed.is_some_and(|(_, changed)| changed));
}

async fn record(store: &Arc<dyn Store>, run: RunId) -> RunRecord {
    store.run(run).await.unwrap().expect("the run exists")
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(since.as_micros() as i64)
}

/// Waits until the server reports that a session waits for a lock.
async fn until_blocked(watcher: &App, pid: i32) {
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'");
    let blocked = async {
        while watcher.number(&sql).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, blocked)
        .await
        .expect("the session waits for a lock");
}
