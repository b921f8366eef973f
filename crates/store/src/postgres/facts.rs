//! What a batch has to know before it decides: read under the locks on everything that it may change.

use super::work::Work;
use crate::rules::{ExistingRun, RunFacts, WorkflowFacts};
use fermata_core::RunId;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// A resource outside: system, type, id.
pub(super) type Resource = (String, String, String);

/// Everything that members of a batch are checked against.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// `None` for one that was deleted.
    pub(super) workflows: HashMap<Uuid, Option<WorkflowFacts>>,
    /// Runs that have a (tenant, requestId) of the batch.
    pub(super) requests: HashMap<(String, String), ExistingRun>,
    pub(super) runs: HashMap<RunId, RunRow>,
    /// Workflows and runs that are there, and that somebody else has locked.
    pub(super) locked_workflows: HashSet<Uuid>,
    pub(super) locked_runs: HashSet<RunId>,
    /// The last place in the journals of runs that go on.
    pub(super) last_seqs: HashMap<RunId, u32>,
    /// Who has the resources that are linked.
    pub(super) owners: HashMap<Resource, RunId>,
    /// Waits to be closed which have an answer that their run has not seen.
    pub(super) answered: HashSet<(RunId, String)>,
    /// Tokens that may be answered.
    pub(super) open_tokens: HashMap<String, Option<i64>>,
}

impl Facts {
    /// Whether somebody else has locked what this needs.
    pub(super) fn is_locked(&self, work: &Work) -> bool {
        match work {
            Work::Enqueue { run, .. } => self.locked_workflows.contains(&run.workflow_uid),
            _ => self.locked_runs.contains(&work.run()),
        }
    }
}

/// A run's row, as far as it decides.
#[derive(Debug, Clone)]
pub(super) struct RunRow {
    pub(super) facts: RunFacts,
    pub(super) wake_at: Option<i64>,
}
