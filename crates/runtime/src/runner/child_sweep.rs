//! The sweep for ends of child runs whose message to the parent was lost: the process crashed after the child's last commit,
//! or the child was completed by SQL.

use crate::engine::Shared;
use std::time::Duration;

/// The time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(10);
/// Parents that are read at once.
const BATCH: u32 = 100;

/// Runs until it is dropped.
pub(super) async fn run(shared: &Shared) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let mut after = None;
        loop {
            match shared.control.parents_of_ended_children(after, BATCH).await {
                Ok(parents) => {
                    failed = false;
                    for parent in &parents {
                        shared.notify_parent(*parent).await;
                    }
                    match parents.last() {
                        Some(last) if parents.len() == BATCH as usize => after = Some(*last),
                        _ => break,
                    }
                }
                Err(_) if failed => break,
                Err(error) => {
                    failed = true;
                    let what = "ended child runs cannot be read; trying again";
                    shared.health.retried(None, &error, what);
                    break;
                }
            }
        }
    }
}
