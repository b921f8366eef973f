//! `forEach`: one child run for each item of a list. The fields are the same in all dialects.
//!
//! | field | |
//! | --- | --- |
//! | `forEach` | one template that gives the list, such as `{{ trigger.orders }}` |
//! | `maxConcurrency` | how many children run at the same time; 10 by default |
//! | `onItemFailure` | `fail` (the default) or `continue` |

use crate::check::{Check, text};
use crate::compile::{Settings, whole};
use crate::diagnostics::{Severity, quote};
use fermata_core::{Each, OnItemFailure};
use serde_json::Value;

/// The fields that need `forEach`.
const WITH_FOR_EACH: [&str; 2] = ["maxConcurrency", "onItemFailure"];
/// All fields.
pub(crate) const FIELDS: [&str; 3] = ["forEach", "maxConcurrency", "onItemFailure"];
/// The members that each child has of its own.
const OWN_MEMBERS: [&str; 2] = ["item", "index"];
const DEFAULT_CONCURRENCY: u32 = 10;

/// How a node runs one child for each item, if it does.
pub(crate) fn each(node: &Value, settings: &Settings) -> Option<Each> {
    let concurrency = node.get("maxConcurrency").and_then(whole);
    let concurrency = concurrency.and_then(|most| u32::try_from(most).ok());
    Some(Each {
        items: text(node, "forEach")?.to_owned(),
        max_concurrency: concurrency.unwrap_or(DEFAULT_CONCURRENCY).max(1),
        max_items: settings.max_items,
        on_item_failure: match text(node, "onItemFailure") {
            Some("continue") => OnItemFailure::Continue,
            _ => OnItemFailure::Fail,
        },
    })
}

/// Checks the fields of a node that starts children.
pub(crate) fn check(check: &mut Check, id: &str, node: &Value, pointer: &str) {
    let Some(list) = node.get("forEach") else {
        for field in WITH_FOR_EACH.into_iter().filter(|field| node.get(*field).is_some()) {
            misplaced(check, id, &format!("{pointer}/{field}"), field, "it needs `forEach`");
        }
        return;
    };
    if list.as_str().is_some_and(|list| !is_one_template(list)) && check.room(Severity::Error) {
        let message = format!("`forEach` of node {} must be one template that gives a list", quote(id));
        let problem = check.error("NOT_A_LIST", &format!("{pointer}/forEach"), message);
        check.add(problem.help("such as `\"{{ trigger.orders }}\"`"));
    }
    if node.get("waitForCompletion") == Some(&Value::Bool(false)) {
        let help = "a node with `forEach` ends when its children have ended";
        misplaced(
            check,
            id,
            &format!("{pointer}/waitForCompletion"),
            "waitForCompletion: false",
            help,
        );
    }
    for name in OWN_MEMBERS {
        if node.pointer(&format!("/parameters/{name}")).is_some() {
            let help = "`forEach` sets `item` and `index` in the trigger of each child";
            misplaced(check, id, &format!("{pointer}/parameters/{name}"), name, help);
        }
    }
}

fn misplaced(check: &mut Check, id: &str, pointer: &str, field: &str, help: &str) {
    if check.room(Severity::Error) {
        let message = format!("node {} cannot have `{field}`", quote(id));
        let mut problem = check.error("MISPLACED_FIELD", pointer, message);
        problem.span = check.document.locate_key(pointer);
        check.add(problem.help(help));
    }
}

/// Whether a text is one `{{ … }}`, so that it gives a value and not a text.
fn is_one_template(text: &str) -> bool {
    let inner = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    inner.is_some_and(|inner| !inner.contains("}}"))
}
