//! API keys: create, list, revoke. A key is shown once, in the response to its creation.

use crate::{
    body::run_to_completion,
    door::As,
    error::ApiError,
    extract::{KeyId, OptionalJson, Query},
    paging,
    time::Iso,
    views::PageView,
};
use axum::{Json, http::StatusCode};
use fermata_core::duration;
use fermata_runtime::{Scope, Scopes, keys::NewKey};
use fermata_store::keys::{ApiKey, KeyFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "NewKeyBody")]
pub(crate) struct CreateBody {
    name: String,
    scopes: Vec<String>,
    tenant_id: Option<String>,
    expires_in: Option<String>,
}

/// A key, without what it proves.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyView {
    id: Uuid,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    scopes: Vec<String>,
    created_at: Iso,
    created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Iso>,
}

/// A key that was created.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedKeyView")]
pub(crate) struct CreatedView {
    #[serde(flatten)]
    view: KeyView,
    /// The credential.
    key: String,
}

impl From<ApiKey> for KeyView {
    fn from(key: ApiKey) -> KeyView {
        KeyView {
            id: key.id,
            name: key.name,
            tenant_id: key.tenant,
            scopes: key.scopes.split(' ').map(str::to_owned).collect(),
            created_at: Iso(key.created_at),
            created_by: key.created_by,
            expires_at: key.expires_at.map(Iso),
            revoked_at: key.revoked_at.map(Iso),
        }
    }
}

/// `POST /api/v1/admin/keys`
pub(crate) async fn create(
    As(session): As,
    OptionalJson(body, share): OptionalJson<CreateBody>,
) -> Result<(StatusCode, Json<CreatedView>), ApiError> {
    let unknown = body.scopes.iter().find(|name| Scope::parse(name).is_none());
    if let Some(name) = unknown {
        let shown: String = name.chars().take(60).collect();
        let known = Scopes::all().names().collect::<Vec<_>>().join(", ");
        return Err(ApiError::invalid(format!(
            "`{shown}` is not a scope; scopes are {known}"
        )));
    }
    let expires_in = body.expires_in.map(|text| duration::parse(&text)).transpose();
    let new = NewKey {
        name: body.name,
        tenant: body.tenant_id.filter(|tenant| !tenant.is_empty()),
        scopes: Scopes::of_names(body.scopes.iter().map(String::as_str)),
        expires_in: expires_in.map_err(|error| ApiError::invalid(format!("`expiresIn`: {error}")))?,
    };
    let (key, text) = run_to_completion(share, async move { session.keys().create(new).await }).await?;
    let view = CreatedView {
        view: key.into(),
        key: text.reveal().to_owned(),
    };
    Ok((StatusCode::CREATED, Json(view)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    tenant_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/admin/keys`, newest first.
pub(crate) async fn list(As(session): As, Query(query): Query<ListQuery>) -> Result<Json<PageView<KeyView>>, ApiError> {
    let filter = KeyFilter {
        tenant: query.tenant_id.filter(|tenant| !tenant.is_empty()),
        before: query.cursor.as_deref().map(paging::id).transpose()?,
        limit: paging::limit(query.limit)?,
    };
    let page = session.keys().list(filter).await?;
    let next = page.items.last().filter(|_| page.more).map(|last| last.id);
    Ok(Json(PageView {
        next_cursor: next.map(paging::after_id),
        items: page.items.into_iter().map(KeyView::from).collect(),
    }))
}

/// `DELETE /api/v1/admin/keys/{id}`: revokes the key. It stays listed.
pub(crate) async fn revoke(As(session): As, KeyId(id): KeyId) -> Result<StatusCode, ApiError> {
    session.keys().revoke(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
