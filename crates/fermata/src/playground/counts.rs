//! Counts requests by name. The oldest names are dropped when there are too many.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

/// Things that are remembered at most.
const MOST: usize = 10_000;

/// Counts by name.
#[derive(Default)]
pub struct Counts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counts: HashMap<String, u64>,
    /// Names in the order in which they first came.
    order: VecDeque<String>,
}

impl Counts {
    /// Counts one more; how many there are now.
    pub fn count(&self, name: &str) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = state.counts.get_mut(name) {
            *count += 1;
            return *count;
        }
        if state.order.len() >= MOST
            && let Some(oldest) = state.order.pop_front()
        {
            state.counts.remove(&oldest);
        }
        state.order.push_back(name.to_owned());
        state.counts.insert(name.to_owned(), 1);
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let counts = Counts::default();
        assert_eq!((counts.count("a"), counts.count("a"), counts.count("b")), (1, 2, 1));
        for number in 0..MOST - 1 {
            counts.count(&number.to_string());
        }
        assert_eq!(counts.count("b"), 2, "b is still known");
        assert_eq!(counts.count("a"), 1, "a is not");
    }
}
