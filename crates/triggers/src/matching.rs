//! Which events a trigger is about: globs over type and source, equality of fields of the data.
//!
//! In a glob `*` stands for any text, also an empty one; every other character stands for itself. All conditions must hold. A field that does not exist equals nothing, not even null.

use crate::{
    cloud_events::Event,
    config::{Problem, fields::Fields},
};
use fermata_expr::paths::PlainPath;
use serde_json::Value;

/// The most fields that one trigger compares.
const MOST_FIELDS: usize = 32;
/// The longest glob, in bytes.
const LONGEST_GLOB: usize = 256;

/// The configuration of an event trigger.
#[derive(Debug, Clone)]
pub struct EventConfig {
    event_type: String,
    source: Option<String>,
    fields: Vec<(PlainPath, Value)>,
}

impl EventConfig {
    /// Reads the configuration of an event trigger.
    pub(crate) fn parse(config: &Value, pointer: &str) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::of(config, pointer)?;
        if fields.value("type").is_none() {
            fields.wrong(
                "type",
                "must name the type of event, such as `order.created` or `order.*`",
            );
        }
        let event_type = fields.text("type").unwrap_or_default().to_owned();
        let source = fields.text("source").map(str::to_owned);
        for (key, glob) in [("type", Some(&event_type)), ("source", source.as_ref())] {
            if glob.is_some_and(|glob| glob.len() > LONGEST_GLOB) {
                fields.wrong(key, &format!("must not be longer than {LONGEST_GLOB} bytes"));
            }
        }
        let matched = fields.part("match", read_fields).unwrap_or_default();
        fields.finish()?;
        Ok(Self {
            event_type,
            source,
            fields: matched,
        })
    }

    /// The only type of event that can match, if there is only one. It is what the index of triggers is searched for.
    pub fn exact_type(&self) -> Option<&str> {
        (!self.event_type.contains('*')).then_some(self.event_type.as_str())
    }

    /// Whether an event matches.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_parts(&event.event_type, &event.source, &event.data)
    }

    /// Whether an event with this type, source and data matches.
    pub fn matches_parts(&self, event_type: &str, source: &str, data: &Value) -> bool {
        let equal = |(path, expected): &(PlainPath, Value)| {
            path.find(data)
                .is_some_and(|found| fermata_expr::equal(found, expected))
        };
        glob_matches(&self.event_type, event_type)
            && self.source.as_ref().is_none_or(|glob| glob_matches(glob, source))
            && self.fields.iter().all(equal)
    }
}

fn read_fields(value: &Value, pointer: &str) -> Result<Vec<(PlainPath, Value)>, Vec<Problem>> {
    let Value::Object(object) = value else {
        return Err(vec![Problem::new(
            pointer,
            "must be an object: paths of the data and their values",
        )]);
    };
    if object.len() > MOST_FIELDS {
        return Err(vec![Problem::new(
            pointer,
            format!("must not have more than {MOST_FIELDS} fields"),
        )]);
    }
    let (mut fields, mut problems) = (Vec::new(), Vec::new());
    for (path, expected) in object {
        match PlainPath::parse(path) {
            Ok(path) => fields.push((path, expected.clone())),
            Err(_) => {
                let place = format!("{pointer}/{}", path.replace('~', "~0").replace('/', "~1"));
                problems.push(Problem::new(&place, "is not a path, such as `customer.country`"));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(fields),
        false => Err(problems),
    }
}

/// Whether a glob matches the whole of a text. Linear in practice and never worse than the product of the lengths.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let Some((head, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(mut left) = text.strip_prefix(head) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let tail = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match left.find(piece) {
            Some(at) => left = &left[at + piece.len()..],
            None => return false,
        }
    }
    left.len() >= tail.len() && left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn globs_match_whole_texts() {
        for (glob, text, expected) in [
            ("order.created", "order.created", true),
            ("order.created", "order.created2", false),
            ("order.*", "order.created", true),
            ("order.*", "order.", true),
            ("order.*", "orders.created", false),
            ("*", "", true),
            ("*.created", "order.created", true),
            ("*.created", "order.created.v2", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("**", "x", true),
            ("a.?", "a.b", false),
            ("Order", "order", false),
            ("ä*", "äöü", true),
        ] {
            assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        let config = json!({"type": "order.*", "source": "/shop/*", "match": {"customer.country": "DE", "total": 5, "lines.0.sku": "a"}});
        let config = EventConfig::parse(&config, "").unwrap();
        let data = json!({"customer": {"country": "DE"}, "total": 5.0, "lines": [{"sku": "a"}]});
        assert!(config.matches_parts("order.created", "/shop/eu", &data));
        assert!(!config.matches_parts("invoice.created", "/shop/eu", &data));
        assert!(!config.matches_parts("order.created", "/store", &data));
        for (pointer, value) in [
            ("/customer/country", json!("FR")),
            ("/customer", json!(null)),
            ("/total", json!("5")),
            ("/lines", json!([])),
        ] {
            let mut other = data.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert!(!config.matches_parts("order.created", "/shop/eu", &other), "{pointer}");
        }
        let absent = EventConfig::parse(&json!({"type": "a", "match": {"x": null}}), "").unwrap();
        assert!(absent.matches_parts("a", "s", &json!({"x": null})));
        assert!(!absent.matches_parts("a", "s", &json!({})));
    }

    #[test]
    fn a_type_without_a_star_is_exact() {
        let config = |name: &str| EventConfig::parse(&json!({"type": name}), "").unwrap();
        assert_eq!(config("a.b").exact_type(), Some("a.b"));
        assert_eq!(config("a.*").exact_type(), None);
    }
}
