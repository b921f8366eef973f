//! Child runs in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    children::{AwaitedChild, ChildStore, EndedChild, NodeAttempt},
};
use async_trait::async_trait;
use fermata_core::RunId;
use std::ops::Bound;
use uuid::Uuid;

#[async_trait]
impl ChildStore for MemoryStore {
    async fn ended_children(&self, parent: RunId, limit: u32) -> Result<Vec<EndedChild>> {
        self.with(|state| {
            let ended = state.ended_of(parent).take(limit as usize);
            ended
                .filter_map(|child| state.ended_child(child))
                .map(without_item_outputs)
                .collect()
        })
    }

    async fn awaited_children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Vec<AwaitedChild>> {
        self.with(|state| {
            let awaited = state.ids_of_children(parent, after).filter(|child| {
                let entry = state.runs.get(child);
                entry.is_some_and(|entry| entry.is_awaited() && entry.ended_at.is_none())
            });
            let awaited = awaited.filter_map(|child| {
                let parent = state.runs.get(&child)?.new.parent.clone()?;
                Some(AwaitedChild {
                    run: child,
                    node: parent.node?,
                    attempt: parent.attempt,
                    item: parent.item,
                })
            });
            awaited.take(limit as usize).collect()
        })
    }

    async fn item_results(&self, of: &NodeAttempt, after: Option<RunId>, limit: u32) -> Result<Vec<EndedChild>> {
        self.with(|state| {
            let children = state
                .ids_of_children(of.run, after)
                .filter_map(|child| state.ended_child(child));
            let items =
                children.filter(|child| child.item.is_some() && child.node == of.node && child.attempt == of.attempt);
            items.take(limit as usize).collect()
        })
    }

    async fn parents_of_ended_children(&self, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>> {
        self.with(|state| {
            let mut parents = Vec::new();
            let mut after = after.map(|after| (after, RunId(Uuid::max())));
            while parents.len() < limit as usize {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let Some((parent, _)) = state.ended_children.range((from, Bound::Unbounded)).next() else {
                    break;
                };
                parents.push(*parent);
                after = Some((*parent, RunId(Uuid::max())));
            }
            parents
        })
    }
}

fn without_item_outputs(child: EndedChild) -> EndedChild {
    EndedChild {
        outputs: child.outputs.filter(|_| child.item.is_none()),
        ..child
    }
}

impl State {
    /// The children of a run, by id, after `after`.
    fn ids_of_children(&self, parent: RunId, after: Option<RunId>) -> impl Iterator<Item = RunId> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let children = self.children.get(&parent).into_iter();
        children
            .flat_map(move |children| children.range((after, Bound::Unbounded)))
            .copied()
    }

    fn ended_of(&self, parent: RunId) -> impl Iterator<Item = RunId> {
        let range = (parent, RunId(Uuid::nil()))..=(parent, RunId(Uuid::max()));
        self.ended_children.range(range).map(|(_, child)| *child)
    }

    fn ended_child(&self, child: RunId) -> Option<EndedChild> {
        let record = self.runs.get(&child)?.record();
        let parent = self.runs.get(&child)?.new.parent.clone()?;
        Some(EndedChild {
            run: child,
            node: parent.node?,
            attempt: parent.attempt,
            item: parent.item,
            status: record.status,
            outputs: record.outputs,
            error: record.error,
        })
    }

    /// Removes the mark of a child whose end its parent has seen.
    pub(super) fn see_child(&mut self, child: RunId) {
        let entry = self.runs.get_mut(&child);
        if let Some(parent) = entry.and_then(|entry| entry.new.parent.as_mut()) {
            parent.waits = false;
            let parent = parent.run;
            self.ended_children.remove(&(parent, child));
        }
    }

    /// Removes the marks of all ended children of a run that is over.
    pub(super) fn forget_ended(&mut self, parent: RunId) {
        let ended: Vec<RunId> = self.ended_of(parent).collect();
        ended.into_iter().for_each(|child| self.see_child(child));
    }
}
