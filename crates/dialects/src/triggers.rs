//! Declared triggers: the key `triggers` of a document, for the dialects that have it.
//!
//! A trigger is `{name, type, config?, condition?, enabled?}`. Its name keeps its id, its URL and its deliveries over versions.

use crate::check::{Check, text};
use crate::compile::Uncovered;
use crate::diagnostics::{Severity, quote};
use crate::tree::join;
use fermata_core::plan::DeclaredTrigger;
use fermata_expr::{SandboxLanguage, SyntaxKind, js::Expression};
use fermata_triggers::{TriggerConfig, TriggerType};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Checks the triggers of a document. Shapes are checked by the schema.
pub(crate) fn check(check: &mut Check) {
    let triggers = check.document.value().get("triggers").and_then(Value::as_array);
    let mut names = HashSet::new();
    for (at, trigger) in triggers.into_iter().flatten().enumerate() {
        let pointer = format!("/triggers/{at}");
        let name = text(trigger, "name").unwrap_or_default();
        if !names.insert(name) && check.room(Severity::Error) {
            let message = format!("more than one trigger has the name {}", quote(name));
            let problem = check.error("DUPLICATE_TRIGGER", &join(&pointer, "name"), message);
            check.add(problem);
        }
        let kind = text(trigger, "type").and_then(|kind| kind.parse::<TriggerType>().ok());
        if let Some(kind) = kind {
            let empty = Value::Object(Map::new());
            let config = trigger.get("config").unwrap_or(&empty);
            check_config(check, kind, name, config, &join(&pointer, "config"));
        }
        if let Some(condition) = text(trigger, "condition") {
            check_condition(check, name, condition, &join(&pointer, "condition"));
        }
    }
}

/// Reports what is wrong with the configuration of a trigger, which is at `pointer`.
pub(crate) fn check_config(check: &mut Check, kind: TriggerType, name: &str, config: &Value, pointer: &str) {
    let problems = TriggerConfig::parse(kind, config).err().unwrap_or_default();
    for problem in problems {
        if !check.room(Severity::Error) {
            return;
        }
        let place = format!("{pointer}{}", problem.pointer);
        // A key that is missing has no place of its own.
        let place = match check.document.value().pointer(&place) {
            Some(_) => place,
            None => pointer
                .rsplit_once('/')
                .map_or(String::new(), |(parent, _)| parent.to_owned()),
        };
        let message = format!("the configuration of the trigger {}: {problem}", quote(name));
        let problem = check.error("INVALID_TRIGGER_CONFIG", &place, message);
        check.add(problem);
    }
}

fn check_condition(check: &mut Check, name: &str, condition: &str, pointer: &str) {
    match Expression::parse(condition) {
        Ok(_) => {}
        Err(error) if error.kind == SyntaxKind::NotCovered => check.uncovered.push(Uncovered {
            pointer: pointer.to_owned(),
            node: name.to_owned(),
            language: SandboxLanguage::Js,
            source: condition.to_owned(),
        }),
        Err(error) if check.room(Severity::Error) => {
            let what = format!("invalid condition of the trigger {}", quote(name));
            let problem = check.syntax("CONDITION_SYNTAX", &what, pointer, &error);
            check.add(problem);
        }
        Err(_) => {}
    }
}

/// The triggers of a document without errors.
pub(crate) fn declared(document: &Value) -> Vec<DeclaredTrigger> {
    let triggers = document.get("triggers").and_then(Value::as_array);
    let declared = |trigger: &Value| {
        let kind: TriggerType = text(trigger, "type")?.parse().ok()?;
        Some(DeclaredTrigger {
            name: text(trigger, "name")?.to_owned(),
            kind: kind.name().to_owned(),
            enabled: trigger.get("enabled").and_then(Value::as_bool).unwrap_or(true),
            config: trigger
                .get("config")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new())),
            condition: text(trigger, "condition").map(str::to_owned),
        })
    };
    triggers.into_iter().flatten().filter_map(declared).collect()
}
