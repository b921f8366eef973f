//! What replaces the outside world: actions, answers and child runs.

use super::{
    example::example,
    mocks::{Mock, Mocks},
};
use crate::{
    actions::{Action, ActionInfo, Call, Failed, Success},
    driver::{
        children::output_of_child,
        items::{checked_items, failed_item, item_failure, outputs_of_items},
    },
    error::EngineError,
};
use async_trait::async_trait;
use fermata_core::{AnswerRule, Each, Failure, Kind, Node, NodeId, OnItemFailure, Plan, RunId, StoredPlan, code};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The parameter with the list of a node that runs one child for each item.
const ITEMS: &str = "forEach";

/// How a node that waits is answered.
pub(super) enum Answer {
    Given(Value),
    Timeout,
    /// With an answer that its rule accepts.
    Made,
}

/// A node that starts child runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Child {
    awaits: bool,
    each: Option<Each>,
    merges: bool,
    timeout_code: String,
}

impl Child {
    /// How a node starts child runs, if it does.
    pub fn of(node: &Node, starts: &dyn Fn(&str) -> bool) -> Option<Child> {
        let timeout = match &node.kind {
            Kind::Request { timeout_code, .. } if node.kind.awaits_children() => Some(timeout_code.as_str()),
            Kind::Action { action, .. } if starts(action) => None,
            _ => return None,
        };
        Some(Child {
            awaits: timeout.is_some(),
            each: node.kind.each().cloned(),
            merges: node.merges_into_state,
            timeout_code: timeout.unwrap_or(code::TIMEOUT).to_owned(),
        })
    }

    /// The output of the node when its children end like this.
    fn result(&self, call: &Call, items: Option<Value>, mock: Option<&Mock>) -> Result<Value, Failure> {
        let no_run = RunId(Uuid::nil());
        if let Some(Mock::Timeout) = mock {
            let message = "the child run did not end in time";
            return Err(Failure::permanent(self.timeout_code.clone(), message));
        }
        let failure = match mock {
            Some(Mock::Error(failure, _)) => Some(failure),
            _ => None,
        };
        let outputs = match mock {
            Some(Mock::Outputs(outputs)) => outputs.clone(),
            _ => json!({}),
        };
        let Some(each) = &self.each else {
            return match failure {
                Some(failure) => Err(failure.clone()),
                None if self.awaits => Ok(output_of_child(no_run, outputs, self.merges)),
                None => Ok(json!({ "executionId": no_run.to_string() })),
            };
        };
        let count = checked_items(each.max_items, items.unwrap_or_default())?.len();
        let output = |item: usize| match (failure, &outputs) {
            (Some(failure), _) => failed_item(&failure.code, &failure.message, None),
            (None, Value::Array(list)) => list.get(item).cloned().unwrap_or_else(|| json!({})),
            (None, all) => all.clone(),
        };
        if let (Some(failure), OnItemFailure::Fail, true) = (failure, each.on_item_failure, count > 0) {
            return Err(item_failure(0, failure));
        }
        let failed = if failure.is_some() { count } else { 0 };
        let outputs = (0..count).map(output).collect();
        Ok(outputs_of_items(
            call.node.as_str(),
            outputs,
            failed as u32,
            self.merges,
        ))
    }
}

/// The plan of a dry run: nodes that wait for child runs are actions, and there are no triggers and no flow control.
pub(super) fn plan(plan: &Plan) -> Result<Plan, EngineError> {
    let mut stored = StoredPlan::clone(plan);
    stored.triggers.clear();
    stored.flow = None;
    for node in stored.nodes.iter_mut().filter(|node| node.kind.awaits_children()) {
        let each = node.kind.each().map(|each| Value::String(each.items.clone()));
        let Kind::Request { action, parameters, .. } = &mut node.kind else {
            continue;
        };
        let mut parameters = std::mem::take(parameters);
        if let (Value::Object(members), Some(items)) = (&mut parameters, each) {
            members.insert(ITEMS.to_owned(), items);
        }
        node.kind = Kind::Action {
            action: std::mem::take(action),
            parameters,
        };
    }
    Plan::new(stored).map_err(|error| EngineError::Unusable {
        workflow: plan.workflow.clone(),
        version: 0,
        what: error.to_string(),
    })
}

/// An answer that the rule of a node accepts. `fields` is the schema of the fields of an approval.
pub(super) fn answer(plan: &Plan, node: &NodeId, fields: Option<&Value>) -> Value {
    let kind = plan.find(node.as_str()).map(|ix| &plan.node(ix).kind);
    let Some(Kind::Request { answer, .. }) = kind else {
        return json!({});
    };
    match answer {
        AnswerRule::State => json!({ "state": {} }),
        AnswerRule::Outcome { outcomes } => json!({ "outcome": outcomes.first() }),
        AnswerRule::Approval { outcomes } => {
            let outcome = outcomes.first().map(|first| ("outcome".to_owned(), json!(first)));
            let fields = fields.map(|schema| ("fields".to_owned(), example(schema)));
            Value::Object(outcome.into_iter().chain(fields).collect())
        }
        AnswerRule::Any | AnswerRule::Child | AnswerRule::Children(_) => json!({}),
    }
}

/// Replaces an action.
pub(super) fn action(action: Arc<dyn Action>, mocks: Arc<Mocks>) -> Arc<dyn Action> {
    Arc::new(Mocked { action, mocks })
}

/// An action that is called only if it has no effects and its node has no mock.
struct Mocked {
    action: Arc<dyn Action>,
    mocks: Arc<Mocks>,
}

impl Mocked {
    /// Given outputs, with the members that real outputs always have.
    fn complete(&self, given: &Value) -> Value {
        let mut outputs = given.clone();
        if let (Value::Object(given), Value::Object(made)) = (&mut outputs, self.made()) {
            for (name, value) in made {
                given.entry(name).or_insert(value);
            }
        }
        outputs
    }

    fn made(&self) -> Value {
        match example(&self.action.info().output_schema) {
            Value::Object(outputs) => Value::Object(outputs),
            _ => json!({}),
        }
    }
}

#[async_trait]
impl Action for Mocked {
    fn info(&self) -> &ActionInfo {
        self.action.info()
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        self.action.reads_state(parameters)
    }

    fn takes_secrets(&self) -> bool {
        self.action.takes_secrets()
    }

    fn has_effects(&self) -> bool {
        self.action.has_effects()
    }

    async fn run(&self, mut parameters: Value, call: Call) -> Result<Success, Failed> {
        let mock = self.mocks.of(&call.node, call.attempt);
        let child = self.mocks.children.get(&call.node);
        let items = child.and_then(|_| parameters.as_object_mut()?.remove(ITEMS));
        self.action.check(&parameters)?;
        if let Some(child) = child {
            return Ok(child.result(&call, items, mock)?.into());
        }
        let is_request = self.mocks.requests.contains(&call.node);
        match mock {
            Some(Mock::Error(failure, outputs)) => Err(Failed {
                failure: failure.clone(),
                outputs: outputs.as_ref().map(|given| self.complete(given)),
            }),
            Some(Mock::Outputs(outputs)) => Ok(self.complete(outputs).into()),
            Some(Mock::Timeout) if !is_request => {
                Err(Failure::retriable(code::TIMEOUT, "the attempt took longer than its time limit").into())
            }
            _ if !self.action.has_effects() => self.action.run(parameters, call).await,
            _ if is_request => Ok(json!({}).into()),
            _ => Ok(self.made().into()),
        }
    }
}
