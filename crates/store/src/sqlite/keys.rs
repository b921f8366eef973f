//! API keys.

use super::{
    SqliteStore,
    columns::{get, maybe, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    keys::{ADD, ApiKey, KEY, KEYS, KEYS_OF_TENANT, KeyFilter, KeyStore, REVOKE, REVOKE_OF_TENANT},
    reads::Page,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

#[async_trait]
impl KeyStore for SqliteStore {
    async fn add_api_key(&self, key: ApiKey) -> Result<()> {
        self.writer.write(move |tx| add(tx, &key)).await
    }

    async fn api_key(&self, id: Uuid) -> Result<Option<ApiKey>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(KEY)?;
            statement.query_row([uid_key(&id)], key_row).optional()
        };
        self.readers.read(read).await
    }

    async fn api_keys(&self, filter: KeyFilter) -> Result<Page<ApiKey>> {
        self.readers.read(move |connection| list(connection, &filter)).await
    }

    async fn revoke_api_key(&self, id: Uuid, tenant: Option<&str>, at: Timestamp) -> Result<bool> {
        let tenant = tenant.map(str::to_owned);
        let revoke = move |tx: &mut Tx<'_>| {
            let id = uid_key(&id);
            let revoked = match &tenant {
                None => tx.connection.prepare_cached(REVOKE)?.execute(params![id, at.0])?,
                Some(tenant) => {
                    let mut statement = tx.connection.prepare_cached(REVOKE_OF_TENANT)?;
                    statement.execute(params![id, at.0, tenant])?
                }
            };
            Ok(revoked > 0)
        };
        self.writer.write(revoke).await
    }
}

fn add(tx: &mut Tx<'_>, key: &ApiKey) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(ADD)?.execute(params![
        uid_key(&key.id),
        key.name,
        key.tenant,
        key.scopes,
        key.hash,
        key.created_at.0,
        key.created_by,
        key.expires_at.map(|at| at.0),
        key.revoked_at.map(|at| at.0),
    ])?;
    Ok(())
}

fn list(connection: &Connection, filter: &KeyFilter) -> rusqlite::Result<Page<ApiKey>> {
    let before = filter.before.unwrap_or(Uuid::max());
    let (before, limit) = (uid_key(&before), i64::from(filter.limit) + 1);
    let items = match &filter.tenant {
        None => {
            let mut statement = connection.prepare_cached(KEYS)?;
            let rows = statement.query_map(params![before, limit], key_row)?;
            rows.collect::<rusqlite::Result<_>>()?
        }
        Some(tenant) => {
            let mut statement = connection.prepare_cached(KEYS_OF_TENANT)?;
            let rows = statement.query_map(params![before, limit, tenant], key_row)?;
            rows.collect::<rusqlite::Result<_>>()?
        }
    };
    Ok(Page::cut(items, filter.limit))
}

fn key_row(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: get(row, 0)?,
        name: row.get(1)?,
        tenant: row.get(2)?,
        scopes: row.get(3)?,
        hash: row.get(4)?,
        created_at: get(row, 5)?,
        created_by: row.get(6)?,
        expires_at: maybe(row, 7)?,
        revoked_at: maybe(row, 8)?,
    })
}
