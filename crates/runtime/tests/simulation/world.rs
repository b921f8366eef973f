//! The truth of a simulation, independent of processes: what is durable, which effects happened, what was acknowledged.
//!
//! The store wrapper reports what became durable, the action its effects, and callers the answers they got. What contradicts a
//! promise at once is recorded as a violation at once.

use super::{
    rng::{Rng, digest},
    scenario::{CommitFault, Scenario},
};
use fermata_core::{Event, NodeId, Outcome, Run, RunId, SkipReason, Status, Timestamp, apply, code};
use fermata_runtime::{
    Engine,
    clock::{Clock, TokioClock},
};
use fermata_store::{
    RunStore,
    dead_letters::DeadReason,
    memory::MemoryStore,
    runs::{CachedState, Claimed, NewRun, RunCommit, RunMessage, Then},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

/// The number of a process; each restart gets a new one.
pub type Life = u32;

/// More calls to the store than this at the same simulated time are an endless loop.
const TOO_BUSY: u32 = 5000;
/// Runs are dead-lettered when they were claimed more often than this without a commit.
pub const MAX_CLAIMS: u32 = 3;
/// When every simulation begins.
const BEGIN: Timestamp = Timestamp(1_700_000_000_000_000);

pub struct World {
    pub scenario: Scenario,
    pub clock: TokioClock,
    inner: Mutex<Inner>,
}

pub struct Inner {
    pub rng: Rng,
    /// The newest handle, for calls without faults.
    pub memory: MemoryStore,
    /// Whether there are faults.
    pub rough: bool,
    pub crashes: u32,
    /// Writes of runs so far.
    pub writes: u64,
    pub lives: Life,
    pub alive: BTreeMap<usize, Process>,
    pub runs: BTreeMap<RunId, Tracked>,
    pub effects: Vec<Effect>,
    pub callbacks: Vec<Callback>,
    pub cancels: Vec<(RunId, Timestamp)>,
    /// (tenant, request) and the run that was acknowledged.
    pub acknowledged: Vec<((String, String), RunId)>,
    /// The simulated time of the last call to the store, and the number of calls at that time.
    pub busy: (Timestamp, u32),
    /// How often each thing happened.
    pub seen: BTreeMap<&'static str, u64>,
    pub trace: u64,
    pub lines: Option<Vec<String>>,
    violation: Option<String>,
}

/// A running process.
#[derive(Clone)]
pub struct Process {
    pub life: Life,
    pub engine: Engine,
    pub died: CancellationToken,
}

/// The durable state of a run.
pub struct Tracked {
    pub request: (String, String),
    /// What started it, if it is a child.
    pub parent: Option<StartedBy>,
    pub trigger: String,
    pub run: Run,
    pub rows: u32,
    pub epoch: u64,
    pub holder: Option<Life>,
    /// Processes that may wrongly assume that they hold it.
    pub mistaken: BTreeSet<Life>,
    /// When it last made progress.
    pub moved_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    /// Whether its runner knows that it stops: until then, queued attempts may still begin.
    pub stop_known: bool,
    /// Claims since the last commit.
    pub claims: u32,
    /// Whether it was dead-lettered.
    pub dead_lettered: bool,
}

/// The attempt of a node that started a child run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartedBy {
    pub run: RunId,
    pub node: NodeId,
    pub attempt: u32,
    /// The item of the list, if there is one child for each.
    pub item: Option<u32>,
    /// Whether the node waits for its end.
    pub awaited: bool,
}

impl Tracked {
    /// The status that its row must have.
    pub fn status(&self) -> Status {
        match self.dead_lettered {
            true => Status::Failed,
            false => self.run.status(),
        }
    }
}

/// An effect.
#[derive(Debug, Clone)]
pub struct Effect {
    pub run: RunId,
    pub node: NodeId,
    pub attempt: u32,
    pub key: String,
    pub parameters: String,
    pub epoch: u64,
    pub mistaken: bool,
    /// The whole state, if the action asked for it.
    pub state: Option<String>,
    pub outputs: Option<String>,
    pub link: Option<String>,
}

/// A callback that was accepted.
#[derive(Debug, Clone)]
pub struct Callback {
    pub run: RunId,
    pub node: NodeId,
    pub payload: String,
    pub at: Timestamp,
}

impl World {
    pub fn new(scenario: Scenario, memory: MemoryStore, verbose: bool) -> Arc<World> {
        let rough = !scenario.is_calm() || scenario.rates.interfere > 0 || scenario.rates.slow > 0;
        let inner = Inner {
            rng: Rng::new(scenario.seed ^ 0x5eed),
            memory,
            rough,
            crashes: 0,
            writes: 0,
            lives: 0,
            alive: BTreeMap::new(),
            runs: BTreeMap::new(),
            effects: Vec::new(),
            callbacks: Vec::new(),
            cancels: Vec::new(),
            acknowledged: Vec::new(),
            busy: (Timestamp::default(), 0),
            seen: BTreeMap::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            lines: verbose.then(Vec::new),
            violation: None,
        };
        Arc::new(World {
            scenario,
            clock: TokioClock::starting_at(BEGIN),
            inner: Mutex::new(inner),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the simulation began.
    pub fn clock_begin(&self) -> Timestamp {
        BEGIN
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Adds a line to the trace. It must depend on the seed only.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.lock().note(self.now(), line);
    }

    pub fn violate(&self, what: String) {
        let now = self.now();
        self.lock().violate(now, what);
    }

    pub fn count_fault(&self, fault: Option<CommitFault>) {
        let Some(fault) = fault else { return };
        self.lock().count(match fault {
            CommitFault::CrashBefore => "crash before commit",
            CommitFault::CrashAfter => "crash between commit and act",
            CommitFault::UnknownApplied => "unknown, applied",
            CommitFault::UnknownLost => "unknown, lost",
            CommitFault::Fenced | CommitFault::FencedAndKept => "forced takeover",
            CommitFault::Conflict => "conflict",
        });
    }

    pub fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// Counts a call to the store; false if there are too many at the same simulated time.
    pub fn count_call(&self) -> bool {
        let now = self.now();
        let mut inner = self.lock();
        inner.busy = match inner.busy {
            (at, count) if at == now => (at, count + 1),
            _ => (now, 0),
        };
        let bears = inner.busy.1 < TOO_BUSY;
        if !bears {
            inner.violate(now, "it goes round in circles".to_owned());
        }
        bears
    }

    /// Crashes a process: nothing it does from now on has any effect.
    pub fn crash(&self, life: Life) {
        let now = self.now();
        let mut inner = self.lock();
        inner.crashes += 1;
        inner.note(now, || format!("crash of {life}"));
        let slot = inner
            .alive
            .iter()
            .find(|(_, process)| process.life == life)
            .map(|(slot, _)| *slot);
        let process = slot.and_then(|slot| inner.alive.remove(&slot));
        drop(inner);
        if let Some(process) = process {
            process.died.cancel();
            process.engine.crash();
        }
    }

    /// A process has ended, crashed or not.
    pub fn gone(&self, life: Life) {
        let mut inner = self.lock();
        inner.alive.retain(|_, process| process.life != life);
        for tracked in inner.runs.values_mut() {
            tracked.mistaken.remove(&life);
        }
    }

    /// A random running process.
    pub fn some_process(&self) -> Option<Process> {
        let mut inner = self.lock();
        let count = inner.alive.len() as u64;
        let at = inner.rng.below(count) as usize;
        inner.alive.values().nth(at).cloned()
    }

    // ── what becomes durable ────────────────────────────────────────────────────────────────────

    pub fn created(&self, new: &NewRun, life: Life) {
        let now = self.now();
        let mut inner = self.lock();
        let plans = &self.scenario.plans;
        let Some(plan) = plans.iter().find(|plan| plan.workflow == new.workflow_id) else {
            return inner.violate(now, format!("a run of {} that was not requested", new.workflow_id));
        };
        let mut request = (new.tenant.clone(), new.request_id.clone());
        let parent = new.parent.as_ref().and_then(|parent| {
            Some(StartedBy {
                run: parent.run,
                node: parent.node.clone()?,
                attempt: parent.attempt,
                item: parent.item,
                awaited: parent.waits,
            })
        });
        if let Some(by) = &parent {
            // Ids of runs differ from one simulation to the next.
            let item = by.item.map_or(String::new(), |item| format!(":{item}"));
            request.1 = format!("{}/{}:{}{item}", inner.short(by.run), by.node, by.attempt);
            inner.count(match (by.item, by.awaited) {
                (Some(_), _) => "child of an item started",
                (None, true) => "child started",
                (None, false) => "independent child started",
            });
            if by.awaited
                && inner
                    .runs
                    .get(&by.run)
                    .is_none_or(|parent| parent.status().is_terminal())
            {
                inner.violate(now, format!("{request:?} was started after the end of its parent"));
            }
        }
        if inner.runs.values().any(|tracked| tracked.request == request) {
            inner.violate(now, format!("a second run for {request:?}"));
        }
        let tracked = Tracked {
            request,
            parent,
            trigger: new.trigger.clone(),
            run: Run::new(Arc::new(plan.clone())),
            rows: 0,
            epoch: u64::from(new.local_start.is_some()),
            holder: new.local_start.as_ref().map(|_| life),
            mistaken: BTreeSet::new(),
            moved_at: now,
            stopped_at: None,
            stop_known: false,
            claims: 0,
            dead_lettered: false,
        };
        inner.runs.insert(new.id, tracked);
        if let Some(local_start) = &new.local_start {
            inner.advance(now, new.id, &local_start.events);
        }
    }

    pub fn claimed(&self, claimed: &Claimed, life: Life) {
        let now = self.now();
        let mut inner = self.lock();
        for stored in &claimed.runs {
            let holder_lives = |inner: &Inner, life: Life| inner.alive.values().any(|process| process.life == life);
            let before = inner.runs.get(&stored.id).and_then(|tracked| tracked.holder);
            let deprived = before.filter(|before| holder_lives(&inner, *before));
            let Some(tracked) = inner.runs.get_mut(&stored.id) else {
                inner.violate(now, format!("{} was claimed but never created", stored.id));
                continue;
            };
            tracked.mistaken.extend(deprived);
            let taken_over = tracked.holder.is_some();
            let fits = stored.epoch == tracked.epoch + 1 && stored.journal.len() as u32 == tracked.rows;
            tracked.epoch = stored.epoch;
            tracked.stop_known = tracked.run.stop().is_some();
            tracked.holder = Some(life);
            tracked.claims += 1;
            let terminal = tracked.status().is_terminal() || stored.takeovers != tracked.claims;
            if !fits || terminal {
                inner.violate(
                    now,
                    format!(
                        "{} was claimed after its end, or with a wrong epoch, journal or claim count",
                        stored.id
                    ),
                );
            }
            if taken_over {
                inner.count("taken over");
            }
            let short = inner.short(stored.id);
            inner.note(now, || format!("{life} has {short} under {}", stored.epoch));
        }
    }

    pub fn committed(&self, commit: &RunCommit, life: Life) {
        let now = self.now();
        let mut inner = self.lock();
        let id = commit.run;
        let Some(tracked) = inner.runs.get_mut(&id) else {
            return inner.violate(now, format!("{id} advanced but was never created"));
        };
        let fenced = tracked.holder != Some(life) || tracked.epoch != commit.epoch;
        let over = tracked.status().is_terminal();
        let before = tracked.run.status();
        if fenced || over {
            inner.violate(
                now,
                format!("{id} was advanced by {life}, which does not hold it, or after its end"),
            );
        }
        if let Some(dead_letter) = &commit.dead_letter {
            return inner.dead_lettered(now, commit, dead_letter.reason);
        }
        if let Some(CachedState::Set(_)) = commit.state {
            inner.count("state cached");
        }
        inner.advance(now, id, &commit.events);
        let Some(tracked) = inner.runs.get_mut(&id) else { return };
        let after = tracked.run.status();
        let said = commit.status.as_ref().map(|change| change.status);
        if after.is_terminal() || commit.then != Then::Keep {
            tracked.holder = None;
        }
        tracked.claims = match commit.then {
            Then::Keep | Then::Park { .. } => 0,
            Then::Decline { .. } => tracked.claims.saturating_sub(1),
            Then::GiveUp { .. } => tracked.claims,
        };
        if let Then::Decline { .. } = commit.then {
            inner.count("declined");
        }
        if said.unwrap_or(before) != after {
            inner.violate(now, format!("{id} is {after} by its events but {said:?} by its row"));
        }
    }

    /// A run has ended. Each awaited child that has not ended must have been cancelled before.
    pub async fn check_children_are_cancelled(&self, run: RunId) {
        let (memory, children) = {
            let inner = self.lock();
            if inner
                .runs
                .get(&run)
                .is_none_or(|tracked| !tracked.status().is_terminal())
            {
                return;
            }
            let is_open = |child: &Tracked| {
                let awaited = child.parent.as_ref().is_some_and(|by| by.awaited && by.run == run);
                awaited && !child.status().is_terminal() && child.run.stop().is_none()
            };
            let open = inner.runs.iter().filter(|(_, child)| is_open(child)).map(|(id, _)| *id);
            (inner.memory.clone(), open.collect::<Vec<_>>())
        };
        for child in children {
            let messages = memory.messages(child, 0).await.unwrap_or_default();
            let mut messages = messages.iter().map(|stored| &stored.message);
            if !messages.any(|message| matches!(message, RunMessage::Cancel { .. })) {
                let short = self.lock().short(child);
                self.violate(format!("the parent of {short} ended before {short} was cancelled"));
            }
            self.lock().count("child cancelled by its parent");
        }
    }

    /// A runner got the current state of a run.
    pub fn answered(&self, run: RunId) {
        if let Some(tracked) = self.lock().runs.get_mut(&run) {
            tracked.stop_known = tracked.run.stop().is_some();
        }
    }
}

impl Inner {
    pub fn note(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        let line = format!("{} {}", now.0 % 1_000_000_000, line());
        self.trace = digest(self.trace, line.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn violate(&mut self, now: Timestamp, what: String) {
        self.note(now, || format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    /// A name of a run that depends on the seed only.
    pub fn short(&self, run: RunId) -> String {
        match self.runs.get(&run) {
            Some(tracked) => tracked.request.1.clone(),
            None => "unknown run".to_owned(),
        }
    }

    /// A run was dead-lettered, which must have a reason.
    fn dead_lettered(&mut self, now: Timestamp, commit: &RunCommit, reason: DeadReason) {
        self.count("run dead-lettered");
        let short = self.short(commit.run);
        self.note(now, || format!("{short} is dead-lettered: {}", reason.as_str()));
        let Some(tracked) = self.runs.get_mut(&commit.run) else {
            return;
        };
        (tracked.dead_lettered, tracked.holder) = (true, None);
        (tracked.moved_at, tracked.stopped_at) = (now, Some(now));
        let claims = tracked.claims;
        if reason != DeadReason::Poison || claims <= MAX_CLAIMS || !commit.events.is_empty() {
            let what = format!("{short} was dead-lettered after {claims} claims: {}", reason.as_str());
            self.violate(now, what);
        }
    }

    fn advance(&mut self, now: Timestamp, id: RunId, events: &[Event]) {
        let Some(tracked) = self.runs.get_mut(&id) else { return };
        tracked.rows += u32::from(!events.is_empty());
        if !events.is_empty() {
            tracked.moved_at = now;
        }
        let mut wrong = None;
        for event in events {
            if let Err(illegal) = apply(&mut tracked.run, event) {
                wrong.get_or_insert(illegal.to_string());
            }
            if matches!(event, Event::Stopping { .. } | Event::Ended { .. }) {
                tracked.stopped_at.get_or_insert(now);
            }
        }
        for what in events.iter().filter_map(kind_of) {
            self.count(what);
        }
        let short = self.short(id);
        self.note(now, || {
            let names: Vec<String> = events.iter().map(name).collect();
            format!("durable {short}: {}", names.join(", "))
        });
        if let Some(wrong) = wrong {
            self.violate(now, format!("the journal of {short} is not legal: {wrong}"));
        }
    }
}

/// What is worth counting.
fn kind_of(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::Answered { .. } => "callback early",
        Event::Retried { failure, .. } if failure.code == "REQUEST_TIMEOUT" => "request timed out, retried",
        Event::Retried { .. } => "attempt retried",
        Event::Requested { .. } => "request sent",
        Event::Began { .. } => "start recorded",
        Event::Paused { .. } => "run paused",
        Event::Resumed { .. } => "run resumed",
        Event::Skipped {
            reason: SkipReason::Guard,
            ..
        } => "guard false",
        Event::Finished {
            outcome: Outcome::Failed(failure),
            ..
        } => match failure.code.as_str() {
            code::WAIT_TIMEOUT => "wait timed out",
            code::TIMEOUT => "attempt timed out",
            code::RESOURCE_LINK_CONFLICT => "link refused",
            _ => return None,
        },
        Event::Ended { status, reason, .. } => match (status, reason.as_deref()) {
            (Status::Succeeded, _) => "run succeeded",
            (Status::Failed, Some("timeout")) => "run timed out",
            (Status::Failed, _) => "run failed",
            _ => "run cancelled",
        },
        _ => return None,
    })
}

fn name(event: &Event) -> String {
    match event {
        Event::Finished {
            node, attempt, outcome, ..
        } => {
            let how = if outcome.is_success() { "succeeded" } else { "failed" };
            format!("{node} {how} {attempt}")
        }
        Event::Routed { node, taken, .. } => format!("routed {node} {taken:?}"),
        Event::Stopping { reason, .. } => format!("stopping {reason}"),
        Event::Ended { status, .. } => format!("ended {status}"),
        other => format!(
            "{} {}",
            other.name(),
            other.node().map(NodeId::as_str).unwrap_or_default()
        ),
    }
}
