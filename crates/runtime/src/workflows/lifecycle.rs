//! The lifecycle of a workflow: Draft → Active → Archived → Active.
//!
//! | command | Draft | Active | Archived |
//! | --- | --- | --- | --- |
//! | save | Draft | immutable | immutable |
//! | put draft | Draft | Active | Archived |
//! | publish | Active (or Draft, staged) | Active | refused: reactivate first |
//! | archive | refused | Archived, disabled | refused |
//! | reactivate | refused | refused | Active, enabled |
//! | enable, disable, pause, resume | refused | Active | refused |
//! | activate a version | Active | Active | refused: reactivate first |
//! | delete | deleted | refused: archive first | deleted |
//!
//! A workflow whose dialect has no drafts is created, replaced and deleted differently (see [`super::release`]): it can be
//! deleted in any state.
//!
//! What must stay true: the store decides from its current state, in one transaction; the cached state here is removed with
//! every change. What a run refers to is never deleted.

use super::{Head, WorkflowsOf, aside, release::has_drafts};
use crate::error::{EngineError, Refusal};
use Command::*;
use fermata_core::Plan;
use fermata_dialects::{Diagnostic, Diagnostics, Document, Stage};
use fermata_store::{
    definitions::{Deleted, DraftGuard, DraftRule, Enablement, Lifecycle, Published, VersionShown, Workflow},
    flow::{RELEASED_AT_ONCE, Swept, places_of},
};
use uuid::Uuid;

/// Runs that one transaction makes due when their workflow is archived.
const WOKEN_AT_ONCE: u32 = 500;
/// Keys of which one transaction hands over free places.
const SWEPT_AT_ONCE: u32 = 50;
/// How often the keys of a workflow are swept at most when its limit changed: each time a key hands over at most 100 places.
const MOST_SWEEPS: u32 = 1000;

/// A command whose legality depends on the state of the workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Command {
    Publish,
    Archive,
    Reactivate,
    Enable,
    Disable,
    Pause,
    Resume,
    Activate,
    Delete,
}

impl Command {
    /// The states in which it is allowed.
    pub fn allowed_in(self) -> &'static [Lifecycle] {
        match self {
            Publish | Activate => &[Lifecycle::Draft, Lifecycle::Active],
            Archive | Enable | Disable | Pause | Resume => &[Lifecycle::Active],
            Reactivate => &[Lifecycle::Archived],
            Delete => &[Lifecycle::Draft, Lifecycle::Archived],
        }
    }

    /// Its result: the new state, if that changes, and whether new runs may start.
    fn change(self) -> (Option<Lifecycle>, Option<bool>) {
        match self {
            Archive => (Some(Lifecycle::Archived), Some(false)),
            Publish | Reactivate => (Some(Lifecycle::Active), Some(true)),
            Activate => (Some(Lifecycle::Active), None),
            Enable => (None, Some(true)),
            Disable | Delete => (None, Some(false)),
            Pause | Resume => (None, None),
        }
    }

    pub(crate) fn done(self) -> &'static str {
        match self {
            Publish => "published",
            Archive => "archived",
            Reactivate => "reactivated",
            Enable => "enabled",
            Disable => "disabled",
            Pause => "paused",
            Resume => "resumed",
            Activate => "given another version",
            Delete => "deleted",
        }
    }

    /// What to do in a state that does not allow it.
    pub(crate) fn instead(self, status: Lifecycle) -> &'static str {
        match (self, status) {
            (Archive | Enable | Disable | Pause | Resume | Reactivate, Lifecycle::Draft) => {
                "a Draft can be published or deleted"
            }
            (Delete, Lifecycle::Active) => "archive it first",
            (_, Lifecycle::Draft) => "a Draft can be saved, published or deleted",
            (_, Lifecycle::Active) => {
                "an Active workflow can be enabled, disabled, paused, resumed, published again or archived"
            }
            (Archive, Lifecycle::Archived) => "it is archived already, and can be reactivated or deleted",
            (_, Lifecycle::Archived) => "reactivate it first",
        }
    }

    pub(crate) fn refused(self, workflow: &str, status: Lifecycle) -> EngineError {
        Refusal::IllegalTransition {
            workflow: workflow.to_owned(),
            command: self,
            status,
        }
        .into()
    }
}

/// A document that was checked and not stored.
#[derive(Debug)]
pub struct Validated {
    /// Its plan and its checksum, or all its problems.
    pub outcome: Result<(Plan, String), Diagnostics>,
    /// Warnings about the document.
    pub warnings: Vec<Diagnostic>,
}

impl WorkflowsOf<'_> {
    /// Active → Archived: no new runs start, and pending ones are cancelled.
    pub async fn archive(&self, reference: &str) -> Result<Workflow, EngineError> {
        self.change(self.resolve_to_change(reference).await?, Archive, None)
            .await
    }

    /// Archived → Active, enabled.
    pub async fn reactivate(&self, reference: &str) -> Result<Workflow, EngineError> {
        self.change(self.resolve_to_change(reference).await?, Reactivate, None)
            .await
    }

    /// Allows an active workflow to start new runs, or forbids it.
    pub async fn set_enabled(&self, reference: &str, enabled: bool) -> Result<Workflow, EngineError> {
        let command = if enabled { Enable } else { Disable };
        self.change(self.resolve_to_change(reference).await?, command, None)
            .await
    }

    /// Makes runs of an active workflow that have not begun wait, or lets them begin. Runs in flight continue.
    pub async fn set_paused(&self, reference: &str, paused: bool) -> Result<Workflow, EngineError> {
        let command = if paused { Pause } else { Resume };
        self.change(self.resolve_to_change(reference).await?, command, None)
            .await
    }

    /// Makes the runs due that waited for a resume: the first ones now, the others in the background, in batches, so that other
    /// work is not stalled. What a crash leaves, the sweep of flow control finds.
    async fn release_paused(&self, workflow: Uuid) {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let released = store.release_paused(workflow, RELEASED_AT_ONCE, clock.now()).await;
        if !released.is_ok_and(|released| released == RELEASED_AT_ONCE) {
            return;
        }
        tokio::spawn(async move {
            while let Ok(RELEASED_AT_ONCE) = store.release_paused(workflow, RELEASED_AT_ONCE, clock.now()).await {}
        });
    }

    /// Makes an existing version the current one. Runs in flight stay on their version, and the enabled flag stays as it
    /// is.
    pub async fn activate(&self, reference: &str, version: u32) -> Result<Workflow, EngineError> {
        let workflow = self.resolve_to_change(reference).await?;
        let (uid, id) = (workflow.uid, &workflow.id);
        let definition = self.definition(uid, id, version).await?;
        let compiled = self.compiled(uid, id, version).await?;
        let parse = || Document::parse(&definition.source, id, &self.settings.document);
        let document = aside(definition.source.len(), parse).ok();
        let description = document.and_then(|document| document.value()["description"].as_str().map(str::to_owned));
        let shown = VersionShown {
            version,
            display_name: compiled.plan.display_name.clone(),
            description,
            dialect: definition.dialect,
        };
        self.change(workflow, Activate, Some(shown)).await
    }

    async fn change(
        &self,
        workflow: Workflow,
        command: Command,
        version: Option<VersionShown>,
    ) -> Result<Workflow, EngineError> {
        let Workflow { uid, id, .. } = workflow;
        let (status, enabled) = command.change();
        // Runs that wait for the resume of an archived workflow become due, and are cancelled.
        let paused = match command {
            Pause => Some(true),
            Resume | Archive => Some(false),
            _ => None,
        };
        let change = Enablement {
            from: command.allowed_in().to_vec(),
            status,
            enabled,
            version,
            paused,
        };
        let changed = self.store.set_enablement(uid, change, self.clock.now()).await?;
        self.forget_head(uid);
        match changed {
            Some((workflow, true)) => {
                if paused == Some(false) {
                    self.release_paused(uid).await;
                }
                match command {
                    Archive => self.wake_waiting(uid).await,
                    Activate => self.hand_over_places(uid).await,
                    _ => {}
                }
                Ok(workflow)
            }
            Some((workflow, false)) => Err(command.refused(&id, workflow.status)),
            None => Err(Refusal::WorkflowNotFound(id).into()),
        }
    }

    /// Makes runs that wait for a place due, after their workflow was archived: their first claim cancels them. Those that are left
    /// after an error are cancelled when a place is free for them.
    async fn wake_waiting(&self, uid: Uuid) {
        loop {
            match self.store.wake_waiting(uid, WOKEN_AT_ONCE, self.clock.now()).await {
                Ok(WOKEN_AT_ONCE) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "runs of an archived workflow that wait for a place are cancelled later");
                    return;
                }
            }
        }
    }

    /// Gives free places of a workflow to runs that wait, after its limit may have changed. The regular sweep does the same for those
    /// that are left after an error.
    pub(super) async fn hand_over_places(&self, uid: Uuid) {
        let (first, last) = places_of(uid);
        for _ in 0..MOST_SWEEPS {
            let mut after = first.clone();
            let mut handed = 0;
            while after < last {
                match self
                    .store
                    .sweep_flow(Some(after), SWEPT_AT_ONCE, self.clock.now())
                    .await
                {
                    Ok(Swept { next, handed: now }) => {
                        handed += now;
                        after = next.unwrap_or_else(|| last.clone());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "free places of a workflow are handed over later");
                        return;
                    }
                }
            }
            if handed == 0 {
                return;
            }
        }
    }

    /// Deletes a workflow that is a draft or archived and has no runs. For dialects without drafts the delete is soft: it is
    /// possible in any state, and runs continue.
    pub async fn delete(&self, reference: &str) -> Result<(), EngineError> {
        let Workflow { uid, id, dialect, .. } = self.resolve_to_change(reference).await?;
        let workflow = id;
        if !has_drafts(&dialect) {
            let deleted = self.store.soft_delete_workflow(uid, self.clock.now()).await?;
            self.forget_head(uid);
            let not_found = || Refusal::WorkflowNotFound(workflow).into();
            return deleted.then_some(()).ok_or_else(not_found);
        }
        let deleted = self.store.delete_workflow(uid).await?;
        self.forget_head(uid);
        match deleted {
            Deleted::Deleted => {
                self.lock_plans().retain(|(of, _), _| *of != uid);
                Ok(())
            }
            Deleted::Refused(status) => Err(Delete.refused(&workflow, status)),
            Deleted::HasRuns(status) => Err(Refusal::HasRuns { workflow, status }.into()),
            Deleted::NotFound => Err(Refusal::WorkflowNotFound(workflow).into()),
        }
    }

    /// Saves a draft beside the current version, if the guard holds.
    pub async fn save_draft(
        &self,
        reference: &str,
        source: &[u8],
        name: &str,
        guard: Option<DraftGuard>,
    ) -> Result<super::SavedWorkflow, EngineError> {
        let Workflow { uid, id, tenant, .. } = self.resolve_to_change(reference).await?;
        let owner = self.all.of(&tenant);
        let (document, compiled) = owner.check_document(source, name, Stage::Save).await?;
        if compiled.plan.workflow != id {
            let (wanted, found) = (id, compiled.plan.workflow.clone());
            return Err(Refusal::OtherWorkflow { wanted, found }.into());
        }
        let rule = DraftRule::Existing { uid };
        owner.keep(source, &document, compiled, rule, guard).await
    }

    /// Checks a document like publishing does, and stores nothing.
    pub async fn validate(&self, source: &[u8], name: &str) -> Result<Validated, EngineError> {
        match self.check_document(source, name, Stage::Publish).await {
            Ok((document, compiled)) => Ok(Validated {
                outcome: Ok((compiled.plan, document.checksum())),
                warnings: compiled.warnings,
            }),
            Err(EngineError::Refused(Refusal::InvalidDocument(problems))) => Ok(Validated {
                outcome: Err(problems),
                warnings: Vec::new(),
            }),
            Err(error) => Err(error),
        }
    }

    /// A version with the current content of a draft, for a run of it; `None` if the draft changed meanwhile.
    pub(crate) async fn snapshot(&self, head: &Head) -> Result<Option<u32>, EngineError> {
        let Some(draft) = self.store.draft(head.uid).await? else {
            let workflow = self.store.workflow_by_uid(head.uid).await?;
            return Ok(workflow.and_then(|workflow| workflow.latest_version));
        };
        let owner = self.all.of(&draft.tenant);
        let (_, compiled) = owner.check_document(&draft.source, &head.id, Stage::Publish).await?;
        let plan = compiled.plan.encode();
        let snapshot = self.store.snapshot(head.uid, &draft.checksum, &plan, self.clock.now());
        match snapshot.await? {
            Published::Version(publication) => Ok(Some(publication.version)),
            Published::Changed | Published::NoDraft | Published::Refused(_) => Ok(None),
            Published::NotFound => Err(Refusal::WorkflowNotFound(head.id.clone()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_what_is_possible() {
        let states = [Lifecycle::Draft, Lifecycle::Active, Lifecycle::Archived];
        for command in [Publish, Archive, Reactivate, Enable, Disable, Activate, Delete] {
            for status in states.iter().filter(|status| !command.allowed_in().contains(status)) {
                let text = command.refused("w", *status).to_string();
                let expected = format!("workflow `w` is {}: it cannot be {}; ", status.as_str(), command.done());
                assert!(
                    text.starts_with(&expected) && text.len() > expected.len() + 10,
                    "{text}"
                );
            }
        }
    }
}
