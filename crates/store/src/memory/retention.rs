//! Removing finished runs from memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    retention::{Candidate, EXAMINED, PruneBatch, Pruned, RetentionStore, RunDeletion, Verdict},
};
use async_trait::async_trait;
use fermata_core::RunId;
use std::ops::Bound;

#[async_trait]
impl RetentionStore for MemoryStore {
    async fn prune(&self, batch: PruneBatch) -> Result<Pruned> {
        self.with(|state| state.prune(&batch))
    }

    async fn delete_run(&self, run: RunId) -> Result<RunDeletion> {
        let delete = |state: &mut State| match state.finished_tree(run) {
            Some(tree) if tree.is_empty() => RunDeletion::NotFound,
            Some(_) if state.is_end_needed(run) => RunDeletion::Unfinished,
            Some(tree) => {
                state.remove(&tree, Verdict::Delete);
                RunDeletion::Deleted
            }
            None => RunDeletion::Unfinished,
        };
        self.change(delete, |deletion| *deletion == RunDeletion::Deleted)
    }
}

impl State {
    fn prune(&mut self, batch: &PruneBatch) -> Pruned {
        let Some(end) = batch.retention.first_kept_run(batch.now) else {
            return Pruned::default();
        };
        let after = batch.after.map_or(Bound::Unbounded, Bound::Excluded);
        let runs = self.runs.range((after, Bound::Unbounded));
        let runs = runs.take_while(|(id, _)| **id < end).take(EXAMINED as usize);
        let candidates: Vec<Candidate> = runs
            .map(|(id, entry)| Candidate {
                id: *id,
                workflow_id: entry.new.workflow_id.clone(),
                status: entry.status,
                ended_at: entry.ended_at,
                emptied: entry.new.trigger.is_empty(),
                is_root: entry
                    .new
                    .parent
                    .as_ref()
                    .is_none_or(|parent| !self.runs.contains_key(&parent.run)),
            })
            .collect();
        let (chosen, next) = batch.choose(&candidates);
        let mut pruned = Pruned {
            next,
            ..Pruned::default()
        };
        for (run, verdict) in chosen {
            let Some(tree) = self.finished_tree(run) else { continue };
            pruned.count(verdict, tree.len());
            if !batch.dry_run {
                self.remove(&tree, verdict);
            }
        }
        pruned
    }

    /// Whether a parent that is not over has not seen the end of the run, or reads its outputs later.
    fn is_end_needed(&self, run: RunId) -> bool {
        let parent = self.runs.get(&run).and_then(|entry| entry.new.parent.as_ref());
        let parent = parent.filter(|parent| parent.waits || parent.item.is_some());
        let parent = parent.and_then(|parent| self.runs.get(&parent.run));
        parent.is_some_and(|parent| !parent.status.is_terminal())
    }

    /// A run and all runs below it, or none of them if there is no such run. `None` if one of them has not ended.
    fn finished_tree(&self, run: RunId) -> Option<Vec<RunId>> {
        let mut tree = Vec::new();
        let mut open = vec![run];
        while let Some(run) = open.pop() {
            let Some(entry) = self.runs.get(&run) else { continue };
            if !entry.status.is_terminal() {
                return None;
            }
            tree.push(run);
            open.extend(self.children.get(&run).into_iter().flatten().copied());
        }
        Some(tree)
    }

    fn remove(&mut self, runs: &[RunId], verdict: Verdict) {
        for run in runs {
            let Some(entry) = self.runs.get_mut(run) else { continue };
            for link in &entry.links {
                let key = (
                    link.system.clone(),
                    link.resource_type.clone(),
                    link.resource_id.clone(),
                );
                self.links.remove(&key);
            }
            for wait in &entry.waits {
                self.tokens.remove(&wait.record.token);
                if let Some((item, _)) = &wait.item {
                    self.items.remove(&item.id);
                }
            }
            match verdict {
                Verdict::Keep => {}
                Verdict::Empty => entry.empty(),
                Verdict::Delete => self.forget(*run),
            }
        }
    }

    fn forget(&mut self, run: RunId) {
        let Some(entry) = self.runs.remove(&run) else { return };
        self.children.remove(&run);
        let parent = entry.new.parent.map(|parent| parent.run);
        if let Some(parent) = parent {
            self.ended_children.remove(&(parent, run));
        }
        if let Some(siblings) = parent.and_then(|parent| self.children.get_mut(&parent)) {
            siblings.remove(&run);
        }
        if let Some(runs) = self.by_workflow.get_mut(&entry.new.workflow_uid) {
            runs.remove(&run);
        }
        self.requests.remove(&(entry.new.tenant, entry.new.request_id));
    }
}
