//! Builds plans in code, for tests, simulations and benchmarks.

use super::{
    ContextPolicy, Edge, Entries, Form, GraphError, Join, Kind, Language, Node, NodeIx, OnFailure, Plan, Policies,
    Route, RunOutputs, Scope, StoredPlan, Templates, When, Words,
};
use crate::{AnswerRule, code};
use serde_json::Value;

/// Builds a plan node by node. Edges refer to their target by name; the target may be added later.
#[derive(Debug, Clone)]
pub struct PlanBuilder {
    parts: StoredPlan,
    edges: Vec<NamedEdge>,
}

/// An edge whose target may not have been added yet.
#[derive(Debug, Clone)]
struct NamedEdge {
    from: usize,
    target: String,
    when: When,
    condition: Option<String>,
    outcome: Option<String>,
}

impl PlanBuilder {
    /// An empty plan of the workflow `id`. Its expressions see nothing; a plan that has some sets its scope with
    /// [`PlanBuilder::plan`].
    pub fn new(id: &str) -> Self {
        let scope = Scope {
            names: Vec::new(),
            entries: Entries {
                succeeded: Form::WHOLE,
                answered: Form::WHOLE,
                failed: Form::Null,
                skipped: None,
            },
            words: Words::default(),
        };
        let parts = StoredPlan {
            workflow: id.to_owned(),
            display_name: id.to_owned(),
            dialect: "built".to_owned(),
            nodes: Vec::new(),
            on_failure: OnFailure::FailFast,
            timeout_ms: None,
            trigger_schema: None,
            trigger_defaults: None,
            context: ContextPolicy::default(),
            scope,
            language: Language::default(),
            templates: Templates::default(),
            outputs: RunOutputs::default(),
            triggers: Vec::new(),
            empty_schedule_payload: false,
            flow: None,
            tags: Vec::new(),
            searchable: Vec::new(),
        };
        PlanBuilder {
            parts,
            edges: Vec::new(),
        }
    }

    /// Adds a node that calls `action` without parameters.
    pub fn action(self, id: &str, action: &str) -> Self {
        self.action_with(id, action, Value::Object(serde_json::Map::new()))
    }

    /// Adds a node that calls `action`.
    pub fn action_with(self, id: &str, action: &str, parameters: Value) -> Self {
        let action = action.to_owned();
        self.node(id, Kind::Action { action, parameters })
    }

    /// Adds a node that sends a request with `action` and waits for an answer without a timeout.
    pub fn request(self, id: &str, action: &str, parameters: Value, answer: AnswerRule) -> Self {
        let kind = Kind::Request {
            action: action.to_owned(),
            parameters,
            answer,
            timeout_ms: None,
            retry_on_timeout: false,
            timeout_code: code::TIMEOUT.to_owned(),
        };
        self.node(id, kind)
    }

    /// Adds a node of any kind.
    pub fn node(mut self, id: &str, kind: Kind) -> Self {
        self.parts.nodes.push(Node {
            id: id.into(),
            kind,
            join: Join::Any,
            route: Route::Parallel,
            policies: Policies::default(),
            edges: Vec::new(),
            merges_into_state: false,
            title: None,
        });
        self
    }

    /// Adds an edge from the node added last.
    pub fn edge(mut self, target: &str, when: When, condition: Option<&str>) -> Self {
        self.edges.push(NamedEdge {
            from: self.parts.nodes.len().saturating_sub(1),
            target: target.to_owned(),
            when,
            condition: condition.map(str::to_owned),
            outcome: None,
        });
        self
    }

    /// Adds an edge for this outcome from the node added last.
    pub fn on(self, outcome: &str, target: &str) -> Self {
        let mut builder = self.then(target);
        if let Some(edge) = builder.edges.last_mut() {
            edge.outcome = Some(outcome.to_owned());
        }
        builder
    }

    /// Adds an edge for success from the node added last.
    pub fn then(self, target: &str) -> Self {
        self.edge(target, When::Success, None)
    }

    /// Changes the node added last.
    pub fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        if let Some(node) = self.parts.nodes.last_mut() {
            change(node);
        }
        self
    }

    /// Changes settings of the whole plan.
    pub fn plan(mut self, change: impl FnOnce(&mut StoredPlan)) -> Self {
        change(&mut self.parts);
        self
    }

    /// The finished plan.
    pub fn build(mut self) -> Result<Plan, GraphError> {
        for edge in self.edges {
            let at = self.parts.nodes.iter().position(|node| node.id.as_str() == edge.target);
            let target = NodeIx(at.map_or(u32::MAX, |at| at as u32));
            self.parts.nodes[edge.from].edges.push(Edge {
                target,
                when: edge.when,
                condition: edge.condition,
                outcome: edge.outcome,
            });
        }
        Plan::new(self.parts)
    }
}
