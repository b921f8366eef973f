//! One held run: load, decide, commit, then act.
//!
//! A driver owns its run alone. It turns what happens (reports of attempts, mail, time) into events, commits
//! them, and only then starts what they ask for. While a commit is on its way, reports are collected for the
//! next. When a commit is refused, the run in memory is dropped and loaded again; attempts that execute here
//! go on, and reports that were not recorded are decided again.

mod attempt;
mod commit;
mod incoming;
mod judge;
mod meta;
mod step;
mod stop;

use crate::{
    action_slots::Arrival,
    compiled::Compiled,
    dead_letters::{self, Held},
    engine::{Hold, Shared},
    memory::Share,
    runner::{self, probation::Probation},
    scope::Payloads,
    slots::Slot,
};
use attempt::Report;
use fermata_core::{Effect, Fact, Input, NodeId, NodeIx, Run, Status, Timestamp, apply, conductor, decode};
use fermata_store::{
    StoreError,
    dead_letters::DeadReason,
    runs::{CommitAnswer, Conflict, Enqueued, NewRun, StoredRun},
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use incoming::{Incoming, Next, StepError};
pub(crate) use meta::Meta;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};
use step::Step;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    meta: Meta,
    compiled: Arc<Compiled>,
    run: Run,
    payloads: Payloads,
    /// The last journal row.
    seq: u32,
    inbox_seen: u64,
    /// Whether mail was there when the run was claimed.
    unread: bool,
    mail: Arc<Notify>,
    hold: Option<Hold>,
    /// Commits in a row whose outcome is not known.
    unconfirmed: u32,
    /// Whether its workflow was archived before it began.
    archived: bool,
    /// Until it is known to do no harm.
    probation: Option<Probation>,
    /// Until it has asked for its first turns.
    arrival: Option<Arrival>,
    attempts: FuturesUnordered<BoxFuture<'static, Report>>,
    /// Attempts that are in `attempts` or in `queueing`.
    running: BTreeSet<(NodeIx, u32)>,
    /// Attempts that wait for a slot before their start is recorded.
    queueing: FuturesUnordered<BoxFuture<'static, (NodeIx, u32, Option<Slot>)>>,
    /// Slots of attempts whose start is being recorded.
    slots: BTreeMap<(NodeIx, u32), Slot>,
    /// Set when the run stops: attempts that have no slot yet do not start.
    unwanted: CancellationToken,
    /// Set when running actions are stopped.
    halt: CancellationToken,
    /// When that is, if they have a grace period.
    halt_at: Option<Timestamp>,
    /// Whether a cancel was among the mail.
    cancel_asked: bool,
    /// Conditions and durations that are evaluated beside everything else, and the nodes they belong to.
    judging: FuturesUnordered<BoxFuture<'static, Fact>>,
    asked: BTreeSet<NodeId>,
    /// Attempts to start once their events are durable.
    ready: BTreeSet<(NodeIx, u32)>,
    /// Sleeps whose duration must be rendered.
    untimed: Vec<NodeIx>,
    /// Attempts whose time has not come.
    waiting: BTreeSet<(Timestamp, NodeIx, u32)>,
    /// Payloads of callbacks that were read from the inbox.
    answers: BTreeMap<NodeIx, (Arc<Value>, String)>,
}

impl Driver {
    /// A run that starts in this process. Its first step is part of its creation.
    pub fn for_new_run(
        shared: Arc<Shared>,
        meta: Meta,
        compiled: Arc<Compiled>,
        run: Run,
        payloads: Payloads,
    ) -> Driver {
        let hold = shared.hold_new(meta.id, meta.epoch);
        Driver {
            seq: 1,
            mail: hold.mail.clone(),
            hold: Some(hold),
            ..Driver::new(shared, meta, compiled, run, payloads)
        }
    }

    fn new(shared: Arc<Shared>, meta: Meta, compiled: Arc<Compiled>, run: Run, payloads: Payloads) -> Driver {
        Driver {
            mail: Arc::new(Notify::new()),
            hold: None,
            shared,
            meta,
            compiled,
            run,
            payloads,
            seq: 0,
            inbox_seen: 0,
            unread: false,
            unconfirmed: 0,
            archived: false,
            probation: None,
            arrival: None,
            attempts: FuturesUnordered::new(),
            running: BTreeSet::new(),
            queueing: FuturesUnordered::new(),
            slots: BTreeMap::new(),
            unwanted: CancellationToken::new(),
            halt: CancellationToken::new(),
            halt_at: None,
            cancel_asked: false,
            judging: FuturesUnordered::new(),
            asked: BTreeSet::new(),
            ready: BTreeSet::new(),
            untimed: Vec::new(),
            waiting: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    /// A run that was claimed when there had been so many gaps (`runner/lease_gate.rs`), rebuilt from its journal. `None` if
    /// its lease may be lost.
    pub fn recover(
        shared: Arc<Shared>,
        stored: &StoredRun,
        compiled: Arc<Compiled>,
        payloads: Payloads,
        archived: bool,
        probation: Option<Probation>,
        gaps: u64,
    ) -> Result<Option<Driver>, String> {
        let meta = Meta::of_stored(stored);
        let run = Run::new(compiled.plan.clone());
        let share = shared.count_claimed(payloads.size());
        let mut driver = Driver::new(shared, meta, compiled, run, payloads.counted(share));
        driver.replay(stored)?;
        driver.unread = stored.inbox_seq > stored.inbox_seen;
        driver.archived = archived;
        driver.probation = probation;
        driver.arrival = Some(driver.shared.action_slots.expect());
        let Some(hold) = driver.shared.hold(stored.id, stored.epoch, gaps) else {
            return Ok(None);
        };
        driver.mail = hold.mail.clone();
        driver.hold = Some(hold);
        Ok(Some(driver))
    }

    fn replay(&mut self, stored: &StoredRun) -> Result<(), String> {
        self.run = Run::new(self.compiled.plan.clone());
        for row in &stored.journal {
            for event in decode(row).map_err(|error| error.to_string())? {
                apply(&mut self.run, &event).map_err(|error| error.to_string())?;
            }
        }
        self.seq = stored.journal.len() as u32;
        self.inbox_seen = stored.inbox_seen;
        self.payloads.forget_entries();
        self.judging.clear();
        self.asked.clear();
        self.ready.clear();
        self.untimed.clear();
        self.waiting.clear();
        self.slots.clear();
        Ok(())
    }

    /// Stores the run and drives it. Both in a task of its own: once the run may be durable it is held by this
    /// process, which must drive it, whether or not whoever asked for it still waits for the answer.
    pub async fn store_and_drive(mut self, new: NewRun, memory: Option<Arc<Share>>) -> Result<Enqueued, StoreError> {
        let shared = self.shared.clone();
        let holder = shared.clone();
        let (tracker, abandon) = (shared.tasks.clone(), shared.abandon.clone());
        let (tell, told) = oneshot::channel();
        let (run, epoch, gaps) = (self.meta.id, self.meta.epoch, shared.lease_gate.gaps());
        let bear = async move {
            let mut tell = Some(tell);
            loop {
                let answer = shared.enqueue(new.clone()).await;
                let known = !matches!(answer, Err(StoreError::Unknown(_)));
                let created = matches!(answer, Ok(Enqueued::Created))
                    || (tell.is_none() && matches!(answer, Ok(Enqueued::Existing { run, .. }) if run == new.id));
                if let Some(tell) = tell.take() {
                    let _ = tell.send(answer); // nobody need be listening any more
                }
                match known {
                    true if created => {
                        drop((new, memory));
                        if self.still_holds(gaps).await {
                            self.drive_guarded().await;
                        }
                        return;
                    }
                    true => return,
                    false if shared.stopping.is_cancelled() => return,
                    false => tokio::time::sleep(pause_after(8)).await,
                }
            }
        };
        let task = tracker.spawn(async move {
            tokio::select! {
                biased;
                () = abandon.cancelled() => {}
                () = bear => {}
            }
        });
        holder.is_driven_by(run, epoch, task.abort_handle());
        told.await.unwrap_or(Err(StoreError::Closed))
    }

    /// A new run is stored. If there was a gap since it was sent, another process may have taken it over.
    async fn still_holds(&mut self, mut gaps: u64) -> bool {
        while !self.shared.is_stored(self.meta.id, self.meta.epoch, gaps) {
            gaps = self.shared.lease_gate.gaps();
            if !matches!(self.reload().await, Ok(true)) {
                return false;
            }
        }
        true
    }

    /// Drives the run in a task of its own. A claimed run that has not begun begins.
    pub fn spawn(mut self) {
        let (holder, run, epoch) = (self.shared.clone(), self.meta.id, self.meta.epoch);
        let shared = self.shared.clone();
        let tracker = shared.tasks.clone();
        let drive = async move {
            tokio::select! {
                biased;
                () = shared.abandon.cancelled() => {}
                () = self.drive_guarded() => {}
            }
            drop(self.hold.take());
        };
        let task = tracker.spawn(drive);
        holder.is_driven_by(run, epoch, task.abort_handle());
    }

    /// Drives the run. A panic is a fault of this program, or of the run that leads there; others must not suffer from it,
    /// and the run must not stay with a driver that is no more.
    async fn drive_guarded(&mut self) {
        if let Err(panic) = AssertUnwindSafe(self.drive()).catch_unwind().await {
            let what = attempt::panic_text(panic.as_ref());
            let what = format!("its driver panicked: {what}");
            self.quarantine(&what).await;
        }
    }

    async fn drive(&mut self) {
        let mut incoming = Vec::new();
        let mut touched: Vec<NodeIx> = self.run.active().collect();
        if self.unread {
            incoming.extend(self.fetch_messages().await);
        }
        loop {
            // A run that has not begun begins, also when that was not committed the first time.
            if self.run.status() == Status::Pending && !incoming.iter().any(Incoming::is_cancel) {
                let archived = self.archived;
                incoming.insert(0, if archived { Incoming::Archived } else { Incoming::Start });
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
            touched = self.run.active().collect();
        }
    }

    async fn quarantine(&mut self, what: &str) {
        runner::quarantine(&self.shared, self.meta.id, self.meta.epoch, what).await;
    }

    /// Ends a run whose commit was rejected. Leaving it to another runner would repeat its effects, so this is tried for as
    /// long as the process goes on.
    async fn fail_rejected(&mut self, what: &str) {
        let held = Held {
            run: self.meta.id,
            epoch: self.meta.epoch,
            takeovers: 0,
        };
        let mut failures = 8;
        while !dead_letters::dead_letter_run(&self.shared, held, DeadReason::Rejected, what).await {
            if self.shared.stopping.is_cancelled() {
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
            let end = commit.status.clone().filter(|change| change.status.is_terminal());
            let seen = self
                .shared
                .observer
                .as_ref()
                .map(|_| (commit.events.clone(), commit.attempts.clone()));
            self.seq += u32::from(!commit.events.is_empty());
            let (answer, reports) = self.commit(commit).await;
            next.extend(reports.into_iter().map(Incoming::Report));
            let inbox_seq = self.settle(answer, &step, &mut next)?;
            if let (Some(observer), Some((events, attempts))) = (&self.shared.observer, &seen) {
                observer.committed(self.meta.id, events, attempts);
            }
            if let Some(end) = end {
                self.tell_end(end);
                return Ok(Next::Leave);
            }
            if step.parks.is_some() {
                return Ok(Next::Leave);
            }
            self.payloads.forget_if_scarce();
            if inbox_seq > self.inbox_seen {
                next.extend(self.fetch_messages().await);
            }
        }
        // What is about to be cancelled does not begin.
        if !next.iter().any(Incoming::is_cancel)
            && let Err(error) = self.act().await
        {
            return Err(error.with(next));
        }
        if self.arrival.is_some() && next.is_empty() {
            // Attempts ask for their turns when they are looked at for the first time.
            let first = self.attempts.next().now_or_never().flatten();
            next = first.map_or_else(Vec::new, |report| self.reports_with(report));
        }
        self.arrival = None;
        if next.is_empty() {
            next = self.wait().await;
        }
        Ok(Next::Go(next))
    }

    /// Sends a commit and collects the reports that come in meanwhile.
    async fn commit(&mut self, commit: fermata_store::runs::RunCommit) -> (CommitAnswer, Vec<Arc<Report>>) {
        let store = self.shared.store.clone();
        let mut sending = store.commit(commit);
        let mut reports = Vec::new();
        loop {
            tokio::select! {
                biased;
                answer = &mut sending => return (answer, reports),
                Some(report) = self.attempts.next(), if !self.attempts.is_empty() => {
                    self.running.remove(&(report.node, report.attempt));
                    reports.push(Arc::new(report));
                }
            }
        }
    }

    /// Takes note of a commit's answer; the newest letter in the inbox if it is durable.
    fn settle(&mut self, answer: CommitAnswer, step: &Step, next: &mut Vec<Incoming>) -> Result<u64, StepError> {
        let undecided = |next: &mut Vec<Incoming>| {
            let later = next.drain(..).filter_map(Incoming::into_report);
            step.reports.iter().cloned().chain(later).collect::<Vec<_>>()
        };
        match answer {
            CommitAnswer::Committed { inbox_seq } => {
                self.inbox_seen = step.inbox_seen;
                self.unconfirmed = 0;
                self.probation = None;
                Ok(inbox_seq)
            }
            CommitAnswer::Fenced => {
                tracing::info!(run = %self.meta.id, "the lease is another's; letting go");
                Err(StepError::Lost)
            }
            CommitAnswer::Conflict(Conflict::Link { link, owner }) => {
                let mut reports = undecided(next);
                for report in &mut reports {
                    if self.compiled.plan.node(report.node).id == link.node && report.attempt == link.attempt {
                        *report = Arc::new(report.with_link_conflict(&link, owner));
                    }
                }
                Err(StepError::Reload(reports))
            }
            CommitAnswer::Conflict(Conflict::Answered { .. } | Conflict::Seq) => {
                Err(StepError::Reload(undecided(next)))
            }
            CommitAnswer::Unknown(what) => {
                tracing::warn!(run = %self.meta.id, %what, "a commit was not confirmed; loading the run again");
                self.unconfirmed += 1;
                Err(StepError::Reload(undecided(next)))
            }
            CommitAnswer::Rejected(what) => {
                let nodes = step
                    .reports
                    .iter()
                    .map(|report| &self.compiled.plan.node(report.node).id);
                let nodes: Vec<String> = nodes.take(3).map(|id| format!("`{id}`")).collect();
                let of = match nodes.is_empty() {
                    true => String::new(),
                    false => format!(" after node {}", nodes.join(", ")),
                };
                Err(StepError::Rejected(format!("the step{of} cannot be stored: {what}")))
            }
        }
    }

    /// Loads the run again; false if it is not ours any more.
    async fn reload(&mut self) -> Result<bool, String> {
        let mut failures = self.unconfirmed;
        loop {
            if failures > 0 {
                tokio::time::sleep(pause_after(failures)).await;
            }
            match self.shared.store.load(self.meta.id).await {
                Ok(Some(stored)) if self.holds(&stored) => {
                    return self.replay(&stored).map(|()| true);
                }
                Ok(_) => return Ok(false),
                Err(error) => tracing::warn!(run = %self.meta.id, %error, "the run cannot be loaded; trying again"),
            }
            failures += 1;
            if self.shared.stopping.is_cancelled() && failures > 5 {
                return Ok(false);
            }
        }
    }

    /// Whether the run is this driver's. After a commit that released it and was not confirmed, nobody's epoch is newer.
    fn holds(&self, stored: &StoredRun) -> bool {
        stored.owner == Some(self.shared.runner.id) && stored.epoch == self.meta.epoch
    }

    /// Starts what is ready, and tells what is no longer wanted.
    async fn act(&mut self) -> Result<(), StepError> {
        if self.run.stop().is_some() {
            self.wind_down();
            return Ok(());
        }
        if self.shared.stopping.is_cancelled() {
            return Ok(()); // whoever claims the run next starts them
        }
        for (ix, attempt) in std::mem::take(&mut self.ready) {
            self.start(ix, attempt).await?;
        }
        Ok(())
    }

    /// When time alone gives this run something to do.
    fn next_due(&self) -> Option<Timestamp> {
        let retry = self.waiting.first().map(|(due, ..)| *due);
        conductor::next_wake(&self.run).into_iter().chain(retry).min()
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Vec<Incoming> {
        let now = self.shared.clock.now();
        let proven = self.probation.as_ref().map(|probation| probation.look_again(now));
        let due = self.next_due().into_iter().chain(proven).chain(self.halts_at()).min();
        let pause = due.map(|due| crate::clock::until(now, due));
        let stopping = self.shared.stopping.is_cancelled();
        if stopping && self.running.is_empty() {
            return vec![Incoming::Tick]; // it was told to stop after it had decided
        }
        let mail = self.mail.clone();
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            Some(report) = self.attempts.next(), if !self.attempts.is_empty() => self.reports_with(report),
            Some((ix, attempt, slot)) = self.queueing.next(), if !self.queueing.is_empty() => {
                self.running.remove(&(ix, attempt));
                vec![Incoming::Slot(ix, attempt, slot)]
            }
            Some(fact) = self.judging.next(), if !self.judging.is_empty() => vec![Incoming::Verdicts(fact)],
            () = mail.notified() => self.fetch_messages().await,
            () = tokio::time::sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => vec![Incoming::Tick],
            () = shared.stopping.cancelled(), if !stopping => vec![Incoming::Tick],
        }
    }

    /// `first`, and whatever else is there already.
    fn reports_with(&mut self, first: Report) -> Vec<Incoming> {
        let mut reports = vec![first];
        while let Some(Some(report)) = self.attempts.next().now_or_never() {
            reports.push(report);
        }
        for report in &reports {
            self.running.remove(&(report.node, report.attempt));
        }
        reports
            .into_iter()
            .map(|report| Incoming::Report(Arc::new(report)))
            .collect()
    }

    async fn fetch_messages(&mut self) -> Vec<Incoming> {
        match self.shared.store.inbox(self.meta.id, self.inbox_seen).await {
            Ok(mail) => mail.into_iter().map(Incoming::StoredMessage).collect(),
            Err(error) => {
                tracing::warn!(run = %self.meta.id, %error, "the inbox cannot be read; trying again");
                self.mail.notify_one();
                tokio::time::sleep(Duration::from_millis(100)).await;
                Vec::new()
            }
        }
    }

    /// Sorts what these nodes need into now, later and never; the latter is told to the run at once.
    fn plan_work(&mut self, touched: &[NodeIx], now: Timestamp) -> Vec<Incoming> {
        let mut aborted = Vec::new();
        for ix in touched.iter().copied() {
            match conductor::effect_of(&self.run, ix) {
                Some(Effect::Execute { attempt, .. }) if self.running.contains(&(ix, attempt)) => {}
                Some(Effect::Execute { attempt, due, .. }) if due <= now => {
                    self.ready.insert((ix, attempt));
                }
                Some(Effect::Execute { attempt, due, .. }) => {
                    self.waiting.insert((due, ix, attempt));
                }
                Some(Effect::Abort { attempt, .. }) if !self.running.contains(&(ix, attempt)) => {
                    aborted.push(Incoming::Report(Arc::new(Report::never_started(ix, attempt, now))));
                }
                Some(Effect::Time { .. }) => self.untimed.push(ix),
                _ => {}
            }
        }
        aborted
    }

    /// Moves attempts whose time has come.
    fn wake_waiting(&mut self, now: Timestamp) {
        while let Some((due, ix, attempt)) = self.waiting.first().copied().filter(|(due, ..)| *due <= now) {
            self.waiting.remove(&(due, ix, attempt));
            self.ready.insert((ix, attempt));
        }
    }

    fn input(&self, fact: Fact) -> Input {
        Input::new(self.shared.clock.now(), fact)
    }
}

/// From 10 ms to 5 s.
fn pause_after(failures: u32) -> Duration {
    Duration::from_millis(5 << failures.min(10)).min(Duration::from_secs(5))
}
