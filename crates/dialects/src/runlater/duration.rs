//! Durations: `"30s"`, `"5m"`, `"2h"`, `"1d"`, or a number in the unit of its field.

use fermata_core::duration;
use serde_json::Value;

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

    fn short(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
        }
    }
}

/// Why a value is not a duration, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) help: String,
}

/// The duration in milliseconds. `unit` is what a bare number counts.
pub(super) fn parse(value: &Value, unit: Unit) -> Result<u64, Wrong> {
    let accepted = || format!("write `30s`, `5m`, `2h`, `1d`, or a number of {}", unit.name());
    let wrong = |what: &str| Wrong {
        what: what.to_owned(),
        help: accepted(),
    };
    match value {
        Value::Number(number) => {
            // One that is too large for a double is infinite here.
            let ms = number.as_str().parse::<f64>().unwrap_or(f64::NAN) * unit.in_ms();
            match ms {
                ms if ms < 0.0 => Err(wrong("cannot be negative")),
                ms if ms <= duration::LONGEST.as_millis() as f64 => Ok(ms.round() as u64),
                _ => Err(wrong("cannot be longer than 100 years")),
            }
        }
        Value::String(text) if text.contains("{{") => Err(wrong("is fixed and cannot hold a template")),
        Value::String(text) => match duration::parse(text) {
            Ok(duration) => Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            Err(error) => Err(Wrong {
                what: format!("must be a duration: {}", error.why),
                help: match (error.meant, text.trim().parse::<u32>()) {
                    (Some(meant), _) => format!("did you mean `{meant}`?"),
                    (None, Ok(number)) => format!("write `{number}{}`, or the number {number}", unit.short()),
                    (None, Err(_)) => accepted(),
                },
            }),
        },
        _ => Err(wrong("must be a duration")),
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
            (json!("1h30m"), 5_400_000),
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
    fn refusals_name_the_cause_and_the_remedy() {
        let accepted = "write `30s`, `5m`, `2h`, `1d`, or a number of seconds";
        let table = [
            (
                json!("5 minutes"),
                "must be a duration: `5 minutes` is not a number with a unit",
                "did you mean `5m`?",
            ),
            (
                json!("30"),
                "must be a duration: the unit of `30` is missing",
                "write `30s`, or the number 30",
            ),
            (
                json!("-1s"),
                "must be a duration: `-1s` does not begin with a number",
                accepted,
            ),
            (json!(""), "must be a duration: it is empty", accepted),
            (json!(true), "must be a duration", accepted),
            (json!(null), "must be a duration", accepted),
            (json!(-0.5), "cannot be negative", accepted),
            (
                json!("36526d"),
                "must be a duration: it is longer than 100 years",
                accepted,
            ),
            (json!(1e300), "cannot be longer than 100 years", accepted),
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
        assert_eq!(wrong.help, "write `30ms`, or the number 30");
    }
}
