//! The background task: fires schedules, processes deliveries, matches events that were stored by SQL.
//!
//! What must stay true:
//! * There is no leader: every process that works does this, and the store gives each schedule and each delivery to one of them.
//! * A delivery that this process has taken is its own for [`HELD_FOR`]. If the process dies, another one takes it then.
//! * Deliveries are processed concurrently, at most [`AT_ONCE`], so that a slow condition delays only its own.
//! * Ids of triggers are not logged: the id of a webhook is the secret of its first URL.
//! * Dropping the task drops everything that it does, as a crash would.

use super::{deliver::is_unknown, schedule};
use crate::{
    clock::until,
    engine::{Engine, Shared, lock},
};
use fermata_core::Timestamp;
use fermata_store::{
    StoreError,
    triggers::{Settled, TriggerDelivery},
};
use futures::{StreamExt, stream::FuturesUnordered};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Notify;

/// How long a process has for a delivery that it took.
pub(super) const HELD_FOR: Duration = Duration::from_secs(10);
/// Deliveries that are processed at the same time.
const AT_ONCE: usize = 128;
/// Schedules that are fired in one transaction.
const FIRED_AT_ONCE: u32 = 200;
/// Events that are matched in one pass.
const EVENTS_AT_ONCE: u32 = 100;
/// Deliveries that wait in memory. Further ones are taken from the store.
const MOST_WAITING: usize = 10_000;

/// Deliveries of this process that are durable and not processed yet.
#[derive(Default)]
pub(crate) struct Waiting {
    deliveries: Mutex<VecDeque<TriggerDelivery>>,
    /// There is a delivery, or a schedule changed.
    pub wake: Notify,
}

impl Shared {
    /// When another process takes a delivery that is made now.
    pub(super) fn retry_at(&self, now: Timestamp) -> Timestamp {
        match self.settings.role.works() {
            true => now.plus_millis(HELD_FOR.as_millis() as u64),
            false => now,
        }
    }

    /// Processes stored deliveries soon, if this process works.
    pub(super) fn hand_over(&self, deliveries: Vec<TriggerDelivery>) {
        if !self.settings.role.works() {
            return;
        }
        let mut waiting = lock(&self.triggers.deliveries);
        if waiting.len() < MOST_WAITING {
            waiting.extend(deliveries);
        }
        drop(waiting);
        self.triggers.wake.notify_one();
    }
}

/// Runs until it is dropped.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let engine = Engine { shared: shared.clone() };
    let mut running = FuturesUnordered::new();
    let mut has_failed = false;
    loop {
        let room = AT_ONCE.saturating_sub(running.len());
        let pause = match pass(&engine, &mut has_failed, room).await {
            Ok((taken, pause)) => {
                running.extend(taken.into_iter().map(|delivery| processed(engine.clone(), delivery)));
                pause
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let what = "triggers cannot be read; trying again";
                    shared.health.retried(None, &error, what);
                }
                shared.settings.poll_interval
            }
        };
        let is_full = running.len() >= AT_ONCE;
        let mut pausing = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                biased;
                Some(()) = running.next(), if !running.is_empty() => {
                    // A free place is used at once, if something waits for it.
                    if is_full || !lock(&shared.triggers.deliveries).is_empty() {
                        break;
                    }
                }
                () = shared.triggers.wake.notified() => break,
                () = &mut pausing => break,
            }
        }
    }
}

/// Processes one delivery. It stays open after an error, and is taken again.
async fn processed(engine: Engine, delivery: TriggerDelivery) {
    let id = delivery.id;
    match engine.process_delivery(delivery).await {
        Ok(Settled::Later(_) | Settled::Started(_) | Settled::Ended { .. }) => {}
        Err(error) if engine.is_stopping() || is_unknown(&error) => {}
        Err(error) => tracing::warn!(delivery = %id, %error, "a delivery was not processed; trying again"),
    }
}

/// Does what is due. Returns the deliveries to process, `room` at most, and how long nothing else is due.
async fn pass(
    engine: &Engine,
    has_failed: &mut bool,
    room: usize,
) -> Result<(Vec<TriggerDelivery>, Duration), StoreError> {
    let shared = &engine.shared;
    let settings = &shared.settings;
    let mut taken: Vec<TriggerDelivery> = {
        let mut waiting = lock(&shared.triggers.deliveries);
        let count = waiting.len().min(room);
        waiting.drain(..count).collect()
    };
    let work = shared.control.trigger_work().await?;
    *has_failed = false;
    let mut now = shared.clock.now();
    let is_due = |at: Option<Timestamp>, now: Timestamp| at.is_some_and(|at| at <= now);
    let mut is_busy = false;
    if settings.triggers.enable_schedules && is_due(work.next_fire, now) {
        let firing = shared.clone();
        let fire = Arc::new(move |due: &_| schedule::fire(&firing, due));
        let fired = shared.store.fire_due(now, FIRED_AT_ONCE, fire).await?;
        let open = fired.into_iter().map(|fired| fired.delivery);
        let open = open.filter(|delivery| delivery.state.is_open());
        let (queued, pending): (Vec<_>, Vec<_>) = open.partition(|delivery| delivery.after.is_some());
        lock(&shared.triggers.deliveries).extend(pending.into_iter().chain(queued));
        is_busy = true;
    }
    if settings.triggers.enable_events && work.has_unmatched {
        for event in shared.store.unmatched_events(EVENTS_AT_ONCE).await? {
            engine.match_stored(event).await?;
        }
        is_busy = true;
    }
    now = shared.clock.now();
    let left = room.saturating_sub(taken.len());
    if left > 0 && is_due(work.next_delivery, now) {
        let until = shared.retry_at(now);
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        taken.extend(shared.store.take_deliveries(now, until, limit).await?);
    }
    if room == 0 {
        return Ok((taken, settings.poll_interval));
    }
    let has_more = is_busy || !lock(&shared.triggers.deliveries).is_empty();
    if has_more && taken.len() < room {
        return Ok((taken, Duration::ZERO));
    }
    let fire = work.next_fire.filter(|_| settings.triggers.enable_schedules);
    let next = fire
        .into_iter()
        .chain(work.next_delivery)
        .map(|at| until(now, at))
        .min();
    // What another process or SQL adds is found by polling.
    let pause = next.unwrap_or(settings.poll_interval).min(settings.poll_interval);
    Ok((taken, pause.max(Duration::from_millis(1))))
}
