//! Rate limits of this process: so many events per minute and key, with a burst.
//!
//! Each key has a bucket that refills steadily (the generic cell rate algorithm: one instant per key says when the bucket is full
//! again). A key that is refused changes nothing, for itself or others.
//!
//! What must stay true: the memory is bounded. Above [`MOST_KEYS`] keys, those whose buckets are fullest are forgotten, which
//! costs at most their last few events.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most keys that are remembered.
const MOST_KEYS: usize = 100_000;

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number per minute.
    pub per_minute: u32,
    /// The number at once.
    pub burst: u32,
}

/// What a key may do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The most events at once.
    pub limit: u32,
    /// How many of them are left.
    pub remaining: u32,
    /// When all of them are back.
    pub reset: Duration,
    /// If the event was refused: when the next one is possible.
    pub retry_after: Option<Duration>,
}

/// Counts the events of keys.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    /// When the bucket of a key is full again.
    full_at: Mutex<HashMap<K, Instant>>,
    most_keys: usize,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// A limiter. A rate of 0 counts as 1.
    pub fn new(rate: Rate) -> RateLimiter<K> {
        RateLimiter {
            rate: Rate {
                per_minute: rate.per_minute.max(1),
                burst: rate.burst.max(1),
            },
            full_at: Mutex::default(),
            most_keys: MOST_KEYS,
        }
    }

    /// Counts an event of `key` at `now`.
    pub fn count<Q>(&self, key: &Q, now: Instant) -> Allowance
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let interval = Duration::from_secs(60) / self.rate.per_minute;
        let whole = interval * self.rate.burst;
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let known = full_at.get(key).copied();
        let missing = known.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let wanted = missing + interval;
        let allowance = |missing: Duration| Allowance {
            limit: self.rate.burst,
            remaining: (whole.saturating_sub(missing).as_nanos() / interval.as_nanos().max(1)) as u32,
            reset: missing,
            retry_after: None,
        };
        if wanted > whole {
            return Allowance {
                retry_after: Some(wanted - whole),
                ..allowance(missing)
            };
        }
        match full_at.get_mut(key) {
            Some(at) => *at = now + wanted,
            None => {
                if full_at.len() >= self.most_keys {
                    forget(&mut full_at, now);
                }
                full_at.insert(key.to_owned(), now + wanted);
            }
        }
        allowance(wanted)
    }
}

/// Removes the keys whose buckets are full, or else the fuller half.
fn forget<K: Eq + Hash>(full_at: &mut HashMap<K, Instant>, now: Instant) {
    let before = full_at.len();
    full_at.retain(|_, at| *at > now);
    if full_at.len() > before / 2 {
        let mut times: Vec<Instant> = full_at.values().copied().collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        full_at.retain(|_, at| *at > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_minute: u32, burst: u32) -> RateLimiter<String> {
        RateLimiter::new(Rate { per_minute, burst })
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let (limiter, start) = (limiter(60, 120), Instant::now());
        for number in 1..=120 {
            let allowance = limiter.count("a", start);
            assert_eq!((allowance.retry_after, allowance.remaining), (None, 120 - number));
        }
        let refused = limiter.count("a", start);
        assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
        assert_eq!(
            (refused.limit, refused.remaining, refused.reset),
            (120, 0, Duration::from_secs(120))
        );
        assert_eq!(
            limiter.count("b", start).retry_after,
            None,
            "other keys are not affected"
        );
        let later = start + Duration::from_secs(1);
        assert_eq!(limiter.count("a", later).retry_after, None);
        assert_eq!(limiter.count("a", later).retry_after, Some(Duration::from_secs(1)));
        let idle = limiter.count("a", start + Duration::from_secs(600));
        assert_eq!((idle.remaining, idle.reset), (119, Duration::from_secs(1)));
    }

    #[test]
    fn refused_events_do_not_count() {
        let (limiter, start) = (limiter(60, 1), Instant::now());
        assert_eq!(limiter.count("a", start).retry_after, None);
        for _ in 0..1000 {
            assert!(limiter.count("a", start).retry_after.is_some());
        }
        assert_eq!(limiter.count("a", start + Duration::from_secs(1)).retry_after, None);
    }

    #[test]
    fn memory_is_bounded_and_busy_keys_are_kept() {
        let mut limiter = limiter(60, 10);
        limiter.most_keys = 100;
        let start = Instant::now();
        while limiter.count("busy", start).retry_after.is_none() {}
        for key in 0..10_000 {
            assert_eq!(limiter.count(&format!("key {key}"), start).retry_after, None);
            assert!(limiter.full_at.lock().unwrap().len() <= 100);
        }
        assert!(limiter.count("busy", start).retry_after.is_some());
    }

    #[test]
    fn extreme_rates_work() {
        let start = Instant::now();
        let fast = limiter(u32::MAX, u32::MAX);
        assert_eq!(fast.count("a", start).retry_after, None);
        let none = limiter(0, 0);
        assert_eq!(none.count("a", start).retry_after, None);
        assert_eq!(none.count("a", start).retry_after, Some(Duration::from_secs(60)));
    }
}
