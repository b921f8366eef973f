//! The scope of expressions as data: a dialect defines it, and the runner builds it without knowing the dialect.
//!
//! A scope maps names (`context.data`, `tasks`, `state`) to sources of values. A node appears in it as its *entry*, a value
//! described by a [`Form`]. The dialect also defines the words for the status of a node ([`Words`]). If a dialect needs
//! more, a new [`Source`] or [`Form`] is added; the meaning of the existing ones never changes.

use super::Kind;
use crate::{Failure, Outcome, Phase};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The values that expressions can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// The names and their sources. No path is a prefix of another one.
    pub names: Vec<Name>,
    /// The entries of nodes.
    pub entries: Entries,
    /// The words for the status of a node.
    pub words: Words,
}

/// A name that expressions can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    /// The path: `["context", "data"]` is read as `context.data`.
    pub path: Vec<String>,
    /// The source of the value.
    pub source: Source,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The trigger payload of the run.
    Trigger,
    /// The `spec` payload of the run; `null` if it has none.
    Spec,
    /// The request or event that started the run: method, headers and query, or the attributes of the event. Empty if no
    /// trigger started it.
    Request,
    /// The headers of that request; empty without one.
    RequestHeaders,
    /// The configured variables, as of the start of the run.
    Vars,
    /// The callback URLs of waits: `<node>.url`.
    Waits,
    /// The entries of nodes, by their ids.
    Entries,
    /// The state of the run: the trigger, overwritten with the members of the outputs of the nodes that merge into the
    /// state ([`super::Node::merges_into_state`]), in the order in which they ended.
    State,
    /// A constant.
    Fixed(Value),
}

/// The entry of a node, depending on how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entries {
    /// The entry of an action or sleep that succeeded.
    pub succeeded: Form,
    /// The entry of a wait that was answered. Its output is the payload of the callback.
    pub answered: Form,
    /// The entry of a node that failed.
    pub failed: Form,
    /// The entry of a node that was skipped. Without it, a skipped node has no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Form>,
}

/// How a value is built from the state of a node. Missing values are `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// The output of the node, or the value at this path in it. A failed attempt may have an output as well.
    Output(Vec<String>),
    /// The word for its status.
    Status,
    /// Its id.
    Node,
    /// The code of its failure.
    ErrorCode,
    /// The message of its failure.
    ErrorMessage,
    /// `null`.
    Null,
    /// An object with these members, in this order.
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its value.
    pub form: Form,
    /// Whether it is omitted if it is `null` or `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The words for the status of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Words {
    /// The node is not open yet.
    pub pending: String,
    /// An action is due or running.
    pub running: String,
    /// A sleep has not ended.
    pub sleeping: String,
    /// A wait or a request was not answered yet.
    pub waiting: String,
    /// An action or sleep succeeded.
    pub succeeded: String,
    /// A wait was answered.
    pub answered: String,
    /// The node failed.
    pub failed: String,
    /// Words for failures with certain codes, instead of `failed`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_with: BTreeMap<String, String>,
    /// The node was skipped.
    pub skipped: String,
}

impl Default for Words {
    fn default() -> Self {
        let word = str::to_owned;
        Words {
            pending: word("pending"),
            running: word("running"),
            sleeping: word("sleeping"),
            waiting: word("waiting"),
            succeeded: word("succeeded"),
            answered: word("succeeded"),
            failed: word("failed"),
            failed_with: BTreeMap::new(),
            skipped: word("skipped"),
        }
    }
}

impl Words {
    /// The word for a node of this kind in this phase.
    pub fn of(&self, kind: &Kind, phase: &Phase) -> &str {
        match phase {
            Phase::Idle => &self.pending,
            Phase::Open(open) => match kind {
                Kind::Request { .. } if open.requested => &self.waiting,
                Kind::Action { .. } | Kind::Request { .. } | Kind::Pass => &self.running,
                Kind::Sleep { .. } => &self.sleeping,
                Kind::Wait { .. } => &self.waiting,
            },
            Phase::Finished { outcome, .. } => match outcome {
                Outcome::Succeeded(_) => self.success(kind),
                Outcome::Failed(failure) => self.failure(failure),
            },
            Phase::Skipped => &self.skipped,
        }
    }

    /// The word for a node of this kind that succeeded.
    pub fn success(&self, kind: &Kind) -> &str {
        match kind {
            Kind::Wait { .. } => &self.answered,
            Kind::Action { .. } | Kind::Sleep { .. } | Kind::Request { .. } | Kind::Pass => &self.succeeded,
        }
    }

    /// The word for a node with this failure.
    pub fn failure(&self, failure: &Failure) -> &str {
        self.failed_with.get(&failure.code).unwrap_or(&self.failed)
    }
}

impl Scope {
    /// The paths at which `source` can be read.
    pub fn places<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a [String]> {
        let names = self.names.iter().filter(move |name| name.source == *source);
        names.map(|name| name.path.as_slice())
    }
}

impl Name {
    /// A name with a path in dot notation.
    pub fn new(path: &str, source: Source) -> Name {
        Name {
            path: path.split('.').map(str::to_owned).collect(),
            source,
        }
    }
}

impl Form {
    /// The whole output of the node.
    pub const WHOLE: Form = Form::Output(Vec::new());

    /// One member of the node's output.
    pub fn output(member: &str) -> Form {
        Form::Output(vec![member.to_owned()])
    }

    /// An object with these members, none of them optional.
    pub fn object<const N: usize>(members: [(&str, Form); N]) -> Form {
        let member = |(name, form): (&str, Form)| Member {
            name: name.to_owned(),
            form,
            optional: false,
        };
        Form::Object(members.into_iter().map(member).collect())
    }
}
