//! Bulk jobs: one action on the runs that a query finds, or on given runs.
//!
//! | file | content |
//! | --- | --- |
//! | this one | preparing, starting, cancelling and reading jobs, on behalf of a caller |
//! | `work.rs` | the background task that takes slices of runs and acts on them |
//!
//! What must stay true:
//! * The runs of a job are those that it was prepared with. They are runs that the caller sees.
//! * A job acts as the caller that made it: with its tenant, principal and scopes. Starting and cancelling it needs the scope of
//!   its action.
//! * What is done to one run goes through [`Session`](crate::Session), as if the caller did it: checked and recorded alike.

mod work;

pub(crate) use work::run;

use crate::{
    audit::Recorder,
    caller::{Caller, Identity, Scope, Scopes},
    engine::Engine,
    error::{EngineError, Refusal},
    query::Query,
    reads::{MAX_PAGE, Reads, RunWindow},
};
use fermata_core::{RunId, Status};
pub use fermata_store::bulk::{BulkItem, BulkJob, BulkState, ItemState};
use fermata_store::{
    audit::describe,
    bulk::BulkChange,
    reads::{Order, Page, RunFilter, RunRecord},
    runs::Principal,
};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, sync::Arc};
use uuid::Uuid;

/// The most runs of a job.
pub const MAX_RUNS: usize = 100_000;
/// Runs that are looked up at once.
const LOOKED_UP: usize = 500;

/// What a job does to each of its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BulkAction {
    /// Requests that it stops.
    Cancel {
        /// The reason to record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Pauses it.
    Pause {
        /// The reason to record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Resumes it.
    Resume {
        /// The reason to record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Creates a run that repeats it. It must have ended.
    Rerun {
        /// Only the nodes that failed and all that they reach.
        #[serde(default)]
        failed_only: bool,
        /// With the version of new runs, instead of its own.
        #[serde(default)]
        latest: bool,
    },
    /// Removes it, with the runs that it started. It must have ended.
    Delete,
}

impl BulkAction {
    /// Its name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            BulkAction::Cancel { .. } => "cancel",
            BulkAction::Pause { .. } => "pause",
            BulkAction::Resume { .. } => "resume",
            BulkAction::Rerun { .. } => "rerun",
            BulkAction::Delete => "delete",
        }
    }

    /// The scope that the same action on one run needs.
    pub fn scope(&self) -> Scope {
        match self {
            BulkAction::Delete => Scope::Manage,
            _ => Scope::Execute,
        }
    }

    /// The statuses of runs that it can change. A query without `status:` is limited to them.
    fn statuses(&self) -> Vec<Status> {
        let all = Status::ALL.into_iter();
        match self {
            BulkAction::Cancel { .. } | BulkAction::Pause { .. } | BulkAction::Resume { .. } => {
                all.filter(|status| !status.is_terminal()).collect()
            }
            BulkAction::Rerun { failed_only: true, .. } => vec![Status::Failed, Status::Cancelled],
            BulkAction::Rerun { .. } | BulkAction::Delete => all.filter(|status| status.is_terminal()).collect(),
        }
    }

    /// Whether a run that a query found needs it.
    fn is_for(&self, run: &RunRecord) -> bool {
        match self {
            BulkAction::Pause { .. } => run.paused_at.is_none(),
            BulkAction::Resume { .. } => run.paused_at.is_some(),
            BulkAction::Cancel { .. } | BulkAction::Rerun { .. } | BulkAction::Delete => true,
        }
    }

    /// Whether it can change a run as it is now.
    fn fits(&self, run: &RunRecord) -> bool {
        self.statuses().contains(&run.status) && self.is_for(run)
    }

    /// The action of a stored job.
    pub fn of(job: &BulkJob) -> Option<BulkAction> {
        serde_json::from_str(&job.action).ok()
    }
}

/// The runs of a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Those that a query finds.
    Query(String),
    /// Those of these runs that exist.
    Runs(Vec<RunId>),
}

/// A job that was prepared.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The job.
    pub job: BulkJob,
    /// How many runs of the selection it leaves out, because the action cannot change them as they are now.
    pub left_out: u64,
}

/// The runs of a selection.
#[derive(Default)]
struct Found {
    runs: Vec<RunId>,
    left_out: u64,
}

impl Found {
    fn add(&mut self, run: &RunRecord, is_wanted: bool) {
        match is_wanted {
            true => self.runs.push(run.id),
            false => self.left_out += 1,
        }
    }
}

/// In whose name a job acts.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCaller {
    credential: String,
    principal: Option<Principal>,
    tenant: Option<String>,
    scopes: String,
    address: Option<IpAddr>,
}

impl StoredCaller {
    fn of(caller: &Caller) -> StoredCaller {
        let identity = caller.identity();
        StoredCaller {
            credential: identity.credential.clone(),
            principal: identity.principal.clone(),
            tenant: identity.tenant().map(str::to_owned),
            scopes: identity.scopes.to_string(),
            address: caller.address(),
        }
    }

    fn caller(self) -> Option<Caller> {
        let scopes = Scopes::of_names(self.scopes.split(' '));
        let identity = Identity::new(self.credential, self.principal, self.tenant, scopes)?;
        Some(Caller::new(Arc::new(identity), self.address))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("actions and callers are always JSON: {error}"))
}

/// Bulk jobs of one caller.
#[derive(Clone, Copy)]
pub struct Bulk<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) caller: &'a Caller,
}

impl Bulk<'_> {
    fn reads(&self) -> Reads<'_> {
        Reads {
            engine: self.engine,
            tenant: self.caller.tenant(),
        }
    }

    async fn recorded<T>(
        &self,
        action: &str,
        id: Uuid,
        command: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let recorder = Recorder {
            engine: self.engine,
            caller: self.caller,
        };
        recorder.record(action, &id.to_string(), command).await
    }

    fn check_scope(&self, action: &BulkAction) -> Result<(), Refusal> {
        match self.caller.has(action.scope()) {
            true => Ok(()),
            false => Err(Refusal::Forbidden(format!(
                "the bulk action `{}` needs the scope `{}`",
                action.name(),
                action.scope().as_str()
            ))),
        }
    }

    /// Finds the runs of a new job and stores them with it. Nothing is done to them before the job is started. With `only_fitting`,
    /// runs that the action cannot change as they are now are left out.
    pub async fn prepare(
        &self,
        selection: Selection,
        action: BulkAction,
        only_fitting: bool,
    ) -> Result<Prepared, EngineError> {
        let id = Uuid::now_v7();
        let prepare = async {
            self.check_scope(&action)?;
            let fits = |run: &RunRecord| !only_fitting || action.fits(run);
            let (query, found) = match selection {
                Selection::Query(text) => {
                    let found = self.found(&text, &action, fits).await?;
                    (Some(text), found)
                }
                Selection::Runs(runs) => (None, self.existing(runs, fits).await?),
            };
            let Found { mut runs, left_out } = found;
            runs.sort_unstable();
            runs.dedup();
            let job = BulkJob {
                id,
                tenant: self.caller.tenant().unwrap_or_default().to_owned(),
                action: json(&action),
                query,
                caller: json(&StoredCaller::of(self.caller)),
                state: BulkState::Ready,
                total: runs.len() as u64,
                done: 0,
                refused: 0,
                failed: 0,
                epoch: 0,
                retry_at: None,
                created_at: self.engine.now(),
                started_at: None,
                ended_at: None,
            };
            describe(|row| row.detail = Some(format!("{} {} executions", action.name(), job.total)));
            self.engine.shared.store.add_bulk(job.clone(), runs).await?;
            Ok::<_, EngineError>(Prepared { job, left_out })
        };
        self.recorded("bulk.create", id, prepare).await
    }

    /// The runs that a query finds.
    async fn found(
        &self,
        text: &str,
        action: &BulkAction,
        fits: impl Fn(&RunRecord) -> bool,
    ) -> Result<Found, EngineError> {
        let mut query = Query::parse(text).map_err(Refusal::from)?;
        if query.is_empty() {
            return Err(Refusal::EmptySelection.into());
        }
        if query.statuses.is_empty() && query.ids.is_empty() {
            query.statuses = action.statuses();
        }
        let mut window = RunWindow {
            order: Order::NewestFirst,
            after: None,
            limit: MAX_PAGE,
        };
        let mut found = Found::default();
        loop {
            let page = self.reads().find(&query, window).await?;
            for run in &page.items {
                found.add(run, action.is_for(run) && fits(run));
            }
            if found.runs.len() > MAX_RUNS {
                return Err(Refusal::SelectionTooLarge { most: MAX_RUNS }.into());
            }
            match page.next {
                Some(next) => window.after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Those of these runs that the caller sees.
    async fn existing(&self, runs: Vec<RunId>, fits: impl Fn(&RunRecord) -> bool) -> Result<Found, EngineError> {
        if runs.is_empty() {
            return Err(Refusal::EmptySelection.into());
        }
        if runs.len() > MAX_RUNS {
            return Err(Refusal::SelectionTooLarge { most: MAX_RUNS }.into());
        }
        let mut existing = Found::default();
        for part in runs.chunks(LOOKED_UP) {
            let filter = RunFilter {
                ids: part.to_vec(),
                limit: MAX_PAGE,
                ..RunFilter::default()
            };
            let page = self.reads().runs(filter).await?;
            for run in &page.items {
                existing.add(run, fits(run));
            }
        }
        Ok(existing)
    }

    /// Starts a job. Starting it again changes nothing.
    pub async fn start(&self, id: Uuid) -> Result<BulkJob, EngineError> {
        let job = self.change("bulk.start", id, BulkChange::Start).await?;
        self.engine.shared.bulk.notify_one();
        Ok(job)
    }

    /// Cancels a job. What was done stays done.
    pub async fn cancel(&self, id: Uuid) -> Result<BulkJob, EngineError> {
        let job = self.change("bulk.cancel", id, BulkChange::Cancel).await?;
        self.engine.shared.bulk.notify_one();
        Ok(job)
    }

    async fn change(&self, name: &str, id: Uuid, change: BulkChange) -> Result<BulkJob, EngineError> {
        let command = async {
            let job = self.get(id).await?;
            if let Some(action) = BulkAction::of(&job) {
                self.check_scope(&action)?;
            }
            describe(|row| row.tenant.clone_from(&job.tenant));
            let (store, now) = (&self.engine.shared.store, self.engine.now());
            let changed = store.change_bulk(id, change, now).await?;
            Ok::<_, EngineError>(changed.ok_or(Refusal::BulkNotFound(id))?)
        };
        self.recorded(name, id, command).await
    }

    /// One job.
    pub async fn get(&self, id: Uuid) -> Result<BulkJob, EngineError> {
        let job = self.engine.shared.store.bulk(id).await?;
        let job = job.filter(|job| self.reads().is_own(&job.tenant));
        Ok(job.ok_or(Refusal::BulkNotFound(id))?)
    }

    /// Jobs, newest first; only those before `before`, if given.
    pub async fn list(&self, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>, EngineError> {
        let store = &self.engine.shared.store;
        Ok(store.bulks(self.caller.tenant(), before, limit.min(MAX_PAGE)).await?)
    }

    /// The runs of a job with what became of them, by id; only those in this state and after `after`, if given.
    pub async fn items(
        &self,
        id: Uuid,
        state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>, EngineError> {
        self.get(id).await?;
        let store = &self.engine.shared.store;
        Ok(store.bulk_items(id, state, after, limit.min(MAX_PAGE)).await?)
    }
}
