//! The task of a driver.
//!
//! The driver and its future are on the heap, each in one place: they are large, and tokio moves what it is given several times.

use super::{Driver, attempt::panic_text, pause_after};
use crate::{
    engine::{Shared, stored_before},
    memory::Share,
};
use fermata_core::RunId;
use fermata_store::{
    StoreError,
    runs::{Enqueued, NewRun},
};
use futures::{FutureExt, future::BoxFuture};
use std::{panic::AssertUnwindSafe, sync::Arc};
use tokio::sync::oneshot;

/// Failures in a row that the pause before a new run is sent again corresponds to: about one second.
const UNKNOWN_OUTCOME: u32 = 8;

impl Driver {
    /// Stores the run and drives it, both in a task of its own: once the run may be durable it is held by this process, which
    /// must drive it, also if the caller no longer waits for the answer.
    pub fn store_and_drive(
        mut self: Box<Self>,
        new: NewRun,
        memory: Option<Arc<Share>>,
    ) -> oneshot::Receiver<Result<Enqueued, StoreError>> {
        let shared = self.shared.clone();
        let (sender, receiver) = oneshot::channel();
        let (run, epoch, gaps) = (self.meta.id, self.meta.epoch, shared.admission.lease_gate.gaps());
        let drive = {
            let shared = shared.clone();
            async move {
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
                        true if created => break,
                        true => return,
                        false if shared.shutdown.is_stopping() => return,
                        false => tokio::time::sleep(pause_after(UNKNOWN_OUTCOME)).await,
                    }
                }
                if let Some(first) = &new.local_start {
                    shared.emit(self.spans(first.started_at, &first.events, &[]));
                }
                self.count_start();
                drop((new, memory));
                if self.still_holds(gaps).await {
                    self.drive_guarded().await;
                }
            }
        };
        shared.spawn_driver(run, epoch, drive.boxed());
        receiver
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
    pub fn spawn(mut self: Box<Self>) {
        let (shared, run, epoch) = (self.shared.clone(), self.meta.id, self.meta.epoch);
        let drive = async move { self.drive_guarded().await };
        shared.spawn_driver(run, epoch, drive.boxed());
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

impl Shared {
    /// Runs the future of a driver until it ends, or until its run is lost or abandoned.
    fn spawn_driver(&self, run: RunId, epoch: u64, drive: BoxFuture<'static, ()>) {
        let task = self.shutdown.tasks.spawn(drive);
        self.held.set_task(run, epoch, task.abort_handle());
        if self.shutdown.is_abandoned() {
            task.abort(); // it may have come after the others were aborted
        }
    }

    /// Drops all drivers as in a crash.
    pub fn abandon(&self) {
        self.shutdown.abandon();
        self.held.abort_all();
    }
}
