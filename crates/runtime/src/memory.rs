//! Memory budgets: how many bytes may be in memory for one purpose at the same time.
//!
//! A budget counts what its users declare; it does not measure the process. docs/operations.md states the resulting bound.
//!
//! What must stay true:
//! * Budgets are checked on entry: before a body is read, a run is claimed, or a service's response is read. What is in memory
//!   already is counted and never waits: a held run's commit needs no budget.
//! * Bytes are released when their [`Share`] is dropped.
//! * A request that is larger than its budget is granted while nothing else is in use, so that none is refused for ever.

use serde_json::Value;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// How many bytes may be in use at the same time.
#[derive(Debug)]
pub struct Budget {
    capacity: u64,
    used: AtomicU64,
    freed: Notify,
}

/// Bytes of a budget that are in use until this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Arc<Budget> {
        Arc::new(Budget {
            capacity,
            used: AtomicU64::new(0),
            freed: Notify::new(),
        })
    }

    /// How many bytes are free.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes bytes if they are free.
    pub fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        self.add_if_free(bytes).then(|| Share {
            budget: self.clone(),
            bytes,
        })
    }

    /// Takes bytes, waiting until they are free.
    pub async fn take(self: &Arc<Self>, bytes: u64) -> Share {
        loop {
            let freed = self.freed.notified();
            if let Some(share) = self.try_take(bytes) {
                return share;
            }
            freed.await;
        }
    }

    /// Counts bytes that are in memory already, whether or not they were free.
    pub fn count(self: &Arc<Self>, bytes: u64) -> Share {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Share {
            budget: self.clone(),
            bytes,
        }
    }

    fn add_if_free(&self, bytes: u64) -> bool {
        let fits = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (sum <= self.capacity || used == 0).then_some(sum)
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.freed.notify_waiters();
        }
    }
}

impl Share {
    /// How many bytes these are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes if they are free, or if nothing else is in use.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let alone = self.budget.used.load(Ordering::Relaxed) == self.bytes;
        let grown = self.budget.add_if_free(bytes);
        if !grown && alone {
            self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        }
        if grown || alone {
            self.bytes += bytes;
        }
        grown || alone
    }

    /// Counts more bytes that are in memory already.
    pub fn grow(&mut self, bytes: u64) {
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Releases all but `bytes` bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.budget.give_back(less);
    }

    /// Whether the budget is used up.
    pub fn is_scarce(&self) -> bool {
        self.budget.free() == 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Memory that an attempt reserves. It stays counted until the result of the attempt is recorded.
#[derive(Debug, Clone, Default)]
pub struct Reserved {
    budget: Option<Arc<Budget>>,
    share: Arc<Mutex<Option<Share>>>,
}

impl Reserved {
    /// An empty reservation of this budget.
    pub fn of(budget: &Arc<Budget>) -> Reserved {
        Reserved {
            budget: Some(budget.clone()),
            share: Arc::default(),
        }
    }

    /// Reserves bytes, waiting until they are free. Call this before they are in memory.
    pub async fn reserve(&self, bytes: u64) {
        if let Some(budget) = &self.budget {
            let share = budget.take(bytes).await;
            *self.share.lock().unwrap_or_else(PoisonError::into_inner) = Some(share);
        }
    }

    /// Releases bytes that are not needed.
    pub fn shrink_to(&self, bytes: u64) {
        if let Some(share) = &mut *self.share.lock().unwrap_or_else(PoisonError::into_inner) {
            share.shrink_to(bytes);
        }
    }
}

/// About the memory of an array element beside its text, with the capacity that arrays keep for more.
const ITEM: u64 = 72;
/// About the memory of an object member beside the texts of its name and value.
const MEMBER: u64 = 128;

/// About how many bytes a value takes in memory.
pub fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity() as u64,
        Value::Array(items) => items.iter().map(|item| ITEM + size(item)).sum(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| MEMBER + name.len() as u64 + size(value))
                .sum()
        }
    }
}

/// About how many bytes this JSON text takes as a value, without parsing it.
pub fn parsed_size(json: &[u8]) -> u64 {
    let (mut items, mut members, mut quoted, mut escaped) = (0, 0, false, false);
    for byte in json {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b',' | b'[') => items += 1,
            (false, b':') => members += 1,
            _ => {}
        }
    }
    json.len() as u64 + items * ITEM + members * MEMBER
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;

    #[test]
    fn bytes_are_taken_while_free_and_released_on_drop() {
        let budget = Budget::new(100);
        let mut first = budget.try_take(60).unwrap();
        assert!(budget.try_take(41).is_none());
        let second = budget.try_take(40).unwrap();
        assert_eq!(budget.free(), 0);
        assert!(!first.try_grow(1));
        first.grow(30);
        assert!(first.is_scarce());
        drop(second);
        assert_eq!(budget.free(), 10);
        first.shrink_to(20);
        assert_eq!(budget.free(), 80);
        assert!(first.try_grow(500), "a single user may exceed the budget");
        assert_eq!(budget.free(), 0);
        drop(first);
        assert_eq!(budget.free(), 100);
        assert!(budget.try_take(1000).is_some(), "a single user may exceed the budget");
        assert_eq!(budget.count(10).bytes, 10);
        assert_eq!(budget.free(), 100);
    }

    #[tokio::test]
    async fn waiter_gets_released_bytes() {
        let budget = Budget::new(100);
        let held = budget.take(80).await;
        let mut waiting = std::pin::pin!(budget.take(50));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        drop(waiting.await);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn parsed_size_is_at_least_the_size_of_the_value() {
        for value in [
            json!(null),
            json!("a, [b]: \" \\"),
            json!([1, [2, []], {}]),
            json!({ "a": 1, "b": { "c": [true, null] } }),
            json!(vec![0; 1000]),
        ] {
            let text = value.to_string();
            assert!(parsed_size(text.as_bytes()) >= size(&value), "{text}");
        }
        let text = json!("x,".repeat(1000)).to_string();
        assert_eq!(
            parsed_size(text.as_bytes()),
            text.len() as u64,
            "quoted text has no structure"
        );
    }
}
