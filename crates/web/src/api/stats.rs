//! Numbers of executions: counts, success rate, durations, throughput and queue depth over time.

use super::list::workflow_uid;
use crate::{door::As, error::ApiError, extract::Query, time::Iso};
use axum::Json;
use fermata_core::duration;
use fermata_runtime::stats::Span;
use fermata_store::stats::{KEPT_MINUTES, RunCounts, StatsPart, start_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// The time if the request does not name one.
const SINCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The most workflows in a response.
const MAX_WORKFLOWS: u32 = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StatsQuery {
    /// Only of this workflow.
    workflow_id: Option<String>,
    /// Only of this tenant.
    tenant_id: Option<String>,
    /// How far back, such as `1h`, `24h` or `7d`.
    since: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatsView {
    since: Iso,
    until: Iso,
    /// The minutes of one part of `series`.
    step_minutes: u32,
    overall: CountsView,
    /// Those with the most executions that ended come first, at most 100.
    workflows: Vec<WorkflowCountsView>,
    /// Parts of the time in which nothing happened are left out.
    series: Vec<PartView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CountsView {
    /// Executions that started.
    started: u64,
    /// Executions that ended: the sum of the next three.
    ended: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    /// The part of those that succeeded or failed, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    success_rate: Option<f64>,
    /// Durations from start to end, interpolated between the bounds of a histogram.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WorkflowCountsView {
    workflow_id: String,
    workflow_uid: Uuid,
    #[serde(flatten)]
    counts: CountsView,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PartView {
    at: Iso,
    started: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    /// The most executions that were due and waited for a runner at the end of a minute.
    queue_depth: u64,
}

impl From<&RunCounts> for CountsView {
    fn from(counts: &RunCounts) -> Self {
        CountsView {
            started: counts.started,
            ended: counts.ended(),
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
            success_rate: counts.success_rate().map(rounded),
            p50_ms: counts.quantile(0.5),
            p95_ms: counts.quantile(0.95),
        }
    }
}

/// Four digits are enough for a rate.
fn rounded(rate: f64) -> f64 {
    (rate * 10_000.0).round() / 10_000.0
}

impl From<&StatsPart> for PartView {
    fn from(part: &StatsPart) -> Self {
        PartView {
            at: Iso(start_of(part.minute)),
            started: part.counts.started,
            succeeded: part.counts.succeeded,
            failed: part.counts.failed,
            cancelled: part.counts.cancelled,
            queue_depth: part.waiting,
        }
    }
}

/// `GET /api/v1/stats?workflowId=order&since=24h`
pub(crate) async fn get(As(session): As, Query(query): Query<StatsQuery>) -> Result<Json<StatsView>, ApiError> {
    let longest = Duration::from_secs(KEPT_MINUTES.unsigned_abs() * 60);
    let since = match query.since.as_deref().filter(|text| !text.is_empty()) {
        None => SINCE,
        Some(text) => {
            let time = duration::parse(text)
                .ok()
                .filter(|time| !time.is_zero() && *time <= longest);
            time.ok_or_else(|| ApiError::parameter("`since` must be a duration such as 1h, 24h or 7d, at most 31d"))?
        }
    };
    let tenant = query.tenant_id.filter(|tenant| !tenant.is_empty());
    let workflow = match query.workflow_id.filter(|text| !text.is_empty()) {
        Some(reference) => Some(workflow_uid(&session, tenant.as_deref(), &reference).await?),
        None => None,
    };
    let span = Span::last(since, session.now());
    let stats = session.stats(span, workflow, tenant, MAX_WORKFLOWS).await?;
    let workflows = stats.workflows.iter().map(|(uid, id, counts)| WorkflowCountsView {
        workflow_id: id.clone(),
        workflow_uid: *uid,
        counts: counts.into(),
    });
    Ok(Json(StatsView {
        since: Iso(start_of(span.from)),
        until: Iso(start_of(span.until)),
        step_minutes: span.step,
        overall: (&stats.all).into(),
        workflows: workflows.collect(),
        series: stats.series.iter().map(PartView::from).collect(),
    }))
}
