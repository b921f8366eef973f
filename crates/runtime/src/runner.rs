//! The runner of this process: works on what it claims, sends heartbeats, tells drivers of their messages, and hands back
//! what it holds.
//!
//! What must stay true:
//! * A heartbeat is there before anything is held, and until everything is handed back; nothing is taken while none gets
//!   through (`lease_gate.rs`, `heartbeat.rs`).
//! * No hint is needed: whatever another process does is seen after `poll_interval`.

mod claim_size;
mod claims;
mod heartbeat;
pub(crate) mod lease_gate;
mod orphaned_leases;
pub(crate) mod probation;
pub(crate) mod quarantine;
mod resume;
mod resumed;

pub(crate) use claim_size::CLAIM_BATCH;
pub(crate) use quarantine::quarantine;

use crate::{engine::Shared, retention, runners};
use claims::Claims;
use fermata_core::RunId;
use fermata_store::runs::{RunCommit, Then};
use heartbeat::End;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Works until the process is told to stop and everything has been handed back.
pub(crate) async fn run(shared: Arc<Shared>) {
    let hints = shared.store.changes();
    let (end, ending) = oneshot::channel();
    let mut beating = heartbeat::beat(&shared, ending);
    let mut in_order = false;
    let working = async {
        runners::warn_of_other_addresses(&shared).await;
        let claims = Claims::new(shared.clone());
        tokio::select! {
            biased; // the same every time, so that a simulation repeats
            () = shared.shutdown.abandon.cancelled() => {}
            () = shared.shutdown.stopping.cancelled(), if !shared.settings.role.works() => {}
            () = claims.run(hints), if shared.settings.role.works() => {}
        }
        in_order = hand_back(&shared).await;
    };
    tokio::select! {
        biased;
        () = working => {}
        () = &mut beating => {} // also while work is handed back, or others would take it
        () = message_loop(&shared) => {}
        () = retention::run(&shared) => {}
    }
    let _ = end.send(if in_order { End::Retire } else { End::Leave }); // it may have ended
    if in_order {
        beating.await;
    }
}

/// Lets drivers finish what they do for a while. What they still hold then is free once this runner has retired.
/// False if it ends as in a crash.
async fn hand_back(shared: &Shared) -> bool {
    shared.shutdown.tasks.close();
    let grace = shared.settings.shutdown_grace;
    let late = tokio::time::timeout(grace, shared.shutdown.tasks.wait()).await.is_err();
    let in_order = !shared.shutdown.abandon.is_cancelled();
    if late {
        tracing::warn!("some actions did not finish in time; their attempts will be repeated");
        shared.shutdown.abandon.cancel();
        shared.shutdown.tasks.wait().await;
    }
    in_order
}

/// Wakes the drivers of runs that have messages which this process was not told of: they came through another one, or
/// there were too many notifications.
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

/// A commit that only says what becomes of the lease.
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
        inbox_seen: 0, // what was consumed stays so
        status: None,
        dead_letter: None,
        then,
    }
}
