//! The promises, checked at the end of a simulation.

use super::{
    scenario::{ACTION, Ending, HORIZON_MS, WHOLE_STATE},
    world::{Effect, StartedBy, Tracked, World},
};
use fermata_core::{
    Event, Join, Kind, Node, NodeId, Outcome, Plan, Run, RunId, RunOutputs, Timestamp, Verdict, apply, code, decode,
};
use fermata_store::{
    DeadLetterStore, ReadStore, RunStore, StoreError,
    dead_letters::DeadLetterFilter,
    memory::MemoryStore,
    reads::{RunFilter, Window},
    runs::Attempt,
    runs::AttemptStatus,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const ALL: Window = Window {
    limit: u32::MAX,
    offset: 0,
};
/// Messages are read within this time once there are no more faults.
const PROMPTLY_MS: u64 = 10_000;

type Checked = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}

#[path = "family.rs"]
mod family;

use family::{Seen, children_ended_their_nodes};

pub async fn check(world: &World, memory: &MemoryStore) {
    if let Err(what) = everything(world, memory).await {
        world.violate(what);
    }
}

async fn everything(world: &World, memory: &MemoryStore) -> Checked {
    let ids: Vec<RunId> = world.lock().runs.keys().copied().collect();
    let filter = RunFilter {
        limit: 1000,
        ..RunFilter::default()
    };
    let stored = memory.runs(filter).await.map_err(text)?.items;
    ensure!(
        stored.len() == ids.len(),
        "{} runs are stored, {} were created",
        stored.len(),
        ids.len()
    );
    let mut owners: BTreeMap<String, RunId> = BTreeMap::new();
    for id in &ids {
        for link in memory.links(*id, ALL).await.map_err(text)?.0 {
            let before = owners.insert(link.resource_id.clone(), *id);
            ensure!(
                before.is_none_or(|other| other == *id),
                "{} belongs to two runs",
                link.resource_id
            );
        }
    }
    children_ended_their_nodes(world)?;
    for id in ids {
        let short = world.lock().short(id);
        let checked = one_run(world, memory, id, &owners).await;
        checked.map_err(|what| format!("{short}: {what}"))?;
    }
    Ok(())
}

fn text(error: StoreError) -> String {
    error.to_string()
}

/// Everything that is stored of a run.
struct Story<'a> {
    id: RunId,
    tracked: &'a Tracked,
    events: Vec<Event>,
    rows: Vec<Attempt>,
    effects: Vec<&'a Effect>,
    /// The triggers of its children.
    children: Vec<(&'a StartedBy, &'a str)>,
}

async fn one_run(world: &World, memory: &MemoryStore, id: RunId, owners: &BTreeMap<String, RunId>) -> Checked {
    let record = memory.run(id).await.map_err(text)?.ok_or("its row is missing")?;
    let journal = memory.events(id, ALL).await.map_err(text)?.0;
    let rows = memory.actions(id, ALL).await.map_err(text)?.0;
    let links = memory.links(id, ALL).await.map_err(text)?.0;
    let waits = memory.waits(id).await.map_err(text)?;
    let all = DeadLetterFilter {
        limit: 1000,
        ..DeadLetterFilter::default()
    };
    let dead_letters = memory.dead_letters(all).await.map_err(text)?.items;
    let inner = world.lock();
    let tracked = &inner.runs[&id];
    let mut events = Vec::new();
    for row in journal {
        events.extend(decode(&row.data).map_err(|error| error.to_string())?);
    }
    let story = Story {
        id,
        tracked,
        events,
        rows,
        effects: inner.effects.iter().filter(|effect| effect.run == id).collect(),
        children: inner
            .runs
            .values()
            .filter_map(|child| Some((child.parent.as_ref()?, child.trigger.as_str())))
            .filter(|(by, _)| by.run == id)
            .collect(),
    };
    ensure!(record.status.is_terminal(), "it is {}", record.status);
    ensure!(
        !record.held() && record.wake_at.is_none(),
        "it has ended, and still has a wake-up time"
    );
    ensure!(
        waits.iter().all(|wait| !wait.open),
        "it is over, and yet a wait is open"
    );
    story.replays()?;
    ensure!(
        record.status == tracked.status(),
        "its row says {}, its journal {}",
        record.status,
        tracked.status()
    );
    if let Some((killer, Ending::Kill)) = &world.scenario.fixed_ending {
        let kills = *killer == tracked.request.1;
        ensure!(
            kills == tracked.dead_lettered,
            "it kills: {kills}, it was dead-lettered: {}",
            tracked.dead_lettered
        );
    }
    let dead_lettered = dead_letters.iter().filter(|dead_letter| dead_letter.run == id).count();
    ensure!(
        dead_lettered == usize::from(tracked.dead_lettered),
        "{dead_lettered} dead letters, dead-lettered: {}",
        tracked.dead_lettered
    );
    if tracked.dead_lettered {
        ensure!(
            record.reason.as_deref() == Some("dead_letter"),
            "its reason is {:?}",
            record.reason
        );
        return Ok(()); // it was dead-lettered without a journal row, so there is nothing more to check
    }
    story.one_outcome_for_each_node()?;
    story.expressions_saw_what_is_recorded()?;
    let outputs = record
        .outputs
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let expected = story.outputs();
    ensure!(
        outputs == Some(expected.clone()),
        "its outputs are {outputs:?}, not {expected}"
    );
    for row in &story.rows {
        let linked = |thing: &String| links.iter().any(|link| link.resource_id == *thing);
        story.attempt(row, linked, owners)?;
    }
    let calm_at = match world.scenario.is_calm() && world.scenario.rates.slow == 0 {
        true => Timestamp::default(),
        false => world.clock_begin().plus_millis(HORIZON_MS),
    };
    // While runs wait for a place, messages may be read later. Lost hints must not matter.
    let promptly = world.scenario.max_active_runs >= 100;
    for callback in inner.callbacks.iter().filter(|callback| callback.run == id) {
        let late = callback.at.max(calm_at).plus_millis(PROMPTLY_MS);
        let late = promptly.then_some(late);
        story.callback(&callback.node, &callback.payload, late)?;
    }
    for row in story
        .rows
        .iter()
        .filter(|row| row.action_type == "core.wait" && row.status == AttemptStatus::Succeeded)
    {
        let mut callbacks = inner.callbacks.iter();
        let known = callbacks.any(|callback| callback.run == id && callback.node == row.node);
        ensure!(known, "{} succeeded without a callback", row.node);
    }
    for (_, at) in inner.cancels.iter().filter(|(run, _)| *run == id && promptly) {
        let stopped = tracked.stopped_at.unwrap_or(Timestamp(i64::MAX));
        let late = match world.scenario.prompt_ms {
            Some(millis) => at.plus_millis(millis),
            None => (*at).max(calm_at).plus_millis(PROMPTLY_MS),
        };
        ensure!(stopped <= late, "its cancel at {} was read at {}", at.0, stopped.0);
    }
    Ok(())
}

impl Story<'_> {
    fn plan(&self) -> &Plan {
        self.tracked.run.plan()
    }

    fn replays(&self) -> Checked {
        let mut run = Run::new(self.tracked.run.plan().clone());
        for event in &self.events {
            apply(&mut run, event).map_err(|illegal| illegal.to_string())?;
        }
        ensure!(
            run == self.tracked.run,
            "its journal does not add up to what was committed"
        );
        Ok(())
    }

    fn one_outcome_for_each_node(&self) -> Checked {
        let started = self.events.iter().any(|event| matches!(event, Event::Started { .. }));
        for node in &self.plan().nodes {
            let of_node = |event: &&Event| event.node() == Some(&node.id);
            let count =
                |fits: fn(&Event) -> bool| self.events.iter().filter(of_node).filter(|event| fits(event)).count();
            let ends = count(|event| matches!(event, Event::Finished { .. } | Event::Skipped { .. }));
            ensure!(ends == usize::from(started), "{} ended {ends} times", node.id);
            ensure!(
                count(|event| matches!(event, Event::Opened { .. })) <= 1,
                "{} was opened twice",
                node.id
            );
            let rows = self.rows.iter().filter(|row| row.node == node.id);
            let last = rows.filter(|row| row.status != AttemptStatus::RetriableFailure).count();
            let expected = ends - usize::from(self.events.iter().filter(of_node).any(|event| self.cut_short(event)));
            ensure!(last == expected, "{} has {last} last attempts", node.id);
        }
        let attempts = |event: &&Event| {
            let ends = matches!(
                event,
                Event::Finished { .. } | Event::Skipped { .. } | Event::Retried { .. }
            );
            ends && !self.cut_short(event)
        };
        let expected = self.events.iter().filter(attempts).count();
        ensure!(
            self.rows.len() == expected,
            "{} attempts are recorded, not {expected}",
            self.rows.len()
        );
        for event in self.events.iter().filter(|event| !self.cut_short(event)) {
            let (node, attempt, status, bytes) = match event {
                Event::Skipped { node, .. } => (node, 1, AttemptStatus::Skipped, None),
                Event::Retried { node, attempt, .. } => (node, *attempt, AttemptStatus::RetriableFailure, None),
                Event::Finished {
                    node, attempt, outcome, ..
                } => match outcome {
                    Outcome::Succeeded(output) => (node, *attempt, AttemptStatus::Succeeded, Some(output.bytes)),
                    Outcome::Failed(_) => (node, *attempt, AttemptStatus::Failed, None),
                },
                _ => continue,
            };
            let row = self
                .row(node, attempt)
                .ok_or_else(|| format!("{node} {attempt} has no row"))?;
            ensure!(
                row.status == status,
                "{node} {attempt} is {:?}, not {status:?}",
                row.status
            );
            let given = row.outputs.as_ref().map(|outputs| outputs.len() as u64);
            ensure!(
                bytes.is_none() || given == bytes,
                "{node} gave {given:?} bytes, its journal says {bytes:?}"
            );
        }
        Ok(())
    }

    /// Whether this event ends a node that waited for a retry when its run stopped: there is no attempt for it.
    fn cut_short(&self, event: &Event) -> bool {
        let Event::Finished { node, attempt, .. } = event else {
            return false;
        };
        self.events.iter().any(|before| {
            matches!(before, Event::Retried { node: of, attempt: failed, .. } if of == node && failed == attempt)
        })
    }

    fn row(&self, node: &NodeId, attempt: u32) -> Option<&Attempt> {
        self.rows.iter().find(|row| row.node == *node && row.attempt == attempt)
    }

    /// The value `v` that later nodes see of a node.
    fn value(&self, node: &NodeId) -> Option<Value> {
        let row = self
            .rows
            .iter()
            .find(|row| row.node == *node && row.status == AttemptStatus::Succeeded)?;
        let outputs: Value = serde_json::from_str(row.outputs.as_deref()?).ok()?;
        outputs.get("v").cloned()
    }

    /// The outputs of the leaves, in document order, or the members of the state that were written.
    fn outputs(&self) -> Value {
        if self.plan().outputs == RunOutputs::Changed {
            let completed = self.tracked.run.completed().iter();
            return Value::Object(self.written(completed.map(|ix| &self.plan().node(*ix).id)));
        }
        let mut merged = Map::new();
        for ix in self.tracked.run.result_nodes() {
            let id = &self.plan().node(ix).id;
            let row = self
                .rows
                .iter()
                .find(|row| row.node == *id && row.status == AttemptStatus::Succeeded);
            let outputs = row.and_then(|row| row.outputs.as_deref());
            if let Some(Ok(Value::Object(entry))) = outputs.map(serde_json::from_str) {
                merged.extend(entry);
            }
        }
        Value::Object(merged)
    }

    /// Parameters and verdicts follow from the recorded outputs as of the right position in the completion order.
    fn expressions_saw_what_is_recorded(&self) -> Checked {
        let mut completed: Vec<&NodeId> = Vec::new();
        let mut from: BTreeMap<(&NodeId, u32), Seen> = BTreeMap::new();
        for event in &self.events {
            let Some(node) = event.node().and_then(|node| self.plan().find(node.as_str())) else {
                continue;
            };
            let node = self.plan().node(node);
            match event {
                Event::Opened { verdict, .. } | Event::Skipped { verdict, .. } => {
                    if let (Some(verdict), Join::Guard(condition)) = (verdict, &node.join) {
                        self.verdict(&node.id, verdict, condition, &completed)?;
                    }
                    if matches!(event, Event::Opened { .. }) {
                        from.insert((&node.id, 1), self.seen(node, &completed));
                    }
                }
                Event::Retried { attempt, .. } if !node.policies.rerender_on_retry => {
                    let again = from.get(&(&node.id, 1)).cloned().unwrap_or_default();
                    from.insert((&node.id, attempt + 1), again);
                }
                Event::Began { attempt, .. } => {
                    from.insert((&node.id, *attempt), self.seen(node, &completed));
                }
                Event::Finished { .. } => completed.push(&node.id),
                Event::Routed { verdicts, .. } => {
                    let own = completed.iter().position(|id| **id == node.id).unwrap_or_default();
                    for verdict in verdicts {
                        let condition = node.edges[verdict.edge as usize]
                            .condition
                            .as_deref()
                            .unwrap_or_default();
                        self.verdict(&node.id, verdict, condition, &completed[..=own])?;
                    }
                }
                _ => {}
            }
        }
        for effect in &self.effects {
            let parameters: Value = serde_json::from_str(&effect.parameters).unwrap_or_default();
            let seen = from.get(&(&effect.node, effect.attempt)).cloned().unwrap_or_default();
            let none = json!("none");
            let written = seen.state.get("v").unwrap_or(&none);
            ensure!(
                parameters["from"] == seen.from && parameters.get("written").is_none_or(|given| given == written),
                "{} {} was called with {}, though it should have seen {} and {written}",
                effect.node,
                effect.attempt,
                effect.parameters,
                seen.from
            );
            let given = effect.state.as_deref().map(serde_json::from_str::<Value>);
            let fits = given.is_none_or(|given| given.ok() == Some(Value::Object(seen.state.clone())));
            ensure!(
                fits,
                "{} {} got the state {:?}, not {:?}",
                effect.node,
                effect.attempt,
                effect.state,
                seen.state
            );
        }
        self.children_got_the_state(&from)
    }

    fn seen(&self, node: &Node, completed: &[&NodeId]) -> Seen {
        let (Kind::Action { parameters, .. } | Kind::Request { parameters, .. }) = &node.kind else {
            return Seen::default();
        };
        let read = named(parameters["from"].as_str().unwrap_or_default());
        let visible = completed.iter().find(|id| id.as_str() == read);
        Seen {
            from: visible.and_then(|id| self.value(id)).unwrap_or(json!("none")),
            state: self.state(completed),
        }
    }

    fn verdict(&self, node: &NodeId, verdict: &Verdict, condition: &str, completed: &[&NodeId]) -> Checked {
        let above: i64 = condition
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(i64::MAX);
        let value = match condition.starts_with("state.") {
            true => self.state(completed).get("v").cloned(),
            false => {
                let mut visible = completed.iter().filter(|id| id.as_str() == named(condition));
                visible.next().and_then(|id| self.value(id))
            }
        };
        let value = value.and_then(|value| value.as_i64());
        let expected = value.is_some_and(|value| value > above);
        ensure!(
            verdict.holds() == expected,
            "{node}: `{condition}` was {}, {value:?}",
            verdict.holds()
        );
        Ok(())
    }

    fn attempt(&self, row: &Attempt, linked: impl Fn(&String) -> bool, owners: &BTreeMap<String, RunId>) -> Checked {
        let place = format!("{} {}", row.node, row.attempt);
        let ix = self.plan().find(row.node.as_str()).ok_or("a row of no node")?;
        if !matches!(&self.plan().node(ix).kind, Kind::Action { action, .. } if action == ACTION) {
            return Ok(());
        }
        let same = |effect: &&&Effect| effect.node == row.node && effect.attempt == row.attempt;
        let effects: Vec<_> = self.effects.iter().filter(same).collect();
        let error = row
            .error
            .as_deref()
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        match row.status {
            AttemptStatus::Succeeded => {
                let source = effects.iter().find(|effect| effect.outputs == row.outputs);
                let effect = source.ok_or_else(|| format!("{place} succeeded with what no call gave"))?;
                ensure!(
                    recorded(&effect.parameters) == recorded(row.parameters.as_deref().unwrap_or_default()),
                    "{place} was called with other parameters"
                );
                ensure!(
                    effect.link.iter().all(linked),
                    "{place} created {:?}, which is not linked",
                    effect.link
                );
            }
            AttemptStatus::RetriableFailure => ensure!(!effects.is_empty(), "{place} failed without a call"),
            AttemptStatus::Failed if error.is_some_and(|error| error["code"] == code::RESOURCE_LINK_CONFLICT) => {
                let taken = |thing: &String| owners.get(thing).is_some_and(|owner| *owner != self.id);
                let mut things = effects.iter().flat_map(|effect| &effect.link);
                ensure!(things.any(taken), "{place} failed for a link that no other run has");
            }
            AttemptStatus::Failed => {}
            AttemptStatus::Skipped => {
                // A call that a crash interrupted may be recorded as never begun, if the run was stopped before the repetition.
                let known = |effect: &&&&Effect| effect.epoch == self.tracked.epoch && !effect.mistaken;
                ensure!(
                    !effects.iter().any(|effect| known(&effect)),
                    "{place} is Skipped but was called"
                );
            }
        }
        Ok(())
    }

    /// An accepted callback was used, unless its node never opened or the run stopped first.
    fn callback(&self, node: &NodeId, payload: &str, late: Option<Timestamp>) -> Checked {
        let mut rows = self.rows.iter().filter(|row| row.node == *node);
        let Some(row) = rows.next_back() else {
            return Ok(()); // cancelled before it started
        };
        match row.status {
            AttemptStatus::Skipped => Ok(()),
            AttemptStatus::Succeeded => {
                ensure!(
                    row.outputs.as_deref() == Some(payload),
                    "{node} gave {:?} instead of its callback",
                    row.outputs
                );
                let opened = self
                    .plan()
                    .find(node.as_str())
                    .and_then(|ix| self.tracked.run.node(ix).opened_at);
                let opened = opened.unwrap_or_default();
                let prompt = late.is_none_or(|late| row.ended_at <= late.max(opened.plus_millis(PROMPTLY_MS)));
                ensure!(prompt, "the callback of {node} was used only at {}", row.ended_at.0);
                Ok(())
            }
            other => Err(format!("{node} took a callback but is {other:?}")),
        }
    }
}

/// Parameters without the position of the state, which is recorded with those that get the state.
fn recorded(parameters: &str) -> Value {
    let mut parameters: Value = serde_json::from_str(parameters).unwrap_or_default();
    if parameters[WHOLE_STATE] == true
        && let Some(members) = parameters.as_object_mut()
    {
        members.remove("state");
    }
    parameters
}

/// The node that a text reads.
fn named(text: &str) -> &str {
    text.split('\'').nth(1).unwrap_or_default()
}
