//! `triggerSchema` must itself be a JSON Schema that can be used without fetching anything.

use super::Check;
use crate::diagnostics::quote;
use jsonschema::ValidationError;

const AT: &str = "/triggerSchema";

pub(super) fn check(check: &mut Check) {
    let Some(schema) = check
        .document
        .value()
        .get("triggerSchema")
        .filter(|schema| schema.is_object())
    else {
        return;
    };
    let before = check.problems.len();
    match jsonschema::meta::validator_for(schema) {
        Ok(meta) => {
            for error in meta.iter_errors(schema) {
                report(check, &error);
            }
        }
        Err(_) => {
            let pointer = format!("{AT}/$schema");
            let kind = schema.get("$schema").and_then(|kind| kind.as_str()).unwrap_or_default();
            let message = format!("{} is not a kind of JSON Schema that is known", quote(kind));
            let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
            let help = "use `http://json-schema.org/draft-07/schema#` or leave `$schema` out";
            check.add(problem.help(help));
        }
    }
    // Only then: references that lead nowhere, patterns that are no patterns.
    if check.problems.len() == before
        && let Err(error) = jsonschema::validator_for(schema)
    {
        report(check, &error);
    }
}

fn report(check: &mut Check, error: &ValidationError) {
    let pointer = format!("{AT}{}", error.instance_path().as_str());
    let message = format!("the trigger schema is not a valid JSON Schema: {error}");
    let problem = check.error("INVALID_TRIGGER_SCHEMA", &pointer, message);
    check.add(problem);
}
