//! Dry runs, as one caller. Nothing is stored, so nothing is recorded in the audit trail.

use super::Session;
use crate::{
    dry_run::{DryRun, DryRunReport},
    error::{EngineError, Refusal},
};
use fermata_core::Plan;
use fermata_dialects::{Diagnostic, Stage};

/// What a dry run executes.
#[derive(Debug, Clone)]
pub enum DryRunOf {
    /// A document. It is checked like publishing does.
    Document(Vec<u8>),
    /// A stored workflow: a version, by default the current one, or the draft if there is none.
    Workflow {
        /// Its id, or its uid with or without `wf_`.
        reference: String,
        /// A number, or the version that its document names.
        version: Option<String>,
    },
}

impl Session {
    /// Executes a document or a stored workflow without effects; also returns warnings about the document. The tenant and the
    /// principal of the run are those of the caller.
    pub async fn dry_run(
        &self,
        of: DryRunOf,
        mut request: DryRun,
    ) -> Result<(DryRunReport, Vec<Diagnostic>), EngineError> {
        let tenant = self.caller.tenant().unwrap_or_default();
        tenant.clone_into(&mut request.tenant);
        request.principal = self.caller.identity().principal.clone().unwrap_or_default();
        let (plan, warnings) = match of {
            DryRunOf::Document(source) => self.checked(tenant, &source, "request").await?,
            DryRunOf::Workflow { reference, version } => self.stored(tenant, &reference, version.as_deref()).await?,
        };
        let report = self.engine.dry_run(&plan, request).await?;
        Ok((report, warnings))
    }

    async fn checked(&self, owner: &str, source: &[u8], name: &str) -> Result<(Plan, Vec<Diagnostic>), EngineError> {
        let workflows = self.engine.workflows_of(owner);
        let (_, compiled) = workflows.check_document(source, name, Stage::Publish).await?;
        Ok((compiled.plan, compiled.warnings))
    }

    async fn stored(
        &self,
        tenant: &str,
        reference: &str,
        version: Option<&str>,
    ) -> Result<(Plan, Vec<Diagnostic>), EngineError> {
        let workflows = self.engine.workflows_of(tenant);
        let workflow = workflows.resolve(reference).await?;
        let version = match version {
            Some(label) => Some(workflows.version_number(&workflow, label).await?),
            None => workflow.current_version,
        };
        let Some(version) = version else {
            let draft = self.reads().draft(&workflow).await?;
            let draft = draft.ok_or_else(|| Refusal::NoDraft(workflow.id.clone()))?;
            return self.checked(&workflow.tenant, &draft.source, &workflow.id).await;
        };
        let compiled = workflows.compiled(workflow.uid, &workflow.id, version).await?;
        Ok((Plan::clone(&compiled.plan), Vec::new()))
    }
}
