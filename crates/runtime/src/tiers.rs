//! Tiers: limits of tenants, as configured.
//!
//! | limit | counted | beyond it |
//! | --- | --- | --- |
//! | workflows, tasks per workflow | when a workflow is saved or published | the request is refused |
//! | executions per month | HTTP steps, with the commit of their first attempt (`fermata_store::usage`) | starts are refused |
//! | runs at once | a place of the tenant's key, which all processes share (`flow.rs`) | runs wait |
//! | HTTP steps at once | places in the store that all processes share (`http_places.rs`) | steps wait |
//! | schedules | when a trigger is created or a document saved | the request is refused |
//!
//! What must stay true: without tiers nothing is counted, read or written. A run without a tenant has no limits.

use crate::error::Refusal;
use std::{collections::BTreeMap, sync::Arc};

/// The limits of a tier. What is `None` is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// The most workflows of a tenant.
    pub workflows: Option<u32>,
    /// The most nodes of a workflow.
    pub tasks_per_workflow: Option<u32>,
    /// The most HTTP steps of a tenant in a calendar month (UTC).
    pub executions_per_month: Option<u64>,
    /// The most HTTP steps of a tenant at the same time, over all processes.
    pub http_steps_at_once: Option<u32>,
    /// The most runs of a tenant at the same time, over all processes.
    pub concurrent_runs: Option<u32>,
    /// Whether a tenant may have schedules. They are allowed if this is missing.
    pub schedules: Option<bool>,
}

/// The tiers of tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tiers {
    tenants: BTreeMap<String, Arc<Tier>>,
    others: Option<Arc<Tier>>,
}

impl Tiers {
    /// The tiers of these tenants, and the tier of all others.
    pub fn new(tenants: impl IntoIterator<Item = (String, Arc<Tier>)>, others: Option<Arc<Tier>>) -> Tiers {
        Tiers {
            tenants: tenants.into_iter().collect(),
            others,
        }
    }

    /// Refuses a schedule if the tier of its tenant does not allow schedules.
    pub(crate) fn check_schedule(&self, tenant: &str) -> Result<(), Refusal> {
        match self.of(tenant) {
            Some(tier) if tier.schedules == Some(false) => Err(Refusal::TierLimit {
                tier: tier.name.clone(),
                limit: 0,
                what: "schedules",
                problem: "start the workflow by a webhook, an event or a request".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The tier of a tenant. An empty tenant has none.
    pub fn of(&self, tenant: &str) -> Option<&Tier> {
        let tier = match tenant {
            "" => None,
            tenant => self.tenants.get(tenant).or(self.others.as_ref()),
        };
        tier.map(|tier| &**tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_their_own_tier_or_that_of_all_others() {
        let tier = |name: &str| {
            Arc::new(Tier {
                name: name.to_owned(),
                ..Tier::default()
            })
        };
        let tiers = Tiers::new([("acme".to_owned(), tier("pro"))], Some(tier("free")));
        let name = |tenant| tiers.of(tenant).map(|tier| tier.name.as_str());
        assert_eq!(
            (name("acme"), name("other"), name("")),
            (Some("pro"), Some("free"), None)
        );
        assert_eq!(Tiers::default().of("acme"), None);
    }
}
