//! Checking triggers against the `triggerSchema` of their workflow, within a budget.
//!
//! Combinators and references can make a small schema take exponential time. Publishing refuses schemas that do so for every
//! trigger (`dialects`). What depends on the trigger, such as a recursive schema, is bounded here. The validator has no budget
//! of its own, so each schema that applies others gets an additional keyword, [`STEP`], which counts and checks the time. When
//! the budget is used up it unwinds to [`TriggerSchema::check`], so a hostile schema cannot occupy a thread.

use crate::{
    compiled::Compiled,
    error::Refusal,
    offload::{LARGE, Offload},
};
use jsonschema::{Keyword, ValidationError, Validator, paths::Location};
use serde_json::{Map, Value};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

/// The keyword that counts.
const STEP: &str = "x-fermata-step";

/// How many schemas one check may apply, and how long it may take.
const MAX_STEPS: u64 = 5_000_000;
const MAX_TIME: Duration = Duration::from_secs(2);
const STEPS_PER_TIME_CHECK: u64 = 256;

/// The largest number of problems that are reported.
const MAX_PROBLEMS: usize = 20;

/// Keywords that apply other schemas to the same value. Schemas with them are checked on a blocking thread.
const COMBINATORS: &[&str] = &[
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentSchemas",
    "dependencies",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose values are data.
const DATA: &[&str] = &["enum", "const", "default", "examples"];

/// Keywords whose values map names to schemas.
const MAPS: &[&str] = &[
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
    "dependentRequired",
];

/// Checks a trigger against the schema of its workflow; on a blocking thread if that may take long.
pub(crate) async fn check_trigger(
    offload: &Offload,
    compiled: &Arc<Compiled>,
    trigger: &Arc<Value>,
    bytes: usize,
) -> Result<(), Refusal> {
    let Some(schema) = &compiled.trigger else {
        return Ok(());
    };
    let problems = match schema.is_complex || bytes > LARGE {
        false => schema.check(trigger),
        true => {
            let (compiled, trigger) = (compiled.clone(), trigger.clone());
            let check = move || compiled.trigger.as_ref().map(|schema| schema.check(&trigger));
            offload.elsewhere(check).await.unwrap_or_default()
        }
    };
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Refusal::InvalidTrigger {
            workflow: compiled.plan.workflow.clone(),
            problems,
        }),
    }
}

/// A compiled trigger schema.
pub(crate) struct TriggerSchema {
    validator: Validator,
    /// Whether it has combinators.
    pub is_complex: bool,
}

/// A JSON pointer into the trigger, and what is wrong there.
pub(crate) type Problem = (String, String);

impl TriggerSchema {
    pub fn new(schema: &Value) -> Result<TriggerSchema, String> {
        let mut counting = schema.clone();
        let is_complex = instrument(&mut counting);
        let validator = match is_complex {
            true => jsonschema::options().with_keyword(STEP, count).build(&counting),
            false => jsonschema::validator_for(schema),
        };
        Ok(TriggerSchema {
            validator: validator.map_err(|error| error.to_string())?,
            is_complex,
        })
    }

    /// The problems of a trigger, as far as they are found within the budget.
    pub fn check(&self, trigger: &Value) -> Vec<Problem> {
        BUDGET.set(Some(Budget {
            steps: MAX_STEPS,
            next_time_check: MAX_STEPS - STEPS_PER_TIME_CHECK,
            until: Instant::now() + MAX_TIME,
        }));
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let errors = self.validator.iter_errors(trigger).take(MAX_PROBLEMS);
            errors
                .map(|error| (error.instance_path().to_string(), error.to_string()))
                .collect()
        }));
        BUDGET.set(None);
        checked.unwrap_or_else(|panic| match panic.is::<Exhausted>() {
            true => vec![(String::new(), exhausted())],
            false => resume_unwind(panic),
        })
    }
}

fn exhausted() -> String {
    format!(
        "checking the trigger against the triggerSchema takes more than {MAX_STEPS} steps or {} s; simplify the schema's anyOf, oneOf, \
         allOf and $ref, or send a smaller trigger",
        MAX_TIME.as_secs()
    )
}

/// Adds the counting keyword to every schema that applies others. True if there is a combinator.
fn instrument(schema: &mut Value) -> bool {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().fold(false, |any, schema| instrument(schema) | any),
        Value::Object(members) => {
            let mut complex = false;
            let mut applies = false;
            for (keyword, value) in members
                .iter_mut()
                .filter(|(keyword, _)| !DATA.contains(&keyword.as_str()))
            {
                complex |= COMBINATORS.contains(&keyword.as_str());
                applies |= value.is_object() || value.is_array() || keyword.ends_with("ef");
                match value {
                    Value::Object(named) if MAPS.contains(&keyword.as_str()) => {
                        complex |= named.values_mut().fold(false, |any, schema| instrument(schema) | any);
                    }
                    value => complex |= instrument(value),
                }
            }
            if applies {
                members.insert(STEP.to_owned(), Value::Bool(true));
            }
            complex
        }
        _ => false,
    }
}

#[derive(Clone, Copy)]
struct Budget {
    steps: u64,
    next_time_check: u64,
    until: Instant,
}

/// What unwinds when the budget is used up.
struct Exhausted;

thread_local! {
    /// The remaining budget of this thread's check. The validator is shared by threads, so it cannot hold it.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

fn count<'a>(
    _: &'a Map<String, Value>,
    _: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Count))
}

/// A keyword that accepts everything and counts.
struct Count;

impl Count {
    fn step() {
        let Some(mut budget) = BUDGET.get() else { return };
        budget.steps = budget.steps.saturating_sub(1);
        if budget.steps <= budget.next_time_check {
            if budget.steps == 0 || Instant::now() >= budget.until {
                resume_unwind(Box::new(Exhausted)); // not a panic: the hook is not called
            }
            budget.next_time_check = budget.steps.saturating_sub(STEPS_PER_TIME_CHECK);
        }
        BUDGET.set(Some(budget));
    }
}

impl<'i> Keyword<'i> for Count {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        Count::step();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        Count::step();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, trigger: Value) -> Vec<Problem> {
        TriggerSchema::new(&schema).expect("a schema").check(&trigger)
    }

    #[test]
    fn counting_keyword_does_not_change_validation() {
        let schema = json!({
            "type": "object", "required": ["kind"], "additionalProperties": false,
            "properties": { "kind": { "enum": ["a", { "anyOf": [] }] }, "anyOf": { "type": "integer" },
                            "tree": { "$ref": "#/$defs/tree" } },
            "$defs": { "tree": { "anyOf": [{ "type": "null" }, { "type": "array", "items": { "$ref": "#/$defs/tree" } }] } },
        });
        assert!(TriggerSchema::new(&schema).unwrap().is_complex);
        assert_eq!(
            check(schema.clone(), json!({ "kind": "a", "anyOf": 1, "tree": [[null], []] })),
            []
        );
        assert_eq!(check(schema.clone(), json!({ "kind": { "anyOf": [] } })), []);
        let problems = check(schema, json!({ "kind": "a", "anyOf": "x", "tree": [[1]], STEP: 1 }));
        let places: Vec<_> = problems.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["/anyOf", "/tree", ""], "{problems:?}");
    }

    #[test]
    fn schema_without_combinators_is_not_complex() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "string" } } } });
        assert!(!TriggerSchema::new(&schema).unwrap().is_complex);
        assert_eq!(check(schema, json!({ "a": [1] })).len(), 1);
    }

    #[test]
    fn exponential_work_ends_when_the_budget_is_used_up() {
        // Doubles with each level of the trigger.
        let schema = json!({
            "$ref": "#/$defs/node",
            "$defs": { "node": { "anyOf": [
                { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } }, "required": ["a"] },
                { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } }, "required": ["b"] },
            ] } },
        });
        let schema = TriggerSchema::new(&schema).unwrap();
        let trigger = (0..60).fold(json!({}), |inner, _| json!({ "next": inner }));
        let problems = schema.check(&trigger);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].1.contains("steps"), "{problems:?}");
        assert_eq!(schema.check(&json!({ "a": 1 })), [], "each check has its own budget");
    }
}
