//! Runs that this runner holds, as the store believes, and that nobody here drives: the answer to a claim was lost, or
//! a driver could not say that it let go. Nobody else may take them while this process lives, so it gives them back.
//!
//! What is held is read first and what is driven is looked at afterwards, by the task that claims. So a run is taken for
//! a stray by mistake only if its driver ended in between, and then the store refuses what is said of it:
//!
//! * **A run is being born.** It counts as driven before it is sent to the store.
//! * **A claim is under way.** There is none: the task that would make it is here. One whose answer was lost may still
//!   be made by the store after this; it is found the next time.
//! * **A claimed run is not driven yet.** Claimed runs are driven or given back before this task does anything else.
//! * **A driver has just ended.** The store had its last commit before it ended: the run is over or free, or another
//!   runner has it under a new epoch. In none of these does it take a commit under this one.
//! * **A driver drives under an old epoch.** It was robbed, and this runner has claimed the run again and lost the
//!   answer. The new lease is given back; the driver's next commit tells it to let go.
//! * **Its driver panicked.** That is told to the store with the panic; what is found here was not told.

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
                    tracing::warn!(%error, "what this runner holds cannot be read; trying again");
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
                    tracing::warn!(run = %lease.run, "nobody drove a run that this runner held; it is given back");
                }
            }
            after = leases.last().map(|lease| lease.run);
            if leases.len() < PAGE as usize {
                return;
            }
        }
    }
}
