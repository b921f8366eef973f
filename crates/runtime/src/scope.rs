//! The data that expressions of a run see, and their evaluation. Has no effects.
//!
//! An expression sees the context as of a position in the completion order, not the current one. So a repetition after a
//! crash renders the same bytes and reads the same values.

use crate::{
    compiled::{Compiled, Condition, Members, Needs, Nodes},
    entry::{BODY_ERROR, TRUNCATED},
    memory::{self, Share},
    sandbox::{self, Sandbox},
    state::{Writers, cached::CachedState, merged_nodes},
};
use fermata_core::{
    Failure, Language, NodeId, NodeIx, Phase, Reused, Run, Verdict, code,
    plan::{Scope, Source},
};
use fermata_expr::{
    Data, DataRef, EvalErrorKind, Limits, ReadPath, SandboxLanguage, Segment,
    logic::Logic,
    template::{Rendered, ValueTemplate},
};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The payloads that a run's expressions can see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Payloads {
    pub trigger: Arc<Value>,
    pub spec: Option<Arc<Value>>,
    /// The request or event that started the run, if a trigger did.
    pub request: Option<Arc<Value>>,
    /// Entries of nodes that were needed so far or ended in this process.
    pub entries: BTreeMap<NodeIx, Arc<Value>>,
    /// Which of these entries wrote the state.
    writers: Writers,
    /// What other nodes wrote into the state, and its size as JSON.
    cached: Option<(Arc<CachedState>, usize)>,
    /// Whether the store was asked for a cached state.
    pub asked_for_cached: bool,
    /// The callback URLs of waits; `None` if they were not needed so far.
    waits: Option<Value>,
    /// The size of the trigger and the spec as JSON.
    given_bytes: usize,
    /// The size of larger entries as JSON.
    entry_bytes: BTreeMap<NodeIx, usize>,
    counted: Counted,
}

/// The memory that payloads are counted as. A clone shares the values, so it is not counted again.
#[derive(Debug, Default)]
struct Counted {
    share: Option<Share>,
    /// The size without entries.
    least: u64,
}

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::default()
    }
}

/// The sizes of entries up to this many bytes are not kept.
const SMALL_ENTRY: usize = 1024;

/// The `spec` of a run that was started without one.
static NO_SPEC: Value = Value::Null;

/// The `request` of a run that no trigger started.
static NO_REQUEST: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

impl Payloads {
    /// `spec` is also visible as `trigger.spec`, unless the trigger has a `spec` of its own.
    /// `bytes` is the size of both as JSON.
    pub fn new(mut trigger: Arc<Value>, spec: Option<Arc<Value>>, bytes: usize) -> Self {
        if let (true, Some(spec)) = (trigger.is_object(), &spec)
            && let Value::Object(map) = Arc::make_mut(&mut trigger)
        {
            map.entry("spec").or_insert_with(|| Value::clone(spec));
        }
        Payloads {
            trigger,
            spec,
            request: None,
            entries: BTreeMap::new(),
            writers: Writers::default(),
            cached: None,
            asked_for_cached: false,
            waits: None,
            given_bytes: bytes,
            entry_bytes: BTreeMap::new(),
            counted: Counted::default(),
        }
    }

    /// The same payloads, with the request that started the run.
    pub fn started_by(mut self, request: Option<Arc<Value>>) -> Payloads {
        self.request = request;
        self
    }

    /// The trigger and the spec.
    pub fn given(&self) -> (&Value, Option<&Value>) {
        (&self.trigger, self.spec.as_deref())
    }

    /// About the memory of the trigger and the spec.
    pub fn size(&self) -> u64 {
        memory::size(&self.trigger) + self.spec.as_deref().map_or(0, memory::size)
    }

    /// The same payloads, counted as this share until they are dropped.
    pub fn counted(mut self, share: Share) -> Payloads {
        self.counted = Counted {
            least: share.bytes(),
            share: Some(share),
        };
        self
    }

    /// Drops all entries if the memory budget is used up.
    pub fn forget_if_scarce(&mut self) {
        if !self.entries.is_empty() && self.counted.share.as_ref().is_some_and(Share::is_scarce) {
            self.forget_entries();
        }
    }

    /// Keeps the entry of a node that ended. Its size as JSON is `bytes`. If it is part of the state, `order` is its position
    /// in the completion order.
    pub fn learn(&mut self, ix: NodeIx, entry: Arc<Value>, bytes: usize, order: Option<u32>) {
        if let Some(share) = &mut self.counted.share {
            share.grow(memory::size(&entry));
        }
        if let Some(order) = order {
            self.writers.learn(order, ix, &entry);
        }
        self.entries.insert(ix, entry);
        if bytes > SMALL_ENTRY {
            self.entry_bytes.insert(ix, bytes);
        }
    }

    /// Keeps the cached state, whose text has `bytes` bytes.
    pub fn learn_cached(&mut self, cached: CachedState, bytes: usize) {
        self.grow(bytes as u64);
        self.cached = Some((Arc::new(cached), bytes));
    }

    /// The cached state and its size as JSON.
    pub fn cached(&self) -> Option<(&CachedState, usize)> {
        self.cached.as_ref().map(|(cached, bytes)| (&**cached, *bytes))
    }

    /// The state for the store, readable from position `from` on. All entries that wrote it must be in memory or cached.
    pub fn to_cached(&self, from: u32, up_to: u32, writers: usize) -> CachedState {
        let older = self.cached().map(|(cached, _)| cached);
        CachedState::build((from, up_to), writers, older, &self.writers, |ix, name| {
            self.entries.get(&ix)?.get(name)
        })
    }

    /// Counts more memory of the run, until its entries are dropped.
    pub fn grow(&mut self, bytes: u64) {
        if let Some(share) = &mut self.counted.share {
            share.grow(bytes);
        }
    }

    /// Drops all entries; they can be fetched again.
    pub fn forget_entries(&mut self) {
        self.entries.clear();
        self.writers.forget();
        (self.cached, self.asked_for_cached) = (None, false);
        self.entry_bytes.clear();
        if let Some(share) = &mut self.counted.share {
            share.shrink_to(self.counted.least);
        }
    }

    /// About how many bytes an expression may read.
    pub fn bytes(&self, needs: &Needs) -> usize {
        let entries: usize = match &needs.nodes {
            _ if !needs.state.is_none() => {
                let entries: usize = self.entry_bytes.values().sum();
                entries + self.cached().map_or(0, |(_, bytes)| bytes)
            }
            Nodes::All => self.entry_bytes.values().sum(),
            Nodes::These(nodes) => nodes.iter().filter_map(|ix| self.entry_bytes.get(ix)).sum(),
        };
        self.given_bytes + entries
    }

    /// About the size of the entries of these nodes.
    pub fn bytes_of(&self, nodes: &[NodeIx]) -> usize {
        nodes.iter().filter_map(|ix| self.entry_bytes.get(ix)).sum()
    }

    pub fn knows_waits(&self) -> bool {
        self.waits.is_some()
    }

    /// Keeps the callback URLs. The tokens must be the durable ones.
    /// The address of a wait that the run keeps of an earlier run is `null`.
    pub fn learn_waits<'a>(
        &mut self,
        tokens: impl Iterator<Item = (&'a NodeId, &'a str)>,
        reused: Option<&Reused>,
        public_url: &str,
    ) {
        let base = public_url.trim_end_matches('/');
        let address = |(node, token): (&NodeId, &str)| {
            let url = format!("{base}/wh/{token}");
            (node.to_string(), serde_json::json!({ "url": url }))
        };
        let kept = reused.iter().flat_map(|reused| reused.nodes());
        let none = |node: &NodeId| (node.to_string(), serde_json::json!({ "url": null }));
        self.waits = Some(Value::Object(kept.map(none).chain(tokens.map(address)).collect()));
    }

    /// The nodes that an expression reads, that ended before `sees`, and whose entries are not in memory.
    pub fn missing(&self, run: &Run, needs: &Needs, sees: u32) -> Vec<NodeIx> {
        let visible = &run.completed()[..(sees as usize).min(run.completed().len())];
        let absent = |ix: &NodeIx| !self.entries.contains_key(ix);
        let mut missing: Vec<NodeIx> = match &needs.nodes {
            Nodes::All => visible.iter().copied().filter(absent).collect(),
            Nodes::These(nodes) => nodes
                .iter()
                .copied()
                .filter(|ix| order(run, *ix) < sees && absent(ix))
                .collect(),
        };
        // Which node wrote a member is known only from the outputs.
        if !needs.state.is_none() {
            let cached = self.cached.as_ref();
            let is_read = |ix: &NodeIx| cached.is_none_or(|(cached, _)| !cached.covers(order(run, *ix), sees));
            missing.extend(merged_nodes(run, sees).filter(absent).filter(is_read));
            missing.sort();
            missing.dedup();
        }
        missing
    }

    /// The data that expressions see, built from the plan's scope.
    fn scope<'a>(&'a self, compiled: &'a Compiled, run: &'a Run, needs: &'a Needs, sees: u32) -> Data<'a> {
        let mut roots = BTreeMap::new();
        for name in &compiled.plan.scope.names {
            let data = match &name.source {
                Source::Trigger => Some(Data::Json(&self.trigger)),
                Source::Spec => Some(Data::Json(self.spec.as_deref().unwrap_or(&NO_SPEC))),
                // In a scope whose root is the state, it must not hide a member of the state.
                Source::Request if self.request.is_none() && has_root_state(&compiled.plan.scope) => None,
                Source::Request => Some(Data::Json(self.request.as_deref().unwrap_or(&NO_REQUEST))),
                Source::RequestHeaders => {
                    let headers = self.request.as_deref().and_then(|request| request.get("headers"));
                    Some(Data::Json(headers.unwrap_or(&NO_REQUEST)))
                }
                Source::Vars => Some(Data::Json(run.vars())),
                Source::Waits => self.waits.as_ref().map(Data::Json),
                Source::Entries => Some(self.visible_entries(compiled, run, needs, sees)),
                Source::State => Some(self.state(needs, sees)),
                Source::Fixed(value) => Some(Data::Json(value)),
            };
            if let Some(data) = data {
                if name.path.is_empty() {
                    return over(roots, data);
                }
                place(&mut roots, &name.path, data);
            }
        }
        Data::Object(roots)
    }

    fn visible_entries<'a>(&'a self, compiled: &'a Compiled, run: &'a Run, needs: &'a Needs, sees: u32) -> Data<'a> {
        let plan = &compiled.plan;
        let visible = |ix: NodeIx| {
            let entry = match run.node(ix).phase {
                Phase::Skipped => compiled.nodes[ix.at()].skipped.as_ref()?,
                _ => self.entries.get(&ix).filter(|_| order(run, ix) < sees)?,
            };
            Some((plan.node(ix).id.as_str(), Data::Json(entry)))
        };
        Data::Object(match &needs.nodes {
            Nodes::All => plan.indices().filter_map(visible).collect(),
            Nodes::These(nodes) => nodes.iter().copied().filter_map(visible).collect(),
        })
    }

    /// The members of the state that an expression reads.
    fn state<'a>(&'a self, needs: &'a Needs, sees: u32) -> Data<'a> {
        let trigger = self.trigger.as_object();
        match &needs.state {
            Members::These(names) => {
                let member = |name: &'a String| {
                    let value = self.written_member(name, sees).or_else(|| trigger?.get(name))?;
                    Some((name.as_str(), Data::Json(value)))
                };
                Data::object(names.iter().filter_map(member))
            }
            Members::All => {
                let given = trigger.into_iter().flatten();
                let given = given.map(|(name, value)| (name.as_str(), value));
                let members = given.chain(self.written(sees));
                Data::object(members.map(|(name, value)| (name, Data::Json(value))))
            }
        }
    }

    /// What nodes wrote into a member of the state, as of a position in the completion order.
    fn written_member(&self, name: &str, sees: u32) -> Option<&Value> {
        let cached = self.cached().and_then(|(cached, _)| cached.of(name, sees));
        let written = self.writers.of(name, sees);
        let written = written.filter(|(order, _)| cached.is_none_or(|(cached, _)| *order > cached));
        match written {
            Some((_, ix)) => self.entries.get(&ix)?.get(name),
            None => cached.map(|(_, value)| value),
        }
    }

    /// The members of the state that nodes wrote, as of a position in the completion order. A member may occur twice; then the
    /// last value counts.
    fn written(&self, sees: u32) -> impl Iterator<Item = (&str, &Value)> {
        let cached = self.cached().map(|(cached, _)| cached);
        let of_cached = cached.into_iter().flat_map(move |cached| cached.all(sees));
        let newer = self.writers.all(sees).filter(move |(name, (order, _))| {
            let cached = cached.and_then(|cached| cached.of(name, sees));
            cached.is_none_or(|(cached, _)| *order > cached)
        });
        of_cached.chain(newer.filter_map(|(name, (_, ix))| Some((name, self.entries.get(&ix)?.get(name)?))))
    }

    /// The whole state as of a position in the completion order. All entries that wrote it must be in memory.
    pub fn state_at(&self, sees: u32) -> Map<String, Value> {
        let mut state = self.trigger.as_object().cloned().unwrap_or_default();
        state.extend(self.changed_state(sees));
        state
    }

    /// The members of the state that nodes wrote.
    pub fn changed_state(&self, sees: u32) -> Map<String, Value> {
        let written = self.written(sees);
        written.map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// Renders a node's parameters.
    pub fn render(
        &self,
        compiled: &Compiled,
        run: &Run,
        (template, needs): &(ValueTemplate, Needs),
        sees: u32,
    ) -> Result<Rendered, Failure> {
        let scope = self.scope(compiled, run, needs, sees);
        let refuse = |message: String| Failure::permanent(code::TEMPLATE_ERROR, message);
        if let Some(message) = unreadable(&compiled.plan.scope, &scope, template.reads()) {
            return Err(refuse(message));
        }
        template
            .render(&scope, &compiled.templates)
            .map_err(|(pointer, error)| match run.plan().language {
                // The message names the path.
                Language::Paths => refuse(error.message),
                Language::Script | Language::Logic => {
                    let place = if pointer.is_empty() { "parameters" } else { &pointer };
                    refuse(format!("{place}: {}", error.message))
                }
            })
    }

    /// Evaluates a condition, or prepares it for the sandbox. A condition that cannot be evaluated is false.
    pub fn judge(
        &self,
        compiled: &Compiled,
        run: &Run,
        (condition, needs): &(Condition, Needs),
        edge: u32,
        sees: u32,
        limits: &Limits,
    ) -> Judgement {
        let scope = self.scope(compiled, run, needs, sees);
        let here = match (unreadable(&compiled.plan.scope, &scope, condition.reads()), condition) {
            (Some(message), _) => Some(Err(message)),
            (None, Condition::Sandboxed { .. }) => None,
            (None, Condition::Comparison(comparison)) => Some(Ok(comparison.test(&scope))),
            (None, Condition::Logic(Logic::JsonLogic(rule))) => match rule.test(&scope) {
                Err(error) if error.kind == EvalErrorKind::NotCovered => None,
                tested => Some(tested.map_err(|error| error.message)),
            },
            (None, Condition::Logic(Logic::Cel(_))) => None,
            (None, Condition::Native(expression)) => match expression.test(&scope, limits) {
                Err(error) if error.kind == EvalErrorKind::NotCovered => None,
                tested => Some(tested.map_err(|error| error.message)),
            },
        };
        let mut question = Question {
            saw: saw(&scope, condition.reads()),
            ..Question::about(edge, condition)
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

/// The result of evaluating a condition in this process.
pub(crate) enum Judgement {
    /// It was evaluated.
    Here(Verdict),
    /// Only the sandbox can evaluate it.
    Elsewhere(Question),
}

/// A condition for the sandbox, with the data it reads.
pub(crate) struct Question {
    edge: u32,
    language: SandboxLanguage,
    source: String,
    data: Value,
    saw: Map<String, Value>,
}

impl Question {
    /// A condition without data.
    pub fn about(edge: u32, condition: &Condition) -> Question {
        Question {
            edge,
            language: condition.sandbox_language(),
            source: condition.source().to_owned(),
            data: Value::Null,
            saw: Map::new(),
        }
    }

    /// Evaluates the condition in the sandbox. Also returns how long that took, without the wait for a sandbox process.
    pub async fn ask(self, sandbox: &Sandbox, limits: &Limits) -> (Verdict, Duration) {
        let source = sandbox::Source {
            language: self.language,
            text: &self.source,
        };
        let (tested, took) = sandbox.test(source, &self.data, limits).await;
        (self.answered(tested.map_err(|error| error.to_string())), took)
    }

    /// The verdict for a result.
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

/// Whether the members of the state are the names of a scope.
fn has_root_state(scope: &Scope) -> bool {
    scope.names.iter().any(|name| name.path.is_empty())
}

/// The root value of a scope, with the names that were placed before it and that it does not have.
fn over<'a>(mut roots: BTreeMap<&'a str, Data<'a>>, data: Data<'a>) -> Data<'a> {
    match data {
        Data::Object(members) if !roots.is_empty() => {
            roots.extend(members);
            Data::Object(roots)
        }
        data => data,
    }
}

/// Inserts data at `path`.
pub(crate) fn place<'a>(object: &mut BTreeMap<&'a str, Data<'a>>, path: &'a [String], data: Data<'a>) {
    match path {
        [] => {}
        [name] => {
            object.insert(name, data);
        }
        [name, rest @ ..] => {
            let inner = object.entry(name).or_insert_with(|| Data::Object(BTreeMap::new()));
            if let Data::Object(inner) = inner {
                place(inner, rest, data);
            }
        }
    }
}

fn order(run: &Run, ix: NodeIx) -> u32 {
    match &run.node(ix).phase {
        Phase::Finished { order, .. } => *order,
        _ => u32::MAX,
    }
}

/// Refuses reads of a truncated body, and reads into a body that should be JSON and is not.
fn unreadable(names: &Scope, scope: &Data<'_>, reads: &[ReadPath]) -> Option<String> {
    let places = names.places(&Source::Entries).map(|place| place.len() + 1);
    let read_in = |depth| reads.iter().map(move |read| (read, depth));
    places.flat_map(read_in).find_map(|(read, depth)| {
        let (entry, rest) = read.segments.split_at_checked(depth)?;
        if !matches!(rest.first(), Some(Segment::Key(member)) if member == "body") {
            return None;
        }
        let mark = |name: &str| scope.at(&[entry, &[Segment::Key(name.to_owned())]].concat());
        let (is_cut, error) = (mark(TRUNCATED), mark(BODY_ERROR));
        let path: Vec<_> = rest.iter().map(Segment::to_string).collect();
        let (path, node) = (path.join("."), &entry[depth - 1]);
        match (is_cut, error) {
            (Some(DataRef::Json(Value::Bool(true))), _) => {
                let limit = crate::actions::MAX_BODY_KB;
                Some(format!(
                    "Cannot read '{path}' because the response from '{node}' exceeded the {limit}KB limit and was truncated"
                ))
            }
            (_, Some(DataRef::Json(Value::String(error)))) if rest.len() > 1 => Some(format!(
                "Cannot read '{path}' because the response from '{node}' is not valid JSON: {error}"
            )),
            _ => None,
        }
    })
}

const SHOWN_VALUE: usize = 200;

/// The values that a condition read, shortened for display.
pub(crate) fn saw(scope: &Data<'_>, reads: &[ReadPath]) -> Map<String, Value> {
    let value_at = |read: &ReadPath| match scope.at(&read.segments)? {
        DataRef::Json(Value::String(text)) if text.len() > SHOWN_VALUE => {
            let end = text.floor_char_boundary(SHOWN_VALUE);
            Some(Value::String(format!("{}…", &text[..end])))
        }
        DataRef::Json(value @ (Value::Array(_) | Value::Object(_))) => {
            let size = match value {
                Value::Array(items) if items.len() == 1 => "[1 item]".to_owned(),
                Value::Array(items) => format!("[{} items]", items.len()),
                other => format!("{{{} members}}", other.as_object().map_or(0, Map::len)),
            };
            Some(Value::String(size))
        }
        DataRef::Json(value) => Some(value.clone()),
        DataRef::Object(members) => Some(Value::String(format!("{{{} members}}", members.len()))),
    };
    // A path without steps is the whole scope.
    let seen = reads
        .iter()
        .filter(|read| !read.segments.is_empty())
        .filter_map(|read| Some((read.to_string(), value_at(read)?)));
    seen.take(16).collect()
}
