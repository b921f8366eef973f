//! What a run gets that asks for the rows of its keys. Pure functions: rows in, rows and the answer out.
//!
//! | the run | the rows | result |
//! | --- | --- | --- |
//! | is new, with `unique` | another run owns the key | `Existing` |
//! | is new, with a place that refuses | as many held as the limit, or others wait | `Full` |
//! | is new, with `debounce` | another run owns the key and has not begun | `Merge`: that run takes the payload |
//! | is new, with `debounce` | otherwise | stored; due after the quiet time |
//! | asks for its rate | the window of the key is full, or a later one is being filled | stored; due when its window begins |
//! | asks for a place, and its workflow is paused | any | its places are freed; stored; it waits for the resume |
//! | asks for a place | fewer held than the limit, and no run waits | it holds the place |
//! | asks for a place | otherwise | stored; it waits |

use super::{Flow, FlowStep, Place, RunFlow, UNLIMITED};
use fermata_core::{RunId, Status, Timestamp, plan::FlowControl};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The row of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// How many runs hold a place.
    pub(crate) held: u32,
    /// The limit, and the version of the workflow that says so.
    pub(crate) most: u32,
    pub(crate) version: u32,
    /// The run that owns a unique key, or that a debounce key merges into.
    pub(crate) run: Option<RunId>,
    /// When the window of a rate begins, or when the first start of a debounced run came.
    pub(crate) begin: Option<Timestamp>,
    /// The runs of that window.
    pub(crate) counted: u32,
    /// When the row of a rate can be deleted.
    pub(crate) expires_at: Option<Timestamp>,
    /// Whether runs wait for a place. Not a column.
    pub(crate) has_waiters: bool,
}

impl KeyRow {
    /// Whether the row is not needed.
    pub(crate) fn is_free(&self) -> bool {
        self.held == 0 && self.run.is_none() && self.expires_at.is_none()
    }

    /// Free places that runs wait for.
    pub(crate) fn spare(&self) -> u32 {
        match self.has_waiters {
            true => self.most.saturating_sub(self.held).min(super::HANDED_AT_ONCE),
            false => 0,
        }
    }
}

/// The rows of keys. A key without a row has the default one.
pub(crate) type KeyRows = BTreeMap<String, KeyRow>;

/// What a run gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is stored like this.
    Stored(Granted),
    /// Another run owns its unique key.
    Existing(RunId),
    /// This run takes its payload, and is due at this time.
    Merge { run: RunId, wake_at: Timestamp },
    /// No place is free, and the place refuses.
    Full,
}

/// The new state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) step: FlowStep,
    pub(crate) held: u32,
    pub(crate) waiting: Option<String>,
    /// When it is due, if it is delayed.
    pub(crate) delayed_until: Option<Timestamp>,
}

impl Granted {
    /// The state of a run with this flow control.
    pub(crate) fn of(self, flow: Flow) -> RunFlow {
        RunFlow {
            flow,
            step: self.step,
            held: self.held,
            waiting: self.waiting,
        }
    }

    /// Whether the run may begin now.
    pub(crate) fn begins(&self) -> bool {
        self.waiting.is_none() && self.delayed_until.is_none()
    }

    /// When a run that is not held is due.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.waiting {
            Some(_) => None,
            None => Some(self.delayed_until.unwrap_or(now)),
        }
    }
}

/// Asks for everything that the run still needs, and changes the rows accordingly. `stored` is `None` for a run that has not
/// asked before; otherwise it comes with the time at which the row is due. `is_current`: the run follows the version that is active
/// now, so its limits are in force. `paused` is the key to wait for, if the workflow is paused. The rows
/// change only if the answer is `Stored`.
pub(crate) fn ask(
    flow: &Flow,
    run: RunId,
    stored: Option<(&RunFlow, Option<Timestamp>)>,
    is_current: bool,
    paused: Option<String>,
    now: Timestamp,
    rows: &mut KeyRows,
) -> Asked {
    let step = stored.map(|(stored, _)| stored.step);
    let mut granted = Granted {
        step: FlowStep::Places,
        held: stored.map_or(0, |(stored, _)| stored.held),
        waiting: None,
        delayed_until: None,
    };
    if let Some((stored, Some(due))) = stored
        && stored.step != FlowStep::Places
        && due > now
    {
        (granted.step, granted.delayed_until) = (stored.step, Some(due));
        return Asked::Stored(granted);
    }
    if step.is_none() {
        if let Some(unique) = &flow.unique {
            match rows.get(&unique.key).and_then(|row| row.run) {
                Some(owner) if owner != run => return Asked::Existing(owner),
                _ => {}
            }
        }
        let is_full = |place: &Place| place.refuse && !is_free(place, is_current, rows);
        if flow.places.iter().any(is_full) {
            return Asked::Full;
        }
        if let Some(debounce) = &flow.debounce {
            let quiet = now.plus_millis(debounce.quiet_ms);
            let row = rows.entry(debounce.key.key.clone()).or_default();
            if let Some(other) = row.run.filter(|other| *other != run) {
                let latest = debounce
                    .max_ms
                    .zip(row.begin)
                    .map(|(max, first)| first.plus_millis(max));
                let wake_at = latest.map_or(quiet, |latest| latest.min(quiet)).max(now);
                return Asked::Merge { run: other, wake_at };
            }
            (row.run, row.begin) = (Some(run), Some(now));
            let latest = debounce.max_ms.map_or(quiet, |max| now.plus_millis(max));
            (granted.step, granted.delayed_until) = (FlowStep::Debounce, Some(quiet.min(latest)));
        }
        own(flow, run, rows);
        if granted.delayed_until.is_some() {
            return Asked::Stored(granted);
        }
    }
    if step == Some(FlowStep::Debounce)
        && let Some(debounce) = &flow.debounce
        && let Some(row) = rows.get_mut(&debounce.key.key)
        && row.run == Some(run)
    {
        (row.run, row.begin) = (None, None);
    }
    if step.is_none_or(|step| step == FlowStep::Debounce)
        && let Some(begin) = window(flow, now, rows)
    {
        (granted.step, granted.delayed_until) = (FlowStep::Rate, Some(begin));
        return Asked::Stored(granted);
    }
    if paused.is_some() {
        for place in flow.places.iter().take(granted.held as usize) {
            if let Some(row) = rows.get_mut(&place.key.key) {
                row.held = row.held.saturating_sub(1);
            }
        }
        (granted.held, granted.waiting) = (0, paused);
        return Asked::Stored(granted);
    }
    for place in flow.places.iter().skip(granted.held as usize) {
        let is_free = is_free(place, is_current, rows);
        let row = limited(place, is_current, rows);
        match is_free {
            true => row.held += 1,
            // Only a run that was stored before it asked comes here: its runner ends it, and that frees what it holds.
            false if place.refuse && stored.is_some() => return Asked::Full,
            false => {
                row.has_waiters = true;
                granted.waiting = Some(place.key.key.clone());
                break;
            }
        }
        granted.held += 1;
    }
    Asked::Stored(granted)
}

fn own(flow: &Flow, run: RunId, rows: &mut KeyRows) {
    if let Some(unique) = &flow.unique {
        rows.entry(unique.key.clone()).or_default().run = Some(run);
    }
}

/// Whether a run may take a place now.
fn is_free(place: &Place, is_current: bool, rows: &KeyRows) -> bool {
    let Some(row) = rows.get(&place.key.key) else {
        return true;
    };
    let most = match sets_limit(place, is_current, row) {
        true => place.limit,
        false => row.most,
    };
    row.held < most && !row.has_waiters
}

/// The row of a place's key, with the limit that is in force.
fn limited<'a>(place: &Place, is_current: bool, rows: &'a mut KeyRows) -> &'a mut KeyRow {
    let row = rows.entry(place.key.key.clone()).or_default();
    if sets_limit(place, is_current, row) {
        (row.most, row.version) = (place.limit, place.version);
    }
    row
}

/// Whether the limit of a run replaces that of the key. The limit of a document is that of its active version: another version
/// sets it only if the key has none. The limit of a tenant is the last one seen.
fn sets_limit(place: &Place, is_current: bool, row: &KeyRow) -> bool {
    is_current || place.tenant || row.most == 0
}

/// The limit that a stored plan gives to the keys of its workflow.
pub(crate) fn limit_of(plan: &str) -> u32 {
    #[derive(Deserialize)]
    struct Text {
        plan: Part,
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        flow: Option<FlowControl>,
    }
    // Plans without the rule are not parsed.
    let text = match plan.contains(r#""concurrency":{"#) {
        true => serde_json::from_str::<Text>(plan).ok(),
        false => None,
    };
    let control = text.and_then(|text| text.plan.flow);
    let rule = control.and_then(|control| control.concurrency);
    rule.map_or(UNLIMITED, |rule| rule.limit.min(UNLIMITED))
}

/// Counts a run in the first window that has room. Returns its begin if that is in the future.
fn window(flow: &Flow, now: Timestamp, rows: &mut KeyRows) -> Option<Timestamp> {
    let rate = flow.rate.as_ref()?;
    let period = i64::try_from(rate.period_ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(1000)
        .max(1);
    let current = Timestamp(now.0.div_euclid(period) * period);
    let row = rows.entry(rate.key.key.clone()).or_default();
    match row.begin {
        Some(begin) if begin >= current && row.counted < rate.limit => row.counted += 1,
        Some(begin) if begin >= current => (row.begin, row.counted) = (Some(Timestamp(begin.0 + period)), 1),
        _ => (row.begin, row.counted) = (Some(current), 1),
    }
    let begin = row.begin.unwrap_or(current);
    row.expires_at = Some(Timestamp(begin.0.saturating_add(period)));
    (begin > now).then_some(begin)
}

/// Whether a message leaves a run asleep that waits or is delayed. `step`: that of the run, if it has flow control.
pub(crate) fn stays_asleep<T>(status: Status, step: Option<T>, is_cancel: bool) -> bool {
    status == Status::Pending && step.is_some() && !is_cancel
}

/// The keys of which an ended run held a place.
pub(crate) fn freed(stored: &RunFlow) -> impl Iterator<Item = &str> {
    let held = stored.flow.places.iter().take(stored.held as usize);
    held.map(|place| place.key.key.as_str())
}

/// The keys whose rows a run changes when it ends.
pub(crate) fn keys_at_end(stored: &RunFlow) -> impl Iterator<Item = &str> {
    let unique = stored.flow.unique.iter().map(|unique| unique.key.as_str());
    let debounce = stored
        .flow
        .debounce
        .iter()
        .filter(|_| stored.step == FlowStep::Debounce);
    let owned = unique.chain(debounce.map(|debounce| debounce.key.key.as_str()));
    freed(stored).chain(owned)
}

#[cfg(test)]
mod tests;
