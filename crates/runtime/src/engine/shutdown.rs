//! Stopping this process: the signals, and the tasks that must end before it has stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Whether this process is stopping, and how.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// Set when the process is to stop: nothing new starts, running actions may finish.
    pub stopping: CancellationToken,
    /// Whether `stopping` is set. Reading the token takes a lock that all workers share.
    is_stopping: AtomicBool,
    /// Set when drivers are dropped as in a crash, for example because the grace period is over.
    pub abandoned: CancellationToken,
    is_abandoned: AtomicBool,
    /// The drivers.
    pub tasks: TaskTracker,
}

impl Shutdown {
    /// Lets the process stop.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.stopping.cancel();
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Lets the process stop as in a crash.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
        self.abandoned.cancel();
    }

    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::SeqCst)
    }
}
