//! The tasks of a document. Values of the wrong shape are left out: the structure check reports them.

use crate::check::text;
use crate::tree::join;
use serde_json::Value;
use std::collections::HashMap;

/// The tasks that are objects, in document order.
pub(super) struct View<'a> {
    pub(super) tasks: Vec<Task<'a>>,
    pub(super) by_name: HashMap<&'a str, usize>,
}

pub(super) struct Task<'a> {
    pub(super) name: &'a str,
    pub(super) pointer: String,
    pub(super) value: &'a Value,
    pub(super) step: Step,
    pub(super) needs: Vec<Need<'a>>,
}

/// A name in `needs`.
pub(super) struct Need<'a> {
    pub(super) name: &'a str,
    pub(super) pointer: String,
}

/// The type of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Http,
    Sleep,
    Wait,
}

impl Step {
    pub(super) const ALL: [Step; 3] = [Step::Http, Step::Sleep, Step::Wait];

    /// The field that identifies this type.
    pub(super) fn field(self) -> &'static str {
        match self {
            Step::Http => "url",
            Step::Sleep => "sleep",
            Step::Wait => "wait_for_webhook",
        }
    }

    /// The fields that expressions can read of a task of this type; the others are always `null`.
    pub(super) fn readable_fields(self) -> &'static [&'static str] {
        match self {
            Step::Http => &["status", "status_code", "body", "headers"],
            Step::Sleep => &["status"],
            Step::Wait => &["status", "body"],
        }
    }

    /// The statuses in which it can end.
    pub(super) fn statuses(self) -> &'static [&'static str] {
        match self {
            Step::Http => &["success", "failed", "timeout", "template_error", "skipped"],
            Step::Sleep => &["success", "skipped"],
            Step::Wait => &["received", "timeout", "skipped"],
        }
    }

    /// A description for messages.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Step::Http => "an HTTP request",
            Step::Sleep => "a sleep",
            Step::Wait => "a wait for a webhook",
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn new(document: &'a Value) -> View<'a> {
        let given = document.get("tasks").and_then(Value::as_object);
        let objects = given.into_iter().flatten().filter(|(_, value)| value.is_object());
        let tasks: Vec<Task> = objects.map(|(name, value)| Task::new(name, value)).collect();
        let by_name = tasks.iter().enumerate().map(|(at, task)| (task.name, at)).collect();
        View { tasks, by_name }
    }

    /// All names, in document order.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.tasks.iter().map(|task| task.name)
    }

    /// The names of the waits.
    pub(super) fn waits(&self) -> impl Iterator<Item = &'a str> {
        let waits = self.tasks.iter().filter(|task| task.step == Step::Wait);
        waits.map(|task| task.name)
    }
}

impl<'a> Task<'a> {
    fn new(name: &'a str, value: &'a Value) -> Task<'a> {
        let pointer = join("/tasks", name);
        let needs = value.get("needs").and_then(Value::as_array).into_iter().flatten();
        let need = |(at, name): (usize, &'a Value)| {
            let pointer = format!("{pointer}/needs/{at}");
            name.as_str().map(|name| Need { name, pointer })
        };
        Task {
            name,
            value,
            step: match value {
                _ if value.get("sleep").is_some() => Step::Sleep,
                _ if value.get("wait_for_webhook").is_some() => Step::Wait,
                _ => Step::Http,
            },
            needs: needs.enumerate().filter_map(need).collect(),
            pointer,
        }
    }

    pub(super) fn condition(&self) -> Option<&'a str> {
        text(self.value, "if")
    }
}
