//! A plan with its expressions parsed, kept by (workflow, version).

use crate::trigger::TriggerSchema;
use fermata_core::{Join, Kind, Language, NodeIx, Plan, Scope};
use fermata_expr::{
    ReadPath, Segment, SyntaxKind,
    js::{Expression, scan_reads},
    paths::Comparison,
    template::{Options, Syntax, ValueTemplate},
};
use serde_json::Value;
use std::sync::Arc;

/// A plan that is ready to run.
pub struct Compiled {
    /// The plan.
    pub plan: Arc<Plan>,
    pub(crate) nodes: Vec<CompiledNode>,
    /// What its templates may do.
    pub(crate) templates: Options,
    pub(crate) trigger: Option<TriggerSchema>,
}

pub(crate) struct CompiledNode {
    pub parameters: Option<(ValueTemplate, Needs)>,
    pub guard: Option<(Condition, Needs)>,
    pub conditions: Vec<Option<(Condition, Needs)>>,
}

/// The names a condition sees.
const ROOTS: [&str; 4] = ["trigger", "context", "vars", "spec"];

/// A condition, and who evaluates it.
pub(crate) enum Condition {
    /// This process; the sandbox only if the data leads beyond what is covered.
    Native(Expression),
    /// The sandbox.
    Sandboxed { source: String, reads: Vec<ReadPath> },
    /// This process; it cannot go wrong.
    Comparison(Comparison),
}

impl Condition {
    fn parse(source: &str, language: Language) -> Result<Condition, fermata_expr::SyntaxError> {
        if language == Language::Paths {
            return Comparison::parse(source).map(Condition::Comparison);
        }
        match Expression::parse(source) {
            Ok(expression) => Ok(Condition::Native(expression)),
            Err(error) if error.kind == SyntaxKind::NotCovered => Ok(Condition::Sandboxed {
                source: source.to_owned(),
                reads: scan_reads(source, &ROOTS),
            }),
            Err(error) => Err(error),
        }
    }

    pub fn source(&self) -> &str {
        match self {
            Condition::Native(expression) => expression.source(),
            Condition::Sandboxed { source, .. } => source,
            Condition::Comparison(comparison) => comparison.source(),
        }
    }

    pub fn reads(&self) -> &[ReadPath] {
        match self {
            Condition::Native(expression) => expression.reads(),
            Condition::Sandboxed { reads, .. } => reads,
            Condition::Comparison(comparison) => comparison.reads(),
        }
    }
}

/// What an expression reads that is not in memory by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The nodes whose entries it reads.
    pub nodes: Nodes,
    /// Whether it reads the addresses of callbacks.
    pub waits: bool,
}

/// Some nodes of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Nodes {
    These(Vec<NodeIx>),
    All,
}

/// Where the entries of nodes stand in a scope.
pub(crate) fn entries_at(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Context => &["context", "data"],
        Scope::Tasks => &["tasks"],
    }
}

/// An expression that does not parse. Publishing checks them all, so this means a newer or damaged document.
#[derive(Debug, thiserror::Error)]
#[error("node `{node}`: {what}")]
pub struct CompileError {
    node: String,
    what: String,
}

impl Compiled {
    /// Parses every expression of `plan`.
    pub fn new(plan: Arc<Plan>, templates: &Options) -> Result<Compiled, CompileError> {
        let syntax = match plan.language {
            Language::Script => Syntax::Scriban,
            Language::Paths => Syntax::Paths,
        };
        let templates = Options {
            syntax,
            ..templates.clone()
        };
        let compile_node = |node: &fermata_core::Node| {
            let fail = |what: String| CompileError {
                node: node.id.to_string(),
                what,
            };
            let expression = |source: &String| {
                let parsed = Condition::parse(source, plan.language)
                    .map_err(|error| fail(format!("`{source}`: {}", error.message)))?;
                let needs = needs(&plan, parsed.reads());
                Ok::<_, CompileError>((parsed, needs))
            };
            let parameters = match &node.kind {
                Kind::Wait { .. } => None,
                Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } => Some(parameters),
            };
            let parse = |value: &Value| {
                let parsed = ValueTemplate::parse(value, &templates).map_err(|errors| {
                    let texts = errors
                        .iter()
                        .map(|(pointer, error)| format!("{pointer}: {}", error.message));
                    fail(texts.collect::<Vec<_>>().join("; "))
                })?;
                let needs = needs(&plan, parsed.reads());
                Ok::<_, CompileError>((parsed, needs))
            };
            let guard = match &node.join {
                Join::Guard(source) => Some(expression(source)?),
                Join::Any | Join::All => None,
            };
            let conditions = node
                .edges
                .iter()
                .map(|edge| edge.condition.as_ref().map(expression).transpose());
            Ok(CompiledNode {
                parameters: parameters.map(parse).transpose()?,
                guard,
                conditions: conditions.collect::<Result<_, CompileError>>()?,
            })
        };
        let nodes = plan
            .nodes
            .iter()
            .map(compile_node)
            .collect::<Result<_, CompileError>>()?;
        let trigger = plan.trigger_schema.as_ref().map(TriggerSchema::new).transpose();
        let trigger = trigger.map_err(|what| CompileError {
            node: "triggerSchema".to_owned(),
            what,
        })?;
        Ok(Compiled {
            plan,
            nodes,
            templates,
            trigger,
        })
    }
}

/// Which entries paths such as `context.data['a'].x` lead into, and whether some lead to the addresses of callbacks.
fn needs(plan: &Plan, reads: &[ReadPath]) -> Needs {
    let entries = entries_at(plan.scope);
    let mut nodes = Vec::new();
    let mut all = false;
    for read in reads {
        let mut shared = entries.iter().zip(&read.segments);
        if !shared.all(|(name, step)| step.to_string() == *name) {
            continue;
        }
        match read.segments.get(entries.len()) {
            Some(node) => nodes.extend(plan.find(&node.to_string())),
            None => all = true,
        }
    }
    nodes.sort();
    nodes.dedup();
    let is_wait = |read: &ReadPath| matches!(read.segments.first(), Some(Segment::Key(root)) if root == "wait");
    Needs {
        nodes: if all { Nodes::All } else { Nodes::These(nodes) },
        waits: plan.scope == Scope::Tasks && reads.iter().any(is_wait),
    }
}
