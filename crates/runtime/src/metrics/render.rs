//! All metrics of the engine as text.

use super::{ENDS, FailureReason, Metrics, ReadQueue};
use crate::engine::Engine;
use fermata_metrics::{Kind, Labels, Text};
use fermata_store::reads::QueueDepth;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Queue depths are read from the database at most this often,
const QUEUE_INTERVAL: Duration = Duration::from_secs(5);
/// and are left out if that takes longer.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

impl Engine {
    /// Whether this process counts what it does.
    pub fn counts(&self) -> bool {
        self.shared.metrics.is_enabled()
    }

    /// All metrics of the engine and its store.
    pub async fn metrics(&self) -> Text {
        let metrics = &self.shared.metrics;
        let depths = metrics.queue_depths(self).await;
        let mut text = Text::default();
        self.process(&mut text);
        metrics.runs(&mut text);
        metrics.queue(&mut text, depths);
        metrics.actions(&mut text);
        metrics.expressions(&mut text);
        self.admission(&mut text);
        metrics.commits(&mut text);
        self.store(&mut text);
        metrics.inbox(&mut text);
        self.sandbox(&mut text);
        metrics.spans(&mut text);
        text
    }

    fn process(&self, text: &mut Text) {
        let runner = &self.shared.runner;
        text.metric("fermata_info", Kind::Gauge, "The program and its role; always 1.");
        text.sample(&[("version", &runner.version), ("role", &runner.role)], 1);
        text.gauge(
            "process_start_time_seconds",
            "When this process started, in seconds since 1970.",
            runner.started_at.0 as f64 / 1e6,
        );
    }

    fn admission(&self, text: &mut Text) {
        let shared = &self.shared;
        let slots = &shared.admission.action_slots;
        text.gauge("fermata_held_runs", "Runs that this process holds.", shared.held.len());
        text.gauge(
            "fermata_held_runs_max",
            "The most runs that this process holds.",
            shared.settings.max_active_runs,
        );
        text.gauge(
            "fermata_action_slots",
            "Actions that this process executes at the same time at most, without the reserve.",
            shared.settings.max_parallel_actions,
        );
        text.gauge("fermata_action_slots_used", "Action slots in use.", slots.used());
        text.gauge(
            "fermata_action_slots_waiting",
            "Runs that wait for an action slot.",
            slots.waiting(),
        );
        text.gauge(
            "fermata_lease_gate_open",
            "1 if this process may start attempts and runs: its heartbeats are confirmed.",
            u8::from(shared.admission.lease_gate.is_open()),
        );
        text.gauge(
            "fermata_database_reachable",
            "0 between a heartbeat that was not confirmed and the next one that was.",
            u8::from(!shared.health.is_out()),
        );
        let metrics = &shared.metrics;
        text.metric("fermata_claims_total", Kind::Counter, "Claims, by result.");
        text.sample(&[("result", "ok")], metrics.claims.get());
        text.sample(&[("result", "failed")], metrics.failed_claims.get());
        text.counter(
            "fermata_claimed_runs_total",
            "Runs that claims brought.",
            &metrics.claimed_runs,
        );
        text.counter(
            "fermata_dead_letters_total",
            "Runs that this process dead-lettered.",
            &metrics.dead_letters,
        );
    }

    fn store(&self, text: &mut Text) {
        if let Some(store) = self.shared.store.metrics() {
            text.metric(
                "fermata_commit_batch_size",
                Kind::Histogram,
                "Members of a batch of the group commit.",
            );
            text.histogram(&[], &store.batch_size);
            text.metric(
                "fermata_commit_batch_duration_seconds",
                Kind::Histogram,
                "The time a batch takes in the database.",
            );
            text.histogram(&[], &store.batch_seconds);
            text.counter(
                "fermata_commit_batches_failed_total",
                "Batches that were not written or whose outcome is unknown.",
                &store.failed_batches,
            );
        }
        let pools = [
            ("reads", self.shared.store.pool()),
            ("control", self.shared.control.pool()),
        ];
        let pools: Vec<_> = pools
            .into_iter()
            .filter_map(|(name, pool)| pool.map(|pool| (name, pool)))
            .collect();
        let mut gauge = |name, help, value: fn(&fermata_store::PoolUse) -> usize| {
            text.metric(name, Kind::Gauge, help);
            for (pool, usage) in &pools {
                text.sample(&[("pool", pool)], value(usage));
            }
        };
        gauge(
            "fermata_store_pool_connections",
            "The most connections of a pool.",
            |pool| pool.size,
        );
        gauge("fermata_store_pool_used", "Connections in use.", |pool| pool.used);
        gauge(
            "fermata_store_pool_waiting",
            "Calls that wait for a connection.",
            |pool| pool.waiting,
        );
    }

    fn sandbox(&self, text: &mut Text) {
        let sandbox = &self.shared.sandbox;
        let metrics = sandbox.metrics();
        text.gauge(
            "fermata_sandbox_slots",
            "Evaluations that the sandbox does at the same time at most, without the reserve.",
            self.shared.settings.sandbox.max_children,
        );
        text.gauge(
            "fermata_sandbox_slots_used",
            "Evaluations in the sandbox now.",
            sandbox.used(),
        );
        text.metric(
            "fermata_sandbox_evaluations_total",
            Kind::Counter,
            "Evaluations and syntax checks in the sandbox, by result.",
        );
        text.sample(&[("result", "answered")], metrics.answered.get());
        text.sample(&[("result", "killed")], metrics.killed.get());
        text.sample(&[("result", "broken")], metrics.broken.get());
        text.metric(
            "fermata_sandbox_duration_seconds",
            Kind::Histogram,
            "The time of an evaluation in the sandbox, without the wait for a process.",
        );
        text.histogram(&[], &metrics.durations);
    }
}

impl Metrics {
    /// Queue depths, read now or a few seconds ago; `None` if the database does not answer.
    async fn queue_depths(&self, engine: &Engine) -> Option<Vec<QueueDepth>> {
        let mut queue = self.queue.lock().await;
        if let Some(read) = queue.as_ref().filter(|read| read.at.elapsed() < QUEUE_INTERVAL) {
            return Some(read.depths.clone());
        }
        let read = engine.shared.store.queue_depths(engine.now());
        let depths = tokio::time::timeout(QUEUE_TIMEOUT, read).await.ok()?.ok()?;
        *queue = Some(ReadQueue {
            at: Instant::now(),
            depths: depths.clone(),
        });
        Some(depths)
    }

    fn runs(&self, text: &mut Text) {
        let workflows = self.workflows.all();
        text.metric(
            "workflow_duration_seconds",
            Kind::Histogram,
            "The time from the start of a run to its end.",
        );
        for (workflow, metrics) in &workflows {
            for (status, durations) in ENDS.iter().zip(&metrics.durations) {
                if durations.count() > 0 {
                    text.histogram(&[("workflowId", workflow), ("status", status.as_str())], durations);
                }
            }
        }
        text.metric("workflow_success_total", Kind::Counter, "Runs that succeeded.");
        for (workflow, metrics) in &workflows {
            text.sample(&[("workflowId", workflow)], metrics.succeeded.get());
        }
        text.metric(
            "workflow_failure_total",
            Kind::Counter,
            "Runs that failed or were cancelled, by reason.",
        );
        for (workflow, metrics) in &workflows {
            for (reason, failed) in FailureReason::ALL.iter().zip(&metrics.failed) {
                let labels = [("workflowId", *workflow), ("reason", reason.as_str())];
                text.sample(&labels, failed.get());
            }
        }
        text.metric(
            "subworkflow_invocation_total",
            Kind::Counter,
            "Child runs that runs of a workflow started.",
        );
        for (workflow, metrics) in &workflows {
            text.sample(&[("parentWorkflowId", workflow)], metrics.subworkflows.get());
        }
    }

    fn queue(&self, text: &mut Text, depths: Option<Vec<QueueDepth>>) {
        text.metric(
            "queue_depth",
            Kind::Gauge,
            "Runs that are due and not held by a process, in the whole database.",
        );
        let Some(depths) = depths else { return };
        for (workflow, runs) in by_label(&self.workflows, &depths) {
            text.sample(&[("workflowId", workflow)], runs);
        }
    }

    fn actions(&self, text: &mut Text) {
        let actions = self.actions.all();
        text.metric(
            "action_duration_seconds",
            Kind::Histogram,
            "The time of an attempt, without the wait for a slot.",
        );
        for (action, metrics) in &actions {
            if metrics.durations.count() > 0 {
                text.histogram(&[("actionType", action)], &metrics.durations);
            }
        }
        text.metric("action_retry_total", Kind::Counter, "Attempts after the first one.");
        for (action, metrics) in &actions {
            text.sample(&[("actionType", action)], metrics.retries.get());
        }
        text.metric(
            "action_failure_total",
            Kind::Counter,
            "Attempts that failed. RetriableFailure may be retried, Failed may not.",
        );
        for (action, metrics) in &actions {
            for (status, failures) in [("RetriableFailure", &metrics.retriable), ("Failed", &metrics.permanent)] {
                text.sample(&[("actionType", action), ("status", status)], failures.get());
            }
        }
    }

    fn expressions(&self, text: &mut Text) {
        text.metric(
            "template_render_duration_seconds",
            Kind::Histogram,
            "The time of rendering the parameters of an attempt.",
        );
        text.histogram(&[], &self.template_renders);
        text.metric(
            "condition_eval_duration_seconds",
            Kind::Histogram,
            "The time of evaluating a condition.",
        );
        text.histogram(&[], &self.condition_evals);
    }

    fn commits(&self, text: &mut Text) {
        let commits = &self.commits;
        text.metric(
            "fermata_commits_total",
            Kind::Counter,
            "Commits of held runs, by the answer of the store.",
        );
        for (result, counter) in [
            ("committed", &commits.committed),
            ("fenced", &commits.fenced),
            ("conflict", &commits.conflict),
            ("unknown", &commits.unknown),
            ("rejected", &commits.rejected),
        ] {
            text.sample(&[("result", result)], counter.get());
        }
        text.metric(
            "fermata_commit_duration_seconds",
            Kind::Histogram,
            "The time until a commit of a held run is answered, with the wait for its batch.",
        );
        text.histogram(&[], &self.commit_durations);
    }

    fn inbox(&self, text: &mut Text) {
        text.metric(
            "fermata_inbox_items_total",
            Kind::Counter,
            "Items of the inbox that this process offered, gave to workers, and took or refused answers for.",
        );
        for (event, counter) in [
            ("offered", &self.inbox.offered),
            ("claimed", &self.inbox.claimed),
            ("answered", &self.inbox.answered),
            ("refused", &self.inbox.refused),
        ] {
            text.sample(&[("event", event)], counter.get());
        }
    }

    fn spans(&self, text: &mut Text) {
        text.metric(
            "fermata_trace_spans_total",
            Kind::Counter,
            "Spans of traces: sent to the collector, dropped because the queue was full, failed at the collector.",
        );
        for (result, counter) in [
            ("sent", &self.spans.sent),
            ("dropped", &self.spans.dropped),
            ("failed", &self.spans.failed),
        ] {
            text.sample(&[("result", result)], counter.get());
        }
    }
}

/// Depths by label: 0 for workflows that are known and have no waiting runs.
fn by_label<'a, T>(labels: &'a Labels<T>, depths: &[QueueDepth]) -> BTreeMap<&'a str, u64> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for depth in depths {
        *sums.entry(labels.label(&depth.workflow_id)).or_default() += depth.runs;
    }
    for (label, _) in labels.all() {
        sums.entry(label).or_default();
    }
    sums
}
