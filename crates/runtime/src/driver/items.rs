//! Nodes that run one child for each item of a list, as the driver of their run sees them.
//!
//! * The list is rendered as of the opening of the node, when the node starts and again when the run was loaded. It is not stored.
//! * The children of the first items that have not ended must be running ([`fermata_core::Items::next`]). Those that this
//!   process did not start and that the store does not list as awaited are started, after the commit that recorded the ends
//!   before them. A repeated start finds the child.
//! * The driver waits for its starts, so it decides nothing while one is under way, and a cancel of the children of an
//!   attempt reaches all of them.

use super::{Driver, Incoming, StepError, judge::Rendering, step::Step};
use crate::{
    actions::{Children, SubworkflowParameters},
    compiled::Compiled,
    memory,
};
use fermata_core::{Each, Effect, Fact, Failure, NodeIx, OnItemFailure, Ranges, RefusedItems, code};
use fermata_core::{Status, conductor, plan::Source};
use fermata_expr::{Segment, template::Rendered};
use fermata_store::children::{EndedChild, NodeAttempt};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Children that are started before ends are read again, and about the memory that their triggers may take.
const STARTED_AT_ONCE: usize = 100;
const STARTED_BYTES: u64 = 16 << 20;
/// Awaited children that are read at once.
const AWAITED_AT_ONCE: u32 = 500;
/// Outputs of children that are read at once.
const RESULTS_AT_ONCE: u32 = 100;

#[derive(Default)]
pub(super) struct ItemRuns {
    /// The lists of nodes that are open.
    lists: BTreeMap<NodeIx, Arc<List>>,
    /// For each node: the attempt, and its items whose children are known to be started and not known to have ended.
    started: BTreeMap<NodeIx, (u32, BTreeSet<u32>)>,
    /// Nodes whose next children may have to start.
    touched: BTreeSet<NodeIx>,
    /// Nodes all of whose children have ended.
    complete: BTreeSet<NodeIx>,
}

/// A rendered list, and what all its children have in common.
struct List {
    /// The position of the completion order that it was rendered for.
    sees: u32,
    items: Vec<Value>,
    workflow: String,
    version: Option<String>,
    trigger: Map<String, Value>,
    /// About the memory of the trigger.
    trigger_size: u64,
}

impl List {
    fn trigger_of(&self, item: u32) -> Value {
        let mut trigger = self.trigger.clone();
        let value = self.items.get(item as usize).cloned().unwrap_or_default();
        trigger.insert("item".to_owned(), value);
        trigger.insert("index".to_owned(), item.into());
        Value::Object(trigger)
    }
}

impl ItemRuns {
    /// Notes that children of a node may have to start.
    pub fn touch(&mut self, ix: NodeIx) {
        self.touched.insert(ix);
    }

    /// Notes that all children of a node have ended.
    pub fn complete(&mut self, ix: NodeIx) {
        self.complete.insert(ix);
    }

    pub fn take_complete(&mut self) -> BTreeSet<NodeIx> {
        std::mem::take(&mut self.complete)
    }

    /// Forgets which children may have to start, because the run is paused.
    pub fn forget_touched(&mut self) {
        self.touched.clear();
    }

    pub fn any_to_start(&self) -> bool {
        !self.touched.is_empty()
    }
}

/// An item whose child did not succeed.
pub(super) struct FailedItem {
    pub item: u32,
    pub failure: Failure,
    /// Whether its child could not start.
    pub refused: bool,
}

impl Driver {
    pub(super) fn each(&self, ix: NodeIx) -> Option<&Each> {
        self.compiled.plan.node(ix).kind.each()
    }

    /// Renders the list of a node whose attempt is due.
    pub(super) async fn list_items(&mut self, ix: NodeIx, attempt: u32) -> Result<Incoming, StepError> {
        drop(self.attempts.take_slot(ix, attempt)); // children need no slot to start
        let step = Step::nothing(self.shared.clock.now());
        let node = self.compiled.plan.node(ix).id.clone();
        if let Some(observer) = &self.shared.observer {
            observer.started(self.meta.id, &node, attempt);
        }
        let items = self.list(ix, &step).await?.map(|list| list.items.len() as u32);
        if items.is_err() {
            self.recall_sent(ix, attempt, &step).await?;
        }
        Ok(Incoming::Verdicts(Fact::Listed {
            node,
            attempt,
            items,
            jitter: self.shared.ids.jitter(),
        }))
    }

    /// The list of an open node, as of its opening.
    async fn list(&mut self, ix: NodeIx, step: &Step) -> Result<Result<Arc<List>, Failure>, StepError> {
        let sees = self.position(ix);
        if let Some(list) = self.children.items.lists.get(&ix).filter(|list| list.sees == sees) {
            return Ok(Ok(list.clone()));
        }
        let items = match self.render_list(ix, step).await? {
            Rendering::Now(rendered) => rendered,
            Rendering::Later(rendering) => rendering.await,
        };
        let parameters = match self.render(ix, step).await? {
            Rendering::Now(rendered) => rendered,
            Rendering::Later(rendering) => rendering.await,
        };
        let state = match self.state_for(ix, step).await? {
            Some((bytes, build)) => Some(self.shared.offload.run(bytes, build).await),
            None => None,
        };
        let list = items.and_then(|items| {
            let most = self.each(ix).map_or(0, |each| each.max_items);
            let items = checked_items(most, without_secrets(items)?)?;
            let parameters: SubworkflowParameters = serde_json::from_value(without_secrets(parameters?)?)
                .map_err(|error| Failure::permanent(code::INVALID_PARAMETERS, error.to_string()))?;
            let version = parameters.version()?;
            let trigger = match (parameters.trigger, state) {
                (Some(Value::Object(trigger)), _) => trigger,
                (Some(_), _) => {
                    let message = "the trigger of the children must be an object";
                    return Err(Failure::permanent(code::INVALID_PARAMETERS, message));
                }
                (None, Some(Value::Object(state))) => without_list(state, &self.compiled, ix),
                (None, _) => Map::new(),
            };
            Ok(Arc::new(List {
                sees,
                items,
                workflow: parameters.workflow_id,
                version,
                trigger_size: trigger.values().map(memory::size).sum(),
                trigger,
            }))
        });
        if let Ok(list) = &list {
            let bytes: u64 = list.items.iter().map(memory::size).sum();
            self.payloads.grow(bytes + list.trigger_size);
            self.children.items.lists.insert(ix, list.clone());
        }
        Ok(list)
    }

    /// Starts the next children of items. Returns what came of it.
    pub(super) async fn start_items(&mut self) -> Result<Vec<Incoming>, StepError> {
        let mut next = Vec::new();
        for ix in std::mem::take(&mut self.children.items.touched) {
            let Some(Effect::StartItems { attempt, items, .. }) = conductor::effect_of(&self.run, ix) else {
                next.push(Incoming::Tick);
                continue;
            };
            let step = Step::nothing(self.shared.clock.now());
            self.forget_ended_items(ix, attempt, &items);
            let missing = |driver: &Driver| {
                let started = driver.children.items.started.get(&ix).map(|(_, started)| started);
                let is_new = |item: &u32| started.is_none_or(|started| !started.contains(item));
                items.iter().copied().filter(is_new).collect::<Vec<u32>>()
            };
            if !missing(self).is_empty() && !self.children.items.started.contains_key(&ix) {
                self.find_started_items(ix, attempt, &step).await?;
            }
            let mut now = missing(self);
            if now.is_empty() {
                // The run was not parked because of this node, so it must be decided again.
                self.linger(self.shared.clock.now());
                continue;
            }
            let list = self.list(ix, &step).await?.map_err(|failure| {
                let node = &self.compiled.plan.node(ix).id;
                let what = failure.message;
                StepError::Stuck(format!("the list of node `{node}` cannot be rendered again: {what}"))
            })?;
            let fits = (STARTED_BYTES / list.trigger_size.max(1)).clamp(1, STARTED_AT_ONCE as u64) as usize;
            if now.len() > fits {
                now.truncate(fits);
                self.children.items.touch(ix);
                next.push(Incoming::Children);
            }
            let children = Children::new(self.shared.clone(), self.started_by(ix, attempt));
            let triggers = now.iter().map(|item| (*item, list.trigger_of(*item))).collect();
            let outcome = children
                .start_items(list.workflow.clone(), list.version.clone(), triggers)
                .await;
            if let Some((_, started)) = self.children.items.started.get_mut(&ix) {
                started.extend(outcome.started);
            }
            self.linger(self.shared.clock.now());
            if !outcome.refused.is_empty() {
                let refused = |(item, failure)| FailedItem {
                    item,
                    failure,
                    refused: true,
                };
                let refused = outcome.refused.into_iter().map(refused).collect();
                next.push(Incoming::ItemsRefused(ix, attempt, refused));
            }
        }
        Ok(next)
    }

    /// Keeps of the started items those that have not ended.
    fn forget_ended_items(&mut self, ix: NodeIx, attempt: u32, open: &[u32]) {
        let started = &mut self.children.items.started;
        if started.get(&ix).is_some_and(|(known, _)| *known != attempt) {
            started.remove(&ix);
        }
        if let Some((_, started)) = started.get_mut(&ix) {
            started.retain(|item| open.binary_search(item).is_ok());
        }
    }

    /// Reads which items of an attempt have a child that has not ended.
    async fn find_started_items(&mut self, ix: NodeIx, attempt: u32, step: &Step) -> Result<(), StepError> {
        let node = &self.compiled.plan.node(ix).id;
        let mut found = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self
                .shared
                .store
                .awaited_children(self.meta.id, after, AWAITED_AT_ONCE)
                .await;
            let page = page.map_err(|error| self.read_failed(&error, step))?;
            let own = page
                .iter()
                .filter(|child| child.node == *node && child.attempt == attempt);
            found.extend(own.filter_map(|child| child.item));
            match page.last() {
                Some(last) if page.len() == AWAITED_AT_ONCE as usize => after = Some(last.run),
                _ => break,
            }
        }
        self.children.items.started.insert(ix, (attempt, found));
        Ok(())
    }

    /// Decides the ends of items. If the attempt ends with a failure, its other children are cancelled first.
    pub(super) async fn items_ended(
        &mut self,
        ix: NodeIx,
        attempt: u32,
        succeeded: Ranges,
        failures: Vec<FailedItem>,
        step: &mut Step,
    ) -> Result<(), StepError> {
        if !self.is_open(ix, attempt) {
            return Ok(());
        }
        self.linger(step.at); // while items end, the journal need not be read again
        let fails = self
            .each(ix)
            .is_some_and(|each| each.on_item_failure == OnItemFailure::Fail);
        let first = failures.iter().min_by_key(|failed| failed.item);
        let failure = first.map(|failed| item_failure(failed.item, &failed.failure));
        if fails && failure.is_some() {
            self.recall_sent(ix, attempt, step).await?;
            self.cancel_child(ix, attempt, step).await?;
        }
        let mut refused: Vec<RefusedItems> = Vec::new();
        for failed in failures.iter().filter(|failed| failed.refused) {
            match refused.iter_mut().find(|known| known.failure == failed.failure) {
                Some(known) => known.items.insert(failed.item),
                None => refused.push(RefusedItems {
                    items: [failed.item].into_iter().collect(),
                    failure: failed.failure.clone(),
                }),
            }
        }
        let fact = Fact::ItemsEnded {
            node: self.compiled.plan.node(ix).id.clone(),
            attempt,
            succeeded,
            failed: failures.iter().map(|failed| failed.item).collect(),
            refused,
            failure,
            jitter: self.shared.ids.jitter(),
        };
        self.advance(fact, None, step).await
    }

    /// The output of a node all of whose children have ended: the outputs of the children in the order of the items.
    pub(super) async fn collect(&mut self, ix: NodeIx, step: &Step) -> Result<Option<Fact>, StepError> {
        let Some(Effect::Collect { node, attempt }) = conductor::effect_of(&self.run, ix) else {
            return Ok(None);
        };
        let most = self.compiled.plan.context.max_context_size_bytes;
        let of = NodeAttempt {
            run: self.meta.id,
            node,
            attempt,
        };
        let (mut results, mut bytes, mut after) = (Vec::new(), 0, None);
        loop {
            let page = self.shared.store.item_results(&of, after, RESULTS_AT_ONCE).await;
            let page = page.map_err(|error| self.read_failed(&error, step))?;
            after = page.last().map(|child| child.run);
            let is_last = page.len() < RESULTS_AT_ONCE as usize;
            bytes += page
                .iter()
                .map(|child| child.outputs.as_ref().map_or(0, String::len))
                .sum::<usize>();
            results.extend(page);
            if bytes as u64 > most {
                let message = format!("the outputs of the items take more than {most} bytes, the limit of the context");
                let failure = Failure::permanent(code::CONTEXT_OVERFLOW, message);
                return self.answered(ix, attempt, Err(failure), None, step).await.map(Some);
            }
            if is_last {
                break;
            }
        }
        let Some(items) = self.run.node(ix).items.clone() else {
            return Ok(None);
        };
        let merges = self.compiled.plan.node(ix).merges_into_state;
        let name = of.node.to_string();
        let assemble = move || {
            let mut outputs = vec![Value::Null; items.count as usize];
            for refused in &items.refused {
                for item in refused.items.iter() {
                    if let Some(output) = outputs.get_mut(item as usize) {
                        *output = failed_item(&refused.failure.code, &refused.failure.message, None);
                    }
                }
            }
            for child in results {
                if let Some(output) = child.item.and_then(|item| outputs.get_mut(item as usize)) {
                    *output = output_of(&child);
                }
            }
            outputs_of_items(&name, outputs, items.failed.len(), merges)
        };
        let output = self.shared.offload.run(bytes, assemble).await;
        self.children.items.lists.remove(&ix);
        self.children.items.started.remove(&ix);
        self.answered(ix, attempt, Ok(output), None, step).await.map(Some)
    }
}

/// The items of a rendered list with at most this many.
pub(crate) fn checked_items(most: u32, items: Value) -> Result<Vec<Value>, Failure> {
    let wrong = |message: String| Err(Failure::permanent(code::INVALID_PARAMETERS, message));
    match items {
        Value::Array(items) if items.len() > most as usize => wrong(format!(
            "`forEach` has {} items; at most {most} are allowed (subworkflows.max_items when the workflow was published)",
            items.len()
        )),
        Value::Array(items) => Ok(items),
        other => {
            let what = match other {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a text",
                Value::Array(_) | Value::Object(_) => "an object",
            };
            wrong(format!("`forEach` must be a list, but it is {what}"))
        }
    }
}

/// The failure of a node one of whose items failed.
pub(crate) fn item_failure(item: u32, failure: &Failure) -> Failure {
    Failure {
        retriable: failure.retriable,
        ..Failure::permanent(failure.code.clone(), format!("item {item}: {}", failure.message))
    }
}

/// The output of a node with one child for each item.
pub(crate) fn outputs_of_items(node: &str, outputs: Vec<Value>, failed: u32, merges: bool) -> Value {
    let count = outputs.len();
    match merges {
        true => Value::Object(Map::from_iter([(node.to_owned(), Value::Array(outputs))])),
        false => json!({ "outputs": outputs, "count": count, "failed": failed }),
    }
}

/// The triggers of children are recorded, so they cannot have secrets.
fn without_secrets(rendered: Rendered) -> Result<Value, Failure> {
    match rendered.has_secrets() {
        true => {
            let message = "a node with `forEach` cannot use secrets: its children record them in their triggers";
            Err(Failure::permanent(code::TEMPLATE_ERROR, message))
        }
        false => Ok(rendered.value),
    }
}

fn output_of(child: &EndedChild) -> Value {
    if child.status == Status::Succeeded {
        let outputs = child
            .outputs
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        return outputs.filter(Value::is_object).unwrap_or_else(|| json!({}));
    }
    match super::children::result_of(child, false) {
        Err(failure) => failed_item(&failure.code, &failure.message, Some(child)),
        Ok(output) => output,
    }
}

/// The entry of an item whose child did not succeed, like the entry of a failed node.
pub(crate) fn failed_item(code: &str, message: &str, child: Option<&EndedChild>) -> Value {
    let mut entry = json!({ "error": { "code": code, "message": message }, "status": "failed" });
    if let Some(child) = child {
        entry["executionId"] = json!(child.run.to_string());
    }
    entry
}

/// The state without the lists that `forEach` reads: each child has its item, and a copy of the list in every child would take
/// the square of its size.
fn without_list(mut state: Map<String, Value>, compiled: &Compiled, ix: NodeIx) -> Map<String, Value> {
    let reads = compiled.nodes[ix.at()]
        .items
        .iter()
        .flat_map(|(template, _)| template.reads());
    for read in reads {
        for place in compiled.plan.scope.places(&Source::State) {
            let mut shared = place.iter().zip(&read.segments);
            if shared.all(|(name, step)| step.to_string() == *name) {
                remove_list(&mut state, read.segments.get(place.len()..).unwrap_or_default());
            }
        }
    }
    state
}

fn remove_list(members: &mut Map<String, Value>, path: &[Segment]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let name = first.to_string();
    match members.get_mut(&name) {
        Some(Value::Array(_)) if rest.is_empty() => {
            members.remove(&name);
        }
        Some(Value::Object(inner)) => remove_list(inner, rest),
        _ => {}
    }
}
