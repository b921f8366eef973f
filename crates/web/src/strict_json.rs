//! JSON values without duplicate keys. JSON parsers disagree about the value of a duplicate key, so such a payload is
//! refused.

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::fmt;

/// serde_json passes a number that it keeps as text as a map with this key.
const NUMBER: &str = "$serde_json::private::Number";

/// A JSON value without duplicate keys.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Builder).map(Strict)
    }
}

struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if key == NUMBER && map.is_empty() {
                let digits: String = members.next_value()?;
                let number: Number = digits.parse().map_err(A::Error::custom)?;
                return Ok(number.into());
            }
            if map.contains_key(&key) {
                let shown: String = key.chars().take(60).collect();
                return Err(A::Error::custom(format!("the key `{shown}` occurs twice")));
            }
            map.insert(key, members.next_value::<Strict>()?.0);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_as_serde_json_does() {
        let text = r#"{"b":[1,-2,2.5,1.50,-0,1e400,18446744073709551615,123456789012345678901234567890.12345,"x\n",null,true],"a":{"":{}},"z":"ü"}"#;
        let strict: Strict = serde_json::from_str(text).unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(strict.0, value);
        assert_eq!(strict.0.to_string(), value.to_string());
    }

    #[test]
    fn duplicate_keys_are_refused() {
        let error = serde_json::from_str::<Strict>("{\n \"a\": {\"b\": 1, \"b\": 1}}").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the key `b` occurs twice at line 2"), "{text}");
        serde_json::from_str::<Strict>(r#"[{"b":1},{"b":1}]"#).unwrap();
    }
}
