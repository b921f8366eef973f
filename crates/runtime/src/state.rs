//! The state of a run: the trigger, overwritten with the members of the outputs of the nodes that merge into it, in the order
//! in which they ended. It is derived from the recorded outputs. A copy may be stored (`cached.rs`), which only spares reading them.
//!
//! For each member there is a list of its writers by completion order. A node sees the state as of a position in that order
//! with one search per member that it reads, so a long chain of nodes does not copy the state for each node.

pub(crate) mod cached;

use fermata_core::{NodeIx, Plan, Run};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Which node wrote which member, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writers {
    /// For each member: the position of the writer in the completion order, and the writer. Sorted.
    by_member: Arc<BTreeMap<String, Vec<(u32, NodeIx)>>>,
}

impl Writers {
    /// Adds the members of the output of a node, which ended at position `order`. Adding it again changes nothing.
    pub fn learn(&mut self, order: u32, ix: NodeIx, output: &Value) {
        let Some(members) = output.as_object().filter(|members| !members.is_empty()) else {
            return;
        };
        let by_member = Arc::make_mut(&mut self.by_member);
        for name in members.keys() {
            if !by_member.contains_key(name) {
                by_member.insert(name.clone(), Vec::new());
            }
            if let Some(writers) = by_member.get_mut(name)
                && let Err(at) = writers.binary_search(&(order, ix))
            {
                writers.insert(at, (order, ix));
            }
        }
    }

    pub fn forget(&mut self) {
        self.by_member = Arc::default();
    }

    /// The node that wrote the member last, among the first `sees` nodes of the completion order, and its position there.
    pub fn of(&self, member: &str, sees: u32) -> Option<(u32, NodeIx)> {
        last(self.by_member.get(member)?, sees)
    }

    /// All members that the first `sees` nodes of the completion order wrote, with their last writers and the positions of these.
    pub fn all(&self, sees: u32) -> impl Iterator<Item = (&str, (u32, NodeIx))> {
        let members = self.by_member.iter();
        members.filter_map(move |(name, writers)| Some((name.as_str(), last(writers, sees)?)))
    }
}

fn last(writers: &[(u32, NodeIx)], sees: u32) -> Option<(u32, NodeIx)> {
    let visible = writers.partition_point(|(order, _)| *order < sees);
    writers[..visible].last().copied()
}

/// The nodes that wrote the state, among the first `sees` nodes of the completion order.
pub(crate) fn merged_nodes(run: &Run, sees: u32) -> impl Iterator<Item = NodeIx> + '_ {
    let ended = run.completed().iter().copied().take(sees as usize);
    ended.filter(|ix| run.plan().node(*ix).merges_into_state && run.succeeded(*ix))
}

/// The nodes that wrote the state as of a position, short enough to be stored with each request: the nodes of the plan that merge
/// into the state are numbered, and the numbers are in completion order, as ranges. A chain of nodes is one range.
pub(crate) fn writer_ranges(run: &Run, sees: u32) -> Vec<[u32; 2]> {
    let merging = merging(run.plan());
    let mut ranges: Vec<[u32; 2]> = Vec::new();
    for ix in merged_nodes(run, sees) {
        let Ok(number) = merging.binary_search(&ix) else {
            continue;
        };
        let number = number as u32;
        match ranges.last_mut() {
            Some(last) if last[1] + 1 == number => last[1] = number,
            _ => ranges.push([number, number]),
        }
    }
    ranges
}

/// The nodes of these ranges, in completion order.
pub(crate) fn writers_of(plan: &Plan, ranges: &[[u32; 2]]) -> Vec<NodeIx> {
    let merging = merging(plan);
    let range = |[first, last]: &[u32; 2]| {
        let end = (*last as usize + 1).min(merging.len());
        merging.get(*first as usize..end).unwrap_or_default()
    };
    ranges.iter().flat_map(range).copied().collect()
}

fn merging(plan: &Plan) -> Vec<NodeIx> {
    plan.indices().filter(|ix| plan.node(*ix).merges_into_state).collect()
}

#[cfg(test)]
mod tests;
