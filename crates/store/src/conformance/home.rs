//! The database of one integration test: a SQLite file, memory, or a PostgreSQL database of its own.
//!
//! What must stay true: tests that are not about one database use this, so that `FERMATA_TEST_DATABASE=postgres` (or
//! `sqlite`) runs all of them on it. The data is deleted with its [`Home`].

use super::cluster::Database;
use crate::{Store, memory::MemoryStore, sqlite::SqliteStore};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_postgres::NoTls;
use uuid::Uuid;

/// Kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Gone when its process ends.
    Memory,
    /// A file.
    Sqlite,
    /// A database on the server that the tests of this process share.
    Postgres,
}

impl Kind {
    /// What `FERMATA_TEST_DATABASE` names, if it names anything.
    ///
    /// # Panics
    /// If it names something else.
    pub fn asked_for() -> Option<Kind> {
        match std::env::var("FERMATA_TEST_DATABASE").unwrap_or_default().as_str() {
            "" => None,
            "sqlite" => Some(Kind::Sqlite),
            "postgres" => Some(Kind::Postgres),
            other => panic!("FERMATA_TEST_DATABASE={other}: use `sqlite` or `postgres`"),
        }
    }
}

/// A database for one test.
pub enum Home {
    /// In this process.
    Memory(MemoryStore),
    /// A folder with a file in it.
    Sqlite(Folder),
    /// A database of its own.
    Postgres(Database),
}

/// A folder that is removed with this.
pub struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // temporary anyway
    }
}

impl Home {
    /// A new database: of the kind that was asked for, otherwise of this one.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new(otherwise: Kind) -> Home {
        Home::of(Kind::asked_for().unwrap_or(otherwise))
    }

    /// A new database of this kind. May be called anywhere, also in a runtime.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn of(kind: Kind) -> Home {
        match kind {
            Kind::Memory => Home::Memory(MemoryStore::new()),
            Kind::Sqlite => {
                let folder = std::env::temp_dir().join(format!("fermata-test-{}", Uuid::now_v7().simple()));
                fs::create_dir_all(&folder).expect("a temporary folder");
                Home::Sqlite(Folder(folder))
            }
            Kind::Postgres => Home::Postgres(blocking(Database::new)),
        }
    }

    /// As `--database` takes it.
    ///
    /// # Panics
    /// If it is the memory of this process, which others cannot open.
    pub fn url(&self) -> String {
        match self {
            Home::Memory(_) => panic!("memory has no address"),
            Home::Sqlite(folder) => format!("sqlite:{}", file(&folder.0).display()),
            Home::Postgres(database) => database.url.clone(),
        }
    }

    /// A store on it. The next one sees what this one wrote; a file has to be closed first.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn store(&self) -> Arc<dyn Store> {
        match self {
            Home::Memory(store) => Arc::new(store.clone()),
            Home::Sqlite(folder) => Arc::new(SqliteStore::open(&file(&folder.0)).expect("a store")),
            Home::Postgres(database) => Arc::new(database.store().await),
        }
    }

    /// Replaces the plans of all versions, or removes them, as programs of other versions would have left them.
    ///
    /// # Panics
    /// If that cannot be done.
    pub async fn set_plans(&self, plan: Option<&str>) {
        let literal = plan.map(|plan| format!("'{}'", plan.replace('\'', "''")));
        let sql = match literal {
            Some(plan) => format!("UPDATE workflow_plans SET plan_json = {plan}"),
            None => "DELETE FROM workflow_plans".to_owned(),
        };
        match self {
            Home::Memory(store) => store.set_plans(plan),
            Home::Sqlite(_) | Home::Postgres(_) => self.execute(&sql).await,
        }
    }

    /// Executes SQL statements.
    ///
    /// # Panics
    /// If they fail, or if it is memory.
    pub async fn execute(&self, sql: &str) {
        match self {
            Home::Memory(_) => panic!("memory knows no SQL"),
            Home::Sqlite(folder) => {
                let connection = rusqlite::Connection::open(file(&folder.0)).expect("the file");
                connection.busy_timeout(Duration::from_secs(10)).expect("a timeout");
                connection.execute_batch(sql).expect("statements that succeed");
            }
            Home::Postgres(database) => {
                let (client, connection) = tokio_postgres::connect(&database.url, NoTls)
                    .await
                    .expect("a connection");
                let connection = tokio::spawn(connection);
                client.batch_execute(sql).await.expect("statements that succeed");
                drop(client);
                connection.await.expect("its task").expect("its end");
            }
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("fermata.db")
}

/// Awaits in a runtime of its own: the caller may be in one that must not block, or in none.
fn blocking<T: Send + 'static, F: Future<Output = T>>(work: impl FnOnce() -> F + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work())
    });
    thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}
