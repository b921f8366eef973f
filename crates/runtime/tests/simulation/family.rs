//! The promises across parents, children and state.
//!
//! * One attempt of a node has one child, or one for each item of its list, and the node ends as they did.
//! * A child starts with the state that its node saw, unless it has a trigger of its own.
//! * The state is the trigger, overwritten with what nodes that merge into it gave, in the order in which they ended.
//!
//! That a parent ends only after the cancels of its children is checked at each end (`world.rs`).

use super::{Checked, Story};
use crate::world::World;
use fermata_core::{Kind, NodeId, Outcome, Phase, Status};
use fermata_store::runs::AttemptStatus;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What an attempt must have seen.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) from: Value,
    pub(super) state: Map<String, Value>,
}

/// One attempt of a node has one child, or one for each item, and the node ended as its children did.
pub(super) fn children_ended_their_nodes(world: &World) -> Checked {
    let inner = world.lock();
    let mut seen = BTreeSet::new();
    for child in inner.runs.values() {
        let Some(by) = &child.parent else {
            continue;
        };
        let (node, attempt, parent) = (&by.node, by.attempt, inner.short(by.run));
        ensure!(
            seen.insert((by.run, node.clone(), attempt, by.item)),
            "attempt {attempt} of {node} of {parent} has two children for {:?}",
            by.item
        );
        let parent_run = &inner.runs[&by.run].run;
        let ix = parent_run.plan().find(node.as_str()).ok_or("a child of no node")?;
        let Phase::Finished {
            outcome: Outcome::Succeeded(_),
            attempt: last,
            ..
        } = &parent_run.node(ix).phase
        else {
            continue;
        };
        if !by.awaited || *last != attempt {
            continue;
        }
        let succeeded = child.status() == Status::Succeeded;
        let fits = match (by.item, &parent_run.node(ix).items) {
            (None, _) => succeeded,
            (Some(_), None) => false,
            (Some(item), Some(items)) if succeeded => items.succeeded.contains(item) && !items.failed.contains(item),
            (Some(item), Some(items)) => items.failed.contains(item) && !items.succeeded.contains(item),
        };
        ensure!(
            fits,
            "{node} of {parent} succeeded, but its child {:?} is {}",
            by.item,
            child.status()
        );
    }
    Ok(())
}

impl Story<'_> {
    /// The members that these nodes wrote into the state, in completion order.
    pub(super) fn written<'n>(&self, completed: impl Iterator<Item = &'n NodeId>) -> Map<String, Value> {
        let mut written = Map::new();
        for id in completed {
            let merges = self.plan().find(id.as_str());
            let merges = merges.is_some_and(|ix| self.plan().node(ix).merges_into_state);
            let mut rows = self.rows.iter().filter(|row| merges && row.node == *id);
            let succeeded = rows.find(|row| row.status == AttemptStatus::Succeeded);
            let outputs = succeeded.and_then(|row| row.outputs.as_deref());
            if let Some(Ok(Value::Object(members))) = outputs.map(serde_json::from_str) {
                written.extend(members);
            }
        }
        written
    }

    /// The state after these nodes ended.
    pub(super) fn state(&self, completed: &[&NodeId]) -> Map<String, Value> {
        let mut state = match serde_json::from_str(&self.tracked.trigger) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        state.extend(self.written(completed.iter().copied()));
        state
    }

    /// Children without a trigger of their own got the state as their node saw it; those of items also their item.
    pub(super) fn children_got_the_state(&self, seen: &BTreeMap<(&NodeId, u32), Seen>) -> Checked {
        for (by, trigger) in &self.children {
            let ix = self.plan().find(by.node.as_str()).ok_or("a child of no node")?;
            let (Kind::Action { parameters, .. } | Kind::Request { parameters, .. }) = &self.plan().node(ix).kind
            else {
                return Err(format!("{} cannot start children", by.node));
            };
            let seen = seen.get(&(&by.node, by.attempt)).cloned().unwrap_or_default();
            let mut expected = match parameters.get("trigger") {
                Some(Value::Object(given)) => given.clone(),
                _ => seen.state,
            };
            if let Some(item) = by.item {
                expected.insert("item".to_owned(), self.item(item));
                expected.insert("index".to_owned(), item.into());
            }
            let given: Option<Value> = serde_json::from_str(trigger).ok();
            ensure!(
                given == Some(Value::Object(expected.clone())),
                "the child of {} {} {:?} got {trigger}, not {expected:?}",
                by.node,
                by.attempt,
                by.item
            );
        }
        Ok(())
    }

    fn item(&self, item: u32) -> Value {
        let trigger: Value = serde_json::from_str(&self.tracked.trigger).unwrap_or_default();
        trigger["items"].get(item as usize).cloned().unwrap_or_default()
    }
}
