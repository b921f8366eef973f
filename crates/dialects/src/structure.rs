//! Checks the structure of a document against the JSON Schema of its dialect.

use crate::check::{Check, MAX_PROBLEMS};
use crate::explain::{Explained, explain, without_consequences};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use std::collections::HashSet;

/// The compiled schema of a dialect.
pub(crate) struct Structure {
    schema: Value,
    validator: Validator,
}

impl Structure {
    /// Compiles a schema that is part of this program.
    pub(crate) fn new(schema: &str) -> Structure {
        let schema: Value = serde_json::from_str(schema).expect("the schemas of this program are JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schemas of this program are JSON Schemas");
        Structure { schema, validator }
    }

    /// Reports all errors except those for which `elsewhere` is true. `subject` describes what a pointer
    /// leads to. Returns the fields that are present under a misspelled name: those are not missing.
    pub(crate) fn check(
        &self,
        check: &mut Check,
        subject: impl Fn(&str) -> String,
        elsewhere: impl Fn(&ValidationError) -> bool,
    ) -> HashSet<String> {
        let mut all = Vec::new();
        let errors = self.validator.iter_errors(check.document.value());
        for error in errors.filter(|error| !elsewhere(error)) {
            if all.len() < MAX_PROBLEMS {
                all.extend(explain(&error, &self.schema, &subject));
            } else {
                check.dropped += 1;
            }
        }
        let meant = all
            .iter()
            .filter(|found| found.at_key)
            .filter_map(Explained::meant_pointer)
            .collect();
        for found in without_consequences(all) {
            let mut problem = check.error(found.code, &found.pointer, found.message);
            if found.at_key {
                problem.span = check.document.locate_key(&found.pointer);
            }
            problem.suggestion = found.suggestion;
            check.add(problem);
        }
        meant
    }
}
