//! The searchable fields of a run: the values of its trigger that the document names in `searchable`.
//!
//! Strings, numbers and booleans are indexed, as they are written. Other values, and texts that are longer than [`LONGEST`], are
//! not: a run is not found by them.

use fermata_core::plan::StoredPlan;
use fermata_store::fields::RunField;
use serde_json::Value;

/// The longest value, in bytes.
const LONGEST: usize = 200;

/// The fields of a run of this plan with this trigger.
pub(crate) fn fields_of(plan: &StoredPlan, trigger: &Value) -> Vec<RunField> {
    let field = |path: &String| {
        let value = path.split('.').try_fold(trigger, |value, name| value.get(name))?;
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_true) => is_true.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        let is_indexed = !value.is_empty() && value.len() <= LONGEST && !value.contains('\0');
        let field = path.clone();
        is_indexed.then_some(RunField { field, value })
    };
    plan.searchable.iter().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_core::plan::PlanBuilder;
    use serde_json::json;

    #[test]
    fn scalars_are_indexed_as_they_are_written() {
        let names = [
            "a", "b.c", "n", "yes", "none", "list", "object", "empty", "long", "nul", "a.b",
        ];
        let plan = PlanBuilder::new("w").action("s", "core.echo").plan(|plan| {
            plan.searchable = names.map(str::to_owned).to_vec();
        });
        let trigger: Value = serde_json::from_str(r#"{"n": 5.0}"#).unwrap();
        let mut trigger = trigger.as_object().cloned().unwrap();
        for (name, value) in [
            ("a", json!("x y")),
            ("b", json!({ "c": "é" })),
            ("yes", json!(true)),
            ("none", Value::Null),
            ("list", json!([1])),
            ("object", json!({})),
            ("empty", json!("")),
            ("long", json!("x".repeat(LONGEST + 1))),
            ("nul", json!("a\0")),
        ] {
            trigger.insert(name.to_owned(), value);
        }
        let plan = plan.build().unwrap();
        let fields = fields_of(&plan, &Value::Object(trigger));
        let found: Vec<_> = fields
            .iter()
            .map(|field| (field.field.as_str(), field.value.as_str()))
            .collect();
        assert_eq!(found, [("a", "x y"), ("b.c", "é"), ("n", "5.0"), ("yes", "true")]);
    }
}
