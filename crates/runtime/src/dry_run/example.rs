//! Values made from JSON Schemas: the simplest value that fits, as far as the common keywords say. Pure.

use serde_json::{Map, Value, json};

/// Deeper members are null: a schema may contain itself.
const DEEPEST: usize = 16;
/// The most items and characters of a list or a text.
const LONGEST: u64 = 1000;

/// A value that fits a schema. An empty schema gives an empty object.
pub(super) fn example(schema: &Value) -> Value {
    Maker { root: schema }.make(schema, 0)
}

struct Maker<'a> {
    root: &'a Value,
}

impl Maker<'_> {
    fn make(&self, schema: &Value, depth: usize) -> Value {
        let Value::Object(members) = schema else {
            return match schema {
                Value::Bool(true) => json!({}),
                _ => Value::Null,
            };
        };
        if depth > DEEPEST {
            return Value::Null;
        }
        let first = |name: &str| {
            members
                .get(name)
                .and_then(Value::as_array)
                .and_then(|list| list.first())
        };
        let fixed = [
            members.get("const"),
            members.get("default"),
            first("examples"),
            first("enum"),
        ];
        if let Some(value) = fixed.into_iter().flatten().next() {
            return value.clone();
        }
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            return match self.root.pointer(target.strip_prefix('#').unwrap_or_default()) {
                Some(found) if target.len() > 1 => self.make(found, depth + 1),
                _ => Value::Null,
            };
        }
        for choice in ["anyOf", "oneOf"] {
            let choices = members.get(choice).and_then(Value::as_array);
            let mut made = choices.into_iter().flatten().map(|schema| self.make(schema, depth + 1));
            if let Some(value) = made.find(|value| !value.is_null()) {
                return value;
            }
        }
        if let Some(parts) = members.get("allOf").and_then(Value::as_array) {
            return self.merged(members, parts, depth);
        }
        match kind(members) {
            "object" => Value::Object(self.object(members, depth)),
            "array" => {
                let count = whole(members, "minItems");
                let item = members
                    .get("items")
                    .map_or(Value::Null, |item| self.make(item, depth + 1));
                Value::Array(vec![item; count as usize])
            }
            "string" => text(members).into(),
            "integer" => least(members, true),
            "number" => least(members, false),
            "boolean" => false.into(),
            _ => Value::Null,
        }
    }

    /// The required members, and those with a default.
    fn object(&self, members: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let none = Map::new();
        let properties = members.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required = members.get("required").and_then(Value::as_array);
        let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        let mut object = Map::new();
        for (name, schema) in properties {
            if required.contains(&name.as_str()) || schema.get("default").is_some() {
                object.insert(name.clone(), self.make(schema, depth + 1));
            }
        }
        for name in required {
            object.entry(name).or_insert(Value::Null);
        }
        object
    }

    /// All parts of `allOf` in one object; the first part if it is no object.
    fn merged(&self, members: &Map<String, Value>, parts: &[Value], depth: usize) -> Value {
        let mut whole = self.object(members, depth);
        for part in parts {
            match self.make(part, depth + 1) {
                Value::Object(object) => whole.extend(object),
                other if whole.is_empty() => return other,
                _ => {}
            }
        }
        Value::Object(whole)
    }
}

/// The type that a schema names, or that its keywords are for.
fn kind(members: &Map<String, Value>) -> &str {
    match members.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if members.contains_key("items") => "array",
        _ => "object",
    }
}

fn whole(members: &Map<String, Value>, name: &str) -> u64 {
    let number = members.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    (number.max(0.0) as u64).min(LONGEST)
}

fn text(members: &Map<String, Value>) -> String {
    let format = members.get("format").and_then(Value::as_str);
    let text = match format {
        Some("date-time") => "2000-01-01T00:00:00Z",
        Some("date") => "2000-01-01",
        Some("time") => "00:00:00Z",
        Some("email") => "someone@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "00000000-0000-0000-0000-000000000000",
        _ => "",
    };
    let missing = whole(members, "minLength").saturating_sub(text.chars().count() as u64);
    format!("{text}{}", "x".repeat(missing as usize))
}

/// Zero, or the number next to it that the limits allow.
fn least(members: &Map<String, Value>, integer: bool) -> Value {
    let limit = |name: &str| members.get(name).and_then(Value::as_f64);
    let step = if integer { 1.0 } else { 0.5 };
    let low = limit("minimum").or(limit("exclusiveMinimum").map(|low| low + step));
    let high = limit("maximum").or(limit("exclusiveMaximum").map(|high| high - step));
    let mut value = 0.0_f64;
    value = low.map_or(value, |low| value.max(low));
    value = high.map_or(value, |high| value.min(high));
    match integer || value.fract() == 0.0 {
        true => json!(value.ceil() as i64),
        false => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_their_schemas() {
        for (schema, expected) in [
            (json!({}), json!({})),
            (json!(true), json!({})),
            (json!({ "type": "string" }), json!("")),
            (json!({ "type": "string", "minLength": 3 }), json!("xxx")),
            (json!({ "type": "string", "format": "date" }), json!("2000-01-01")),
            (json!({ "type": "integer", "minimum": 3 }), json!(3)),
            (json!({ "type": "integer", "exclusiveMinimum": 3 }), json!(4)),
            (json!({ "type": "number", "maximum": -1.5 }), json!(-1.5)),
            (json!({ "type": "boolean" }), json!(false)),
            (json!({ "type": ["null", "string"] }), json!("")),
            (json!({ "enum": ["a", "b"] }), json!("a")),
            (json!({ "const": 7 }), json!(7)),
            (json!({ "type": "integer", "default": 5, "minimum": 1 }), json!(5)),
            (json!({ "type": "integer", "examples": [200] }), json!(200)),
            (json!({ "type": "array", "items": { "type": "integer" } }), json!([])),
            (json!({ "items": { "type": "integer" }, "minItems": 2 }), json!([0, 0])),
            (
                json!({ "anyOf": [{ "type": "null" }, { "type": "boolean" }] }),
                json!(false),
            ),
            (
                json!({ "type": "object", "required": ["a", "c"], "properties":
                    { "a": { "type": "string" }, "b": { "type": "string" }, "d": { "default": 1 } } }),
                json!({ "a": "", "c": null, "d": 1 }),
            ),
            (
                json!({ "$ref": "#/definitions/x", "definitions": { "x": { "type": "integer" } } }),
                json!(0),
            ),
            (
                json!({ "allOf": [{ "required": ["a"] }, { "required": ["b"], "properties": { "b": { "const": 1 } } }] }),
                json!({ "a": null, "b": 1 }),
            ),
        ] {
            assert_eq!(example(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn schemas_that_contain_themselves_and_wrong_ones_end() {
        let list = json!({ "$ref": "#/definitions/list", "definitions": {
            "list": { "type": "object", "required": ["next"], "properties": { "next": { "$ref": "#/definitions/list" } } } } });
        assert!(example(&list)["next"]["next"].is_object());
        for wrong in [
            json!({ "$ref": "#" }),
            json!({ "$ref": "https://example.com" }),
            json!({ "type": "x" }),
            json!(1),
        ] {
            assert_eq!(example(&wrong), Value::Null, "{wrong}");
        }
        let long = json!({ "type": "string", "minLength": 1e300 });
        assert_eq!(example(&long).as_str().unwrap().len(), LONGEST as usize);
    }
}
