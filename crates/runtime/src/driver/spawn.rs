//! The task of a driver.

use super::{Driver, attempt::panic_text, pause_after};
use crate::{engine::stored_before, memory::Share};
use fermata_store::{
    StoreError,
    runs::{Enqueued, NewRun},
};
use futures::FutureExt;
use std::{panic::AssertUnwindSafe, sync::Arc};
use tokio::sync::oneshot;

/// Failures in a row that the pause before a new run is sent again corresponds to: about one second.
const UNKNOWN_OUTCOME: u32 = 8;

impl Driver {
    /// Stores the run and drives it, both in a task of its own: once the run may be durable it is held by this process, which
    /// must drive it, also if the caller no longer waits for the answer.
    pub async fn store_and_drive(mut self, new: NewRun, memory: Option<Arc<Share>>) -> Result<Enqueued, StoreError> {
        let shared = self.shared.clone();
        let held = shared.held.clone();
        let (tasks, abandon) = (shared.shutdown.tasks.clone(), shared.shutdown.abandon.clone());
        let (sender, receiver) = oneshot::channel();
        let (run, epoch, gaps) = (self.meta.id, self.meta.epoch, shared.admission.lease_gate.gaps());
        let task = tasks.spawn(async move {
            // It borrows the driver: a future that owned it would be twice as large.
            let drive = async {
                let mut sender = Some(sender);
                loop {
                    let answer = shared.enqueue(&new).await;
                    let known = !matches!(answer, Err(StoreError::Unknown(_)));
                    let created = matches!(answer, Ok(Enqueued::Created))
                        || (sender.is_none()
                            && matches!(answer, Ok(Enqueued::Existing { run, status })
                            if run == new.id && stored_before(status) == Enqueued::Created));
                    if let Some(sender) = sender.take() {
                        let _ = sender.send(answer); // the caller may have stopped waiting
                    }
                    match known {
                        true if created => {
                            if let Some(first) = &new.local_start {
                                shared.emit(self.spans(first.started_at, &first.events, &[]));
                            }
                            self.count_start();
                            drop((new, memory));
                            if self.still_holds(gaps).await {
                                self.drive_guarded().await;
                            }
                            return;
                        }
                        true => return,
                        false if shared.shutdown.is_stopping() => return,
                        false => tokio::time::sleep(pause_after(UNKNOWN_OUTCOME)).await,
                    }
                }
            };
            tokio::select! {
                biased;
                () = abandon.cancelled() => {}
                () = drive => {}
            }
        });
        held.set_task(run, epoch, task.abort_handle());
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// A new run is stored. If there was a gap since it was sent, another process may have taken it over.
    async fn still_holds(&mut self, mut gaps: u64) -> bool {
        while !self.shared.held.mark_stored(self.meta.id, self.meta.epoch, gaps) {
            gaps = self.shared.admission.lease_gate.gaps();
            if !matches!(self.reload().await, Ok(true)) {
                return false;
            }
        }
        true
    }

    /// Drives a claimed run in a task of its own.
    pub fn spawn(mut self) {
        let (held, run, epoch) = (self.shared.held.clone(), self.meta.id, self.meta.epoch);
        let shared = self.shared.clone();
        let tasks = shared.shutdown.tasks.clone();
        let drive = async move {
            tokio::select! {
                biased;
                () = shared.shutdown.abandon.cancelled() => {}
                () = self.drive_guarded() => {}
            }
            drop(self.lease.hold.take());
        };
        let task = tasks.spawn(drive);
        held.set_task(run, epoch, task.abort_handle());
    }

    /// Drives the run. A panic is a bug of this program. It must not affect other runs, and the run must not stay held without
    /// a driver, so the run is quarantined.
    async fn drive_guarded(&mut self) {
        if let Err(panic) = AssertUnwindSafe(self.drive()).catch_unwind().await {
            let what = panic_text(panic.as_ref());
            let what = format!("its driver panicked: {what}");
            self.quarantine(&what).await;
        }
    }
}
