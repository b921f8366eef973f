//! Changes of workflows whose documents have a version of their own: the version must increase enough, and intents change
//! parts of the document.
//!
//! What must stay true: a change is based on the latest version. If another version was published meanwhile, nothing is
//! stored.

use super::{PublishedWorkflow, WorkflowsOf};
use crate::error::{EngineError, Refusal};
use fermata_dialects::{
    Dialect, Document, Stage,
    jsondagapi::intents::{self, Intent},
};
use fermata_store::definitions::{ReleaseRule, Workflow};
use serde_json::Value;

/// How often intents are applied again after a concurrent change.
const TRIES: usize = 5;
/// The most versions that are read to find the one with a label.
const MOST_VERSIONS: usize = 10_000;
const PAGE: u32 = 100;

impl WorkflowsOf<'_> {
    /// Applies intents to the latest version and publishes the result. With `expected`, only if that is the latest version.
    pub async fn revise(
        &self,
        reference: &str,
        expected: Option<&str>,
        changes: &[Intent],
    ) -> Result<(PublishedWorkflow, Value), EngineError> {
        let mut last = None;
        for _ in 0..TRIES {
            let workflow = self.resolve_to_change(reference).await?;
            let dialect = Dialect::parse(&workflow.dialect).filter(|dialect| *dialect == Dialect::Jsondagapi);
            let (Some(dialect), Some(latest)) = (dialect, workflow.latest_version) else {
                let (workflow, dialect) = (workflow.id, workflow.dialect);
                return Err(Refusal::NoIntents { workflow, dialect }.into());
            };
            let old = self.document_of(&workflow, latest).await?;
            let version = dialect.version_of(old.value()).unwrap_or_default();
            if expected.is_some_and(|expected| expected != version) {
                let (workflow, version) = (workflow.id, version.to_owned());
                return Err(Refusal::OtherVersion { workflow, version }.into());
            }
            let new = intents::apply(old.value(), changes).map_err(|refused| Refusal::IntentRefused {
                workflow: workflow.id.clone(),
                refused,
            })?;
            let source = serde_json::to_vec_pretty(&new).map_err(|error| EngineError::Unusable {
                workflow: workflow.id.clone(),
                version: latest,
                what: error.to_string(),
            })?;
            let document = self.parse(&source, "request")?;
            let owner = self.all.of(&workflow.tenant);
            let compiled = owner.examine(&document, Stage::Publish).await?;
            let rule = ReleaseRule::Existing {
                uid: workflow.uid,
                after: Some(latest),
            };
            match owner.release(&source, &document, compiled, rule).await {
                Ok(published) => return Ok((published, new)),
                Err(error @ EngineError::Refused(Refusal::Republished(_))) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Refusal::Republished(reference.to_owned()).into()))
    }

    /// Checks the version of a changed document against the latest version, and returns the number of that.
    pub(super) async fn check_revision(
        &self,
        workflow: &Workflow,
        document: &Document,
        expected: Option<&str>,
    ) -> Result<Option<u32>, EngineError> {
        let (Some(dialect), Some(latest)) = (document.dialect(), workflow.latest_version) else {
            return Ok(None);
        };
        if dialect.version_of(document.value()).is_none() {
            return Ok(None);
        }
        let old = self.document_of(workflow, latest).await?;
        let version = dialect.version_of(old.value()).unwrap_or_default();
        if expected.is_some_and(|expected| expected != version) {
            let (workflow, version) = (workflow.id.clone(), version.to_owned());
            return Err(Refusal::OtherVersion { workflow, version }.into());
        }
        let checked = dialect.check_revision(old.value(), document.value());
        checked.map_err(|problem| Refusal::VersionTooLow {
            workflow: workflow.id.clone(),
            problem,
        })?;
        Ok(Some(latest))
    }

    async fn document_of(&self, workflow: &Workflow, version: u32) -> Result<Document, EngineError> {
        let definition = self.definition(workflow.uid, &workflow.id, version).await?;
        let limits = self.settings.for_published().document;
        Document::parse(&definition.source, &workflow.id, &limits).map_err(|problems| EngineError::Unusable {
            workflow: workflow.id.clone(),
            version,
            what: problems.to_string(),
        })
    }

    /// The number of a version: of a label such as `1.2.0`, or the number itself.
    pub async fn version_number(&self, workflow: &Workflow, label: &str) -> Result<u32, EngineError> {
        let not_found = || {
            let (workflow, version) = (workflow.id.clone(), label.to_owned());
            EngineError::from(Refusal::LabelNotFound { workflow, version })
        };
        if let Ok(number) = label.parse::<u32>() {
            return Ok(number);
        }
        let Some(dialect) = Dialect::parse(&workflow.dialect) else {
            return Err(not_found());
        };
        let mut before = None;
        for _ in 0..MOST_VERSIONS / PAGE as usize {
            let page = self.store.versions(workflow.uid, before, PAGE).await?;
            for row in &page.items {
                let document = self.document_of(workflow, row.version).await?;
                if dialect.version_of(document.value()) == Some(label) {
                    return Ok(row.version);
                }
            }
            before = page.items.last().map(|row| row.version);
            if !page.more {
                break;
            }
        }
        Err(not_found())
    }
}
