//! Checks conditions and templates: their syntax, and that the names they read exist.

use super::graph::Graph;
use super::view::{Node, View};
use crate::check::{Check, Name, template_strings, text};
use crate::compile::Uncovered;
use crate::diagnostics::{Severity, quote};
use crate::graph::Upstream;
use crate::secrets;
use crate::source::Span;
use fermata_expr::js::{Expression, scan_reads};
use fermata_expr::template::{SECRETS, Template};
use fermata_expr::{Data, ReadPath, SandboxLanguage, Segment, SyntaxError, SyntaxKind, nearest};
use serde_json::Value;

/// The names that conditions and templates can read.
const ROOTS: [&str; 6] = ["trigger", "context", "vars", "spec", "wait", "request"];
/// The longest condition, in bytes.
const LONGEST_CONDITION: usize = 64 * 1024;
/// The members of `context`.
const IN_CONTEXT: [&str; 2] = ["data", "trigger"];

pub(super) fn check(check: &mut Check, view: &View, graph: &Graph) {
    let upstream = graph.upstream();
    for (at, node) in view.nodes.iter().enumerate() {
        let mut names = Names {
            view,
            upstream: upstream.as_ref(),
            at,
            own_output: true,
            certain: true,
        };
        for edge in &node.edges {
            if let Some(condition) = text(edge.value, "condition") {
                let pointer = format!("{}/condition", edge.pointer);
                check_condition(check, &names, &pointer, condition);
            }
        }
        names.own_output = false;
        templates(check, &names, node);
    }
}

fn check_condition(check: &mut Check, names: &Names, pointer: &str, condition: &str) {
    if condition.len() > LONGEST_CONDITION {
        if check.room(Severity::Error) {
            let (id, most) = (names.this(), LONGEST_CONDITION);
            let message = format!("a condition of node {id} is longer than {most} bytes");
            let problem = check.error("CONDITION_TOO_LONG", pointer, message);
            check.add(
                problem.help("compute the result in an action, and read the output of the action in the condition"),
            );
        }
        return;
    }
    match Expression::parse(condition) {
        Ok(expression) => names.check(check, pointer, condition, expression.reads()),
        Err(error) if error.kind == SyntaxKind::NotCovered => note_uncovered(check, names, pointer, condition, &error),
        Err(_) if !check.room(Severity::Error) => {}
        Err(error) => {
            let what = format!("invalid condition in node {}", names.this());
            let problem = check.syntax("CONDITION_SYNTAX", &what, pointer, &error);
            check.add(problem);
        }
    }
}

/// Notes a condition that only a full JavaScript engine can check. What it reads is known well enough for warnings.
fn note_uncovered(check: &mut Check, names: &Names, pointer: &str, condition: &str, error: &SyntaxError) {
    if condition.get(error.offset..error.offset + error.length) == Some("=") && check.room(Severity::Warning) {
        let message = format!("a condition of node {} assigns a value", names.this());
        let mut problem = check.warning("CONDITION_ASSIGNS", pointer, message);
        problem.span = check.document.locate_in_string(pointer, error.offset, error.length);
        check.add(problem.help("`=` assigns; to compare, write `===`"));
    }
    let names = Names {
        certain: false,
        ..*names
    };
    names.check(check, pointer, condition, &scan_reads(condition, &ROOTS));
    check.uncovered.push(Uncovered {
        pointer: pointer.to_owned(),
        node: names.view.nodes[names.at].id.to_owned(),
        language: SandboxLanguage::Js,
        source: condition.to_owned(),
    });
}

/// Checks every string in the parameters of `node`, and `forEach`; the depth of a document is limited.
fn templates(check: &mut Check, names: &Names, node: &Node) {
    let mut strings = Vec::new();
    if let Some(list) = text(node.value, "forEach") {
        strings.push((format!("{}/forEach", node.pointer), list));
    }
    if let Some(parameters) = node.value.get("parameters").filter(|parameters| parameters.is_object()) {
        template_strings(parameters, format!("{}/parameters", node.pointer), &mut strings);
    }
    for (pointer, text) in strings {
        match Template::parse(text, &check.settings.templates) {
            Ok(template) => {
                names.check(check, &pointer, text, template.reads());
                secrets::note(check, node.id, &pointer, &template);
                if check.settings.validate_parameter_templates {
                    dry_run(check, &pointer, &template);
                }
            }
            Err(error) if check.room(Severity::Error) => {
                let what = format!("invalid template in node {}", names.this());
                let problem = check.syntax("TEMPLATE_SYNTAX", &what, &pointer, &error);
                check.add(problem);
            }
            Err(_) => {}
        }
    }
}

/// Renders once with a placeholder for everything that is read. A template that computes a name at run time is left out,
/// because it cannot be known where a placeholder belongs.
fn dry_run(check: &mut Check, pointer: &str, template: &Template) {
    if template.reads().iter().any(|read| read.open) {
        return;
    }
    let mut scope = Value::Object(serde_json::Map::new());
    for read in template.reads() {
        placeholder(&mut scope, &read.segments);
    }
    if let Err(error) = template.render(&Data::Json(&scope), &check.settings.templates)
        && check.room(Severity::Warning)
    {
        let message = format!(
            "the template fails when it is rendered with placeholders: {}",
            error.message
        );
        let mut problem = check.warning("TEMPLATE_RENDER", pointer, message);
        problem.span = check.document.locate_in_string(pointer, error.offset, error.length);
        check.add(problem);
    }
}

/// Adds `path` to `value`, with a string at its end.
fn placeholder(value: &mut Value, path: &[Segment]) {
    const MOST_ITEMS: usize = 1000;
    let Some((first, rest)) = path.split_first() else {
        if value.is_null() {
            *value = Value::from("placeholder");
        }
        return;
    };
    match first {
        Segment::Index(at) if *at < MOST_ITEMS && !value.is_object() => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            if let Value::Array(items) = value {
                items.resize_with(items.len().max(at + 1), Value::default);
                placeholder(&mut items[*at], rest);
            }
        }
        _ => {
            if !value.is_object() {
                *value = Value::Object(serde_json::Map::new());
            }
            placeholder(&mut value[first.to_string()], rest);
        }
    }
}

/// The names that an expression of one node may use.
struct Names<'a> {
    view: &'a View<'a>,
    upstream: Option<&'a Upstream>,
    /// The node.
    at: usize,
    /// Whether its own output exists when the expression is evaluated.
    own_output: bool,
    /// Whether the reads come from a parsed expression. They are guessed from the source otherwise.
    certain: bool,
}

impl Names<'_> {
    /// The id of the node, quoted.
    fn this(&self) -> String {
        quote(self.view.nodes[self.at].id)
    }

    fn check(&self, check: &mut Check, pointer: &str, text: &str, reads: &[ReadPath]) {
        for read in reads {
            let mut steps = read.segments.iter().map(Segment::to_string);
            let Some(root) = steps.next() else { continue };
            if !ROOTS.contains(&root.as_str()) {
                if !check.room(Severity::Error) {
                    continue;
                }
                let message = format!("unknown name {}", quote(&root));
                let mut problem = check.error("UNKNOWN_NAME", pointer, message);
                problem.span = name_span(check, pointer, text, &root, "");
                check.add(match nearest(&root, ROOTS) {
                    _ if root == SECRETS => {
                        problem.help("conditions cannot read secrets; only templates can insert them")
                    }
                    Some(near) => problem.help(format!("did you mean {}?", quote(near))),
                    None => {
                        problem.help("expressions can read `trigger`, `request`, `context`, `vars`, `spec` and `wait`")
                    }
                });
            } else if root == "context" {
                match (steps.next(), steps.next()) {
                    (Some(part), Some(node)) if part == "data" => self.node(check, pointer, text, &node),
                    (Some(part), _) => check_context_member(check, pointer, text, &part),
                    (None, _) => {}
                }
            } else if root == "wait"
                && let Some(name) = steps.next()
            {
                self.wait(check, pointer, text, &name);
            }
        }
    }

    /// `wait[name]`: only nodes with the action `core.wait` have a callback URL.
    fn wait(&self, check: &mut Check, pointer: &str, text: &str, name: &str) {
        let waits = || self.view.nodes.iter().filter(|node| node.is_wait()).map(|node| node.id);
        if waits().any(|id| id == name) || !check.room(Severity::Error) {
            return;
        }
        let message = format!("node {} does not wait for a callback", quote(name));
        let mut problem = check.error("NOT_A_WAIT", pointer, message);
        problem.span = name_span(check, pointer, text, name, "wait");
        check.add(match nearest(name, waits()) {
            Some(near) => problem.help(format!("did you mean {}?", quote(near))),
            None => problem.help("only nodes with the action `core.wait` have a callback URL"),
        });
    }

    /// `context.data[name]`.
    fn node(&self, check: &mut Check, pointer: &str, text: &str, name: &str) {
        let this = self.this();
        let Some(other) = self.view.by_id.get(name).copied() else {
            let severity = match self.certain {
                true => Severity::Error,
                false => Severity::Warning,
            };
            if !check.room(severity) {
                return;
            }
            let message = format!("node {} does not exist in this workflow", quote(name));
            let mut problem = check.error("UNKNOWN_NODE_REFERENCE", pointer, message);
            problem.severity = severity;
            problem.span = name_span(check, pointer, text, name, "data");
            return check.add(problem.did_you_mean(nearest(name, self.view.ids())));
        };
        let own = other == self.at;
        let precedes = self.upstream.is_none_or(|upstream| upstream.precedes(other, self.at));
        let there = if own { self.own_output } else { precedes };
        if !there && check.room(Severity::Warning) {
            let message = match own {
                true => format!("node {this} reads its own output, which does not exist before it has run"),
                false => format!(
                    "node {this} reads the output of node {}, which does not run before it: the output may not exist",
                    quote(name)
                ),
            };
            let mut problem = check.warning("NODE_NOT_UPSTREAM", pointer, message);
            problem.span = name_span(check, pointer, text, name, "data");
            check.add(problem);
        }
    }
}

fn check_context_member(check: &mut Check, pointer: &str, text: &str, part: &str) {
    if !IN_CONTEXT.contains(&part) && check.room(Severity::Warning) {
        let message = format!("`context` has no {}; it has `data`", quote(part));
        let mut problem = check.warning("UNKNOWN_NAME", pointer, message);
        problem.span = name_span(check, pointer, text, part, "context");
        let near = nearest(part, IN_CONTEXT);
        check.add(problem.did_you_mean(near));
    }
}

fn name_span(check: &Check, pointer: &str, text: &str, name: &str, owner: &str) -> Span {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    check.name_span(pointer, text, &Name { name, owner }, word)
}
