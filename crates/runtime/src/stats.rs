//! Numbers of runs: counted in memory, written once a minute.
//!
//! A process counts the starts and ends that it commits, by minute, workflow and tenant. When a minute is over, its counts are written
//! as rows of that minute and process; then they are forgotten. So a commit writes nothing more, and a process that is killed loses the
//! counts of the minute that it had not written: at most about one minute. A process that stops writes them. What this process
//! counted in the minute that is not over is added when numbers are read.
//!
//! What must stay true: counts that could not be written are kept and written again. A row is written whole, so nothing is
//! counted twice.

use crate::{
    engine::{Engine, Shared, lock},
    error::EngineError,
    reads::{MAX_PAGE, Reads},
    session::Session,
};
use fermata_core::{Status, Timestamp};
use fermata_store::{
    StoreError,
    stats::{KEPT_MINUTES, RunCounts, Stats, StatsFilter, StatsRow, minute_of, start_of},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use uuid::Uuid;

/// The most minutes that are kept while they cannot be written.
const MAX_MINUTES: usize = 60;

/// The shortest pause between two looks at the clock.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Old rows are removed once in this many minutes.
const PRUNE_EVERY: i64 = 60;

/// Counts by workflow and tenant.
type Counted = BTreeMap<(Uuid, Arc<str>), Counts>;

#[derive(Default, Clone)]
struct Counts {
    workflow: Arc<str>,
    runs: RunCounts,
    waiting: Option<u64>,
}

/// What this process counted and has not written.
#[derive(Default)]
pub(crate) struct RunNumbers(Mutex<BTreeMap<i64, Counted>>);

/// A run that is counted.
pub(crate) struct CountedRun<'a> {
    pub workflow_uid: Uuid,
    pub workflow: &'a str,
    pub tenant: &'a Arc<str>,
}

impl RunNumbers {
    /// A run started.
    pub fn started(&self, run: &CountedRun<'_>, at: Timestamp) {
        self.count(run, at, |counts| counts.runs.started += 1);
    }

    /// A run ended.
    pub fn ended(&self, run: &CountedRun<'_>, at: Timestamp, status: Status, took: Duration) {
        self.count(run, at, |counts| counts.runs.end(status, took));
    }

    fn count(&self, run: &CountedRun<'_>, at: Timestamp, count: impl FnOnce(&mut Counts)) {
        let mut minutes = lock(&self.0);
        let counted = minutes.entry(minute_of(at)).or_default();
        let counts = counted.entry((run.workflow_uid, run.tenant.clone())).or_default();
        if counts.workflow.is_empty() {
            counts.workflow = run.workflow.into();
        }
        count(counts);
    }

    /// The counts of minutes before this one.
    fn before(&self, minute: i64) -> BTreeMap<i64, Counted> {
        let minutes = lock(&self.0);
        minutes
            .range(..minute)
            .map(|(at, counted)| (*at, counted.clone()))
            .collect()
    }

    /// Adds the counts of one minute, of those that the filter allows.
    fn add_minute(&self, minute: i64, filter: &StatsFilter, stats: &mut Stats) {
        let minutes = lock(&self.0);
        let counted = minutes.get(&minute).into_iter().flatten();
        for ((uid, tenant), counts) in counted {
            let is_chosen = filter.tenant.as_deref().is_none_or(|wanted| wanted == &**tenant)
                && filter.workflow_uid.is_none_or(|wanted| wanted == *uid);
            if is_chosen {
                stats.add(minute, *uid, &counts.workflow, &counts.runs, filter);
            }
        }
    }

    /// Forgets what was written, if nothing was added meanwhile: a commit may be counted a moment late.
    fn forget(&self, written: &BTreeMap<i64, Counted>) {
        let mut minutes = lock(&self.0);
        for (minute, counted) in written {
            let is_same = minutes.get(minute).is_some_and(|now| {
                let same = |(key, counts): (&(Uuid, Arc<str>), &Counts)| {
                    now.get(key)
                        .is_some_and(|now| now.runs == counts.runs && now.waiting == counts.waiting)
                };
                now.len() == counted.len() && counted.iter().all(same)
            });
            if is_same {
                minutes.remove(minute);
            }
        }
        while minutes.len() > MAX_MINUTES {
            minutes.pop_first();
        }
    }
}

/// Writes each minute when it is over. Runs until it is dropped.
pub(crate) async fn run(shared: &Shared) {
    let mut failed = false;
    loop {
        let now = shared.clock.now();
        let next = start_of(minute_of(now) + 1);
        // Not shorter, whatever the clock says: it is corrected to that of the database.
        tokio::time::sleep(crate::clock::until(now, next).max(SHORTEST_PAUSE)).await;
        let over = minute_of(shared.clock.now());
        let written = async {
            if shared.settings.role.works() {
                sample_queue(shared, over - 1).await?;
            }
            write_before(shared, over).await?;
            if over % PRUNE_EVERY == 0 {
                shared.store.prune_stats(over - KEPT_MINUTES).await?;
            }
            Ok::<_, StoreError>(())
        };
        match written.await {
            Ok(()) => failed = false,
            Err(_) if failed => {}
            Err(error) => {
                failed = true;
                let health = &shared.health;
                health.retried(None, &error, "numbers of runs cannot be written; trying again");
            }
        }
    }
}

/// Writes everything, also the minute that is not over. For a process that stops, and for tests.
pub(crate) async fn write_all(shared: &Shared) -> Result<(), StoreError> {
    write_before(shared, i64::MAX).await
}

/// Counts the runs that wait for a runner, as of the end of a minute.
async fn sample_queue(shared: &Shared, minute: i64) -> Result<(), StoreError> {
    let depths = shared.store.queue_depths(shared.clock.now()).await?;
    for depth in depths {
        let run = CountedRun {
            workflow_uid: depth.workflow_uid,
            workflow: &depth.workflow_id,
            tenant: &depth.tenant.into(),
        };
        let at = start_of(minute);
        shared
            .numbers
            .count(&run, at, |counts| counts.waiting = Some(depth.runs));
    }
    Ok(())
}

async fn write_before(shared: &Shared, minute: i64) -> Result<(), StoreError> {
    let minutes = shared.numbers.before(minute);
    let rows = minutes.iter().flat_map(|(minute, counted)| {
        counted.iter().map(|((uid, tenant), counts)| StatsRow {
            minute: *minute,
            runner: shared.runner.id,
            workflow_uid: *uid,
            workflow_id: counts.workflow.to_string(),
            tenant: tenant.to_string(),
            counts: counts.runs.clone(),
            waiting: counts.waiting,
        })
    });
    let rows: Vec<StatsRow> = rows.collect();
    if !rows.is_empty() {
        shared.store.write_stats(rows).await?;
    }
    shared.numbers.forget(&minutes);
    Ok(())
}

impl Engine {
    /// Writes the numbers that were counted so far, without waiting for the end of the minute.
    pub async fn write_numbers(&self) -> Result<(), EngineError> {
        Ok(write_all(&self.shared).await?)
    }
}

/// The time that numbers are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first minute.
    pub from: i64,
    /// The minute after the last.
    pub until: i64,
    /// The minutes of one part of the series.
    pub step: u32,
}

impl Span {
    /// The most parts of a series.
    const PARTS: i64 = 120;

    /// The last `since` before `now`, up to the minute that is not over. Steps are as long as needed for at most 120 parts.
    pub fn last(since: Duration, now: Timestamp) -> Span {
        const STEPS: [u32; 9] = [1, 2, 5, 10, 15, 30, 60, 180, 360];
        let until = minute_of(now) + 1;
        let minutes = i64::try_from(since.as_secs().div_ceil(60)).unwrap_or(KEPT_MINUTES);
        let minutes = minutes.clamp(1, KEPT_MINUTES);
        let fits = |step: &&u32| minutes / i64::from(**step) <= Span::PARTS;
        let step = STEPS.iter().find(fits).copied().unwrap_or(STEPS[8]);
        // Whole parts, so that they are the same in each response.
        let from = (until - minutes) / i64::from(step) * i64::from(step);
        Span { from, until, step }
    }
}

impl Session {
    /// Numbers of the runs that this caller sees, with at most `limit` workflows. Of the minute that is not over they have what this
    /// process counted.
    pub async fn stats(
        &self,
        span: Span,
        workflow: Option<Uuid>,
        tenant: Option<String>,
        limit: u32,
    ) -> Result<Stats, EngineError> {
        let reads: Reads<'_> = self.reads();
        let Ok(tenant) = reads.limited(tenant) else {
            return Ok(Stats::default());
        };
        let filter = StatsFilter {
            from: span.from,
            until: span.until,
            tenant,
            workflow_uid: workflow,
            step: span.step,
            limit: limit.min(MAX_PAGE),
        };
        let shared = &self.engine.shared;
        // Only the minute that is not over: it is not written yet, so nothing is counted twice.
        let minute = minute_of(shared.clock.now());
        let mut stats = shared.store.stats(&filter).await?;
        if (filter.from..filter.until).contains(&minute) {
            shared.numbers.add_minute(minute, &filter, &mut stats);
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_at_most_120_parts() {
        let now = start_of(1_000_000);
        for (minutes, step) in [
            (1, 1),
            (60, 1),
            (120, 1),
            (121, 2),
            (1440, 15),
            (10_080, 180),
            (44_640, 360),
        ] {
            let span = Span::last(Duration::from_secs(minutes * 60), now);
            assert_eq!((span.step, span.until), (step, 1_000_001), "{minutes}");
            assert!((span.until - span.from) / i64::from(step) <= 125, "{span:?}");
            assert!(span.from <= span.until - minutes as i64, "{span:?}");
            assert_eq!(span.from % i64::from(step), 0);
        }
        let long = Span::last(Duration::MAX, now);
        assert!(long.from >= 1_000_001 - KEPT_MINUTES - 360, "{long:?}");
    }

    #[test]
    fn counts_that_grew_while_they_were_written_are_kept() {
        let numbers = RunNumbers::default();
        let tenant: Arc<str> = "".into();
        let run = CountedRun {
            workflow_uid: Uuid::nil(),
            workflow: "w",
            tenant: &tenant,
        };
        numbers.started(&run, start_of(5));
        let written = numbers.before(6);
        numbers.ended(&run, start_of(5), Status::Failed, Duration::ZERO);
        numbers.forget(&written);
        let again = numbers.before(6);
        assert_eq!(again[&5].values().next().map(|counts| counts.runs.failed), Some(1));
        numbers.forget(&again);
        assert!(numbers.before(i64::MAX).is_empty());
        assert!(numbers.before(5).is_empty());
    }
}
