//! Commands on workflows, as one caller.
//!
//! What must stay true: nothing here takes a uid without checking whose it is. [`WorkflowsOf`] has functions that do, so a session
//! does not give it away.

use crate::{
    Added, PublishedWorkflow, SavedWorkflow, Validated,
    audit::{Recorder, short},
    error::EngineError,
    workflows::WorkflowsOf,
};
use fermata_dialects::jsondagapi::intents::Intent;
use fermata_store::{
    audit::describe,
    definitions::{DraftGuard, Workflow},
};
use serde_json::Value;

/// Commands on workflows, on behalf of one caller. A reference is the id, or the uid with or without `wf_`.
#[derive(Clone, Copy)]
pub struct CallerWorkflows<'a> {
    workflows: WorkflowsOf<'a>,
    recorder: Recorder<'a>,
}

impl<'a> CallerWorkflows<'a> {
    pub(super) fn new(workflows: WorkflowsOf<'a>, recorder: Recorder<'a>) -> CallerWorkflows<'a> {
        CallerWorkflows { workflows, recorder }
    }

    /// Adds a document; see [`WorkflowsOf::add_if`].
    pub async fn add(&self, source: &[u8], name: &str, guard: Option<DraftGuard>) -> Result<Added, EngineError> {
        let command = self.workflows.add_if(source, name, guard);
        self.recorder.record("workflow.create", "", command).await
    }

    /// Replaces the document of a workflow; see [`WorkflowsOf::replace_expecting`].
    pub async fn replace_expecting(
        &self,
        reference: &str,
        source: &[u8],
        name: &str,
        expected: Option<&str>,
    ) -> Result<PublishedWorkflow, EngineError> {
        let command = self.workflows.replace_expecting(reference, source, name, expected);
        self.recorder.record("workflow.replace", reference, command).await
    }

    /// Saves a draft; see [`WorkflowsOf::save_draft`].
    pub async fn save_draft(
        &self,
        reference: &str,
        source: &[u8],
        name: &str,
        guard: Option<DraftGuard>,
    ) -> Result<SavedWorkflow, EngineError> {
        let command = self.workflows.save_draft(reference, source, name, guard);
        self.recorder.record("workflow.save", reference, command).await
    }

    /// Publishes the draft; see [`WorkflowsOf::publish`].
    pub async fn publish(&self, reference: &str, activate: bool) -> Result<PublishedWorkflow, EngineError> {
        let command = self.workflows.publish(reference, activate);
        self.recorder.record("workflow.publish", reference, command).await
    }

    /// Applies intents to the latest version; see [`WorkflowsOf::revise`].
    pub async fn revise(
        &self,
        reference: &str,
        expected: Option<&str>,
        changes: &[Intent],
    ) -> Result<(PublishedWorkflow, Value), EngineError> {
        let command = self.workflows.revise(reference, expected, changes);
        self.recorder.record("workflow.revise", reference, command).await
    }

    /// Makes a version current; see [`WorkflowsOf::activate`].
    pub async fn activate(&self, reference: &str, version: u32) -> Result<Workflow, EngineError> {
        let command = self.workflows.activate(reference, version);
        self.recorder.record("workflow.activate", reference, command).await
    }

    /// Archives a workflow.
    pub async fn archive(&self, reference: &str) -> Result<Workflow, EngineError> {
        let command = self.workflows.archive(reference);
        self.recorder.record("workflow.archive", reference, command).await
    }

    /// Reactivates an archived workflow.
    pub async fn reactivate(&self, reference: &str) -> Result<Workflow, EngineError> {
        let command = self.workflows.reactivate(reference);
        self.recorder.record("workflow.reactivate", reference, command).await
    }

    /// Enables or disables a workflow.
    pub async fn set_enabled(&self, reference: &str, enabled: bool) -> Result<Workflow, EngineError> {
        let action = if enabled { "workflow.enable" } else { "workflow.disable" };
        let command = self.workflows.set_enabled(reference, enabled);
        self.recorder.record(action, reference, command).await
    }

    /// Pauses or resumes a workflow; see [`WorkflowsOf::set_paused`].
    pub async fn set_paused(
        &self,
        reference: &str,
        paused: bool,
        reason: Option<&str>,
    ) -> Result<Workflow, EngineError> {
        let action = if paused { "workflow.pause" } else { "workflow.resume" };
        let command = async {
            describe(|row| row.detail = reason.map(short));
            self.workflows.set_paused(reference, paused).await
        };
        self.recorder.record(action, reference, command).await
    }

    /// Deletes a workflow; see [`WorkflowsOf::delete`].
    pub async fn delete(&self, reference: &str) -> Result<(), EngineError> {
        let command = self.workflows.delete(reference);
        self.recorder.record("workflow.delete", reference, command).await
    }

    /// Checks a document like publishing does, and stores nothing.
    pub async fn validate(&self, source: &[u8], name: &str) -> Result<Validated, EngineError> {
        self.workflows.validate(source, name).await
    }

    /// The number of a version that a document names; see [`WorkflowsOf::version_number`].
    pub async fn version_number(&self, workflow: &Workflow, label: &str) -> Result<u32, EngineError> {
        self.workflows.version_number(workflow, label).await
    }
}
