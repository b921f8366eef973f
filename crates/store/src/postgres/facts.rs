//! The data that a batch needs for its decisions. It is read while the rows that the batch may change are locked.

use super::work::Work;
use crate::{
    flow::{
        RunFlow,
        rules::{KeyRows, keys_at_end},
    },
    rules::{ExistingRun, ItemFacts, ParentFacts, RunFacts, WorkflowFacts},
};
use fermata_core::{RunId, Status};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// An external resource: system, type, id.
pub(super) type Resource = (String, String, String);

/// The run that a resource is linked to, and the first run of its chain of reruns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) run: RunId,
    pub(super) root: RunId,
}

/// The data for the checks of a batch.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The workflows of new runs; `None` for a deleted workflow.
    pub(super) workflows: HashMap<Uuid, Option<WorkflowFacts>>,
    /// Existing runs with a (tenant, requestId) of the batch.
    pub(super) requests: HashMap<(String, String), ExistingRun>,
    pub(super) runs: HashMap<RunId, RunRow>,
    /// The parents of new runs that name a lease of their parent, and the runs that new runs repeat.
    pub(super) parents: HashMap<RunId, ParentFacts>,
    /// Runs with an unread message about ended children.
    pub(super) unread_ends: HashSet<RunId>,
    /// Existing workflows and runs that another transaction has locked.
    pub(super) locked_workflows: HashSet<Uuid>,
    pub(super) locked_runs: HashSet<RunId>,
    pub(super) locked_keys: HashSet<String>,
    /// The last sequence number in the journals of committing runs.
    pub(super) last_seqs: HashMap<RunId, u32>,
    /// The runs to which resources are already linked.
    pub(super) owners: HashMap<Resource, Owner>,
    /// Waits to be closed that have an answer which their run has not read yet.
    pub(super) answered: HashSet<(RunId, String)>,
    /// Open tokens.
    pub(super) open_tokens: HashMap<String, ItemFacts>,
    /// The rows of keys that are locked for this batch.
    pub(super) keys: KeyRows,
    /// The status of runs that own keys.
    pub(super) owner_statuses: HashMap<RunId, Status>,
}

impl Facts {
    /// Whether another transaction has locked the row that this work needs.
    pub(super) fn is_locked(&self, work: &Work) -> bool {
        match work {
            Work::Enqueue { run, .. } => {
                let parent = work.needed_run();
                self.locked_workflows.contains(&run.workflow_uid)
                    || parent.is_some_and(|parent| self.locked_runs.contains(&parent))
            }
            Work::Admit(admit) => {
                self.locked_workflows.contains(&admit.workflow) || self.locked_runs.contains(&admit.run)
            }
            _ => self.locked_runs.contains(&work.run()),
        }
    }

    /// Finds the keys that another batch has locked: their rows exist, and they were not locked for this batch.
    pub(super) fn find_locked_keys(&mut self, batch: &[&Work]) {
        let mut locked = HashSet::new();
        for work in batch.iter().filter(|work| !self.is_locked(work)) {
            let missing = self
                .keys_of(work)
                .into_iter()
                .filter(|key| !self.keys.contains_key(*key));
            locked.extend(missing.map(str::to_owned));
        }
        self.locked_keys = locked;
    }

    /// The keys whose rows this work needs.
    pub(super) fn keys_of<'a>(&'a self, work: &'a Work) -> Vec<&'a str> {
        let stored = || self.runs.get(&work.run()).and_then(|row| row.flow.as_deref());
        match work {
            Work::Enqueue { run, .. } => run.flow.iter().flat_map(|flow| flow.keys()).collect(),
            Work::Admit(admit) => match stored() {
                Some(stored) => stored.flow.keys().collect(),
                None => admit.flow.keys().collect(),
            },
            Work::Commit { commit, .. } if commit.ends() => stored().into_iter().flat_map(keys_at_end).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether another batch has locked a key that this work needs.
    pub(super) fn is_key_locked(&self, work: &Work) -> bool {
        self.keys_of(work).into_iter().any(|key| self.locked_keys.contains(key))
    }
}

/// The columns of a run's row that decisions need.
#[derive(Debug, Clone)]
pub(super) struct RunRow {
    pub(super) facts: RunFacts,
    pub(super) wake_at: Option<i64>,
    pub(super) flow: Option<Box<RunFlow>>,
    /// The first run of its chain of reruns, if it is not the run itself.
    pub(super) root: Option<RunId>,
    pub(super) paused: bool,
}
