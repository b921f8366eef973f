//! Declared triggers: the key `triggers` of a document, for the dialects that have it.
//!
//! A trigger is `{name, type, config?, condition?, enabled?}`. Its name keeps its id, its URL and its deliveries over versions.

use crate::check::{Check, Name, text};
use crate::compile::Uncovered;
use crate::diagnostics::{Diagnostic, Severity, quote};
use crate::document::Document;
use crate::secrets::NamedSecret;
use crate::tree::join;
use fermata_core::{Plan, Timestamp, plan::DeclaredTrigger};
use fermata_expr::{ReadPath, SandboxLanguage, Segment, SyntaxKind, js::Expression, nearest};
use fermata_triggers::{Schedule, TriggerConfig, TriggerType};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The fields of a trigger.
const FIELDS: [&str; 5] = ["name", "type", "config", "condition", "enabled"];

/// How messages name the trigger at this place of the list.
pub(crate) fn subject(document: &Value, at: &str) -> String {
    let trigger = document.pointer(&format!("/triggers/{at}"));
    subject_of(trigger.and_then(|trigger| text(trigger, "name")).unwrap_or_default())
}

fn subject_of(name: &str) -> String {
    match name {
        "" => "a trigger".to_owned(),
        name => format!("the trigger {}", quote(name)),
    }
}

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
            match trigger.get("config") {
                Some(config) => check_config(check, kind, name, config, &join(&pointer, "config")),
                None => check_without_config(check, kind, name, trigger, &pointer),
            }
        }
        if kind == Some(TriggerType::Webhook) {
            note_secrets(check, trigger, name, &pointer);
        }
        if let Some(condition) = text(trigger, "condition") {
            check_condition(check, name, condition, &join(&pointer, "condition"));
        }
    }
}

/// Checks a trigger without a configuration, which may have the keys of one in the wrong place.
fn check_without_config(check: &mut Check, kind: TriggerType, name: &str, trigger: &Value, pointer: &str) {
    let empty = Value::Object(Map::new());
    let mut misplaced = trigger.as_object().cloned().unwrap_or_default();
    misplaced.retain(|key, _| !FIELDS.contains(&key.as_str()));
    let names: Vec<String> = misplaced.keys().map(|key| quote(key)).collect();
    let is_config = |value: &Value| TriggerConfig::parse(kind, value).is_ok();
    if is_config(&empty) || !is_config(&Value::Object(misplaced)) {
        check_config(check, kind, name, &empty, &join(pointer, "config"));
    } else if check.room(Severity::Error) {
        let message = format!("{} has no `config`", subject_of(name));
        let problem = check.error("INVALID_TRIGGER_CONFIG", pointer, message);
        check.add(problem.help(format!("write {} in `config`", names.join(", "))));
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
        let message = format!("the configuration of {}: {problem}", subject_of(name));
        let problem = check.error("INVALID_TRIGGER_CONFIG", &place, message);
        check.add(problem);
    }
}

/// Notes the secrets that signatures are checked with.
fn note_secrets(check: &mut Check, trigger: &Value, name: &str, pointer: &str) {
    let pointer = format!("{pointer}/config/signature/secret");
    let secret = trigger.pointer("/config/signature/secret");
    let named: Vec<(String, &str)> = match secret {
        Some(Value::String(secret)) => vec![(pointer, secret)],
        Some(Value::Array(secrets)) => {
            let texts = secrets.iter().enumerate();
            let texts = texts.filter_map(|(at, secret)| Some((format!("{pointer}/{at}"), secret.as_str()?)));
            texts.collect()
        }
        _ => Vec::new(),
    };
    for (pointer, secret) in named {
        check.signature_secrets.push(NamedSecret::whole(secret, name, &pointer));
    }
}

/// The names that a condition sees.
const ROOTS: [&str; 3] = ["trigger", "payload", "request"];

/// Warns about names that a condition does not see: reading one fails, and then nothing is started.
fn check_names(check: &mut Check, name: &str, condition: &str, pointer: &str, reads: &[ReadPath]) {
    for read in reads {
        let Some(root) = read.segments.first().map(Segment::to_string) else {
            continue;
        };
        if ROOTS.contains(&root.as_str()) || !check.room(Severity::Warning) {
            continue;
        }
        let message = format!(
            "the condition of {} reads {}, which it does not have: nothing would be started",
            subject_of(name),
            quote(&root)
        );
        let mut problem = check.warning("UNKNOWN_NAME", pointer, message);
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let place = Name { name: &root, owner: "" };
        problem.span = check.name_span(pointer, condition, &place, word);
        check.add(match nearest(&root, ROOTS) {
            Some(near) => problem.help(format!("did you mean {}?", quote(near))),
            None => problem.help("a condition sees `payload` (also named `trigger`) and `request`"),
        });
    }
}

/// Warnings about schedules of a document that will not fire after `now`.
pub fn past_schedules(document: &Document, plan: &Plan, now: Timestamp) -> Vec<Diagnostic> {
    let all = document.value().get("triggers").and_then(Value::as_array);
    let pointer_of = |name: &str| {
        let at = all?.iter().position(|trigger| text(trigger, "name") == Some(name))?;
        Some(format!("/triggers/{at}/config"))
    };
    let mut warnings = Vec::new();
    for trigger in plan.triggers.iter().filter(|trigger| trigger.enabled) {
        let kind = trigger.kind.parse::<TriggerType>();
        let (Ok(TriggerType::Schedule), Some(pointer)) = (kind, pointer_of(&trigger.name)) else {
            continue;
        };
        let Ok(schedule) = Schedule::parse(&trigger.config, "") else {
            continue;
        };
        if schedule.next_after(now).is_some() {
            continue;
        }
        let key = if trigger.config.get("at").is_some() {
            "at"
        } else {
            "endAt"
        };
        let place = join(&pointer, key);
        let message = format!(
            "the trigger {} never fires: `{key}` is in the past",
            quote(&trigger.name)
        );
        let span = document.locate(&place);
        warnings.push(Diagnostic::new(Severity::Warning, "SCHEDULE_IN_THE_PAST", span, message).at(place));
    }
    warnings
}

fn check_condition(check: &mut Check, name: &str, condition: &str, pointer: &str) {
    match Expression::parse(condition) {
        Ok(expression) => check_names(check, name, condition, pointer, expression.reads()),
        Err(error) if error.kind == SyntaxKind::NotCovered => {
            let is_assignment = condition.get(error.offset..error.offset + error.length) == Some("=");
            if is_assignment && check.room(Severity::Warning) {
                let message = format!("the condition of {} assigns a value", subject_of(name));
                let mut problem = check.warning("CONDITION_ASSIGNS", pointer, message);
                problem.span = check.document.locate_in_string(pointer, error.offset, error.length);
                check.add(problem.help("`=` assigns; to compare, write `===`"));
            }
            check.uncovered.push(Uncovered {
                pointer: pointer.to_owned(),
                node: name.to_owned(),
                language: SandboxLanguage::Js,
                source: condition.to_owned(),
            });
        }
        Err(error) if check.room(Severity::Error) => {
            let what = format!("invalid condition of {}", subject_of(name));
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
