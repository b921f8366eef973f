//! The background task: fires schedules, processes deliveries, matches events that were stored by SQL.
//!
//! What must stay true:
//! * There is no leader: every process that works does this, and the store gives each schedule and each delivery to one of them.
//! * A delivery that this process has taken is its own for [`HELD_FOR`]. If the process dies, another one takes it then.
//! * Deliveries are processed concurrently, at most [`AT_ONCE`], so that a slow condition delays only its own. Those of schedules
//!   that were just fired have places of their own, and their runs are stored in shared commits.
//! * All schedules of a burst are fired before the first of their deliveries is processed.
//! * Ids of triggers are not logged: the id of a webhook is the secret of its first URL.
//! * Dropping the task drops everything that it does, as a crash would.

use super::{
    deliver::is_unknown,
    schedule::{self, Parsed},
};
use crate::{
    clock::until,
    engine::{Engine, Shared, lock},
};
use fermata_core::Timestamp;
use fermata_store::{
    StoreError,
    triggers::{Delivered, Trigger, TriggerDelivery},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::Notify, task::JoinSet};

/// How long a process has for a delivery that it took.
pub(super) const HELD_FOR: Duration = Duration::from_secs(10);
/// Deliveries that are processed at the same time, except those of schedules.
const AT_ONCE: usize = 128;
/// Deliveries of schedules that are processed at the same time. Their payloads are small, and their runs share commits.
const SCHEDULED_AT_ONCE: usize = 1000;
/// Schedules that are fired in one transaction.
const FIRED_AT_ONCE: u32 = 500;
/// Transactions in a row that fire schedules, before deliveries are processed.
const MOST_FIRINGS: usize = 20;
/// Events that are matched in one pass.
const EVENTS_AT_ONCE: u32 = 100;
/// Deliveries that wait in memory. Further ones are taken from the store.
const MOST_WAITING: usize = 10_000;

/// Deliveries of this process that are durable and not processed yet.
#[derive(Default)]
pub(crate) struct Waiting {
    deliveries: Mutex<VecDeque<TriggerDelivery>>,
    scheduled: Mutex<VecDeque<Delivered>>,
    pub(super) parsed: Parsed,
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

/// How many deliveries are being processed, or may be.
#[derive(Clone, Copy, Default)]
struct Counts {
    scheduled: usize,
    others: usize,
}

/// Runs until it is dropped.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let engine = Engine { shared: shared.clone() };
    let mut running: JoinSet<bool> = JoinSet::new();
    let mut counts = Counts::default();
    let mut has_failed = false;
    loop {
        let room = Counts {
            scheduled: SCHEDULED_AT_ONCE.saturating_sub(counts.scheduled),
            others: AT_ONCE.saturating_sub(counts.others),
        };
        let pause = match pass(&engine, &mut has_failed, room).await {
            Ok((taken, pause)) => {
                counts.scheduled += taken.scheduled.len();
                counts.others += taken.others.len();
                for Delivered { trigger, delivery } in taken.scheduled {
                    running.spawn(processed(engine.clone(), delivery, Some(trigger)));
                }
                for delivery in taken.others {
                    running.spawn(processed(engine.clone(), delivery, None));
                }
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
        let is_full = counts.others >= AT_ONCE;
        let mut pausing = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                biased;
                Some(done) = running.join_next(), if !running.is_empty() => {
                    // A delivery whose processing panicked stays open, and is taken again.
                    match done.unwrap_or(false) {
                        true => counts.scheduled = counts.scheduled.saturating_sub(1),
                        false => counts.others = counts.others.saturating_sub(1),
                    }
                    if running.is_empty() {
                        counts = Counts::default();
                    }
                    // A free place is used at once, if something waits for it.
                    if is_full || shared.triggers.has_any() {
                        break;
                    }
                }
                () = shared.triggers.wake.notified() => break,
                () = &mut pausing => break,
            }
        }
    }
}

/// Processes one delivery, and returns whether it is one of a schedule that was just fired. It stays open after an error, and is
/// taken again.
async fn processed(engine: Engine, delivery: TriggerDelivery, trigger: Option<Trigger>) -> bool {
    let (id, is_scheduled) = (delivery.id, trigger.is_some());
    match engine.process_delivery(delivery, trigger).await {
        Ok(_) => {}
        Err(error) if engine.is_stopping() || is_unknown(&error) => {}
        Err(error) => tracing::warn!(delivery = %id, %error, "a delivery was not processed; trying again"),
    }
    is_scheduled
}

/// Deliveries to process.
#[derive(Default)]
struct Taken {
    scheduled: Vec<Delivered>,
    others: Vec<TriggerDelivery>,
}

impl Waiting {
    /// The deliveries that wait in memory, as many as there is room for.
    fn take(&self, room: Counts) -> Taken {
        fn first<T>(waiting: &Mutex<VecDeque<T>>, room: usize) -> Vec<T> {
            let mut waiting = lock(waiting);
            let count = waiting.len().min(room);
            waiting.drain(..count).collect()
        }
        Taken {
            scheduled: first(&self.scheduled, room.scheduled),
            others: first(&self.deliveries, room.others),
        }
    }

    fn has_any(&self) -> bool {
        !lock(&self.deliveries).is_empty() || !lock(&self.scheduled).is_empty()
    }
}

/// Fires the schedules that are due: all of a burst become durable before the first of them is processed.
async fn fire(shared: &Arc<Shared>) -> Result<(), StoreError> {
    for _ in 0..MOST_FIRINGS {
        let firing = shared.clone();
        let fire = Arc::new(move |due: &_| schedule::fire(&firing, due));
        let fired = shared.store.fire_due(shared.clock.now(), FIRED_AT_ONCE, fire).await?;
        let is_last = fired.len() < FIRED_AT_ONCE as usize;
        if let Some(observer) = &shared.observer {
            fired.iter().for_each(|fired| observer.fired(&fired.delivery));
        }
        let open = fired.into_iter().filter(|fired| fired.delivery.state.is_open());
        let (queued, pending): (Vec<_>, Vec<_>) = open.partition(|fired| fired.delivery.after.is_some());
        let mut waiting = lock(&shared.triggers.scheduled);
        let room = MOST_WAITING.saturating_sub(waiting.len());
        waiting.extend(pending.into_iter().chain(queued).take(room));
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Does what is due. Returns the deliveries to process, as many as there is room for, and how long nothing else is due.
async fn pass(engine: &Engine, has_failed: &mut bool, room: Counts) -> Result<(Taken, Duration), StoreError> {
    let shared = &engine.shared;
    let settings = &shared.settings;
    let work = shared.control.trigger_work().await?;
    *has_failed = false;
    let mut now = shared.clock.now();
    let is_due = |at: Option<Timestamp>, now: Timestamp| at.is_some_and(|at| at <= now);
    let mut is_busy = false;
    if settings.triggers.enable_schedules && is_due(work.next_fire, now) {
        fire(shared).await?;
        is_busy = true;
    }
    let mut taken = shared.triggers.take(room);
    if settings.triggers.enable_events && work.has_unmatched {
        for event in shared.store.unmatched_events(EVENTS_AT_ONCE).await? {
            engine.match_stored(event).await?;
        }
        is_busy = true;
    }
    now = shared.clock.now();
    let left = room.others.saturating_sub(taken.others.len());
    if left > 0 && is_due(work.next_delivery, now) {
        let until = shared.retry_at(now);
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        taken
            .others
            .extend(shared.store.take_deliveries(now, until, limit).await?);
    }
    if room.others == 0 {
        return Ok((taken, settings.poll_interval));
    }
    let has_more = is_busy || shared.triggers.has_any();
    if has_more && taken.others.len() < room.others && taken.scheduled.len() < room.scheduled {
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
