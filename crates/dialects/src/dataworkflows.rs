//! The DataWorkflows dialect: nodes that carry their edges.
//!
//! Checks run one after the other and do not rely on each other's success: each looks only at what
//! has the shape it expects, so that all problems are found at once. Only a document without errors
//! is compiled, and compiling it cannot fail.

mod actions;
mod expressions;
mod graph;
mod plan;
mod schema;
mod trigger;
mod view;

use crate::compile::{Catalog, Compiled, Settings, Stage, Uncovered};
use crate::diagnostics::{Diagnostic, Diagnostics, MAX_SHOWN, Severity};
use crate::document::Document;
use serde_json::Value;
use view::View;

/// The JSON Schema of the dialect, for editors and the API.
pub const SCHEMA: &str = include_str!("../../../schemas/dataworkflows.json");

/// Compiles a DataWorkflows document, or reports everything that is wrong with it.
pub fn compile(
    document: &Document,
    settings: &Settings,
    catalog: &dyn Catalog,
    stage: Stage,
) -> Result<Compiled, Diagnostics> {
    let mut check = Check {
        document,
        settings,
        catalog,
        stage,
        problems: Vec::new(),
        uncovered: Vec::new(),
        errors: 0,
        dropped: 0,
    };
    let count = document
        .value()
        .get("nodes")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    if count > settings.max_nodes {
        let most = settings.max_nodes;
        let message = format!("the workflow has {count} nodes; at most {most} are allowed");
        let error = Diagnostic::error("TOO_MANY_NODES", document.locate_key("/nodes"), message).at("/nodes");
        return Err(document.report(vec![error]));
    }
    let view = View::new(document.value());
    schema::check(&mut check, &view);
    trigger::check(&mut check);
    let graph = graph::check(&mut check, &view);
    actions::check(&mut check, &view);
    expressions::check(&mut check, &view, &graph);

    let report = document.report_with_more(check.problems, check.dropped);
    if report.has_errors() {
        return Err(report);
    }
    match plan::build(&view, document.value(), settings) {
        Ok(plan) => Ok(Compiled {
            plan,
            description: text(document.value(), "description").map(str::to_owned),
            enabled: true,
            warnings: report.into_list(),
            uncovered: check.uncovered,
        }),
        Err(error) => {
            let error = Diagnostic::error("INVALID_GRAPH", document.locate_key("/nodes"), error.to_string());
            Err(document.report(vec![error.at("/nodes")]))
        }
    }
}

/// What every check needs, and where it puts what it finds.
struct Check<'a> {
    document: &'a Document,
    settings: &'a Settings,
    catalog: &'a dyn Catalog,
    stage: Stage,
    problems: Vec<Diagnostic>,
    uncovered: Vec<Uncovered>,
    /// How many of them are errors.
    errors: usize,
    /// Problems beyond [`MAX_PROBLEMS`].
    dropped: usize,
}

/// No more problems than this are described. Finding a place and a near name costs time, and a
/// document can have a hundred thousand problems.
const MAX_PROBLEMS: usize = 2 * MAX_SHOWN;

impl Check<'_> {
    fn error(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.document.locate(pointer), message).at(pointer)
    }

    fn warning(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Warning, code, self.document.locate(pointer), message).at(pointer)
    }

    /// What keeps a workflow from running, but not from being saved.
    fn not_ready(&self, code: &'static str, pointer: &str, message: impl Into<String>) -> Diagnostic {
        let mut problem = self.error(code, pointer, message);
        problem.severity = self.readiness();
        problem
    }

    /// How bad it is what keeps a workflow from running, but not from being saved.
    fn readiness(&self) -> Severity {
        self.stage.readiness()
    }

    /// Whether one more problem can be described; if not, it is counted. Errors and warnings are
    /// counted apart: however many warnings there are, the first error is described.
    fn room(&mut self, severity: Severity) -> bool {
        let taken = match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.problems.len() - self.errors,
        };
        self.dropped += usize::from(taken >= MAX_PROBLEMS);
        taken < MAX_PROBLEMS
    }

    fn add(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        self.problems.push(diagnostic);
    }
}

/// The string at `key` of an object.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}
