//! The attempts of a held run: due later, ready to start, waiting for a slot, executing.
//!
//! | state | where | next |
//! | --- | --- | --- |
//! | due later | `delayed` | ready, when its time has come |
//! | ready | `ready` | started after the commit of the step that opened it |
//! | waits for a slot before its start is recorded | `queueing` | its slot is kept in `slots` until `Began` is committed |
//! | executes, or waits for a slot and then executes | `executing` | its report |
//!
//! What must stay true: `running` has exactly the attempts of `queueing` and `executing`, so no attempt starts twice here.

use super::attempt::Report;
use crate::slots::Slot;
use fermata_core::{NodeIx, Timestamp};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// An attempt that waited for a slot before its start is recorded. Without a slot the run or the process is stopping.
pub(super) type Dequeued = (NodeIx, u32, Option<Slot>);

/// What an attempt in this process came to.
pub(super) enum Outcome {
    Report(Report),
    Dequeued(Dequeued),
}

#[derive(Default)]
pub(super) struct Attempts {
    delayed: BTreeSet<(Timestamp, NodeIx, u32)>,
    ready: BTreeSet<(NodeIx, u32)>,
    queueing: FuturesUnordered<BoxFuture<'static, Dequeued>>,
    slots: BTreeMap<(NodeIx, u32), Slot>,
    executing: FuturesUnordered<BoxFuture<'static, Report>>,
    running: BTreeSet<(NodeIx, u32)>,
    /// Requests that execute, and how to stop them.
    requests: BTreeMap<(NodeIx, u32), CancellationToken>,
}

impl Attempts {
    /// Forgets attempts that were not started, because the run is loaded again. Those that run continue.
    pub fn forget_unstarted(&mut self) {
        self.delayed.clear();
        self.forget_ready();
    }

    /// Forgets attempts that could start now, because the run is stopping.
    pub fn forget_ready(&mut self) {
        self.ready.clear();
        self.slots.clear();
    }

    pub fn is_running(&self, ix: NodeIx, attempt: u32) -> bool {
        self.running.contains(&(ix, attempt))
    }

    pub fn any_running(&self) -> bool {
        !self.running.is_empty()
    }

    pub fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next delayed attempt is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(due, ..)| *due)
    }

    /// Notes an attempt that is due at `due`.
    pub fn schedule(&mut self, ix: NodeIx, attempt: u32, due: Timestamp, now: Timestamp) {
        if due <= now {
            self.make_ready(ix, attempt);
        } else {
            self.delayed.insert((due, ix, attempt));
        }
    }

    pub fn make_ready(&mut self, ix: NodeIx, attempt: u32) {
        self.ready.insert((ix, attempt));
    }

    /// Moves delayed attempts that are due to the ready ones.
    pub fn wake_delayed(&mut self, now: Timestamp) {
        while let Some((due, ix, attempt)) = self.delayed.first().copied().filter(|(due, ..)| *due <= now) {
            self.delayed.remove(&(due, ix, attempt));
            self.ready.insert((ix, attempt));
        }
    }

    pub fn take_ready(&mut self) -> BTreeSet<(NodeIx, u32)> {
        std::mem::take(&mut self.ready)
    }

    /// Keeps the slot of an attempt until its start is recorded.
    pub fn keep_slot(&mut self, ix: NodeIx, attempt: u32, slot: Slot) {
        self.slots.insert((ix, attempt), slot);
    }

    pub fn take_slot(&mut self, ix: NodeIx, attempt: u32) -> Option<Slot> {
        self.slots.remove(&(ix, attempt))
    }

    pub fn queue(&mut self, ix: NodeIx, attempt: u32, wait: BoxFuture<'static, Dequeued>) {
        self.running.insert((ix, attempt));
        self.queueing.push(wait);
    }

    pub fn execute(&mut self, ix: NodeIx, attempt: u32, execute: BoxFuture<'static, Report>) {
        self.running.insert((ix, attempt));
        self.executing.push(execute);
    }

    /// Keeps the signal that stops a request before it is sent.
    pub fn keep_signal(&mut self, ix: NodeIx, attempt: u32, signal: CancellationToken) {
        self.requests.insert((ix, attempt), signal);
    }

    /// Stops a request that was answered before it was sent.
    pub fn stop_request(&mut self, ix: NodeIx, attempt: u32) {
        if let Some(signal) = self.requests.remove(&(ix, attempt)) {
            signal.cancel();
        }
    }

    /// Polls the executing attempts for the first time: only then do they request their slots.
    pub fn poll_first(&mut self) -> Option<Report> {
        let report = self.executing.next().now_or_never().flatten()?;
        Some(self.ended(report))
    }

    /// `first`, and all other reports that are there already.
    pub fn with_pending_reports(&mut self, first: Report) -> Vec<Report> {
        let mut reports = vec![first];
        while let Some(Some(report)) = self.executing.next().now_or_never() {
            reports.push(self.ended(report));
        }
        reports
    }

    /// Waits for the next report. Never returns while nothing executes.
    pub async fn next_report(&mut self) -> Report {
        match self.executing.next().await {
            Some(report) => self.ended(report),
            None => std::future::pending().await,
        }
    }

    /// Waits for the next report or slot. Never returns while nothing runs.
    pub async fn next(&mut self) -> Outcome {
        tokio::select! {
            biased;
            Some(report) = self.executing.next() => Outcome::Report(self.ended(report)),
            Some((ix, attempt, slot)) = self.queueing.next() => {
                self.running.remove(&(ix, attempt));
                Outcome::Dequeued((ix, attempt, slot))
            }
            else => std::future::pending().await,
        }
    }

    fn ended(&mut self, report: Report) -> Report {
        self.running.remove(&(report.node, report.attempt));
        self.requests.remove(&(report.node, report.attempt));
        report
    }
}
