//! What a driver knows of its run beside the plan.

use fermata_core::RunId;
use fermata_store::runs::{NewRun, Principal, StoredRun};
use std::sync::Arc;

/// What a run is called and who it is for.
pub(crate) struct Meta {
    pub id: RunId,
    pub epoch: u64,
    pub tenant: Arc<str>,
    pub priority: i32,
    pub correlation_id: Arc<str>,
    pub principal: Arc<Principal>,
}

impl Meta {
    pub fn of_new(new: &NewRun) -> Meta {
        Meta {
            id: new.id,
            epoch: 1,
            tenant: new.tenant.as_str().into(),
            priority: new.priority.unwrap_or(0),
            correlation_id: correlation_id(new.id, new.correlation_id.as_deref()),
            principal: Arc::new(new.principal.clone()),
        }
    }

    pub fn of_stored(stored: &StoredRun) -> Meta {
        Meta {
            id: stored.id,
            epoch: stored.epoch,
            tenant: stored.tenant.as_str().into(),
            priority: stored.priority.unwrap_or(0),
            correlation_id: correlation_id(stored.id, stored.correlation_id.as_deref()),
            principal: Arc::new(stored.principal.clone()),
        }
    }
}

fn correlation_id(run: RunId, given: Option<&str>) -> Arc<str> {
    given.map_or_else(|| run.to_string().into(), Into::into)
}
