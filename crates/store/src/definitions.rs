//! Workflows, their drafts and their immutable versions.

use crate::{Result, reads::Page};
use async_trait::async_trait;
use fermata_core::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Workflows: their drafts, their immutable versions and their plans. A workflow is known by its uid; its name is
/// looked up first.
#[async_trait]
pub trait WorkflowStore: Send + Sync {
    /// Saves a draft, creating the workflow if needed. The rule says which states allow it, the guard what must be
    /// true of the draft that it replaces.
    async fn save_draft(&self, draft: Draft, rule: DraftRule, guard: Option<DraftGuard>) -> Result<Saved>;

    /// The draft of a workflow, if it has one.
    async fn draft(&self, workflow: Uuid) -> Result<Option<Draft>>;

    /// Makes the draft with this checksum the newest version, unless the newest already is the same,
    /// and the current one if the activation says so. The draft is gone then; publishing again with the checksum of
    /// the newest version finds that version. An archived workflow is refused.
    ///
    /// The plan is stored with the version. A version that has one keeps it.
    async fn publish(
        &self,
        workflow: Uuid,
        checksum: &str,
        plan: &str,
        activation: Activation,
        at: Timestamp,
    ) -> Result<Published>;

    /// Saves a document and makes it the current version of an active workflow, as `save_draft` and `publish` would,
    /// but at once: nobody sees it as a draft. A draft that was there is gone.
    async fn release(&self, release: Release) -> Result<Released>;

    /// Makes the draft with this checksum the newest version of a workflow that is a draft, unless the newest already
    /// is the same. The draft stays as it is: for runs of what is not published. The plan is stored as by `publish`.
    async fn snapshot(&self, workflow: Uuid, checksum: &str, plan: &str, at: Timestamp) -> Result<Published>;

    /// Removes a workflow that is a draft or archived and has no runs, with its draft and its versions. Their numbers
    /// are not used again when a workflow of this name is created.
    async fn delete_workflow(&self, workflow: Uuid) -> Result<Deleted>;

    /// Deletes a workflow in whatever state and leaves its runs in peace: its name is free and it takes no new runs, but
    /// its row and its versions stay, and runs that there are go on. False if there is no such workflow.
    async fn soft_delete_workflow(&self, workflow: Uuid, at: Timestamp) -> Result<bool>;

    /// Changes status or the enabled flag, if the status now is one of `change.from`.
    /// `None` if there is no such workflow; otherwise the workflow as it is now and whether the change was allowed.
    async fn set_enablement(
        &self,
        workflow: Uuid,
        change: Enablement,
        at: Timestamp,
    ) -> Result<Option<(Workflow, bool)>>;

    /// The workflow that has this name now. One that was deleted has none.
    async fn workflow(&self, name: &str) -> Result<Option<Workflow>>;

    /// The workflow with this uid, also one that was soft-deleted: see [`Workflow::deleted_at`].
    async fn workflow_by_uid(&self, uid: Uuid) -> Result<Option<Workflow>>;

    /// Workflows by name, without those that were deleted.
    async fn workflows(&self, filter: WorkflowFilter) -> Result<Page<Workflow>>;

    /// An immutable version. Those of workflows that were soft-deleted stay.
    async fn definition(&self, workflow: Uuid, version: u32) -> Result<Option<Definition>>;

    /// The plan of a version, as text; `None` if the version was published before plans were stored.
    async fn plan(&self, workflow: Uuid, version: u32) -> Result<Option<String>>;

    /// Stores the plan of a version that has none. Answers the plan that the version has now: another process may have
    /// been first. `None` if there is no such version.
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
    /// Its name, from the document. No two workflows have the same, except those that were deleted.
    pub id: String,
    /// Its key, a UUIDv7: a workflow that is created again under a name that was deleted has another one.
    pub uid: Uuid,
    /// What people call it.
    pub display_name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The dialect of its newest document.
    pub dialect: String,
    /// The version that new runs use.
    pub current_version: Option<u32>,
    /// The newest version there is.
    pub latest_version: Option<u32>,
    /// Where it stands.
    pub status: Lifecycle,
    /// Whether new runs may start.
    pub enabled: bool,
    /// When it was first saved.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was soft-deleted: it is there for its runs only, and its name is free.
    pub deleted_at: Option<Timestamp>,
}

impl Workflow {
    /// A workflow that is made with this draft.
    pub(crate) fn new(draft: &Draft, uid: Uuid) -> Workflow {
        Workflow {
            id: draft.id.clone(),
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
        }
    }

    /// A draft was saved. A workflow that has a version shows that until the draft is published.
    pub(crate) fn has_draft(&mut self, draft: &Draft) {
        if self.latest_version.is_none() {
            self.shows(draft);
        }
        self.updated_at = draft.at;
    }

    /// What people see of it is from this document now.
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

/// What must be true of the draft that is there, for another one to replace it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftGuard {
    /// It has one of these checksums.
    Is(Vec<String>),
    /// There is one.
    Present,
    /// There is none.
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
    /// A workflow that does not exist yet or is a draft.
    NewOrDraft {
        /// What a new one is known by.
        uid: Uuid,
    },
    /// This workflow, if it was not deleted, whatever its state: the draft waits beside the current version.
    Existing {
        /// Which one.
        uid: Uuid,
    },
}

/// What became of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// It was saved; `created` if the workflow is new.
    Saved {
        /// Whether the workflow is new.
        created: bool,
    },
    /// The workflow is in a state that does not allow it.
    Refused(Lifecycle),
    /// There is no such workflow.
    NotFound,
    /// The guard does not hold; this is the checksum of the draft there is (`None`: there is no draft).
    Changed(Option<String>),
}

/// Whether new runs use a version from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The version waits to be made current.
    Stage,
    /// It is the current one of an active workflow.
    Activate {
        /// Whether new runs may start.
        enabled: bool,
    },
}

/// A document that is a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The workflow as it is now.
    pub workflow: Workflow,
    /// The version.
    pub version: u32,
    /// Whether it is new, or the newest was the same already.
    pub created: bool,
}

/// What became of a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The draft is a version now.
    Version(Publication),
    /// The draft is another one by now.
    Changed,
    /// There is no draft to publish.
    NoDraft,
    /// The workflow is in a state that does not allow it.
    Refused(Lifecycle),
    /// There is no such workflow.
    NotFound,
}

/// A document that becomes the current version at once, without having been a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The document.
    pub draft: Draft,
    /// Which workflows it is for.
    pub rule: ReleaseRule,
    /// Whether new runs may start.
    pub enabled: bool,
    /// What it compiled to, as text.
    pub plan: String,
}

/// Which workflows a release is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseRule {
    /// One that does not exist yet.
    New {
        /// What it is known by.
        uid: Uuid,
    },
    /// This one, if it was not deleted and is not archived.
    Existing {
        /// Which one.
        uid: Uuid,
    },
}

/// What became of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The document is the current version.
    Version(Publication),
    /// There is such a workflow already, in this state.
    Exists(Lifecycle),
    /// The workflow is in a state that does not allow it.
    Refused(Lifecycle),
    /// There is no such workflow.
    NotFound,
}

/// What becomes of the draft and the workflow when a draft is made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishMode {
    /// The draft is gone.
    Publish(Activation),
    /// Only a run that names the version uses it; the draft stays as it is. For workflows in `Draft` only.
    Snapshot,
}

impl PublishMode {
    /// Whether a workflow in this state can be published so. What is archived is reactivated first.
    pub(crate) fn is_for(self, status: Lifecycle) -> bool {
        match self {
            PublishMode::Publish(_) => status != Lifecycle::Archived,
            PublishMode::Snapshot => status == Lifecycle::Draft,
        }
    }

    /// Changes the row of a workflow of which `draft` is `version` now (no draft: it was that version before).
    pub(crate) fn apply(self, workflow: &mut Workflow, draft: Option<&Draft>, version: u32, at: Timestamp) {
        // What people see is the current version, or the newest while there is none.
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

/// What became of a wish to remove a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, with its draft and its versions.
    Deleted,
    /// It is in a state that does not allow it.
    Refused(Lifecycle),
    /// There are runs of it, which refer to its versions.
    HasRuns(Lifecycle),
    /// There is no such workflow.
    NotFound,
}

/// A change of status or of the enabled flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enablement {
    /// The states in which it is allowed.
    pub from: Vec<Lifecycle>,
    /// The state to change to, if any.
    pub status: Option<Lifecycle>,
    /// Whether new runs may start.
    pub enabled: bool,
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
    /// Only in this state.
    pub status: Option<Lifecycle>,
    /// Only with this flag.
    pub enabled: Option<bool>,
    /// Only those whose id or name contains this, in any case.
    pub search: Option<String>,
    /// Only of this dialect, in any case.
    pub dialect: Option<String>,
    /// Only ids after this one.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}

impl WorkflowFilter {
    /// Whether a workflow is one of those to list, wherever the page begins.
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
