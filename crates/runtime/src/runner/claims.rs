//! The claim loop: which runs come to this process, and when it asks the store for them.
//!
//! What must stay true:
//! * One task claims. Before it claims again, the runs of the last claim are driven, dead-lettered or released.
//! * Free runs with new messages are claimed first, many in one transaction, and only while there is a place. The others stay
//!   due in the store.
//! * The store is asked when a run is due, when a claim came back full, and every `poll_interval`. A run that is due is not
//!   forgotten while there is no place for it.
//! * No slot stays free while a run is due (`claim_size.rs`).

use super::{
    claim_size::{CLAIM_BATCH, Load, claim_size},
    resume::{self, ReadBackoff},
    resumed::Resumed,
};
use crate::{clock::until, engine::Shared, settings::Settings};
use fermata_core::{RunId, Timestamp};
use fermata_store::{ChangeHint, runs::Claim};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::Instant,
};

/// The pause after a claim that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The claim loop.
pub(super) struct Claims {
    pub(super) shared: Arc<Shared>,
    /// Runs with new messages that this process does not hold.
    messaged: BTreeSet<RunId>,
    /// When the next run is due, as far as it is known.
    due: Option<Timestamp>,
    /// When the runs of dead runners are claimed next.
    claim_dead_at: Instant,
    pub(super) check_for_orphaned_leases: Instant,
    /// Whether the store is asked even if no run is known to be due.
    ask: bool,
    /// Whether one run is claimed also while all slots are taken: it may need none.
    spare: bool,
    /// How many runs may be claimed beyond the free slots.
    allowance: usize,
    /// Whether the notification channel is closed.
    closed: bool,
    read_backoff: ReadBackoff,
    /// Set while resumed runs are counted, after the start.
    resumed: Option<Resumed>,
    /// Whether the last claim failed.
    failed: bool,
}

impl Claims {
    pub(super) fn new(shared: Arc<Shared>) -> Claims {
        let now = Instant::now();
        Claims {
            messaged: BTreeSet::new(),
            due: None,
            claim_dead_at: now,
            check_for_orphaned_leases: now + shared.settings.lease_ttl,
            ask: true,
            spare: false,
            allowance: 0,
            closed: false,
            read_backoff: ReadBackoff::default(),
            resumed: Some(Resumed::new(shared.ids.next())),
            failed: false,
            shared,
        }
    }

    /// Runs until the process stops. A claim that was sent is always awaited: without its answer the claimed runs would be
    /// held and not driven.
    pub(super) async fn run(mut self, mut hints: Receiver<ChangeHint>) {
        while !self.shared.shutdown.is_stopping() {
            let now = self.shared.clock.now();
            if self.check_for_orphaned_leases <= Instant::now() {
                self.release_orphaned_leases().await;
            }
            self.claim_messaged(now).await;
            let full = self.claim_due(now).await;
            if self.ask && !full {
                continue; // there may be more
            }
            let pause = self.due.filter(|_| !full).map_or(Duration::MAX, |due| until(now, due));
            let pause = pause.min(self.shared.settings.poll_interval);
            let shared = self.shared.clone();
            tokio::select! {
                biased;
                () = shared.shutdown.stopping.cancelled() => return,
                hint = hints.recv(), if !self.closed => self.take_hint(hint, now),
                () = shared.wakes.claims.notified(), if full => {}
                () = tokio::time::sleep(pause) => (self.ask, self.spare) = (true, full),
            }
            // All pending hints are taken before the store is asked again.
            self.take_pending_hints(&mut hints, now);
        }
    }

    fn take_pending_hints(&mut self, hints: &mut Receiver<ChangeHint>, now: Timestamp) {
        loop {
            match hints.try_recv() {
                Ok(hint) => self.take_hint(Ok(hint), now),
                Err(TryRecvError::Lagged(missed)) => self.take_hint(Err(RecvError::Lagged(missed)), now),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take_hint(&mut self, hint: Result<ChangeHint, RecvError>, now: Timestamp) {
        match hint {
            Ok(ChangeHint::Due(at)) => self.note_due(at),
            Ok(ChangeHint::Inbox(_)) => {}
            Ok(ChangeHint::Messages(run)) => {
                if !self.shared.held.wake(run) && self.shared.settings.role.works() {
                    self.messaged.insert(run);
                }
            }
            Err(RecvError::Lagged(_)) => {
                self.shared.wakes.messages.notify_one();
                self.note_due(now);
            }
            Err(RecvError::Closed) => self.closed = true,
        }
    }

    fn note_due(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// How many runs the next claim may bring.
    fn limit(&mut self) -> usize {
        let admission = &self.shared.admission;
        let slots = &admission.action_slots;
        let load = Load {
            vacated: slots.vacated(),
            arrived: slots.arrived(),
            arriving: slots.arriving(),
            idle: slots.idle(),
            waiting: slots.waiting(),
            places: admission.places(),
            spare: self.spare,
        };
        let (size, allowance) = claim_size(load, self.allowance);
        self.allowance = allowance;
        size
    }

    /// Claims free runs with new messages, as far as there are places; one of them even if there is none. The others stay due
    /// in the store.
    async fn claim_messaged(&mut self, now: Timestamp) {
        while !self.messaged.is_empty() && !self.shared.shutdown.is_stopping() {
            let spare = usize::from(self.shared.admission.has_spare_place());
            let room = self.shared.admission.places().min(CLAIM_BATCH).max(spare);
            if room == 0 {
                self.messaged.clear();
                return self.note_due(now);
            }
            let rest = match self.messaged.iter().nth(room).copied() {
                Some(first) => self.messaged.split_off(&first),
                None => BTreeSet::new(),
            };
            let only: Vec<RunId> = std::mem::replace(&mut self.messaged, rest).into_iter().collect();
            let claim = Claim {
                runner: self.shared.runner.id,
                limit: only.len() as u32,
                now,
                only,
                dead_before: None,
            };
            self.claim(claim).await;
        }
    }

    /// Claims runs that are due, and from time to time runs of dead runners. True if runs are due and there is no room.
    async fn claim_due(&mut self, now: Timestamp) -> bool {
        if !self.ask && self.due.is_none_or(|due| due > now) {
            return false;
        }
        let limit = self.limit();
        if limit == 0 {
            return true;
        }
        (self.ask, self.spare, self.due) = (false, false, None);
        let takes_over = self.claim_dead_at <= Instant::now();
        let lease_gate = &self.shared.admission.lease_gate;
        let claim = Claim {
            runner: self.shared.runner.id,
            limit: limit as u32,
            now,
            only: Vec::new(),
            dead_before: takes_over.then(|| lease_gate.dead_before(now)),
        };
        let took_over = claim.dead_before.is_some_and(|before| before != Timestamp::default());
        let claimed = self.claim(claim).await;
        let is_last = claimed < limit;
        if is_last
            && !self.failed
            && let Some(resumed) = &mut self.resumed
        {
            resumed.log();
            self.resumed = self.resumed.take().filter(|_| !took_over);
        }
        if takes_over && !self.failed {
            let Settings {
                lease_ttl,
                poll_interval,
                ..
            } = self.shared.settings;
            self.claim_dead_at = Instant::now() + if is_last { lease_ttl / 3 } else { poll_interval };
        }
        if is_last {
            self.allowance = 0;
        } else {
            self.ask = true;
        }
        false
    }

    /// Claims runs and starts their drivers; how many runs came.
    async fn claim(&mut self, claim: Claim) -> usize {
        let shared = self.shared.clone();
        let lease_gate = &shared.admission.lease_gate;
        let gaps = lease_gate.gaps();
        match shared.control.claim(claim).await {
            Ok(claimed) => {
                self.failed = false;
                let count = claimed.runs.len();
                shared.metrics.claims.inc();
                shared.metrics.claimed_runs.add(count as u64);
                self.resumed.iter_mut().for_each(|resumed| resumed.count(&claimed.runs));
                resume::all(&shared, claimed.runs, gaps, &mut self.read_backoff).await;
                if gaps != lease_gate.gaps() {
                    self.check_for_orphaned_leases = Instant::now(); // claimed runs may have been refused by `HeldRuns::hold`
                }
                claimed.next_due.into_iter().for_each(|at| self.note_due(at));
                count
            }
            Err(error) => {
                if !self.failed {
                    shared
                        .health
                        .retried(None, &error, "runs could not be claimed; trying again");
                }
                self.failed = true;
                shared.metrics.failed_claims.inc();
                self.check_for_orphaned_leases = Instant::now(); // the claim may have been made all the same
                self.ask = true;
                tokio::time::sleep(RETRY_PAUSE).await;
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Engine, Settings,
        actions::{HttpSettings, Registry},
        clock::SystemClock,
    };
    use fermata_store::{RunnerStore, Store, memory::MemoryStore};
    use futures::FutureExt;
    use tokio::sync::broadcast;
    use uuid::Uuid;

    /// Without a heartbeat nothing is claimed.
    async fn confirm_heartbeat(shared: &Shared) -> Timestamp {
        let now = shared.clock.now();
        shared.store.heartbeat(&shared.runner, now).await.unwrap();
        let lease_gate = &shared.admission.lease_gate;
        let gap = lease_gate.beat(lease_gate.moment(), now).expect("the first one");
        lease_gate.checked(gap);
        now
    }

    #[tokio::test]
    async fn missed_hints_poll_the_store_once_and_wake_no_run() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store, registry, Settings::default(), Arc::new(SystemClock));
        let held = engine.shared.held.hold_new(RunId(Uuid::now_v7()), 1);
        let (sender, mut hints) = broadcast::channel(2);
        for micros in 1..=10 {
            sender.send(ChangeHint::Due(Timestamp(micros))).unwrap();
        }
        let mut claims = Claims::new(engine.shared.clone());
        claims.take_pending_hints(&mut hints, Timestamp(5));
        assert_eq!(claims.due, Some(Timestamp(5)), "the store is asked for runs at once");
        assert!(held.wake.notified().now_or_never().is_none(), "no run is woken");
        let woken = || engine.shared.wakes.messages.notified().now_or_never().is_some();
        assert!(woken() && !woken(), "the store is asked for pending messages once");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_claim_does_not_postpone_the_next_takeover() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store.clone(), registry, Settings::default(), Arc::new(SystemClock));
        let now = confirm_heartbeat(&engine.shared).await;
        let mut claims = Claims::new(engine.shared.clone());
        store.close().await.unwrap();
        assert!(!claims.claim_due(now).await);
        assert!(claims.failed && claims.claim_dead_at <= Instant::now());
    }

    /// Runs with new messages are claimed together, and only while there are places.
    #[tokio::test]
    async fn messages_claim_at_most_one_run_beyond_the_limit() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let settings = Settings {
            max_active_runs: 3,
            ..Settings::default()
        };
        let engine = Engine::new(store.clone(), registry, settings, Arc::new(SystemClock));
        let document = r#"{ "name": "naps", "tasks": { "nap": { "sleep": "1h" } } }"#;
        engine.workflows().add(document.as_bytes(), "naps.json").await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..5 {
            let request = crate::Request {
                workflow_id: "naps".to_owned(),
                ..crate::Request::default()
            };
            runs.push(engine.start(request).await.unwrap().run);
        }
        let shared = engine.shared.clone();
        let now = confirm_heartbeat(&shared).await;
        let mut claims = Claims::new(shared.clone());
        runs.iter()
            .for_each(|run| claims.take_hint(Ok(ChangeHint::Messages(*run)), now));
        claims.claim_messaged(now).await;
        let held = store.held(shared.runner.id, None, 10).await.unwrap();
        assert_eq!(held.iter().map(|lease| lease.run).collect::<Vec<_>>(), runs[..4]);
        assert!(claims.due.is_some_and(|due| due <= now), "the others are due");
        engine.crash();
    }
}
