//! A plan with its expressions parsed, kept by (workflow, version).
//!
//! What must stay true: the meaning of an expression depends on the plan only. Settings bound only the cost of evaluating it.

use crate::{entry::skipped, flow::FlowKeys, metrics::WorkflowMetrics, trigger::TriggerSchema};
use fermata_core::{
    Join, Kind, Language, Node, NodeIx, Plan,
    plan::{Source, Takes},
};
use fermata_expr::{
    ReadPath, SandboxLanguage, SyntaxKind,
    js::{Expression, scan_reads},
    logic::Logic,
    paths::Comparison,
    template::{Options, Place, Syntax, ValueTemplate},
};
use serde_json::Value;
use std::sync::Arc;

/// A plan that is ready to run.
pub struct Compiled {
    /// The plan.
    pub plan: Arc<Plan>,
    pub(crate) nodes: Vec<CompiledNode>,
    /// What its templates may do, and the limits of rendering them.
    pub(crate) templates: Options,
    pub(crate) trigger: Option<TriggerSchema>,
    /// The keys of its flow control.
    pub(crate) flow: FlowKeys,
    /// The counters of its workflow.
    pub(crate) metrics: Arc<WorkflowMetrics>,
}

pub(crate) struct CompiledNode {
    pub parameters: Option<(ValueTemplate, Needs)>,
    /// The list of a node that runs one child for each item.
    pub items: Option<(ValueTemplate, Needs)>,
    pub guard: Option<(Condition, Needs)>,
    pub conditions: Vec<Option<(Condition, Needs)>>,
    /// The entry of the node if it is skipped.
    pub skipped: Option<Value>,
}

/// A condition, by where it is evaluated.
pub(crate) enum Condition {
    /// In this process; in the sandbox only if the data needs more than the native subset.
    Native(Expression),
    /// In the sandbox.
    Sandboxed { source: String, reads: Vec<ReadPath> },
    /// In this process; it cannot fail.
    Comparison(Comparison),
    /// In this process or in the sandbox, as it says.
    Logic(Logic),
}

impl Condition {
    fn parse(source: &str, plan: &Plan) -> Result<Condition, String> {
        match plan.language {
            Language::Script => Condition::script(source, plan).map_err(|error| error.message),
            Language::Paths => {
                let parsed = Comparison::parse(source).map_err(|error| error.message)?;
                Ok(Condition::Comparison(parsed))
            }
            Language::Logic => Logic::parse(source).map(Condition::Logic),
        }
    }

    fn script(source: &str, plan: &Plan) -> Result<Condition, fermata_expr::SyntaxError> {
        match Expression::parse(source) {
            Ok(expression) => Ok(Condition::Native(expression)),
            Err(error) if error.kind == SyntaxKind::NotCovered => Ok(Condition::Sandboxed {
                source: source.to_owned(),
                reads: scan_reads(source, &roots(plan)),
            }),
            Err(error) => Err(error),
        }
    }

    pub fn source(&self) -> &str {
        match self {
            Condition::Native(expression) => expression.source(),
            Condition::Sandboxed { source, .. } => source,
            Condition::Comparison(comparison) => comparison.source(),
            Condition::Logic(logic) => logic.source(),
        }
    }

    /// The language in which the sandbox evaluates it.
    pub fn sandbox_language(&self) -> SandboxLanguage {
        match self {
            Condition::Logic(logic) => logic.language().into(),
            Condition::Native(_) | Condition::Sandboxed { .. } | Condition::Comparison(_) => SandboxLanguage::Js,
        }
    }

    pub fn reads(&self) -> &[ReadPath] {
        match self {
            Condition::Native(expression) => expression.reads(),
            Condition::Sandboxed { reads, .. } => reads,
            Condition::Comparison(comparison) => comparison.reads(),
            Condition::Logic(logic) => logic.reads(),
        }
    }
}

/// What an expression reads that may have to be fetched from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The nodes whose entries it reads.
    pub nodes: Nodes,
    /// The members of the state that it reads.
    pub state: Members,
    /// Whether it reads callback URLs.
    pub waits: bool,
}

impl Needs {
    /// The whole state.
    pub const STATE: Needs = Needs {
        nodes: Nodes::These(Vec::new()),
        state: Members::All,
        waits: false,
    };
}

/// Some members of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Members {
    These(Vec<String>),
    All,
}

impl Members {
    pub fn is_none(&self) -> bool {
        matches!(self, Members::These(names) if names.is_empty())
    }
}

/// Some nodes of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Nodes {
    These(Vec<NodeIx>),
    All,
}

/// The root names that the expressions of a plan see.
fn roots(plan: &Plan) -> Vec<&str> {
    let names = plan.scope.names.iter();
    names.filter_map(|name| name.path.first().map(String::as_str)).collect()
}

/// An expression that does not parse. Publishing checks them all, so this means a damaged plan.
#[derive(Debug, thiserror::Error)]
#[error("node `{node}`: {what}")]
pub struct CompileError {
    node: String,
    what: String,
}

impl Compiled {
    /// Parses every expression of `plan`. Only the time and size limits of `limits` are used.
    pub(crate) fn new(
        plan: Arc<Plan>,
        limits: &Options,
        metrics: Arc<WorkflowMetrics>,
    ) -> Result<Compiled, CompileError> {
        let syntax = match plan.language {
            Language::Script | Language::Logic => Syntax::Scriban,
            Language::Paths => Syntax::Paths,
        };
        let templates = Options {
            syntax,
            strict: plan.templates.strict,
            null_text: plan.templates.null_text.clone(),
            loops: plan.templates.loops,
            functions: plan.templates.functions,
            secrets: !plan.templates.secrets.is_empty(),
            timeout: limits.timeout,
            max_output_bytes: limits.max_output_bytes,
        };
        let compile_node = |ix: NodeIx| {
            let node = plan.node(ix);
            let fail = |what: String| CompileError {
                node: node.id.to_string(),
                what,
            };
            let expression = |source: &String| {
                let parsed = Condition::parse(source, &plan).map_err(|error| fail(format!("`{source}`: {error}")))?;
                let needs = needs(&plan, parsed.reads());
                Ok::<_, CompileError>((parsed, needs))
            };
            let parameters = match &node.kind {
                Kind::Wait { .. } | Kind::Pass => None,
                Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } | Kind::Request { parameters, .. } => {
                    Some(parameters)
                }
            };
            let items = node.kind.each().map(|each| Value::String(each.items.clone()));
            let parse = |value: &Value| {
                let parsed = ValueTemplate::parse_at(value, &templates, &places(&plan, node)).map_err(|errors| {
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
                items: items.as_ref().map(parse).transpose()?,
                guard,
                conditions: conditions.collect::<Result<_, CompileError>>()?,
                skipped: skipped(&plan, ix),
            })
        };
        let nodes = plan.indices().map(compile_node).collect::<Result<_, CompileError>>()?;
        let trigger = plan.trigger_schema.as_ref().map(TriggerSchema::new).transpose();
        let trigger = trigger.map_err(|what| CompileError {
            node: "triggerSchema".to_owned(),
            what,
        })?;
        let flow = FlowKeys::new(plan.flow.as_ref(), &templates).map_err(|what| CompileError {
            node: "flow control".to_owned(),
            what,
        })?;
        Ok(Compiled {
            plan,
            nodes,
            flow,
            templates,
            trigger,
            metrics,
        })
    }
}

/// The parameters of a node that accept only some values.
fn places<'p>(plan: &'p Plan, node: &Node) -> Vec<(&'p str, Place)> {
    let of_action = plan
        .templates
        .places
        .iter()
        .filter(|place| place.action == node.kind.action_type());
    let place = |place: &'p fermata_core::plan::Place| {
        let takes = match place.takes {
            Takes::Text => Place::Text,
            Takes::Url => Place::Url,
        };
        (place.parameter.as_str(), takes)
    };
    of_action.map(place).collect()
}

/// The entries that paths such as `context.data['a'].x` read, and whether some read callback URLs.
fn needs(plan: &Plan, reads: &[ReadPath]) -> Needs {
    let mut nodes = Vec::new();
    let mut all = false;
    for place in plan.scope.places(&Source::Entries) {
        for read in reads.iter().filter(|read| leads_to(place, read)) {
            match read.segments.get(place.len()) {
                Some(node) => nodes.extend(plan.find(&node.to_string())),
                None => all = true,
            }
        }
    }
    nodes.sort();
    nodes.dedup();
    let (mut members, mut whole_state) = (Vec::new(), false);
    for place in plan.scope.places(&Source::State) {
        for read in reads.iter().filter(|read| leads_to(place, read)) {
            match read.segments.get(place.len()) {
                Some(member) => members.push(member.to_string()),
                None => whole_state = true,
            }
        }
    }
    members.sort();
    members.dedup();
    Needs {
        state: if whole_state {
            Members::All
        } else {
            Members::These(members)
        },
        nodes: if all { Nodes::All } else { Nodes::These(nodes) },
        waits: reads_any(plan, &Source::Waits, reads),
    }
}

fn reads_any(plan: &Plan, source: &Source, reads: &[ReadPath]) -> bool {
    let mut places = plan.scope.places(source);
    places.any(|place| reads.iter().any(|read| leads_to(place, read)))
}

/// Whether a read path leads to a place, below it, or to an ancestor of it.
fn leads_to(place: &[String], read: &ReadPath) -> bool {
    let mut shared = place.iter().zip(&read.segments);
    shared.all(|(name, step)| step.to_string() == *name)
}
