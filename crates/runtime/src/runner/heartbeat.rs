//! Heartbeats: written so that others do not take over what this process holds.
//!
//! What must stay true:
//! * Neither busy workers nor busy connections delay a heartbeat: it has a thread and a connection of its own. Under
//!   simulated time it is a task like others.
//! * A heartbeat is dated before it is sent (`lease_gate.rs`).
//! * After a gap the runs that this process drives are compared with the list of those that it holds, read after the new
//!   heartbeat; what is missing there is dropped, without a word to the store. Leases that were asked for before the gap
//!   and arrive after this comparison are refused by [`HeldRuns::hold`](crate::engine::HeldRuns::hold).
//! * The last heartbeat is followed by the retirement, on the same connection.

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
/// How long it takes until the list of held runs is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// How a heartbeat ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Everything was handed back: others need not wait for this runner.
    Retire,
    /// As in a crash.
    Leave,
}

/// Beats until `end` says how to stop, or is gone.
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

/// The store through connections that nothing else uses.
pub(super) fn control(shared: &Shared) -> Arc<dyn Store> {
    shared.store.control().unwrap_or_else(|| shared.store.clone())
}

fn on_thread(heartbeat: Heartbeat, end: oneshot::Receiver<End>) -> BoxFuture<'static, ()> {
    let (over, ended) = oneshot::channel();
    let work = move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(heartbeat.run(end)),
            Err(error) => tracing::error!(%error, "no heartbeats: their runtime cannot be made"),
        }
        let _ = over.send(()); // the runner may be gone
    };
    match std::thread::Builder::new().name("heartbeat".to_owned()).spawn(work) {
        Ok(_) => ended.map(drop).boxed(),
        Err(error) => {
            tracing::error!(%error, "no heartbeats: their thread cannot be made");
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
            biased; // the same every time, so that a simulation repeats
            end = end => end.unwrap_or(End::Leave),
            () = self.beats() => End::Leave,
        };
        if end == End::Retire {
            let retired = timeout(self.limit(), self.store.retire(self.shared.runner.id)).await;
            if !matches!(retired, Ok(Ok(()))) {
                tracing::warn!("this runner could not retire; what it held waits until its lease is over");
            }
        }
    }

    /// For ever.
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

    /// What takes longer is of no use.
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

    /// After a gap: drops the runs that were taken over.
    async fn check_held(&self, gap: u64) {
        let driven = self.shared.held.leases();
        let held = match driven.is_empty() {
            true => Some(HashSet::new()),
            false => timeout(self.limit(), self.held()).await.ok().flatten(),
        };
        let Some(held) = held else {
            tracing::warn!("the runs that this runner holds cannot be read; nothing starts until they can");
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
                "no heartbeat was confirmed for a while, and other runners took runs over; they are dropped here"
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
