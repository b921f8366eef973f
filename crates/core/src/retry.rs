//! Retry policies: the number of attempts and the delays between them.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// A retry policy without optional fields.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The number of attempts, including the first. Zero means one.
    pub max_attempts: u32,
    /// The delay before the second attempt.
    pub base_delay_ms: u64,
    /// Each further delay is multiplied by this factor.
    pub backoff_factor: f64,
    /// Whether the delay is random between zero and the computed delay (full jitter).
    pub jitter: bool,
}

/// The longest delay: 30 days.
const MAX_DELAY_MS: u64 = 30 * 24 * 60 * 60 * 1000;

impl Retry {
    /// One attempt, no retries.
    pub const NEVER: Retry = Retry {
        max_attempts: 1,
        base_delay_ms: 0,
        backoff_factor: 1.0,
        jitter: false,
    };

    /// The delay after attempt number `attempt` failed with `failure`, or `None` if it is not retried.
    /// `jitter` is a random number, used as a fraction of `u32::MAX`.
    pub fn delay_after(&self, attempt: u32, failure: &Failure, jitter: u32) -> Option<u64> {
        if !failure.retriable || attempt >= self.max_attempts.max(1) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        // The factor is capped first, because 0 times infinity is not a number.
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
    fn permanent_failures_are_not_retried() {
        assert_eq!(POLICY.delay_after(1, &Failure::permanent("X", "x"), 0), None);
    }

    #[test]
    fn jitter_spans_zero_to_full() {
        let policy = Retry { jitter: true, ..POLICY };
        assert_eq!(policy.delay_after(2, &flaky(), 0), Some(0));
        assert_eq!(policy.delay_after(2, &flaky(), u32::MAX), Some(4000));
    }

    #[test]
    fn huge_factors_are_capped() {
        let policy = Retry {
            max_attempts: u32::MAX,
            backoff_factor: 1e30,
            ..POLICY
        };
        assert_eq!(policy.delay_after(900, &flaky(), 0), Some(MAX_DELAY_MS));
    }

    #[test]
    fn zero_base_delay_stays_zero() {
        let policy = Retry {
            max_attempts: u32::MAX,
            base_delay_ms: 0,
            ..POLICY
        };
        assert_eq!(policy.delay_after(5000, &flaky(), 0), Some(0));
    }

    #[test]
    fn retry_after_extends_the_delay() {
        let failure = Failure {
            retry_after_ms: Some(9000),
            ..flaky()
        };
        assert_eq!(POLICY.delay_after(1, &failure, 0), Some(9000));
    }
}
