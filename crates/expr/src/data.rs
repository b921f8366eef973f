//! The data that an expression can read, and the paths it reads.
//!
//! What must stay true: data is borrowed and never copied until a result is returned. A scope is
//! composed of parts ([`Data::Object`]), so that the engine does not build one JSON document from
//! the trigger and all outputs of nodes for every condition.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// The data of an expression: JSON by reference, or an object composed of parts.
#[derive(Debug, Clone)]
pub enum Data<'a> {
    /// A borrowed JSON value.
    Json(&'a Value),
    /// An object with members from different places.
    Object(BTreeMap<&'a str, Data<'a>>),
}

impl<'a> Data<'a> {
    /// An object from its members.
    pub fn object(members: impl IntoIterator<Item = (&'a str, Data<'a>)>) -> Self {
        Self::Object(members.into_iter().collect())
    }

    /// A cheap reference to this data.
    pub fn view(&self) -> DataRef<'_> {
        match self {
            Self::Json(value) => DataRef::Json(value),
            Self::Object(members) => DataRef::Object(members),
        }
    }

    /// The value at `path`, or `None` if there is none.
    pub fn at(&self, path: &[Segment]) -> Option<DataRef<'_>> {
        self.view().at(path)
    }

    /// The part of the data at and below `reads`, to send it to another process.
    ///
    /// An expression with these reads has the same result on it. Arrays are included whole, so that indices and lengths do
    /// not change.
    pub fn project(&self, reads: &[ReadPath]) -> Projection<'_> {
        let mut part = Part::Members(BTreeMap::new());
        for read in reads {
            part.take(self.view(), &read.segments);
        }
        Projection(part)
    }
}

/// A part of some [`Data`], as JSON for a serializer. Made by [`Data::project`].
#[derive(Debug, Clone)]
pub struct Projection<'a>(Part<'a>);

#[derive(Debug, Clone)]
enum Part<'a> {
    Whole(DataRef<'a>),
    Members(BTreeMap<&'a str, Part<'a>>),
}

impl<'a> Part<'a> {
    /// Adds the value at `path` of `data`, of which this is a part.
    fn take(&mut self, data: DataRef<'a>, path: &[Segment]) {
        let Part::Members(members) = self else { return };
        let is_object = matches!(data, DataRef::Object(_) | DataRef::Json(Value::Object(_)));
        let Some((step, rest)) = path.split_first().filter(|_| is_object) else {
            *self = Part::Whole(data);
            return;
        };
        let found = match step {
            Segment::Key(key) => data.entry(key),
            Segment::Index(index) => data.entry(&index.to_string()),
        };
        if let Some((key, value)) = found {
            let member = members.entry(key).or_insert_with(|| Part::Members(BTreeMap::new()));
            member.take(value, rest);
        }
    }
}

impl Serialize for Projection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Whole(data) => data.serialize(serializer),
            Part::Members(members) => serializer.collect_map(members),
        }
    }
}

impl Serialize for DataRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            DataRef::Json(value) => value.serialize(serializer),
            DataRef::Object(members) => serializer.collect_map(members.iter().map(|(key, data)| (key, data.view()))),
        }
    }
}

/// A reference to a part of the data, as cheap to copy as a pointer.
#[derive(Debug, Clone, Copy)]
pub enum DataRef<'a> {
    /// A JSON value.
    Json(&'a Value),
    /// An object composed of parts.
    Object(&'a BTreeMap<&'a str, Data<'a>>),
}

impl<'a> DataRef<'a> {
    /// The value at `path`, or `None` if there is none.
    pub fn at(self, path: &[Segment]) -> Option<DataRef<'a>> {
        path.iter().try_fold(self, |data, segment| data.get(segment))
    }

    /// The member or element that `segment` names.
    pub fn get(self, segment: &Segment) -> Option<DataRef<'a>> {
        match segment {
            Segment::Key(key) => self.member(key),
            Segment::Index(index) => self.element(*index),
        }
    }

    /// The member `key` of an object.
    pub fn member(self, key: &str) -> Option<DataRef<'a>> {
        match self {
            Self::Json(Value::Object(map)) => map.get(key).map(DataRef::Json),
            Self::Json(_) => None,
            Self::Object(members) => members.get(key).map(Data::view),
        }
    }

    /// The member `key` of an object, with its name borrowed from there.
    fn entry(self, key: &str) -> Option<(&'a str, DataRef<'a>)> {
        match self {
            Self::Json(Value::Object(map)) => {
                let (key, value) = map.get_key_value(key)?;
                Some((key.as_str(), DataRef::Json(value)))
            }
            Self::Json(_) => None,
            Self::Object(members) => {
                let (key, data) = members.get_key_value(key)?;
                Some((key, data.view()))
            }
        }
    }

    /// The element `index` of an array, or the member of that name of an object.
    pub fn element(self, index: usize) -> Option<DataRef<'a>> {
        match self {
            Self::Json(Value::Array(items)) => items.get(index).map(DataRef::Json),
            other => other.member(&index.to_string()),
        }
    }

    /// The names of the members, if this is an object.
    pub fn keys(self) -> Option<Vec<&'a str>> {
        match self {
            Self::Json(Value::Object(map)) => Some(map.keys().map(String::as_str).collect()),
            Self::Json(_) => None,
            Self::Object(members) => Some(members.keys().copied().collect()),
        }
    }

    /// Whether this is JSON `null`.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Json(Value::Null))
    }

    /// A JSON copy, or `None` if it nests deeper than `max_depth`.
    pub fn to_json(self, max_depth: usize) -> Option<Value> {
        match self {
            Self::Json(value) => nests_within(value, max_depth).then(|| value.clone()),
            Self::Object(members) => {
                let below = max_depth.checked_sub(1)?;
                let mut map = serde_json::Map::with_capacity(members.len());
                for (key, data) in members {
                    map.insert((*key).to_owned(), data.view().to_json(below)?);
                }
                Some(Value::Object(map))
            }
        }
    }
}

/// Whether a value nests at most `depth` levels of arrays and objects.
pub(crate) fn nests_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| nests_within(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| nests_within(item, depth - 1)),
        _ => true,
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Segment {
    /// An element of an array (or a member with a number for a name).
    Index(usize),
    /// A member of an object.
    Key(String),
}

/// The bare name: what the step would be called as a member.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Key(key) => f.write_str(key),
        }
    }
}

/// A path an expression reads, from the root name on.
///
/// A closed path reads the whole value at its end. An `open` path continues below in a way that is only
/// known at run time (a computed index, a method, a function over its elements).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadPath {
    /// The steps; the first is the root name.
    pub segments: Vec<Segment>,
    /// Whether the path continues in a way that is only known at run time.
    pub open: bool,
}

impl ReadPath {
    /// The root name: `context` in `context.data.x`.
    pub fn root(&self) -> &str {
        match self.segments.first() {
            Some(Segment::Key(name)) => name,
            _ => "",
        }
    }
}

impl fmt::Display for ReadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(f, &self.segments)
    }
}

/// Writes a path in source form: `context.data['fetch-items'].items[0]`.
pub(crate) fn write_path(out: &mut impl fmt::Write, segments: &[Segment]) -> fmt::Result {
    for (position, segment) in segments.iter().enumerate() {
        match segment {
            Segment::Key(key) if position == 0 => out.write_str(key)?,
            Segment::Key(key) if is_plain_name(key) => write!(out, ".{key}")?,
            Segment::Key(key) => {
                let escaped = key.replace('\\', "\\\\").replace('\'', "\\'");
                write!(out, "['{escaped}']")?;
            }
            Segment::Index(index) => write!(out, "[{index}]")?,
        }
    }
    Ok(())
}

fn is_plain_name(key: &str) -> bool {
    let mut chars = key.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$')
        && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
}

/// Sorts paths, and merges those that differ only in `open`.
pub(crate) fn merge_reads(mut reads: Vec<ReadPath>) -> Vec<ReadPath> {
    reads.sort();
    reads.dedup_by(|later, kept| {
        let same = later.segments == kept.segments;
        kept.open |= same && later.open;
        same
    });
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_reads_like_its_source() {
        let path = ReadPath {
            segments: vec![
                Segment::Key("context".into()),
                Segment::Key("data".into()),
                Segment::Key("fetch-items".into()),
                Segment::Key("items".into()),
                Segment::Index(0),
                Segment::Key("it's".into()),
            ],
            open: false,
        };
        assert_eq!(path.to_string(), r"context.data['fetch-items'].items[0]['it\'s']");
    }

    #[test]
    fn at_walks_parts_and_json_alike() {
        let output = json!({ "items": [{ "name": "a" }] });
        let scope = Data::object([("data", Data::object([("fetch", Data::Json(&output))]))]);
        let path = [
            Segment::Key("data".into()),
            Segment::Key("fetch".into()),
            Segment::Key("items".into()),
            Segment::Index(0),
        ];
        let found = scope.at(&path).and_then(|found| found.to_json(8));
        assert_eq!(found, Some(json!({ "name": "a" })));
        assert!(scope.at(&[Segment::Key("nope".into())]).is_none());
    }

    #[test]
    fn a_projection_holds_what_is_read_and_nothing_else() {
        let trigger = json!({ "a": { "b": 1, "c": 2 }, "list": [{ "x": 1 }, 2], "n": null, "other": "secret" });
        let output = json!({ "body": { "ok": true }, "headers": {} });
        let data = Data::object([("fetch", Data::Json(&output))]);
        let scope = Data::object([
            ("trigger", Data::Json(&trigger)),
            ("context", Data::object([("data", data)])),
        ]);
        let project = |sources: &[&str]| {
            let reads: Vec<_> = sources
                .iter()
                .flat_map(|source| crate::js::scan_reads(source, &["trigger", "context", "vars"]))
                .collect();
            serde_json::to_value(scope.project(&reads)).unwrap()
        };
        assert_eq!(project(&["trigger.a.b"]), json!({ "trigger": { "a": { "b": 1 } } }));
        assert_eq!(
            project(&["trigger.a.b", "trigger.a"])["trigger"],
            json!({ "a": { "b": 1, "c": 2 } })
        );
        assert_eq!(
            project(&["trigger.a", "trigger.a.b"])["trigger"],
            json!({ "a": { "b": 1, "c": 2 } })
        );
        assert_eq!(
            project(&["trigger.list[0].x"])["trigger"],
            json!({ "list": [{ "x": 1 }, 2] })
        );
        assert_eq!(
            project(&["trigger.n.x + trigger.nope.y"])["trigger"],
            json!({ "n": null })
        );
        assert_eq!(
            project(&["context.data.fetch.body.ok"]),
            json!({ "context": { "data": { "fetch": { "body": { "ok": true } } } } })
        );
        assert_eq!(
            project(&["context"]),
            json!({ "context": { "data": { "fetch": output } } })
        );
        assert_eq!(project(&["vars.x"]), json!({}));
    }

    #[test]
    fn copies_are_bounded_in_depth() {
        let value = json!([[[1]]]);
        assert!(DataRef::Json(&value).to_json(3).is_some());
        assert!(DataRef::Json(&value).to_json(2).is_none());
    }
}
