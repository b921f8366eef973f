//! Publishing from inside the process: nothing is stored of a document that could not be published.

use fermata_dialects::Stage;
use fermata_runtime::{Engine, EngineError, PublishedWorkflow, Refusal};

/// Makes a document the current version of its workflow, whether that is new, a draft or active.
pub async fn publish(engine: &Engine, source: &[u8], name: &str) -> Result<PublishedWorkflow, EngineError> {
    let workflows = engine.workflows();
    let (_, compiled) = workflows.check_document(source, name, Stage::Publish).await?;
    let id = compiled.plan.workflow.clone();
    match workflows.save(source, name).await {
        Err(EngineError::Refused(Refusal::Immutable { .. })) => workflows.save_draft(&id, source, name, None).await?,
        saved => saved?,
    };
    workflows.publish(&id, true).await
}
