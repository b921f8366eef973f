//! Whether this process is heard, and whether it may judge others.
//!
//! While the database is away nobody can say that he lives, and nobody is dead because of that. So who was not heard for
//! too long takes nothing, until a heartbeat is confirmed again; and for a whole `lease_ttl` from then on he takes no
//! runs of others who were not heard either, so that everybody can speak first. The same holds for a process that
//! was stopped for a while, and for a new one.

use crate::engine::lock;
use fermata_core::Timestamp;
use std::{sync::Mutex, time::Duration};
use tokio::sync::Notify;

/// The heartbeats of this process that are known to be in the store.
pub(crate) struct Pulse {
    lease_ttl: i64,
    beats: Mutex<Option<Beats>>,
    heard: Notify,
}

#[derive(Clone, Copy)]
struct Beats {
    last: i64,
    /// Since then there was none too late.
    steady_since: i64,
}

impl Pulse {
    pub fn new(lease_ttl: Duration) -> Pulse {
        Pulse {
            lease_ttl: i64::try_from(lease_ttl.as_micros()).unwrap_or(i64::MAX),
            beats: Mutex::default(),
            heard: Notify::new(),
        }
    }

    /// A heartbeat that says `at` is in the store.
    pub fn beat(&self, at: Timestamp) {
        let mut beats = lock(&self.beats);
        let steady_since = match *beats {
            Some(beats) if self.is_timely(beats, at) => beats.steady_since,
            _ => at.0,
        };
        *beats = Some(Beats {
            last: at.0,
            steady_since,
        });
        self.heard.notify_waiters();
    }

    /// Waits for the first heartbeat.
    pub async fn begun(&self) {
        loop {
            let heard = self.heard.notified();
            if lock(&self.beats).is_some() {
                return;
            }
            heard.await;
        }
    }

    /// Whether others know that this process lives.
    pub fn is_heard(&self, now: Timestamp) -> bool {
        lock(&self.beats).is_some_and(|beats| self.is_timely(beats, now))
    }

    /// Who was heard before this and not since then is dead; only those who are not known at all, if others had no
    /// chance to speak.
    pub fn dead_before(&self, now: Timestamp) -> Timestamp {
        let all_could_speak = lock(&self.beats).is_some_and(|beats| {
            self.is_timely(beats, now) && now.0.saturating_sub(beats.steady_since) >= self.lease_ttl
        });
        match all_could_speak {
            true => Timestamp(now.0.saturating_sub(self.lease_ttl)),
            false => Timestamp::default(),
        }
    }

    /// There are three heartbeats in a `lease_ttl`; one may be missed. A clock that was set back is a silence.
    fn is_timely(&self, beats: Beats, now: Timestamp) -> bool {
        now.0.abs_diff(beats.last) <= self.lease_ttl.unsigned_abs().saturating_mul(2) / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_000 * SECOND + seconds * SECOND)
    }

    #[test]
    fn who_is_not_heard_takes_nothing_and_who_is_heard_again_waits_for_the_others() {
        let pulse = Pulse::new(Duration::from_secs(15));
        assert!(!pulse.is_heard(at(0)), "a heartbeat comes first");
        for second in [0, 5, 10, 15] {
            pulse.beat(at(second));
            assert!(pulse.is_heard(at(second + 10)) && !pulse.is_heard(at(second + 11)));
        }
        assert_eq!(
            pulse.dead_before(at(14)),
            Timestamp::default(),
            "others may not have spoken yet"
        );
        assert_eq!(pulse.dead_before(at(15)), at(0));
        assert_eq!(pulse.dead_before(at(25)), at(10));
        assert_eq!(
            pulse.dead_before(at(26)),
            Timestamp::default(),
            "we are not heard ourselves"
        );
        for second in [37, 42, 47] {
            pulse.beat(at(second));
            assert!(pulse.is_heard(at(second)));
            assert_eq!(pulse.dead_before(at(second + 4)), Timestamp::default());
        }
        assert_eq!(pulse.dead_before(at(52)), at(37));
        assert!(!pulse.is_heard(at(-900)), "the clock was set back");
        pulse.beat(at(-900));
        pulse.beat(at(-890));
        assert_eq!(pulse.dead_before(at(-885)), at(-900));
    }
}
