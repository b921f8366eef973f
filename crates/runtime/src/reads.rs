//! The read facade. The API and the command line read through [`Engine::reads`] only.
//!
//! What must stay true:
//! * Other public functions of the engine return stored data only as the result of a command: a workflow, the status of a run,
//!   and how it ended ([`Ended`](crate::Ended), not masked; outputs are shown from [`Reads::run`]). So the tenant of the caller
//!   is checked here: a caller with a tenant reads its own data and shared workflows, and what belongs to another tenant is
//!   answered exactly as what does not exist.
//! * Outputs, parameters and the values that conditions read leave this module masked ([`masked`]), except in
//!   [`Reads::journal`]. The store keeps the secrets, because later steps may need them.
//! * No result grows with the number of runs: lists have at most [`MAX_PAGE`] items, and attempts and external resources also
//!   a limit in bytes.

mod events;
mod find;
mod masked;
mod suggest;
mod windows;

use crate::{
    engine::Engine,
    error::{EngineError, Refusal},
    workflows::WorkflowsOf,
};
use fermata_core::{Event, RunId, RunnerId, decode};
use fermata_store::{
    Database,
    dead_letters::{DeadLetter, DeadLetterFilter},
    definitions::{Definition, Draft, VersionRow, Workflow, WorkflowFilter},
    reads::{Order, Page, QueueDepth, RunFilter, RunPage, RunRecord},
    runners::RunnerRecord,
    runs::WaitRecord,
};
use uuid::Uuid;

pub use find::RunWindow;

/// The most items in one page of a list.
pub const MAX_PAGE: u32 = 1000;

/// Every read of stored data, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Reads<'a> {
    pub(crate) engine: &'a Engine,
    /// The tenant of the caller; `None` if it sees every tenant.
    pub(crate) tenant: Option<&'a str>,
}

impl Engine {
    /// Reads of stored data, of all tenants; names are those of shared workflows. A request reads through
    /// [`Session::reads`](crate::Session::reads).
    pub fn reads(&self) -> Reads<'_> {
        Reads {
            engine: self,
            tenant: None,
        }
    }

    /// Reads of stored data. Names are those of workflows of this tenant, if there is one, and of shared ones.
    pub fn reads_of<'a>(&'a self, tenant: &'a str) -> Reads<'a> {
        Reads {
            engine: self,
            tenant: Some(tenant).filter(|tenant| !tenant.is_empty()),
        }
    }
}

// Runs.
impl Reads<'_> {
    /// Refuses a run that this caller does not see. Without a tenant it reads nothing: the caller sees all runs.
    pub(crate) async fn visible(&self, id: RunId) -> Result<(), EngineError> {
        match self.tenant {
            None => Ok(()),
            Some(_) => {
                let run = self.run_row(id).await?;
                run.map(drop).ok_or_else(|| Refusal::RunNotFound(id).into())
            }
        }
    }

    /// The tenant of a run that this caller sees. Refuses other runs, if the caller has a tenant.
    pub(crate) async fn visible_tenant(&self, id: RunId) -> Result<Option<String>, EngineError> {
        let run = self.run_row(id).await?;
        match (run, self.tenant) {
            (Some(run), _) => Ok(Some(run.tenant)),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Refusal::RunNotFound(id).into()),
        }
    }

    /// Whether a row of this tenant belongs to the caller.
    pub(crate) fn is_own(&self, tenant: &str) -> bool {
        self.tenant.is_none_or(|own| own == tenant)
    }

    /// The tenant that a list is limited to; `Err` if it names one that the caller does not see.
    pub(crate) fn limited(&self, named: Option<String>) -> Result<Option<String>, ()> {
        match (self.tenant, named) {
            (Some(own), Some(named)) if named != own => Err(()),
            (Some(own), _) => Ok(Some(own.to_owned())),
            (None, named) => Ok(named),
        }
    }

    /// A run with its payloads.
    pub async fn run(&self, id: RunId) -> Result<RunRecord, EngineError> {
        self.visible(id).await?;
        let run = self.engine.shared.store.run(id).await?;
        Ok(self.masked(run.ok_or(Refusal::RunNotFound(id))?).await)
    }

    /// The same for a run that was probably written just now.
    pub async fn recent_run(&self, id: RunId) -> Result<RunRecord, EngineError> {
        self.visible(id).await?;
        let run = self.engine.shared.store.recent_run(id).await?;
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
        // Without the tenant in the filter: a run of another tenant costs what a missing one costs, which is one row.
        let first = self.engine.shared.store.runs(filter).await?.items.pop();
        Ok(first.filter(|run| run.id == id && self.is_own(&run.tenant)))
    }

    /// Runs by age, without their payloads.
    pub async fn runs(&self, filter: RunFilter) -> Result<RunPage, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let Ok(tenant) = self.limited(filter.tenant) else {
            return Ok(RunPage::default());
        };
        let filter = RunFilter {
            tenant,
            limit,
            ..filter
        };
        Ok(self.engine.shared.store.runs(filter).await?)
    }

    /// The runs that a run started, oldest first, without their payloads; only those after `after`, if given.
    pub async fn children(
        &self,
        parent: RunId,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<RunRecord>, EngineError> {
        self.visible(parent).await?;
        let limit = limit.min(MAX_PAGE);
        Ok(self.engine.shared.store.children(parent, after, limit).await?)
    }

    /// The waits of a run. Their tokens are secrets.
    pub async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>, EngineError> {
        self.visible(run).await?;
        Ok(self.engine.shared.store.waits(run).await?)
    }

    /// How many runs are before this one, if it waits for a place of a key.
    pub async fn ahead(&self, run: &RunRecord) -> Result<Option<u32>, EngineError> {
        match run.flow.as_ref().is_some_and(|flow| flow.waiting.is_some()) {
            true => Ok(self.engine.shared.store.ahead(run.id).await?),
            false => Ok(None),
        }
    }

    /// All events of a run, as they were decided. Not masked: conditions record the values they saw, and the start
    /// records the configured variables.
    pub async fn journal(&self, run: RunId) -> Result<Vec<Event>, EngineError> {
        self.visible(run).await?;
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

impl<'a> Reads<'a> {
    /// The same reads, with the names of another tenant, if this caller sees every tenant.
    #[must_use]
    pub fn for_tenant(self, tenant: Option<&'a str>) -> Reads<'a> {
        Reads {
            engine: self.engine,
            tenant: self.tenant.or(tenant),
        }
    }
}

// Workflows. A reference is the id, or the uid with or without `wf_`.
impl Reads<'_> {
    fn workflows_seen(&self) -> WorkflowsOf<'_> {
        self.engine.workflows_of(self.tenant.unwrap_or_default())
    }

    /// The workflow that a reference names.
    pub async fn workflow(&self, reference: &str) -> Result<Workflow, EngineError> {
        self.workflows_seen().resolve(reference).await
    }

    /// The workflow that a reference names, if there is one. A deleted one is found by its uid.
    pub async fn find_workflow(&self, reference: &str) -> Result<Option<Workflow>, EngineError> {
        self.workflows_seen().find(reference).await
    }

    /// Workflows by name, without deleted ones.
    pub async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let Ok(tenant) = self.limited(filter.tenant) else {
            return Ok(Page::default());
        };
        let filter = WorkflowFilter {
            tenant,
            limit,
            ..filter
        };
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
        match self.own_dead_letters(filter) {
            Some(filter) => Ok(self.engine.shared.store.dead_letters(filter).await?),
            None => Ok(Page::default()),
        }
    }

    /// The filter, limited to what the caller sees; `None` if that is nothing.
    pub(crate) fn own_dead_letters(&self, filter: DeadLetterFilter) -> Option<DeadLetterFilter> {
        let limit = filter.limit.min(MAX_PAGE);
        let tenant = self.limited(filter.tenant).ok()?;
        Some(DeadLetterFilter {
            tenant,
            limit,
            ..filter
        })
    }

    /// One dead letter, with its payload.
    pub async fn dead_letter(&self, id: Uuid) -> Result<DeadLetter, EngineError> {
        let is_seen = self.tenant.is_none() || self.dead_letter_row(id).await?.is_some();
        let letter = match is_seen {
            true => self.engine.shared.store.dead_letter(id).await?,
            false => None,
        };
        Ok(letter.ok_or(Refusal::DeadLetterNotFound(id))?)
    }

    /// A dead letter without its payload; `None` if there is no such letter. With a tenant, only letters of that tenant are read: a
    /// letter of another one costs what a missing one costs, however large it is.
    pub(crate) async fn dead_letter_row(&self, id: Uuid) -> Result<Option<DeadLetter>, EngineError> {
        let filter = DeadLetterFilter {
            tenant: self.tenant.map(str::to_owned),
            before: Some(Uuid::from_u128(id.as_u128().saturating_add(1))),
            limit: 1,
            ..DeadLetterFilter::default()
        };
        let first = self.engine.shared.store.dead_letters(filter).await?.items.pop();
        Ok(first.filter(|letter| letter.id == id))
    }

    /// How many runs are due and wait for a runner, by workflow and tenant, of the 20,000 that wait longest.
    pub async fn queue(&self) -> Result<Vec<QueueDepth>, EngineError> {
        let shared = &self.engine.shared;
        let mut depths = shared.store.queue_depths(shared.clock.now()).await?;
        depths.retain(|depth| self.is_own(&depth.tenant));
        Ok(depths)
    }

    /// What the database is. It belongs to the installation, so a caller with a tenant does not see it.
    pub async fn database(&self) -> Result<Option<Database>, EngineError> {
        match self.tenant {
            Some(_) => Ok(None),
            None => Ok(Some(self.engine.shared.store.about().await?)),
        }
    }

    /// Runners that have not retired, newest first, each with whether its last heartbeat is younger than `lease_ttl`; only
    /// those older than `before`, if given. They belong to the installation, so a caller with a tenant sees none.
    pub async fn runners(
        &self,
        before: Option<RunnerId>,
        limit: u32,
    ) -> Result<Page<(RunnerRecord, bool)>, EngineError> {
        if self.tenant.is_some() {
            return Ok(Page::default());
        }
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
