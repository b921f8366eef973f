//! How far a run is: the state of each node, the periods of its attempts, and which edges were taken and why.
//!
//! What must stay true: everything here comes from the journal, so it costs about 100 bytes per event and no outputs are read.
//! Values that conditions read are masked.

use super::{ItemProgress, SkipReasons};
use crate::{Engine, EngineError, Refusal, mask::Mask, reads::Reads, timeline};
use fermata_core::{
    Event, Failure, Kind, NodeId, NodeIx, Outcome, Phase, Plan, Run, RunId, Timestamp, Verdict, apply, conductor,
    decode,
};
use fermata_store::{
    reads::{RunRecord, Window},
    runs::Attempt,
};
use std::sync::Arc;

/// Journal rows that are read at once.
const ROWS: u32 = 1000;
/// The most attempts of one node that are read at once.
const MAX_ATTEMPTS: u32 = 20;

/// How far a run is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The plan that it follows.
    pub plan: Arc<Plan>,
    /// Its nodes, in the order of [`Plan::nodes`].
    pub nodes: Vec<NodeProgress>,
    /// The last journal row; 0 if the run has not started.
    pub seq: u32,
    /// How many entries [`Reads::events`] has in all.
    pub entries: u64,
}

/// What a node does at the moment, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It was not reached.
    Pending,
    /// An attempt is due or executes.
    Running,
    /// The last attempt failed; the next one is due later.
    Retrying,
    /// It sleeps.
    Sleeping,
    /// It waits for a callback, an answer or child runs.
    Waiting,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It will not run.
    Skipped,
    /// The run ended before it did.
    Stopped,
}

/// The state of a node.
#[derive(Debug, Clone)]
pub struct NodeProgress {
    /// What it does.
    pub state: NodeState,
    /// The word for it in the dialect of the workflow.
    pub word: String,
    /// The attempt that is due, executes or was the last; 0 if the node was not reached.
    pub attempt: u32,
    /// When a sleep ends, a wait times out, or the next attempt is due.
    pub until: Option<Timestamp>,
    /// Why it failed, or why its last attempt failed.
    pub failure: Option<Failure>,
    /// Why it was skipped.
    pub skip_reason: Option<String>,
    /// The progress of its items, if it runs one child for each item of a list.
    pub items: Option<ItemProgress>,
    /// What it did when, oldest first.
    pub periods: Vec<Period>,
    /// The result of its own condition, if it has one that was evaluated.
    pub guard: Option<Verdict>,
    /// The positions of its outgoing edges that were taken; `None` until they are settled.
    pub taken: Option<Vec<u32>>,
    /// The results of the conditions on its edges.
    pub verdicts: Vec<Verdict>,
    /// The outcome that an answer chose.
    pub chosen: Option<String>,
    /// The run that executed it, if this one only keeps its result.
    pub reused_from: Option<RunId>,
    /// Whether it waits, so that it can be skipped.
    pub can_skip: bool,
    /// Whether it waits for the answer to a request that can be sent again.
    pub can_resend: bool,
}

/// A time in which a node did one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The attempt.
    pub attempt: u32,
    /// What it did.
    pub what: Doing,
    /// Its begin.
    pub from: Timestamp,
    /// Its end; `None` if it goes on.
    pub to: Option<Timestamp>,
}

/// What a node does in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// An attempt waited for a slot, or for a place of its tenant. That is known when it has ended.
    Queues,
    /// An attempt is due or executes.
    Runs,
    /// The same, and it failed.
    Fails,
    /// It waits for its next attempt.
    BacksOff,
    /// It sleeps.
    Sleeps,
    /// It waits for a callback, an answer or child runs.
    Waits,
}

impl Reads<'_> {
    /// How far a run is. `None` if it has no plan yet.
    pub async fn progress(&self, run: &RunRecord) -> Result<Option<Progress>, EngineError> {
        if run.workflow_version == 0 {
            return Ok(None);
        }
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        let plan = compiled.await?.plan.clone();
        let unusable = |what: String| EngineError::Unusable {
            workflow: run.workflow_id.clone(),
            version: run.workflow_version,
            what: format!("the journal of run {} cannot be read: {what}", run.id),
        };
        let mask = &self.engine.shared.settings.mask;
        let mut replay = Replay::new(plan, mask.clone());
        let mut offset = 0;
        loop {
            let part = Window { limit: ROWS, offset };
            let (rows, _) = self.engine.shared.store.events(run.id, part).await?;
            for row in &rows {
                let events = decode(&row.data).map_err(|error| unusable(error.to_string()))?;
                for event in &events {
                    replay.add(row.at, event).map_err(&unusable)?;
                }
                replay.seq = row.seq;
                replay.entries += timeline::count(&events) as u64;
            }
            offset += ROWS;
            if rows.len() < ROWS as usize {
                break;
            }
        }
        Ok(Some(replay.finish(self.engine, run)))
    }

    /// The recorded attempts of one node up to `last`, newest first, and whether earlier ones are left out.
    pub async fn attempts_of(&self, run: RunId, node: &NodeId, last: u32) -> Result<(Vec<Attempt>, bool), EngineError> {
        self.visible(run).await?;
        let first = last.saturating_sub(MAX_ATTEMPTS - 1).max(1);
        let mut found = Vec::new();
        for attempt in (first..=last).rev() {
            found.extend(self.engine.shared.store.attempt(run, node, attempt).await?);
        }
        Ok((self.masked(found).await, first > 1))
    }

    /// One recorded attempt of a node.
    pub async fn attempt_of(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Attempt, EngineError> {
        self.visible(run).await?;
        let found = self.engine.shared.store.attempt(run, node, attempt).await?;
        let mut found = self.masked(Vec::from_iter(found)).await;
        found.pop().ok_or_else(|| Refusal::RunNotFound(run).into())
    }

    /// The plan of a version of a workflow.
    pub async fn plan(
        &self,
        workflow: &fermata_store::definitions::Workflow,
        version: u32,
    ) -> Result<Arc<Plan>, EngineError> {
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(workflow.uid, &workflow.id, version).await?;
        Ok(compiled.plan.clone())
    }
}

struct Replay {
    run: Run,
    skips: SkipReasons,
    mask: Mask,
    nodes: Vec<NodeProgress>,
    seq: u32,
    entries: u64,
}

impl Replay {
    fn new(plan: Arc<Plan>, mask: Mask) -> Replay {
        let node = NodeProgress {
            state: NodeState::Pending,
            word: String::new(),
            attempt: 0,
            until: None,
            failure: None,
            skip_reason: None,
            items: None,
            periods: Vec::new(),
            guard: None,
            taken: None,
            verdicts: Vec::new(),
            chosen: None,
            reused_from: None,
            can_skip: false,
            can_resend: false,
        };
        Replay {
            nodes: vec![node; plan.nodes.len()],
            skips: SkipReasons::new(plan.clone(), mask.clone()),
            run: Run::new(plan),
            mask,
            seq: 0,
            entries: 0,
        }
    }

    fn add(&mut self, at: Timestamp, event: &Event) -> Result<(), String> {
        match event {
            Event::Reused(reused) => {
                for kept in &reused.events {
                    self.note(at, kept);
                }
                // Nothing of it happened in this run.
                for node in reused.nodes().filter_map(|node| self.run.plan().find(node.as_str())) {
                    let node = &mut self.nodes[node.at()];
                    node.periods.clear();
                    node.reused_from = Some(reused.of);
                }
            }
            event => self.note(at, event),
        }
        apply(&mut self.run, event).map_err(|error| error.to_string())?;
        self.skips.note(event);
        Ok(())
    }

    fn shown(&self, verdict: &Verdict) -> Verdict {
        Verdict {
            saw: self.mask.of_reads(&verdict.saw),
            ..verdict.clone()
        }
    }

    fn note(&mut self, at: Timestamp, event: &Event) {
        let found = event.node().and_then(|node| self.run.plan().find(node.as_str()));
        let Some(ix) = found else { return };
        let kind = &self.run.plan().node(ix).kind;
        let first = match kind {
            Kind::Wait { .. } => Doing::Waits,
            Kind::Sleep { .. } => Doing::Sleeps,
            _ => Doing::Runs,
        };
        match event {
            Event::Opened {
                at: opened, verdict, ..
            } => {
                self.nodes[ix.at()].guard = verdict.as_ref().map(|verdict| self.shown(verdict));
                self.nodes[ix.at()].begin(1, first, *opened);
            }
            Event::Skipped { verdict, .. } => {
                self.nodes[ix.at()].guard = verdict.as_ref().map(|verdict| self.shown(verdict));
                self.nodes[ix.at()].end(at, false);
            }
            Event::Requested { attempt, queued_ms, .. } => {
                let node = &mut self.nodes[ix.at()];
                node.queued(*queued_ms);
                node.end(at, false);
                node.begin(*attempt, Doing::Waits, at);
            }
            Event::Retried {
                attempt,
                retry_at,
                queued_ms,
                ..
            } => {
                let node = &mut self.nodes[ix.at()];
                node.queued(*queued_ms);
                node.end(at, true);
                if *retry_at > at {
                    node.begin(*attempt, Doing::BacksOff, at);
                    node.end(*retry_at, false);
                }
                node.begin(attempt + 1, first, (*retry_at).max(at));
            }
            Event::Finished { outcome, queued_ms, .. } => {
                let failed = !outcome.is_success();
                self.nodes[ix.at()].queued(*queued_ms);
                self.nodes[ix.at()].end(at, failed);
            }
            Event::Routed { taken, verdicts, .. } => {
                let verdicts = verdicts.iter().map(|verdict| self.shown(verdict)).collect();
                let node = &mut self.nodes[ix.at()];
                (node.taken, node.verdicts) = (Some(taken.clone()), verdicts);
            }
            _ => {}
        }
    }

    fn finish(mut self, engine: &Engine, run: &RunRecord) -> Progress {
        let has_ended = run.status.is_terminal();
        let now = engine.now();
        let plan = self.run.plan().clone();
        for (ix, node) in plan.indices().zip(&mut self.nodes) {
            node.learn(&self.run, ix, has_ended);
            node.skip_reason = self.skips.why(&plan.node(ix).id);
            if !has_ended && self.run.stop().is_none() {
                node.can_skip = conductor::waits(&self.run, ix, now);
                node.can_resend = engine.can_resend(&self.run, ix);
            }
            if let Some(ended) = run.ended_at.filter(|_| has_ended) {
                node.end(ended, false);
            }
        }
        Progress {
            plan,
            nodes: self.nodes,
            seq: self.seq,
            entries: self.entries,
        }
    }
}

impl NodeProgress {
    fn begin(&mut self, attempt: u32, what: Doing, from: Timestamp) {
        self.periods.push(Period {
            attempt,
            what,
            from,
            to: None,
        });
    }

    /// The attempt that goes on waited for a slot or a place first. When exactly is not recorded: it is shown at the beginning.
    fn queued(&mut self, waited_ms: Option<u64>) {
        let going_on = self.periods.last_mut().filter(|period| period.to.is_none());
        let (Some(waited_ms), Some(period)) = (waited_ms, going_on.filter(|period| period.what == Doing::Runs)) else {
            return;
        };
        let began = period.from.plus_millis(waited_ms);
        (period.what, period.to) = (Doing::Queues, Some(began));
        let attempt = period.attempt;
        self.begin(attempt, Doing::Runs, began);
    }

    /// Ends the period that goes on, if there is one.
    fn end(&mut self, at: Timestamp, failed: bool) {
        if let Some(period) = self.periods.last_mut().filter(|period| period.to.is_none()) {
            period.to = Some(at.max(period.from));
            if failed && period.what == Doing::Runs {
                period.what = Doing::Fails;
            }
        }
    }

    fn learn(&mut self, run: &Run, ix: NodeIx, has_ended: bool) {
        let (node, now) = (run.plan().node(ix), run.node(ix));
        self.word = run.plan().scope.words.of(&node.kind, &now.phase).to_owned();
        self.items = now.items.as_deref().map(ItemProgress::from);
        match &now.phase {
            Phase::Idle => {}
            Phase::Skipped => self.state = NodeState::Skipped,
            Phase::Open(open) => {
                self.attempt = open.attempt;
                self.failure = open.last_failure.clone();
                self.until = open.until.or((open.attempt > 1).then_some(open.due));
                let backs_off = self.periods.iter().rev().nth(1);
                let backs_off = backs_off.is_some_and(|period| period.what == Doing::BacksOff);
                self.state = match &node.kind {
                    _ if has_ended => NodeState::Stopped,
                    Kind::Wait { .. } => NodeState::Waiting,
                    Kind::Request { .. } if open.requested => NodeState::Waiting,
                    Kind::Sleep { .. } if open.until.is_some() => NodeState::Sleeping,
                    _ if open.attempt > 1 && backs_off => NodeState::Retrying,
                    _ => NodeState::Running,
                };
            }
            Phase::Finished {
                outcome,
                attempt,
                chosen,
                ..
            } => {
                (self.attempt, self.chosen) = (*attempt, chosen.clone());
                match outcome {
                    Outcome::Succeeded(_) => self.state = NodeState::Succeeded,
                    Outcome::Failed(failure) => {
                        self.state = NodeState::Failed;
                        self.failure = Some(failure.clone());
                    }
                }
            }
        }
    }
}
