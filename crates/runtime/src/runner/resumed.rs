//! The number of runs that were resumed after a start, for the log.
//!
//! Counted are runs that had started before this process did, each when it is claimed here for the first time. Counting ends
//! when the runs of dead runners could be claimed too, one `lease_ttl` after the start.

use fermata_core::{RunId, Status};
use fermata_store::runs::StoredRun;
use std::collections::BTreeSet;
use uuid::Uuid;

pub(super) struct Resumed {
    /// Ids of runs that were created before this process started are lower.
    first_id: Uuid,
    runs: BTreeSet<RunId>,
    logged: usize,
}

impl Resumed {
    pub fn new(first_id: Uuid) -> Resumed {
        Resumed {
            first_id,
            runs: BTreeSet::new(),
            logged: 0,
        }
    }

    /// Counts those of the claimed runs that are resumed.
    pub fn count(&mut self, claimed: &[StoredRun]) {
        let resumed = claimed
            .iter()
            .filter(|run| run.status == Status::Running && run.id.0 < self.first_id);
        self.runs.extend(resumed.map(|run| run.id));
    }

    /// Logs how many runs were resumed since this was last called.
    pub fn log(&mut self) {
        let runs = self.runs.len() - self.logged;
        if runs > 0 {
            tracing::info!(runs, "runs that had started before this process were resumed");
        }
        self.logged = self.runs.len();
    }
}
