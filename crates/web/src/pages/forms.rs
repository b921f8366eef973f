//! Forms made from JSON Schemas.
//!
//! What must stay true: `forms.js` sends numbers with the digits that were typed. A schema, or a part of one, that has no simple
//! field gets a field for JSON.

use maud::{Markup, html};
use serde_json::Value;

/// The fields of a form. Each has `data-field` with the name of its member and `data-type`.
pub(super) fn fields(schema: Option<&Value>) -> Markup {
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return html! {
            label { span { "JSON" } textarea data-whole rows="5" spellcheck="false" { "{}" } }
        };
    };
    let required = |name: &str| {
        let list = schema.and_then(|schema| schema["required"].as_array());
        list.is_some_and(|list| list.iter().any(|item| item == name))
    };
    html! { @for (name, schema) in properties { (field(name, schema, required(name))) } }
}

fn field(name: &str, schema: &Value, required: bool) -> Markup {
    let label = schema["title"].as_str().unwrap_or(name);
    let kind = schema["type"].as_str().unwrap_or("json");
    let start = match &schema["default"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let choices = schema["enum"].as_array();
    html! {
        label {
            span { (label) @if required { b.error aria-hidden="true" { " *" } } }
            @match (choices, kind) {
                (Some(choices), _) => {
                    select data-field=(name) data-type="json" required[required] {
                        option value="" { "–" }
                        @for choice in choices {
                            @let text = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
                            option value=(choice.to_string()) selected[*choice == schema["default"]] { (text) }
                        }
                    }
                },
                (None, "boolean") => {
                    select data-field=(name) data-type="json" required[required] {
                        option value="" { "–" }
                        option value="true" selected[start == "true"] { "yes" }
                        option value="false" selected[start == "false"] { "no" }
                    }
                },
                (None, "integer" | "number") => {
                    input data-field=(name) data-type="number" inputmode="decimal" autocomplete="off" required[required] value=(start)
                        pattern=(if kind == "integer" { r"-?\d+" } else { r"-?\d+(\.\d+)?([eE][+\-]?\d+)?" });
                },
                (None, "string") => {
                    @let most = schema["maxLength"].as_u64().unwrap_or(0);
                    @if most > 200 || schema["format"] == "textarea" {
                        textarea data-field=(name) data-type="string" required[required] rows="3" { (start) }
                    } @else {
                        input data-field=(name) data-type="string" required[required] value=(start) autocomplete="off"
                            type=(match schema["format"].as_str() { Some("date") => "date", Some("email") => "email", Some("uri") => "url", _ => "text" });
                    }
                },
                (None, _) => { textarea data-field=(name) data-type="json" required[required] rows="2" spellcheck="false" placeholder="JSON" { (start) } },
            }
            @if let Some(text) = schema["description"].as_str() { small.muted { (text) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_follow_the_schema() {
        let schema = json!({ "type": "object", "required": ["n"], "properties": {
            "n": { "type": "integer", "default": 9_007_199_254_740_993_u64 }, "ok": { "type": "boolean" },
            "size": { "enum": ["small", 2] }, "<b>": { "type": "string", "title": "<i>" }, "list": { "type": "array" } } });
        let shown = fields(Some(&schema)).into_string();
        for part in [
            r#"data-field="n" data-type="number""#,
            r#"value="9007199254740993""#,
            r#"<option value="&quot;small&quot;">small"#,
            r#"data-field="&lt;b&gt;""#,
            r#"<textarea data-field="list" data-type="json""#,
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("<b>") && !shown.contains("<i>"), "{shown}");
        for none in [None, Some(&json!(true)), Some(&json!({ "type": "object" }))] {
            assert!(fields(none).into_string().contains("data-whole"));
        }
    }
}
