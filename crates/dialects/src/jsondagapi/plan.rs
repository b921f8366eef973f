//! Builds the plan of a document without errors.
//!
//! Nodes have the order of the document, and the edges of a node that of the list of edges. Expressions read the state.

use super::decisions::{Decider, decider};
use super::view::{Edge, Node, NodeType, View};
use super::{inputs, policies};
use crate::check::text;
use crate::child::Child;
use crate::compile::Settings;
use crate::triggers::declared;
use crate::{flow, for_each, labels};
use fermata_core::plan::{Entries, Form, GraphError, Name, Scope, Source, StoredPlan, Words};
use fermata_core::{AnswerRule, Join, Kind, Language, NodeIx, OnFailure, Plan, Policies, Route, When, code};
use fermata_expr::logic::{LogicLanguage, encode};
use serde_json::{Map, Value, json};

/// The actions that nodes compile to.
const CALLBACK: &str = "callback";
const EVENT: &str = "event";
const HTTP: &str = "http.task";

/// The action of an executor.
pub(super) fn action_of(executor: &str) -> &'static str {
    match executor {
        "http" => HTTP,
        "event" => EVENT,
        _ => CALLBACK,
    }
}

pub(super) fn build(view: &View, document: &Value, settings: &Settings) -> Result<Plan, GraphError> {
    let owned = |key: &str| text(document, key).unwrap_or_default().to_owned();
    Plan::new(StoredPlan {
        workflow: owned("workflow_id"),
        display_name: owned("name"),
        dialect: "jsondagapi".to_owned(),
        nodes: view
            .nodes
            .iter()
            .map(|node| build_node(view, node, document, settings))
            .collect(),
        on_failure: OnFailure::FailFast,
        timeout_ms: Some(policies::run_timeout_ms(document)),
        trigger_schema: inputs::schema(document),
        trigger_defaults: inputs::defaults(document),
        context: settings.context.clone(),
        scope: scope(),
        language: Language::Logic,
        templates: settings.template_rules(),
        outputs: inputs::outputs(document),
        triggers: declared(document),
        empty_schedule_payload: false,
        flow: flow::control(document),
        tags: labels::list(document, "tags"),
        searchable: labels::list(document, "searchable"),
    })
}

/// Expressions see the members of the state, and the request that started the run.
fn scope() -> Scope {
    Scope {
        names: vec![
            // A member of the state with this name hides it.
            Name::new("request", Source::Request),
            Name {
                path: Vec::new(),
                source: Source::State,
            },
        ],
        entries: Entries {
            succeeded: Form::WHOLE,
            answered: Form::WHOLE,
            failed: Form::Null,
            skipped: None,
        },
        words: Words::default(),
    }
}

fn build_node(view: &View, node: &Node, document: &Value, settings: &Settings) -> fermata_core::Node {
    let edges: Vec<&Edge> = node.edges.iter().map(|at| &view.edges[*at]).collect();
    let kind = node.kind.unwrap_or(NodeType::Task);
    let decider = (kind == NodeType::Decision).then(|| decider(&edges));
    let condition = match &decider {
        Some(Decider::Request(condition)) => *condition,
        _ => None,
    };
    let set = policies::of_node(document, node, condition, settings.policies.retry);
    let by_outcome = matches!(decider, Some(Decider::Request(_)));
    let (kind, route) = match (kind, &decider) {
        (_, Some(Decider::Expressions)) => (Kind::Pass, Route::ExactlyOne),
        (_, Some(Decider::Request(_))) => {
            let outcomes = edges.iter().map(|edge| edge.outcome().to_owned()).collect();
            let request = request(node, condition, AnswerRule::Outcome { outcomes }, set.timeout_ms);
            (request, Route::Outcome)
        }
        (NodeType::Subgraph, None) => (subgraph(node, set.timeout_ms, settings), Route::Parallel),
        (_, None) => (work(node, set.timeout_ms), Route::Parallel),
    };
    // The time limit of a request is the time for its answer; sending it has the default limit.
    let limits_action = matches!(kind, Kind::Action { .. });
    fermata_core::Node {
        id: node.id.into(),
        join: Join::Any,
        route,
        policies: Policies {
            timeout_ms: set
                .timeout_ms
                .filter(|_| limits_action)
                .unwrap_or(settings.policies.timeout_ms),
            retry: set.retry,
            rerender_on_retry: false,
        },
        edges: edges.iter().map(|edge| build_edge(view, edge, by_outcome)).collect(),
        merges_into_state: !matches!(node.kind, Some(NodeType::Decision)),
        title: text(node.value, "name").map(str::to_owned),
        kind,
    }
}

fn build_edge(view: &View, edge: &Edge, by_outcome: bool) -> fermata_core::Edge {
    let at = view.by_id.get(edge.to).map_or(u32::MAX, |at| *at as u32);
    let expression = edge.condition().filter(|_| !by_outcome).and_then(|condition| {
        let language = LogicLanguage::find(text(condition, "language")?)?;
        Some(encode(language, condition.get("expression")?))
    });
    fermata_core::Edge {
        target: NodeIx(at),
        when: When::Success,
        condition: expression,
        outcome: by_outcome.then(|| edge.outcome().to_owned()),
    }
}

/// A task or a tool.
fn work(node: &Node, timeout_ms: Option<u64>) -> Kind {
    let awaits = node.config().and_then(|config| config.get("await")) == Some(&Value::Bool(true));
    match node.executor() {
        Some("http") => Kind::Action {
            action: HTTP.to_owned(),
            parameters: parameters(node, None),
        },
        Some("event") if !awaits => Kind::Action {
            action: EVENT.to_owned(),
            parameters: parameters(node, None),
        },
        Some(_) | None => request(node, None, AnswerRule::State, timeout_ms),
    }
}

/// A request whose answer is awaited.
fn request(node: &Node, condition: Option<&Value>, answer: AnswerRule, timeout_ms: Option<u64>) -> Kind {
    let decides = matches!(answer, AnswerRule::Outcome { .. });
    Kind::Request {
        action: match node.executor() {
            Some("event") => EVENT.to_owned(),
            _ => CALLBACK.to_owned(),
        },
        parameters: parameters(node, condition),
        answer,
        timeout_ms,
        retry_on_timeout: !decides,
        timeout_code: match decides {
            true => code::DECISION_TIMEOUT.to_owned(),
            false => code::TIMEOUT.to_owned(),
        },
    }
}

/// The config without the policies, which are part of the plan. Members of the condition replace those of the executor. The
/// action adds the ids and the state.
fn parameters(node: &Node, condition: Option<&Value>) -> Value {
    let mut parameters = Map::new();
    for config in [node.config(), condition].into_iter().flatten() {
        // Where the request goes is one choice.
        if config.get("url").is_some() || config.get("callback_id").is_some() {
            parameters.retain(|name, _| name != "url" && name != "callback_id");
        }
        let members = config.as_object().into_iter().flatten();
        let kept =
            members.filter(|(name, _)| !["timeout_seconds", "retry_policy", "mode", "await"].contains(&name.as_str()));
        parameters.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    }
    // A callback may be shown to people.
    for (name, from) in [("title", "name"), ("description", "description")] {
        if node.executor() == Some("callback")
            && let Some(shown) = text(node.value, from)
        {
            parameters.entry(name).or_insert_with(|| json!(shown));
        }
    }
    Value::Object(parameters)
}

/// A child run. It starts with the state of this run, and what it changes is merged back. With `forEach`, the outputs of the
/// children are one member of the state.
fn subgraph(node: &Node, timeout_ms: Option<u64>, settings: &Settings) -> Kind {
    let reference = text(node.value, "subgraph_ref").unwrap_or_default();
    let (workflow, version) = match reference.split_once('@') {
        Some((workflow, version)) => (workflow, Some(json!(version))),
        None => (reference, None),
    };
    let child = Child {
        workflow,
        version,
        trigger: None,
        each: for_each::each(node.value, settings),
    };
    child.awaited(timeout_ms)
}
