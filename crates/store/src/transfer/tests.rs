//! Transfers between a SQLite file and a PostgreSQL server.

mod everything;
mod interrupted;
mod refused;
mod world;

use super::*;
use crate::{conformance::cluster::Database, sqlite::SqliteStore};
use std::sync::Mutex;

/// The databases of one test: a folder for SQLite files, and a PostgreSQL database.
struct Fixture {
    folder: tempfile::TempDir,
    database: Database,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture {
            folder: tempfile::tempdir().unwrap(),
            database: Database::new().await,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sqlite(&self, name: &str) -> Place {
        Place::Sqlite(self.file(name))
    }

    fn postgres(&self) -> Place {
        postgres(&self.database)
    }

    fn open(&self, name: &str) -> crate::Result<Arc<dyn crate::Store>> {
        Ok(Arc::new(SqliteStore::open(&self.file(name))?))
    }
}

fn postgres(database: &Database) -> Place {
    Place::Postgres {
        url: database.url.clone(),
        settings: PostgresSettings::default(),
    }
}

fn transfer(from: Place, to: Place) -> Transfer {
    Transfer {
        from,
        to,
        resume: false,
    }
}

fn resumed(from: Place, to: Place) -> Transfer {
    Transfer { from, to, resume: true }
}

/// Ignores all progress.
fn no_progress() -> Watch {
    Arc::new(|_| {})
}

/// Records all progress.
fn recorded_progress() -> (Watch, Arc<Mutex<Vec<Step>>>) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let into = steps.clone();
    (Arc::new(move |step| into.lock().unwrap().push(step)), steps)
}

/// Limits so small that a transaction contains only a few rows.
fn small_batches() -> Pace {
    let limit = |rows| end::Limit { rows, bytes: 1 << 20 };
    Pace {
        chunk: limit(2),
        transaction: limit(3),
    }
}

/// The error of a database that was not opened.
fn refusal<T>(opened: crate::Result<T>) -> String {
    opened.err().map(|error| error.to_string()).unwrap_or_default()
}
