//! How often an attempt is repeated and how long to wait before it.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// A retry policy with every field settled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Attempts in all, the first included. Zero means one.
    pub max_attempts: u32,
    /// The wait before the second attempt.
    pub base_delay_ms: u64,
    /// What each further wait is multiplied with.
    pub backoff_factor: f64,
    /// Whether the wait is drawn from zero up to the computed one (full jitter).
    pub jitter: bool,
}

/// No wait is longer than thirty days, whatever the factors say.
const MAX_DELAY_MS: u64 = 30 * 24 * 60 * 60 * 1000;

impl Retry {
    /// One attempt and no more.
    pub const NEVER: Retry = Retry {
        max_attempts: 1,
        base_delay_ms: 0,
        backoff_factor: 1.0,
        jitter: false,
    };

    /// The wait after attempt number `attempt` failed with `failure`, or `None` when it was the last.
    /// `jitter` is the randomness: a fraction of `u32::MAX`.
    pub fn delay_after(&self, attempt: u32, failure: &Failure, jitter: u32) -> Option<u64> {
        if !failure.retriable || attempt >= self.max_attempts.max(1) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        // The factor is capped first: nothing times infinity must stay nothing.
        let factor = self.backoff_factor.powi(exponent).min(MAX_DELAY_MS as f64);
        let full = (self.base_delay_ms as f64 * factor).min(MAX_DELAY_MS as f64);
        let drawn = if self.jitter {
            full * (f64::from(jitter) / f64::from(u32::MAX))
        } else {
            full
        };
        Some(
            (drawn as u64)
                .max(failure.retry_after_ms.unwrap_or(0))
                .min(MAX_DELAY_MS),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Retry = Retry {
        max_attempts: 4,
        base_delay_ms: 2000,
        backoff_factor: 2.0,
        jitter: false,
    };

    fn flaky() -> Failure {
        Failure::retriable("X", "x")
    }

    #[test]
    fn delays_grow_until_the_last_attempt() {
        let delays: Vec<_> = (1..=4).map(|n| POLICY.delay_after(n, &flaky(), 0)).collect();
        assert_eq!(delays, [Some(2000), Some(4000), Some(8000), None]);
    }

    #[test]
    fn zero_and_one_both_mean_one_attempt() {
        for max_attempts in [0, 1] {
            let policy = Retry { max_attempts, ..POLICY };
            assert_eq!(policy.delay_after(1, &flaky(), 0), None);
        }
    }

    #[test]
    fn permanent_failures_are_not_repeated() {
        assert_eq!(POLICY.delay_after(1, &Failure::permanent("X", "x"), 0), None);
    }

    #[test]
    fn jitter_spans_zero_to_full() {
        let policy = Retry { jitter: true, ..POLICY };
        assert_eq!(policy.delay_after(2, &flaky(), 0), Some(0));
        assert_eq!(policy.delay_after(2, &flaky(), u32::MAX), Some(4000));
    }

    #[test]
    fn absurd_factors_are_capped() {
        let policy = Retry {
            max_attempts: u32::MAX,
            backoff_factor: 1e30,
            ..POLICY
        };
        assert_eq!(policy.delay_after(900, &flaky(), 0), Some(MAX_DELAY_MS));
    }

    #[test]
    fn no_delay_stays_no_delay() {
        let policy = Retry {
            max_attempts: u32::MAX,
            base_delay_ms: 0,
            ..POLICY
        };
        assert_eq!(policy.delay_after(5000, &flaky(), 0), Some(0));
    }

    #[test]
    fn the_other_side_may_ask_for_more_patience() {
        let failure = Failure {
            retry_after_ms: Some(9000),
            ..flaky()
        };
        assert_eq!(POLICY.delay_after(1, &failure, 0), Some(9000));
    }
}
