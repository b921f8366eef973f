//! What this process watches: runs whose events or end are awaited, and lists of runs.
//!
//! | file | content |
//! | --- | --- |
//! | `watch.rs` | the hub: watched runs, and what is known of each |
//! | `poll.rs` | the one task that reads what changed elsewhere |
//! | `feed.rs` | the events of one run, from a position in its journal |
//! | `list.rs` | the newest runs that match a filter |
//!
//! The journal is the feed: a watcher has a position in it, and reads rows after that position when the hub says that there are
//! some. The driver of a run that is held here tells the hub what it committed. Other runs are polled, all of them with one
//! statement.
//!
//! What must stay true:
//! * The hub holds no events, only the newest position of each watched run. So a watcher that does not read costs no memory.
//! * A hint or a poll only says that there is something to read. A lost hint causes delay, never a missing event.
//! * Nothing is polled while nothing is watched, and nothing is read while nothing was written, if the store knows that
//!   ([`Store::writes`](fermata_store::Store::writes)).
//! * A watcher removes itself when it is dropped.

mod feed;
mod list;
mod poll;

pub use feed::{Fed, FedRow, RunFeed};
pub use list::{ListChanges, ListFeed, ListedRun, MAX_LISTED};

use crate::engine::{Ended, Engine, Shared, lock};
use feed::CachedRows;
use fermata_core::{RunId, Status};
use fermata_store::reads::RunPosition;
use list::WatchedList;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

/// The pause before the first poll of a run that this process does not hold. It doubles with each poll, since most runs are short.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The most reads of journals for watchers at the same time, so that many watchers cannot take the connections of the engine.
const MAX_READS: usize = 2;

/// What is known of a watched run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Its newest journal row, as far as this process knows.
    pub seq: u32,
    /// Whether it has ended.
    pub end: Option<End>,
}

/// How a watched run ended.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// In this process.
    Here(Arc<Ended>),
    /// In another process: the store has the details.
    Elsewhere,
    /// It was removed.
    Removed,
}

/// The watched runs and lists of this process.
pub(crate) struct Hub {
    watched: Mutex<Watched>,
    /// How many runs are watched, so that a commit costs one load if there are none.
    runs: AtomicUsize,
    /// Notified when something is to be polled sooner.
    wake: Notify,
    /// One permit per read of a journal.
    reads: Semaphore,
    /// How many reads were made for watchers.
    made: AtomicU64,
}

#[derive(Default)]
struct Watched {
    runs: HashMap<RunId, Arc<WatchedRun>>,
    lists: Vec<Arc<WatchedList>>,
    /// When the task of `poll.rs` looks what is due; `None` if it does not run.
    looks_at: Option<Instant>,
}

/// One watched run. All its watchers share it.
pub(crate) struct WatchedRun {
    seen: watch::Sender<Seen>,
    poll: Mutex<PollState>,
    /// The journal rows that were read last, for watchers at the same position.
    rows: tokio::sync::Mutex<CachedRows>,
}

/// When a run is polled.
#[derive(Default)]
struct PollState {
    /// `None` until the run is known to be stored.
    due: Option<Instant>,
    pause: Duration,
    /// The number of writes before the last poll.
    writes: Option<u64>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub {
            watched: Mutex::default(),
            runs: AtomicUsize::new(0),
            wake: Notify::new(),
            reads: Semaphore::new(MAX_READS),
            made: AtomicU64::new(0),
        }
    }
}

impl Hub {
    /// A driver of this process committed a journal row, or the end of its run.
    pub fn committed(&self, run: RunId, seq: u32, ended: impl FnOnce() -> Option<Ended>) {
        // A watcher that is added later reads the store afterwards, so it sees this commit.
        if self.runs.load(Ordering::SeqCst) == 0 {
            return;
        }
        let Some(entry) = lock(&self.watched).runs.get(&run).cloned() else {
            return;
        };
        let end = ended().map(|ended| End::Here(Arc::new(ended)));
        entry.note(seq, end);
    }

    /// How many runs and lists are watched.
    pub fn len(&self) -> usize {
        let watched = lock(&self.watched);
        watched.runs.len() + watched.lists.len()
    }

    fn count_read(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// How many runs and lists are watched in this process.
    pub fn watched(&self) -> usize {
        self.shared.hub.len()
    }

    /// How many reads of the store were made for watchers of runs and lists, apart from one when each is opened.
    pub fn watch_reads(&self) -> u64 {
        self.shared.hub.made.load(Ordering::Relaxed)
    }
}

impl WatchedRun {
    /// Takes note of a position. Positions only grow, and an end is final.
    fn note(&self, seq: u32, end: Option<End>) {
        self.seen.send_if_modified(|seen| {
            let is_new = seq > seen.seq || (end.is_some() && seen.end.is_none());
            seen.seq = seen.seq.max(seq);
            if seen.end.is_none() {
                seen.end = end;
            }
            is_new
        });
    }

    /// Takes note of what the store has; `None` if it does not have the run.
    fn note_stored(&self, position: Option<&RunPosition>) {
        let is_over = |status: Status| status.is_terminal().then_some(End::Elsewhere);
        match position {
            Some(position) => self.note(position.seq, is_over(position.status)),
            None => self.note(0, Some(End::Removed)),
        }
    }
}

/// One watcher of a run.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    run: RunId,
    entry: Arc<WatchedRun>,
    /// `None` only while it is dropped.
    seen: Option<watch::Receiver<Seen>>,
}

impl Watch {
    /// Watches a run. It is polled after [`Watch::is_stored`]; until then only its driver is heard.
    pub fn new(shared: &Arc<Shared>, run: RunId) -> Watch {
        let hub = &shared.hub;
        let mut watched = lock(&hub.watched);
        let entry = watched.runs.entry(run).or_insert_with(|| {
            hub.runs.fetch_add(1, Ordering::SeqCst);
            Arc::new(WatchedRun {
                seen: watch::Sender::new(Seen::default()),
                poll: Mutex::default(),
                rows: tokio::sync::Mutex::default(),
            })
        });
        Watch {
            shared: shared.clone(),
            run,
            seen: Some(entry.seen.subscribe()),
            entry: entry.clone(),
        }
    }

    /// The run is in the store, so it is polled from now on.
    pub fn is_stored(&self) {
        let mut poll = lock(&self.entry.poll);
        let interval = poll::interval(&self.shared);
        poll.pause = FIRST_PAUSE.min(interval);
        let due = Instant::now() + poll.pause;
        poll.due = Some(due);
        drop(poll);
        poll::start(&self.shared, due);
    }

    /// What is known of the run now.
    pub fn seen(&mut self) -> Seen {
        let seen = self.seen.as_mut();
        seen.map_or_else(Seen::default, |seen| seen.borrow_and_update().clone())
    }

    /// Waits until there is something new. False if this process stops.
    pub async fn changed(&mut self) -> bool {
        let Some(seen) = &mut self.seen else { return false };
        tokio::select! {
            biased;
            changed = seen.changed() => changed.is_ok(),
            () = self.shared.shutdown.stopping.cancelled() => false,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let hub = &self.shared.hub;
        let mut watched = lock(&hub.watched);
        // Inside the lock, so that of two watchers that leave at the same time the second one removes the entry.
        self.seen = None;
        if self.entry.seen.receiver_count() == 0 && watched.runs.remove(&self.run).is_some() {
            hub.runs.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
