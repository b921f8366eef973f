//! The stores of this crate against the suite that every store must pass.
#![cfg(feature = "conformance")]

use fermata_store::{
    conformance::{Subject, cluster::Database},
    conformance_tests,
    memory::MemoryStore,
    sqlite::SqliteStore,
};

fn sqlite() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    Subject::new(SqliteStore::open(&folder.path().join("fermata.db")).unwrap(), folder)
}

async fn postgres() -> Subject {
    let database = Database::new().await;
    Subject::new(database.store().await, database)
}

conformance_tests!(in_memory, Subject::new(MemoryStore::new(), ()));
conformance_tests!(in_sqlite, sqlite());
conformance_tests!(in_postgres, postgres().await);
