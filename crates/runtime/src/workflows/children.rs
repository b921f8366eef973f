//! Checks the workflows that a document starts: unknown ones are warned about, and circles of workflows are refused.
//!
//! The graph of workflows is that of the published versions. What is published later is checked again when a child starts.

use super::Workflows;
use crate::error::{EngineError, Refusal};
use fermata_core::Plan;
use fermata_dialects::{ChildReference, Compiled as CompiledDocument, Document, Severity, Stage, children};
use std::collections::HashSet;

/// The most workflows that are looked at for one document.
const MOST: usize = 1000;

impl Workflows {
    /// Adds warnings about unknown children, or refuses a document whose children start it again.
    pub(super) async fn check_children(
        &self,
        document: &Document,
        mut compiled: CompiledDocument,
        stage: Stage,
    ) -> Result<CompiledDocument, EngineError> {
        let own = compiled.plan.workflow.clone();
        let mut problems = Vec::new();
        for child in children(&compiled.plan) {
            if child.workflow == own {
                continue; // reported by the dialect
            }
            match self.plan_of(&child).await? {
                None => problems.push(child.unknown(document)),
                Some(_) if self.settings.allow_recursion => {}
                Some(plan) => {
                    if let Some(path) = self.path_to(&own, &child.workflow, plan).await? {
                        problems.push(child.recursive(document, stage, &path));
                    }
                }
            }
        }
        let refused = problems.iter().any(|problem| problem.severity == Severity::Error);
        compiled.warnings.append(&mut problems);
        match refused {
            true => Err(Refusal::InvalidDocument(document.report(compiled.warnings)).into()),
            false => Ok(compiled),
        }
    }

    /// The workflows from `first` to `own`, if `first` starts `own` directly or through others.
    async fn path_to(&self, own: &str, first: &str, plan: Plan) -> Result<Option<Vec<String>>, EngineError> {
        let mut seen = HashSet::from([first.to_owned()]);
        let mut open = vec![(vec![own.to_owned(), first.to_owned()], plan)];
        while let Some((path, plan)) = open.pop() {
            for child in children(&plan) {
                let mut path = path.clone();
                path.push(child.workflow.clone());
                if child.workflow == own {
                    return Ok(Some(path));
                }
                if seen.len() < MOST
                    && seen.insert(child.workflow.clone())
                    && let Some(plan) = self.plan_of(&child).await?
                {
                    open.push((path, plan));
                }
            }
        }
        Ok(None)
    }

    /// The plan of the version that a reference names; `None` if there is none.
    async fn plan_of(&self, child: &ChildReference) -> Result<Option<Plan>, EngineError> {
        let workflow = match self.resolve(&child.workflow).await {
            Ok(workflow) => workflow,
            Err(EngineError::Refused(Refusal::WorkflowNotFound(_))) => return Ok(None),
            Err(error) => return Err(error),
        };
        let version = match &child.version {
            None => workflow.current_version,
            Some(label) => match self.version_number(&workflow, label).await {
                Ok(version) => Some(version),
                Err(EngineError::Refused(Refusal::LabelNotFound { .. })) => None,
                Err(error) => return Err(error),
            },
        };
        let Some(version) = version else { return Ok(None) };
        match self.compiled(workflow.uid, &workflow.id, version).await {
            Ok(compiled) => Ok(Some(Plan::clone(&compiled.plan))),
            Err(EngineError::Refused(Refusal::VersionNotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
