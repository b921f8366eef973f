//! The embedded store: one SQLite file, one writer thread, a few read connections.
//!
//! What must stay true: a write is answered only after it is durable (`synchronous=FULL`, answers after `COMMIT`);
//! callers encode journal rows, not the writer thread; the file belongs to one process.

mod audit;
mod bulk;
mod callbacks;
mod children;
mod claim;
mod columns;
mod commit;
mod dead_letters;
mod definitions;
mod enqueue;
mod fields;
mod flow;
mod inbox;
mod keys;
mod lists;
mod lock;
mod log_check;
mod messages;
mod migrations;
mod open;
mod queue;
mod readers;
mod reads;
mod retention;
mod runners;
mod runs;
mod states;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
mod triggers;
mod usage;
mod workflows;
mod writer;

use crate::{
    ChangeHint, Database, PoolUse, Result, Store, StoreError, StoreMetrics,
    clock::{DatabaseClock, since_boot, wall},
    schema::Migrate,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use open::Purpose;
use readers::Readers;
use std::{path::Path, sync::Arc};
use tokio::sync::broadcast;
use writer::Writer;

/// The number of change hints that are kept for a slow receiver.
const HINT_BUFFER: usize = 1024;

/// A store in a SQLite file. Dropping it closes the file.
///
/// ```
/// # async fn example() -> fermata_store::Result<()> {
/// use fermata_store::{Store, sqlite::SqliteStore};
/// let store = SqliteStore::open("data/fermata.db".as_ref())?;
/// store.ping().await?;
/// store.close().await
/// # }
/// ```
pub struct SqliteStore {
    readers: Readers,
    writer: Arc<Writer>,
    hints: broadcast::Sender<ChangeHint>,
    clock: Arc<DatabaseClock>,
}

impl SqliteStore {
    /// Opens the file, or creates it and its folders. Runners of earlier processes are deleted, so their leases are
    /// stale. Reading needs a tokio runtime, opening does not.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::TooNew`], [`StoreError::Damaged`], [`StoreError::Full`] or
    /// [`StoreError::Unopenable`]. The file is not changed then.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        SqliteStore::open_with(path, Migrate::Auto)
    }

    /// The same, but with [`Migrate::Manual`] a file with an old schema is refused.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] in that case, and as [`SqliteStore::open`].
    pub fn open_with(path: &Path, migrate: Migrate) -> Result<SqliteStore> {
        let opened = open::open(path, Purpose::Store(migrate))?;
        SqliteStore::start(path, opened)
    }

    fn start(path: &Path, opened: open::Opened) -> Result<SqliteStore> {
        let (hints, _) = broadcast::channel(HINT_BUFFER);
        let name = path.display().to_string();
        let real = opened.lock.path.clone();
        let writer = Writer::start(name, opened.connection, opened.lock, hints.clone())?;
        Ok(SqliteStore {
            readers: Readers::new(real),
            writer: Arc::new(writer),
            hints,
            clock: Arc::new(DatabaseClock::new(since_boot(), wall().0, since_boot())),
        })
    }
}

impl SqliteStore {
    /// Checks whether the files can grow again after the disk was full.
    async fn probe_disk(&self) -> Result<()> {
        for sql in [
            "INSERT INTO meta (key, value) VALUES ('probe', zeroblob(1048576))
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            "DELETE FROM meta WHERE key = 'probe'",
        ] {
            let write = self.writer.write(move |tx| tx.connection.execute(sql, []).map(drop));
            write.await?;
        }
        self.writer.recovered();
        Ok(())
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ping(&self) -> Result<()> {
        if self.writer.is_failing() {
            self.probe_disk().await?;
        }
        // A row must change, or SQLite does not write to disk.
        let beat = "INSERT INTO meta (key, value) VALUES ('ping', 1)
             ON CONFLICT (key) DO UPDATE SET value = value + 1";
        self.writer
            .write_quietly(move |tx| tx.connection.prepare_cached(beat)?.execute([]).map(|_| ()))
            .await
    }

    async fn about(&self) -> Result<Database> {
        let size = "SELECT sqlite_version(), (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)";
        let about = move |connection: &rusqlite::Connection| {
            let (version, bytes): (String, i64) =
                connection.query_row(size, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(Database {
                kind: format!("SQLite {version}"),
                bytes: u64::try_from(bytes).ok(),
                schema: migrations::number(connection)?,
            })
        };
        self.readers.read(about).await
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    /// Only reads need connections of their own: writes go through the writer thread, which has its own connection.
    fn control(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SqliteStore {
            readers: self.readers.apart(),
            writer: self.writer.clone(),
            hints: self.hints.clone(),
            clock: self.clock.clone(),
        }))
    }

    fn writes(&self) -> Option<u64> {
        Some(self.writer.writes())
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(self.writer.metrics())
    }

    fn pool(&self) -> Option<PoolUse> {
        Some(self.readers.usage())
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.hints.subscribe()
    }

    async fn close(&self) -> Result<()> {
        self.readers.close().await;
        let writer = Arc::clone(&self.writer);
        let closed = tokio::task::spawn_blocking(move || writer.close()).await;
        closed.map_err(|error| StoreError::Failed(error.to_string()))
    }
}
