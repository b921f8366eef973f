//! Durations of the configuration.

pub use fermata_core::duration::{LONGEST, bounded, parse, show, written};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, time::Duration};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
