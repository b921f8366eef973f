//! The version numbers of documents: `MAJOR.MINOR.PATCH`.
//!
//! | change | at least |
//! | --- | --- |
//! | names, descriptions, metadata, the order of nodes and edges | PATCH |
//! | added nodes and edges; changed executors, policies, conditions, `subgraph_ref` | MINOR |
//! | removed nodes and edges, another node type, another outcome, changed `inputs` or `outputs` | MAJOR |

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// A version number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes when a change is breaking.
    pub major: u64,
    /// Changes when the structure changes.
    pub minor: u64,
    /// Changes when only texts change.
    pub patch: u64,
}

/// How far a version number must increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bump {
    /// Nothing changed.
    None,
    /// PATCH.
    Patch,
    /// MINOR.
    Minor,
    /// MAJOR.
    Major,
}

impl Version {
    /// Reads `MAJOR.MINOR.PATCH`.
    pub fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split('.').map(|part| {
            let plain = !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
            let canonical = part == "0" || !part.starts_with('0');
            part.parse::<u64>().ok().filter(|_| plain && canonical)
        });
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(major), Some(minor), Some(patch), None) => Some(Version {
                major: major?,
                minor: minor?,
                patch: patch?,
            }),
            _ => None,
        }
    }

    /// The version of a document.
    pub fn of(document: &Value) -> Option<Version> {
        Version::parse(document.get("version")?.as_str()?)
    }

    /// The next version after a change of this size.
    pub fn bumped(self, bump: Bump) -> Version {
        let Version { major, minor, patch } = self;
        match bump {
            Bump::None => self,
            Bump::Patch => Version {
                major,
                minor,
                patch: patch + 1,
            },
            Bump::Minor => Version {
                major,
                minor: minor + 1,
                patch: 0,
            },
            Bump::Major => Version {
                major: major + 1,
                minor: 0,
                patch: 0,
            },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for Bump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bump::None => "no",
            Bump::Patch => "PATCH",
            Bump::Minor => "MINOR",
            Bump::Major => "MAJOR",
        })
    }
}

/// A document whose version number does not increase enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooSmall {
    /// The version of the stored document.
    pub from: Version,
    /// The version of the new document.
    pub to: Version,
    /// What the change needs.
    pub required: Bump,
}

impl TooSmall {
    /// The lowest version that is accepted.
    pub fn least(&self) -> Version {
        self.from.bumped(self.required)
    }
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooSmall { from, to, required } = self;
        let least = self.least();
        write!(
            f,
            "the version {to} is too low after {from}: this change needs at least a {required} version, {least}"
        )
    }
}

/// Checks that the version of `new` is high enough after `old`. Equal documents are accepted.
///
/// # Errors
/// The version is too low.
pub fn check(old: &Value, new: &Value) -> Result<(), TooSmall> {
    let (Some(from), Some(to)) = (Version::of(old), Version::of(new)) else {
        return Ok(()); // the structure check reports it
    };
    let required = compare(old, new);
    let enough = match required {
        Bump::None => to >= from,
        required => to >= from.bumped(required),
    };
    match enough {
        true => Ok(()),
        false => Err(TooSmall {
            from,
            to,
            required: required.max(Bump::Patch),
        }),
    }
}

/// What the change from `old` to `new` needs. The version numbers themselves are not compared.
pub fn compare(old: &Value, new: &Value) -> Bump {
    let mut bump = members(old, new, |key| match key {
        "version" => Bump::None,
        "nodes" | "edges" => Bump::None, // compared below
        "inputs" | "outputs" | "workflow_id" => Bump::Major,
        "policies" => Bump::Minor,
        _ => Bump::Patch,
    });
    bump = bump.max(lists(old, new, "nodes", node_key, node_change));
    bump = bump.max(lists(old, new, "edges", edge_key, edge_change));
    let order = |document: &Value| {
        let keys = |list: &str, key: fn(&Value) -> String| items(document, list).map(key).collect::<Vec<_>>();
        (keys("nodes", node_key), keys("edges", edge_key))
    };
    if bump == Bump::None && order(old) != order(new) {
        bump = Bump::Patch;
    }
    bump
}

/// The largest change among the members of two objects.
fn members(old: &Value, new: &Value, change: impl Fn(&str) -> Bump) -> Bump {
    let none = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    let changed = keys.filter(|key| old.get(*key) != new.get(*key));
    changed.map(|key| change(key)).max().unwrap_or(Bump::None)
}

fn items<'a>(document: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    document.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// The largest change of a list: removals are MAJOR, additions MINOR.
fn lists(old: &Value, new: &Value, list: &str, key: fn(&Value) -> String, change: fn(&Value, &Value) -> Bump) -> Bump {
    let by_key =
        |document| -> BTreeMap<String, &Value> { items(document, list).map(|item| (key(item), item)).collect() };
    let (old, new) = (by_key(old), by_key(new));
    let kept = old.iter().map(|(key, item)| match new.get(key) {
        Some(later) => change(item, later),
        None => Bump::Major,
    });
    let added = new.keys().filter(|key| !old.contains_key(*key)).map(|_| Bump::Minor);
    kept.chain(added).max().unwrap_or(Bump::None)
}

fn node_key(node: &Value) -> String {
    node.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn node_change(old: &Value, new: &Value) -> Bump {
    members(old, new, |key| match key {
        "name" | "description" | "metadata" => Bump::Patch,
        "type" => Bump::Major,
        _ => Bump::Minor,
    })
}

/// Edges are the same if both ends and the outcome are the same: the outcomes are part of what a decision is asked.
fn edge_key(edge: &Value) -> String {
    let part = |key: &str| edge.get(key).cloned().unwrap_or_default();
    let outcome = edge.pointer("/metadata/outcome").cloned().unwrap_or_default();
    Value::Array(vec![part("from"), part("to"), outcome]).to_string()
}

fn edge_change(old: &Value, new: &Value) -> Bump {
    members(old, new, |key| match key {
        "metadata" => Bump::Patch,
        _ => Bump::Minor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({
            "workflow_id": "w", "name": "W", "version": "1.2.3",
            "nodes": [
                { "id": "a", "type": "task", "executor": { "type": "callback" } },
                { "id": "d", "type": "decision", "executor": { "type": "callback", "config": {} } },
                { "id": "b", "type": "task", "executor": { "type": "callback" } },
            ],
            "edges": [
                { "from": "a", "to": "d" },
                { "from": "d", "to": "b", "metadata": { "outcome": "yes" } },
            ],
        })
    }

    /// The document with the value at `pointer` replaced; without a value, it is removed.
    fn changed(pointer: &str, value: Option<Value>) -> Value {
        let mut document = document();
        let (owner, key) = pointer.rsplit_once('/').unwrap();
        match (document.pointer_mut(owner).unwrap(), value) {
            (Value::Object(map), Some(value)) => drop(map.insert(key.to_owned(), value)),
            (Value::Object(map), None) => drop(map.remove(key)),
            (Value::Array(list), Some(value)) if key == "-" => list.push(value),
            (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value,
            (Value::Array(list), None) => drop(list.remove(key.parse().unwrap())),
            _ => unreachable!(),
        }
        document
    }

    #[test]
    fn required_bump_depends_on_the_change() {
        let task = json!({ "id": "c", "type": "task", "executor": { "type": "callback" } });
        let cases = [
            ("/version", Some(json!("7.0.0")), Bump::None),
            ("/name", Some(json!("X")), Bump::Patch),
            ("/description", Some(json!("X")), Bump::Patch),
            ("/metadata", Some(json!({ "owner": "x" })), Bump::Patch),
            ("/nodes/0/name", Some(json!("X")), Bump::Patch),
            ("/nodes/0/metadata", Some(json!({ "x": 1 })), Bump::Patch),
            ("/edges/0/metadata", Some(json!({ "x": 1 })), Bump::Patch),
            ("/policies", Some(json!({ "max_duration_seconds": 5 })), Bump::Minor),
            ("/nodes/0/executor", Some(json!({ "type": "event" })), Bump::Minor),
            ("/nodes/0/retry_policy", Some(json!({ "max_attempts": 2 })), Bump::Minor),
            ("/nodes/-", Some(task), Bump::Minor),
            ("/edges/-", Some(json!({ "from": "a", "to": "b" })), Bump::Minor),
            ("/edges/0/condition", Some(json!({})), Bump::Minor),
            ("/nodes/0/type", Some(json!("tool")), Bump::Major),
            ("/nodes/0/id", Some(json!("z")), Bump::Major),
            ("/nodes/0", None, Bump::Major),
            ("/edges/0", None, Bump::Major),
            ("/edges/1/metadata", Some(json!({ "outcome": "no" })), Bump::Major),
            ("/inputs", Some(json!({})), Bump::Major),
            ("/outputs", Some(json!({ "x": {} })), Bump::Major),
        ];
        for (pointer, value, bump) in cases {
            let new = changed(pointer, value);
            assert_eq!(compare(&document(), &new), bump, "{pointer}");
        }
        assert_eq!(compare(&document(), &document()), Bump::None);
        let mut reordered = document();
        reordered["nodes"].as_array_mut().unwrap().reverse();
        assert_eq!(compare(&document(), &reordered), Bump::Patch);
    }

    #[test]
    fn version_must_increase_enough() {
        for (pointer, versions) in [
            (
                "/name",
                [("1.2.3", false), ("1.2.4", true), ("1.3.0", true), ("0.9.9", false)],
            ),
            (
                "/policies",
                [("1.2.4", false), ("1.3.0", true), ("1.4.0", true), ("2.0.0", true)],
            ),
            (
                "/inputs",
                [("1.3.0", false), ("2.0.0", true), ("2.0.1", true), ("1.99.99", false)],
            ),
        ] {
            for (version, accepted) in versions {
                let mut new = changed(pointer, Some(json!({})));
                new["version"] = json!(version);
                assert_eq!(check(&document(), &new).is_ok(), accepted, "{pointer} {version}");
            }
        }
        assert_eq!(check(&document(), &document()), Ok(()));
        let lower = changed("/version", Some(json!("1.2.2")));
        let wrong = check(&document(), &lower).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "the version 1.2.2 is too low after 1.2.3: this change needs at least a PATCH version, 1.2.4"
        );
    }

    #[test]
    fn versions_are_three_numbers() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "1.2.x",
            "1.2.-3",
            "1.2.+3",
            "v1.2.3",
            "1.2.3-rc1",
            "1..3",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert_eq!(Version::parse("0.10.200").unwrap().to_string(), "0.10.200");
        let version = Version::parse("1.2.3").unwrap();
        let bumps = [Bump::None, Bump::Patch, Bump::Minor, Bump::Major];
        let next = bumps.map(|bump| version.bumped(bump).to_string());
        assert_eq!(next, ["1.2.3", "1.2.4", "1.3.0", "2.0.0"]);
    }
}
