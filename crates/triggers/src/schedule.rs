//! Fire times: cron, `every` and `at`, in a time zone, between a start and an end.
//!
//! | timing | instants |
//! | --- | --- |
//! | `cron` | the wall clock of the zone; five fields, or six with seconds first; or `@daily` and the like |
//! | `every` | elapsed time, counted from `startAt`, else from 1970-01-01T00:00:00Z |
//! | `at` | once |
//!
//! What must stay true:
//!
//! * [`Schedule::next_after`] depends on the configuration and the given instant only, so every process computes the same.
//! * A cron time that a change of the clock skips fires once right after the gap; one that occurs twice fires the first time.
//! * `startAt` and `endAt` belong to the schedule.

mod cron;
mod firing;
#[cfg(test)]
mod tests;

pub use firing::{Firing, MOST_CAUGHT_UP, ON_TIME, occurrence_id};

use crate::config::{Problem, fields::Fields};
use cron::Cron;
use fermata_core::Timestamp;
use jiff::{civil::DateTime, tz::TimeZone};
use serde_json::Value;
use std::time::Duration;

/// What happens at an instant while the run of the previous instant has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// Another run starts.
    #[default]
    Allow,
    /// The instant starts nothing.
    Skip,
    /// One instant waits for the end of the running one; further ones start nothing.
    QueueOne,
    /// The running one is cancelled, then a run starts.
    CancelRunning,
}

impl Overlap {
    const NAMES: [(&'static str, Self); 4] = [
        ("allow", Self::Allow),
        ("skip", Self::Skip),
        ("queueOne", Self::QueueOne),
        ("cancelRunning", Self::CancelRunning),
    ];
}

/// Which instants of an outage fire afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// None of them.
    None,
    /// The latest, if it is not older than this.
    Latest(Duration),
    /// The latest [`MOST_CAUGHT_UP`] that are not older than this.
    All(Duration),
}

/// The window of `catchUp`, unless it is configured.
const DEFAULT_WINDOW: Duration = Duration::from_secs(3600);

impl Default for CatchUp {
    fn default() -> Self {
        Self::Latest(DEFAULT_WINDOW)
    }
}

/// When a schedule fires, apart from its limits.
#[derive(Debug, Clone)]
enum Timing {
    Cron(Box<Cron>),
    /// Microseconds.
    Every(i64),
    At(Timestamp),
}

/// The configuration of a schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    timing: Timing,
    zone: TimeZone,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    /// Microseconds.
    jitter: i64,
    /// What happens while the previous run has not ended.
    pub overlap: Overlap,
    /// What happens after an outage.
    pub catch_up: CatchUp,
}

impl Schedule {
    /// Reads the configuration of a schedule.
    ///
    /// # Errors
    /// Everything that is wrong with it, also that it can never fire.
    pub fn parse(config: &Value, pointer: &str) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::of(config, pointer)?;
        let zone = match fields.text("timeZone").map(zone) {
            None => TimeZone::UTC,
            Some(Ok(zone)) => zone,
            Some(Err(why)) => {
                fields.wrong("timeZone", &why);
                TimeZone::UTC
            }
        };
        let given = ["cron", "every", "at"].map(|key| fields.value(key).is_some());
        if given.into_iter().filter(|given| *given).count() != 1 {
            fields.wrong_whole("needs exactly one of `cron`, `every` and `at`");
        }
        let cron = fields.text("cron").and_then(|text| match Cron::parse(text) {
            Ok(cron) => Some(Timing::Cron(Box::new(cron))),
            Err(why) => {
                fields.wrong("cron", &why);
                None
            }
        });
        let every = fields.duration("every", Duration::from_secs(1));
        let every = every.map(|every| Timing::Every(micros(every)));
        let at = instant(&mut fields, "at", &zone).map(Timing::At);
        let overlap = fields.one_of("overlap", &Overlap::NAMES).unwrap_or_default();
        let catch_up = fields.part("catchUp", catch_up).unwrap_or_default();
        let jitter = fields.duration("jitter", Duration::ZERO).map_or(0, micros);
        let start = instant(&mut fields, "startAt", &zone);
        let end = instant(&mut fields, "endAt", &zone);
        if start.zip(end).is_some_and(|(start, end)| end <= start) {
            fields.wrong("endAt", "must be later than startAt");
        }
        let timing = cron.or(every).or(at);
        fields.finish()?;
        let Some(timing) = timing else {
            return Err(vec![Problem::new(pointer, "has no time to fire")]);
        };
        let schedule = Self {
            timing,
            zone,
            start,
            end,
            jitter,
            overlap,
            catch_up,
        };
        match schedule.next_after(Timestamp(0)) {
            Some(_) => Ok(schedule),
            None => Err(vec![Problem::new(pointer, "never fires between `startAt` and `endAt`")]),
        }
    }

    /// The first instant later than `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = match self.start {
            Some(start) => after.max(Timestamp(start.0.saturating_sub(1))),
            None => after,
        };
        let next = match &self.timing {
            Timing::Cron(cron) => from_jiff(cron.next_after(to_jiff(after)?, &self.zone)?),
            Timing::Every(period) => {
                let anchor = self.start.map_or(0, |start| start.0);
                let passed = after.0.saturating_sub(anchor).div_euclid(*period);
                let next = anchor.checked_add(passed.checked_add(1)?.checked_mul(*period)?)?;
                to_jiff(Timestamp(next)).map(from_jiff)?
            }
            Timing::At(at) => Some(*at).filter(|at| *at > after)?,
        };
        Some(next).filter(|next| self.end.is_none_or(|end| *next <= end))
    }

    /// The next instants after `after`, `count` at most.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        let first = self.next_after(after);
        std::iter::successors(first, |last| self.next_after(*last))
            .take(count)
            .collect()
    }

    /// The last instant that is not later than `at` and not earlier than `floor`.
    fn last_until(&self, at: Timestamp, floor: Timestamp) -> Option<Timestamp> {
        const SECOND: i64 = 1_000_000;
        let fits = |after: i64| self.next_after(Timestamp(after)).filter(|next| *next <= at);
        let lowest = floor.0.saturating_sub(1);
        // The start of a search window before `at` that contains an instant, doubled until there is one.
        let mut late = at.0;
        let mut width = SECOND;
        let mut early = loop {
            let early = at.0.saturating_sub(width).max(lowest);
            if fits(early).is_some() {
                break early;
            }
            if early <= lowest {
                return None;
            }
            late = early;
            width = width.saturating_mul(2);
        };
        // Between `early`, after which an instant fits, and `late`, after which none does.
        while late - early > 1 {
            let middle = early + (late - early) / 2;
            match fits(middle) {
                Some(_) => early = middle,
                None => late = middle,
            }
        }
        fits(early)
    }
}

fn catch_up(value: &Value, pointer: &str) -> Result<CatchUp, Vec<Problem>> {
    #[derive(Clone, Copy)]
    enum Mode {
        None,
        Latest,
        All,
    }
    let mut fields = Fields::of(value, pointer)?;
    let modes = [("none", Mode::None), ("latest", Mode::Latest), ("all", Mode::All)];
    let mode = fields.one_of("mode", &modes);
    let window = fields
        .duration("window", Duration::from_secs(1))
        .unwrap_or(DEFAULT_WINDOW);
    fields.finish()?;
    Ok(match mode {
        Some(Mode::None) => CatchUp::None,
        Some(Mode::All) => CatchUp::All(window),
        Some(Mode::Latest) | None => CatchUp::Latest(window),
    })
}

/// The time zone with this name of the IANA database.
fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        let zones: Vec<String> = jiff::tz::db().available().map(|zone| zone.to_string()).collect();
        match fermata_expr::nearest(name, zones.iter().map(String::as_str)) {
            Some(zone) => format!("is not a time zone: `{name}`; did you mean `{zone}`?"),
            None => format!("is not a time zone: `{name}`; write it like Europe/Berlin or UTC"),
        }
    })
}

/// An instant with an offset, or a time of the wall clock of `zone`.
fn instant(fields: &mut Fields<'_>, key: &'static str, zone: &TimeZone) -> Option<Timestamp> {
    let text = fields.text(key)?;
    let absolute = text.parse::<jiff::Timestamp>().ok();
    let found = absolute.or_else(|| cron::instant_of(text.parse::<DateTime>().ok()?, zone));
    match found.filter(|instant| instant.as_second() >= 0) {
        Some(instant) => Some(from_jiff(instant)),
        None => {
            let message = "must be an instant, such as 2026-03-01T09:00:00Z, or without `Z` a time of the time zone";
            fields.wrong(key, message);
            None
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn to_jiff(instant: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(instant.0).ok()
}

fn from_jiff(instant: jiff::Timestamp) -> Timestamp {
    Timestamp(instant.as_microsecond())
}
