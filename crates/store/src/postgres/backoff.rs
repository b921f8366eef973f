//! Exponential backoff with jitter between attempts to reach the database.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const INITIAL: Duration = Duration::from_millis(20);
const MAX: Duration = Duration::from_secs(2);
const SHORT: Duration = Duration::from_millis(4);

/// Counts failed attempts and pauses between them.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Starts again with the shortest pause. Called after a success.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Pauses, longer after each attempt.
    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// Pauses for a few milliseconds with jitter, so that two transactions that collided do not collide again.
    pub(super) async fn short_pause(&self) {
        tokio::time::sleep(jittered(SHORT)).await;
    }

    fn next(&mut self) -> Duration {
        let pause = INITIAL.saturating_mul(1 << self.tries.min(16)).min(MAX);
        self.tries = self.tries.saturating_add(1);
        jittered(pause)
    }
}

/// The pause before the next attempt to get a lock that another transaction holds: up to half a second.
pub(super) fn lock_retry_delay(tries: u32) -> Duration {
    jittered(SHORT * (1 << tries.min(7)))
}

/// A random duration between half of `pause` and `pause`.
fn jittered(pause: Duration) -> Duration {
    // A new `RandomState` has random keys, which is random enough for jitter.
    let part = RandomState::new().hash_one(0) % 1000;
    pause.mul_f64(0.5 + part as f64 / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let first = backoff.next();
        assert!(first >= INITIAL / 2 && first <= INITIAL, "{first:?}");
        let later: Vec<_> = (0..100).map(|_| backoff.next()).collect();
        assert!(later.iter().all(|pause| *pause <= MAX));
        assert!(later[99] >= MAX / 2, "{later:?}");
        backoff.reset();
        assert!(backoff.next() <= INITIAL);
    }
}
