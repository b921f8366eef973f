//! Durations as text: `250ms`, `30s`, `5m`, `1.5h`, `1h30m`, `2d`. The one parser for documents, the API, the
//! configuration and the command line, and the two ways to write a duration back.

use std::{fmt, time::Duration};

/// The longest duration that is accepted, 100 years: longer than a run may take, and far from the limits of timestamps.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// The units, from short to long, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationError {
    /// The cause, such as ``the unit of `30` is missing``.
    pub why: String,
    /// What to write instead, such as `30s`, if that can be guessed.
    pub meant: Option<String>,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.meant {
            Some(meant) => write!(f, "{}; did you mean `{meant}`?", self.why),
            None => write!(f, "{}; write it like 250ms, 30s, 5m, 2h, 1d or 1h30m", self.why),
        }
    }
}

impl std::error::Error for DurationError {}

/// Reads a duration, exact to the millisecond. A number without a unit is refused: its unit depends on the reader.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let wrong = |why: String| DurationError {
        why,
        meant: guess(text),
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let (number, name, after) = part(rest);
        if number.is_empty() {
            return Err(wrong(format!("`{}` does not begin with a number", shortened(rest))));
        }
        let Some((_, unit_ms)) = UNITS.into_iter().find(|(unit, _)| *unit == name) else {
            return Err(wrong(match name {
                "" if after.trim_start().starts_with(char::is_alphabetic) => {
                    format!("`{}` is not a number with a unit", shortened(rest))
                }
                "" => format!("the unit of `{number}` is missing"),
                name => format!("`{}` is not a unit", shortened(name)),
            }));
        };
        let Some(ms) = millis(number, unit_ms) else {
            return Err(wrong(format!("`{}` is not a number", shortened(number))));
        };
        total_ms = total_ms.saturating_add(ms);
        rest = after.trim_start();
    }
    bounded(Duration::from_millis(total_ms))
}

/// Refuses a duration that is longer than [`LONGEST`].
pub fn bounded(duration: Duration) -> Result<Duration, DurationError> {
    match duration <= LONGEST {
        true => Ok(duration),
        false => Err(DurationError {
            why: "it is longer than 100 years".to_owned(),
            meant: None,
        }),
    }
}

/// `1.5h 30m` as `1.5`, `h` and ` 30m`.
fn part(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, after) = text.split_at(digits.unwrap_or(text.len()));
    let letters = after.find(|c: char| !c.is_alphabetic());
    let (name, after) = after.split_at(letters.unwrap_or(after.len()));
    (number, name, after)
}

/// `number` units in milliseconds, rounded; `None` if it is not a plain decimal number. One that does not fit is as
/// good as the largest that does.
fn millis(number: &str, unit_ms: u64) -> Option<u64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match number.split_once('.') {
        None if digits(number) => Some(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(unit_ms)),
        Some((whole, fraction)) if digits(whole) && digits(fraction) => {
            let amount: f64 = number.parse().ok()?;
            Some((amount * unit_ms as f64).round() as u64)
        }
        _ => None,
    }
}

/// What a text such as `5 minutes`, `2H` or `1w` was meant to be.
fn guess(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let (factor, unit) = match rest.trim() {
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => (1, "ms"),
        "s" | "sec" | "secs" | "second" | "seconds" => (1, "s"),
        "m" | "min" | "mins" | "minute" | "minutes" => (1, "m"),
        "h" | "hr" | "hrs" | "hour" | "hours" => (1, "h"),
        "d" | "day" | "days" => (1, "d"),
        "w" | "week" | "weeks" => (7, "d"),
        _ => return None,
    };
    millis(number, 1)?;
    match factor {
        1 => Some(format!("{number}{unit}")),
        factor => Some(format!("{}{unit}", number.parse::<u32>().ok()?.checked_mul(factor)?)),
    }
}

/// The beginning of a text, for messages.
fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}

/// As one would write it: `13d`, `1h30m`, `250ms`. [`parse`] reads it back.
pub fn written(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0s".to_owned(),
        _ => parts(duration).map(|(count, unit)| format!("{count}{unit}")).collect(),
    }
}

/// In full, for people: `30 s`, `1 s 999 ms`, `1 h 30 min`.
pub fn exact(duration: Duration) -> String {
    let part = |(count, unit)| format!("{count} {}", if unit == "m" { "min" } else { unit });
    match duration.as_millis() {
        0 => "0 s".to_owned(),
        _ => parts(duration).map(part).collect::<Vec<_>>().join(" "),
    }
}

/// How often each unit is in a duration, from the largest to the smallest.
fn parts(duration: Duration) -> impl Iterator<Item = (u64, &'static str)> {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let count = move |(unit, millis): (&'static str, u64)| {
        let count = left / millis;
        left %= millis;
        (count, unit)
    };
    UNITS.into_iter().rev().map(count).filter(|(count, _)| *count > 0)
}

/// Without the smaller units, for people: `8 ms`, `1.2 s`, `3 min 5 s`, `2 h`, `13 d 1 h`.
pub fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    let seconds = duration.as_secs();
    let parts = |large: (u64, &str), small: (u64, &str)| match small.0 {
        0 => format!("{} {}", large.0, large.1),
        _ => format!("{} {} {} {}", large.0, large.1, small.0, small.1),
    };
    match seconds {
        0 if millis == 0 => "<1 ms".to_owned(),
        0 => format!("{millis} ms"),
        1..60 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        60..3600 => parts((seconds / 60, "min"), (seconds % 60, "s")),
        3600..86_400 => parts((seconds / 3600, "h"), (seconds % 3600 / 60, "min")),
        _ => parts((seconds / 86_400, "d"), (seconds % 86_400 / 3600, "h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_read_and_added() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1.5h", 5_400_000),
            ("0.25s", 250),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            (" 2d ", 172_800_000),
            ("0s", 0),
            ("36525d", 3_155_760_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refusals_name_the_cause_and_what_was_meant() {
        let example = "; write it like 250ms, 30s, 5m, 2h, 1d or 1h30m";
        for (text, why, remedy) in [
            ("", "it is empty", example),
            ("30", "the unit of `30` is missing", example),
            ("1h30", "the unit of `30` is missing", example),
            ("s", "`s` does not begin with a number", example),
            ("-5s", "`-5s` does not begin with a number", example),
            ("５s", "`５s` does not begin with a number", example),
            ("5y", "`y` is not a unit", example),
            (
                "5 minutes",
                "`5 minutes` is not a number with a unit",
                "; did you mean `5m`?",
            ),
            ("2H", "`H` is not a unit", "; did you mean `2h`?"),
            ("1w", "`w` is not a unit", "; did you mean `7d`?"),
            ("1.h", "`1.` is not a number", example),
            (".5h", "`.5` is not a number", example),
            ("1.2.3s", "`1.2.3` is not a number", example),
            ("36526d", "it is longer than 100 years", example),
            ("99999999999999999999s", "it is longer than 100 years", example),
        ] {
            let refused = parse(text).expect_err(text).to_string();
            assert_eq!(refused, format!("{why}{remedy}"), "{text}");
        }
    }

    #[test]
    fn written_durations_are_read_back() {
        for text in ["13d", "1h30m", "250ms", "2s", "1d2h3m4s5ms", "0s"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn exact_durations_lose_nothing() {
        for (millis, text) in [
            (0, "0 s"),
            (30_000, "30 s"),
            (1999, "1 s 999 ms"),
            (90_500, "1 min 30 s 500 ms"),
            (5_400_000, "1 h 30 min"),
        ] {
            assert_eq!(exact(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn shown_durations_have_two_units() {
        for (millis, shown) in [
            (0, "<1 ms"),
            (8, "8 ms"),
            (1240, "1.2 s"),
            (185_000, "3 min 5 s"),
            (180_000, "3 min"),
            (7_260_000, "2 h 1 min"),
            (3_600_000, "1 h"),
            (1_126_800_000, "13 d 1 h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), shown);
        }
    }
}
