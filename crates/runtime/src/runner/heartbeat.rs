//! Heartbeats: while they are confirmed, other runners do not take over the runs of this process.
//!
//! What must stay true:
//! * Neither busy workers nor busy connections delay a heartbeat: it has its own thread and connection. Under simulated time it
//!   is an ordinary task.
//! * A heartbeat is dated before it is sent (`lease_gate.rs`).
//! * After a gap the list of held runs is read from the store, after the new heartbeat. Drivers of runs that are missing there
//!   are dropped without a commit. Leases that were requested before the gap and arrive after this comparison are refused by
//!   [`HeldRuns::hold`](crate::engine::HeldRuns::hold).
//! * The runner retires after its last heartbeat, on the same connection.

use crate::engine::Shared;
use fermata_core::RunId;
use fermata_store::Store;
use futures::{FutureExt, future::BoxFuture};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, timeout},
};

/// Leases are read in pages of this size.
const PAGE: u32 = 1000;
/// The pause before the list of held runs is read again.
const PAUSE: Duration = Duration::from_millis(100);

/// How the heartbeats of a process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All runs were released: other runners need not wait for this one to expire.
    Retire,
    /// As in a crash.
    Leave,
}

/// Sends heartbeats until `end` is received or its sender is dropped.
pub(super) fn beat(shared: &Arc<Shared>, end: oneshot::Receiver<End>) -> BoxFuture<'static, ()> {
    let heartbeat = Heartbeat {
        store: control(shared),
        shared: shared.clone(),
    };
    match shared.settings.heartbeat_thread {
        true => on_thread(heartbeat, end),
        false => heartbeat.run(end).boxed(),
    }
}

/// The store through connections of its own.
pub(super) fn control(shared: &Shared) -> Arc<dyn Store> {
    shared.store.control().unwrap_or_else(|| shared.store.clone())
}

fn on_thread(heartbeat: Heartbeat, end: oneshot::Receiver<End>) -> BoxFuture<'static, ()> {
    let (over, ended) = oneshot::channel();
    let work = move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(heartbeat.run(end)),
            Err(error) => tracing::error!(%error, "heartbeats cannot be sent: their runtime cannot be created"),
        }
        let _ = over.send(()); // the runner may have ended
    };
    match std::thread::Builder::new().name("heartbeat".to_owned()).spawn(work) {
        Ok(_) => ended.map(drop).boxed(),
        Err(error) => {
            tracing::error!(%error, "heartbeats cannot be sent: their thread cannot be created");
            std::future::ready(()).boxed()
        }
    }
}

struct Heartbeat {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

impl Heartbeat {
    async fn run(mut self, end: oneshot::Receiver<End>) {
        let end = tokio::select! {
            biased; // the same order every time, so that a simulation can be repeated
            end = end => end.unwrap_or(End::Leave),
            () = self.beats() => End::Leave,
        };
        if end == End::Retire {
            let retired = timeout(self.limit(), self.store.retire(self.shared.runner.id)).await;
            if !matches!(retired, Ok(Ok(()))) {
                tracing::warn!(
                    "this runner could not retire; runs that it still holds are claimed by others after `lease_ttl`"
                );
            }
        }
    }

    /// Never returns.
    async fn beats(&mut self) {
        let shared = self.shared.clone();
        let mut beat = tokio::time::interval((shared.settings.lease_ttl / 3).max(Duration::from_millis(10)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = beat.tick() => {}
                () = shared.admission.lease_gate.wanted() => {}
            }
            self.once().await;
        }
    }

    /// A heartbeat that takes longer is confirmed too late to be of use.
    fn limit(&self) -> Duration {
        self.shared.settings.lease_ttl * 2 / 3
    }

    async fn once(&mut self) {
        let shared = self.shared.clone();
        let sent = shared.admission.lease_gate.moment();
        let beat = self.store.heartbeat(&shared.runner, shared.clock.now());
        match timeout(self.limit(), beat).await {
            Ok(Ok(())) => {
                shared.health.heartbeat_confirmed();
                if let Some(gap) = shared.admission.lease_gate.beat(sent, shared.clock.now()) {
                    self.check_held(gap).await;
                }
                shared.wakes.claims.notify_one();
            }
            Ok(Err(error)) => shared.health.heartbeat_failed(&error),
            Err(_) => {
                let limit = self.limit();
                shared
                    .health
                    .heartbeat_failed(&format_args!("no answer within {limit:?}"));
                self.store = control(&shared);
            }
        }
    }

    /// After a gap: drops the drivers of runs that were taken over.
    async fn check_held(&self, gap: u64) {
        let driven = self.shared.held.leases();
        let held = match driven.is_empty() {
            true => Some(HashSet::new()),
            false => timeout(self.limit(), self.held()).await.ok().flatten(),
        };
        let Some(held) = held else {
            tracing::warn!("the list of runs that this runner holds cannot be read; nothing starts until it can");
            tokio::time::sleep(PAUSE).await;
            self.shared.admission.lease_gate.want();
            return;
        };
        let lost = driven.iter().filter(|lease| !held.contains(lease));
        let lost = lost
            .map(|(run, epoch)| self.shared.held.drop_lost(*run, *epoch))
            .count();
        if lost > 0 {
            tracing::warn!(
                lost,
                "no heartbeat was confirmed for a while, and other runners took runs over; their drivers here were dropped"
            );
        }
        self.shared.admission.lease_gate.checked(gap);
    }

    async fn held(&self) -> Option<HashSet<(RunId, u64)>> {
        let mut held = HashSet::new();
        let mut after = None;
        loop {
            let leases = self.store.held(self.shared.runner.id, after, PAGE).await.ok()?;
            after = leases.last().map(|lease| lease.run);
            held.extend(leases.iter().map(|lease| (lease.run, lease.epoch)));
            if leases.len() < PAGE as usize {
                return Some(held);
            }
        }
    }
}
