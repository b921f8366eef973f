//! The sweep of flow control: free places that no commit handed over, because a waiting run was locked at that moment or a run
//! was completed by SQL; and rows of keys that are no longer needed.

use crate::engine::Shared;
use std::time::Duration;

/// The time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(2);
/// Keys that are examined in one sweep. The next one continues after them.
const BATCH: u32 = 200;

/// Runs until it is dropped.
pub(super) async fn run(shared: &Shared) {
    let (mut after, mut failed) = (None, false);
    loop {
        tokio::time::sleep(INTERVAL).await;
        match shared
            .control
            .sweep_flow(after.clone(), BATCH, shared.clock.now())
            .await
        {
            Ok(swept) => (after, failed) = (swept.next, false),
            Err(_) if failed => {}
            Err(error) => {
                failed = true;
                let what = "places of concurrency keys cannot be examined; trying again";
                shared.health.retried(None, &error, what);
            }
        }
    }
}
