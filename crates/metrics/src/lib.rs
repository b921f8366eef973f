//! Counters and histograms as atomics, tables of label values, and the text format of Prometheus.
//!
//! What must stay true:
//! * Counting is a few atomic additions: no lock, no allocation, no system call. So it may be used on the hot path.
//! * A table of label values never grows beyond its limit. Further values share the label [`OTHER`].
//! * A histogram is written consistently: its count is the sum of its buckets.

mod labels;
mod text;

pub use labels::{Labels, OTHER};
pub use text::{Kind, Text};

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The upper bounds of a histogram's buckets, in ascending order; one more bucket has no bound.
#[derive(Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The bounds, in the unit that is observed.
    pub bounds: &'static [u64],
    /// How many of that unit make one of the unit that is written: 1,000,000 for microseconds written as seconds.
    pub per_unit: u64,
}

/// Observed values, counted by size.
#[derive(Debug)]
pub struct Histogram {
    buckets: &'static Buckets,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new(buckets: &'static Buckets) -> Histogram {
        Histogram {
            buckets,
            counts: (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let at = self.buckets.bounds.partition_point(|bound| *bound < value);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a duration. The bounds must be in microseconds.
    pub fn observe_time(&self, took: Duration) {
        self.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SIZES: Buckets = Buckets {
        bounds: &[1, 10, 100],
        per_unit: 1,
    };

    #[test]
    fn a_value_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&SIZES);
        for value in [0, 1, 2, 10, 11, 100, 101] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.counts.iter().map(|count| count.load(Relaxed)).collect();
        assert_eq!(counts, [2, 2, 2, 1]);
        assert_eq!((histogram.count(), histogram.sum.load(Relaxed)), (7, 225));
    }
}
