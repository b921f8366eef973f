//! The cached state of a run: what its nodes wrote, as of a position of the completion order. It is stored when the run leaves
//! memory and spares reading the outputs that it was made of.
//!
//! What must stay true:
//! * It is only a copy. The completion order is never changed, only extended, so a copy never becomes wrong; without it, or if it
//!   cannot be read, the outputs are read.
//! * An open node sees an earlier position than the newest one. So each member keeps all values since the earliest position that an
//!   open node sees, and the last one before.

use super::Writers;
use fermata_core::NodeIx;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The number of outputs from which on a cached state is written, and read.
pub(crate) const WORTH_CACHING: usize = 8;

/// What nodes wrote into the state of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CachedState {
    /// The earliest position that can be read.
    from: u32,
    /// It knows the first `up_to` nodes of the completion order.
    up_to: u32,
    /// How many of these nodes wrote the state.
    writers: u32,
    /// For each member: the positions of its writers in the completion order, and what they wrote. Sorted.
    members: BTreeMap<String, Vec<(u32, Value)>>,
}

impl CachedState {
    /// The state as of the position `up_to`, of an older copy and of the outputs that are in memory. Together they must know all
    /// of the `count` nodes that wrote it.
    pub fn build<'a>(
        (from, up_to): (u32, u32),
        count: usize,
        older: Option<&CachedState>,
        writers: &Writers,
        written: impl Fn(NodeIx, &str) -> Option<&'a Value>,
    ) -> CachedState {
        let mut members: BTreeMap<String, Vec<(u32, Value)>> =
            older.map(|older| older.members.clone()).unwrap_or_default();
        for (name, orders) in writers.by_member.iter() {
            let values = members.entry(name.clone()).or_default();
            for (order, ix) in orders.iter().filter(|(order, _)| *order < up_to) {
                if let (Err(at), Some(value)) = (
                    values.binary_search_by_key(order, |(order, _)| *order),
                    written(*ix, name),
                ) {
                    values.insert(at, (*order, value.clone()));
                }
            }
        }
        for values in members.values_mut() {
            let unread = values.partition_point(|(order, _)| *order < from).saturating_sub(1);
            values.drain(..unread);
        }
        members.retain(|_, values| !values.is_empty());
        CachedState {
            from,
            up_to,
            writers: count as u32,
            members,
        }
    }

    /// Whether the state as of a position can be read without the output of the node that ended at `order`.
    pub fn covers(&self, order: u32, sees: u32) -> bool {
        sees >= self.from && order < self.up_to
    }

    /// The position in the completion order up to which it knows all nodes.
    pub fn up_to(&self) -> u32 {
        self.up_to
    }

    /// How many of the nodes that wrote the state as of a position need not be read, the first ones; `None` if it cannot be
    /// used for this position.
    pub fn covered(&self, sees: u32) -> Option<usize> {
        match sees {
            sees if sees < self.from => None,
            sees if sees < self.up_to => Some(usize::MAX),
            _ => Some(self.writers as usize),
        }
    }

    /// The value of a member as of a position, with the position of its writer.
    pub fn of(&self, member: &str, sees: u32) -> Option<(u32, &Value)> {
        last(self.members.get(member)?, sees)
    }

    /// All members as of a position.
    pub fn all(&self, sees: u32) -> impl Iterator<Item = (&str, &Value)> {
        let members = self.members.iter();
        members.filter_map(move |(name, values)| Some((name.as_str(), last(values, sees)?.1)))
    }
}

fn last(values: &[(u32, Value)], sees: u32) -> Option<(u32, &Value)> {
    let visible = values.partition_point(|(order, _)| *order < sees);
    values[..visible].last().map(|(order, value)| (*order, value))
}
