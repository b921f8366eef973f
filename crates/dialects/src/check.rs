//! The common part of the checks of all dialects: it collects the problems.
//!
//! Checks run one after the other and do not depend on each other's success: each reads only values
//! of the shape it expects, so that all problems are found at once. Only a document without errors
//! is compiled ([`Check::finish`]), and compiling it cannot fail.

use crate::compile::{Catalog, Compiled, MAX_ID_BYTES, Settings, Stage, Uncovered};
use crate::diagnostics::{Diagnostic, Diagnostics, MAX_SHOWN, Severity, quote};
use crate::document::Document;
use crate::secrets::{NamedSecret, misplaced};
use crate::source::Span;
use crate::tree::join;
use fermata_core::plan::GraphError;
use fermata_core::{Plan, RunId};
use fermata_expr::SyntaxError;
use serde_json::Value;

/// The most problems that are described; the rest are counted. Locating a problem and finding a similar
/// name takes time, and a document can have a hundred thousand problems.
pub(crate) const MAX_PROBLEMS: usize = 2 * MAX_SHOWN;
/// In a longer string, a name is not located: the whole string is marked.
const LONGEST_SEARCHED: usize = 64 * 1024;

pub(crate) struct Check<'a> {
    pub(crate) document: &'a Document,
    pub(crate) settings: &'a Settings,
    pub(crate) catalog: &'a dyn Catalog,
    pub(crate) stage: Stage,
    pub(crate) problems: Vec<Diagnostic>,
    pub(crate) uncovered: Vec<Uncovered>,
    pub(crate) secrets: Vec<NamedSecret>,
    /// Secrets that signatures of webhooks are checked with. They get into no parameters.
    pub(crate) signature_secrets: Vec<NamedSecret>,
    /// How many of the problems are errors.
    errors: usize,
    /// Problems beyond [`MAX_PROBLEMS`].
    pub(crate) dropped: usize,
}

impl<'a> Check<'a> {
    pub(crate) fn new(document: &'a Document, settings: &'a Settings, catalog: &'a dyn Catalog, stage: Stage) -> Self {
        Check {
            document,
            settings,
            catalog,
            stage,
            problems: Vec::new(),
            uncovered: Vec::new(),
            secrets: Vec::new(),
            signature_secrets: Vec::new(),
            errors: 0,
            dropped: 0,
        }
    }

    pub(crate) fn error(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.document.locate(pointer), message).at(pointer)
    }

    pub(crate) fn warning(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Warning, code, self.document.locate(pointer), message).at(pointer)
    }

    /// A problem that prevents running, but not saving.
    pub(crate) fn not_ready(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        let mut problem = self.error(code, pointer, message);
        problem.severity = self.readiness();
        problem
    }

    /// A syntax error, located inside the string that has the expression.
    pub(crate) fn syntax(&self, code: &'static str, what: &str, pointer: &str, error: &SyntaxError) -> Diagnostic {
        let mut problem = self.error(code, pointer, format!("{what}: {}", error.message));
        problem.span = self.document.locate_in_string(pointer, error.offset, error.length);
        problem
    }

    /// The severity of problems that prevent running, but not saving.
    pub(crate) fn readiness(&self) -> Severity {
        self.stage.readiness()
    }

    /// Whether one more problem can be described; if not, it is counted. Errors and warnings have
    /// separate limits, so warnings never hide an error.
    pub(crate) fn room(&mut self, severity: Severity) -> bool {
        let taken = match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.problems.len() - self.errors,
        };
        self.dropped += usize::from(taken >= MAX_PROBLEMS);
        taken < MAX_PROBLEMS
    }

    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        self.problems.push(diagnostic);
    }

    /// Refuses a document with too many nodes before any other check. `what` is the key of the nodes.
    pub(crate) fn limit_nodes(&self, count: usize, what: &str) -> Result<(), Diagnostics> {
        let most = self.settings.max_nodes;
        if count <= most {
            return Ok(());
        }
        let pointer = format!("/{what}");
        let message = format!("the workflow has {count} {what}; at most {most} are allowed");
        let error = Diagnostic::error("TOO_MANY_NODES", self.document.locate_key(&pointer), message).at(pointer);
        Err(self.document.report(vec![error]))
    }

    /// Refuses ids that some databases cannot store: ids are parts of keys, URLs and log lines. `ids` has for each id its
    /// kind, the id and its pointer. Dialects with a stricter schema do not need it.
    pub(crate) fn ids<'i>(&mut self, ids: impl Iterator<Item = (&'static str, &'i str, String)>) {
        if !self.settings.check_ids {
            return;
        }
        for (what, id, pointer) in ids {
            let wrong = match id.len() {
                length if length > MAX_ID_BYTES => format!("has {length} bytes; at most {MAX_ID_BYTES} are allowed"),
                _ if id.chars().any(char::is_control) => "contains a control character".to_owned(),
                _ => continue,
            };
            if self.room(Severity::Error) {
                let problem = self.error("INVALID_ID", &pointer, format!("{what} {} {wrong}", quote(id)));
                self.add(problem);
            }
        }
    }

    /// Refuses a workflow name that looks like an id, at `key` of the document: the API accepts a name or an id in its paths.
    pub(crate) fn workflow_name(&mut self, key: &str) {
        let Some(name) = text(self.document.value(), key) else {
            return;
        };
        if !self.settings.check_ids || !looks_like_an_id(name) {
            return;
        }
        let message = format!("the {key} {} looks like a workflow id or a run id", quote(name));
        let problem = self.error("NAME_LOOKS_LIKE_ID", &format!("/{key}"), message);
        self.add(problem.help(
            "a UUID, with or without `wf_` or `run_`, is reserved for ids that Fermata generates; choose another name",
        ));
    }

    /// The position of `name` in the string `text`: as a member of `owner` if possible, else its first
    /// occurrence as a whole word, else the whole string. `word` tells which characters names have.
    pub(crate) fn name_span(&self, pointer: &str, text: &str, name: &Name, word: fn(char) -> bool) -> Span {
        let Name { name, owner } = *name;
        if text.len() > LONGEST_SEARCHED || name.is_empty() {
            return self.document.locate(pointer);
        }
        let whole = |at: &usize| {
            let (before, after) = (&text[..*at], &text[at + name.len()..]);
            !before.ends_with(word) && !after.starts_with(word)
        };
        let owned = |at: &usize| {
            let before = text[..*at].trim_end_matches(['[', '\'', '"', '.', '?', ' ']);
            !owner.is_empty() && before.len() < *at && before.ends_with(owner)
        };
        let places: Vec<usize> = text
            .match_indices(name)
            .map(|(at, _)| at)
            .filter(whole)
            .take(1000)
            .collect();
        match places.iter().find(|at| owned(at)).or(places.first()) {
            Some(at) => self.document.locate_in_string(pointer, *at, name.len()),
            None => self.document.locate(pointer),
        }
    }

    /// The report if there are errors, otherwise the plan that `build` makes. `nodes` is the key of the
    /// nodes.
    pub(crate) fn finish(
        self,
        nodes: &str,
        build: impl FnOnce() -> Result<Plan, GraphError>,
    ) -> Result<Compiled, Diagnostics> {
        let document = self.document;
        let report = document.report_with_more(self.problems, self.dropped);
        if report.has_errors() {
            return Err(report);
        }
        let value = document.value();
        match build() {
            Ok(plan)
                if self
                    .secrets
                    .iter()
                    .any(|secret| !secret.is_allowed(&plan, self.catalog)) =>
            {
                let refused = misplaced(document, &self.secrets, &plan, self.catalog);
                let problems = report.into_list().into_iter().chain(refused);
                Err(document.report(problems.collect()))
            }
            Ok(plan) => Ok(Compiled {
                plan: plan.with_secrets(self.secrets.iter().map(|secret| secret.name.clone())),
                description: text(value, "description").map(str::to_owned),
                enabled: value.get("enabled").and_then(Value::as_bool).unwrap_or(true),
                warnings: report.into_list(),
                uncovered: self.uncovered,
                secrets: self.secrets.into_iter().chain(self.signature_secrets).collect(),
            }),
            Err(error) => {
                let pointer = format!("/{nodes}");
                let error = Diagnostic::error("INVALID_GRAPH", document.locate_key(&pointer), error.to_string());
                Err(document.report(vec![error.at(pointer)]))
            }
        }
    }
}

/// Whether the API could mistake a name for the id of a workflow or a run.
fn looks_like_an_id(name: &str) -> bool {
    let prefixed = |prefix: &str| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    };
    let id = prefixed("wf_").or_else(|| prefixed("run_")).unwrap_or(name);
    id.parse::<RunId>().is_ok()
}

/// A name in an expression, and the name it is a member of.
pub(crate) struct Name<'n> {
    pub(crate) name: &'n str,
    pub(crate) owner: &'n str,
}

/// The string at `key` of an object.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The strings of `value` that may contain a template, with their pointers. Recursion is bounded by the
/// depth limit of documents.
pub(crate) fn template_strings<'a>(value: &'a Value, pointer: String, strings: &mut Vec<(String, &'a str)>) {
    match value {
        Value::String(text) if text.contains("{{") || text.contains("}}") => strings.push((pointer, text)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                template_strings(item, format!("{pointer}/{at}"), strings);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                template_strings(item, join(&pointer, key), strings);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::looks_like_an_id;

    #[test]
    fn uuids_with_known_prefixes_look_like_ids() {
        let id = "01930c5d-7d1c-7c10-8c3a-2b6c6e9f0a11";
        let upper = id.to_uppercase();
        let simple = id.replace('-', "");
        for id in [id, &upper, &simple] {
            for name in [
                id.to_owned(),
                format!("wf_{id}"),
                format!("run_{id}"),
                format!("WF_{id}"),
            ] {
                assert!(looks_like_an_id(&name), "{name}");
            }
            for name in [
                format!("x{id}"),
                format!("{id}-2"),
                format!("wf-{id}"),
                format!("wf_run_{id}"),
            ] {
                assert!(!looks_like_an_id(&name), "{name}");
            }
        }
        for name in ["", "w", "wf_", "run_", "wf_order", "run_1", "deadbeef", "wü_"] {
            assert!(!looks_like_an_id(name), "{name}");
        }
    }
}
