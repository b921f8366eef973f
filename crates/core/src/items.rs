//! A node that runs one child for each item of a list: what its plan says, and which items have ended.
//!
//! Children start in the order of the items, and at most [`Each::max_concurrency`] of them have not ended. So the children that
//! may be running are always the first items that have not ended ([`Items::next`]), live and after a crash, and the journal
//! does not record starts.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// How a node runs one child for each item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Each {
    /// The list: a template.
    pub items: String,
    /// How many children have started and not ended at any time.
    pub max_concurrency: u32,
    /// The most items of the list.
    pub max_items: u32,
    /// What happens when a child fails.
    #[serde(default)]
    pub on_item_failure: OnItemFailure,
}

/// What happens when the child of an item fails, is cancelled or cannot start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnItemFailure {
    /// The node fails, and its other children are cancelled.
    #[default]
    Fail,
    /// The other items continue, and the node succeeds.
    Continue,
}

/// A set of items, as ranges `[first, last]` in order. Neighbouring ranges are joined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// The number of items.
    pub fn len(&self) -> u32 {
        let len = |(first, last): &(u32, u32)| last.saturating_sub(*first).saturating_add(1);
        self.0.iter().map(len).fold(0, u32::saturating_add)
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has this item.
    pub fn contains(&self, item: u32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < item);
        self.0.get(at).is_some_and(|(first, _)| *first <= item)
    }

    /// Adds an item.
    pub fn insert(&mut self, item: u32) {
        if self.contains(item) {
            return;
        }
        let at = self.0.partition_point(|(_, last)| *last < item);
        let joins_previous = at > 0 && self.0[at - 1].1 + 1 == item;
        let joins_next = self.0.get(at).is_some_and(|(first, _)| item + 1 == *first);
        match (joins_previous, joins_next) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = item,
            (false, true) => self.0[at].0 = item,
            (false, false) => self.0.insert(at, (item, item)),
        }
    }

    /// All items, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether the ranges are in order, apart from each other, and below `count`.
    fn is_valid(&self, count: u32) -> bool {
        let ordered = self.0.iter().all(|(first, last)| first <= last && *last < count);
        ordered && self.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0)
    }

    fn overlaps(&self, other: &Ranges) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| {
            let at = other.0.partition_point(|(_, end)| end < first);
            other.0.get(at).is_some_and(|(start, _)| start <= last)
        })
    }

    fn extend(&mut self, other: &Ranges) {
        other.iter().for_each(|item| self.insert(item));
    }
}

impl FromIterator<u32> for Ranges {
    fn from_iter<T: IntoIterator<Item = u32>>(items: T) -> Ranges {
        let mut ranges = Ranges::default();
        items.into_iter().for_each(|item| ranges.insert(item));
        ranges
    }
}

/// Items whose child could not start, for this reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedItems {
    /// The items.
    pub items: Ranges,
    /// Why.
    pub failure: Failure,
}

/// The progress of a node that runs one child for each item of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Items {
    /// The number of items.
    pub count: u32,
    /// Items whose child succeeded.
    pub succeeded: Ranges,
    /// Items whose child failed, was cancelled or could not start.
    pub failed: Ranges,
    /// Those that could not start.
    pub refused: Vec<RefusedItems>,
}

impl Items {
    /// No item has ended.
    pub fn new(count: u32) -> Items {
        Items {
            count,
            succeeded: Ranges::default(),
            failed: Ranges::default(),
            refused: Vec::new(),
        }
    }

    /// Whether an item has ended.
    pub fn has_ended(&self, item: u32) -> bool {
        self.succeeded.contains(item) || self.failed.contains(item)
    }

    /// Whether all items have ended.
    pub fn is_complete(&self) -> bool {
        self.succeeded.len() + self.failed.len() == self.count
    }

    /// The first items that have not ended: those whose children run or must start.
    pub fn next(&self, limit: u32) -> Vec<u32> {
        let mut next = Vec::new();
        let mut item = 0;
        let (mut succeeded, mut failed) = (self.succeeded.0.iter().peekable(), self.failed.0.iter().peekable());
        while item < self.count && next.len() < limit as usize {
            let skips = [&mut succeeded, &mut failed].into_iter().find_map(|ranges| {
                while ranges.next_if(|(_, last)| *last < item).is_some() {}
                ranges
                    .peek()
                    .filter(|(first, _)| *first <= item)
                    .map(|(_, last)| last + 1)
            });
            match skips {
                Some(after) => item = after,
                None => {
                    next.push(item);
                    item += 1;
                }
            }
        }
        next
    }

    /// Whether these items exist and have not ended, and none is in both sets.
    pub(crate) fn accepts(&self, succeeded: &Ranges, failed: &Ranges) -> bool {
        let is_new = |items: &Ranges| {
            items.is_valid(self.count) && !items.overlaps(&self.succeeded) && !items.overlaps(&self.failed)
        };
        let any = !succeeded.is_empty() || !failed.is_empty();
        any && is_new(succeeded) && is_new(failed) && !succeeded.overlaps(failed)
    }

    pub(crate) fn end(&mut self, succeeded: &Ranges, failed: &Ranges, refused: &[RefusedItems]) {
        self.succeeded.extend(succeeded);
        self.failed.extend(failed);
        for more in refused {
            match self.refused.iter_mut().find(|known| known.failure == more.failure) {
                Some(known) => known.items.extend(&more.items),
                None => self.refused.push(more.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbouring_ranges_are_joined() {
        let ranges: Ranges = [5, 1, 0, 6, 2, 9, 4, 3].into_iter().collect();
        assert_eq!(ranges.ranges(), [(0, 6), (9, 9)]);
        assert_eq!(serde_json::to_string(&ranges).unwrap(), "[[0,6],[9,9]]");
    }

    #[test]
    fn items_that_ended_before_or_do_not_exist_are_not_accepted() {
        let of = |items: &[u32]| items.iter().copied().collect::<Ranges>();
        let mut items = Items::new(5);
        items.end(&of(&[0, 1]), &of(&[3]), &[]);
        for (succeeded, failed, fits) in [
            (of(&[2]), of(&[4]), true),
            (of(&[]), of(&[2, 4]), true),
            (of(&[1, 2]), of(&[]), false),
            (of(&[3]), of(&[]), false),
            (of(&[]), of(&[0]), false),
            (of(&[2]), of(&[2]), false),
            (of(&[5]), of(&[]), false),
            (of(&[]), of(&[]), false),
            (Ranges(vec![(4, 2)]), of(&[]), false),
            (Ranges(vec![(4, 4), (2, 2)]), of(&[]), false),
        ] {
            assert_eq!(items.accepts(&succeeded, &failed), fits, "{succeeded:?}, {failed:?}");
        }
    }

    proptest! {
        #[test]
        fn ranges_are_a_set(items in prop::collection::vec(0u32..60, 0..80), limit in 0u32..20) {
            let set: BTreeSet<u32> = items.iter().copied().collect();
            let ranges: Ranges = items.iter().copied().collect();
            prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.len() as usize, set.len());
            prop_assert!(ranges.is_valid(60));
            prop_assert!((0..60).all(|item| ranges.contains(item) == set.contains(&item)));
            let (even, odd): (Vec<u32>, Vec<u32>) = set.iter().partition(|item| **item % 2 == 0);
            let items = Items {
                succeeded: even.into_iter().collect(),
                failed: odd.into_iter().collect(),
                ..Items::new(60)
            };
            let open: Vec<u32> = (0..60).filter(|item| !set.contains(item)).take(limit as usize).collect();
            prop_assert_eq!(items.next(limit), open);
            prop_assert_eq!(items.is_complete(), set.len() == 60);
        }
    }
}
