//! The declared inputs and outputs of a workflow.
//!
//! `inputs` maps a name to a JSON Schema, in which `required` may be true or false. Together they are the schema of the
//! trigger, which is the initial state. `outputs` maps a name to a path in the state.

use crate::check::{Check, text};
use crate::diagnostics::{Severity, quote};
use crate::trigger_schema;
use fermata_core::RunOutputs;
use fermata_core::plan::Selection;
use serde_json::{Map, Value, json};

pub(super) fn check(check: &mut Check) {
    let value = check.document.value();
    if let Some(schema) = schema(value) {
        let place = |pointer: &str| match pointer.strip_prefix("/properties") {
            Some(rest) => format!("/inputs{rest}"),
            None => "/inputs".to_owned(),
        };
        let before = check.problems.len();
        trigger_schema::check(check, &schema, place);
        if check.problems.len() == before {
            defaults_fit(check, &schema);
        }
    }
}

/// Checks the defaults against their own schemas.
fn defaults_fit(check: &mut Check, schema: &Value) {
    let Some(defaults) = defaults(check.document.value()) else {
        return;
    };
    let alone = json!({ "properties": schema["properties"] });
    let Ok(validator) = jsonschema::validator_for(&alone) else {
        return;
    };
    for error in validator.iter_errors(&Value::Object(defaults)) {
        let name = error.instance_path().as_str().split('/').nth(1).unwrap_or_default();
        if check.room(Severity::Error) {
            let pointer = format!("/inputs/{name}/default");
            let message = format!(
                "the default of the input {} does not match its schema: {error}",
                quote(name)
            );
            let problem = check.error("INVALID_DEFAULT", &pointer, message);
            check.add(problem);
        }
    }
}

fn objects<'a>(document: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let members = document.get(key).and_then(Value::as_object);
    members.into_iter().flatten().filter(|(_, value)| value.is_object())
}

/// The schema of the trigger; `None` without declared inputs.
pub(super) fn schema(document: &Value) -> Option<Value> {
    document.get("inputs")?.as_object()?;
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, input) in objects(document, "inputs") {
        let mut input = input.clone();
        if let Some(Value::Bool(needed)) = input.get("required").cloned() {
            input.as_object_mut().map(|input| input.shift_remove("required"));
            // A default fills in a missing value.
            if needed && input.get("default").is_none() {
                required.push(Value::from(name.as_str()));
            }
        }
        properties.insert(name.clone(), input);
    }
    Some(json!({ "type": "object", "properties": properties, "required": required }))
}

/// The defaults of the inputs that have one.
pub(super) fn defaults(document: &Value) -> Option<Map<String, Value>> {
    let defaults =
        objects(document, "inputs").filter_map(|(name, input)| Some((name.clone(), input.get("default")?.clone())));
    let defaults: Map<String, Value> = defaults.collect();
    (!defaults.is_empty()).then_some(defaults)
}

/// The outputs of a run: the declared ones, otherwise what its nodes changed in the state.
pub(super) fn outputs(document: &Value) -> RunOutputs {
    if document.get("outputs").is_none() {
        return RunOutputs::Changed;
    }
    let selection = |(name, output): (&String, &Value)| {
        let from = match text(output, "from") {
            Some(path) => path.split('.').map(str::to_owned).collect(),
            None => vec![name.clone()],
        };
        Selection {
            name: name.clone(),
            from,
        }
    };
    RunOutputs::Selected(objects(document, "outputs").map(selection).collect())
}
