//! A trigger to try a workflow with: one that its `triggerSchema` accepts, or one that has what its expressions read.

use fermata_core::Plan;
use serde_json::{Map, Value, json};

/// Schemas are followed to this depth.
const DEEPEST: usize = 8;

/// A trigger for a workflow.
pub fn trigger(plan: &Plan) -> Value {
    match &plan.trigger_schema {
        Some(schema) => of_schema(schema, 0),
        None => of_reads(plan),
    }
}

/// A value that fits a schema in the usual cases; combinators and patterns are not looked at.
fn of_schema(schema: &Value, depth: usize) -> Value {
    for key in ["default", "const"] {
        if let Some(value) = schema.get(key) {
            return value.clone();
        }
    }
    for list in ["examples", "enum"] {
        if let Some(value) = schema[list].as_array().and_then(|values| values.first()) {
            return value.clone();
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    let is_object = schema["properties"].is_object();
    match kind {
        _ if depth > DEEPEST => json!({}),
        Some("string") => {
            let length = schema["minLength"].as_u64().unwrap_or(0).min(100) as usize;
            let text = match schema["format"].as_str() {
                Some("email") => "ada@example.com",
                Some("uri" | "url") => "https://example.com/",
                Some("date") => "2026-01-01",
                Some("date-time") => "2026-01-01T00:00:00Z",
                _ => "example",
            };
            json!(format!("{text}{}", "x".repeat(length.saturating_sub(text.len()))))
        }
        Some("integer" | "number") => match (schema.get("minimum"), schema["exclusiveMinimum"].as_i64()) {
            (Some(least), _) => least.clone(),
            (None, Some(below)) => json!(below.saturating_add(1)),
            (None, None) => json!(1),
        },
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(0).min(10);
            Value::Array((0..count).map(|_| of_schema(&schema["items"], depth + 1)).collect())
        }
        Some(_) | None if is_object || kind == Some("object") || depth == 0 => {
            let mut members = Map::new();
            for name in schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                members.insert(name.to_owned(), of_schema(&schema["properties"][name], depth + 1));
            }
            Value::Object(members)
        }
        _ => json!(1),
    }
}

/// An object with every path of the trigger that the plan's expressions name; every value is 1.
fn of_reads(plan: &Plan) -> Value {
    // The texts of all expressions, and only of them, are strings of the plan.
    let text = serde_json::to_string(&plan.nodes).unwrap_or_default();
    let mut sample = json!({});
    for (at, _) in text.match_indices("trigger.") {
        let is_whole_name = !text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-'));
        let rest = &text[at + "trigger.".len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')));
        let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
        // Runlater's trigger is the body of a request.
        let path = match plan.language {
            fermata_core::Language::Paths => path.strip_prefix("body.").unwrap_or_default(),
            fermata_core::Language::Script | fermata_core::Language::Logic => path,
        };
        if is_whole_name && !path.is_empty() && path.split('.').all(|step| !step.is_empty()) {
            put(&mut sample, path);
        }
    }
    sample
}

/// Sets a path to 1, unless it is set; what stands in the way is replaced by an object.
fn put(sample: &mut Value, path: &str) {
    let mut at = sample;
    for step in path.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    if at.is_null() {
        *at = json!(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_dialects::{AnyAction, Document, DocumentLimits, Settings, Stage, compile};

    fn sample(source: &str) -> Value {
        let document = Document::parse(source.as_bytes(), "w.json", &DocumentLimits::default()).unwrap();
        let compiled = compile(&document, &Settings::default(), &AnyAction, Stage::Save);
        trigger(
            &compiled
                .unwrap_or_else(|problems| panic!("{}", problems.render(false)))
                .plan,
        )
    }

    #[test]
    fn required_members_of_the_schema_are_filled_in() {
        let source = r#"{ "id": "w", "displayName": "W", "startNode": "a",
            "triggerSchema": { "type": "object", "required": ["id", "email", "kind", "tags", "address"], "properties": {
                "id": { "type": "integer", "minimum": 5 }, "email": { "type": "string", "format": "email" },
                "kind": { "enum": ["new", "old"] }, "note": { "type": "string" },
                "tags": { "type": "array", "minItems": 1, "items": { "type": "string" } },
                "address": { "type": "object", "required": ["zip"], "properties": { "zip": { "type": "string" } } } } },
            "nodes": [{ "id": "a", "actionType": "core.echo" }] }"#;
        let expected = json!({ "id": 5, "email": "ada@example.com", "kind": "new", "tags": ["example"],
            "address": { "zip": "example" } });
        assert_eq!(sample(source), expected);
    }

    #[test]
    fn paths_that_expressions_read_are_filled_in() {
        let source = r#"{ "id": "w", "displayName": "W", "startNode": "a", "nodes": [
            { "id": "a", "actionType": "core.echo", "parameters": { "x": "{{ trigger.order.id }} {{ trigger.name }}" },
              "edges": [{ "targetNode": "b", "condition": "trigger.order.amount > 3 && trigger.order" }] },
            { "id": "b", "actionType": "core.echo" } ] }"#;
        assert_eq!(sample(source), json!({ "name": 1, "order": { "amount": 1, "id": 1 } }));
        let source = r#"{ "name": "t", "tasks": { "a": { "url": "https://x.test/{{trigger.body.id}}" } } }"#;
        assert_eq!(sample(source), json!({ "id": 1 }));
    }
}
