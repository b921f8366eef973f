//! Instants as the API writes them: `2026-11-15T10:30:00.123Z`.

use fermata_core::Timestamp;
use serde::{Serialize, Serializer};
use std::fmt;

/// An instant in ISO 8601, UTC, with milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Iso(pub Timestamp);

impl fmt::Display for Iso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.millis();
        // The calendar ends long before the number does; what lies beyond is shown as its end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_have_milliseconds_whatever_they_are() {
        let text = |micros| Iso(Timestamp(micros)).to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(1_794_738_600_123_999), "2026-11-15T10:30:00.123Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
        assert!(text(i64::MAX).starts_with("9999-12-30T") && text(i64::MIN).starts_with("-009999-"));
    }
}
