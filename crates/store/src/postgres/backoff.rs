//! Pauses between tries to reach a database: longer and longer, and never the same for two who wait.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(4);

/// How long to wait next.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The database was reached.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Waits, longer each time.
    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// Waits a moment, so that two who collided do not meet again.
    pub(super) async fn moment(&self) {
        tokio::time::sleep(jittered(MOMENT)).await;
    }

    fn next(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        jittered(pause)
    }
}

/// How long a lock of somebody else is left alone after so many tries: up to half a second.
pub(super) fn rest(tries: u32) -> Duration {
    jittered(MOMENT * (1 << tries.min(7)))
}

/// Between half of it and all.
fn jittered(pause: Duration) -> Duration {
    // A new hasher is keyed at random: randomness enough.
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
        assert!(first >= FIRST / 2 && first <= FIRST, "{first:?}");
        let later: Vec<_> = (0..100).map(|_| backoff.next()).collect();
        assert!(later.iter().all(|pause| *pause <= LONGEST));
        assert!(later[99] >= LONGEST / 2, "{later:?}");
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
