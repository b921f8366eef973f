//! Retention: which finished runs are deleted, and when.
//!
//! [`Retention::verdict`] is the one rule; all stores apply it. Pruning walks the runs from the oldest id to the newest that can
//! be due. Ids are UUIDv7, so that is the order in which runs were created, and no index is needed.
//!
//! What must stay true:
//! * A run that has not ended is never touched, nor is a run with such a run below it (its children, and theirs).
//! * A run and all that belongs to it are removed in one transaction: rows of attempts, journal, waits, messages, links, cached states
//!   and searchable fields, and its child runs. Dead letters are records of their own and stay.
//! * An idempotency key is in use for as long as its run's row exists.

use crate::Result;
use async_trait::async_trait;
use fermata_core::{RunId, Status, Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// How many runs one call of [`RetentionStore::prune`] looks at.
pub(crate) const EXAMINED: u32 = 1000;

/// The tables with rows of a run, beside `workflow_executions`. Their column is `workflow_execution_id`.
pub(crate) const TABLES: [&str; 7] = [
    "execution_events",
    "action_executions",
    "workflow_resource_links",
    "run_waits",
    "run_inbox",
    "run_states",
    "run_fields",
];

/// The runs after an id and before another, by id. Not `NOT EXISTS`: PostgreSQL might answer it by reading the whole table.
pub(crate) const CANDIDATES: &str = "SELECT id, workflow_id, status, end_time, octet_length(trigger_payload_json) = 0,
    (SELECT p.id FROM workflow_executions p WHERE p.id = e.parent_execution_id) IS NULL
    FROM workflow_executions e WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3";

/// Clears the payloads of a run whose key is kept, and the text that a caller gave as the reason of a cancel. An empty
/// trigger marks the row as emptied; other triggers are JSON and never empty.
pub(crate) const EMPTIED: &str = "trigger_payload_json = '', spec_json = NULL, outputs_json = NULL,
    context_snapshot_json = NULL, error_json = NULL, correlation_id = NULL, requester_email = NULL,
    requester_display_name = NULL, traceparent = NULL, request_json = NULL,
    rerun_json = NULL, reason = CASE WHEN status = 'Cancelled' THEN NULL ELSE reason END";

/// How long things are kept. `None` is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Ages {
    pub succeeded: Option<Duration>,
    pub failed: Option<Duration>,
    pub cancelled: Option<Duration>,
    pub dead_letters: Option<Duration>,
}

impl Ages {
    fn of(&self, status: Status) -> Option<Duration> {
        match status {
            Status::Succeeded => self.succeeded,
            Status::Failed => self.failed,
            Status::Cancelled => self.cancelled,
            Status::Pending | Status::Running => None,
        }
    }

    fn runs(&self) -> impl Iterator<Item = Duration> {
        [self.succeeded, self.failed, self.cancelled].into_iter().flatten()
    }
}

/// How long finished runs and dead letters are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// For workflows that are not listed below.
    pub ages: Ages,
    /// How long the row of a run is kept without its payloads, so that its idempotency key stays in use. It counts from the
    /// end of the run, as the ages do. `None`: the row goes with the run.
    pub keys: Option<Duration>,
    /// For the workflows of these names.
    pub workflows: BTreeMap<String, Ages>,
    /// How long rows of the audit trail are kept. `None` is for ever.
    pub audit: Option<Duration>,
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Its payloads and all rows that belong to it are removed; its own row stays.
    Empty,
    /// It is removed.
    Delete,
}

/// What the rule needs to know of a run.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub id: RunId,
    pub workflow_id: String,
    pub status: Status,
    pub ended_at: Option<Timestamp>,
    /// Whether only its row is left.
    pub emptied: bool,
    /// Whether it was started by a request. Child runs go with the run that started them.
    pub is_root: bool,
}

impl Retention {
    /// Whether everything is kept for ever.
    pub fn keeps_all(&self) -> bool {
        let all = std::iter::once(&self.ages).chain(self.workflows.values());
        all.into_iter().all(|ages| *ages == Ages::default()) && self.audit.is_none()
    }

    fn ages_of(&self, workflow: &str) -> &Ages {
        self.workflows.get(workflow).unwrap_or(&self.ages)
    }

    /// What happens to a run at this time.
    pub fn verdict(
        &self,
        workflow: &str,
        status: Status,
        ended_at: Option<Timestamp>,
        emptied: bool,
        now: Timestamp,
    ) -> Verdict {
        let (Some(age), Some(ended_at)) = (self.ages_of(workflow).of(status), ended_at) else {
            return Verdict::Keep;
        };
        let is_over = |age| elapsed(ended_at, now) >= age;
        match (is_over(age), self.keys) {
            (false, _) => Verdict::Keep,
            (true, Some(keys)) if !is_over(keys) && emptied => Verdict::Keep,
            (true, Some(keys)) if !is_over(keys) => Verdict::Empty,
            (true, _) => Verdict::Delete,
        }
    }

    /// Whether a dead letter is removed at this time.
    pub fn removes_dead_letter(&self, workflow: &str, at: Timestamp, now: Timestamp) -> bool {
        let age = self.ages_of(workflow).dead_letters;
        age.is_some_and(|age| elapsed(at, now) >= age)
    }

    /// Runs from this id on are too young. `None` if no run is ever removed.
    pub fn first_kept_run(&self, now: Timestamp) -> Option<RunId> {
        let all = std::iter::once(&self.ages).chain(self.workflows.values());
        all.flat_map(Ages::runs).min().map(|age| RunId(id_at(now, age)))
    }

    /// Rows of the audit trail from this id on are too young. `None` if no row is ever removed.
    pub fn first_kept_audit_row(&self, now: Timestamp) -> Option<Uuid> {
        self.audit.map(|age| id_at(now, age))
    }

    /// Dead letters from this id on are too young. `None` if no dead letter is ever removed.
    pub fn first_kept_dead_letter(&self, now: Timestamp) -> Option<Uuid> {
        let all = std::iter::once(&self.ages).chain(self.workflows.values());
        let ages = all.filter_map(|ages| ages.dead_letters);
        ages.min().map(|age| id_at(now, age))
    }
}

fn elapsed(from: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(now.micros_since(from))
}

/// The first UUIDv7 of the millisecond after this age. A run cannot have ended before it was created.
fn id_at(now: Timestamp, age: Duration) -> Uuid {
    let micros = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    let millis = now.0.saturating_sub(micros).max(0) / 1000 + 1;
    Uuid::from_u128((millis as u128) << 80)
}

/// One step of pruning.
#[derive(Debug, Clone)]
pub struct PruneBatch {
    /// The rule.
    pub retention: Arc<Retention>,
    /// The time that ages are counted to.
    pub now: Timestamp,
    /// Only runs after this one.
    pub after: Option<RunId>,
    /// At most this many runs are changed, beside their child runs.
    pub limit: u32,
    /// Only count.
    pub dry_run: bool,
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Runs that were removed, child runs included.
    pub deleted: u64,
    /// Runs of which only the row is left.
    pub emptied: u64,
    /// Where the next step starts. `None`: all were examined.
    pub next: Option<RunId>,
}

impl Pruned {
    pub(crate) fn count(&mut self, verdict: Verdict, runs: usize) {
        match verdict {
            Verdict::Keep => {}
            Verdict::Empty => self.emptied += runs as u64,
            Verdict::Delete => self.deleted += runs as u64,
        }
    }
}

impl PruneBatch {
    /// The runs to change, and where the next step starts. `candidates` are [`EXAMINED`] runs, or all that are left.
    pub(crate) fn choose(&self, candidates: &[Candidate]) -> (Vec<(RunId, Verdict)>, Option<RunId>) {
        let mut chosen = Vec::new();
        for run in candidates {
            if chosen.len() >= self.limit as usize {
                let last = chosen.last().map(|(id, _)| *id);
                return (chosen, last);
            }
            let verdict = self
                .retention
                .verdict(&run.workflow_id, run.status, run.ended_at, run.emptied, self.now);
            if run.is_root && verdict != Verdict::Keep {
                chosen.push((run.id, verdict));
            }
        }
        let all = candidates.len() < EXAMINED as usize;
        let last = candidates.last().filter(|_| !all).map(|run| run.id);
        (chosen, last)
    }
}

/// The answer to a request to delete a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunDeletion {
    /// It was removed, and so were its child runs.
    Deleted,
    /// There is no such run.
    NotFound,
    /// It, or a child run, has not ended; or its parent waits for it and has not seen its end.
    Unfinished,
}

/// Removes finished runs.
#[async_trait]
pub trait RetentionStore: Send + Sync {
    /// Removes or empties some finished runs, in one transaction.
    async fn prune(&self, batch: PruneBatch) -> Result<Pruned>;

    /// Removes a run that has ended, with all that belongs to it.
    async fn delete_run(&self, run: RunId) -> Result<RunDeletion>;

    /// Returns some unused space to the file system; true if there is more to return. Databases that do that by themselves
    /// have nothing to do here.
    async fn reclaim(&self) -> Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn days(days: u32) -> Timestamp {
        Timestamp((DAY * days).as_micros() as i64)
    }

    fn retention() -> Retention {
        Retention {
            ages: Ages {
                succeeded: Some(DAY * 7),
                failed: Some(DAY * 30),
                cancelled: None,
                dead_letters: Some(DAY * 30),
            },
            keys: None,
            audit: None,
            workflows: BTreeMap::from([("audit".to_owned(), Ages::default())]),
        }
    }

    #[test]
    fn verdicts() {
        use Status::*;
        use Verdict::*;
        let keys = |days: u32| Retention {
            keys: Some(DAY * days),
            ..retention()
        };
        // (rule, workflow, status, ended, emptied) on day 100
        for (rule, workflow, status, ended, emptied, verdict) in [
            (retention(), "order", Succeeded, 94, false, Keep),
            (retention(), "order", Succeeded, 93, false, Delete),
            (retention(), "order", Failed, 93, false, Keep),
            (retention(), "order", Failed, 70, false, Delete),
            (retention(), "order", Cancelled, 0, false, Keep),
            (retention(), "order", Running, 0, false, Keep),
            (retention(), "order", Pending, 0, false, Keep),
            (retention(), "audit", Succeeded, 0, false, Keep),
            (keys(50), "order", Succeeded, 93, false, Empty),
            (keys(50), "order", Succeeded, 93, true, Keep),
            (keys(50), "order", Succeeded, 50, true, Delete),
            (keys(50), "order", Succeeded, 50, false, Delete),
            (keys(50), "audit", Succeeded, 0, false, Keep),
            (keys(3), "order", Succeeded, 95, false, Keep),
            (keys(3), "order", Succeeded, 93, false, Delete),
        ] {
            let given = rule.verdict(workflow, status, Some(days(ended)), emptied, days(100));
            assert_eq!(
                given, verdict,
                "{workflow} {status} ended on day {ended}, keys {:?}",
                rule.keys
            );
        }
        assert_eq!(retention().verdict("order", Succeeded, None, false, days(100)), Keep);
    }

    #[test]
    fn dead_letters_have_an_age_of_their_own() {
        for (workflow, at, is_removed) in [("order", 71, false), ("order", 70, true), ("audit", 0, false)] {
            let removes = retention().removes_dead_letter(workflow, days(at), days(100));
            assert_eq!(removes, is_removed, "{workflow} of day {at}");
        }
        let bound = retention().first_kept_dead_letter(days(100));
        assert_eq!(bound, Some(id_at(days(100), DAY * 30)));
        assert_eq!(Retention::default().first_kept_dead_letter(days(100)), None);
    }

    #[test]
    fn the_walk_ends_where_runs_are_too_young() {
        let at = |millis: u64, last: u8| {
            let mut bytes = [last; 16];
            bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
            RunId(Uuid::from_bytes(bytes))
        };
        let bound = retention().first_kept_run(days(100)).unwrap();
        let millis = days(93).0 as u64 / 1000;
        assert!(at(millis, 0xff) < bound && at(millis + 1, 0) >= bound);
        assert_eq!(Retention::default().first_kept_run(days(100)), None);
        assert!(Retention::default().keeps_all() && !retention().keeps_all());
    }
}
