//! Checks that each task has exactly one of the three step types, and only the fields of that type.

use super::duration::{self, Unit};
use super::max_duration_seconds;
use super::view::{Step, Task, View};
use crate::check::{Check, text};
use crate::diagnostics::{Diagnostic, Severity, quote};
use crate::http_request::{ACTION, check_headers, wrong_url};
use serde_json::Value;
use std::collections::HashSet;

/// The fields that only an HTTP request has.
const OF_HTTP: [&str; 5] = ["method", "headers", "body", "retries", "timeout"];
const SCHEMES: [&str; 2] = ["http://", "https://"];
const URL_EXAMPLE: &str = "a URL looks like `https://example.com/orders`";
/// A timeout below this is probably meant in seconds.
const SHORTEST_PLAUSIBLE_MS: u64 = 100;

/// A field that holds a duration.
struct Timed {
    /// Its pointer inside the task.
    field: &'static str,
    unit: Unit,
    may_be_zero: bool,
}

impl Timed {
    /// Whether a bare number of milliseconds was probably meant in seconds.
    fn is_implausible(&self, ms: u64, value: &Value) -> bool {
        self.unit == Unit::Milliseconds && value.is_number() && ms < SHORTEST_PLAUSIBLE_MS
    }

    const fn new(field: &'static str, unit: Unit, may_be_zero: bool) -> Timed {
        Timed {
            field,
            unit,
            may_be_zero,
        }
    }
}

const TIMED: [Timed; 3] = [
    Timed::new("/timeout", Unit::Milliseconds, false),
    Timed::new("/sleep", Unit::Seconds, true),
    Timed::new("/wait_for_webhook/timeout", Unit::Seconds, false),
];

/// `meant` are fields that are present under a misspelled name.
pub(super) fn check(check: &mut Check, view: &View, meant: &HashSet<String>) {
    let most_ms = max_duration_seconds(check.document.value()).saturating_mul(1000);
    for task in &view.tasks {
        step_type(check, task, meant);
        wait_shape(check, task);
        if let Some(url) = text(task.value, "url") {
            check_url(check, task, url);
        }
        if let Some(headers) = task.value.get("headers") {
            let of = format!("task {}", quote(task.name));
            check_headers(check, &format!("{}/headers", task.pointer), headers, &of);
        }
        for timed in &TIMED {
            if let Some(value) = task.value.pointer(timed.field) {
                check_duration(check, task, timed, value, most_ms);
            }
        }
    }
    check_http_action(check, view);
}

fn step_type(check: &mut Check, task: &Task, meant: &HashSet<String>) {
    let at = |field: &str| format!("{}/{field}", task.pointer);
    let given: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| task.value.get(step.field()).is_some())
        .collect();
    let name = quote(task.name);
    match given.as_slice() {
        [] => {
            let almost = Step::ALL.iter().any(|step| meant.contains(&at(step.field())));
            if !almost && check.room(Severity::Error) {
                let message =
                    format!("task {name} does nothing: it has no `url`, no `sleep` and no `wait_for_webhook`");
                let mut problem = check.error("MISSING_FIELD", &task.pointer, message);
                problem.span = check.document.locate_key(&task.pointer);
                check.add(problem.help("add one of them: `url` for an HTTP request, `sleep` for a pause, `wait_for_webhook` for a callback"));
            }
        }
        [Step::Http] => {}
        [step] => {
            for field in OF_HTTP.into_iter().filter(|field| task.value.get(*field).is_some()) {
                if check.room(Severity::Error) {
                    let problem = misplaced(check, task, *step, field, &at(field));
                    check.add(problem);
                }
            }
        }
        [first, .., last] => {
            if check.room(Severity::Error) {
                let (first, last) = (first.field(), last.field());
                let message = format!("task {name} has both `{first}` and `{last}`; a task has only one of them");
                let mut problem = check.error("MIXED_STEP_TYPES", &at(last), message);
                problem.span = check.document.locate_key(&at(last));
                check.add(problem.help("split it into two tasks, and list the first in the `needs` of the second"));
            }
        }
    }
}

/// A field of HTTP requests in a task of another type.
fn misplaced(check: &Check, task: &Task, step: Step, field: &str, pointer: &str) -> Diagnostic {
    let what = step.describe();
    let message = format!("task {} is {what}, which cannot have `{field}`", quote(task.name));
    let mut problem = check.error("MISPLACED_FIELD", pointer, message);
    problem.span = check.document.locate_key(pointer);
    match (step, field) {
        (Step::Wait, "timeout") => problem.help("write `\"wait_for_webhook\": { \"timeout\": \"1h\" }`"),
        _ => problem.help("only tasks with a `url` have it; remove it here"),
    }
}

fn wait_shape(check: &mut Check, task: &Task) {
    let wrong = task.value.get("wait_for_webhook").filter(|wait| !wait.is_object());
    if wrong.is_some() && check.room(Severity::Error) {
        let pointer = format!("{}/wait_for_webhook", task.pointer);
        let message = format!("`wait_for_webhook` of task {} must be an object", quote(task.name));
        let problem = check.error("WRONG_TYPE", &pointer, message);
        check.add(problem.help("write `{}`, or `{ \"timeout\": \"1h\" }`"));
    }
}

fn check_duration(check: &mut Check, task: &Task, timed: &Timed, value: &Value, most_ms: u64) {
    let pointer = &format!("{}{}", task.pointer, timed.field);
    let field = timed.field.rsplit('/').next().unwrap_or_default();
    let subject = format!("`{field}` of task {}", quote(task.name));
    match duration::parse(value, timed.unit) {
        Err(wrong) if check.room(Severity::Error) => {
            let problem = check.error("INVALID_DURATION", pointer, format!("{subject} {}", wrong.what));
            check.add(problem.help(wrong.help));
        }
        Ok(0) if !timed.may_be_zero && check.room(Severity::Error) => {
            let problem = check.error("INVALID_DURATION", pointer, format!("{subject} cannot be zero"));
            check.add(problem.help("write a positive duration such as `30s`, or remove it to use the default"));
        }
        Ok(ms) if ms > most_ms && check.room(Severity::Warning) => {
            let message = format!("{subject} is longer than the time limit of a run, {} s", most_ms / 1000);
            let problem = check.warning("LONGER_THAN_RUN", pointer, message);
            check.add(problem.help("shorten it, or raise `max_duration_seconds` of the workflow"));
        }
        Ok(ms) if timed.is_implausible(ms, value) && check.room(Severity::Warning) => {
            let message = format!("{subject} is only {ms} milliseconds: a number without a unit is in milliseconds");
            let problem = check.warning("SHORT_TIMEOUT", pointer, message);
            check.add(problem.help(format!("for seconds, write `{ms}s`")));
        }
        _ => {}
    }
}

/// Checks a URL before its templates are rendered: its scheme, its host, and its syntax.
fn check_url(check: &mut Check, task: &Task, url: &str) {
    let (fixed, has_template) = match url.split_once("{{") {
        Some((fixed, _)) => (fixed, true),
        None => (url, false),
    };
    let lower = fixed.to_ascii_lowercase();
    let rest = SCHEMES.iter().find_map(|scheme| lower.strip_prefix(scheme));
    let may_become = has_template && SCHEMES.iter().any(|scheme| scheme.starts_with(&lower));
    let what = match rest {
        None if may_become => return,
        None => "does not begin with `http://` or `https://`",
        Some(rest) if !has_template && rest.split(['/', '?', '#']).next() == Some("") => "has no host",
        Some(_) if url.chars().any(|c| c.is_control()) || fixed.contains(' ') => {
            "contains a space or a control character"
        }
        Some(_) => return check_url_syntax(check, task, url),
    };
    if !check.room(Severity::Error) {
        return;
    }
    let message = format!("the `url` of task {} {what}", quote(task.name));
    let problem = check.error("INVALID_URL", &format!("{}/url", task.pointer), message);
    let host = url.split('/').next().unwrap_or_default();
    let bare = rest.is_none() && host.contains('.') && !url.contains(':') && !url.contains(' ');
    check.add(match bare {
        true => problem.help(format!("did you mean {}?", quote(&format!("https://{url}")))),
        false => problem.help(URL_EXAMPLE),
    });
}

/// Checks the syntax with a digit in place of each template: a digit is valid in a name and in a port.
fn check_url_syntax(check: &mut Check, task: &Task, url: &str) {
    let mut parts = url.split("{{");
    let first = parts.next().unwrap_or_default().to_owned();
    let filled = parts.fold(first, |text, part| {
        text + "1" + part.split_once("}}").map_or("", |(_, rest)| rest)
    });
    if let Some(what) = wrong_url(&filled)
        && check.room(check.readiness())
    {
        let message = format!("the `url` of task {} {what}", quote(task.name));
        let problem = check.not_ready("INVALID_URL", &format!("{}/url", task.pointer), message);
        check.add(problem.help(URL_EXAMPLE));
    }
}

/// HTTP requests use an action of the catalog, which may be disabled.
fn check_http_action(check: &mut Check, view: &View) {
    let what = match check.catalog.find(ACTION) {
        Some(entry) if entry.enabled => return,
        Some(_) => ("DISABLED_ACTION", "disabled"),
        None => ("UNKNOWN_ACTION", "missing"),
    };
    let requests = view.tasks.iter().filter(|task| task.value.get("url").is_some());
    for task in requests {
        if check.room(check.readiness()) {
            let (code, state) = what;
            let name = quote(task.name);
            let message =
                format!("task {name} is an HTTP request, but the action `{ACTION}` is {state} on this server");
            let pointer = format!("{}/url", task.pointer);
            let mut problem = check.not_ready(code, &pointer, message);
            problem.span = check.document.locate_key(&pointer);
            check.add(problem);
        }
    }
}
