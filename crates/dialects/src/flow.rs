//! Flow control: `concurrency`, `rate`, `debounce` and `unique` of a document. The fields are the same in all dialects.
//!
//! | field | |
//! | --- | --- |
//! | `concurrency: {limit, key?, onLimit?}` | how many runs are active at once; others wait (`queue`) or are refused (`refuse`) |
//! | `rate: {limit: "100/1h", key?}` | how many runs begin within a time |
//! | `debounce: {quiet, max?, key?}` | starts that follow each other are one run with the last payload |
//! | `unique: {key}` | while a run has not ended, starts with its key are answered with it |
//!
//! A key is a template over what is known when a run starts.

use crate::check::{Check, Name, text};
use crate::compile::whole;
use crate::diagnostics::{Severity, quote};
use fermata_core::duration;
use fermata_core::plan::{Concurrency, DebounceRule, FlowControl, RateLimit, UniqueRule};
use fermata_expr::template::{Options, Syntax, Template};
use fermata_expr::{Segment, nearest};
use serde_json::Value;

/// The fields.
const RULES: [&str; 4] = ["concurrency", "rate", "debounce", "unique"];

/// How the keys of a dialect are written.
pub(crate) struct Keys {
    pub(crate) syntax: Syntax,
    /// The names that keys can read; `None` for the members of the state.
    pub(crate) roots: Option<&'static [&'static str]>,
}

/// The flow control of a document without errors.
pub(crate) fn control(document: &Value) -> Option<FlowControl> {
    let rule = |name: &str| document.get(name).filter(|rule| rule.is_object());
    let key = |rule: &Value| text(rule, "key").map(str::to_owned);
    let time = |rule: &Value, field: &str| text(rule, field).and_then(|time| milliseconds(time).ok());
    let control = FlowControl {
        concurrency: rule("concurrency").map(|rule| Concurrency {
            limit: rule
                .get("limit")
                .and_then(whole)
                .map_or(1, |limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            key: key(rule),
            refuse: text(rule, "onLimit") == Some("refuse"),
        }),
        rate: rule("rate").and_then(|rule| {
            let (limit, period_ms) = rate(text(rule, "limit")?).ok()?;
            let key = key(rule);
            Some(RateLimit { limit, period_ms, key })
        }),
        debounce: rule("debounce").and_then(|rule| {
            Some(DebounceRule {
                quiet_ms: time(rule, "quiet")?,
                max_ms: time(rule, "max"),
                key: key(rule),
            })
        }),
        unique: rule("unique").and_then(|rule| key(rule).map(|key| UniqueRule { key })),
    };
    (control != FlowControl::default()).then_some(control)
}

/// Reports what the schema of a dialect cannot: times, keys, and rules that exclude each other.
pub(crate) fn check(check: &mut Check, keys: &Keys) {
    let document = check.document.value();
    let is_there = |name: &str| document.get(name).is_some_and(Value::is_object);
    if let Some(limit) = document.pointer("/rate/limit").and_then(Value::as_str)
        && let Err(why) = rate(limit)
        && check.room(Severity::Error)
    {
        let message = format!("{} is not a rate: {why}", quote(limit));
        let problem = check.error("INVALID_RATE", "/rate/limit", message);
        check.add(problem.help("write how many runs begin within a time, such as `100/1h`"));
    }
    for field in ["quiet", "max"] {
        let pointer = format!("/debounce/{field}");
        if let Some(time) = document.pointer(&pointer).and_then(Value::as_str)
            && let Err(why) = milliseconds(time)
            && check.room(Severity::Error)
        {
            let problem = check.error(
                "INVALID_DURATION",
                &pointer,
                format!("{} is not a time: {why}", quote(time)),
            );
            check.add(problem);
        }
    }
    let time = |pointer: &str| {
        let time = document.pointer(pointer).and_then(Value::as_str);
        time.and_then(|time| milliseconds(time).ok())
    };
    if time("/debounce/max")
        .zip(time("/debounce/quiet"))
        .is_some_and(|(max, quiet)| max < quiet)
    {
        let problem = check.error("CONFLICTING_FIELDS", "/debounce/max", "`max` is shorter than `quiet`");
        check.add(problem.help("a run begins after `quiet` without a further start, and at the latest after `max`"));
    }
    if is_there("unique") && is_there("debounce") {
        let message = "`debounce` and `unique` exclude each other";
        let mut problem = check.error("CONFLICTING_FIELDS", "/debounce", message);
        problem.span = check.document.locate_key("/debounce");
        check.add(problem.help("a start that finds a run with its unique key is answered with it, so none is merged"));
    }
    let refuses = document.pointer("/concurrency/onLimit").and_then(Value::as_str) == Some("refuse");
    if refuses && (is_there("debounce") || is_there("rate")) {
        let message = "`onLimit: refuse` cannot be combined with `rate` or `debounce`";
        let problem = check.error("CONFLICTING_FIELDS", "/concurrency/onLimit", message);
        check.add(problem.help("they store a run that begins later, when its start can no longer be refused"));
    }
    for rule in RULES {
        let pointer = format!("/{rule}/key");
        if let Some(key) = document.pointer(&pointer).and_then(Value::as_str) {
            check_key(check, keys, rule, &pointer, key);
        }
    }
}

fn check_key(check: &mut Check, keys: &Keys, rule: &str, pointer: &str, key: &str) {
    let options = Options {
        syntax: keys.syntax,
        ..check.settings.templates.clone()
    };
    let template = match Template::parse(key, &options) {
        Ok(template) => template,
        Err(error) if check.room(Severity::Error) => {
            let what = format!("invalid key of `{rule}`");
            let problem = check.syntax("TEMPLATE_SYNTAX", &what, pointer, &error);
            return check.add(problem);
        }
        Err(_) => return,
    };
    if !template.secrets().is_empty() && check.room(Severity::Error) {
        let problem = check.error(
            "MISPLACED_SECRET",
            pointer,
            format!("the key of `{rule}` cannot contain a secret"),
        );
        check.add(problem.help("keys are stored and shown"));
    }
    if template.reads().is_empty() && template.secrets().is_empty() && check.room(Severity::Warning) {
        let message = format!(
            "the key of `{rule}` is always {}: all runs of the workflow share it",
            quote(key)
        );
        let problem = check.warning("CONSTANT_KEY", pointer, message);
        let example = match keys.roots {
            Some(roots) if roots.contains(&"trigger") => "{{ trigger.… }}",
            _ => "{{ … }}",
        };
        check.add(problem.help(format!("write `{example}` to have a key for each value")));
    }
    let Some(roots) = keys.roots else { return };
    for read in template.reads() {
        let Some(root) = read.segments.first().map(Segment::to_string) else {
            continue;
        };
        if roots.contains(&root.as_str()) || root == fermata_expr::template::SECRETS || !check.room(Severity::Error) {
            continue;
        }
        let message = format!("the key of `{rule}` cannot read {}", quote(&root));
        let mut problem = check.error("UNKNOWN_NAME", pointer, message);
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let name = Name { name: &root, owner: "" };
        problem.span = check.name_span(pointer, key, &name, word);
        check.add(match nearest(&root, roots.iter().copied()) {
            Some(near) => problem.help(format!("did you mean {}?", quote(near))),
            None => problem.help("a key is known before the first step: it can read only what starts the run"),
        });
    }
}

/// A rate such as `100/1h`: how many, and the length of a window in milliseconds.
fn rate(text: &str) -> Result<(u32, u64), String> {
    let (limit, period) = text.split_once('/').ok_or("it has no `/`")?;
    let limit = limit.trim();
    let count: u32 = limit
        .parse()
        .map_err(|_| format!("{} is not a whole number", quote(limit)))?;
    if count == 0 {
        return Err("no run would ever begin".to_owned());
    }
    Ok((count, milliseconds(period)?))
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let time = duration::parse(text).map_err(|error| error.to_string())?;
    match u64::try_from(time.as_millis()) {
        Ok(millis) if millis > 0 => Ok(millis),
        _ => Err("it must be longer than 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_a_number_and_a_time() {
        assert_eq!(rate("100/1h"), Ok((100, 3_600_000)));
        assert_eq!(rate(" 1 / 250ms"), Ok((1, 250)));
        for wrong in [
            "",
            "100",
            "0/1s",
            "-1/1s",
            "1.5/1s",
            "1/0s",
            "1/s",
            "x/1s",
            "99999999999/1s",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
