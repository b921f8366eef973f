//! Facts about a held run that its plan and journal do not contain.

use fermata_core::RunId;
use fermata_store::runs::{NewRun, Principal, StoredRun};
use std::sync::Arc;

/// The identity of a run and of its caller.
pub(crate) struct Meta {
    pub id: RunId,
    pub epoch: u64,
    pub tenant: Arc<str>,
    pub priority: i32,
    pub correlation_id: Arc<str>,
    pub principal: Arc<Principal>,
    /// Whether the workflow was archived before the run started.
    pub archived: bool,
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
            archived: false,
        }
    }

    pub fn of_stored(stored: &StoredRun, archived: bool) -> Meta {
        Meta {
            id: stored.id,
            epoch: stored.epoch,
            tenant: stored.tenant.as_str().into(),
            priority: stored.priority.unwrap_or(0),
            correlation_id: correlation_id(stored.id, stored.correlation_id.as_deref()),
            principal: Arc::new(stored.principal.clone()),
            archived,
        }
    }
}

fn correlation_id(run: RunId, given: Option<&str>) -> Arc<str> {
    given.map_or_else(|| run.to_string().into(), Into::into)
}
