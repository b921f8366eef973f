//! A log file outside of the system under test: one line for each entry, on disk before the entry is used.
//!
//! What must stay true: [`Ledger::note`] returns after the entry is on disk. The checks read the entries from the file, so they see
//! exactly what was written.

use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
};
use tokio::sync::{mpsc, oneshot};

/// The maximum number of entries that share one flush.
const BATCH: usize = 256;

type Entry = (String, oneshot::Sender<()>);

/// An open log.
pub struct Ledger {
    path: PathBuf,
    /// `None` after [`Ledger::close`].
    open: Mutex<Option<Open>>,
}

struct Open {
    entries: mpsc::UnboundedSender<Entry>,
    writer: JoinHandle<anyhow::Result<()>>,
}

impl Ledger {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path) -> anyhow::Result<Ledger> {
        let file = File::create_new(path).with_context(|| path.display().to_string())?;
        let (entries, receiver) = mpsc::unbounded_channel();
        let writer = std::thread::spawn(|| write(file, receiver));
        Ok(Ledger {
            path: path.to_owned(),
            open: Mutex::new(Some(Open { entries, writer })),
        })
    }

    /// Writes an entry. It is on disk when this returns.
    pub async fn note(&self, entry: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(entry)?;
        let (done, written) = oneshot::channel();
        {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let open = open.as_ref().context("the log is closed")?;
            open.entries
                .send((line, done))
                .ok()
                .context("the log cannot be written")?;
        }
        written.await.context("the log cannot be written")
    }

    /// Closes the log and returns all entries.
    pub fn close<T: DeserializeOwned>(&self) -> anyhow::Result<Vec<T>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Open { entries, writer }) = open {
            drop(entries);
            writer
                .join()
                .map_err(|_| anyhow::anyhow!("the log's writer panicked"))??;
        }
        let text = fs::read_to_string(&self.path)?;
        let read = |line| serde_json::from_str(line).with_context(|| format!("{line} in {}", self.path.display()));
        text.lines().map(read).collect()
    }
}

fn write(mut file: File, mut entries: mpsc::UnboundedReceiver<Entry>) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    while entries.blocking_recv_many(&mut batch, BATCH) > 0 {
        let mut text = String::new();
        for (line, _) in &batch {
            text.push_str(line);
            text.push('\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        for (_, done) in batch.drain(..) {
            let _ = done.send(()); // the receiver may have been dropped; the entry is written
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn entries_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let ledger = Ledger::create(&path).unwrap();
        for number in 0..3 {
            ledger.note(&("entry", number)).await.unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), number + 1);
        }
        let entries: Vec<(String, usize)> = ledger.close().unwrap();
        assert_eq!(entries[2], ("entry".to_owned(), 2));
        assert!(ledger.note(&"late").await.is_err());
        assert!(Ledger::create(&path).is_err(), "a log is never written over");
    }
}
