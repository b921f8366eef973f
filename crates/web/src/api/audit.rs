//! The audit trail: who changed what, when and from where.

use super::list::first_id_at;
use crate::{
    door::As,
    error::ApiError,
    extract::{Query, name},
    paging,
    time::Iso,
    views::PageView,
};
use axum::Json;
use fermata_store::audit::{AuditFilter, AuditOutcome, AuditRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A row.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditView {
    id: Uuid,
    at: Iso,
    #[serde(skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    who: String,
    credential: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum_after: Option<String>,
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> AuditView {
        AuditView {
            id: row.id,
            at: Iso(row.at),
            tenant_id: row.tenant,
            who: row.who,
            credential: row.credential,
            address: row.address,
            action: row.action,
            target: row.target,
            outcome: row.outcome.as_str(),
            detail: row.detail,
            checksum_before: row.before,
            checksum_after: row.after,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    tenant_id: Option<String>,
    who: Option<String>,
    action: Option<String>,
    target: Option<String>,
    outcome: Option<String>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// `GET /api/v1/audit`, newest first.
pub(crate) async fn list(
    As(session): As,
    Query(query): Query<ListQuery>,
) -> Result<Json<PageView<AuditView>>, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let unknown = || ApiError::parameter("`outcome` must be done, requested or refused");
    let outcome = given(query.outcome).map(|word| AuditOutcome::parse(&word).ok_or_else(unknown));
    let filter = AuditFilter {
        tenant: given(query.tenant_id),
        who: given(query.who),
        action: given(query.action),
        target: given(query.target),
        outcome: outcome.transpose()?,
        from: first_id_at("since", given(query.since))?.map(|id| id.0),
        before: first_id_at("until", given(query.until))?.map(|id| id.0),
        limit: paging::limit(query.limit)?,
    };
    for (field, text) in [
        ("who", &filter.who),
        ("action", &filter.action),
        ("target", &filter.target),
    ] {
        text.as_ref().map_or(Ok(()), |text| name(field, text))?;
    }
    let cursor = query.cursor.as_deref().map(paging::id).transpose()?;
    let before = match (filter.before, cursor) {
        (Some(before), Some(cursor)) => Some(before.min(cursor)),
        (before, cursor) => before.or(cursor),
    };
    let page = session.audit().list(AuditFilter { before, ..filter }).await?;
    Ok(Json(PageView {
        next_cursor: page.next.map(paging::after_id),
        items: page.items.into_iter().map(AuditView::from).collect(),
    }))
}
