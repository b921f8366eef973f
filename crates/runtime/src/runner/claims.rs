//! Which runs come to this process, and when it asks for them.
//!
//! What must stay true:
//! * One task claims. When it asks again, what came with the last claim is driven, dead_lettered or given back.
//! * Free runs with new messages are claimed first, many in one transaction, and only while there is room. What there is no
//!   room for is due in the store.
//! * The store is asked when something is due, when a claim came back full, and every `poll_interval`. What is due is not
//!   forgotten while there is no room for it.
//! * No turn stays free while something is due: room is what free turns, and runs that need none, leave.

use super::resume;
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

/// At most this many runs come with one claim, so that others get their share.
pub(crate) const CLAIM_BATCH: usize = 64;

/// So many runs may come beyond the turns that are free.
const MAX_ARRIVING: usize = 4 * CLAIM_BATCH;

/// The task that claims.
pub(super) struct Claims {
    pub(super) shared: Arc<Shared>,
    /// Runs with new messages that this process does not hold.
    messaged: BTreeSet<RunId>,
    /// When something is due, as far as it is known.
    due: Option<Timestamp>,
    look_for_dead: Instant,
    pub(super) check_for_orphaned_leases: Instant,
    /// Whether the store is asked in any case.
    ask: bool,
    /// Whether one is claimed also where there is no room: it may need no turn.
    spare: bool,
    /// How many runs may come beyond the turns that are free.
    eager: usize,
    /// Whether no notification will come any more.
    silent: bool,
}

impl Claims {
    pub(super) fn new(shared: Arc<Shared>) -> Claims {
        let now = Instant::now();
        Claims {
            messaged: BTreeSet::new(),
            due: None,
            look_for_dead: now,
            check_for_orphaned_leases: now + shared.settings.lease_ttl,
            ask: true,
            spare: false,
            eager: 0,
            silent: false,
            shared,
        }
    }

    /// Until the process is told to stop. What was asked for is taken: whoever goes away before the answer leaves runs
    /// behind that nobody drives.
    pub(super) async fn run(mut self, mut news: Receiver<ChangeHint>) {
        while !self.shared.stopping.is_cancelled() {
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
                () = shared.stopping.cancelled() => return,
                heard = news.recv(), if !self.silent => self.hear(heard, now),
                () = shared.wake_claims.notified(), if full => {}
                () = tokio::time::sleep(pause) => (self.ask, self.spare) = (true, full),
            }
            // What was heard meanwhile is heard at once; only then is the store asked again.
            self.hear_rest(&mut news, now);
        }
    }

    /// Takes in all notifications that are there, also that some were missed.
    fn hear_rest(&mut self, news: &mut Receiver<ChangeHint>, now: Timestamp) {
        loop {
            match news.try_recv() {
                Ok(more) => self.hear(Ok(more), now),
                Err(TryRecvError::Lagged(missed)) => self.hear(Err(RecvError::Lagged(missed)), now),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn hear(&mut self, heard: Result<ChangeHint, RecvError>, now: Timestamp) {
        match heard {
            Ok(ChangeHint::Due(at)) => self.note_due(at),
            Ok(ChangeHint::Inbox(run)) => {
                if !self.shared.ring(run) && self.shared.settings.role.works() {
                    self.messaged.insert(run);
                }
            }
            Err(RecvError::Lagged(_)) => {
                self.shared.check_messages.notify_one();
                self.note_due(now);
            }
            Err(RecvError::Closed) => self.silent = true,
        }
    }

    fn note_due(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// How many runs may come. Free turns want to be used; what would have to wait for one should wait in the store, where
    /// another process may have one. While runs come and go without using up the turns, more of them may come at once.
    fn limit(&mut self) -> usize {
        let turns = &self.shared.action_slots;
        let (vacated, arrived) = (turns.vacated(), turns.arrived());
        let (arriving, idle) = (turns.arriving(), turns.idle());
        let fits = match turns.waiting() {
            0 => {
                let needed_none = if idle > arriving { arrived } else { 0 };
                self.eager = (self.eager + needed_none).min(MAX_ARRIVING);
                (idle + self.eager).saturating_sub(arriving)
            }
            // One comes for each that goes: it may be somebody with little to do.
            _ => {
                self.eager /= 2;
                vacated
            }
        };
        fits.max(usize::from(self.spare))
            .min(self.shared.places())
            .min(CLAIM_BATCH)
    }

    /// Claims free runs with new messages, as far as there is room, and one of them where there is none. They are due, so the
    /// others are not forgotten.
    async fn claim_messaged(&mut self, now: Timestamp) {
        while !self.messaged.is_empty() && !self.shared.stopping.is_cancelled() {
            let spare = usize::from(self.shared.has_spare_place());
            let room = self.shared.places().min(CLAIM_BATCH).max(spare);
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
            self.take(claim).await;
        }
    }

    /// Claims what is due, and what dead runners hold. True if something waits for room.
    async fn claim_due(&mut self, now: Timestamp) -> bool {
        if !self.ask && self.due.is_none_or(|due| due > now) {
            return false;
        }
        let limit = self.limit();
        if limit == 0 {
            return true;
        }
        (self.ask, self.spare, self.due) = (false, false, None);
        let takes_over = self.look_for_dead <= Instant::now();
        let claim = Claim {
            runner: self.shared.runner.id,
            limit: limit as u32,
            now,
            only: Vec::new(),
            dead_before: takes_over.then(|| self.shared.lease_gate.dead_before(now)),
        };
        let came = self.take(claim).await;
        let all = came < limit;
        if takes_over {
            let Settings {
                lease_ttl,
                poll_interval,
                ..
            } = self.shared.settings;
            self.look_for_dead = Instant::now() + if all { lease_ttl / 3 } else { poll_interval };
        }
        if all {
            self.eager = 0;
        } else {
            self.ask = true;
        }
        false
    }

    async fn take(&mut self, claim: Claim) -> usize {
        let gaps = self.shared.lease_gate.gaps();
        match self.shared.control.claim(claim).await {
            Ok(claimed) => {
                let count = claimed.runs.len();
                resume::all(&self.shared, claimed.runs, gaps).await;
                if gaps != self.shared.lease_gate.gaps() {
                    self.check_for_orphaned_leases = Instant::now(); // what came may not be driven
                }
                claimed.next_due.into_iter().for_each(|at| self.note_due(at));
                count
            }
            Err(error) => {
                tracing::warn!(%error, "runs could not be claimed; trying again");
                self.check_for_orphaned_leases = Instant::now(); // the claim may have been made all the same
                self.ask = true;
                tokio::time::sleep(Duration::from_millis(200)).await;
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
    use fermata_store::{Store, memory::MemoryStore};
    use futures::FutureExt;
    use tokio::sync::broadcast;
    use uuid::Uuid;

    #[tokio::test]
    async fn missed_notifications_ask_the_store_once_and_wake_no_run() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store, registry, Settings::default(), Arc::new(SystemClock));
        let held = engine.shared.hold_new(RunId(Uuid::now_v7()), 1);
        let (say, mut news) = broadcast::channel(2);
        for micros in 1..=10 {
            say.send(ChangeHint::Due(Timestamp(micros))).unwrap();
        }
        let mut claims = Claims::new(engine.shared.clone());
        claims.hear_rest(&mut news, Timestamp(5));
        assert_eq!(claims.due, Some(Timestamp(5)), "the store is asked for runs at once");
        assert!(held.mail.notified().now_or_never().is_none(), "no run is woken");
        let asked = || engine.shared.check_messages.notified().now_or_never().is_some();
        assert!(asked() && !asked(), "the store is asked for pending messages once");
    }

    /// Runs with new messages are claimed together, and only while there is room.
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
        let now = shared.clock.now();
        shared.store.heartbeat(&shared.runner, now).await.unwrap();
        let gap = shared
            .lease_gate
            .beat(shared.lease_gate.moment(), now)
            .expect("the first one");
        shared.lease_gate.checked(gap);
        let mut claims = Claims::new(shared.clone());
        runs.iter()
            .for_each(|run| claims.hear(Ok(ChangeHint::Inbox(*run)), now));
        claims.claim_messaged(now).await;
        let held = store.held(shared.runner.id, None, 10).await.unwrap();
        assert_eq!(held.iter().map(|lease| lease.run).collect::<Vec<_>>(), runs[..4]);
        assert!(claims.due.is_some_and(|due| due <= now), "the others are due");
        engine.crash();
    }
}
