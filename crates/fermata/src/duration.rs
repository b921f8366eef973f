//! Durations as people write them: `250ms`, `30s`, `5m`, `1h30m`, `2d`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, time::Duration};

/// Longer than any run may take, and far from every overflow.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A duration of the configuration, of at least `LEAST` ms: whole milliseconds, or text such as `5m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis<const LEAST: u64 = 0>(pub Duration);

impl<const LEAST: u64> Millis<LEAST> {
    /// As whole milliseconds.
    pub fn get(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl<const LEAST: u64> Serialize for Millis<LEAST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de, const LEAST: u64> Deserialize<'de> for Millis<LEAST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("milliseconds as a whole number, or a duration such as \"30s\" or \"5m\"")
            }

            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Duration, E> {
                match u64::try_from(millis) {
                    Ok(millis) => self.visit_u64(millis),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(millis), &self)),
                }
            }

            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Duration, E> {
                bounded(Duration::from_millis(millis)).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                parse(text).map_err(E::custom)
            }
        }

        let duration = deserializer.deserialize_any(Visitor)?;
        match duration >= Duration::from_millis(LEAST) {
            true => Ok(Millis(duration)),
            false => Err(de::Error::custom(format!("it must be at least {LEAST} ms"))),
        }
    }
}

/// Reads a duration. A number without a unit is refused: nobody would agree on what it means.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = |why: &str| format!("`{text}` is not a duration: {why}; write it like 250ms, 30s, 5m or 1h30m");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = match number {
            "" => return Err(bad("a number is missing")),
            digits => digits.parse().map_err(|_| bad("the number is too large"))?,
        };
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" => return Err(bad("a unit is missing")),
            _ => return Err(bad(&format!("`{unit}` is not a unit"))),
        };
        let part = number.checked_mul(unit_ms).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| bad("it is too long"))?;
        rest = after.trim_start();
    }
    bounded(total)
}

fn bounded(duration: Duration) -> Result<Duration, String> {
    match duration <= LONGEST {
        true => Ok(duration),
        false => Err("the duration is longer than 100 years".to_owned()),
    }
}

/// As short as it can be read at a glance: `8 ms`, `1.2 s`, `3 min 5 s`, `13 d 1 h`.
pub fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    let seconds = duration.as_secs();
    match seconds {
        0 if millis == 0 => "<1 ms".to_owned(),
        0 => format!("{millis} ms"),
        1..60 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// As one would write it: `13d`, `1h30m`, `250ms`.
pub fn written(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, millis) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        if left >= millis {
            text.push_str(&format!("{}{unit}", left / millis));
            left %= millis;
        }
    }
    match text.is_empty() {
        true => "0s".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            (" 2d ", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for text in ["13d", "1h30m", "250ms", "2s", "1d2h3m4s5ms", "0s"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("30", "a unit is missing"),
            ("s", "a number is missing"),
            ("-5s", "a number is missing"),
            ("5 s", "a unit is missing"),
            ("1.5s", "a unit is missing"),
            ("5y", "`y` is not a unit"),
            ("99999999999999999999s", "the number is too large"),
            ("9999999999999999999d", "it is too long"),
            ("40000d", "longer than 100 years"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn configuration_takes_numbers_and_text() {
        let millis = |json: &str| serde_json::from_str::<Millis<0>>(json);
        assert_eq!(millis("1500").unwrap().get(), 1500);
        assert_eq!(millis("\"5m\"").unwrap().get(), 300_000);
        assert!(
            millis("-1")
                .unwrap_err()
                .to_string()
                .contains("milliseconds as a whole number")
        );
        assert!(
            millis("true")
                .unwrap_err()
                .to_string()
                .contains("milliseconds as a whole number")
        );
        assert!(millis("18446744073709551615").is_err());
        assert!(serde_json::from_str::<Millis<1>>("\"0s\"").is_err());
    }

    #[test]
    fn shows_what_matters() {
        let shown = [0, 8, 1240, 185_000, 7_260_000, 1_126_800_000].map(|millis| show(Duration::from_millis(millis)));
        assert_eq!(shown, ["<1 ms", "8 ms", "1.2 s", "3 min 5 s", "2 h 1 min", "13 d 1 h"]);
    }
}
