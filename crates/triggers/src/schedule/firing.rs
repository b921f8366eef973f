//! What a schedule that is due fires now, and when it is due again.
//!
//! An instant becomes due at the instant plus its jitter. The jitter is a function of trigger and instant, and less than
//! the time until the next instant: so instants become due in their order, and the instant that belongs to a due time can be
//! computed from it.
//!
//! | instant is late by | fires |
//! | --- | --- |
//! | at most [`ON_TIME`] | always |
//! | more, `catchUp` none | never |
//! | more, `catchUp` latest | if it is the latest due instant and within the window |
//! | more, `catchUp` all | if it is one of the latest [`MOST_CAUGHT_UP`] and within the window |

use super::{CatchUp, Schedule, micros, to_jiff};
use fermata_core::Timestamp;
use sha2::{Digest, Sha256};
use std::time::Duration;
use uuid::Uuid;

/// An instant that is late by no more than this is not missed.
pub const ON_TIME: Duration = Duration::from_secs(10);
/// The most instants that one firing starts, so an outage never starts thousands of runs.
pub const MOST_CAUGHT_UP: usize = 100;

/// What a due schedule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// The instants that fire, oldest first, without their jitter. Each is an occurrence.
    pub instants: Vec<Timestamp>,
    /// When the schedule is due again. `None`: never.
    pub next: Option<Timestamp>,
}

impl Schedule {
    /// When a trigger that is created, changed or enabled at `now` is due for the first time.
    pub fn first_due(&self, trigger: Uuid, now: Timestamp) -> Option<Timestamp> {
        self.next_after(now).map(|next| self.due_at(trigger, next))
    }

    /// What a trigger that was due at `due` fires at `now`.
    pub fn fire(&self, trigger: Uuid, due: Timestamp, now: Timestamp) -> Firing {
        if now < due {
            return Firing {
                instants: Vec::new(),
                next: Some(due),
            };
        }
        let first = self.instant_due_at(due);
        let oldest = Timestamp(now.0.saturating_sub(self.reach())).max(first);
        if let Some(next) = self.only_one_due(trigger, first, now).filter(|_| oldest == first) {
            let fires = self.fires(now.micros_since(self.due_at(trigger, first)), true);
            return Firing {
                instants: fires.then_some(first).into_iter().collect(),
                next: next.map(|next| self.due_at(trigger, next)),
            };
        }
        // An instant whose jitter has not passed is not due yet, and then it is the latest: jitter is less than a gap.
        let latest = self.last_until(now, oldest);
        let (latest, next) = match latest {
            Some(instant) if self.due_at(trigger, instant) > now => {
                let earlier = self.last_until(Timestamp(instant.0 - 1), oldest);
                (earlier, Some(instant))
            }
            Some(instant) => (Some(instant), self.next_after(instant)),
            None => (None, self.next_after(now)),
        };
        let mut instants: Vec<Timestamp> = Vec::new();
        let mut candidate = latest;
        while let Some(instant) = candidate.filter(|_| instants.len() < MOST_CAUGHT_UP) {
            let late = now.micros_since(self.due_at(trigger, instant));
            if !self.fires(late, instants.is_empty()) {
                break;
            }
            instants.push(instant);
            candidate = self.last_until(Timestamp(instant.0 - 1), oldest);
        }
        instants.reverse();
        Firing {
            instants,
            next: next.map(|next| self.due_at(trigger, next)),
        }
    }

    /// If `first` is an instant that is due and the next one is not: that next one. The usual case, without a search.
    fn only_one_due(&self, trigger: Uuid, first: Timestamp, now: Timestamp) -> Option<Option<Timestamp>> {
        let is_instant = self.next_after(Timestamp(first.0.checked_sub(1)?)) == Some(first);
        if !is_instant || self.due_at(trigger, first) > now {
            return None;
        }
        let next = self.next_after(first);
        next.is_none_or(|next| next > now).then_some(next)
    }

    /// Whether an instant that is late by this many microseconds fires.
    fn fires(&self, late: u64, is_latest: bool) -> bool {
        let late = Duration::from_micros(late);
        let is_caught_up = match self.catch_up {
            CatchUp::None => false,
            CatchUp::Latest(window) => is_latest && late <= window,
            CatchUp::All(window) => late <= window,
        };
        late <= ON_TIME || is_caught_up
    }

    /// When an instant is due: later than the instant by its jitter.
    pub fn due_at(&self, trigger: Uuid, instant: Timestamp) -> Timestamp {
        if self.jitter == 0 {
            return instant;
        }
        let gap = self.next_after(instant).map_or(i64::MAX, |next| next.0 - instant.0);
        let most = self.jitter.min(gap);
        if most <= 0 {
            return instant;
        }
        let digest = Sha256::new()
            .chain_update(trigger.as_bytes())
            .chain_update(instant.0.to_be_bytes())
            .finalize();
        let number = digest[..8]
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let micros = i64::try_from(number % most.unsigned_abs()).unwrap_or(0);
        Timestamp(instant.0.saturating_add(micros))
    }

    /// The instant that is due at `due`.
    fn instant_due_at(&self, due: Timestamp) -> Timestamp {
        match self.jitter {
            0 => due,
            jitter => self
                .last_until(due, Timestamp(due.0.saturating_sub(jitter)))
                .unwrap_or(due),
        }
    }

    /// How far back an instant can lie that fires now, in microseconds.
    fn reach(&self) -> i64 {
        let window = match self.catch_up {
            CatchUp::None => Duration::ZERO,
            CatchUp::Latest(window) | CatchUp::All(window) => window,
        };
        micros(window.max(ON_TIME)).saturating_add(self.jitter)
    }
}

/// The id of the occurrence of an instant, such as `2026-03-01T09:00:00Z`.
pub fn occurrence_id(instant: Timestamp) -> String {
    to_jiff(instant).map_or_else(|| instant.0.to_string(), |instant| instant.to_string())
}
