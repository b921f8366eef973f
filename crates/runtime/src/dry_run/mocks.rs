//! The mocks of a dry run: what nodes return, by their ids. They are checked against the plan before anything runs.
//!
//! | node | mock |
//! | --- | --- |
//! | an action, or a child run | `{"outputs": …}`, `{"error": {"code", "message", "retriable"?}, "outputs"?: …}` or `{"timeout": true}` |
//! | a wait | `{"callback": …}` or `{"timeout": true}` |
//! | a request | `{"callback": …}`, `{"timeout": true}`, or `{"error": …}`: the request cannot be sent |
//! | a sleep, a decision by conditions | none |
//!
//! A list has one mock for each attempt; the last one repeats.

use super::mocked::{Answer, Child};
use crate::actions::Registry;
use fermata_core::{Failure, Kind, Node, NodeId, Plan};
use fermata_expr::nearest;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

const MEMBERS: [&str; 4] = ["outputs", "error", "callback", "timeout"];
const MEMBERS_OF_ERRORS: [&str; 3] = ["code", "message", "retriable"];

/// The mock of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mock {
    Outputs(Value),
    /// It fails, with outputs if there are some.
    Error(Failure, Option<Value>),
    Callback(Value),
    Timeout,
}

/// The mocks of a dry run, and what they need to know of the plan.
#[derive(Debug, Default)]
pub(super) struct Mocks {
    by_node: HashMap<NodeId, Vec<Mock>>,
    /// Nodes that start child runs.
    pub children: HashMap<NodeId, Child>,
    /// Nodes whose action only sends the request that they wait for.
    pub requests: HashSet<NodeId>,
}

type Problems = Vec<(String, String)>;

impl Mocks {
    /// Reads the mocks.
    ///
    /// # Errors
    /// All problems: (JSON pointer into the mocks, what is wrong).
    pub fn read(mocks: &Value, plan: &Plan, registry: &Registry) -> Result<Mocks, Problems> {
        let starts = |action: &str| registry.get(action).is_some_and(|action| action.starts_children());
        let child = |node: &Node| Some((node.id.clone(), Child::of(node, &starts)?));
        let is_request = |node: &&Node| matches!(node.kind, Kind::Request { .. }) && !node.kind.awaits_children();
        let mut read = Mocks {
            by_node: HashMap::new(),
            children: plan.nodes.iter().filter_map(child).collect(),
            requests: plan
                .nodes
                .iter()
                .filter(is_request)
                .map(|node| node.id.clone())
                .collect(),
        };
        let none = Map::new();
        let members = match mocks {
            Value::Null => &none,
            Value::Object(members) => members,
            _ => {
                let message = "the mocks must be an object: the ids of nodes, and what they return";
                return Err(vec![(String::new(), message.to_owned())]);
            }
        };
        let mut problems = Problems::new();
        for (id, mock) in members {
            let at = pointer(id);
            let Some(ix) = plan.find(id) else {
                problems.push((at, unknown(id, plan.nodes.iter().map(|node| node.id.as_str()), "node")));
                continue;
            };
            let node = plan.node(ix);
            let list = match mock {
                Value::Array(list) if list.is_empty() => {
                    let message = format!("the list of node `{id}` is empty; give one mock for each attempt");
                    problems.push((at, message));
                    continue;
                }
                Value::Array(list) => list
                    .iter()
                    .enumerate()
                    .map(|(index, one)| (format!("{at}/{index}"), one))
                    .collect(),
                one => vec![(at, one)],
            };
            let mut read_list = Vec::new();
            for (at, one) in list {
                match read_one(node, &at, one) {
                    Ok(mock) => read_list.push(mock),
                    Err(problem) => problems.push(problem),
                }
            }
            read.by_node.insert(node.id.clone(), read_list);
        }
        match problems.is_empty() {
            true => Ok(read),
            false => Err(problems),
        }
    }

    /// Whether a node has a mock.
    pub fn has(&self, node: &NodeId) -> bool {
        self.by_node.contains_key(node)
    }

    /// The mock of an attempt.
    pub fn of(&self, node: &NodeId, attempt: u32) -> Option<&Mock> {
        let list = self.by_node.get(node)?;
        list.get(attempt.saturating_sub(1) as usize).or(list.last())
    }

    /// How a node that waits is answered.
    pub fn answer(&self, node: &NodeId, attempt: u32) -> Answer {
        match self.of(node, attempt) {
            Some(Mock::Callback(payload)) => Answer::Given(payload.clone()),
            Some(Mock::Timeout) => Answer::Timeout,
            // The mock of another attempt may be an error: this one was sent.
            Some(Mock::Error(..) | Mock::Outputs(_)) | None => Answer::Made,
        }
    }
}

/// The pointer to the mock of a node.
pub(super) fn pointer(id: &str) -> String {
    format!("/{}", id.replace('~', "~0").replace('/', "~1"))
}

/// What a mock of a node may have, and how the node is described.
fn allowed(node: &Node) -> (&'static [&'static str], String) {
    let action = node.kind.action_type();
    match &node.kind {
        Kind::Request { .. } if node.kind.awaits_children() => {
            (&["outputs", "error", "timeout"], "it runs another workflow".to_owned())
        }
        Kind::Action { .. } => (&["outputs", "error", "timeout"], format!("it calls {action}")),
        Kind::Wait { .. } => (&["callback", "timeout"], "it waits for a callback".to_owned()),
        Kind::Request { .. } => (
            &["callback", "error", "timeout"],
            "it sends a request and waits for the answer".to_owned(),
        ),
        Kind::Sleep { .. } => (&[], "it sleeps, which takes no real time".to_owned()),
        Kind::Pass => (&[], "its conditions decide".to_owned()),
    }
}

fn read_one(node: &Node, at: &str, mock: &Value) -> Result<Mock, (String, String)> {
    let id = &node.id;
    let problem = |at: String, message: String| Err((at, message));
    let (allowed, why) = allowed(node);
    if allowed.is_empty() {
        return problem(at.to_owned(), format!("node `{id}` takes no mock: {why}"));
    }
    let forms = match allowed {
        ["callback", ..] => "`{\"callback\": …}` or `{\"timeout\": true}`",
        _ => "`{\"outputs\": …}`, `{\"error\": {\"code\", \"message\"}}` or `{\"timeout\": true}`",
    };
    let Value::Object(members) = mock else {
        return problem(
            at.to_owned(),
            format!("the mock of node `{id}` must be an object such as {forms}"),
        );
    };
    for name in members.keys() {
        if !MEMBERS.contains(&name.as_str()) {
            let message = unknown(name, MEMBERS.into_iter(), "member of a mock");
            return problem(format!("{at}/{name}"), message);
        }
        let goes_with_error = name == "outputs" && members.contains_key("error");
        let is_allowed = allowed.contains(&name.as_str()) || (goes_with_error && allowed.contains(&"outputs"));
        if !is_allowed {
            let message = format!("node `{id}` cannot have `{name}`: {why}; use {forms}");
            return problem(format!("{at}/{name}"), message);
        }
    }
    let get = |name: &str| members.get(name);
    match (get("outputs"), get("error"), get("callback"), get("timeout")) {
        (outputs, Some(error), None, None) => match failure(error) {
            Ok(failure) => Ok(Mock::Error(failure, outputs.cloned())),
            Err(what) => problem(format!("{at}/error"), format!("the error of node `{id}` {what}")),
        },
        (Some(outputs), None, None, None) => {
            let is_list = node.kind.each().is_some() && outputs.is_array();
            match outputs.is_object() || is_list {
                true => Ok(Mock::Outputs(outputs.clone())),
                false => problem(
                    format!("{at}/outputs"),
                    format!("the outputs of node `{id}` must be an object"),
                ),
            }
        }
        (None, None, Some(callback), None) => Ok(Mock::Callback(callback.clone())),
        (None, None, None, Some(Value::Bool(true))) => Ok(Mock::Timeout),
        (None, None, None, Some(_)) => problem(format!("{at}/timeout"), "`timeout` must be true".to_owned()),
        _ => problem(
            at.to_owned(),
            format!("the mock of node `{id}` must have exactly one of these forms: {forms}"),
        ),
    }
}

fn failure(error: &Value) -> Result<Failure, String> {
    let Value::Object(members) = error else {
        return Err("must be an object with `code` and `message`".to_owned());
    };
    if let Some(name) = members.keys().find(|name| !MEMBERS_OF_ERRORS.contains(&name.as_str())) {
        return Err(format!(
            "is wrong: {}",
            unknown(name, MEMBERS_OF_ERRORS.into_iter(), "member of an error")
        ));
    }
    let text = |name: &str| match members.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(format!("has a `{name}` that is no text")),
        None => Err(format!("has no `{name}`")),
    };
    let retriable = match members.get("retriable") {
        None => true,
        Some(Value::Bool(retriable)) => *retriable,
        Some(_) => return Err("has a `retriable` that is not true or false".to_owned()),
    };
    Ok(Failure {
        retriable,
        ..Failure::permanent(text("code")?, text("message")?)
    })
}

/// The message about a name that does not exist, with the nearest one that does.
fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>, what: &str) -> String {
    let short: String = name.chars().take(60).collect();
    match nearest(name, known) {
        Some(near) => format!("there is no {what} `{short}`; did you mean `{near}`?"),
        None => format!("there is no {what} `{short}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::HttpSettings;
    use fermata_core::plan::PlanBuilder;
    use serde_json::json;

    fn plan() -> Plan {
        let mut stored = (*PlanBuilder::new("w")
            .action("charge", "http.request")
            .action("payment", "x")
            .action("pause", "core.delay")
            .build()
            .unwrap())
        .clone();
        stored.nodes[1].kind = Kind::Wait { timeout_ms: None };
        stored.nodes[2].kind = Kind::Sleep {
            action: "core.delay".to_owned(),
            parameters: json!({}),
            timeout_ms: None,
        };
        Plan::new(stored).unwrap()
    }

    fn read(mocks: &Value) -> Result<Mocks, Problems> {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        Mocks::read(mocks, &plan(), &registry)
    }

    #[test]
    fn wrong_mocks_are_named_with_their_place() {
        for (mocks, at, what) in [
            (json!([]), "", "must be an object"),
            (
                json!({ "chrage": { "outputs": {} } }),
                "/chrage",
                "did you mean `charge`?",
            ),
            (json!({ "charge": [] }), "/charge", "is empty"),
            (json!({ "charge": 1 }), "/charge", "must be an object such as"),
            (json!({ "charge": {} }), "/charge", "exactly one of these forms"),
            (
                json!({ "charge": { "output": {} } }),
                "/charge/output",
                "did you mean `outputs`?",
            ),
            (
                json!({ "charge": { "outputs": 7 } }),
                "/charge/outputs",
                "must be an object",
            ),
            (
                json!({ "charge": { "callback": {} } }),
                "/charge/callback",
                "it calls http.request",
            ),
            (
                json!({ "charge": { "timeout": false } }),
                "/charge/timeout",
                "must be true",
            ),
            (
                json!({ "charge": { "error": "x" } }),
                "/charge/error",
                "must be an object",
            ),
            (
                json!({ "charge": { "error": { "code": "X" } } }),
                "/charge/error",
                "has no `message`",
            ),
            (
                json!({ "charge": { "error": { "code": "X", "message": "x", "retryable": true } } }),
                "/charge/error",
                "did you mean `retriable`?",
            ),
            (
                json!({ "charge": [{ "timeout": true }, 1] }),
                "/charge/1",
                "must be an object such as",
            ),
            (
                json!({ "payment": { "outputs": {} } }),
                "/payment/outputs",
                "it waits for a callback",
            ),
            (
                json!({ "pause": { "outputs": {} } }),
                "/pause",
                "takes no mock: it sleeps",
            ),
        ] {
            let problems = read(&mocks).expect_err(&mocks.to_string());
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].0, at, "{mocks}");
            assert!(problems[0].1.contains(what), "{mocks}: {}", problems[0].1);
        }
        let two = json!({ "a": {}, "charge": {} });
        assert_eq!(read(&two).unwrap_err().len(), 2, "all problems at once");
    }

    #[test]
    fn last_mock_of_a_list_repeats() {
        let error = json!({ "error": { "code": "DOWN", "message": "down" }, "outputs": { "status": 503 } });
        let mocks = read(&json!({ "charge": [error, { "outputs": { "status": 200 } }] })).unwrap();
        let charge = NodeId::from("charge");
        let Some(Mock::Error(failure, Some(outputs))) = mocks.of(&charge, 1) else {
            panic!("an error with outputs");
        };
        assert!(failure.retriable && outputs["status"] == 503);
        for attempt in [2, 3, 9] {
            assert_eq!(
                mocks.of(&charge, attempt),
                Some(&Mock::Outputs(json!({ "status": 200 })))
            );
        }
        assert_eq!(mocks.of(&"payment".into(), 1), None);
    }
}
