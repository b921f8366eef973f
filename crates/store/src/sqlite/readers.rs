//! A small pool of read-only connections. They see committed data and never block the writer.

use super::open::open_reader;
use crate::{PoolUse, Result, StoreError};
use rusqlite::Connection;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Semaphore;

/// How many reads run at once.
pub(super) const READERS: usize = 4;

/// The pool.
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    /// Connections are opened when they are needed.
    pub(super) fn new(path: PathBuf) -> Readers {
        Readers {
            path,
            permits: Arc::new(Semaphore::new(READERS)),
            idle: Arc::default(),
        }
    }

    /// The same file over other connections.
    pub(super) fn apart(&self) -> Readers {
        Readers::new(self.path.clone())
    }

    /// Reads in one snapshot.
    pub(super) async fn read<R, F>(&self, read: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    {
        self.read_one(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let result = read(&snapshot)?;
            snapshot.commit()?;
            Ok(result)
        })
        .await
    }

    /// Reads with one statement, which is a snapshot by itself.
    pub(super) async fn read_one<R, F>(&self, read: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let (path, pool) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let idle = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = idle.map_or_else(|| open_reader(&path), Ok)?;
            let result = read(&connection)?;
            pool.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(result)
        });
        match task.await {
            Ok(result) => result.map_err(|error: rusqlite::Error| StoreError::Failed(error.to_string())),
            Err(error) => Err(StoreError::Failed(error.to_string())),
        }
    }

    /// How many connections are in use. How many reads wait is not known.
    pub(super) fn usage(&self) -> PoolUse {
        PoolUse {
            size: READERS,
            used: READERS.saturating_sub(self.permits.available_permits()),
            waiting: 0,
        }
    }

    /// Waits for running reads and closes the connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(READERS).unwrap_or(u32::MAX);
        if let Ok(permits) = self.permits.acquire_many(all).await {
            permits.forget();
        }
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
