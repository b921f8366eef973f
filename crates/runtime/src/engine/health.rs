//! How the store behaves, for the log: outages and slow commits.
//!
//! An outage begins with a heartbeat that was not confirmed and ends with the next one that was. Its begin and end are logged
//! once each. What fails meanwhile for each run or loop is logged at `debug`: it has the same cause.

use super::lock;
use fermata_core::RunId;
use std::{
    fmt::Display,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// A commit that takes longer is logged.
const SLOW_COMMIT: Duration = Duration::from_secs(1);

/// At most one slow commit is logged in this time; the others are counted.
const SLOW_COMMIT_INTERVAL: Duration = Duration::from_secs(10);

/// What is known of the store's condition.
#[derive(Default)]
pub(crate) struct StoreHealth {
    is_out: AtomicBool,
    outage: Mutex<Outage>,
    slow: Mutex<SlowCommits>,
}

#[derive(Default)]
struct Outage {
    since: Option<Instant>,
}

#[derive(Default)]
struct SlowCommits {
    logged_at: Option<Instant>,
    /// Slow commits since then that were not logged.
    omitted: u64,
}

impl StoreHealth {
    /// A heartbeat was not confirmed.
    pub fn heartbeat_failed(&self, error: &dyn Display) {
        let mut outage = lock(&self.outage);
        if outage.since.is_some() {
            return tracing::debug!(%error, "a heartbeat was not confirmed");
        }
        outage.since = Some(Instant::now());
        self.is_out.store(true, Relaxed);
        tracing::error!(
            %error,
            "the database cannot be reached: a heartbeat was not confirmed. Running actions continue, and nothing new starts \
             once the last confirmed heartbeat is too old"
        );
    }

    /// A heartbeat was confirmed.
    pub fn heartbeat_confirmed(&self) {
        if !self.is_out.load(Relaxed) {
            return;
        }
        let since = lock(&self.outage).since.take();
        self.is_out.store(false, Relaxed);
        if let Some(since) = since {
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!("the database can be reached again after {seconds:.1} s");
        }
    }

    /// Whether an outage has begun and not ended.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    /// Logs an access to the store that failed and is retried.
    pub fn retried(&self, run: Option<RunId>, error: &dyn Display, what: &'static str) {
        let run = run.map(tracing::field::display);
        match self.is_out() {
            true => tracing::debug!(ExecutionId = run, %error, "{what}"),
            false => tracing::warn!(ExecutionId = run, %error, "{what}"),
        }
    }

    /// A commit was confirmed after this time.
    pub fn committed(&self, run: RunId, took: Duration) {
        if took < SLOW_COMMIT {
            return;
        }
        let mut slow = lock(&self.slow);
        let now = Instant::now();
        if slow.logged_at.is_some_and(|at| now - at < SLOW_COMMIT_INTERVAL) {
            slow.omitted += 1;
            return;
        }
        let omitted = std::mem::take(&mut slow.omitted);
        slow.logged_at = Some(now);
        tracing::warn!(
            ExecutionId = %run, took_ms = took.as_millis() as u64, omitted,
            "a commit was slow; the database or its disk may be overloaded"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_capture::LogCapture;
    use uuid::Uuid;

    #[tokio::test(start_paused = true)]
    async fn outage_is_logged_once_at_its_begin_and_once_at_its_end() {
        let log = LogCapture::begin();
        let health = StoreHealth::default();
        health.heartbeat_confirmed();
        assert_eq!(log.take(), Vec::<String>::new());
        let run = RunId(Uuid::now_v7());
        health.retried(Some(run), &"refused", "a run cannot be loaded");
        let before = log.take();
        assert!(
            matches!(&before[..], [line] if line.contains("WARN") && line.contains(&run.to_string())),
            "{before:?}"
        );
        for _ in 0..3 {
            health.heartbeat_failed(&"connection refused");
            health.retried(Some(run), &"refused", "a run cannot be loaded");
        }
        let begin = log.take();
        assert!(
            matches!(&begin[..], [line] if line.contains("ERROR") && line.contains("connection refused")),
            "{begin:?}"
        );
        tokio::time::advance(Duration::from_millis(2500)).await;
        health.heartbeat_confirmed();
        health.heartbeat_confirmed();
        let end = log.take();
        assert!(
            matches!(&end[..], [line] if line.contains("INFO") && line.contains("again after 2.5 s")),
            "{end:?}"
        );
        health.heartbeat_failed(&"connection refused");
        assert_eq!(log.take().len(), 1, "the next outage is logged again");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_commits_are_logged_once_in_ten_seconds() {
        let log = LogCapture::begin();
        let health = StoreHealth::default();
        let run = RunId(Uuid::now_v7());
        health.committed(run, Duration::from_millis(999));
        assert_eq!(log.take(), Vec::<String>::new(), "this is not slow");
        for _ in 0..3 {
            health.committed(run, Duration::from_millis(1500));
        }
        let lines = log.take();
        assert!(
            matches!(&lines[..], [line] if line.contains("WARN") && line.contains("took_ms=1500") && line.contains("omitted=0")),
            "{lines:?}"
        );
        tokio::time::advance(SLOW_COMMIT_INTERVAL).await;
        health.committed(run, Duration::from_secs(2));
        let lines = log.take();
        assert!(matches!(&lines[..], [line] if line.contains("omitted=2")), "{lines:?}");
    }
}
