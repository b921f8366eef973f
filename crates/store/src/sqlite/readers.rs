//! A small pool of read-only connections. They see committed data and never block the writer.

use super::open::open_reader;
use crate::{PoolUse, Result, StoreError};
use rusqlite::Connection;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Semaphore, oneshot};

/// How many reads run at once.
pub(super) const READERS: usize = 4;

/// A read whose result goes elsewhere.
type Job = Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>;

fn lock(idle: &Mutex<Vec<Connection>>) -> MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

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

    /// Reads one small row by its key, with one statement. If a connection is idle, that happens on the thread of the caller: it takes
    /// a few microseconds if the row is in memory, and a change of threads would take longer.
    pub(super) async fn look_up<R, F>(&self, read: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    {
        let idle = lock(&self.idle).pop();
        let Some(connection) = idle else {
            return self.read_one(read).await;
        };
        let result = read(&connection).map_err(failed)?;
        let mut idle = lock(&self.idle);
        // While this one was in use, another may have been opened, or all may have been closed.
        if idle.len() < READERS && !self.permits.is_closed() {
            idle.push(connection);
        }
        Ok(result)
    }

    /// Reads with one statement, which is a snapshot by itself.
    pub(super) async fn read_one<R, F>(&self, read: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    {
        let (sender, mut receiver) = oneshot::channel();
        let job = move |connection: &Connection| {
            let _ = sender.send(read(connection)?); // the caller may have stopped waiting
            Ok(())
        };
        self.elsewhere(Box::new(job)).await?;
        receiver.try_recv().map_err(|_| StoreError::Closed)
    }

    /// Runs a job on a blocking thread. Not generic: each kind of read would get a copy of the code that starts a thread.
    async fn elsewhere(&self, job: Job) -> Result<()> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let (path, pool) = (self.path.clone(), Arc::clone(&self.idle));
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let idle = lock(&pool).pop();
            let connection = idle.map_or_else(|| open_reader(&path), Ok)?;
            job(&connection)?;
            let mut idle = lock(&pool);
            if idle.len() < READERS {
                idle.push(connection);
            }
            Ok(())
        });
        match task.await {
            Ok(done) => done.map_err(failed),
            Err(error) => Err(StoreError::Failed(error.to_string())),
        }
    }

    /// How many connections are in use, without those of look-ups. How many reads wait is not known.
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
        lock(&self.idle).clear();
    }
}
