//! Stopping this process: the signals, and the tasks that must end before it has stopped.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Whether this process is stopping, and how.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// Set when the process is to stop: nothing new starts, running actions may finish.
    pub stopping: CancellationToken,
    /// Set when the grace period is over: drivers are dropped as in a crash.
    pub abandon: CancellationToken,
    /// The drivers.
    pub tasks: TaskTracker,
}

impl Shutdown {
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}
