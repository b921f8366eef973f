//! The runner of this process: claims runs, sends heartbeats, wakes drivers whose runs have messages, and releases all runs
//! when the process stops.
//!
//! What must stay true:
//! * Heartbeats are confirmed before any run is held and until all are released; nothing is claimed while they are not
//!   (`lease_gate.rs`, `heartbeat.rs`).
//! * Hints only save time: what another process does is found after `poll_interval` at the latest.

mod admit;
mod child_sweep;
mod claim_size;
mod claims;
mod flow_sweep;
mod heartbeat;
pub(crate) mod lease_gate;
mod orphaned_leases;
pub(crate) mod probation;
pub(crate) mod quarantine;
mod resume;
mod resumed;

pub(crate) use claim_size::CLAIM_BATCH;
pub(crate) use quarantine::quarantine;

use crate::{bulk, engine::Shared, retention, runners, stats, triggers};
use claims::Claims;
use fermata_core::RunId;
use fermata_store::runs::{RunCommit, Then};
use futures::{FutureExt, future::BoxFuture};
use heartbeat::End;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Runs until the process stops and has released all runs. Boxed, so that it is not compiled again in each crate that awaits it.
pub(crate) fn run(shared: Arc<Shared>) -> BoxFuture<'static, ()> {
    work(shared).boxed()
}

async fn work(shared: Arc<Shared>) {
    let hints = shared.store.changes();
    let (end, ending) = oneshot::channel();
    let mut beating = heartbeat::beat(&shared, ending);
    let mut in_order = false;
    let working = async {
        runners::warn_of_other_addresses(&shared).await;
        let claims = Claims::new(shared.clone());
        tokio::select! {
            biased; // the same order every time, so that a simulation can be repeated
            () = shared.shutdown.abandoned.cancelled() => {}
            () = shared.shutdown.stopping.cancelled(), if !shared.settings.role.works() => {}
            () = claims.run(hints), if shared.settings.role.works() => {}
        }
        in_order = hand_back(&shared).await;
        if in_order && let Err(error) = stats::write_all(&shared).await {
            tracing::warn!(%error, "the numbers of runs of the last minute could not be written");
        }
    };
    tokio::select! {
        biased;
        () = working => {}
        () = &mut beating => {} // also while runs are released, or other runners would take them over
        () = message_loop(&shared) => {}
        () = retention::run(&shared) => {}
        () = stats::run(&shared) => {}
        () = child_sweep::run(&shared), if shared.settings.role.works() => {}
        () = triggers::run(&shared), if shared.settings.role.works() => {}
        () = flow_sweep::run(&shared), if shared.settings.role.works() => {}
        () = bulk::run(&shared), if shared.settings.role.works() => {}
    }
    let _ = end.send(if in_order { End::Retire } else { End::Leave }); // the heartbeat may have ended
    if in_order {
        beating.await;
    }
}

/// Lets drivers finish within the grace period. Runs that they still hold then are free once this runner has retired.
/// False if the process ends as in a crash.
async fn hand_back(shared: &Shared) -> bool {
    shared.shutdown.tasks.close();
    let grace = shared.settings.shutdown_grace;
    let late = tokio::time::timeout(grace, shared.shutdown.tasks.wait()).await.is_err();
    let in_order = !shared.shutdown.is_abandoned();
    if late {
        tracing::warn!("some actions did not finish within the grace period; their attempts will be repeated");
        shared.abandon();
        shared.shutdown.tasks.wait().await;
    }
    in_order
}

/// Wakes the drivers of runs with pending messages for which no hint arrived: they came through another process, or hints
/// were missed.
async fn message_loop(shared: &Shared) {
    let mut failed = false;
    loop {
        tokio::select! {
            biased;
            () = shared.wakes.messages.notified() => {}
            () = tokio::time::sleep(shared.settings.poll_interval) => {}
        }
        if shared.held.is_empty() {
            continue;
        }
        match shared.control.runs_with_messages(shared.runner.id).await {
            Ok(runs) => {
                failed = false;
                runs.into_iter().for_each(|run| {
                    shared.held.wake(run);
                });
            }
            Err(_) if failed => {}
            Err(error) => {
                failed = true;
                shared
                    .health
                    .retried(None, &error, "pending messages cannot be read; trying again");
            }
        }
    }
}

/// A commit that changes only the lease.
pub(crate) fn nothing_but(shared: &Shared, run: RunId, epoch: u64, then: Then) -> RunCommit {
    RunCommit {
        run,
        runner: shared.runner.id,
        epoch,
        seq: 0,
        at: shared.clock.now(),
        events: Vec::new(),
        attempts: Vec::new(),
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0, // consumed messages stay consumed
        status: None,
        dead_letter: None,
        usage: None,
        state: None,
        then,
    }
}
