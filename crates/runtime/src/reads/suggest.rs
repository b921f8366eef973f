//! Completions of a query with the names that this caller knows.

use super::Reads;
use crate::{
    error::EngineError,
    query::{Suggestion, last_word, quoted, suggest},
};
use fermata_store::definitions::{Workflow, WorkflowFilter};
use std::collections::BTreeMap;

/// The most completions.
const MOST: usize = 12;
/// Workflows whose tags are offered.
const TAGGED: u32 = 100;

impl Reads<'_> {
    /// Completions of the last word of a query: keys, statuses, times, ids of workflows, and tags of the first workflows.
    pub async fn suggest(&self, text: &str) -> Result<Vec<Suggestion>, EngineError> {
        let found = match last_word(text).split_once(':') {
            Some(("workflow", part)) => self.workflow_names(part).await?,
            Some(("tag", part)) => self.tags(part).await?,
            _ => suggest(text),
        };
        Ok(found.into_iter().take(MOST).collect())
    }

    async fn workflow_names(&self, part: &str) -> Result<Vec<Suggestion>, EngineError> {
        let found = self.named(part, MOST as u32).await?;
        let suggestion = |workflow: Workflow| Suggestion {
            text: format!("workflow:{}", quoted(&workflow.id)),
            about: workflow.display_name,
        };
        let mut names: Vec<Suggestion> = found.into_iter().map(suggestion).collect();
        // Several tenants may have a workflow with the same id.
        names.dedup_by(|one, other| one.text == other.text);
        Ok(names)
    }

    async fn tags(&self, part: &str) -> Result<Vec<Suggestion>, EngineError> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for workflow in self.named("", TAGGED).await? {
            let Some(version) = workflow.current_version else {
                continue;
            };
            // A version that cannot be compiled any more has no tags to offer.
            let Ok(plan) = self.plan(&workflow, version).await else {
                continue;
            };
            let fitting = plan.tags.iter().filter(|tag| tag.starts_with(part));
            fitting.for_each(|tag| *counts.entry(tag.clone()).or_default() += 1);
        }
        let suggestion = |(tag, count): (String, usize)| Suggestion {
            text: format!("tag:{}", quoted(&tag)),
            about: match count {
                1 => "1 workflow".to_owned(),
                count => format!("{count} workflows"),
            },
        };
        Ok(counts.into_iter().map(suggestion).collect())
    }

    /// Workflows whose id or name contains a text.
    async fn named(&self, part: &str, limit: u32) -> Result<Vec<Workflow>, EngineError> {
        let filter = WorkflowFilter {
            search: Some(part.to_owned()).filter(|part| !part.is_empty()),
            limit,
            ..WorkflowFilter::default()
        };
        Ok(self.workflows(filter).await?.items)
    }
}
