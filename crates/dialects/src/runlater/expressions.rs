//! Checks conditions and templates: their syntax, and that what they read exists when they are
//! evaluated.

use super::graph::Graph;
use super::trigger;
use super::view::{Step, Task, View};
use crate::check::{Check, Name, template_strings};
use crate::diagnostics::{Diagnostic, Severity, quote};
use crate::graph::Upstream;
use crate::secrets;
use fermata_expr::paths::Comparison;
use fermata_expr::template::{Options, SECRETS, Syntax, Template};
use fermata_expr::{ReadPath, Segment, nearest};
use serde_json::Value;

/// The names that templates can read.
const ROOTS: [&str; 3] = ["trigger", "tasks", "wait"];
/// The names that conditions can read: the URL of a callback is not useful in a comparison.
const CONDITION_ROOTS: [&str; 2] = ["trigger", "tasks"];
const OF_TRIGGER: [&str; 2] = ["body", "headers"];
const OF_TASK: [&str; 4] = ["status", "status_code", "body", "headers"];
/// The fields of a task whose strings are templates.
const TEMPLATED: [&str; 3] = ["url", "headers", "body"];
/// The longest condition, in bytes: a condition is one comparison.
const LONGEST_CONDITION: usize = 4 * 1024;

pub(super) fn check(check: &mut Check, view: &View, graph: &Graph) {
    let upstream = graph.upstream();
    let options = Options {
        syntax: Syntax::Paths,
        ..check.settings.templates.clone()
    };
    for (at, task) in view.tasks.iter().enumerate() {
        let names = Names {
            view,
            upstream: upstream.as_ref(),
            at,
        };
        if let Some(condition) = task.condition() {
            names.condition(check, condition);
        }
        names.templates(check, &options);
    }
}

/// The names that the expressions of one task may use.
struct Names<'a> {
    view: &'a View<'a>,
    upstream: Option<&'a Upstream>,
    /// The task.
    at: usize,
}

/// An expression and its place in the document.
struct Place<'a> {
    pointer: &'a str,
    text: &'a str,
    roots: &'a [&'a str],
}

impl Names<'_> {
    fn task(&self) -> &Task<'_> {
        &self.view.tasks[self.at]
    }

    /// The name of the task, quoted.
    fn this(&self) -> String {
        quote(self.task().name)
    }

    fn condition(&self, check: &mut Check, condition: &str) {
        let pointer = format!("{}/if", self.task().pointer);
        if condition.len() > LONGEST_CONDITION {
            if check.room(Severity::Error) {
                let message = format!(
                    "the condition of task {} is longer than {LONGEST_CONDITION} bytes",
                    self.this()
                );
                let problem = check.error("CONDITION_TOO_LONG", &pointer, message);
                check.add(problem.help("a condition is one comparison of a path with a value"));
            }
            return;
        }
        match Comparison::parse(condition) {
            Ok(comparison) => {
                let place = Place {
                    pointer: &pointer,
                    text: condition,
                    roots: &CONDITION_ROOTS,
                };
                self.reads(check, &place, comparison.reads());
                self.status(check, &place, &comparison);
                quoted_number(check, &place, &comparison);
            }
            Err(error) if check.room(Severity::Error) => {
                let what = format!("invalid condition in task {}", self.this());
                let problem = check.syntax("CONDITION_SYNTAX", &what, &pointer, &error);
                check.add(problem);
            }
            Err(_) => {}
        }
    }

    /// A status that the task never has: the condition always has the same result.
    fn status(&self, check: &mut Check, place: &Place, comparison: &Comparison) {
        let path = comparison.reads().iter().flat_map(|read| &read.segments);
        let path: Vec<String> = path.map(Segment::to_string).collect();
        let [tasks, name, field] = path.as_slice() else { return };
        let task = self.view.by_name.get(name.as_str()).map(|at| &self.view.tasks[*at]);
        let (Some(task), Value::String(status)) = (task, comparison.literal()) else {
            return;
        };
        let known = task.step.statuses();
        if (tasks.as_str(), field.as_str()) != ("tasks", "status") || known.contains(&status.as_str()) {
            return;
        }
        report(check, place, Severity::Warning, "UNKNOWN_STATUS", (status, ""), || {
            let (name, what) = (quote(task.name), task.step.describe());
            let message = format!("task {name} is {what}, which never has the status {}", quote(status));
            let help = match nearest(status, known.iter().copied()) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => format!("its status is {}", listed(known, "or")),
            };
            (message, Some(help))
        });
    }

    fn templates(&self, check: &mut Check, options: &Options) {
        let task = self.task();
        let mut strings = Vec::new();
        for field in TEMPLATED {
            if let Some(value) = task.value.get(field) {
                template_strings(value, format!("{}/{field}", task.pointer), &mut strings);
            }
        }
        for (pointer, text) in strings {
            match Template::parse(text, options) {
                Ok(template) => {
                    let place = Place {
                        pointer: &pointer,
                        text,
                        roots: &ROOTS,
                    };
                    self.reads(check, &place, template.reads());
                    secrets::note(check, task.name, &pointer, &template);
                }
                Err(error) if check.room(Severity::Error) => {
                    let what = format!("invalid template in task {}", self.this());
                    let problem = check.syntax("TEMPLATE_SYNTAX", &what, &pointer, &error);
                    check.add(problem);
                }
                Err(_) => {}
            }
        }
    }

    fn reads(&self, check: &mut Check, place: &Place, reads: &[ReadPath]) {
        for read in reads {
            let steps: Vec<String> = read.segments.iter().map(Segment::to_string).collect();
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            match steps.as_slice() {
                [root, ..] if !place.roots.contains(root) => unknown_root(check, place, root),
                ["trigger", rest @ ..] => of_trigger(check, place, rest),
                ["tasks", rest @ ..] => self.of_tasks(check, place, rest),
                ["wait", rest @ ..] => self.of_wait(check, place, rest),
                _ => {}
            }
        }
    }

    /// `tasks.name.field…`
    fn of_tasks(&self, check: &mut Check, place: &Place, path: &[&str]) {
        let Some((name, fields)) = path.split_first() else {
            return incomplete(
                check,
                place,
                "tasks",
                "",
                "needs the name of a task, such as `tasks.charge.body`",
            );
        };
        let Some(other) = self.view.by_name.get(name).copied() else {
            return unknown_task(check, place, ("tasks", name), self.view.names());
        };
        if !self.is_upstream(other) {
            return self.not_upstream(check, place, other);
        }
        let Some((field, below)) = fields.split_first() else {
            let how = "needs `.status`, `.status_code`, `.body` or `.headers`";
            return incomplete(check, place, name, "tasks", how);
        };
        if !OF_TASK.contains(field) {
            let known = "a task has `status`, `status_code`, `body` and `headers`";
            let instead = format!("tasks.{name}.body.{field}");
            return unknown_field(check, place, (name, field), &OF_TASK, known, &instead);
        }
        if let (["status" | "status_code"], Some(below)) = ([*field], below.first()) {
            report(check, place, Severity::Error, "UNKNOWN_NAME", (below, field), || {
                (format!("`{field}` is a single value, so it has no `{below}`"), None)
            });
        } else {
            nothing_there(check, place, (name, field), self.view.tasks[other].step);
            if let ("headers", Some(header)) = (*field, below.first()) {
                header_case(check, place, header);
            }
        }
    }

    fn is_upstream(&self, other: usize) -> bool {
        other != self.at && self.upstream.is_none_or(|upstream| upstream.precedes(other, self.at))
    }

    fn not_upstream(&self, check: &mut Check, place: &Place, other: usize) {
        let name = self.view.tasks[other].name;
        let after = self.upstream.is_some_and(|upstream| upstream.precedes(self.at, other));
        report(
            check,
            place,
            Severity::Error,
            "NODE_NOT_UPSTREAM",
            (name, "tasks"),
            || {
                let (this, name) = (self.this(), quote(name));
                match (other == self.at, after) {
                    (true, _) => (
                        format!("task {this} reads its own result, which does not exist before it has run"),
                        None,
                    ),
                    (_, true) => (
                        format!("task {this} reads the result of task {name}, which runs after it"),
                        None,
                    ),
                    _ => (
                        format!(
                            "task {this} reads the result of task {name}, but does not need it: the result may not exist"
                        ),
                        Some(format!("add {name} to the `needs` of {this}")),
                    ),
                }
            },
        );
    }

    /// `wait.name.url`
    fn of_wait(&self, check: &mut Check, place: &Place, path: &[&str]) {
        let Some((name, fields)) = path.split_first() else {
            let how = "needs the name of a task with `wait_for_webhook`, then `.url`";
            return incomplete(check, place, "wait", "", how);
        };
        match self.view.by_name.get(name).map(|at| self.view.tasks[*at].step) {
            None => return unknown_task(check, place, ("wait", name), self.view.waits()),
            Some(Step::Wait) => {}
            Some(step) => {
                return report(check, place, Severity::Error, "NOT_A_WAIT", (name, "wait"), || {
                    let message = format!("task {} is {}, which has no callback URL", quote(name), step.describe());
                    let help = "only a task with `wait_for_webhook` has a callback URL";
                    (message, Some(help.to_owned()))
                });
            }
        }
        match fields {
            ["url"] => {}
            [] => incomplete(check, place, name, "wait", "needs `.url`"),
            ["url", below, ..] => report(check, place, Severity::Error, "UNKNOWN_NAME", (below, "url"), || {
                (format!("`url` is a string, so it has no `{below}`"), None)
            }),
            [field, ..] => {
                let known = "`wait` has only `url`; the payload of the callback is in `tasks`";
                let instead = format!("tasks.{name}.{field}");
                let instead = if OF_TASK.contains(field) {
                    instead
                } else {
                    String::new()
                };
                unknown_field(check, place, (name, field), &["url"], known, &instead);
            }
        }
    }
}

/// A number compared with a string: they are never equal, and neither is less than the other.
fn quoted_number(check: &mut Check, place: &Place, comparison: &Comparison) {
    let path = comparison.reads().iter().flat_map(|read| &read.segments);
    let path: Vec<String> = path.map(Segment::to_string).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let (name, owner) = match path.as_slice() {
        [.., owner, name] => (*name, *owner),
        _ => return,
    };
    let (message, help) = match (path.as_slice(), comparison.literal()) {
        (["tasks", _, "status_code"], Value::String(text)) => (
            format!(
                "`status_code` is a number and {} is a string, so they are never equal",
                quote(text)
            ),
            is_number(text).then(|| format!("write `{text}` without quotes")),
        ),
        (["tasks", _, "status"], Value::Number(number)) => (
            format!("`status` is a string and {number} is a number, so they are never equal"),
            Some("did you mean `status_code`?".to_owned()),
        ),
        (_, Value::String(text)) if comparison.orders() && is_number(text) => (
            format!("{} is a string: no number is less or greater than it", quote(text)),
            Some(format!("to compare numbers, write `{text}` without quotes")),
        ),
        _ => return,
    };
    report(check, place, Severity::Warning, "TYPE_MISMATCH", (name, owner), || {
        (message, help)
    });
}

/// Whether a string is a number as conditions write it.
fn is_number(text: &str) -> bool {
    text.parse::<serde_json::Number>().is_ok()
}

/// `trigger.field…`
fn of_trigger(check: &mut Check, place: &Place, path: &[&str]) {
    let Some(field) = path.first() else {
        return incomplete(check, place, "trigger", "", "needs `.body` or `.headers`");
    };
    if !OF_TRIGGER.contains(field) {
        let known = "`trigger` has `body` and `headers`";
        let instead = format!("trigger.body.{field}");
        return unknown_field(check, place, ("trigger", field), &OF_TRIGGER, known, &instead);
    }
    let kind = trigger(check.document.value());
    if *field == "headers" && kind != "webhook" {
        report(
            check,
            place,
            Severity::Warning,
            "NOTHING_THERE",
            ("headers", "trigger"),
            || {
                let message = format!(
                    "`trigger.headers` is always empty: the trigger is {}, which has no headers",
                    quote(kind)
                );
                (message, None)
            },
        );
    }
}

/// A field that is always `null`.
fn nothing_there(check: &mut Check, place: &Place, (name, field): (&str, &str), step: Step) {
    if !step.readable_fields().contains(&field) {
        report(check, place, Severity::Warning, "NOTHING_THERE", (field, name), || {
            let fields = listed(step.readable_fields(), "and");
            let message = format!("task {} is {}, which has only {fields}", quote(name), step.describe());
            (message, None)
        });
    }
}

/// Header names are in lower case, however the service wrote them.
fn header_case(check: &mut Check, place: &Place, header: &str) {
    let lower = header.to_ascii_lowercase();
    if lower != header {
        report(
            check,
            place,
            Severity::Warning,
            "NOTHING_THERE",
            (header, "headers"),
            || {
                let message = format!("header names are in lower case, so {} never exists", quote(header));
                (message, Some(format!("did you mean {}?", quote(&lower))))
            },
        );
    }
}

/// Names in a row: `a`, `b` or `c`.
fn listed(names: &[&str], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
    match quoted.split_last() {
        Some((end, begin)) if !begin.is_empty() => format!("{} {last} {end}", begin.join(", ")),
        _ => quoted.concat(),
    }
}

fn unknown_root(check: &mut Check, place: &Place, root: &str) {
    report(check, place, Severity::Error, "UNKNOWN_NAME", (root, ""), || {
        let help = match nearest(root, place.roots.iter().copied()) {
            _ if root == SECRETS => "conditions cannot read secrets; only templates can insert them".to_owned(),
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("a path begins with {}", listed(place.roots, "or")),
        };
        (format!("unknown name {}", quote(root)), Some(help))
    });
}

/// A task that does not exist. `names` is only read if the problem is reported.
fn unknown_task<'a>(
    check: &mut Check,
    place: &Place,
    (root, name): (&str, &str),
    names: impl Iterator<Item = &'a str>,
) {
    report(
        check,
        place,
        Severity::Error,
        "UNKNOWN_NODE_REFERENCE",
        (name, root),
        || {
            let message = format!("task {} does not exist in this workflow", quote(name));
            let near = nearest(name, names);
            (message, near.map(|near| format!("did you mean {}?", quote(near))))
        },
    );
}

/// A field that is not among the `known` ones; `instead` is the path that was probably meant, or empty.
fn unknown_field(
    check: &mut Check,
    place: &Place,
    (owner, field): (&str, &str),
    known: &[&str],
    words: &str,
    instead: &str,
) {
    report(check, place, Severity::Error, "UNKNOWN_NAME", (field, owner), || {
        let help = match nearest(field, known.iter().copied()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None if instead.is_empty() => words.to_owned(),
            None => format!("did you mean {}?", quote(instead)),
        };
        (format!("{} has no {}: {words}", quote(owner), quote(field)), Some(help))
    });
}

/// A path that ends too early; `how` says what it needs.
fn incomplete(check: &mut Check, place: &Place, name: &str, owner: &str, how: &str) {
    report(check, place, Severity::Error, "INCOMPLETE_PATH", (name, owner), || {
        (format!("incomplete path: `{name}` {how}"), None)
    });
}

/// Adds a problem at a name, unless there are too many already. `say` makes the message and the help.
fn report(
    check: &mut Check,
    place: &Place,
    severity: Severity,
    code: &'static str,
    (name, owner): (&str, &str),
    say: impl FnOnce() -> (String, Option<String>),
) {
    if !check.room(severity) {
        return;
    }
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    let (message, help) = say();
    let span = check.name_span(place.pointer, place.text, &Name { name, owner }, word);
    let mut problem = Diagnostic::new(severity, code, span, message).at(place.pointer);
    problem.suggestion = help;
    check.add(problem);
}
