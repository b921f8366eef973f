//! Workflows, their drafts and their immutable versions.
//!
//! A workflow belongs to a tenant, or to none: then it is shared, and every tenant may use it. A name is unique within its
//! tenant, and a tenant's own workflow hides a shared one of the same name from that tenant. The tenant of a workflow never
//! changes.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Workflows: their drafts, immutable versions and plans. The key of a workflow is its uid; look up a name first.
#[async_trait]
pub trait WorkflowStore: Send + Sync {
    /// Saves a draft and creates the workflow if needed. The rule says which lifecycle states allow it; the guard is a
    /// condition on the draft that is replaced.
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved>;

    /// The draft of a workflow, if it has one.
    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>>;

    /// Publishes the draft with this checksum as the newest version, and makes it current if the activation says so. If
    /// the newest version has the same document, no new version is created. The draft is deleted. Publishing again with
    /// the checksum of the newest version returns that version. An archived workflow is refused.
    ///
    /// The plan is stored with the version. A version that has a plan keeps it.
    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published>;

    /// Saves a document and makes it the current version of an active workflow in one step, as `save_draft` and
    /// `publish` would, but without a visible draft. An existing draft is deleted.
    async fn release(&self, release: Release) -> Result<Released>;

    /// Makes the draft with this checksum the newest version of a workflow in `Draft`, unless the newest version has
    /// the same document. The draft is kept. Used for runs of unpublished documents. The plan is stored as by
    /// `publish`.
    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published>;

    /// Deletes a workflow in `Draft` or `Archived` that has no runs, with its draft and versions. Their version numbers
    /// are not used again by a later workflow of the same name.
    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted>;

    /// Soft-deletes a workflow in any state. Its name is free and it accepts no new runs. Its row and its versions
    /// stay, so existing runs continue. False if there is no such workflow.
    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool>;

    /// Changes the status, the enabled flag or the current version, if the present status is one of `change.from`. `None` if there is no
    /// such workflow; otherwise the workflow after the call and whether the change was allowed.
    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>>;

    /// The workflow that a tenant means by this name: its own, else the shared one. An empty tenant finds shared ones only.
    /// Deleted workflows are not found.
    async fn workflow(&self, tenant: &str, name: &str) -> Result<Option<Workflow>>;

    /// The workflow with this uid, including soft-deleted ones: see [`Workflow::deleted_at`].
    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>>;

    /// Workflows by name and tenant, without deleted ones.
    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>>;

    /// An immutable version. Versions of soft-deleted workflows are kept.
    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>>;

    /// The plan of a version, as text; `None` if the version was published before plans were stored.
    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>>;

    /// Stores the plan of a version that has none. Returns the plan that the version has now: another process may have
    /// stored one first. `None` if there is no such version.
    async fn add_plan(&self, workflow: Uuid, version: u32, plan: &str, at: Timestamp) -> Result<Option<String>>;

    /// The versions of a workflow, newest first; only those before `before`, if given.
    async fn versions(&self, workflow: Uuid, before: Option<u32>, limit: u32) -> Result<Page<VersionRow>>;
}

/// The lifecycle of a workflow: `Draft → Active → Archived → Active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Lifecycle {
    Draft,
    Active,
    Archived,
}

impl Lifecycle {
    /// The word used in the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Draft => "Draft",
            Lifecycle::Active => "Active",
            Lifecycle::Archived => "Archived",
        }
    }

    /// The state called `word`, in any case.
    pub fn parse(word: &str) -> Option<Lifecycle> {
        let all = [Lifecycle::Draft, Lifecycle::Active, Lifecycle::Archived];
        all.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(word))
    }
}

/// A workflow's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    /// Its name, from the document. Unique among the workflows of its tenant that were not deleted.
    pub id: String,
    /// The tenant that it belongs to. Empty: it is shared.
    pub tenant: String,
    /// Its key, a UUIDv7. A workflow that is created again under the name of a deleted one gets a new uid.
    pub uid: Uuid,
    /// Its display name.
    pub display_name: String,
    /// Its description.
    pub description: Option<String>,
    /// The dialect of its current version; of its newest document while there is none.
    pub dialect: String,
    /// The version that new runs use.
    pub current_version: Option<u32>,
    /// The newest version.
    pub latest_version: Option<u32>,
    /// Its lifecycle state.
    pub status: Lifecycle,
    /// Whether new runs may start.
    pub enabled: bool,
    /// When it was first saved.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was soft-deleted. A soft-deleted workflow exists for its runs only, and its name is free.
    pub deleted_at: Option<Timestamp>,
    /// When it was paused, if it is: runs that have not begun wait.
    pub paused_at: Option<Timestamp>,
}

impl Workflow {
    /// A new workflow for this draft.
    pub(crate) fn new(draft: &Draft, uid: Uuid) -> Workflow {
        Workflow {
            id: draft.id.clone(),
            tenant: draft.tenant.clone(),
            uid,
            display_name: draft.display_name.clone(),
            description: draft.description.clone(),
            dialect: draft.dialect.clone(),
            current_version: None,
            latest_version: None,
            status: Lifecycle::Draft,
            enabled: true,
            created_at: draft.at,
            updated_at: draft.at,
            deleted_at: None,
            paused_at: None,
        }
    }

    /// Records that a draft was saved. A workflow with a version keeps showing that version until the draft is
    /// published.
    pub(crate) fn has_draft(&mut self, draft: &Draft) {
        if self.latest_version.is_none() {
            self.shows(draft);
        }
        self.updated_at = draft.at;
    }

    /// Takes the display name, description and dialect from this document.
    fn shows(&mut self, draft: &Draft) {
        self.display_name.clone_from(&draft.display_name);
        self.description.clone_from(&draft.description);
        self.dialect.clone_from(&draft.dialect);
    }
}

/// A document that can still change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The workflow's name.
    pub id: String,
    /// The tenant of the workflow; empty for a shared one.
    pub tenant: String,
    /// From the document.
    pub display_name: String,
    /// From the document.
    pub description: Option<String>,
    /// The dialect.
    pub dialect: String,
    /// The bytes that were sent.
    pub source: Vec<u8>,
    /// SHA-256 of the canonical JSON, lower-case hex. Also the draft's ETag.
    pub checksum: String,
    /// When it was saved.
    pub at: Timestamp,
}

/// A condition on the stored draft, for another one to replace it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftGuard {
    /// The draft has one of these checksums.
    Is(Vec<String>),
    /// A draft exists.
    Present,
    /// No draft exists.
    Absent,
}

impl DraftGuard {
    /// Whether it holds for a draft with this checksum (`None`: there is no draft).
    pub(crate) fn holds(&self, there: Option<&str>) -> bool {
        match self {
            DraftGuard::Is(checksums) => there.is_some_and(|there| checksums.iter().any(|checksum| checksum == there)),
            DraftGuard::Present => there.is_some(),
            DraftGuard::Absent => there.is_none(),
        }
    }
}

/// Which states allow a draft to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftRule {
    /// A workflow of this name and of exactly this tenant that does not exist yet or is in `Draft`.
    NewOrDraft {
        /// The uid of a workflow that is created.
        uid: Uuid,
        /// The most workflows of the tenant, this one included, if it is limited. All processes count together.
        most: Option<u32>,
    },
    /// This workflow, in any state, if it was not deleted. The current version stays until the draft is published.
    Existing {
        /// Its uid.
        uid: Uuid,
    },
}

/// The result of saving a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// It was saved; `created` if the workflow is new.
    Saved {
        /// Whether the workflow is new.
        created: bool,
    },
    /// The lifecycle state does not allow it.
    Refused(Lifecycle),
    /// There is no such workflow.
    NotFound,
    /// The guard does not hold. This is the checksum of the stored draft (`None`: there is no draft).
    Changed(Option<String>),
    /// The workflow would be new, and the tenant has as many as it may have.
    Full,
}

/// Whether a published version becomes the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The version is published but not made current.
    Stage,
    /// The version becomes the current one, and the workflow becomes active.
    Activate {
        /// Whether new runs may start.
        enabled: bool,
    },
}

/// A published document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The workflow as it is now.
    pub workflow: Workflow,
    /// The version.
    pub version: u32,
    /// Whether the version is new. False if the newest version had the same document.
    pub created: bool,
}

/// The result of a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a publish returns one, mostly the large variant"
)]
pub enum Published {
    /// The draft was published as this version.
    Version(Publication),
    /// The draft has another checksum.
    Changed,
    /// There is no draft to publish.
    NoDraft,
    /// The lifecycle state does not allow it.
    Refused(Lifecycle),
    /// There is no such workflow.
    NotFound,
}

/// A document that becomes the current version in one step, without a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The document.
    pub draft: Draft,
    /// Whether the workflow must be new or must exist.
    pub rule: ReleaseRule,
    /// Whether new runs may start.
    pub enabled: bool,
    /// The compiled plan, as text.
    pub plan: String,
}

/// Whether the workflow of a release must be new or must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseRule {
    /// The workflow must not exist.
    New {
        /// The uid of the new workflow.
        uid: Uuid,
        /// The most workflows of the tenant, this one included, if it is limited. All processes count together.
        most: Option<u32>,
    },
    /// This workflow, if it was neither deleted nor archived.
    Existing {
        /// Its uid.
        uid: Uuid,
        /// If given, this must still be its latest version.
        after: Option<u32>,
    },
}

/// The result of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a publish returns one, mostly the large variant"
)]
pub enum Released {
    /// The document is the current version.
    Version(Publication),
    /// The workflow exists already, in this state.
    Exists(Lifecycle),
    /// The lifecycle state does not allow it.
    Refused(Lifecycle),
    /// Another version was published meanwhile.
    Changed,
    /// There is no such workflow.
    NotFound,
    /// The tenant has as many workflows as it may have.
    Full,
}

/// What happens to the draft and the workflow when a draft is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishMode {
    /// The draft is deleted.
    Publish(Activation),
    /// Only runs that are pinned to the version use it. The draft is kept. For workflows in `Draft` only.
    Snapshot,
}

impl PublishMode {
    /// Whether a workflow in this state can be published in this mode. An archived workflow must be reactivated first.
    pub(crate) fn is_for(self, status: Lifecycle) -> bool {
        match self {
            PublishMode::Publish(_) => status != Lifecycle::Archived,
            PublishMode::Snapshot => status == Lifecycle::Draft,
        }
    }

    /// Whether the published version becomes the current one.
    pub(crate) fn activates(self) -> bool {
        matches!(self, PublishMode::Publish(Activation::Activate { .. }))
    }

    /// Updates the row of a workflow after `draft` was published as `version` (no draft: the version existed already).
    pub(crate) fn apply(self, workflow: &mut Workflow, draft: Option<&Draft>, version: u32, at: Timestamp) {
        // Shown is the current version, or the newest while there is no current one.
        let shown = match self {
            PublishMode::Publish(Activation::Activate { .. }) => true,
            PublishMode::Publish(Activation::Stage) => workflow.current_version.is_none(),
            PublishMode::Snapshot => false,
        };
        if let Some(draft) = draft.filter(|_| shown) {
            workflow.shows(draft);
        }
        workflow.latest_version = Some(version);
        if let PublishMode::Publish(Activation::Activate { enabled }) = self {
            workflow.current_version = Some(version);
            (workflow.status, workflow.enabled) = (Lifecycle::Active, enabled);
        }
        workflow.updated_at = at;
    }
}

/// The result of deleting a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The workflow was deleted, with its draft and versions.
    Deleted,
    /// The lifecycle state does not allow it.
    Refused(Lifecycle),
    /// The workflow has runs, which refer to its versions.
    HasRuns(Lifecycle),
    /// There is no such workflow.
    NotFound,
}

/// A change of the status, of the enabled flag or of the current version. What is `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enablement {
    /// The states in which it is allowed.
    pub from: Vec<Lifecycle>,
    /// The state to change to.
    pub status: Option<Lifecycle>,
    /// Whether new runs may start.
    pub enabled: Option<bool>,
    /// An existing version that becomes the current one.
    pub version: Option<VersionShown>,
    /// Whether new runs wait ([`crate::flow`]).
    pub paused: Option<bool>,
}

/// A version, with what lists show of its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionShown {
    /// The version.
    pub version: u32,
    /// The name for people.
    pub display_name: String,
    /// The description, if there is one.
    pub description: Option<String>,
    /// The dialect.
    pub dialect: String,
}

impl Enablement {
    /// Changes the row of a workflow; `false`, and no change, if its status does not allow it.
    pub(crate) fn apply(&self, workflow: &mut Workflow, at: Timestamp) -> bool {
        if !self.from.contains(&workflow.status) {
            return false;
        }
        workflow.status = self.status.unwrap_or(workflow.status);
        workflow.enabled = self.enabled.unwrap_or(workflow.enabled);
        workflow.paused_at = match self.paused {
            Some(true) => workflow.paused_at.or(Some(at)),
            Some(false) => None,
            None => workflow.paused_at,
        };
        if let Some(shown) = &self.version {
            workflow.current_version = Some(shown.version);
            workflow.display_name.clone_from(&shown.display_name);
            workflow.description.clone_from(&shown.description);
            workflow.dialect.clone_from(&shown.dialect);
        }
        workflow.updated_at = at;
        true
    }
}

/// An immutable version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The workflow's name.
    pub workflow_id: String,
    /// From 1.
    pub version: u32,
    /// The dialect.
    pub dialect: String,
    /// The bytes that were sent.
    pub source: Vec<u8>,
    /// SHA-256 of the canonical JSON, lower-case hex.
    pub checksum: String,
    /// When it was published.
    pub created_at: Timestamp,
}

/// An immutable version without its document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct VersionRow {
    pub version: u32,
    pub dialect: String,
    pub checksum: String,
    pub created_at: Timestamp,
}

/// Which workflows to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkflowFilter {
    /// Only workflows in this state.
    pub status: Option<Lifecycle>,
    /// Only workflows with this enabled flag.
    pub enabled: Option<bool>,
    /// Only workflows whose id or display name contains this text, ignoring case.
    pub search: Option<String>,
    /// Only workflows of this dialect, ignoring case.
    pub dialect: Option<String>,
    /// `None`: of all tenants. Otherwise those that the tenant sees: its own, and the shared ones that its own do not hide. An
    /// empty tenant sees shared ones only.
    pub tenant: Option<String>,
    /// Only workflows after this (name, tenant), for paging.
    pub after: Option<(String, String)>,
    /// At most this many.
    pub limit: u32,
}

impl WorkflowFilter {
    /// Whether a workflow matches the filter, apart from the range of the page.
    pub(crate) fn fits(&self, workflow: &Workflow) -> bool {
        let contains = |needle: &str| {
            let needle = needle.to_lowercase();
            workflow.id.to_lowercase().contains(&needle) || workflow.display_name.to_lowercase().contains(&needle)
        };
        self.status.is_none_or(|status| status == workflow.status)
            && self.enabled.is_none_or(|enabled| enabled == workflow.enabled)
            && self.search.as_deref().is_none_or(contains)
            && self
                .dialect
                .as_deref()
                .is_none_or(|dialect| dialect.eq_ignore_ascii_case(&workflow.dialect))
    }
}
