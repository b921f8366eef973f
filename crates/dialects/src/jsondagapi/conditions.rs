//! Checks the conditions of edges: the keys that their type needs, and the syntax of expressions.

use super::view::{ConditionKind, Edge, View};
use crate::check::{Check, text};
use crate::compile::Uncovered;
use crate::diagnostics::Severity;
use fermata_expr::jsonlogic::{Operators, Rule, RuleError};
use fermata_expr::logic::LogicLanguage;
use fermata_expr::{SandboxLanguage, cel};
use serde_json::Value;
use std::collections::HashSet;

const OF_EXPRESSIONS: [&str; 2] = ["language", "expression"];
const OF_CALLBACKS: [&str; 2] = ["decision_key", "callback"];

/// `meant` are fields that are present under a misspelled name.
pub(super) fn check(check: &mut Check, view: &View, meant: &HashSet<String>) {
    for edge in &view.edges {
        let Some(condition) = edge.condition() else { continue };
        let (needed, others) = match edge.condition_kind() {
            ConditionKind::Expression => (OF_EXPRESSIONS, OF_CALLBACKS),
            ConditionKind::Callback => (OF_CALLBACKS, OF_EXPRESSIONS),
            ConditionKind::None => continue,
        };
        keys(check, edge, condition, needed, others, meant);
        if edge.condition_kind() == ConditionKind::Expression {
            expression(check, edge, condition);
        }
    }
}

fn keys(
    check: &mut Check,
    edge: &Edge,
    condition: &Value,
    needed: [&str; 2],
    others: [&str; 2],
    meant: &HashSet<String>,
) {
    let at = format!("{}/condition", edge.pointer);
    let kind = text(condition, "type").unwrap_or_default();
    for field in needed {
        let pointer = format!("{at}/{field}");
        if condition.get(field).is_none() && !meant.contains(&pointer) && check.room(Severity::Error) {
            let message = format!(
                "the field `{field}` is missing in the {kind} condition of {}",
                edge.name()
            );
            let problem = check.error("MISSING_FIELD", &at, message);
            check.add(problem);
        }
    }
    for field in others {
        let pointer = format!("{at}/{field}");
        if condition.get(field).is_some() && check.room(Severity::Error) {
            let message = format!("the {kind} condition of {} cannot have `{field}`", edge.name());
            let mut problem = check.error("MISPLACED_FIELD", &pointer, message);
            problem.span = check.document.locate_key(&pointer);
            check.add(problem.help("remove it, or change the `type` of the condition"));
        }
    }
}

fn expression(check: &mut Check, edge: &Edge, condition: &Value) {
    let language = text(condition, "language").and_then(LogicLanguage::find);
    let (Some(language), Some(expression)) = (language, condition.get("expression")) else {
        return;
    };
    let pointer = format!("{}/condition/expression", edge.pointer);
    match (language, expression) {
        (LogicLanguage::JsonLogic, rule @ Value::Object(_)) => {
            let operators = match check.settings.strict_operators {
                true => Operators::Subset,
                false => Operators::All,
            };
            if let Err(errors) = Rule::parse(rule, operators) {
                for error in errors {
                    rule_error(check, edge, &pointer, error);
                }
            }
        }
        (LogicLanguage::Cel, Value::String(source)) => match cel::Expression::parse(source) {
            // The sandbox checks the rest of the syntax.
            Ok(_) => check.uncovered.push(Uncovered {
                node: edge.from.to_owned(),
                language: SandboxLanguage::Cel,
                source: source.clone(),
                pointer,
            }),
            Err(error) if check.room(Severity::Error) => {
                let what = format!("invalid expression in {}", edge.name());
                let problem = check.syntax("CONDITION_SYNTAX", &what, &pointer, &error);
                check.add(problem);
            }
            Err(_) => {}
        },
        (_, Value::Object(_) | Value::String(_)) if check.room(Severity::Error) => {
            let (must, language) = match language {
                LogicLanguage::JsonLogic => ("an object", "jsonlogic"),
                LogicLanguage::Cel => ("a string", "cel"),
            };
            let message = format!(
                "`expression` of {} must be {must}: its language is `{language}`",
                edge.name()
            );
            let problem = check.error("WRONG_TYPE", &pointer, message);
            check.add(problem);
        }
        _ => {}
    }
}

fn rule_error(check: &mut Check, edge: &Edge, pointer: &str, error: RuleError) {
    if check.room(Severity::Error) {
        let pointer = format!("{pointer}{}", error.pointer);
        let message = format!("invalid expression in {}: {}", edge.name(), error.message);
        let mut problem = check.error("CONDITION_SYNTAX", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        problem.suggestion = error.suggestion;
        check.add(problem);
    }
}
