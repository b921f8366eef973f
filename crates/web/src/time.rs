//! Times in the format of the API: `2026-11-15T10:30:00.123Z`.

use fermata_core::Timestamp;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// A time in ISO 8601, UTC, with milliseconds.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(inline, extend("format" = "date-time"))]
pub(crate) struct Iso(#[schemars(with = "String")] pub Timestamp);

impl fmt::Display for Iso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.millis();
        // The calendar has a smaller range than the timestamp; a time beyond it is shown as its first or last moment.
        let end = match millis < 0 {
            true => jiff::Timestamp::MIN,
            false => jiff::Timestamp::MAX,
        };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(millis).unwrap_or(end))
    }
}

impl Serialize for Iso {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Milliseconds since 1970, from `2026-11-15T10:30:00Z` (any offset) or from a number. `None` if a UUIDv7 cannot hold it.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let millis = match text.parse::<u64>() {
        Ok(millis) => millis,
        Err(_) => u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok()?,
    };
    (millis < 1 << 48).then_some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_from_iso_8601_and_milliseconds() {
        for text in [
            "1794738600123",
            "2026-11-15T10:30:00.123Z",
            "2026-11-15T10:30:00.1239Z",
            "2026-11-15T12:30:00.123+02:00",
        ] {
            assert_eq!(millis(text), Some(1_794_738_600_123), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-11-15",
            "-1",
            "1969-12-31T00:00:00Z",
            "281474976710656",
            "1e9",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_written_with_milliseconds() {
        let text = |micros| Iso(Timestamp(micros)).to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(1_794_738_600_123_999), "2026-11-15T10:30:00.123Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
        assert!(text(i64::MAX).starts_with("9999-12-30T") && text(i64::MIN).starts_with("-009999-"));
    }
}
