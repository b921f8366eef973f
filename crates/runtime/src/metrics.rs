//! What this process counts about its work, for `/metrics`.
//!
//! Names without the prefix `fermata_` are those of the DataWorkflows specification (§14.3). `render.rs` writes all of them.
//!
//! What must stay true:
//! * Nothing here locks, allocates or fails while runs are advanced. The counters of a workflow are looked up once, when its plan
//!   is loaded.
//! * Label values are bounded: actions are those of the registry, workflows are the first `max_workflow_labels` that this
//!   process sees. All others are counted as `other`. No label holds the name of a tenant or an id. Workflows may belong to
//!   tenants, so callers of a tenant get no metrics (`Session::metrics`).
//! * Numbers are those of this process. Only `queue_depth` is read from the database.

mod render;

use crate::actions::Registry;
use fermata_core::{Status, Timestamp};
use fermata_metrics::{Buckets, Counter, Histogram, Labels};
use fermata_store::{dead_letters::DeadReason, reads::QueueDepth, runs::CommitAnswer};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What is counted, and how finely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Whether anything is counted.
    pub enabled: bool,
    /// How many workflows have a label of their own.
    pub max_workflow_labels: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        MetricsSettings {
            enabled: true,
            max_workflow_labels: 100,
        }
    }
}

/// Runs: 5 ms to 7 days.
static RUN_TIMES: Buckets = Buckets {
    bounds: &[
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        900_000_000,
        3_600_000_000,
        21_600_000_000,
        86_400_000_000,
        604_800_000_000,
    ],
    per_unit: 1_000_000,
};

/// Actions and commits: 1 ms to 5 minutes.
static CALL_TIMES: Buckets = Buckets {
    bounds: &[
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
    ],
    per_unit: 1_000_000,
};

/// Templates and conditions: 10 µs to 10 s.
static EXPRESSION_TIMES: Buckets = Buckets {
    bounds: &[
        10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
    ],
    per_unit: 1_000_000,
};

/// Why a run did not succeed: the four values of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureReason {
    ActionFailed,
    Timeout,
    Cancelled,
    ValidationError,
}

impl FailureReason {
    const ALL: [FailureReason; 4] = [
        FailureReason::ActionFailed,
        FailureReason::Timeout,
        FailureReason::Cancelled,
        FailureReason::ValidationError,
    ];

    fn as_str(self) -> &'static str {
        match self {
            FailureReason::ActionFailed => "action_failed",
            FailureReason::Timeout => "timeout",
            FailureReason::Cancelled => "cancelled",
            FailureReason::ValidationError => "validation_error",
        }
    }

    /// `None` for a run that succeeded. For a cancel the recorded reason is what the caller gave, so it is not read.
    pub fn of(status: Status, reason: Option<&str>) -> Option<FailureReason> {
        match (status, reason) {
            (Status::Cancelled, _) => Some(FailureReason::Cancelled),
            (Status::Failed, Some("timeout")) => Some(FailureReason::Timeout),
            // The run's own data does not fit the document: no condition holds, or the context is too large.
            (Status::Failed, Some("decision_failed" | "context_overflow")) => Some(FailureReason::ValidationError),
            (Status::Failed, _) => Some(FailureReason::ActionFailed),
            (Status::Succeeded | Status::Pending | Status::Running, _) => None,
        }
    }

    /// Of a run that was dead-lettered.
    pub fn of_dead(reason: DeadReason) -> FailureReason {
        match reason {
            DeadReason::InvalidTrigger | DeadReason::Rejected => FailureReason::ValidationError,
            DeadReason::Poison => FailureReason::ActionFailed,
        }
    }
}

/// The runs of one workflow.
pub(crate) struct WorkflowMetrics {
    /// By status: succeeded, failed, cancelled.
    durations: [Histogram; 3],
    succeeded: Counter,
    failed: [Counter; 4],
    subworkflows: Counter,
}

impl WorkflowMetrics {
    fn new() -> WorkflowMetrics {
        WorkflowMetrics {
            durations: std::array::from_fn(|_| Histogram::new(&RUN_TIMES)),
            succeeded: Counter::default(),
            failed: Default::default(),
            subworkflows: Counter::default(),
        }
    }
}

const ENDS: [Status; 3] = [Status::Succeeded, Status::Failed, Status::Cancelled];

/// The calls of one action.
pub(crate) struct ActionMetrics {
    durations: Histogram,
    retries: Counter,
    /// Failures that may be retried, and others.
    retriable: Counter,
    permanent: Counter,
}

impl ActionMetrics {
    fn new() -> ActionMetrics {
        ActionMetrics {
            durations: Histogram::new(&CALL_TIMES),
            retries: Counter::default(),
            retriable: Counter::default(),
            permanent: Counter::default(),
        }
    }
}

/// The evaluations of the sandbox.
pub(crate) struct SandboxMetrics {
    pub durations: Histogram,
    pub answered: Counter,
    /// Killed at the time limit.
    pub killed: Counter,
    /// The process ended, or could not be started.
    pub broken: Counter,
}

impl Default for SandboxMetrics {
    fn default() -> Self {
        SandboxMetrics {
            durations: Histogram::new(&EXPRESSION_TIMES),
            answered: Counter::default(),
            killed: Counter::default(),
            broken: Counter::default(),
        }
    }
}

/// Requests that wait for the answers of people, workers and services.
#[derive(Default)]
pub(crate) struct InboxMetrics {
    pub offered: Counter,
    pub claimed: Counter,
    pub answered: Counter,
    pub refused: Counter,
}

/// Spans of traces.
#[derive(Debug, Default)]
pub struct SpanMetrics {
    /// The collector accepted them.
    pub sent: Counter,
    /// The queue was full.
    pub dropped: Counter,
    /// The collector refused them, or could not be reached.
    pub failed: Counter,
}

/// The commits of held runs, by answer.
#[derive(Default)]
struct Commits {
    committed: Counter,
    fenced: Counter,
    conflict: Counter,
    unknown: Counter,
    rejected: Counter,
}

/// What this process counts.
pub(crate) struct Metrics {
    enabled: bool,
    workflows: Labels<WorkflowMetrics>,
    actions: Labels<ActionMetrics>,
    template_renders: Histogram,
    condition_evals: Histogram,
    commit_durations: Histogram,
    commits: Commits,
    pub claims: Counter,
    pub failed_claims: Counter,
    pub claimed_runs: Counter,
    pub inbox: InboxMetrics,
    pub dead_letters: Counter,
    pub spans: Arc<SpanMetrics>,
    queue: tokio::sync::Mutex<Option<ReadQueue>>,
}

/// Queue depths as they were read last.
struct ReadQueue {
    at: Instant,
    depths: Vec<QueueDepth>,
}

impl Metrics {
    pub fn new(settings: &MetricsSettings, registry: &Registry) -> Metrics {
        let actions = registry.infos().map(|info| info.id.as_str());
        Metrics {
            enabled: settings.enabled,
            workflows: Labels::new(settings.max_workflow_labels, WorkflowMetrics::new),
            actions: Labels::of(actions, ActionMetrics::new),
            template_renders: Histogram::new(&EXPRESSION_TIMES),
            condition_evals: Histogram::new(&EXPRESSION_TIMES),
            commit_durations: Histogram::new(&CALL_TIMES),
            commits: Commits::default(),
            claims: Counter::default(),
            failed_claims: Counter::default(),
            claimed_runs: Counter::default(),
            inbox: InboxMetrics::default(),
            dead_letters: Counter::default(),
            spans: Arc::default(),
            queue: tokio::sync::Mutex::default(),
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The counters of a workflow, to be kept with its plan.
    pub fn workflow(&self, label: &str) -> Arc<WorkflowMetrics> {
        self.workflows.get(label).clone()
    }

    /// The current time, if durations are counted.
    pub fn begin(&self) -> Option<Instant> {
        self.enabled.then(Instant::now)
    }

    pub fn template_rendered(&self, began: Option<Instant>) {
        if let Some(began) = began {
            self.template_renders.observe_time(began.elapsed());
        }
    }

    pub fn condition_evaluated(&self, took: Duration) {
        if self.enabled {
            self.condition_evals.observe_time(took);
        }
    }

    /// The end of a run is durable.
    pub fn run_ended(&self, of: &WorkflowMetrics, status: Status, reason: Option<FailureReason>, took: Duration) {
        if !self.enabled {
            return;
        }
        if let Some(at) = ENDS.iter().position(|end| *end == status) {
            of.durations[at].observe_time(took);
        }
        match reason {
            None => of.succeeded.inc(),
            Some(reason) => of.failed[reason as usize].inc(),
        }
    }

    pub fn subworkflow_started(&self, parent: &WorkflowMetrics) {
        if self.enabled {
            parent.subworkflows.inc();
        }
    }

    /// An attempt returned. `failed` says whether its failure may be retried.
    pub fn action_ended(&self, action: &str, attempt: u32, took: Duration, failed: Option<bool>) {
        if !self.enabled {
            return;
        }
        let of = self.actions.get(action);
        of.durations.observe_time(took);
        if attempt > 1 {
            of.retries.inc();
        }
        match failed {
            None => {}
            Some(true) => of.retriable.inc(),
            Some(false) => of.permanent.inc(),
        }
    }

    pub fn commit_answered(&self, answer: &CommitAnswer, took: Duration) {
        if !self.enabled {
            return;
        }
        self.commit_durations.observe_time(took);
        let counter = match answer {
            CommitAnswer::Committed { .. } => &self.commits.committed,
            CommitAnswer::Fenced => &self.commits.fenced,
            CommitAnswer::Conflict(_) => &self.commits.conflict,
            CommitAnswer::Unknown(_) => &self.commits.unknown,
            CommitAnswer::Rejected(_) => &self.commits.rejected,
        };
        counter.inc();
    }
}

/// The time between two instants of the database's clock.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_four_of_the_specification() {
        let cases = [
            (Status::Succeeded, None, None),
            (Status::Failed, Some("action_failed"), Some("action_failed")),
            (Status::Failed, Some("timeout"), Some("timeout")),
            (Status::Failed, Some("decision_failed"), Some("validation_error")),
            (Status::Failed, Some("context_overflow"), Some("validation_error")),
            (Status::Failed, Some("a new reason"), Some("action_failed")),
            (Status::Failed, None, Some("action_failed")),
            (Status::Cancelled, Some("what the caller wrote"), Some("cancelled")),
            (Status::Cancelled, Some("timeout"), Some("cancelled")),
        ];
        for (status, reason, expected) in cases {
            let found = FailureReason::of(status, reason).map(FailureReason::as_str);
            assert_eq!(found, expected, "{status} {reason:?}");
        }
        for (at, reason) in FailureReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
