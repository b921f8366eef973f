//! Workflows of dialects without drafts: creating and replacing publish at once, deleting is soft.
//!
//! What must stay true: whether a workflow has drafts depends on its dialect only. A workflow whose dialect has drafts is never
//! published without one.

use super::{Command, PublishedWorkflow, SavedWorkflow, WorkflowsOf};
use crate::error::{EngineError, Refusal};
use fermata_dialects::{Compiled as CompiledDocument, Dialect, Document, Stage};
use fermata_store::{
    audit::describe,
    definitions::{DraftGuard, Release, ReleaseRule, Released, Workflow},
};
use uuid::Uuid;

/// The result of adding a document.
#[derive(Debug, Clone)]
pub enum Added {
    /// A draft, to be published when it is ready.
    Draft(SavedWorkflow),
    /// The first version of a new workflow.
    Published(PublishedWorkflow),
}

/// An optional prefix of references.
const PREFIX: &str = "wf_";

/// Whether workflows of this dialect have drafts. An unknown dialect is treated as one that has.
pub(super) fn has_drafts(dialect: &str) -> bool {
    Dialect::parse(dialect).is_none_or(Dialect::has_drafts)
}

impl WorkflowsOf<'_> {
    /// Adds a new document: as a draft if its dialect has drafts, else as the first version of a new workflow.
    pub async fn add(&self, source: &[u8], name: &str) -> Result<Added, EngineError> {
        self.add_if(source, name, None).await
    }

    /// The same. A draft is saved only if the guard holds.
    pub async fn add_if(&self, source: &[u8], name: &str, guard: Option<DraftGuard>) -> Result<Added, EngineError> {
        let document = self.parse(source, name)?;
        if document.dialect().is_none_or(Dialect::has_drafts) {
            let compiled = self.examine(&document, Stage::Save).await?;
            let rule = self.new_or_draft();
            let saved = self.keep(source, &document, compiled, rule, guard).await?;
            return Ok(Added::Draft(saved));
        }
        let compiled = self.examine(&document, Stage::Publish).await?;
        let rule = ReleaseRule::New {
            uid: Uuid::now_v7(),
            most: self.most_workflows(),
        };
        let published = self.release(source, &document, compiled, rule).await?;
        Ok(Added::Published(published))
    }

    /// Publishes a document as the current version of an existing workflow whose dialect has no drafts. Started runs stay on
    /// their version.
    pub async fn replace(&self, reference: &str, source: &[u8], name: &str) -> Result<PublishedWorkflow, EngineError> {
        self.replace_expecting(reference, source, name, None).await
    }

    /// As [`WorkflowsOf::replace`]; with `expected`, only if the latest document has this version.
    pub async fn replace_expecting(
        &self,
        reference: &str,
        source: &[u8],
        name: &str,
        expected: Option<&str>,
    ) -> Result<PublishedWorkflow, EngineError> {
        let workflow = self.resolve_to_change(reference).await?;
        let document = self.parse(source, name)?;
        let of_document = document.dialect();
        if has_drafts(&workflow.dialect) || of_document.is_some_and(Dialect::has_drafts) {
            return Err(Refusal::HasDrafts(workflow.id).into());
        }
        let owner = self.all.of(&workflow.tenant);
        let compiled = owner.examine(&document, Stage::Publish).await?;
        if compiled.plan.dialect != workflow.dialect {
            let (wanted, found) = (workflow.dialect.clone(), compiled.plan.dialect.clone());
            let workflow = workflow.id.clone();
            return Err(Refusal::OtherDialect {
                workflow,
                wanted,
                found,
            }
            .into());
        }
        if compiled.plan.workflow != workflow.id {
            let (wanted, found) = (workflow.id.clone(), compiled.plan.workflow.clone());
            return Err(Refusal::OtherWorkflow { wanted, found }.into());
        }
        let after = self.check_revision(&workflow, &document, expected).await?;
        let rule = ReleaseRule::Existing {
            uid: workflow.uid,
            after,
        };
        owner.release(source, &document, compiled, rule).await
    }

    /// Publishes a checked document.
    pub(super) async fn release(
        &self,
        source: &[u8],
        document: &Document,
        compiled: CompiledDocument,
        rule: ReleaseRule,
    ) -> Result<PublishedWorkflow, EngineError> {
        let release = Release {
            draft: self.draft_of(source, document, &compiled),
            rule,
            enabled: compiled.enabled,
            plan: compiled.plan.encode(),
        };
        let workflow = release.draft.id.clone();
        if let ReleaseRule::Existing { uid, .. } = rule {
            self.describe_change(uid, &release.draft.checksum).await?;
        } else {
            describe(|row| {
                row.target.clone_from(&workflow);
                row.after = Some(release.draft.checksum.clone());
            });
        }
        let released = self.store.release(release).await?;
        match released {
            Released::Version(publication) => {
                self.forget_head(publication.workflow.uid);
                self.hand_over_places(publication.workflow.uid).await;
                Ok(PublishedWorkflow::new(publication, compiled))
            }
            Released::Exists(status) => Err(Refusal::Exists { workflow, status }.into()),
            Released::Refused(status) => Err(Command::Publish.refused(&workflow, status)),
            Released::Changed => Err(Refusal::Republished(workflow).into()),
            Released::NotFound => Err(Refusal::WorkflowNotFound(workflow).into()),
            Released::Full => Err(self.no_room().into()),
        }
    }

    /// The workflow of a reference: its name or its uid, with or without the prefix `wf_`.
    pub(crate) async fn resolve(&self, reference: &str) -> Result<Workflow, EngineError> {
        let found = self.find(reference).await?;
        let live = found.filter(|workflow| workflow.deleted_at.is_none());
        live.ok_or_else(|| Refusal::WorkflowNotFound(reference.to_owned()).into())
    }

    /// As [`WorkflowsOf::resolve`], for a change: a tenant changes only its own workflows.
    pub(super) async fn resolve_to_change(&self, reference: &str) -> Result<Workflow, EngineError> {
        let workflow = self.resolve(reference).await?;
        describe(|row| {
            row.target.clone_from(&workflow.id);
            if self.tenant.is_empty() {
                row.tenant.clone_from(&workflow.tenant);
            }
        });
        match workflow.tenant == self.tenant || self.tenant.is_empty() {
            true => Ok(workflow),
            false => Err(Refusal::Shared(workflow.id).into()),
        }
    }

    /// As [`WorkflowsOf::resolve`], but also finds a deleted workflow, by its uid: its runs are still readable.
    pub(crate) async fn find(&self, reference: &str) -> Result<Option<Workflow>, EngineError> {
        for name in [Some(reference), reference.strip_prefix(PREFIX)].into_iter().flatten() {
            if let Some(workflow) = self.store.workflow(self.tenant, name).await? {
                return Ok(Some(workflow));
            }
            let Ok(uid) = Uuid::try_parse(name) else {
                continue;
            };
            let found = self.store.workflow_by_uid(uid).await?;
            if let Some(workflow) = found.filter(|workflow| self.sees(workflow)) {
                return Ok(Some(workflow));
            }
        }
        Ok(None)
    }

    /// Whether the tenant may know of this workflow.
    fn sees(&self, workflow: &Workflow) -> bool {
        self.sees_all || workflow.tenant.is_empty() || workflow.tenant == self.tenant
    }
}
