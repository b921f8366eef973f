//! Database time, and the clocks of this machine that it is measured with.
//!
//! Several processes must agree on the time, but the clocks of their machines may differ. So time is that of the
//! database: a monotonic clock (`CLOCK_BOOTTIME`, which also counts while the machine is suspended) plus an offset that
//! is measured when the store is opened and with each heartbeat. For SQLite, the clock of the database is the wall
//! clock of this machine.
//!
//! What must stay true:
//! * Time never goes back. If the database's clock was set back, time runs at half speed until both agree again.
//! * A slow response cannot make the offset worse: it is changed only as far as the measurement proves it wrong.

use fermata_core::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::{PoisonError, RwLock},
    time::{SystemTime, UNIX_EPOCH},
};

/// A difference between the clocks of this machine and its database above this is logged. In microseconds.
const WORTH_A_LINE: i64 = 1_000_000;

/// The wall clock of this machine.
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    Timestamp(micros.saturating_add(wrong_by()))
}

/// The uptime of this machine in microseconds: a clock that is never set.
pub fn since_boot() -> i64 {
    let since = clock_gettime(ClockId::Boottime);
    since.tv_sec * 1_000_000 + since.tv_nsec / 1000
}

/// An artificial error of the wall clock in microseconds, for tests and the fault rig. Release builds ignore it.
fn wrong_by() -> i64 {
    #[cfg(debug_assertions)]
    {
        static WRONG: std::sync::LazyLock<i64> = std::sync::LazyLock::new(|| {
            let seconds = std::env::var("FERMATA_TEST_WRONG_CLOCK_S").ok();
            seconds.and_then(|text| text.parse::<i64>().ok()).unwrap_or_default() * 1_000_000
        });
        *WRONG
    }
    #[cfg(not(debug_assertions))]
    0
}

/// A clock that shows database time.
#[derive(Debug)]
pub(crate) struct DatabaseClock(RwLock<State>);

#[derive(Debug)]
struct State {
    /// How far the database's clock is ahead of [`since_boot`].
    offset: i64,
    /// When the offset was measured last, by [`since_boot`], and what this clock showed then.
    measured: (i64, i64),
    /// How far the database's clock is ahead of the wall clock, as it was logged last.
    logged: i64,
}

impl State {
    /// The clock of the database, as estimated.
    fn database(&self, boot: i64) -> i64 {
        boot.saturating_add(self.offset)
    }

    /// The same, but it never goes back.
    fn shown(&self, boot: i64) -> i64 {
        let (at, shown) = self.measured;
        self.database(boot).max(shown + (boot - at) / 2)
    }

    /// Whether this difference is logged: once when it appears, when it changes, and when it is gone.
    fn is_worth_a_line(&mut self, ahead: i64) -> bool {
        let differs = ahead.saturating_abs() > WORTH_A_LINE;
        let has_changed = ahead.abs_diff(self.logged) > WORTH_A_LINE.unsigned_abs();
        let is_new = (differs || self.logged != 0) && has_changed;
        if is_new {
            self.logged = if differs { ahead } else { 0 };
        }
        is_new
    }
}

impl DatabaseClock {
    /// A clock for a database that showed `theirs` when the uptime of this machine was between `before` and `after`.
    pub(crate) fn new(before: i64, theirs: i64, after: i64) -> DatabaseClock {
        let offset = theirs - (before + (after - before) / 2);
        let clock = DatabaseClock(RwLock::new(State {
            offset,
            measured: (after, after.saturating_add(offset)),
            logged: 0,
        }));
        clock.learn(before, theirs, after);
        clock
    }

    /// Updates the offset: the database showed `theirs` when the uptime of this machine was between `before` and
    /// `after`.
    pub(crate) fn learn(&self, before: i64, theirs: i64, after: i64) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let boot = since_boot().max(after);
        state.measured = (boot, state.shown(boot));
        let (least, most) = (theirs.saturating_sub(after), theirs.saturating_sub(before));
        state.offset = state.offset.clamp(least.min(most), most);
        let ahead = state.database(boot).saturating_sub(wall().0);
        if state.is_worth_a_line(ahead) {
            tracing::warn!(
                database_ahead_ms = ahead / 1000,
                "the clock of this machine differs from its database's; the engine goes by the database's"
            );
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Timestamp(state.shown(since_boot()))
    }

    /// What the database's own clock shows when this one shows `at`. They differ only after the database's was set back.
    pub(crate) fn theirs(&self, at: Timestamp) -> i64 {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let boot = since_boot();
        at.0.saturating_sub(state.shown(boot) - state.database(boot))
    }

    /// What this clock shows when the database's own shows `at`.
    pub(crate) fn ours(&self, at: Timestamp) -> Timestamp {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let boot = since_boot();
        Timestamp(at.0.saturating_add(state.shown(boot) - state.database(boot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;

    fn close(one: i64, other: i64) -> bool {
        one.abs_diff(other) < SECOND.unsigned_abs()
    }

    #[test]
    fn shows_the_time_of_the_database() {
        let boot = since_boot();
        let clock = DatabaseClock::new(boot - 20, 5 * HOUR, boot);
        assert!(close(clock.now().0, 5 * HOUR));
        clock.learn(boot, 7 * HOUR, boot);
        assert!(close(clock.now().0, 7 * HOUR));
        assert!(close(clock.theirs(Timestamp(HOUR)), HOUR));
    }

    #[test]
    fn differences_of_more_than_a_second_are_logged_once() {
        let clock = DatabaseClock::new(0, wall().0 - since_boot(), 0);
        let mut state = clock.0.write().unwrap();
        for (ahead, is_logged) in [
            (900_000, false),
            (-1_000_000, false),
            (1_500_000, true),
            (1_600_000, false),
            (HOUR, true),
            (HOUR + 900_000, false),
            (700_000, true),
            (-400_000, false),
            (-HOUR, true),
        ] {
            assert_eq!(state.is_worth_a_line(ahead), is_logged, "{ahead}");
        }
    }

    #[test]
    fn clocks_of_the_machine_count_microseconds() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!(close(since_boot(), (uptime * 1e6) as i64));
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(wall().0.abs_diff(seconds as i64 * SECOND) < 2 * SECOND.unsigned_abs());
    }

    #[test]
    fn a_slow_answer_changes_nothing_that_it_does_not_disprove() {
        let state = |clock: &DatabaseClock| clock.0.read().unwrap().offset;
        let clock = DatabaseClock::new(0, 100 * SECOND, 0);
        clock.learn(10 * SECOND, 110 * SECOND, 60 * SECOND);
        clock.learn(20 * SECOND, 160 * SECOND, 60 * SECOND);
        assert_eq!(state(&clock), 100 * SECOND);
        clock.learn(20 * SECOND, 121 * SECOND, 20 * SECOND + 1);
        assert_eq!(state(&clock), 101 * SECOND - 1);
        clock.learn(20 * SECOND, 160 * SECOND, 30 * SECOND);
        assert_eq!(state(&clock), 130 * SECOND, "no less than this");
    }

    #[test]
    fn time_never_goes_back() {
        let boot = since_boot();
        let clock = DatabaseClock::new(boot, 5 * HOUR, boot);
        let before = clock.now();
        clock.learn(boot, 4 * HOUR, boot);
        let after = clock.now();
        assert!(after >= before && close(after.0, 5 * HOUR));
        assert!(
            close(clock.theirs(after), 4 * HOUR),
            "the database is asked in its own time"
        );
        assert!(close(clock.ours(Timestamp(4 * HOUR)).0, 5 * HOUR));
        let state = clock.0.read().unwrap();
        let later = |passed: i64| state.shown(boot + passed);
        assert!(close(later(HOUR), 5 * HOUR + HOUR / 2), "half as fast");
        assert!(close(later(3 * HOUR), 7 * HOUR), "until both agree");
    }
}
