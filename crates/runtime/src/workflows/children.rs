//! Checks the workflows that a document starts: unknown ones are warned about, and circles of workflows are refused.
//!
//! The graph of workflows is that of the published versions. What is published later is checked again when a child starts.

use super::WorkflowsOf;
use crate::error::{EngineError, Refusal};
use fermata_core::{Kind, Plan, StoredPlan};
use fermata_dialects::{ChildReference, Compiled as CompiledDocument, Document, Severity, Stage, children};
use serde_json::Value;
use std::collections::HashSet;

/// The most workflows that are looked at for one document.
const MOST: usize = 1000;

impl WorkflowsOf<'_> {
    /// Adds warnings about unknown children, or refuses a document whose children start it again.
    pub(super) async fn check_children(
        &self,
        document: &Document,
        mut compiled: CompiledDocument,
        stage: Stage,
    ) -> Result<CompiledDocument, EngineError> {
        let own = compiled.plan.workflow.clone();
        let mut problems = Vec::new();
        let mut pinned = Vec::new();
        for child in children(&compiled.plan) {
            if child.workflow == own {
                continue; // reported by the dialect
            }
            let Some((version, plan)) = self.plan_of(&child).await? else {
                problems.push(child.unknown(document));
                continue;
            };
            pinned.extend(child.version.is_some().then(|| (child.node.clone(), version)));
            if !self.settings.allow_recursion
                && let Some(path) = self.path_to(&own, &child.workflow, plan).await?
            {
                problems.push(child.recursive(document, stage, &path));
            }
        }
        compiled.plan = pin(compiled.plan, &pinned);
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
                    && let Some((_, plan)) = self.plan_of(&child).await?
                {
                    open.push((path, plan));
                }
            }
        }
        Ok(None)
    }

    /// The version that a reference names, and its plan; `None` if there is none.
    async fn plan_of(&self, child: &ChildReference) -> Result<Option<(u32, Plan)>, EngineError> {
        let workflow = match self.all.named_by(self.tenant).resolve(&child.workflow).await {
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
            Ok(compiled) => Ok(Some((version, Plan::clone(&compiled.plan)))),
            Err(EngineError::Refused(Refusal::VersionNotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The plan with the numbers of versions that it names otherwise, such as `1.2.0`. Versions are immutable, so the number stays
/// right.
fn pin(plan: Plan, versions: &[(String, u32)]) -> Plan {
    if versions.is_empty() {
        return plan;
    }
    let mut stored = StoredPlan::clone(&plan);
    for (node, version) in versions {
        let node = stored.nodes.iter_mut().find(|other| other.id.as_str() == node);
        if let Some(Kind::Request { parameters, .. } | Kind::Action { parameters, .. }) =
            node.map(|node| &mut node.kind)
        {
            parameters["workflowVersion"] = Value::from(*version);
        }
    }
    Plan::new(stored).unwrap_or(plan)
}
