//! A plan with its expressions parsed, kept by (workflow, version).

use fermata_core::{Join, Kind, NodeIx, Plan};
use fermata_expr::{
    ReadPath, Segment, SyntaxKind,
    js::{Expression, scan_reads},
    template::{Options, ValueTemplate},
};
use serde_json::Value;
use std::sync::Arc;

/// A plan that is ready to run.
pub struct Compiled {
    /// The plan.
    pub plan: Arc<Plan>,
    pub(crate) nodes: Vec<CompiledNode>,
    pub(crate) trigger: Option<jsonschema::Validator>,
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
}

impl Condition {
    fn parse(source: &str) -> Result<Condition, fermata_expr::SyntaxError> {
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
        }
    }

    pub fn reads(&self) -> &[ReadPath] {
        match self {
            Condition::Native(expression) => expression.reads(),
            Condition::Sandboxed { reads, .. } => reads,
        }
    }
}

/// The nodes whose outputs an expression reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    These(Vec<NodeIx>),
    All,
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
        let compile_node = |node: &fermata_core::Node| {
            let fail = |what: String| CompileError {
                node: node.id.to_string(),
                what,
            };
            let expression = |source: &String| {
                let parsed =
                    Condition::parse(source).map_err(|error| fail(format!("`{source}`: {}", error.message)))?;
                let needs = needs(&plan, parsed.reads());
                Ok::<_, CompileError>((parsed, needs))
            };
            let parameters = match &node.kind {
                Kind::Wait { .. } => None,
                Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } => Some(parameters),
            };
            let parse = |value: &Value| {
                let parsed = ValueTemplate::parse(value, templates).map_err(|errors| {
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
        let trigger = plan.trigger_schema.as_ref().map(jsonschema::validator_for).transpose();
        let trigger = trigger.map_err(|error| CompileError {
            node: "triggerSchema".to_owned(),
            what: error.to_string(),
        })?;
        Ok(Compiled { plan, nodes, trigger })
    }
}

/// Which outputs paths such as `context.data['a'].x` lead into.
fn needs(plan: &Plan, reads: &[ReadPath]) -> Needs {
    let mut nodes = Vec::new();
    for read in reads {
        match read.segments.as_slice() {
            [Segment::Key(root), Segment::Key(data), Segment::Key(node), ..] if root == "context" && data == "data" => {
                nodes.extend(plan.find(node));
            }
            [Segment::Key(root), Segment::Key(data)] if root == "context" && data == "data" => return Needs::All,
            [Segment::Key(root)] if root == "context" => return Needs::All,
            _ => {}
        }
    }
    nodes.sort();
    nodes.dedup();
    Needs::These(nodes)
}
