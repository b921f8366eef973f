//! The list of executions: a query, filters, order, pages.
//!
//! A filter is a parameter of its own or a term of `query` (`fermata_runtime::query`); both become one query. Run ids are UUIDv7, so
//! a time is a position in the order of ids and every list is a range of an index. A list examines a limited number of runs: a
//! page may be short or empty and still have a `nextCursor`; then `searchedBackTo` says how far it came.

use crate::{
    door::As,
    error::ApiError,
    extract::{Query, name},
    paging, time,
    time::Iso,
    views::RunRow,
};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, RunnerId, Status, Timestamp};
use fermata_runtime::{
    Refusal, Session,
    query::{self, When},
    reads::RunWindow,
};
use fermata_store::reads::{Order, RunFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Terms such as `status:failed workflow:order-* since:24h`.
    pub(super) query: Option<String>,
    pub(super) status: Option<String>,
    pub(super) workflow_id: Option<String>,
    pub(super) tenant_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) runner_id: Option<String>,
    pub(super) created_after: Option<String>,
    pub(super) created_before: Option<String>,
    pub(super) search: Option<String>,
    pub(super) order: Option<String>,
    pub(super) limit: Option<u32>,
    pub(super) cursor: Option<String>,
}

/// A page of executions.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ExecutionPage")]
pub(crate) struct RunPageView<'a> {
    items: Vec<RunRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// If the page is short because many executions had to be examined: those created since this time were (with `order=asc`:
    /// up to this time).
    #[serde(skip_serializing_if = "Option::is_none")]
    searched_back_to: Option<Iso>,
}

/// `GET /api/v1/executions`, newest first unless `order=asc`.
pub(crate) async fn list(As(session): As, Query(query): Query<ListQuery>) -> Result<Response, ApiError> {
    let filter = list_filter(&session, query).await?;
    let limit = filter.limit;
    let page = session.reads().runs(filter).await?;
    let is_short = page.items.len() < limit as usize;
    let view = RunPageView {
        searched_back_to: page.next.filter(|_| is_short).map(created_at),
        next_cursor: page.next.map(paging::after_run),
        items: page.items.iter().map(RunRow::from).collect(),
    };
    Ok(Json(view).into_response())
}

/// The filter that the parameters mean for this caller.
pub(super) async fn list_filter(session: &Session, query: ListQuery) -> Result<RunFilter, ApiError> {
    let order = match query.order.as_deref() {
        None | Some("" | "desc") => Order::NewestFirst,
        Some("asc") => Order::OldestFirst,
        Some(_) => {
            return Err(ApiError::parameter(
                "`order` must be asc (oldest first) or desc (newest first)",
            ));
        }
    };
    let window = RunWindow {
        order,
        after: query.cursor.as_deref().map(paging::run).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    Ok(session.reads().filter(&terms(query)?, window).await?)
}

/// When the run with this id was created.
fn created_at(id: RunId) -> Iso {
    let millis = u64::try_from(id.0.as_u128() >> 80).unwrap_or(u64::MAX);
    Iso(Timestamp(i64::try_from(millis * 1000).unwrap_or(i64::MAX)))
}

/// The uid of the workflow in a filter, as the caller or the tenant that the filter names means it. An unknown workflow gets a uid
/// that no workflow has, so the list is empty.
pub(super) async fn workflow_uid(session: &Session, tenant: Option<&str>, reference: &str) -> Result<Uuid, ApiError> {
    let workflow = session.reads().for_tenant(tenant).find_workflow(reference).await?;
    Ok(workflow.map_or(Uuid::max(), |workflow| workflow.uid))
}

/// The query, with the other parameters as terms of it.
fn terms(parameters: ListQuery) -> Result<query::Query, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let text = parameters.query.unwrap_or_default();
    let mut query = query::Query::parse(&text).map_err(Refusal::from)?;
    let statuses = statuses(parameters.status.as_deref().unwrap_or_default())?;
    let workflows: Vec<String> = given(parameters.workflow_id).into_iter().collect();
    let runner = given(parameters.runner_id).as_deref().map(runner).transpose()?;
    let search = given(parameters.search);
    if let Some(search) = &search {
        name("search", search)?;
    }
    let since = time_of("createdAfter", given(parameters.created_after))?;
    let until = time_of("createdBefore", given(parameters.created_before))?;
    extend("status", &mut query.statuses, statuses)?;
    extend("workflowId", &mut query.workflows, workflows)?;
    set("tenantId", &mut query.tenant, given(parameters.tenant_id))?;
    set(
        "correlationId",
        &mut query.correlation,
        given(parameters.correlation_id),
    )?;
    set("requestId", &mut query.request, given(parameters.request_id))?;
    set("runnerId", &mut query.runner, runner)?;
    set("createdAfter", &mut query.since, since)?;
    set("createdBefore", &mut query.until, until)?;
    set("search", &mut query.text, search)?;
    Ok(query)
}

fn extend<T>(parameter: &str, of_query: &mut Vec<T>, values: Vec<T>) -> Result<(), ApiError> {
    if !of_query.is_empty() && !values.is_empty() {
        return Err(twice(parameter));
    }
    of_query.extend(values);
    Ok(())
}

fn set<T>(parameter: &str, of_query: &mut Option<T>, value: Option<T>) -> Result<(), ApiError> {
    if of_query.is_some() && value.is_some() {
        return Err(twice(parameter));
    }
    *of_query = of_query.take().or(value);
    Ok(())
}

fn twice(parameter: &str) -> ApiError {
    ApiError::parameter(format!(
        "`{parameter}` and `query` both limit the same; leave one of them out"
    ))
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

/// A time of a parameter.
fn time_of(parameter: &str, text: Option<String>) -> Result<Option<When>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let millis = time::millis(&text).ok_or_else(|| {
        ApiError::parameter(format!(
            "`{parameter}` must be a time such as 2026-11-15T10:30:00Z, or milliseconds since 1970-01-01T00:00:00Z"
        ))
    })?;
    Ok(Some(When::At(millis)))
}

/// The smallest id of a run that was created at this time.
pub(super) fn first_id_at(parameter: &str, text: Option<String>) -> Result<Option<RunId>, ApiError> {
    let first = |when: When| RunId(Uuid::from_u128(u128::from(when.millis(0)) << 80));
    Ok(time_of(parameter, text)?.map(first))
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
