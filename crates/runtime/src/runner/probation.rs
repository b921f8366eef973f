//! Runs that may take their process down.
//!
//! A run that takes its process down takes everything down that the process holds, so each of its tries counts against
//! all runs that did not come to a commit meanwhile. Therefore runs that were claimed before without a commit are *on
//! probation*, and whoever is on its last try is the only one on probation in this process; others wait in the store,
//! which does not count. So a run is dead_lettered as poison only if it was alone with those that nobody has a reason to
//! suspect.
//!
//! A run is trusted again when it comes to a commit, or when its actions have executed for `lease_ttl` without harm; the
//! store is told, so that what others do is not counted against it. To wait for a turn proves nothing.

use crate::engine::Shared;
use fermata_core::Timestamp;
use fermata_store::runs::StoredRun;
use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::OwnedSemaphorePermit;

/// So many runs may be on probation at the same time, if none is on its last try.
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
    /// When the last one did, or the probation began.
    since: AtomicI64,
}

/// An attempt of a run on probation, until it begins to execute.
pub(crate) struct Queued(Arc<Progress>);

impl Queued {
    /// The attempt executes from now on.
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
    /// Whether a run is suspected.
    pub(super) fn concerns(run: &StoredRun) -> bool {
        run.takeovers > 1
    }

    /// A place for a run, unless it must wait.
    pub(super) fn of(shared: &Shared, run: &StoredRun) -> Option<Probation> {
        let last = run.takeovers >= shared.settings.max_poison_retries;
        let places = if last { PLACES } else { 1 };
        let place = shared.admission.probation.clone().try_acquire_many_owned(places).ok()?;
        tracing::warn!(run = %run.id, takeovers = run.takeovers, last, "a run is claimed again without a commit");
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

    /// Whether the run has lived for long enough.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.check_at(now) <= now
    }

    /// When it may have.
    pub fn check_at(&self, now: Timestamp) -> Timestamp {
        let since = match self.progress.queued.load(Relaxed) {
            0 => Timestamp(self.progress.since.load(Relaxed)),
            _ => now,
        };
        since.plus_millis(self.lifetime_ms.max(1))
    }
}
