//! Workflows: saving drafts, publishing versions, and the compiled plans. The other lifecycle commands are in [`lifecycle`],
//! workflows of dialects without drafts in [`release`], and changes of documents with versions in [`revisions`].
//!
//! A workflow is identified by its uid. Callers use a *reference*: its name or its uid, with or without the prefix `wf_`
//! ([`WorkflowsOf::resolve`]). A name means something only to a tenant: its own workflow, else the shared one.
//!
//! What must stay true:
//! * What is cached by name is checked again by the store. What a tenant means by a name is cached only while it is its own
//!   workflow: another process may add one that hides the shared one, which the store would not notice.
//! * With a tenant, workflows of other tenants are not found, and shared ones are not changed.

mod callbacks;
mod children;
mod lifecycle;
mod release;
mod revisions;
mod tier_limits;

pub use lifecycle::{Command, Validated};
pub use release::Added;

use crate::{
    actions::Registry,
    clock::Clock,
    compiled::Compiled,
    documents::check_uncovered,
    error::{EngineError, Refusal},
    metrics::Metrics,
    sandbox::Sandbox,
    secrets::Secrets,
    tiers::Tiers,
};
use fermata_core::{Plan, StoredPlan};
use fermata_dialects::{Compiled as CompiledDocument, Diagnostic, Document, Settings, Stage, past_schedules};
use fermata_store::{
    Store,
    audit::{describe, is_recorded},
    definitions::{
        Activation, Definition, Draft, DraftGuard, DraftRule, Lifecycle, Publication, Published, Saved, Workflow,
    },
};
use futures::{FutureExt, future::BoxFuture};
use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

/// Drafts, versions and compiled plans.
pub struct Workflows {
    store: Arc<dyn Store>,
    registry: Registry,
    settings: Settings,
    clock: Arc<dyn Clock>,
    sandbox: Sandbox,
    secrets: Arc<Secrets>,
    metrics: Arc<Metrics>,
    tiers: Arc<Tiers>,
    /// By tenant, and by the reference that callers used: name or uid.
    heads: Mutex<HashMap<String, HashMap<String, Head>>>,
    /// The tenants of workflows, by uid. They never change.
    tenants: Mutex<HashMap<Uuid, Arc<str>>>,
    /// By (workflow, version). Versions are immutable, so these are never out of date.
    plans: Mutex<HashMap<(Uuid, u32), Arc<Compiled>>>,
}

/// Workflows as one tenant sees them: its own and the shared ones. An empty tenant finds shared ones by name, and all by uid, except
/// as the tenant of documents ([`Workflows::named_by`]).
#[derive(Clone, Copy)]
pub struct WorkflowsOf<'a> {
    all: &'a Workflows,
    tenant: &'a str,
    sees_all: bool,
}

impl Deref for WorkflowsOf<'_> {
    type Target = Workflows;

    fn deref(&self) -> &Workflows {
        self.all
    }
}

/// The cached state of a workflow. The store checks it again when a run is enqueued.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub uid: Uuid,
    pub id: String,
    pub current_version: Option<u32>,
    pub status: Lifecycle,
    pub enabled: bool,
}

impl Head {
    pub fn runs(&self) -> bool {
        self.status == Lifecycle::Active && self.enabled && self.current_version.is_some()
    }
}

/// A draft that was saved.
#[derive(Debug, Clone)]
pub struct SavedWorkflow {
    /// The workflow as it is now.
    pub workflow: Workflow,
    /// Whether it is new.
    pub created: bool,
    /// The draft's checksum.
    pub checksum: String,
    /// Warnings about the document.
    pub warnings: Vec<Diagnostic>,
}

/// A version that was published.
#[derive(Debug, Clone)]
pub struct PublishedWorkflow {
    /// The workflow as it is now.
    pub workflow: Workflow,
    /// The version.
    pub version: u32,
    /// Whether it is new.
    pub created: bool,
    /// How many nodes it has.
    pub nodes: usize,
    /// Warnings about the document.
    pub warnings: Vec<Diagnostic>,
}

impl PublishedWorkflow {
    fn new(publication: Publication, compiled: CompiledDocument) -> PublishedWorkflow {
        PublishedWorkflow {
            workflow: publication.workflow,
            version: publication.version,
            created: publication.created,
            nodes: compiled.plan.nodes.len(),
            warnings: compiled.warnings,
        }
    }
}

/// The cache of plans is cleared when it has more entries than this.
const MAX_PLANS: usize = 1000;

/// Documents larger than this are compiled without blocking other tasks.
const LARGE: usize = 64 * 1024;

/// About the size of a node in a document.
const NODE_BYTES: usize = 300;

/// Runs work whose cost grows with a document. For a large document the other tasks of this worker move to another worker,
/// unless the runtime has only one thread.
fn aside<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    let flavor = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) if bytes > LARGE => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Workflows {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        registry: Registry,
        settings: &crate::Settings,
        clock: Arc<dyn Clock>,
        sandbox: Sandbox,
        metrics: Arc<Metrics>,
    ) -> Self {
        Workflows {
            store,
            registry,
            settings: settings.dialects.clone(),
            clock,
            sandbox,
            secrets: settings.secrets.clone(),
            metrics,
            tiers: settings.tiers.clone(),
            heads: Mutex::default(),
            tenants: Mutex::default(),
            plans: Mutex::default(),
        }
    }

    /// Workflows as a tenant sees them.
    pub fn of<'a>(&'a self, tenant: &'a str) -> WorkflowsOf<'a> {
        WorkflowsOf {
            all: self,
            tenant,
            sees_all: tenant.is_empty(),
        }
    }

    /// Workflows as the documents of a tenant name them: its own and the shared ones. Shared documents (an empty tenant) name shared
    /// ones only, also by uid: a reference may come from the trigger of any tenant.
    pub(crate) fn named_by<'a>(&'a self, tenant: &'a str) -> WorkflowsOf<'a> {
        WorkflowsOf {
            all: self,
            tenant,
            sees_all: false,
        }
    }

    /// The tenant of a workflow; empty for a shared one.
    pub(crate) async fn tenant_of(&self, uid: Uuid) -> Result<Arc<str>, EngineError> {
        Ok(self.owner(uid).await?.unwrap_or_default())
    }

    /// The same; `None` if there is no such workflow.
    pub(crate) async fn owner(&self, uid: Uuid) -> Result<Option<Arc<str>>, EngineError> {
        let lock = || self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = lock().get(&uid) {
            return Ok(Some(tenant.clone()));
        }
        let Some(workflow) = self.store.workflow_by_uid(uid).await? else {
            return Ok(None);
        };
        let tenant: Arc<str> = workflow.tenant.into();
        let mut tenants = lock();
        if tenants.len() >= MAX_PLANS {
            tenants.clear();
        }
        tenants.insert(uid, tenant.clone());
        Ok(Some(tenant))
    }

    fn parse(&self, source: &[u8], name: &str) -> Result<Document, Refusal> {
        let limits = &self.settings.document;
        aside(source.len(), || Document::parse(source, name, limits)).map_err(Refusal::InvalidDocument)
    }

    fn compile(&self, document: &Document, stage: Stage) -> Result<CompiledDocument, Refusal> {
        let compile = || fermata_dialects::compile(document, &self.settings, &self.registry, stage);
        aside(document.source().len(), compile).map_err(Refusal::InvalidDocument)
    }

    /// Parses and checks a document, except for the syntax of conditions that only the sandbox can parse.
    pub fn check(&self, source: &[u8], name: &str, stage: Stage) -> Result<(Document, CompiledDocument), EngineError> {
        let document = self.parse(source, name)?;
        let compiled = self.compile(&document, stage)?;
        Ok((document, compiled))
    }
}

impl WorkflowsOf<'_> {
    /// Parses and checks a document completely, without storing it.
    pub async fn check_document(
        &self,
        source: &[u8],
        name: &str,
        stage: Stage,
    ) -> Result<(Document, CompiledDocument), EngineError> {
        let document = self.parse(source, name)?;
        let compiled = self.examine(&document, stage).await?;
        Ok((document, compiled))
    }

    /// Checks a document completely, and for publishing also the workflows that it starts and the callbacks that it names.
    /// Boxed, because it is large and its callers are compiled in several crates.
    fn examine<'b>(
        &'b self,
        document: &'b Document,
        stage: Stage,
    ) -> BoxFuture<'b, Result<CompiledDocument, EngineError>> {
        self.examine_unboxed(document, stage).boxed()
    }

    async fn examine_unboxed(&self, document: &Document, stage: Stage) -> Result<CompiledDocument, EngineError> {
        let compiled = self.compile(document, stage)?;
        let compiled = check_uncovered(document, compiled, stage, &self.sandbox).await;
        let mut compiled = compiled.map_err(Refusal::InvalidDocument)?;
        self.secrets.warn(document, &mut compiled, self.tenant);
        let past = past_schedules(document, &compiled.plan, self.clock.now());
        compiled.warnings.extend(past);
        self.check_tasks(compiled.plan.nodes.len())?;
        if compiled.plan.triggers.iter().any(|trigger| trigger.kind == "Schedule") {
            self.tiers.check_schedule(self.tenant)?;
        }
        if stage == Stage::Publish {
            compiled = self.check_children(document, compiled, stage).await?;
            compiled = self.check_callbacks(document, compiled).await?;
        }
        // With their lines and columns.
        compiled.warnings = document.report(compiled.warnings).into_list();
        Ok(compiled)
    }

    /// Creates a workflow as a draft, or changes one that still is a draft. For documents of any dialect.
    pub async fn save(&self, source: &[u8], name: &str) -> Result<SavedWorkflow, EngineError> {
        let (document, compiled) = self.check_document(source, name, Stage::Save).await?;
        self.keep(source, &document, compiled, self.new_or_draft(), None).await
    }

    /// Saves a checked draft.
    async fn keep(
        &self,
        source: &[u8],
        document: &Document,
        compiled: CompiledDocument,
        rule: DraftRule,
        guard: Option<DraftGuard>,
    ) -> Result<SavedWorkflow, EngineError> {
        let draft = self.draft_of(source, document, &compiled);
        let (id, checksum) = (draft.id.clone(), draft.checksum.clone());
        match rule {
            DraftRule::Existing { uid } => self.describe_change(uid, &checksum).await?,
            DraftRule::NewOrDraft { .. } => describe(|row| {
                row.target.clone_from(&id);
                row.after = Some(checksum.clone());
            }),
        }
        let created = match self.store.save_draft(draft, rule, guard).await? {
            Saved::Saved { created } => created,
            Saved::Refused(status) => return Err(Refusal::Immutable { workflow: id, status }.into()),
            Saved::NotFound => return Err(Refusal::WorkflowNotFound(id).into()),
            Saved::Changed(checksum) => return Err(Refusal::OtherDraft { workflow: id, checksum }.into()),
            Saved::Full => return Err(self.no_room().into()),
        };
        let workflow = match rule {
            DraftRule::Existing { uid } => self.resolve(&uid.to_string()).await?,
            DraftRule::NewOrDraft { .. } => self.resolve(&id).await?,
        };
        let warnings = compiled.warnings;
        Ok(SavedWorkflow {
            workflow,
            created,
            checksum,
            warnings,
        })
    }

    fn draft_of(&self, source: &[u8], document: &Document, compiled: &CompiledDocument) -> Draft {
        Draft {
            id: compiled.plan.workflow.clone(),
            tenant: self.tenant.to_owned(),
            display_name: compiled.plan.display_name.clone(),
            description: compiled.description.clone(),
            dialect: compiled.plan.dialect.clone(),
            source: source.to_vec(),
            checksum: document.checksum(),
            at: self.clock.now(),
        }
    }

    /// Publishes the draft as a version and, with `activate`, makes it the version of new runs.
    pub async fn publish(&self, reference: &str, activate: bool) -> Result<PublishedWorkflow, EngineError> {
        let workflow = self.resolve_to_change(reference).await?;
        let (uid, id) = (workflow.uid, workflow.id.as_str());
        if workflow.status == Lifecycle::Archived {
            return Err(Command::Publish.refused(id, workflow.status));
        }
        let (source, checksum) = match (self.store.draft(uid).await?, workflow.latest_version) {
            (Some(draft), _) => (draft.source, draft.checksum),
            // Published already: repeating it changes nothing, but may activate the version.
            (None, Some(latest)) => {
                let definition = self.definition(uid, id, latest).await?;
                (definition.source, definition.checksum)
            }
            (None, None) => return Err(Refusal::NoDraft(workflow.id).into()),
        };
        let owner = self.all.of(&workflow.tenant);
        let (document, compiled) = owner.check_document(&source, id, Stage::Publish).await?;
        self.check_revision(&workflow, &document, None).await?;
        let activation = match activate {
            true => Activation::Activate {
                enabled: compiled.enabled,
            },
            false => Activation::Stage,
        };
        let plan = compiled.plan.encode();
        self.describe_change(uid, &checksum).await?;
        let published = self.store.publish(uid, &checksum, &plan, activation, self.clock.now());
        let published = published.await?;
        self.forget_head(uid);
        match published {
            Published::Version(publication) => {
                self.hand_over_places(uid).await;
                Ok(PublishedWorkflow::new(publication, compiled))
            }
            Published::Changed => Err(Refusal::Changed(id.to_owned()).into()),
            Published::NoDraft => Err(Refusal::NoDraft(id.to_owned()).into()),
            Published::Refused(status) => Err(Command::Publish.refused(id, status)),
            Published::NotFound => Err(Refusal::WorkflowNotFound(id.to_owned()).into()),
        }
    }

    /// The cached state of the workflow of a reference; read from the store if it is not cached or `refresh` is set.
    pub(crate) async fn head(&self, reference: &str, refresh: bool) -> Result<Head, EngineError> {
        if !refresh
            && let Some(known) = self
                .lock_heads()
                .get(self.tenant)
                .and_then(|heads| heads.get(reference))
        {
            return Ok(known.clone());
        }
        let found = self.resolve(reference).await;
        let mut heads = self.lock_heads();
        if found.is_err()
            && let Some(heads) = heads.get_mut(self.tenant)
        {
            heads.remove(reference);
        }
        let workflow = found?;
        let is_own = workflow.tenant == self.tenant;
        let head = Head {
            uid: workflow.uid,
            id: workflow.id,
            current_version: workflow.current_version,
            status: workflow.status,
            enabled: workflow.enabled,
        };
        // Other spellings of the same reference are not cached: there are too many.
        if is_own && (reference == head.id || reference == head.uid.to_string()) {
            let heads = heads.entry(self.tenant.to_owned()).or_default();
            heads.insert(reference.to_owned(), head.clone());
        }
        Ok(head)
    }
}

impl Workflows {
    /// Tells the audit trail which document is replaced by which.
    async fn describe_change(&self, uid: Uuid, after: &str) -> Result<(), EngineError> {
        if !is_recorded() {
            return Ok(());
        }
        let workflow = self.store.workflow_by_uid(uid).await?;
        let before = match workflow.and_then(|workflow| workflow.latest_version) {
            Some(version) => self.store.definition(uid, version).await?,
            None => None,
        };
        describe(|row| {
            row.before = before.map(|definition| definition.checksum);
            row.after = Some(after.to_owned());
        });
        Ok(())
    }

    /// An immutable version of the workflow `uid`, whose name is `id`.
    pub(crate) async fn definition(&self, uid: Uuid, id: &str, version: u32) -> Result<Definition, EngineError> {
        let definition = self.store.definition(uid, version).await?;
        definition.ok_or_else(|| self.no_version(id, version))
    }

    /// The compiled plan of a version of the workflow `uid`, whose name is `id`. It depends on what was stored when the version
    /// was published, not on the current settings. A node with an unknown action fails when it runs.
    pub async fn compiled(&self, uid: Uuid, id: &str, version: u32) -> Result<Arc<Compiled>, EngineError> {
        let key = (uid, version);
        if let Some(compiled) = self.lock_plans().get(&key) {
            return Ok(compiled.clone());
        }
        let text = match self.store.plan(uid, version).await? {
            Some(text) => text,
            None => self.settle(uid, id, version).await?,
        };
        let unusable = |what: String| EngineError::Unusable {
            workflow: id.to_owned(),
            version,
            what,
        };
        let plan = aside(text.len(), || StoredPlan::decode(&text)).map_err(|error| unusable(error.to_string()))?;
        let compiled = self.prepare(plan).map_err(unusable)?;
        let mut plans = self.lock_plans();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, compiled.clone());
        Ok(compiled)
    }

    /// Compiles a version that was published before plans were stored, once and without limits, and stores its plan.
    async fn settle(&self, uid: Uuid, id: &str, version: u32) -> Result<String, EngineError> {
        let source = self.definition(uid, id, version).await?.source;
        let settings = self.settings.for_published();
        let compiled = aside(source.len(), || {
            let document = Document::parse(&source, id, &settings.document)?;
            fermata_dialects::compile(&document, &settings, &self.registry, Stage::Settle)
        });
        let plan = compiled.map_err(|problems| EngineError::Unusable {
            workflow: id.to_owned(),
            version,
            what: problems.to_string(),
        })?;
        let plan = plan.plan.encode();
        let stored = self.store.add_plan(uid, version, &plan, self.clock.now()).await?;
        stored.ok_or_else(|| self.no_version(id, version))
    }

    fn no_version(&self, id: &str, version: u32) -> EngineError {
        let workflow = id.to_owned();
        Refusal::VersionNotFound { workflow, version }.into()
    }

    pub(crate) fn prepare(&self, plan: Plan) -> Result<Arc<Compiled>, String> {
        let bytes = plan.nodes.len() * NODE_BYTES;
        let metrics = self.metrics.workflow(&plan.workflow);
        let compiled = aside(bytes, || {
            Compiled::new(Arc::new(plan), &self.settings.templates, metrics)
        });
        compiled.map(Arc::new).map_err(|error| error.to_string())
    }

    /// Installs a plan that was built by hand as a version of the workflow `uid`, as if it had been compiled.
    pub fn install(&self, uid: Uuid, plan: Plan, version: u32) -> Result<(), EngineError> {
        let workflow = plan.workflow.clone();
        let unusable = |what| EngineError::Unusable {
            workflow,
            version,
            what,
        };
        let compiled = self.prepare(plan).map_err(unusable)?;
        self.lock_plans().insert((uid, version), compiled);
        Ok(())
    }

    /// Removes the cached state of a workflow that changes.
    fn forget_head(&self, uid: Uuid) {
        self.lock_heads().retain(|_, heads| {
            heads.retain(|_, head| head.uid != uid);
            !heads.is_empty()
        });
    }

    fn lock_heads(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, Head>>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_plans(&self) -> MutexGuard<'_, HashMap<(Uuid, u32), Arc<Compiled>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
