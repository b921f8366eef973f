//! Orphaned leases: runs that this runner holds according to the store and that no driver of this process drives. The answer
//! to a claim was lost, or the commit that released a run was. No other runner may claim them while this process is alive, so
//! this process releases them.
//!
//! The claim loop first reads the leases from the store and then compares them with the drivers. So a lease is taken for
//! orphaned by mistake only if its driver ended in between, and then the store refuses the release. The races:
//!
//! * **A run is about to start here.** It counts as driven before it is sent to the store.
//! * **A claim is in flight.** Not possible: the claim loop itself does this. A claim whose answer was lost may still be
//!   executed by the store later; its runs are found the next time.
//! * **A claimed run is not driven yet.** Claimed runs are driven or released before the claim loop does anything else.
//! * **A driver has just ended.** The store had its last commit before: the run has ended or is free, or another runner holds
//!   it under a new epoch. In all cases a commit under the old epoch is refused.
//! * **A driver drives under an old epoch.** The run was taken over, and this runner claimed it again and lost the answer. The
//!   new lease is released; the driver's next commit is fenced, and the driver ends.
//! * **A driver panicked.** The run is quarantined then; it is found here only if that commit failed.

use super::{claims::Claims, nothing_but};
use fermata_store::runs::{CommitAnswer, Then};
use tokio::time::Instant;

/// Leases are read in pages of this size.
const PAGE: u32 = 1000;

impl Claims {
    pub(super) async fn release_orphaned_leases(&mut self) {
        let shared = self.shared.clone();
        let now = Instant::now();
        self.check_for_orphaned_leases = now + shared.settings.lease_ttl;
        let mut after = None;
        loop {
            let leases = match shared.control.held(shared.runner.id, after, PAGE).await {
                Ok(leases) => leases,
                Err(error) => {
                    tracing::warn!(%error, "the leases of this runner cannot be read; trying again");
                    self.check_for_orphaned_leases = now + shared.settings.poll_interval;
                    return;
                }
            };
            for lease in &leases {
                if shared.held.drives(lease.run, lease.epoch) {
                    continue;
                }
                let wake_at = shared.clock.now();
                let commit = nothing_but(&shared, lease.run, lease.epoch, Then::Decline { wake_at });
                if let CommitAnswer::Committed { .. } = shared.store.commit(commit).await {
                    tracing::warn!(ExecutionId = %lease.run, "this runner held the lease of a run without driving it; the lease is released");
                }
            }
            after = leases.last().map(|lease| lease.run);
            if leases.len() < PAGE as usize {
                return;
            }
        }
    }
}
