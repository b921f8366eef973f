//! Runners: the processes that execute runs, and how many runs each of them holds.

use crate::{door::As, error::ApiError, extract::Query, paging, time::Iso, views::PageView};
use axum::Json;
use fermata_core::RunnerId;
use fermata_store::runners::RunnerRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// A process that sends heartbeats.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunnerView {
    #[schemars(with = "uuid::Uuid")]
    id: RunnerId,
    host: String,
    pid: u32,
    version: String,
    role: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    public_url: String,
    started_at: Iso,
    heartbeat_at: Iso,
    /// Whether the last heartbeat is younger than `lease_ttl`.
    is_alive: bool,
    /// How many executions it holds.
    executions: u64,
}

impl RunnerView {
    fn of((record, is_alive): (RunnerRecord, bool)) -> RunnerView {
        RunnerView {
            id: record.runner.id,
            host: record.runner.host,
            pid: record.runner.pid,
            version: record.runner.version,
            role: record.runner.role,
            public_url: record.runner.public_url,
            started_at: Iso(record.runner.started_at),
            heartbeat_at: Iso(record.heartbeat_at),
            is_alive,
            executions: record.held,
        }
    }
}

/// `GET /api/v1/runners`, the newest first.
pub(crate) async fn list(
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<RunnerView>>, ApiError> {
    let limit = paging::limit(query.limit)?;
    let before = query.cursor.as_deref().map(paging::id).transpose()?.map(RunnerId);
    let page = session.reads().runners(before, limit).await?;
    let items: Vec<RunnerView> = page.items.into_iter().map(RunnerView::of).collect();
    let next = items.last().filter(|_| page.more).map(|last| last.id.0);
    Ok(Json(PageView {
        next_cursor: next.map(paging::after_id),
        items,
    }))
}
