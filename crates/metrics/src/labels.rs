//! A table of label values: bounded, append-only, read without a lock.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The label of all values beyond the limit of a table.
pub const OTHER: &str = "other";

/// A value and what it is counted by.
type Entry<T> = (Box<str>, Arc<T>);

/// One `T` for each label value, for at most `limit` values.
pub struct Labels<T> {
    /// Open addressing with linear probing. More than half of the places stay empty, so a search ends soon.
    places: Box<[OnceLock<Entry<T>>]>,
    used: AtomicUsize,
    limit: usize,
    other: Arc<T>,
    make: fn() -> T,
}

impl<T> Labels<T> {
    /// A table for at most `limit` values, each counted by what `make` returns.
    pub fn new(limit: usize, make: fn() -> T) -> Labels<T> {
        let size = (limit * 2 + 1).next_power_of_two();
        Labels {
            places: (0..size).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            limit,
            other: Arc::new(make()),
            make,
        }
    }

    /// A table for these values only.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a str>, make: fn() -> T) -> Labels<T> {
        let values: Vec<&str> = values.into_iter().collect();
        let table = Labels::new(values.len(), make);
        for value in values {
            table.find(value);
        }
        table
    }

    /// The entry of a value, or the entry of [`OTHER`] if the table is full.
    pub fn get(&self, value: &str) -> &Arc<T> {
        self.find(value).map_or(&self.other, |(_, entry)| entry)
    }

    /// The label of a value: the value itself, or [`OTHER`] if the table is full.
    pub fn label(&self, value: &str) -> &str {
        self.find(value).map_or(OTHER, |(label, _)| label)
    }

    fn find(&self, value: &str) -> Option<&Entry<T>> {
        if value == OTHER {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let mut at = hasher.finish() as usize & mask;
        loop {
            let entry = match self.places[at].get() {
                Some(entry) => entry,
                None => self.add(at, value)?,
            };
            if *entry.0 == *value {
                return Some(entry);
            }
            at = (at + 1) & mask;
        }
    }

    /// Fills an empty place, unless the table is full. Another thread may fill it first, with another value.
    fn add(&self, at: usize, value: &str) -> Option<&Entry<T>> {
        let room = |used: usize| (used < self.limit).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, room).ok()?;
        let mut filled = false;
        let entry = self.places[at].get_or_init(|| {
            filled = true;
            (value.into(), Arc::new((self.make)()))
        });
        if !filled {
            self.used.fetch_sub(1, Relaxed);
        }
        Some(entry)
    }

    /// All values with their entries, sorted; [`OTHER`] is the last one.
    pub fn all(&self) -> Vec<(&str, &T)> {
        let entries = self.places.iter().filter_map(OnceLock::get);
        let mut all: Vec<(&str, &T)> = entries.map(|(value, entry)| (&**value, &**entry)).collect();
        all.sort_by_key(|(value, _)| *value);
        all.push((OTHER, &self.other));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;

    #[test]
    fn values_beyond_the_limit_share_one_entry() {
        let table = Labels::new(3, Counter::default);
        for round in 1..=2 {
            for value in 0..1000 {
                table.get(&format!("value-{value}")).inc();
            }
            let all: Vec<(&str, u64)> = table.all().iter().map(|(value, n)| (*value, n.get())).collect();
            let kept = ["value-0", "value-1", "value-2"].map(|value| (value, round));
            assert_eq!(all, [&kept[..], &[(OTHER, 997 * round)]].concat());
        }
        table.get(OTHER).inc();
        assert_eq!(table.all().len(), 4, "`other` needs no place");
    }

    #[test]
    fn table_of_fixed_values_takes_no_others() {
        let table = Labels::of(["a", "b"], Counter::default);
        table.get("a").inc();
        table.get("c").inc();
        let all: Vec<(&str, u64)> = table.all().iter().map(|(value, n)| (*value, n.get())).collect();
        assert_eq!(all, [("a", 1), ("b", 0), (OTHER, 1)]);
    }

    #[test]
    fn concurrent_additions_lose_nothing() {
        let table = Labels::new(64, Counter::default);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..1000 {
                        table.get(&format!("value-{}", round % 50)).inc();
                    }
                });
            }
        });
        let all = table.all();
        assert_eq!(all.len(), 51);
        assert_eq!(all.iter().map(|(_, n)| n.get()).sum::<u64>(), 4000);
        assert_eq!(table.used.load(Relaxed), 50);
    }
}
