//! The task that reads what changed elsewhere: one statement for all watched runs, and one for each different list.
//!
//! It starts with the first watcher and ends after the last. New watchers are polled soon and then less often, until all of them
//! share one poll per interval.
//!
//! What must stay true: runs that are held here are not polled, because their driver tells what it commits. Reads are made one
//! after another, so any number of watchers takes at most one connection for polling.

use super::{Hub, PollState, WatchedRun, list::WatchedList};
use crate::engine::{Shared, lock};
use fermata_core::RunId;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// How often runs and lists are polled: once per second, if `poll_interval` has its default.
pub(super) fn interval(shared: &Shared) -> Duration {
    shared.settings.poll_interval * 2
}

/// The shortest time between two polls: what becomes due meanwhile shares the next one. Without it, the task would look at all
/// watched runs for each one that is added.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Something is due at this time: starts the task if it does not run, or wakes it if it would look later.
pub(super) fn start(shared: &Arc<Shared>, due: Instant) {
    let hub = &shared.hub;
    let mut watched = lock(&hub.watched);
    match watched.looks_at {
        Some(looks_at) if looks_at <= due => {}
        Some(_) => hub.wake.notify_one(),
        None => {
            watched.looks_at = Some(due);
            tokio::spawn(run(shared.clone()));
        }
    }
}

async fn run(shared: Arc<Shared>) {
    let hub = &shared.hub;
    // All runs that are polled at the full interval share its ticks.
    let began = Instant::now();
    let mut earliest = began;
    while let Some(due) = hub.next_due(earliest) {
        tokio::select! {
            biased;
            () = shared.shutdown.stopping.cancelled() => break,
            () = hub.wake.notified() => continue,
            () = tokio::time::sleep_until(due) => {}
        }
        let ticks = Ticks {
            began,
            interval: interval(&shared),
        };
        poll_runs(&shared, &ticks).await;
        poll_lists(&shared, &ticks).await;
        earliest = Instant::now() + LEAST_PAUSE;
    }
}

/// The instants at which everything is polled.
struct Ticks {
    began: Instant,
    interval: Duration,
}

impl Ticks {
    /// The first tick after this time.
    fn after(&self, now: Instant) -> Instant {
        let interval = self.interval.as_micros().max(1);
        let passed = now.duration_since(self.began).as_micros() / interval + 1;
        self.began + self.interval * u32::try_from(passed).unwrap_or(u32::MAX)
    }
}

impl PollState {
    /// Plans the next poll. True if this one is to be made: something may have been written since the last.
    fn advance(&mut self, now: Instant, ticks: &Ticks, writes: Option<u64>) -> bool {
        self.pause = (self.pause * 2).min(ticks.interval);
        self.due = Some(match self.pause < ticks.interval {
            true => now + self.pause,
            false => ticks.after(now),
        });
        let is_same = writes.is_some() && self.writes == writes;
        self.writes = writes;
        !is_same
    }
}

impl Hub {
    /// When the next poll is made: once something is due, and not before `earliest`. `None`, after which the task must end, if nothing is
    /// watched.
    fn next_due(&self, earliest: Instant) -> Option<Instant> {
        let mut watched = lock(&self.watched);
        let runs = watched.runs.values().filter_map(|run| lock(&run.poll).due);
        let lists = watched.lists.iter().filter_map(|list| lock(&list.poll).due);
        watched.looks_at = runs.chain(lists).min().map(|due| due.max(earliest));
        watched.looks_at
    }

    /// The runs whose poll is due, except those that this process holds. Theirs is planned again.
    fn due_runs(&self, shared: &Shared, ticks: &Ticks) -> HashMap<RunId, Arc<WatchedRun>> {
        // Taken before the store is read: what is written meanwhile is polled again.
        let writes = shared.store.writes();
        let now = Instant::now();
        let watched = lock(&self.watched);
        let due = watched.runs.iter().filter(|(run, entry)| {
            let mut poll = lock(&entry.poll);
            if poll.due.is_none_or(|due| due > now) {
                return false;
            }
            if shared.held.contains(**run) || entry.has_ended() {
                poll.due = Some(ticks.after(now));
                // The run may leave this process, with writes that were not polled.
                poll.writes = None;
                return false;
            }
            poll.advance(now, ticks, writes)
        });
        due.map(|(run, entry)| (*run, entry.clone())).collect()
    }

    /// The lists whose poll is due.
    fn due_lists(&self, shared: &Shared, ticks: &Ticks) -> Vec<Arc<WatchedList>> {
        let writes = shared.store.writes();
        let now = Instant::now();
        let watched = lock(&self.watched);
        let due = watched.lists.iter().filter(|list| {
            let mut poll = lock(&list.poll);
            poll.due.is_some_and(|due| due <= now) && poll.advance(now, ticks, writes)
        });
        due.cloned().collect()
    }
}

async fn poll_runs(shared: &Shared, ticks: &Ticks) {
    if shared.hub.runs.load(Ordering::SeqCst) == 0 {
        return;
    }
    let due = shared.hub.due_runs(shared, ticks);
    if due.is_empty() {
        return;
    }
    let runs: Vec<RunId> = due.keys().copied().collect();
    shared.hub.count_read();
    match shared.store.positions(&runs).await {
        Ok(positions) => {
            let found: HashMap<_, _> = positions.iter().map(|position| (position.run, position)).collect();
            due.iter()
                .for_each(|(run, entry)| entry.note_stored(found.get(run).copied()));
        }
        Err(error) => {
            due.values().for_each(|entry| lock(&entry.poll).writes = None);
            let health = &shared.health;
            health.retried(None, &error, "watched runs cannot be read; trying again");
        }
    }
}

async fn poll_lists(shared: &Shared, ticks: &Ticks) {
    for list in shared.hub.due_lists(shared, ticks) {
        shared.hub.count_read();
        if let Err(error) = list.read(shared).await {
            lock(&list.poll).writes = None;
            let health = &shared.health;
            health.retried(None, &error, "a watched list cannot be read; trying again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_watchers_are_polled_soon_and_then_share_the_ticks() {
        let began = Instant::now();
        let ticks = Ticks {
            began,
            interval: Duration::from_millis(1000),
        };
        let mut state = PollState {
            pause: Duration::from_millis(20),
            due: Some(began),
            writes: None,
        };
        let mut now = began + Duration::from_millis(130);
        let mut times = Vec::new();
        for _ in 0..9 {
            assert!(state.advance(now, &ticks, None), "other processes may write");
            now = state.due.unwrap();
            times.push((now - began).as_millis());
        }
        assert_eq!(times, [170, 250, 410, 730, 1370, 2000, 3000, 4000, 5000]);
        assert_eq!(ticks.after(began), began + ticks.interval);
    }

    #[test]
    fn nothing_is_read_while_nothing_was_written() {
        let now = Instant::now();
        let ticks = Ticks {
            began: now,
            interval: Duration::from_millis(1000),
        };
        let mut state = PollState::default();
        for (writes, polls) in [(1, true), (1, false), (1, false), (2, true), (2, false), (5, true)] {
            assert_eq!(state.advance(now, &ticks, Some(writes)), polls, "{writes}");
        }
        // After a failed read it is read again.
        state.writes = None;
        assert!(state.advance(now, &ticks, Some(5)));
    }
}
