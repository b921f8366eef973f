//! Checks the callbacks that a document names: they must be registered when it is published.

use super::WorkflowsOf;
use crate::error::{EngineError, Refusal};
use fermata_dialects::{Compiled as CompiledDocument, Document, callbacks};

impl WorkflowsOf<'_> {
    /// Refuses a document that names callbacks that are not registered, or URLs if only registered callbacks are allowed.
    pub(super) async fn check_callbacks(
        &self,
        document: &Document,
        mut compiled: CompiledDocument,
    ) -> Result<CompiledDocument, EngineError> {
        let mut problems = Vec::new();
        for callback in callbacks(&compiled.plan) {
            match &callback.id {
                Some(id) if self.store.registered_callback(self.tenant, id).await?.is_none() => {
                    problems.push(callback.not_registered(document));
                }
                None if self.settings.require_registered_callbacks => problems.push(callback.plain_url(document)),
                Some(_) | None => {}
            }
        }
        if problems.is_empty() {
            return Ok(compiled);
        }
        compiled.warnings.append(&mut problems);
        Err(Refusal::InvalidDocument(document.report(compiled.warnings)).into())
    }
}
