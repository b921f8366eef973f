//! Limits the work of checking one trigger against a trigger schema.
//!
//! A schema that applies others through `$ref` can apply many more schemas than it has: twenty levels of `anyOf` with two
//! references each apply a million. The cost of a schema is the number of schemas that are applied if nothing ends the
//! check early. Recursion into the members of a trigger counts once: its cost depends on the trigger, and is bounded when a
//! trigger is checked.

use crate::tree::join;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most that a trigger schema may cost.
pub(super) const MAX_COST: u64 = 50_000;

/// How deeply schemas may apply each other.
const MAX_DEPTH: usize = 256;

/// Keywords with one schema for the same value.
const SAME: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of schemas for the same value.
const SAME_LIST: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema, or a list, for parts of the value.
const PARTS: [&str; 9] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
];
/// Keywords with schemas by name for parts of the value.
const PARTS_BY_NAME: [&str; 2] = ["properties", "patternProperties"];
/// Keywords with schemas by name for the same value.
const SAME_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords that name a schema for the same value.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Which limit a schema exceeds, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// It costs more than [`MAX_COST`].
    Cost(String),
    /// Its schemas apply each other deeper than [`MAX_DEPTH`].
    Depth(String),
    /// A schema applies itself to the same value without end.
    Endless(String),
}

/// Checks a schema; the error has the pointer where it exceeds a limit.
pub(super) fn check(schema: &Value) -> Result<(), Excess> {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
    };
    walk.cost(schema, String::new(), 0, 0).map(drop)
}

struct Walk<'a> {
    root: &'a Value,
    /// By the address of a schema: its cost, or, while it is being computed, the level of the value it applies to.
    known: HashMap<*const Value, State>,
}

#[derive(Clone, Copy)]
enum State {
    Open { level: usize },
    Cost(u64),
}

impl<'a> Walk<'a> {
    /// The cost of `schema`. `level` counts the steps into parts of the value: on the same level it is the same value.
    fn cost(&mut self, schema: &'a Value, pointer: String, depth: usize, level: usize) -> Result<u64, Excess> {
        let Value::Object(members) = schema else {
            return Ok(1);
        };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(State::Cost(cost)) => return Ok(*cost),
            Some(State::Open { level: before }) if *before == level => return Err(Excess::Endless(pointer)),
            Some(State::Open { .. }) => return Ok(1),
            None if depth > MAX_DEPTH => return Err(Excess::Depth(pointer)),
            None => {}
        }
        self.known.insert(schema, State::Open { level });
        let mut cost: u64 = 1;
        for (applied, at, part) in self.applied(members, &pointer) {
            cost = cost.saturating_add(self.cost(applied, at, depth + 1, level + usize::from(part))?);
        }
        if cost > MAX_COST {
            return Err(Excess::Cost(pointer));
        }
        self.known.insert(schema, State::Cost(cost));
        Ok(cost)
    }

    /// The schemas that a schema applies, with their pointers, and whether they apply to parts of the value.
    fn applied(&self, members: &'a Map<String, Value>, pointer: &str) -> Vec<(&'a Value, String, bool)> {
        let mut applied = Vec::new();
        for (keyword, value) in members {
            let at = join(pointer, keyword);
            let keyword = keyword.as_str();
            let part = PARTS.contains(&keyword) || PARTS_BY_NAME.contains(&keyword);
            match value {
                Value::String(target) if REFERENCES.contains(&keyword) => {
                    let found = target.strip_prefix('#').and_then(|path| self.root.pointer(path));
                    applied.extend(found.map(|found| (found, target.trim_start_matches('#').to_owned(), false)));
                }
                Value::Array(items) if SAME_LIST.contains(&keyword) || PARTS.contains(&keyword) => {
                    let items = items.iter().enumerate();
                    applied.extend(items.map(|(index, item)| (item, format!("{at}/{index}"), part)));
                }
                Value::Object(named) if PARTS_BY_NAME.contains(&keyword) || SAME_BY_NAME.contains(&keyword) => {
                    applied.extend(named.iter().map(|(name, item)| (item, join(&at, name), part)));
                }
                Value::Object(_) if SAME.contains(&keyword) || PARTS.contains(&keyword) => {
                    applied.push((value, at, part))
                }
                _ => {}
            }
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Levels of `anyOf` that refer to the next one twice.
    pub(crate) fn doubling(levels: usize) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            definitions.insert(format!("d{level}"), json!({ "anyOf": [next.clone(), next] }));
        }
        definitions.insert(format!("d{levels}"), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/d0", "$defs": definitions })
    }

    #[test]
    fn exponential_schemas_are_refused_where_they_exceed_the_limit() {
        assert_eq!(check(&doubling(10)), Ok(()));
        let schema = doubling(21);
        assert!(schema.to_string().len() < 2200);
        match check(&schema) {
            Err(Excess::Cost(pointer)) => assert!(pointer.starts_with("/$defs/d"), "{pointer}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn large_and_recursive_schemas_are_accepted() {
        let properties: Map<String, Value> = (0..5000)
            .map(|n| (format!("p{n}"), json!({ "type": "string" })))
            .collect();
        assert_eq!(check(&json!({ "properties": properties })), Ok(()));
        let tree = json!({ "anyOf": [{ "type": "null" }, { "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } }] });
        assert_eq!(check(&tree), Ok(()));
        let own_name = json!({ "properties": { "anyOf": { "type": "string" } }, "$ref": "#/$defs/gone" });
        assert_eq!(check(&own_name), Ok(()));
    }

    #[test]
    fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
        let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/b" }] }, "b": { "$ref": "#/$defs/a" } } });
        assert_eq!(check(&schema), Err(Excess::Endless("/$defs/a".to_owned())));
        let itself = json!({ "not": { "$ref": "#" } });
        assert_eq!(check(&itself), Err(Excess::Endless(String::new())));
    }

    #[test]
    fn a_long_chain_of_references_is_refused() {
        let mut definitions = Map::new();
        for at in 0..1000 {
            definitions.insert(format!("d{at}"), json!({ "$ref": format!("#/$defs/d{}", at + 1) }));
        }
        definitions.insert("d1000".to_owned(), json!({}));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": definitions });
        assert!(matches!(check(&schema), Err(Excess::Depth(_))));
    }
}
