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
        claimed.iter().for_each(|run| self.count_one(run.id, run.status));
    }

    fn count_one(&mut self, run: RunId, status: Status) {
        if status == Status::Running && run.0 < self.first_id {
            self.runs.insert(run);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_capture::LogCapture;

    #[test]
    fn runs_that_had_started_before_are_counted_once() {
        let log = LogCapture::begin();
        let mut resumed = Resumed::new(Uuid::from_u128(100));
        let count = |resumed: &mut Resumed, runs: &[(u128, Status)]| {
            for (id, status) in runs {
                resumed.count_one(RunId(Uuid::from_u128(*id)), *status);
            }
            resumed.log();
        };
        count(&mut resumed, &[]);
        // Not counted: one that had not started, and one that this process started and parked.
        let others = [(3, Status::Pending), (101, Status::Running)];
        count(
            &mut resumed,
            &[&[(1, Status::Running), (2, Status::Running)], &others[..]].concat(),
        );
        count(&mut resumed, &[(2, Status::Running), (4, Status::Running)]);
        count(&mut resumed, &[]);
        let lines = log.take();
        assert!(
            matches!(&lines[..], [first, second] if first.contains("runs=2") && second.contains("runs=1")),
            "{lines:?}"
        );
    }
}
