//! The limits that the tier of a tenant sets on its workflows.

use super::WorkflowsOf;
use crate::error::Refusal;
use fermata_store::definitions::DraftRule;
use uuid::Uuid;

impl WorkflowsOf<'_> {
    /// Refuses a document with more nodes than the tier allows.
    pub(super) fn check_tasks(&self, nodes: usize) -> Result<(), Refusal> {
        let Some(tier) = self.tiers.of(self.tenant) else {
            return Ok(());
        };
        match tier.tasks_per_workflow {
            Some(limit) if nodes > limit as usize => Err(Refusal::TierLimit {
                tier: tier.name.clone(),
                limit,
                what: "tasks in a workflow",
                problem: format!("this one has {nodes}"),
            }),
            _ => Ok(()),
        }
    }

    /// The rule for a document that may be a new workflow.
    pub(super) fn new_or_draft(&self) -> DraftRule {
        DraftRule::NewOrDraft {
            uid: Uuid::now_v7(),
            most: self.most_workflows(),
        }
    }

    /// How many workflows the tier of the tenant allows. The store counts them where it creates one.
    pub(super) fn most_workflows(&self) -> Option<u32> {
        self.tiers.of(self.tenant)?.workflows
    }

    /// The refusal of one workflow too many.
    pub(super) fn no_room(&self) -> Refusal {
        let tier = self.tiers.of(self.tenant);
        Refusal::TierLimit {
            tier: tier.map(|tier| tier.name.clone()).unwrap_or_default(),
            limit: tier.and_then(|tier| tier.workflows).unwrap_or_default(),
            what: "workflows",
            problem: "delete one first".to_owned(),
        }
    }
}
