//! The runner of this process: claims runs that are due, says that it lives, and hands back what it holds.

use crate::{driver::Driver, engine::Shared};
use fermata_core::{RunId, Status, Timestamp};
use fermata_store::{
    News,
    definitions::Lifecycle,
    runs::{Claim, RunCommit, StoredRun, Then},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::broadcast::{
    Receiver,
    error::{RecvError, TryRecvError},
};

/// At most this many runs come with one claim, so that others get their share.
const CLAIM_BATCH: usize = 64;
/// A run that cannot be advanced is looked at again after this.
const STUCK_PAUSE_MS: u64 = 60_000;

/// Works until the process is told to stop and everything has been handed back.
pub(crate) async fn run(shared: Arc<Shared>) {
    let news = shared.store.news();
    say_alive(&shared).await; // before anything is held, so that nobody takes it for a dead runner's
    let mut in_order = false;
    let working = async {
        tokio::select! {
            biased; // the same every time, so that a simulation repeats
            () = shared.stopping.cancelled() => {}
            () = claim_loop(shared.clone(), news), if shared.settings.role.works() => {}
        }
        in_order = hand_back(&shared).await;
    };
    tokio::select! {
        biased;
        () = working => {}
        () = heartbeat_loop(shared.clone()) => {} // also while work is handed back, or others would take it
    }
    if in_order {
        let _ = shared.store.retire(shared.me.id).await;
    }
}

/// Lets drivers finish what they do for a while. What they still hold then is free once this runner has retired.
/// False if it ends as in a crash.
async fn hand_back(shared: &Shared) -> bool {
    shared.tasks.close();
    let grace = shared.settings.shutdown_grace;
    let late = tokio::time::timeout(grace, shared.tasks.wait()).await.is_err();
    let in_order = !shared.abandon.is_cancelled();
    if late {
        tracing::warn!("some actions did not finish in time; their attempts will be repeated");
        shared.abandon.cancel();
        shared.tasks.wait().await;
    }
    in_order
}

async fn heartbeat_loop(shared: Arc<Shared>) {
    let mut beat = tokio::time::interval((shared.settings.lease_ttl / 3).max(Duration::from_millis(10)));
    loop {
        beat.tick().await;
        say_alive(&shared).await;
    }
}

async fn say_alive(shared: &Shared) {
    if let Err(error) = shared.store.heartbeat(&shared.me, shared.clock.now()).await {
        tracing::warn!(%error, "the heartbeat could not be written");
    }
}

async fn claim_loop(shared: Arc<Shared>, mut news: Receiver<News>) {
    let mut due: Option<Timestamp> = None;
    let mut look_for_dead = shared.clock.now();
    loop {
        let now = shared.clock.now();
        let takes_over = look_for_dead <= now;
        if takes_over {
            let pause = shared.settings.lease_ttl / 3;
            look_for_dead = now.plus_millis(pause.as_millis() as u64);
        }
        let (claimed, next) = claim_due(&shared, now, takes_over).await;
        due = match (due.filter(|due| *due > now), next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if claimed == CLAIM_BATCH {
            continue;
        }
        let full = shared.room() == 0;
        let pause = due
            .filter(|_| !full)
            .map_or(Duration::MAX, |due| crate::clock::until(now, due));
        let pause = pause.min(shared.settings.poll_interval);
        tokio::select! {
            biased;
            heard = news.recv() => hear(&shared, heard, &mut due, now).await,
            () = shared.look.notified(), if full => {}
            () = tokio::time::sleep(pause) => {}
        }
        // What was heard meanwhile is heard at once; only then is the store asked again.
        hear_rest(&shared, &mut news, &mut due, now).await;
    }
}

/// Hears all that was said, also that something was missed: nobody else would tell a held run of its mail.
async fn hear_rest(shared: &Arc<Shared>, news: &mut Receiver<News>, due: &mut Option<Timestamp>, now: Timestamp) {
    loop {
        match news.try_recv() {
            Ok(more) => hear(shared, Ok(more), due, now).await,
            Err(TryRecvError::Lagged(missed)) => hear(shared, Err(RecvError::Lagged(missed)), due, now).await,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

async fn hear(shared: &Arc<Shared>, heard: Result<News, RecvError>, due: &mut Option<Timestamp>, now: Timestamp) {
    match heard {
        Ok(News::Due(at)) => *due = Some(due.map_or(at, |due| due.min(at))),
        Ok(News::Inbox(run)) => {
            if !shared.ring(run) {
                let claim = Claim {
                    runner: shared.me.id,
                    limit: 1,
                    now,
                    only: Some(run),
                    dead_before: None,
                };
                take(shared, claim).await;
            }
        }
        Err(RecvError::Lagged(_)) => {
            shared.ring_all();
            *due = Some(now);
        }
        Err(RecvError::Closed) => tokio::time::sleep(shared.settings.poll_interval).await,
    }
}

async fn claim_due(shared: &Arc<Shared>, now: Timestamp, takes_over: bool) -> (usize, Option<Timestamp>) {
    let limit = shared.room().min(CLAIM_BATCH);
    if limit == 0 {
        return (0, None);
    }
    let ttl = i64::try_from(shared.settings.lease_ttl.as_micros()).unwrap_or(i64::MAX);
    let claim = Claim {
        runner: shared.me.id,
        limit: limit as u32,
        now,
        only: None,
        dead_before: takes_over.then(|| Timestamp(now.0.saturating_sub(ttl))),
    };
    take(shared, claim).await
}

async fn take(shared: &Arc<Shared>, claim: Claim) -> (usize, Option<Timestamp>) {
    match shared.store.claim(claim).await {
        Ok(claimed) => {
            let count = claimed.runs.len();
            for run in claimed.runs {
                resume(shared, run).await;
            }
            (count, claimed.next_due)
        }
        Err(error) => {
            tracing::warn!(%error, "runs could not be claimed; trying again");
            tokio::time::sleep(Duration::from_millis(200)).await;
            (0, None)
        }
    }
}

async fn resume(shared: &Arc<Shared>, stored: StoredRun) {
    if stored.takeovers > 3 {
        tracing::warn!(run = %stored.id, takeovers = stored.takeovers, "this run was claimed again and again without a commit");
    }
    let driver = match shared
        .workflows
        .compiled(&stored.workflow_id, stored.workflow_version)
        .await
    {
        Ok(compiled) => {
            let archived = stored.status == Status::Pending && is_archived(shared, &stored.workflow_id).await;
            Driver::recover(shared.clone(), &stored, compiled, archived)
        }
        Err(error) => Err(error.to_string()),
    };
    match driver {
        Ok(driver) => driver.spawn(),
        Err(what) => put_aside(shared, stored.id, stored.epoch, stored.inbox_seen, &what).await,
    }
}

async fn is_archived(shared: &Shared, workflow: &str) -> bool {
    matches!(shared.store.workflow(workflow).await, Ok(Some(workflow)) if workflow.status == Lifecycle::Archived)
}

/// Releases a run that this program cannot advance, to be looked at again later.
pub(crate) async fn put_aside(shared: &Shared, run: RunId, epoch: u64, inbox_seen: u64, what: &str) {
    tracing::error!(%run, %what, "a run cannot be advanced; it is put aside for a minute");
    let at = shared.clock.now();
    let commit = RunCommit {
        run,
        runner: shared.me.id,
        epoch,
        seq: 0,
        at,
        events: Vec::new(),
        attempts: Vec::new(),
        links: Vec::new(),
        waits: Vec::new(),
        inbox_seen,
        status: None,
        dead_letter: None,
        then: Then::Park {
            wake_at: Some(at.plus_millis(STUCK_PAUSE_MS)),
        },
    };
    shared.store.commit(commit).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Engine, Settings,
        actions::{HttpSettings, Registry},
        clock::SystemClock,
    };
    use fermata_store::memory::MemoryStore;
    use futures::FutureExt;
    use tokio::sync::broadcast;
    use uuid::Uuid;

    #[tokio::test]
    async fn who_missed_something_tells_every_run_to_look() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store, registry, Settings::default(), Arc::new(SystemClock));
        let held = engine.shared.hold(RunId(Uuid::now_v7()), 1);
        let (say, mut news) = broadcast::channel(2);
        for micros in 1..=10 {
            say.send(News::Due(Timestamp(micros))).unwrap();
        }
        let mut due = None;
        hear_rest(&engine.shared, &mut news, &mut due, Timestamp(5)).await;
        assert_eq!(due, Some(Timestamp(5)), "the store is asked at once");
        assert!(held.mail.notified().now_or_never().is_some(), "and so is the inbox");
    }
}
