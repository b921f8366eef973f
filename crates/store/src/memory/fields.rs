//! Searchable fields of runs and tags of versions in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    fields::{FieldStore, RunField, tags_of_plan},
};
use async_trait::async_trait;
use fermata_core::RunId;
use uuid::Uuid;

#[async_trait]
impl FieldStore for MemoryStore {
    async fn set_fields(&self, run: RunId, _tenant: &str, fields: Vec<RunField>) -> Result<()> {
        self.with(|state| {
            if let Some(entry) = state.runs.get_mut(&run) {
                entry.new.fields = fields;
            }
        })
    }

    async fn tagged(&self, tags: Vec<String>, limit: u32) -> Result<Vec<Uuid>> {
        self.with(|state| state.tagged(&tags, limit))
    }
}

impl State {
    fn tagged(&self, tags: &[String], limit: u32) -> Vec<Uuid> {
        let has = |plan: &String| tags_of_plan(plan).iter().any(|tag| tags.contains(tag));
        let tagged = self.workflows.iter().filter(|(_, entry)| entry.plans().any(has));
        tagged.map(|(uid, _)| *uid).take(limit as usize).collect()
    }

    /// Whether a version has one of these tags.
    pub(super) fn has_tag(&self, workflow: Uuid, version: u32, tags: &[String]) -> bool {
        let plan = self.plan(workflow, version).unwrap_or_default();
        tags_of_plan(&plan).iter().any(|tag| tags.contains(tag))
    }
}
