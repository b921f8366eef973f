//! The list of executions: filters, order, pages.
//!
//! Run ids are UUIDv7, so a time is a position in the order of ids and every list is a range of an index. Other filters are
//! applied run by run, up to a limit: a page may be short or empty and still have a `nextCursor`.

use crate::{
    door::As,
    error::ApiError,
    extract::{Query, name},
    paging, time,
    views::{PageView, RunRow},
};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, RunnerId, Status};
use fermata_runtime::Session;
use fermata_store::reads::{Order, RunFilter, RunPage};
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

#[derive(Deserialize, Clone, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    pub status: Option<String>,
    pub workflow_id: Option<String>,
    pub tenant_id: Option<String>,
    pub correlation_id: Option<String>,
    pub request_id: Option<String>,
    pub runner_id: Option<String>,
    pub created_after: Option<String>,
    pub created_before: Option<String>,
    pub search: Option<String>,
    pub order: Option<String>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// `GET /api/v1/executions`, newest first unless `order=asc`.
pub(crate) async fn list(As(session): As, Query(query): Query<ListQuery>) -> Result<Response, ApiError> {
    let page = find(&session, query).await?;
    let view = PageView {
        next_cursor: page.next.map(paging::after_run),
        items: page.items.iter().map(RunRow::from).collect(),
    };
    Ok(Json(view).into_response())
}

/// The runs that a query finds.
pub(crate) async fn find(session: &Session, query: ListQuery) -> Result<RunPage, ApiError> {
    let workflow = query.workflow_id.clone().filter(|text| !text.is_empty());
    let mut filter = filter(query)?;
    if let Some(reference) = workflow {
        let uid = workflow_uid(session, filter.tenant.as_deref(), &reference).await?;
        filter.workflow_uid = Some(uid);
    }
    Ok(session.reads().runs(filter).await?)
}

/// The uid of the workflow in a filter, as the caller or the tenant that the filter names means it. An unknown workflow gets a uid
/// that no workflow has, so the list is empty.
pub(super) async fn workflow_uid(session: &Session, tenant: Option<&str>, reference: &str) -> Result<Uuid, ApiError> {
    let workflow = session.reads().for_tenant(tenant).find_workflow(reference).await?;
    Ok(workflow.map_or(Uuid::max(), |workflow| workflow.uid))
}

fn filter(query: ListQuery) -> Result<RunFilter, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let order = match query.order.as_deref() {
        None | Some("" | "desc") => Order::NewestFirst,
        Some("asc") => Order::OldestFirst,
        Some(_) => {
            return Err(ApiError::parameter(
                "`order` must be asc (oldest first) or desc (newest first)",
            ));
        }
    };
    let mut filter = RunFilter {
        workflow_uid: None,
        statuses: statuses(query.status.as_deref().unwrap_or_default())?,
        tenant: given(query.tenant_id),
        correlation_id: given(query.correlation_id),
        request_id: given(query.request_id),
        runner: given(query.runner_id).as_deref().map(runner).transpose()?,
        search: given(query.search),
        from: first_id_at("createdAfter", given(query.created_after))?,
        before: first_id_at("createdBefore", given(query.created_before))?,
        order,
        limit: paging::limit(query.limit)?,
    };
    if let Some(search) = &filter.search {
        name("search", search)?;
    }
    let cursor = query.cursor.as_deref().map(paging::run).transpose()?;
    match (order, cursor) {
        (_, None) => {}
        (Order::NewestFirst, Some(last)) => filter.before = Some(filter.before.map_or(last, |before| before.min(last))),
        (Order::OldestFirst, Some(last)) => {
            let next = RunId(Uuid::from_u128(last.0.as_u128().saturating_add(1)));
            filter.from = Some(filter.from.map_or(next, |from| from.max(next)));
        }
    }
    Ok(filter)
}

/// Statuses separated by commas.
fn statuses(words: &str) -> Result<Vec<Status>, ApiError> {
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let unknown = || {
        ApiError::parameter(
            "`status` must be Pending, Running, Succeeded, Failed or Cancelled, or several of them separated by commas",
        )
    };
    words.map(|word| Status::parse(word).ok_or_else(unknown)).collect()
}

fn runner(id: &str) -> Result<RunnerId, ApiError> {
    let id = Uuid::try_parse(id).map_err(|_| ApiError::parameter("`runnerId` must be the id of a runner (a UUID)"));
    id.map(RunnerId)
}

/// The smallest id of a run that was created at this time.
pub(super) fn first_id_at(parameter: &str, text: Option<String>) -> Result<Option<RunId>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let millis = time::millis(&text).ok_or_else(|| {
        ApiError::parameter(format!(
            "`{parameter}` must be a time such as 2026-11-15T10:30:00Z, or milliseconds since 1970-01-01T00:00:00Z"
        ))
    })?;
    Ok(Some(RunId(Uuid::from_u128(u128::from(millis) << 80))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_position_in_the_order_of_ids() {
        let now = jiff::Timestamp::now().as_millisecond();
        let id = RunId(Uuid::now_v7());
        let place = |millis: i64| first_id_at("x", Some(millis.to_string())).unwrap().unwrap();
        assert!(place(now) <= id && id < place(now + 60_000));
        assert!(first_id_at("x", Some("soon".to_owned())).is_err());
    }
}
