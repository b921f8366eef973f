//! The embedded store: one SQLite file, one thread that writes, a few connections that read.
//!
//! What must stay true: nothing is answered before it is durable (`synchronous=FULL`, answers after `COMMIT`);
//! journals are encoded by the caller, not by the one thread that writes; the file belongs to one process.

mod claim;
mod columns;
mod commit;
mod dead_letters;
mod definitions;
mod enqueue;
mod inbox;
mod lists;
mod lock;
mod log_check;
mod migrations;
mod open;
mod queue;
mod readers;
mod reads;
mod runners;
mod runs;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
mod workflows;
mod writer;

use crate::{
    ChangeHint, Result, Store, StoreError,
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

/// How many news a slow listener may be behind.
const NEWS: usize = 1024;

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
    news: broadcast::Sender<ChangeHint>,
    clock: Arc<DatabaseClock>,
}

impl SqliteStore {
    /// Opens the file, or creates it and the folders above it. Leases from before are stale: all runners are
    /// forgotten. Reading needs a tokio runtime, opening does not.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::TooNew`], [`StoreError::Damaged`], [`StoreError::Full`] or
    /// [`StoreError::Unopenable`]. The file is then as it was.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        SqliteStore::open_with(path, Migrate::Auto)
    }

    /// The same, where somebody else may have to bring an old file up to date.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] in that case, and as [`SqliteStore::open`].
    pub fn open_with(path: &Path, migrate: Migrate) -> Result<SqliteStore> {
        let opened = open::open(path, Purpose::Store(migrate))?;
        SqliteStore::start(path, opened)
    }

    fn start(path: &Path, opened: open::Opened) -> Result<SqliteStore> {
        let (news, _) = broadcast::channel(NEWS);
        let name = path.display().to_string();
        let real = opened.lock.path.clone();
        let writer = Writer::start(name, opened.connection, opened.lock, news.clone())?;
        Ok(SqliteStore {
            readers: Readers::new(real),
            writer: Arc::new(writer),
            news,
            clock: Arc::new(DatabaseClock::new(since_boot(), wall().0, since_boot())),
        })
    }
}

impl SqliteStore {
    /// Whether the files can grow again, after they could not.
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
        // A row has to change, or SQLite would not touch the disk.
        let beat = "INSERT INTO meta (key, value) VALUES ('ping', 1)
             ON CONFLICT (key) DO UPDATE SET value = value + 1";
        self.writer
            .write(move |tx| tx.connection.prepare_cached(beat)?.execute([]).map(|_| ()))
            .await
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    /// Writes do not wait behind reads: the thread that writes has a connection of its own.
    fn control(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SqliteStore {
            readers: self.readers.apart(),
            writer: self.writer.clone(),
            news: self.news.clone(),
            clock: self.clock.clone(),
        }))
    }

    fn changes(&self) -> broadcast::Receiver<ChangeHint> {
        self.news.subscribe()
    }

    async fn close(&self) -> Result<()> {
        self.readers.close().await;
        let writer = Arc::clone(&self.writer);
        let closed = tokio::task::spawn_blocking(move || writer.close()).await;
        closed.map_err(|error| StoreError::Failed(error.to_string()))
    }
}
