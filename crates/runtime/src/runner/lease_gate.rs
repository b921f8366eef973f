//! The lease gate: whether this process may start an attempt, a run or a claim, and whether it may expire the leases of other
//! runners.
//!
//! Commits are fenced by epochs, effects are not. So nothing starts unless no other process can have taken over: the last
//! confirmed heartbeat, dated before it was sent, must be younger than two thirds of `lease_ttl`. Its age is measured with
//! `CLOCK_BOOTTIME`, which counts while the machine is suspended, and with the wall clock, which is corrected after a virtual
//! machine was paused. A time without such a heartbeat is a *gap*. After a gap nothing starts until a new heartbeat is
//! confirmed and the list of held runs was read after it (`heartbeat.rs`). Runs that are missing there are dropped.
//!
//! While heartbeats cannot be written, no runner may expire another. After recovery, and after the database's clock was
//! set, one `lease_ttl` passes before leases of other runners expire. The same holds for a new process.

use crate::{clock::Clock, engine::lock};
use fermata_core::Timestamp;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// What is known of the confirmed heartbeats of this process.
pub(crate) struct LeaseGate {
    lease_ttl: i64,
    machine: Arc<dyn Clock>,
    state: Mutex<State>,
    /// How many gaps there were. Counted before the list of held runs is read.
    gaps: AtomicU64,
    changed: Notify,
    wanted: Notify,
}

#[derive(Default)]
struct State {
    /// When the last confirmed heartbeat was sent.
    last: Option<Moment>,
    /// When the last gap ended, by `since_boot`.
    steady_since: i64,
    /// How far the database's clock is ahead of `since_boot`.
    ahead: i64,
    /// Whether the list of held runs was read since the last gap.
    checked: bool,
}

/// The times of the machine's clocks, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    boot: i64,
    wall: i64,
}

impl LeaseGate {
    pub fn new(lease_ttl: Duration, machine: Arc<dyn Clock>) -> LeaseGate {
        LeaseGate {
            lease_ttl: i64::try_from(lease_ttl.as_micros()).unwrap_or(i64::MAX),
            machine,
            state: Mutex::default(),
            gaps: AtomicU64::new(0),
            changed: Notify::new(),
            wanted: Notify::new(),
        }
    }

    /// The current times. Call this before a heartbeat is sent.
    pub fn moment(&self) -> Moment {
        Moment {
            boot: self.machine.since_boot(),
            wall: self.machine.now().0,
        }
    }

    /// A heartbeat that was sent at `sent` is confirmed; the database's clock shows `database` now. If there was a gap before
    /// it, returns the number of the gap: the list of held runs must be read.
    pub fn beat(&self, sent: Moment, database: Timestamp) -> Option<u64> {
        let mut state = lock(&self.state);
        let ahead = database.0.saturating_sub(self.machine.since_boot());
        let gap = !state.last.is_some_and(|last| self.is_young(last, sent));
        let was_set = ahead.abs_diff(state.ahead) > self.lease_ttl.unsigned_abs() / 3;
        if gap || was_set {
            state.steady_since = sent.boot;
        }
        if gap {
            self.gaps.fetch_add(1, Ordering::SeqCst);
            state.checked = false;
        }
        (state.last, state.ahead) = (Some(sent), ahead);
        let unchecked = !state.checked;
        drop(state);
        if unchecked {
            return Some(self.gaps());
        }
        self.changed.notify_waiters();
        None
    }

    /// The list of held runs was read after the heartbeat that ended this gap, and runs that are missing there were dropped.
    pub fn checked(&self, gap: u64) {
        let mut state = lock(&self.state);
        state.checked = self.gaps() == gap;
        drop(state);
        self.changed.notify_waiters();
    }

    /// How many gaps there were. A lease that was requested before a gap may be lost.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::SeqCst)
    }

    /// Waits for the first confirmed heartbeat.
    pub async fn begun(&self) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.state).checked {
                return;
            }
            changed.await;
        }
    }

    /// Whether attempts, runs and claims may start now.
    pub fn is_open(&self) -> bool {
        let now = self.moment();
        let state = lock(&self.state);
        state.checked && state.last.is_some_and(|last| self.is_young(last, now))
    }

    /// Waits until the gate is open. Call this right before something starts.
    pub async fn opens(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_open() {
                return;
            }
            self.want();
            changed.await;
        }
    }

    /// Requests a heartbeat at once.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a heartbeat is requested.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// By database time: runners whose last heartbeat is older are dead. While other runners may have had no chance to send
    /// one, this is the beginning of time: then only runners without any heartbeat are dead.
    pub fn dead_before(&self, now: Timestamp) -> Timestamp {
        let moment = self.moment();
        let state = lock(&self.state);
        let young = state.last.is_some_and(|last| self.is_young(last, moment));
        let steady = moment.boot.saturating_sub(state.steady_since) >= self.lease_ttl;
        match young && steady {
            true => Timestamp(now.0.saturating_sub(self.lease_ttl)),
            false => Timestamp::default(),
        }
    }

    /// Three heartbeats are sent in a `lease_ttl`; one may be missed. A change of the wall clock counts as a gap.
    fn is_young(&self, sent: Moment, now: Moment) -> bool {
        let limit = self.lease_ttl.unsigned_abs().saturating_mul(2) / 3;
        now.boot.abs_diff(sent.boot) < limit && now.wall.abs_diff(sent.wall) < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::atomic::AtomicI64;

    const SECOND: i64 = 1_000_000;

    /// Clocks that are set by tests.
    #[derive(Default)]
    struct Set {
        boot: AtomicI64,
        wall: AtomicI64,
    }

    impl Set {
        fn to(&self, seconds: i64) {
            self.boot.store(seconds * SECOND, Ordering::Relaxed);
            self.wall.store(seconds * SECOND, Ordering::Relaxed);
        }
    }

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            Timestamp(self.wall.load(Ordering::Relaxed))
        }

        fn since_boot(&self) -> i64 {
            self.boot.load(Ordering::Relaxed)
        }
    }

    fn gate() -> (Arc<Set>, LeaseGate) {
        let set = Arc::new(Set::default());
        set.to(1000);
        (set.clone(), LeaseGate::new(Duration::from_secs(15), set))
    }

    /// Database time, which differs from the machine's.
    fn database(seconds: i64) -> Timestamp {
        Timestamp((7000 + seconds) * SECOND)
    }

    fn beat(set: &Set, gate: &LeaseGate, seconds: i64) -> Option<u64> {
        set.to(seconds);
        gate.beat(gate.moment(), database(seconds))
    }

    #[test]
    fn gate_is_closed_after_a_gap_until_held_runs_were_read() {
        let (set, gate) = gate();
        assert!(!gate.is_open(), "a heartbeat comes first");
        assert_eq!(beat(&set, &gate, 1000), Some(1));
        assert!(!gate.is_open());
        gate.checked(1);
        for seconds in [1000, 1005, 1010] {
            assert!(seconds == 1000 || beat(&set, &gate, seconds).is_none());
            set.to(seconds + 9);
            assert!(gate.is_open());
            set.to(seconds + 10);
            assert!(!gate.is_open());
        }
        assert_eq!(beat(&set, &gate, 1040), Some(2));
        assert!(!gate.is_open() && gate.opens().now_or_never().is_none());
        gate.checked(1);
        assert!(!gate.is_open(), "the list was read before the gap");
        assert_eq!(beat(&set, &gate, 1045), Some(2), "the list has not been read yet");
        gate.checked(2);
        assert!(gate.is_open() && gate.opens().now_or_never().is_some());
    }

    #[test]
    fn age_of_a_heartbeat_counts_from_its_sending() {
        let (set, gate) = gate();
        beat(&set, &gate, 1000);
        gate.checked(1);
        let sent = gate.moment();
        set.to(1030);
        assert_eq!(gate.beat(sent, database(1030)), None);
        assert!(!gate.is_open(), "it was sent before this process was stopped");
    }

    #[test]
    fn gate_closes_if_either_clock_jumps() {
        let (set, gate) = gate();
        beat(&set, &gate, 1000);
        gate.checked(1);
        for (boot, wall) in [(30, 0), (0, 30), (0, -30)] {
            set.boot.store((1000 + boot) * SECOND, Ordering::Relaxed);
            set.wall.store((1000 + wall) * SECOND, Ordering::Relaxed);
            assert!(!gate.is_open(), "{boot} {wall}");
        }
    }

    #[test]
    fn other_runners_expire_only_after_one_lease_ttl_without_gap() {
        let (set, gate) = gate();
        let dead_before = |seconds| {
            set.to(seconds);
            gate.dead_before(database(seconds))
        };
        for seconds in [1000, 1005, 1010, 1015] {
            beat(&set, &gate, seconds);
        }
        assert_eq!(
            dead_before(1014),
            Timestamp::default(),
            "other runners may not have sent one yet"
        );
        assert_eq!(dead_before(1015), database(1000));
        assert_eq!(dead_before(1024), database(1009));
        assert_eq!(dead_before(1026), Timestamp::default(), "our own heartbeat is too old");
        for seconds in [1037, 1042, 1047] {
            beat(&set, &gate, seconds);
            assert_eq!(dead_before(seconds + 4), Timestamp::default());
        }
        assert_eq!(dead_before(1052), database(1037));
        set.to(1052);
        gate.beat(gate.moment(), database(1152));
        assert_eq!(dead_before(1053), Timestamp::default(), "the database's clock was set");
    }
}
