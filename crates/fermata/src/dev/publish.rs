//! Publishing from inside the process: nothing is stored of a document that could not be published.

use fermata_dialects::Stage;
use fermata_runtime::{
    Engine, EngineError, PublishedWorkflow, Refusal,
    clock::{Clock, SystemClock},
};
use fermata_store::definitions::{Draft, DraftRule, Saved};

/// Makes a document the current version of its workflow, whatever state that is in.
pub async fn publish(engine: &Engine, source: &[u8], name: &str) -> Result<PublishedWorkflow, EngineError> {
    let workflows = engine.workflows();
    let (document, compiled) = workflows.check(source, name, Stage::Publish)?;
    let id = compiled.plan.workflow;
    match workflows.save(source, name).await {
        Ok(_) => {}
        Err(EngineError::Refused(Refusal::Immutable { .. })) => {
            let draft = Draft {
                id: id.clone(),
                display_name: compiled.plan.display_name,
                description: compiled.description,
                dialect: compiled.plan.dialect,
                source: source.to_vec(),
                checksum: document.checksum(),
                at: SystemClock.now(),
                rule: DraftRule::Existing,
                if_match: None,
            };
            if engine.store().save_draft(draft).await? == Saved::NotFound {
                return Err(Refusal::WorkflowNotFound(id).into());
            }
        }
        Err(error) => return Err(error),
    }
    workflows.publish(&id, true).await
}
