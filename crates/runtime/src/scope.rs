//! What expressions see of a run, and evaluating them. Has no effects.
//!
//! An expression sees the context as of a place in the completion order, never as it happens to be: so a
//! repetition after a crash renders the same bytes and reads the same values.

use crate::{
    compiled::{Condition, Needs},
    sandbox::Sandbox,
};
use fermata_core::{Failure, NodeIx, Phase, Run, Verdict, code};
use fermata_expr::{
    Data, DataRef, EvalErrorKind, Limits, ReadPath, Segment,
    template::{Options, ValueTemplate},
};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};

/// The texts a run's expressions can see.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    pub trigger: Value,
    pub spec: Option<Value>,
    /// Entries of `context.data`, of those nodes that were needed so far or ended here.
    pub entries: BTreeMap<NodeIx, Arc<Value>>,
}

impl Payloads {
    /// `spec` is also visible as `trigger.spec`, unless the trigger has a `spec` of its own.
    pub fn new(mut trigger: Value, spec: Option<Value>) -> Self {
        if let (Value::Object(map), Some(spec)) = (&mut trigger, &spec) {
            map.entry("spec").or_insert_with(|| spec.clone());
        }
        Payloads {
            trigger,
            spec,
            entries: BTreeMap::new(),
        }
    }

    /// The nodes that an expression needs, that ended before `sees`, and whose entries are not here.
    pub fn missing(&self, run: &Run, needs: &Needs, sees: u32) -> Vec<NodeIx> {
        let visible = &run.completed()[..(sees as usize).min(run.completed().len())];
        let absent = |ix: &NodeIx| !self.entries.contains_key(ix);
        match needs {
            Needs::All => visible.iter().copied().filter(absent).collect(),
            Needs::These(nodes) => nodes
                .iter()
                .copied()
                .filter(|ix| order(run, *ix) < sees && absent(ix))
                .collect(),
        }
    }

    fn scope<'a>(&'a self, run: &'a Run, needs: &Needs, sees: u32) -> Data<'a> {
        let visible = |ix: NodeIx| {
            let entry = self.entries.get(&ix).filter(|_| order(run, ix) < sees)?;
            Some((run.plan().node(ix).id.as_str(), Data::Json(entry)))
        };
        let data = match needs {
            Needs::All => run.completed().iter().copied().filter_map(visible).collect(),
            Needs::These(nodes) => nodes.iter().copied().filter_map(visible).collect(),
        };
        let context = BTreeMap::from([("data", Data::Object(data))]);
        let mut roots = BTreeMap::from([
            ("trigger", Data::Json(&self.trigger)),
            ("context", Data::Object(context)),
            ("vars", Data::Json(run.vars())),
        ]);
        if let Some(spec) = &self.spec {
            roots.insert("spec", Data::Json(spec));
        }
        Data::Object(roots)
    }

    /// Renders a node's parameters.
    pub fn render(
        &self,
        run: &Run,
        (template, needs): &(ValueTemplate, Needs),
        sees: u32,
        options: &Options,
    ) -> Result<Value, Failure> {
        let scope = self.scope(run, needs, sees);
        let refuse = |message: String| Failure::permanent(code::TEMPLATE_ERROR, message);
        if let Some(message) = truncated(&scope, template.reads()) {
            return Err(refuse(message));
        }
        template.render(&scope, options).map_err(|(pointer, error)| {
            let place = if pointer.is_empty() { "parameters" } else { &pointer };
            refuse(format!("{place}: {}", error.message))
        })
    }

    /// Evaluates a condition, or says what the sandbox must be asked. What cannot be evaluated is false.
    pub fn judge(
        &self,
        run: &Run,
        (condition, needs): &(Condition, Needs),
        edge: u32,
        sees: u32,
        limits: &Limits,
    ) -> Judgement {
        let scope = self.scope(run, needs, sees);
        let here = match (truncated(&scope, condition.reads()), condition) {
            (Some(message), _) => Some(Err(message)),
            (None, Condition::Sandboxed { .. }) => None,
            (None, Condition::Native(expression)) => match expression.test(&scope, limits) {
                Err(error) if error.kind == EvalErrorKind::NotCovered => None,
                tested => Some(tested.map_err(|error| error.message)),
            },
        };
        let mut question = Question {
            edge,
            source: condition.source().to_owned(),
            data: Value::Null,
            saw: saw(&scope, condition.reads()),
        };
        match here {
            Some(result) => Judgement::Here(question.answered(result)),
            None => match serde_json::to_value(scope.project(condition.reads())) {
                Ok(data) => {
                    question.data = data;
                    Judgement::Elsewhere(question)
                }
                Err(error) => Judgement::Here(question.answered(Err(error.to_string()))),
            },
        }
    }
}

/// What became of a condition.
pub(crate) enum Judgement {
    /// It was evaluated here.
    Here(Verdict),
    /// Only the sandbox can evaluate it.
    Elsewhere(Question),
}

/// A condition for the sandbox, with the data it reads.
pub(crate) struct Question {
    edge: u32,
    source: String,
    data: Value,
    saw: Map<String, Value>,
}

impl Question {
    /// Asks the sandbox.
    pub async fn ask(self, sandbox: &Sandbox, limits: &Limits) -> Verdict {
        let tested = sandbox.test(&self.source, &self.data, limits).await;
        self.answered(tested.map_err(|error| error.to_string()))
    }

    /// The verdict that follows from an answer.
    pub fn answered(self, result: Result<bool, String>) -> Verdict {
        let error = result.as_ref().err().map(|error| format!("`{}`: {error}", self.source));
        Verdict {
            edge: self.edge,
            value: result.unwrap_or(false),
            error,
            saw: self.saw,
        }
    }
}

fn order(run: &Run, ix: NodeIx) -> u32 {
    match &run.node(ix).phase {
        Phase::Finished { order, .. } => *order,
        _ => u32::MAX,
    }
}

/// Refuses to read a body of which only the beginning was kept.
fn truncated(scope: &Data<'_>, reads: &[ReadPath]) -> Option<String> {
    reads.iter().find_map(|read| {
        let [
            Segment::Key(_),
            Segment::Key(_),
            Segment::Key(node),
            Segment::Key(body),
            ..,
        ] = read.segments.as_slice()
        else {
            return None;
        };
        let flag = [&read.segments[..3], &[Segment::Key("isTruncated".to_owned())]].concat();
        let cut = body == "body" && matches!(scope.at(&flag), Some(DataRef::Json(Value::Bool(true))));
        cut.then(|| {
            let limit = crate::actions::MAX_BODY_KB;
            format!("the body of `{node}` was longer than {limit} KB and was cut, so `{read}` cannot be used")
        })
    })
}

const SHOWN_VALUE: usize = 200;

/// The values a condition read, cut to what a person wants to see.
fn saw(scope: &Data<'_>, reads: &[ReadPath]) -> Map<String, Value> {
    let value_at = |read: &ReadPath| match scope.at(&read.segments)? {
        DataRef::Json(Value::String(text)) if text.len() > SHOWN_VALUE => {
            let end = text.floor_char_boundary(SHOWN_VALUE);
            Some(Value::String(format!("{}…", &text[..end])))
        }
        DataRef::Json(value @ (Value::Array(_) | Value::Object(_))) => {
            let size = match value {
                Value::Array(items) => format!("[{} items]", items.len()),
                other => format!("{{{} members}}", other.as_object().map_or(0, Map::len)),
            };
            Some(Value::String(size))
        }
        DataRef::Json(value) => Some(value.clone()),
        DataRef::Object(members) => Some(Value::String(format!("{{{} members}}", members.len()))),
    };
    let seen = reads
        .iter()
        .filter_map(|read| Some((read.to_string(), value_at(read)?)));
    seen.take(16).collect()
}
