//! Registered callbacks: services register their addresses, and jsondagapi documents name them. Names are in snake_case.

use crate::{
    body::run_to_completion,
    door::As,
    error::ApiError,
    extract::{Name, OptionalJson, Query, name},
    paging,
    time::Iso,
    views::PageView,
};
use axum::{Json, http::StatusCode};
use fermata_runtime::callbacks::{NewCallbacks, address};
use fermata_store::callbacks::RegisteredCallback;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RegisterBody {
    service_name: String,
    environment: String,
    base_url: String,
    callbacks: BTreeMap<String, PathBody>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PathBody {
    path: String,
}

/// A registered callback.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallbackView {
    callback_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    service_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    environment: String,
    base_url: String,
    path: String,
    /// Where requests are sent.
    url: String,
    registered_at: Iso,
}

impl From<RegisteredCallback> for CallbackView {
    fn from(callback: RegisteredCallback) -> CallbackView {
        CallbackView {
            url: address(&callback),
            callback_id: callback.id,
            tenant_id: callback.tenant,
            service_name: callback.service_name,
            environment: callback.environment,
            base_url: callback.base_url,
            path: callback.path,
            registered_at: Iso(callback.registered_at),
        }
    }
}

/// `POST /api/v1/callbacks/register`: all of them, or none.
pub(crate) async fn register(
    As(session): As,
    OptionalJson(body, share): OptionalJson<RegisterBody>,
) -> Result<Json<PageView<CallbackView>>, ApiError> {
    name("service_name", &body.service_name)?;
    let paths = body.callbacks.into_iter().map(|(id, body)| (id, body.path));
    let new = NewCallbacks {
        service_name: body.service_name,
        environment: body.environment,
        base_url: body.base_url,
        paths: paths.collect(),
    };
    let register = async move { session.callbacks().register(new).await };
    let registered = run_to_completion(share, register).await?;
    Ok(Json(PageView {
        items: registered.into_iter().map(CallbackView::from).collect(),
        next_cursor: None,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/callbacks`, by id.
pub(crate) async fn list(
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<CallbackView>>, ApiError> {
    let after = query.cursor.as_deref().map(paging::name).transpose()?;
    let limit = paging::limit(query.limit)?;
    let page = session.callbacks().list(after, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(PageView {
        next_cursor: last.map(|last| paging::after_name(&last.id, &last.tenant)),
        items: page.items.into_iter().map(CallbackView::from).collect(),
    }))
}

/// `DELETE /api/v1/callbacks/{id}`
pub(crate) async fn delete(As(session): As, Name(id): Name) -> Result<StatusCode, ApiError> {
    session.callbacks().remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
