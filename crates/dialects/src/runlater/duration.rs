//! Durations: `"30s"`, `"5m"`, `"2h"`, `"1d"`, or a number in the unit of its field.

use serde_json::Value;

/// A hundred years. More is a mistake, and timestamps must hold it.
const LONGEST_MS: f64 = 100.0 * 365.25 * 24.0 * 60.0 * 60.0 * 1000.0;

/// What a bare number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    fn in_ms(self) -> f64 {
        match self {
            Unit::Seconds => 1000.0,
            Unit::Milliseconds => 1.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
        }
    }
}

/// Why a value is no duration, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) help: String,
}

/// The duration in milliseconds. `unit` is what a bare number counts.
pub(super) fn parse(value: &Value, unit: Unit) -> Result<u64, Wrong> {
    let accepted = format!("write `30s`, `5m`, `2h`, `1d`, or a number of {}", unit.name());
    let wrong = |what: &str, help: String| Wrong {
        what: what.to_owned(),
        help,
    };
    let ms = match value {
        // One that is too large for a double is infinite here.
        Value::Number(number) => number.as_str().parse().ok().map(|number: f64| number * unit.in_ms()),
        Value::String(text) if text.contains("{{") => {
            return Err(wrong("is fixed and cannot hold a template", accepted));
        }
        Value::String(text) => match split(text) {
            Some((amount, name)) => unit_ms(name).map(|unit| amount * unit),
            None => None,
        },
        _ => None,
    };
    match ms {
        Some(ms) if ms < 0.0 => Err(wrong("cannot be negative", accepted)),
        Some(ms) if ms > LONGEST_MS => Err(wrong("cannot be longer than a hundred years", accepted)),
        // Checked above: it is finite, not negative, and fits.
        Some(ms) => Ok(ms.round() as u64),
        None => {
            let guess = value.as_str().and_then(|text| guess(text, unit));
            let help = guess.map_or(accepted, |guess| format!("did you mean {guess}?"));
            Err(wrong("must be a duration", help))
        }
    }
}

/// A whole number as JSON Schema understands it: `1000`, and `1e3` too. Larger ones than fit are as good as the largest
/// that does.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let double = || {
        value
            .as_number()?
            .as_str()
            .parse()
            .ok()
            .filter(|number: &f64| *number >= 0.0)
    };
    value.as_u64().or_else(|| double().map(|number| number as u64))
}

/// `1.5h` as 1.5 and `h`.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (amount, name) = text.split_at(end);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let plain = match amount.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(amount),
    };
    Some((amount.parse().ok().filter(|_| plain)?, name))
}

fn unit_ms(name: &str) -> Option<f64> {
    Some(match name {
        "ms" => 1.0,
        "s" => 1000.0,
        "m" => 60.0 * 1000.0,
        "h" => 60.0 * 60.0 * 1000.0,
        "d" => 24.0 * 60.0 * 60.0 * 1000.0,
        _ => return None,
    })
}

/// What somebody probably meant who wrote `5 minutes`, `2H` or `30`.
fn guess(text: &str, unit: Unit) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    if let Ok(number) = text.parse::<u32>() {
        let name = match unit {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
        };
        return Some(format!("`{number}{name}` or the number {number}"));
    }
    let (amount, name) = split(&text)?;
    let (factor, name) = match name.trim() {
        "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" | "ms" => (1.0, "ms"),
        "s" | "sec" | "secs" | "second" | "seconds" => (1.0, "s"),
        "m" | "min" | "mins" | "minute" | "minutes" => (1.0, "m"),
        "h" | "hr" | "hrs" | "hour" | "hours" => (1.0, "h"),
        "d" | "day" | "days" => (1.0, "d"),
        "w" | "week" | "weeks" => (7.0, "d"),
        _ => return None,
    };
    Some(format!("`{}{name}`", amount * factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_have_a_unit_and_numbers_have_the_one_of_their_field() {
        let table = [
            (json!("30s"), 30_000),
            (json!("5m"), 300_000),
            (json!("2h"), 7_200_000),
            (json!("1d"), 86_400_000),
            (json!("13d"), 1_123_200_000),
            (json!("250ms"), 250),
            (json!("1.5h"), 5_400_000),
            (json!("0s"), 0),
            (json!(2.5), 2500),
            (json!(0), 0),
            (json!("36525d"), 3_155_760_000_000),
        ];
        for (value, expected) in table {
            assert_eq!(parse(&value, Unit::Seconds), Ok(expected), "{value}");
        }
        assert_eq!(parse(&json!(30_000), Unit::Milliseconds), Ok(30_000));
        assert_eq!(parse(&json!("30s"), Unit::Milliseconds), Ok(30_000));
    }

    #[test]
    fn what_is_no_duration_gets_advice() {
        let accepted = "write `30s`, `5m`, `2h`, `1d`, or a number of seconds";
        let table = [
            (json!("5 minutes"), "must be a duration", "did you mean `5m`?"),
            (json!("2H"), "must be a duration", "did you mean `2h`?"),
            (json!("1w"), "must be a duration", "did you mean `7d`?"),
            (
                json!("30"),
                "must be a duration",
                "did you mean `30s` or the number 30?",
            ),
            (json!("1h30m"), "must be a duration", accepted),
            (json!("1.h"), "must be a duration", accepted),
            (json!(".5h"), "must be a duration", accepted),
            (json!("1.2.3s"), "must be a duration", accepted),
            (json!("-1s"), "must be a duration", accepted),
            (json!(""), "must be a duration", accepted),
            (json!("s"), "must be a duration", accepted),
            (json!("５s"), "must be a duration", accepted),
            (json!(true), "must be a duration", accepted),
            (json!(null), "must be a duration", accepted),
            (json!(-0.5), "cannot be negative", accepted),
            (json!("36526d"), "cannot be longer than a hundred years", accepted),
            (json!(1e300), "cannot be longer than a hundred years", accepted),
            (
                json!("{{trigger.body.x}}"),
                "is fixed and cannot hold a template",
                accepted,
            ),
        ];
        for (value, what, help) in table {
            let wrong = parse(&value, Unit::Seconds).expect_err(&value.to_string());
            assert_eq!((wrong.what.as_str(), wrong.help.as_str()), (what, help), "{value}");
        }
        let wrong = parse(&json!("30"), Unit::Milliseconds).unwrap_err();
        assert_eq!(wrong.help, "did you mean `30ms` or the number 30?");
    }
}
