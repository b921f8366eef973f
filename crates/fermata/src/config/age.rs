//! How long something is kept: a duration, or `forever`.

use crate::duration::{self, Millis};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::Duration;

/// `None` is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Age(pub Option<Duration>);

const FOREVER: &str = "forever";

impl Serialize for Age {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_str(FOREVER),
            Some(age) => serializer.serialize_str(&duration::written(age)),
        }
    }
}

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(Millis),
        }
        let text = match Written::deserialize(deserializer) {
            Ok(Written::Text(text)) => text,
            Ok(Written::Number(millis)) => return Ok(Age(Some(millis.0))),
            Err(_) => return Err(de::Error::custom("expected \"forever\" or a duration such as \"30d\"")),
        };
        match text.trim() {
            FOREVER => Ok(Age(None)),
            text => duration::parse(text)
                .map(|age| Age(Some(age)))
                .map_err(|error| de::Error::custom(format!("{}; write it like 30d or 12h, or \"forever\"", error.why))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_durations_or_forever() {
        let read = |json: &str| serde_json::from_str::<Age>(json).map_err(|error| error.to_string());
        assert_eq!(read("\"forever\"").unwrap(), Age(None));
        assert_eq!(read("\"30d\"").unwrap(), Age(Some(Duration::from_secs(30 * 86_400))));
        assert_eq!(read("1500").unwrap(), Age(Some(Duration::from_millis(1500))));
        for wrong in ["\"never\"", "\"30\"", "true", "-1"] {
            assert!(read(wrong).unwrap_err().contains("forever"), "{wrong}");
        }
        for text in ["\"forever\"", "\"30d\"", "\"1h30m\""] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }
}
