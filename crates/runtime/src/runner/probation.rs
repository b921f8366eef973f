//! Probation of runs that may crash their process.
//!
//! When a run crashes its process, the takeover is counted for all runs that the process held and that have not committed
//! since they were claimed. To find the run that causes it, runs that were claimed before without a commit are *on probation*.
//! A run on its last try is the only one on probation in its process; the others wait in the store, which is not counted as a
//! try. So a run is dead-lettered as poison only if all other runs of the process were above suspicion.
//!
//! Probation ends with a commit, or when the run's actions have executed for `lease_ttl`. That is recorded in the store, so
//! that later crashes are not counted for this run. Waiting for a slot does not count as executing.

use crate::engine::Shared;
use fermata_core::Timestamp;
use fermata_store::runs::StoredRun;
use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::OwnedSemaphorePermit;

/// How many runs may be on probation at the same time, if none is on its last try.
pub(crate) const PLACES: u32 = 1 << 20;

/// The place of a run that is on probation.
pub(crate) struct Probation {
    lifetime_ms: u64,
    progress: Arc<Progress>,
    _place: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Progress {
    /// Attempts that have not begun to execute.
    queued: AtomicUsize,
    /// When the last attempt began to execute, or the probation began.
    since: AtomicI64,
}

/// An attempt of a run on probation, until it begins to execute.
pub(crate) struct Queued(Arc<Progress>);

impl Queued {
    /// The attempt begins to execute.
    pub fn begin(self, now: Timestamp) {
        self.0.since.store(now.0, Relaxed);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Relaxed);
    }
}

impl Probation {
    /// Whether a claimed run must be on probation.
    pub(super) fn concerns(run: &StoredRun) -> bool {
        run.takeovers > 1
    }

    /// Probation for a run; `None` if it must wait.
    pub(super) fn of(shared: &Shared, run: &StoredRun) -> Option<Probation> {
        let last = run.takeovers >= shared.settings.max_poison_retries;
        let places = if last { PLACES } else { 1 };
        let place = shared.admission.probation.clone().try_acquire_many_owned(places).ok()?;
        tracing::warn!(ExecutionId = %run.id, takeovers = run.takeovers, last, "a run was claimed again without a commit since its last claim; it may crash this process");
        let progress = Progress {
            queued: AtomicUsize::new(0),
            since: AtomicI64::new(shared.clock.now().0),
        };
        Some(Probation {
            lifetime_ms: shared.settings.lease_ttl.as_millis() as u64,
            progress: Arc::new(progress),
            _place: place,
        })
    }

    /// An attempt that will execute.
    pub fn queue(&self) -> Queued {
        self.progress.queued.fetch_add(1, Relaxed);
        Queued(self.progress.clone())
    }

    /// Whether the run has executed for long enough.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.check_at(now) <= now
    }

    /// When that is checked next.
    pub fn check_at(&self, now: Timestamp) -> Timestamp {
        let since = match self.progress.queued.load(Relaxed) {
            0 => Timestamp(self.progress.since.load(Relaxed)),
            _ => now,
        };
        since.plus_millis(self.lifetime_ms.max(1))
    }
}
