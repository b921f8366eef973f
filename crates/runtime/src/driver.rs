//! One held run: load, decide, commit, then act.
//!
//! A driver alone owns its run. It turns what happens (reports of attempts, messages, time) into events, commits them, and only
//! then starts what they require. While a commit is in flight, reports are collected for the next one. When a commit is refused,
//! the run in memory is dropped and loaded again; attempts that execute here continue, and reports that were not recorded are
//! decided again.
//!
//! | file | content |
//! | --- | --- |
//! | `spawn.rs` | the task of a driver |
//! | `step.rs` | deciding: facts become events and rows |
//! | `judge.rs`, `evaluations.rs` | conditions and durations |
//! | `commit.rs`, `cached_state.rs` | the commit of a step and its answer; the cached state |
//! | `attempt.rs`, `attempts.rs` | one attempt; all attempts of the run |
//! | `children.rs`, `items.rs` | ends and cancels of child runs; nodes with one child for each item of a list |
//! | `requests.rs` | requests: tokens, inbox items, answers |
//! | `spans.rs` | spans of traces |
//! | `messages.rs`, `commands.rs` | messages: callbacks, cancels; pause and resume, skip, send again |
//! | `incoming.rs`, `stop.rs`, `lease.rs`, `meta.rs` | what may happen; stopping; guards; facts about the run |

mod attempt;
mod attempts;
mod cached_state;
pub(crate) mod children;
mod commands;
mod commit;
mod evaluations;
mod incoming;
pub(crate) mod items;
mod judge;
mod lease;
mod messages;
mod meta;
mod requests;
mod spans;
mod spawn;
mod step;
mod stop;

use crate::{
    compiled::Compiled,
    dead_letters::{self, Held},
    engine::{Ended, Shared},
    runner::{self, probation::Probation},
    scope::Payloads,
};
use attempt::Report;
use attempts::{Attempts, Outcome};
use children::ChildRuns;
use commit::CommitState;
use evaluations::Evaluations;
use fermata_core::{Effect, Event, NodeIx, Rerun, Run, Status, Timestamp, apply, conductor, decode};
use fermata_store::{dead_letters::DeadReason, runs::StoredRun};
use incoming::{Incoming, Next, StepError};
use lease::Lease;
use messages::Messages;
pub(crate) use meta::Meta;
use requests::Requests;
use std::{sync::Arc, time::Duration};
use stop::StopSignals;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    meta: Meta,
    compiled: Arc<Compiled>,
    run: Run,
    payloads: Payloads,
    commits: CommitState,
    messages: Messages,
    requests: Requests,
    children: ChildRuns,
    lease: Lease,
    attempts: Attempts,
    evaluations: Evaluations,
    stopping: StopSignals,
}

impl Driver {
    /// A run that starts in this process. Its first step is stored with the run itself.
    pub fn for_new_run(
        shared: Arc<Shared>,
        meta: Meta,
        compiled: Arc<Compiled>,
        run: Run,
        payloads: Payloads,
    ) -> Box<Driver> {
        let hold = shared.held.hold_new(meta.id, meta.epoch);
        let mut driver = Driver::new(shared, meta, compiled, run, payloads);
        driver.commits = CommitState::after(1);
        driver.messages.wake = hold.wake.clone();
        driver.lease = Lease::of(hold);
        driver
    }

    fn new(shared: Arc<Shared>, meta: Meta, compiled: Arc<Compiled>, run: Run, payloads: Payloads) -> Box<Driver> {
        Box::new(Driver {
            shared,
            meta,
            compiled,
            run,
            payloads,
            commits: CommitState::default(),
            messages: Messages::default(),
            requests: Requests::default(),
            children: ChildRuns::default(),
            lease: Lease::default(),
            attempts: Attempts::default(),
            evaluations: Evaluations::default(),
            stopping: StopSignals::default(),
        })
    }

    /// A claimed run, rebuilt from its journal. The claim was sent when `gaps` gaps had been counted
    /// (`runner/lease_gate.rs`); `None` if there was one since then, because the lease may be lost.
    pub fn recover(
        shared: Arc<Shared>,
        stored: &StoredRun,
        compiled: Arc<Compiled>,
        payloads: Payloads,
        archived: bool,
        probation: Option<Probation>,
        gaps: u64,
    ) -> Result<Option<Box<Driver>>, String> {
        let rerun = stored.rerun.as_deref().map(serde_json::from_str::<Rerun>);
        let rerun = rerun
            .transpose()
            .map_err(|error| format!("what it repeats cannot be read: {error}"))?;
        let compiled = match &rerun {
            Some(rerun) => shared
                .workflows
                .with_edits(&compiled, rerun)
                .map_err(|(_, what)| what)?,
            None => compiled,
        };
        let meta = Meta {
            reused: rerun.and_then(|rerun| rerun.reused),
            ..Meta::of_stored(stored, archived)
        };
        let run = Run::new(compiled.plan.clone());
        let share = shared.admission.count_claimed(payloads.size());
        let mut driver = Driver::new(shared, meta, compiled, run, payloads.counted(share));
        driver.replay(stored)?;
        driver.messages.pending = stored.message_seq > stored.messages_seen;
        driver.lease.probation = probation;
        driver.lease.arrival = Some(driver.shared.admission.action_slots.expect());
        let Some(hold) = driver.shared.held.hold(stored.id, stored.epoch, gaps) else {
            return Ok(None);
        };
        driver.messages.wake = hold.wake.clone();
        driver.lease.hold = Some(hold);
        Ok(Some(driver))
    }

    fn replay(&mut self, stored: &StoredRun) -> Result<(), String> {
        self.run = Run::new(self.compiled.plan.clone());
        for row in &stored.journal {
            for event in decode(row).map_err(|error| error.to_string())? {
                apply(&mut self.run, &event).map_err(|error| error.to_string())?;
            }
        }
        self.commits.seq = stored.journal.len() as u32;
        self.commits.writers_at_load = self.count_writers();
        self.messages.seen = stored.messages_seen;
        self.payloads.forget_entries();
        self.evaluations.clear();
        self.requests.forget();
        self.children = ChildRuns::default();
        self.attempts.forget_unstarted();
        Ok(())
    }

    async fn drive(&mut self) {
        let mut incoming = Vec::new();
        let mut touched: Vec<NodeIx> = self.run.active().collect();
        if self.messages.pending {
            incoming.extend(self.fetch_messages().await);
        }
        incoming.extend(self.awaits_children().then_some(Incoming::Children));
        loop {
            // A run that has not started starts, also if its first commit was not confirmed.
            if self.run.status() == Status::Pending && !incoming.iter().any(Incoming::is_cancel) {
                match self.meta.archived {
                    true => incoming.insert(0, Incoming::Archived),
                    false if self.is_paused_after(&incoming) => {}
                    false => incoming.insert(0, Incoming::Start),
                }
            }
            match self.step(incoming, touched).await {
                Ok(Next::Go(next)) => {
                    incoming = next;
                    touched = Vec::new();
                    continue;
                }
                Ok(Next::Leave) | Err(StepError::Lost) => return,
                Err(StepError::Stuck(what)) => return self.quarantine(&what).await,
                Err(StepError::Rejected(what)) => return self.fail_rejected(&what).await,
                Err(StepError::Reload(reports)) => incoming = reports.into_iter().map(Incoming::Report).collect(),
            }
            match self.reload().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(what) => return self.quarantine(&what).await,
            }
            incoming.extend(self.fetch_messages().await);
            incoming.extend(self.awaits_children().then_some(Incoming::Children));
            touched = self.run.active().collect();
        }
    }

    async fn quarantine(&mut self, what: &str) {
        runner::quarantine(&self.shared, self.meta.id, self.meta.epoch, what).await;
    }

    /// Ends a run whose commit was rejected. If it were released, another runner would repeat its effects. So this is tried
    /// until the process stops.
    async fn fail_rejected(&mut self, what: &str) {
        let held = Held {
            run: self.meta.id,
            epoch: self.meta.epoch,
            takeovers: 0,
        };
        let mut failures = 8;
        while !dead_letters::dead_letter_run(&self.shared, held, DeadReason::Rejected, what).await {
            if self.shared.shutdown.is_stopping() {
                return;
            }
            tokio::time::sleep(pause_after(failures)).await;
            failures += 1;
        }
    }

    /// One round: decide, commit, act, and wait for what happens next.
    async fn step(&mut self, incoming: Vec<Incoming>, touched: Vec<NodeIx>) -> Result<Next, StepError> {
        let mut step = self.decide(incoming, touched).await?;
        let mut next = Vec::new();
        if step.is_worth_a_commit() {
            let commit = self.build(&mut step).await?;
            let end = commit.status.as_ref().and_then(Ended::of);
            let starts = matches!(commit.events.first(), Some(Event::Started { .. }));
            let observed = self
                .shared
                .observer
                .as_ref()
                .map(|_| (commit.events.clone(), commit.attempts.clone()));
            let spans = self.spans(commit.at, &commit.events, &commit.attempts);
            self.commits.seq += u32::from(!commit.events.is_empty());
            let (answer, reports) = self.commit(commit).await;
            next.extend(reports.into_iter().map(Incoming::Report));
            let message_seq = self.settle(answer, &step, &mut next)?;
            if let (Some(observer), Some((events, attempts))) = (&self.shared.observer, &observed) {
                observer.committed(self.meta.id, events, attempts);
            }
            self.shared.emit(spans);
            if starts {
                self.count_start();
            }
            if let Some(end) = end {
                if let Some(parent) = self.meta.awaited_by {
                    self.shared.notify_parent(parent).await;
                }
                self.count_end(&end);
                let (id, seq) = (self.meta.id, self.commits.seq);
                self.shared.hub.committed(id, seq, || Some(end));
                return Ok(Next::Leave);
            }
            self.shared.hub.committed(self.meta.id, self.commits.seq, || None);
            if step.parks.is_some() {
                return Ok(Next::Leave);
            }
            self.payloads.forget_if_scarce();
            if message_seq > self.messages.seen {
                next.extend(self.fetch_messages().await);
            }
        }
        if std::mem::take(&mut self.children.read_again) {
            next.push(Incoming::Children);
        }
        // Nothing starts in a run that is about to be cancelled.
        if !next.iter().any(Incoming::is_cancel) {
            match self.act().await {
                Ok(more) => next.extend(more),
                Err(error) => return Err(error.with(next)),
            }
        }
        if self.lease.arrival.is_some()
            && next.is_empty()
            && let Some(first) = self.attempts.poll_first()
        {
            next = self.reports_with(first);
        }
        self.lease.arrival = None;
        if next.is_empty() {
            next = self.wait().await;
        }
        Ok(Next::Go(next))
    }

    /// Loads the run again; false if another runner holds it.
    async fn reload(&mut self) -> Result<bool, String> {
        let mut failures = self.commits.unconfirmed;
        loop {
            if failures > 0 {
                tokio::time::sleep(pause_after(failures)).await;
            }
            match self.shared.store.load(self.meta.id).await {
                Ok(Some(stored)) if self.holds(&stored) => {
                    return self.replay(&stored).map(|()| true);
                }
                Ok(_) => return Ok(false),
                Err(error) => {
                    let health = &self.shared.health;
                    health.retried(Some(self.meta.id), &error, "a run cannot be loaded; trying again");
                }
            }
            failures += 1;
            if self.shared.shutdown.is_stopping() && failures > 5 {
                return Ok(false);
            }
        }
    }

    /// Whether this driver holds the run. An unconfirmed commit may have released it: then it has no owner, under the same
    /// epoch.
    fn holds(&self, stored: &StoredRun) -> bool {
        stored.owner == Some(self.shared.runner.id) && stored.epoch == self.meta.epoch
    }

    /// Starts ready attempts and children, or stops attempts that run if the run is stopping. Returns what is known at once.
    async fn act(&mut self) -> Result<Vec<Incoming>, StepError> {
        if self.run.stop().is_some() {
            self.wind_down();
            return Ok(Vec::new());
        }
        if self.shared.shutdown.is_stopping() || self.run.paused_at().is_some() {
            return Ok(Vec::new()); // the runner that claims the run next starts them, or a resume does
        }
        let mut next = Vec::new();
        for (ix, attempt) in self.attempts.take_ready() {
            // A request may have been answered before it was sent.
            if !self.is_to_execute(ix, attempt) {
                continue;
            }
            match self.each(ix).is_some() && !self.run.must_record_start(ix) {
                true => next.push(self.list_items(ix, attempt).await?),
                false => self.start(ix, attempt).await?,
            }
        }
        next.extend(self.start_items().await?);
        Ok(next)
    }

    /// Whether this attempt of a node must be executed: it is open, and its request was not sent.
    fn is_to_execute(&self, ix: NodeIx, attempt: u32) -> bool {
        matches!(conductor::effect_of(&self.run, ix), Some(Effect::Execute { attempt: open, .. }) if open == attempt)
    }

    /// When time alone gives this run something to do.
    fn next_due(&self) -> Option<Timestamp> {
        let retry = self.attempts.next_due();
        conductor::next_wake(&self.run).into_iter().chain(retry).min()
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Vec<Incoming> {
        let now = self.shared.clock.now();
        let due = self.next_due().into_iter();
        let due = due.chain(self.lease.proven_at(now)).chain(self.halts_at());
        let due = due.chain(self.lingers_until()).min();
        let pause = due.map(|due| crate::clock::until(now, due));
        let stopping = self.shared.shutdown.is_stopping();
        if stopping && !self.attempts.any_running() {
            return vec![Incoming::Tick]; // the process began to stop after this step was decided
        }
        tokio::select! {
            biased;
            outcome = self.attempts.next() => match outcome {
                Outcome::Report(report) => self.reports_with(report),
                Outcome::Dequeued((ix, attempt, slot)) => vec![Incoming::Slot(ix, attempt, slot)],
            },
            fact = self.evaluations.next() => vec![Incoming::Verdicts(fact)],
            () = self.messages.wake.notified() => self.fetch_messages().await,
            () = tokio::time::sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => vec![Incoming::Tick],
            () = self.shared.shutdown.stopping.cancelled(), if !stopping => vec![Incoming::Tick],
        }
    }

    /// `first`, and all other reports that are there already.
    fn reports_with(&mut self, first: Report) -> Vec<Incoming> {
        let reports = self.attempts.with_pending_reports(first).into_iter();
        reports.map(|report| Incoming::Report(Arc::new(report))).collect()
    }

    /// Schedules the attempts and evaluations of these nodes. Attempts that are no longer wanted and never started are reported
    /// at once.
    fn plan_work(&mut self, touched: &[NodeIx], now: Timestamp) -> Vec<Incoming> {
        let mut aborted = Vec::new();
        for ix in touched.iter().copied() {
            match conductor::effect_of(&self.run, ix) {
                Some(Effect::Execute { attempt, due, .. }) if !self.attempts.is_running(ix, attempt) => {
                    self.attempts.schedule(ix, attempt, due, now);
                }
                Some(Effect::Abort { attempt, .. }) if !self.attempts.is_running(ix, attempt) => {
                    aborted.push(Incoming::Report(Arc::new(Report::never_started(ix, attempt, now))));
                }
                Some(Effect::Time { .. }) => self.evaluations.add_untimed(ix),
                Some(Effect::StartItems { .. }) => self.children.items.touch(ix),
                Some(Effect::Collect { .. }) => self.children.items.complete(ix),
                _ => {}
            }
        }
        aborted
    }
}

/// From 10 ms to 5 s.
fn pause_after(failures: u32) -> Duration {
    Duration::from_millis(5 << failures.min(10)).min(Duration::from_secs(5))
}
