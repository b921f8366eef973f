//! The read facade. The API and the command line read through [`Engine::reads`] only.
//!
//! What must stay true:
//! * Other public functions of the engine return stored data only as the result of a command: a workflow, the status of a run,
//!   and how it ended ([`Ended`](crate::Ended), not masked; outputs are shown from [`Reads::run`]). So a later check of the
//!   caller's tenant and permissions has one place for reads.
//! * Outputs, parameters and the values that conditions read leave this module masked ([`masked`]), except in
//!   [`Reads::journal`]. The store keeps the secrets, because later steps may need them.
//! * No result grows with the number of runs: lists have at most [`MAX_PAGE`] items, and attempts and external resources also
//!   a limit in bytes.

mod events;
mod masked;
mod windows;

use crate::{
    engine::Engine,
    error::{EngineError, Refusal},
};
use fermata_core::{Event, RunId, RunnerId, decode};
use fermata_store::{
    dead_letters::{DeadLetter, DeadLetterFilter},
    definitions::{Definition, Draft, VersionRow, Workflow, WorkflowFilter},
    reads::{Order, Page, RunFilter, RunPage, RunRecord},
    runners::RunnerRecord,
    runs::WaitRecord,
};
use uuid::Uuid;

/// The most items in one page of a list.
pub const MAX_PAGE: u32 = 1000;

/// Every read of stored data, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Reads<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    /// Reads of stored data.
    pub fn reads(&self) -> Reads<'_> {
        Reads { engine: self }
    }
}

// Runs.
impl Reads<'_> {
    /// A run with its payloads.
    pub async fn run(&self, id: RunId) -> Result<RunRecord, EngineError> {
        let run = self.engine.shared.store.run(id).await?;
        Ok(self.masked(run.ok_or(Refusal::RunNotFound(id))?).await)
    }

    /// A run without its payloads; `None` if there is no such run.
    pub async fn run_row(&self, id: RunId) -> Result<Option<RunRecord>, EngineError> {
        let filter = RunFilter {
            from: Some(id),
            order: Order::OldestFirst,
            limit: 1,
            ..RunFilter::default()
        };
        let first = self.runs(filter).await?.items.pop();
        Ok(first.filter(|run| run.id == id))
    }

    /// Runs by age, without their payloads.
    pub async fn runs(&self, filter: RunFilter) -> Result<RunPage, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        Ok(self.engine.shared.store.runs(RunFilter { limit, ..filter }).await?)
    }

    /// The runs that a run started, oldest first, without their payloads; only those after `after`, if given.
    pub async fn children(
        &self,
        parent: RunId,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<RunRecord>, EngineError> {
        let limit = limit.min(MAX_PAGE);
        Ok(self.engine.shared.store.children(parent, after, limit).await?)
    }

    /// The waits of a run. Their tokens are secrets.
    pub async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>, EngineError> {
        Ok(self.engine.shared.store.waits(run).await?)
    }

    /// All events of a run, as they were decided. Not masked: conditions record the values they saw, and the start
    /// records the configured variables.
    pub async fn journal(&self, run: RunId) -> Result<Vec<Event>, EngineError> {
        let stored = self.engine.shared.store.load(run).await?;
        let stored = stored.ok_or(Refusal::RunNotFound(run))?;
        let rows = stored.journal.iter().map(|row| decode(row));
        let rows = rows
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| EngineError::Unusable {
                workflow: stored.workflow_id.clone(),
                version: stored.workflow_version,
                what: format!("the journal of run {run} cannot be read: {error}"),
            })?;
        Ok(rows.into_iter().flatten().collect())
    }
}

// Workflows. A reference is the id, or the uid with or without `wf_`.
impl Reads<'_> {
    /// The workflow that a reference names.
    pub async fn workflow(&self, reference: &str) -> Result<Workflow, EngineError> {
        self.engine.workflows().resolve(reference).await
    }

    /// The workflow that a reference names, if there is one. A deleted one is found by its uid.
    pub async fn find_workflow(&self, reference: &str) -> Result<Option<Workflow>, EngineError> {
        self.engine.workflows().find(reference).await
    }

    /// Workflows by name, without deleted ones.
    pub async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let filter = WorkflowFilter { limit, ..filter };
        Ok(self.engine.shared.store.workflows(filter).await?)
    }

    /// The versions of a workflow, newest first; only those before `before`, if given.
    pub async fn versions(
        &self,
        reference: &str,
        before: Option<u32>,
        limit: u32,
    ) -> Result<Page<VersionRow>, EngineError> {
        let workflow = self.workflow(reference).await?;
        let limit = limit.min(MAX_PAGE);
        Ok(self.engine.shared.store.versions(workflow.uid, before, limit).await?)
    }

    /// One version of a workflow.
    pub async fn definition(&self, workflow: &Workflow, version: u32) -> Result<Definition, EngineError> {
        let workflows = self.engine.workflows();
        workflows.definition(workflow.uid, &workflow.id, version).await
    }

    /// The draft of a workflow, if it has one.
    pub async fn draft(&self, workflow: &Workflow) -> Result<Option<Draft>, EngineError> {
        Ok(self.engine.shared.store.draft(workflow.uid).await?)
    }
}

// Operations.
impl Reads<'_> {
    /// Dead letters, newest first, without their payloads.
    pub async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let filter = DeadLetterFilter { limit, ..filter };
        Ok(self.engine.shared.store.dead_letters(filter).await?)
    }

    /// One dead letter, with its payload.
    pub async fn dead_letter(&self, id: Uuid) -> Result<DeadLetter, EngineError> {
        let letter = self.engine.shared.store.dead_letter(id).await?;
        Ok(letter.ok_or(Refusal::DeadLetterNotFound(id))?)
    }

    /// Runners that have not retired, newest first, each with whether its last heartbeat is younger than `lease_ttl`; only
    /// those older than `before`, if given.
    pub async fn runners(
        &self,
        before: Option<RunnerId>,
        limit: u32,
    ) -> Result<Page<(RunnerRecord, bool)>, EngineError> {
        let shared = &self.engine.shared;
        let page = shared.store.runners(before, limit.min(MAX_PAGE)).await?;
        let now = shared.clock.now();
        let ttl = shared.settings.lease_ttl.as_millis() as u64;
        let items = page.items.into_iter().map(|record| {
            let is_alive = record.heartbeat_at.plus_millis(ttl) >= now;
            (record, is_alive)
        });
        Ok(Page {
            items: items.collect(),
            more: page.more,
        })
    }
}
