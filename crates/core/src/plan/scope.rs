//! What the expressions of a plan see, as data: a dialect says it, and the runner builds it without knowing the dialect.
//!
//! A scope names places (`context.data`, `tasks`, `state`) and says what stands at each. What is seen of a node is its
//! *entry*, an object or value made by a [`Form`]. How a node stands in one word is also the dialect's to say ([`Words`]).
//! A dialect that needs more gets a new [`Source`] or [`Form`]; those that are there never change their meaning.

use super::Kind;
use crate::{Failure, Outcome, Phase};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What expressions see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// What stands where. A path never continues another one.
    pub names: Vec<Name>,
    /// What is seen of a node.
    pub entries: Entries,
    /// How a node stands, in one word.
    pub words: Words,
}

/// A place that expressions can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    /// Its place: `["context", "data"]` is read as `context.data`.
    pub path: Vec<String>,
    /// What stands there.
    pub source: Source,
}

/// What can stand at a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The payload the run was started with.
    Trigger,
    /// The structured payload beside it; `null` where the run has none.
    Spec,
    /// The configured variables, as of the run's start.
    Vars,
    /// The addresses of callbacks: `<node>.url`.
    Waits,
    /// The entries of nodes, by their ids.
    Entries,
    /// The trigger, with the members of what each node gave written over it, in the order in which the nodes ended.
    State,
    /// Always this.
    Fixed(Value),
}

/// What is seen of a node, by how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entries {
    /// Of an action or sleep that succeeded.
    pub succeeded: Form,
    /// Of a wait that was answered. Its output is the payload of the callback.
    pub answered: Form,
    /// Of a node that failed.
    pub failed: Form,
    /// Of a node that was skipped; without it, there is no entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Form>,
}

/// How a value is made of what is known of a node. What is not there is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// The node's output, or what lies at this path of it. A failed attempt may have one too.
    Output(Vec<String>),
    /// The word for how it ended.
    Status,
    /// Its id.
    Node,
    /// The code of its failure.
    ErrorCode,
    /// What its failure says.
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
    /// Whether it is left out where it would be `null` or `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// How a node stands, in one word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Words {
    /// It was not reached yet.
    pub pending: String,
    /// An action is due or executes.
    pub running: String,
    /// A sleep is not over.
    pub sleeping: String,
    /// A wait was not answered.
    pub waiting: String,
    /// An action or sleep succeeded.
    pub succeeded: String,
    /// A wait was answered.
    pub answered: String,
    /// It failed,
    pub failed: String,
    /// unless its failure's code has a word of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_with: BTreeMap<String, String>,
    /// It was skipped.
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
            Phase::Open(_) => match kind {
                Kind::Action { .. } => &self.running,
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

    /// The word for a node of this kind that ended well.
    pub fn success(&self, kind: &Kind) -> &str {
        match kind {
            Kind::Wait { .. } => &self.answered,
            Kind::Action { .. } | Kind::Sleep { .. } => &self.succeeded,
        }
    }

    /// The word for a node that failed so.
    pub fn failure(&self, failure: &Failure) -> &str {
        self.failed_with.get(&failure.code).unwrap_or(&self.failed)
    }
}

impl Scope {
    /// The places where `source` stands.
    pub fn places<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a [String]> {
        let names = self.names.iter().filter(move |name| name.source == *source);
        names.map(|name| name.path.as_slice())
    }
}

impl Name {
    /// `source` stands at `path`, which is written with dots.
    pub fn new(path: &str, source: Source) -> Name {
        Name {
            path: path.split('.').map(str::to_owned).collect(),
            source,
        }
    }
}

impl Form {
    /// All of the node's output.
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

impl Default for Scope {
    /// `trigger`, `context.data.<node>`, `vars` and `spec`; the entry of a node is what it gave, or its error.
    fn default() -> Self {
        let error = Form::object([("code", Form::ErrorCode), ("message", Form::ErrorMessage)]);
        Scope {
            names: vec![
                Name::new("trigger", Source::Trigger),
                Name::new("context.data", Source::Entries),
                Name::new("vars", Source::Vars),
                Name::new("spec", Source::Spec),
            ],
            entries: Entries {
                succeeded: Form::WHOLE,
                answered: Form::WHOLE,
                failed: Form::object([("error", error), ("errorNode", Form::Node), ("status", Form::Status)]),
                skipped: None,
            },
            words: Words::default(),
        }
    }
}
