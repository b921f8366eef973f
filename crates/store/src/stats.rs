//! Numbers of runs, by minute, process, workflow and tenant.
//!
//! Each process counts in memory and writes a row for each minute, workflow and tenant once. So the cost of reading them depends on
//! the time that is asked for, not on how many runs there were.
//!
//! What must stay true: a row is written whole, and writing it again replaces it, so a repeated write counts nothing twice.

use crate::Result;
use async_trait::async_trait;
use fermata_core::{RunnerId, Status, Timestamp};
use std::time::Duration;
use uuid::Uuid;

/// The buckets of durations: up to each of these milliseconds, and longer.
pub const BOUNDS_MS: [u64; 17] = [
    1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 180_000, 600_000, 1_800_000, 3_600_000, 21_600_000,
    86_400_000,
];

/// How many buckets there are.
pub const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// How long rows are kept, in minutes.
pub const KEPT_MINUTES: i64 = 31 * 24 * 60;

/// The minute of a time, counted from 1970.
pub fn minute_of(at: Timestamp) -> i64 {
    at.0.div_euclid(60_000_000)
}

/// The beginning of a minute.
pub fn start_of(minute: i64) -> Timestamp {
    Timestamp(minute.saturating_mul(60_000_000))
}

/// Counts of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs that started.
    pub started: u64,
    /// Runs that ended, by status.
    pub succeeded: u64,
    #[allow(missing_docs)]
    pub failed: u64,
    #[allow(missing_docs)]
    pub cancelled: u64,
    /// How long the runs that ended took, from start to end: how many are in each bucket.
    pub durations: [u64; BUCKETS],
}

impl RunCounts {
    /// Counts a run that ended.
    pub fn end(&mut self, status: Status, took: Duration) {
        match status {
            Status::Succeeded => self.succeeded += 1,
            Status::Failed => self.failed += 1,
            Status::Cancelled => self.cancelled += 1,
            // It has not ended.
            _ => return,
        }
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < millis);
        self.durations[bucket] += 1;
    }

    /// Runs that ended.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    /// The part of the runs that succeeded among those that succeeded or failed, from 0 to 1; `None` without such runs.
    pub fn success_rate(&self) -> Option<f64> {
        let decided = self.succeeded + self.failed;
        (decided > 0).then(|| self.succeeded as f64 / decided as f64)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &RunCounts) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        for (sum, more) in self.durations.iter_mut().zip(other.durations) {
            *sum += more;
        }
    }

    /// The duration in milliseconds that this part (0 to 1) of the runs did not exceed, interpolated within its bucket; `None` without
    /// runs. Of runs in the last bucket only its lower bound is known.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let total: u64 = self.durations.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = part * total as f64;
        let mut below = 0.0;
        for (bucket, count) in self.durations.iter().enumerate() {
            let count = *count as f64;
            if count > 0.0 && below + count >= wanted {
                let lower = bucket.checked_sub(1).map_or(0, |before| BOUNDS_MS[before]);
                let Some(upper) = BOUNDS_MS.get(bucket) else {
                    return Some(lower);
                };
                let inside = ((wanted - below) / count).clamp(0.0, 1.0);
                return Some(lower + ((upper - lower) as f64 * inside).round() as u64);
            }
            below += count;
        }
        BOUNDS_MS.last().copied()
    }

    /// The columns, in the order of [`COLUMNS`].
    pub(crate) fn columns(&self) -> [i64; 4 + BUCKETS] {
        let counts = [self.started, self.succeeded, self.failed, self.cancelled];
        let all = counts.into_iter().chain(self.durations);
        let mut columns = [0; 4 + BUCKETS];
        for (column, count) in columns.iter_mut().zip(all) {
            *column = i64::try_from(count).unwrap_or(i64::MAX);
        }
        columns
    }

    pub(crate) fn of_columns(columns: [i64; 4 + BUCKETS]) -> RunCounts {
        let count = |at: usize| u64::try_from(columns[at]).unwrap_or(0);
        RunCounts {
            started: count(0),
            succeeded: count(1),
            failed: count(2),
            cancelled: count(3),
            durations: std::array::from_fn(|bucket| count(4 + bucket)),
        }
    }
}

/// What one process counted in one minute, of one workflow and tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsRow {
    /// The minute ([`minute_of`]).
    pub minute: i64,
    /// The process.
    pub runner: RunnerId,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_id: String,
    /// Empty for no tenant.
    pub tenant: String,
    /// The counts.
    pub counts: RunCounts,
    /// How many runs were due and not held at the end of the minute, if the process looked.
    pub waiting: Option<u64>,
}

/// Which rows are summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsFilter {
    /// From this minute on,
    pub from: i64,
    /// and before this one.
    pub until: i64,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this workflow.
    pub workflow_uid: Option<Uuid>,
    /// The minutes of one part of the series.
    pub step: u32,
    /// The most workflows.
    pub limit: u32,
}

/// Sums of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Over all workflows.
    pub all: RunCounts,
    /// By workflow, those with the most runs that ended first: uid, name, counts.
    pub workflows: Vec<(Uuid, String, RunCounts)>,
    /// By time. Parts without rows are left out.
    pub series: Vec<StatsPart>,
}

impl Stats {
    /// Adds counts that are not written yet. The order of the workflows and their limit stay those of the filter.
    pub fn add(&mut self, minute: i64, uid: Uuid, name: &str, counts: &RunCounts, filter: &StatsFilter) {
        self.all.add(counts);
        match self.workflows.iter_mut().find(|(known, ..)| *known == uid) {
            Some((.., sum)) => sum.add(counts),
            None => self.workflows.push((uid, name.to_owned(), counts.clone())),
        }
        self.workflows
            .sort_by_key(|(uid, _, counts)| (std::cmp::Reverse(counts.ended()), *uid));
        self.workflows.truncate(filter.limit as usize);
        let step = i64::from(filter.step.max(1));
        let minute = minute / step * step;
        let at = self.series.partition_point(|part| part.minute < minute);
        if self.series.get(at).is_none_or(|part| part.minute != minute) {
            let part = StatsPart {
                minute,
                ..StatsPart::default()
            };
            self.series.insert(at, part);
        }
        self.series[at].counts.add(counts);
    }
}

/// Sums of a part of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsPart {
    /// Its first minute.
    pub minute: i64,
    /// Its counts.
    pub counts: RunCounts,
    /// The most runs that waited at the end of one of its minutes.
    pub waiting: u64,
}

/// Numbers of runs.
#[async_trait]
pub trait StatsStore: Send + Sync {
    /// Writes rows. One that is there is replaced.
    async fn write_stats(&self, rows: Vec<StatsRow>) -> Result<()>;

    /// Sums up rows.
    async fn stats(&self, filter: &StatsFilter) -> Result<Stats>;

    /// Removes all rows before a minute.
    async fn prune_stats(&self, before: i64) -> Result<u64>;
}

/// The names of the columns of [`RunCounts::columns`].
pub(crate) fn names() -> Vec<String> {
    let counts = ["started", "succeeded", "failed", "cancelled"].map(str::to_owned);
    counts
        .into_iter()
        .chain((0..BUCKETS).map(|bucket| format!("d{bucket}")))
        .collect()
}

pub(crate) fn insert() -> String {
    let names = names();
    let places: Vec<String> = (1..=6 + names.len()).map(|place| format!("?{place}")).collect();
    let updates: Vec<String> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    format!(
        "INSERT INTO run_stats (minute, runner_id, workflow_uid, tenant_id, workflow_id, waiting, {}) VALUES ({})
         ON CONFLICT (minute, runner_id, workflow_uid, tenant_id) DO UPDATE SET workflow_id = excluded.workflow_id,
         waiting = excluded.waiting, {}",
        names.join(", "),
        places.join(", "),
        updates.join(", ")
    )
}

pub(crate) const PRUNE: &str = "DELETE FROM run_stats WHERE minute < ?1";

/// The statements that read, for one database.
pub(crate) struct Reading {
    /// `?1` to `?4` are the bounds, the tenant and the workflow.
    pub(crate) all: String,
    /// And `?5` is the most workflows.
    pub(crate) workflows: String,
    /// And `?5` is the step.
    pub(crate) series: String,
}

impl Reading {
    /// `uid` is how the fourth parameter is written as a uid.
    pub(crate) fn new(uid: &str) -> Reading {
        let chosen = format!(
            "FROM run_stats WHERE minute >= ?1 AND minute < ?2
             AND (CAST(?3 AS text) IS NULL OR tenant_id = CAST(?3 AS text)) AND ({uid} IS NULL OR workflow_uid = {uid})"
        );
        let sum = |name: &str| format!("CAST(COALESCE(SUM({name}), 0) AS bigint)");
        let sums: Vec<String> = names().iter().map(|name| sum(name)).collect();
        let sums = sums.join(", ");
        let each: Vec<String> = names().iter().map(|name| format!("SUM({name}) AS {name}")).collect();
        let each = each.join(", ");
        Reading {
            all: format!("SELECT {sums} {chosen}"),
            workflows: format!(
                "SELECT workflow_uid, MAX(workflow_id), {sums} {chosen} GROUP BY workflow_uid
                 ORDER BY SUM(succeeded + failed + cancelled) DESC, workflow_uid LIMIT ?5"
            ),
            // Several processes look at the same queue, so the most that one of them saw counts.
            series: format!(
                "SELECT minute / ?5 * ?5, CAST(MAX(waiting) AS bigint), {sums} FROM
                 (SELECT minute, {each}, SUM(waiting) AS waiting FROM
                  (SELECT minute, {each}, COALESCE(MAX(waiting), 0) AS waiting {chosen}
                   GROUP BY minute, workflow_uid, tenant_id) AS queues
                  GROUP BY minute) AS minutes
                 GROUP BY minute / ?5 * ?5 ORDER BY 1"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_the_bucket_of_their_run() {
        let mut counts = RunCounts::default();
        assert_eq!(counts.quantile(0.5), None);
        for millis in [0, 1, 2, 5, 20, 20, 20, 50, 2_000, 100_000_000] {
            counts.end(Status::Succeeded, Duration::from_millis(millis));
        }
        counts.end(Status::Running, Duration::ZERO);
        assert_eq!((counts.ended(), counts.succeeded), (10, 10));
        let within = |part, range: std::ops::RangeInclusive<u64>| {
            let found = counts.quantile(part).unwrap();
            assert!(range.contains(&found), "{part}: {found}");
        };
        within(0.0, 0..=1);
        within(0.2, 0..=1);
        within(0.5, 10..=30);
        within(0.7, 10..=30);
        within(0.9, 1_000..=3_000);
        // Of the longest only the lower bound is known.
        within(1.0, 86_400_000..=86_400_000);
        let mut one = RunCounts::default();
        one.end(Status::Failed, Duration::from_millis(100));
        assert_eq!(one.quantile(0.95), Some(97), "between 30 and 100");
        let same = RunCounts::of_columns(counts.columns());
        assert_eq!(same, counts);
    }

    #[test]
    fn minutes_begin_at_full_minutes() {
        assert_eq!(minute_of(Timestamp(59_999_999)), 0);
        assert_eq!(minute_of(Timestamp(60_000_000)), 1);
        assert_eq!(start_of(1), Timestamp(60_000_000));
    }
}
