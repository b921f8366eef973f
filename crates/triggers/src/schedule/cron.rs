//! Cron expressions on the wall clock of a time zone.
//!
//! An expression is evaluated on the calendar alone; then each time of the calendar becomes an instant of the zone. A time
//! in a gap becomes the end of the gap, one that occurs twice its first occurrence. So the instants never decrease while
//! the calendar goes on, and several times in one gap are one instant.

mod explain;

use croner::parser::{CronParser, Seconds, Year};
use jiff::{
    SignedDuration, Timestamp, Zoned,
    civil::{self, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};

/// The longest expression, in bytes.
const LONGEST: usize = 256;
/// Where the search for a first match begins when an expression is checked.
const ANY_TIME: DateTime = civil::date(2000, 1, 1).at(0, 0, 0, 0);
const TICK: SignedDuration = SignedDuration::from_nanos(1);

/// An expression that matches some time.
#[derive(Debug, Clone)]
pub(super) struct Cron(croner::Cron);

impl Cron {
    /// Reads five fields, six fields with seconds first, or a macro. Says why it cannot be used.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(format!("must not be longer than {LONGEST} bytes"));
        }
        let source = match text.to_ascii_lowercase().as_str() {
            "@midnight" => "@daily",
            "@reboot" => return Err("has no time: `@reboot` is not supported".to_owned()),
            _ => text,
        };
        let fields = source.split_whitespace().count();
        if !source.starts_with('@') && !(5..=6).contains(&fields) {
            return Err(format!(
                "must have five fields, or six with seconds first; `{text}` has {fields}"
            ));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(source).map(Self);
        let cron = cron.map_err(|_| format!("is not a cron expression: `{text}`: {}", explain::explain(text)))?;
        match cron.next_time(ANY_TIME, true) {
            Some(_) => Ok(cron),
            None => Err(format!("never fires: no date fits `{text}`")),
        }
    }

    /// The first instant later than `after` in this zone.
    pub(super) fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (mut time, mut inclusive) = start(after, zone)?;
        loop {
            time = self.next_time(time, inclusive)?;
            inclusive = false;
            match instant_of(time, zone)? {
                instant if instant > after => return Some(instant),
                _ => {}
            }
        }
    }

    /// The next match on the calendar. `None` if there is none before the year 5000.
    fn next_time(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let from: Zoned = from.to_zoned(TimeZone::UTC).ok()?;
        self.0
            .find_next_occurrence(&from, inclusive)
            .ok()
            .map(|found| found.datetime())
    }
}

/// Where on the calendar the search for an instant later than `after` begins, and whether that time counts itself.
/// While a repeated hour runs for the second time, all of it has fired already: the search begins at its end.
fn start(after: Timestamp, zone: &TimeZone) -> Option<(DateTime, bool)> {
    let second = DateTime::from_parts;
    let local = zone.to_datetime(after);
    let local = second(local.date(), local.time().with().subsec_nanosecond(0).build().ok()?);
    if let Some(change) = zone.preceding(after.checked_add(TICK).ok()?).next() {
        let before = zone.to_offset(change.timestamp().checked_sub(TICK).ok()?);
        let repeated_until = before.to_datetime(change.timestamp());
        if repeated_until > local {
            return Some((repeated_until, true));
        }
    }
    Some((local, false))
}

/// The instant of a time of the wall clock: the first of two, or the end of the gap that skips it.
pub(super) fn instant_of(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok(),
        AmbiguousOffset::Gap { before, .. } => {
            let passed = before.to_timestamp(time).ok()?.checked_add(TICK).ok()?;
            Some(zone.preceding(passed).next()?.timestamp())
        }
    }
}
