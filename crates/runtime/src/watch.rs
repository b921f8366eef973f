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
    sync::{Notify, Semaphore},
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
#[derive(Default)]
pub(crate) struct WatchedRun {
    /// How many watchers it has. Changed inside the lock of the hub only.
    watchers: AtomicUsize,
    seen: Mutex<Seen>,
    /// Notified when there is something new.
    changed: Notify,
    /// Notified when the run has ended, for waiters that need not be woken by each commit.
    ended: Notify,
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
        let mut seen = lock(&self.seen);
        let ends = end.is_some() && seen.end.is_none();
        let is_new = seq > seen.seq || ends;
        seen.seq = seen.seq.max(seq);
        if ends {
            seen.end = end;
        }
        drop(seen);
        if is_new {
            self.changed.notify_waiters();
        }
        if ends {
            self.ended.notify_waiters();
        }
    }

    fn has_ended(&self) -> bool {
        lock(&self.seen).end.is_some()
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
    /// What [`Watch::seen`] returned last: the position, and whether the run had ended.
    known: (u32, bool),
}

impl Watch {
    /// Watches a run. It is polled after [`Watch::is_stored`]; until then only its driver is heard.
    pub fn new(shared: &Arc<Shared>, run: RunId) -> Watch {
        let hub = &shared.hub;
        let mut watched = lock(&hub.watched);
        let entry = watched.runs.entry(run).or_insert_with(|| {
            hub.runs.fetch_add(1, Ordering::SeqCst);
            Arc::default()
        });
        entry.watchers.fetch_add(1, Ordering::SeqCst);
        Watch {
            shared: shared.clone(),
            run,
            entry: entry.clone(),
            known: (0, false),
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
        let seen = lock(&self.entry.seen).clone();
        self.known = (seen.seq, seen.end.is_some());
        seen
    }

    /// Waits until there is something that [`Watch::seen`] has not returned. False if this process stops.
    pub async fn changed(&self) -> bool {
        let is_new = || {
            let seen = lock(&self.entry.seen);
            (seen.seq, seen.end.is_some()) != self.known
        };
        self.until(&self.entry.changed, is_new).await
    }

    /// Waits until the run has ended. False if this process stops.
    pub async fn ended(&self) -> bool {
        self.until(&self.entry.ended, || self.entry.has_ended()).await
    }

    /// Waits for a condition that can become true when `notify` is notified. False if this process stops.
    async fn until(&self, notify: &Notify, condition: impl Fn() -> bool) -> bool {
        loop {
            // Made before the check: a notification after it is not missed.
            let notified = notify.notified();
            if condition() {
                return true;
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = self.shared.shutdown.stopping.cancelled() => return false,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let hub = &self.shared.hub;
        let mut watched = lock(&hub.watched);
        // Inside the lock, so that of two watchers that leave at the same time the second one removes the entry.
        let is_last = self.entry.watchers.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && watched.runs.remove(&self.run).is_some() {
            hub.runs.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn waiters_for_the_end_are_not_woken_by_commits() {
        let run = WatchedRun::default();
        let (changed, ended) = (run.changed.notified(), run.ended.notified());
        tokio::pin!(ended);
        run.note(1, None);
        assert!(changed.now_or_never().is_some());
        assert!((&mut ended).now_or_never().is_none());
        let changed = run.changed.notified();
        run.note(2, Some(End::Elsewhere));
        assert!(changed.now_or_never().is_some() && ended.now_or_never().is_some());
        // Nothing new.
        let changed = run.changed.notified();
        run.note(2, Some(End::Removed));
        assert!(changed.now_or_never().is_none());
    }
}
