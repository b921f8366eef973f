//! API keys.

use super::{
    PostgresStore,
    columns::{get, maybe, plain, storable, text},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    keys::{ADD, ApiKey, KEY, KEYS, KEYS_OF_TENANT, KeyFilter, KeyStore, REVOKE, REVOKE_OF_TENANT},
    reads::Page,
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::Object;
use fermata_core::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

#[async_trait]
impl KeyStore for PostgresStore {
    async fn add_api_key(&self, key: ApiKey) -> Result<()> {
        patiently!(self.sessions, |session| add(&mut session, &key))
    }

    async fn api_key(&self, id: Uuid) -> Result<Option<ApiKey>> {
        patiently!(self.sessions, |session| one(&session, id))
    }

    async fn api_keys(&self, filter: KeyFilter) -> Result<Page<ApiKey>> {
        if filter.tenant.as_deref().is_some_and(|tenant| !storable(tenant)) {
            return Ok(Page::default());
        }
        patiently!(self.sessions, |session| list(&session, &filter))
    }

    async fn revoke_api_key(&self, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool> {
        if tenant.is_some_and(|tenant| !storable(tenant)) {
            return Ok(false);
        }
        patiently!(self.sessions, |session| revoke(&mut session, id, tenant, at))
    }
}

async fn add(session: &mut Object, key: &ApiKey) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(ADD)).await?;
    let (name, tenant, by) = (text(&key.name), text(&key.tenant), text(&key.created_by));
    let (created, expires) = (key.created_at.0, key.expires_at.map(|at| at.0));
    let revoked = key.revoked_at.map(|at| at.0);
    tx.execute(
        &statement,
        &[
            &key.id,
            &name,
            &tenant,
            &key.scopes,
            &key.hash,
            &created,
            &by,
            &expires,
            &revoked,
        ],
    )
    .await?;
    commit(tx).await
}

async fn one(session: &Object, id: Uuid) -> Result<Option<ApiKey>, PgError> {
    let statement = session.prepare_cached(&dollars(KEY)).await?;
    let row = session.query_opt(&statement, &[&id]).await?;
    row.as_ref().map(key_row).transpose()
}

async fn list(session: &Object, filter: &KeyFilter) -> Result<Page<ApiKey>, PgError> {
    let before = filter.before.unwrap_or(Uuid::max());
    let limit = i64::from(filter.limit) + 1;
    let rows = match &filter.tenant {
        None => {
            let statement = session.prepare_cached(&dollars(KEYS)).await?;
            session.query(&statement, &[&before, &limit]).await?
        }
        Some(tenant) => {
            let statement = session.prepare_cached(&dollars(KEYS_OF_TENANT)).await?;
            session.query(&statement, &[&before, &limit, tenant]).await?
        }
    };
    let items = rows.iter().map(key_row).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, filter.limit))
}

async fn revoke(session: &mut Object, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let revoked = match tenant {
        None => {
            let statement = tx.prepare_cached(&dollars(REVOKE)).await?;
            tx.execute(&statement, &[&id, &at.0]).await?
        }
        Some(tenant) => {
            let statement = tx.prepare_cached(&dollars(REVOKE_OF_TENANT)).await?;
            tx.execute(&statement, &[&id, &at.0, &tenant]).await?
        }
    };
    if revoked > 0 {
        commit(tx).await?;
    }
    Ok(revoked > 0)
}

fn key_row(row: &Row) -> Result<ApiKey, PgError> {
    Ok(ApiKey {
        id: plain(row, 0)?,
        name: plain(row, 1)?,
        tenant: plain(row, 2)?,
        scopes: plain(row, 3)?,
        hash: plain(row, 4)?,
        created_at: get(row, 5)?,
        created_by: plain(row, 6)?,
        expires_at: maybe(row, 7)?,
        revoked_at: maybe(row, 8)?,
    })
}
