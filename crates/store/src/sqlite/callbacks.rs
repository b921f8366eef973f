//! Registered callbacks.

use super::{SqliteStore, columns::get, writer::Tx};
use crate::{
    Result,
    callbacks::{
        CALLBACK, CALLBACK_OF_TENANT, CALLBACKS, CALLBACKS_OF_TENANT, CallbackFilter, CallbackStore, DELETE, REGISTER,
        RegisteredCallback, Registration, containing,
    },
    reads::Page,
};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl CallbackStore for SqliteStore {
    async fn register_callbacks(&self, callbacks: Vec<RegisteredCallback>) -> Result<Registration> {
        self.writer.write(move |tx| register(tx, &callbacks)).await
    }

    async fn registered_callback(&self, tenant: &str, id: &str) -> Result<Option<RegisteredCallback>> {
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        let read = move |connection: &Connection| one(connection, CALLBACK, &tenant, &id);
        self.readers.read(read).await
    }

    async fn registered_callbacks(&self, filter: CallbackFilter) -> Result<Page<RegisteredCallback>> {
        let read = move |connection: &Connection| {
            let (id, tenant) = filter.after.unwrap_or_default();
            let (sql, tenant) = match filter.tenant {
                None => (CALLBACKS, tenant),
                Some(tenant) => (CALLBACKS_OF_TENANT, tenant),
            };
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![id, tenant, i64::from(filter.limit) + 1], callback_row)?;
            Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, filter.limit))
        };
        self.readers.read(read).await
    }

    async fn delete_callback(&self, tenant: &str, id: &str) -> Result<bool> {
        let key = [tenant.to_owned(), id.to_owned()];
        let delete = move |tx: &mut Tx<'_>| Ok(tx.connection.prepare_cached(DELETE)?.execute([&key[0], &key[1]])? > 0);
        self.writer.write(delete).await
    }

    async fn active_workflows_containing(&self, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>> {
        let (tenant, text) = (tenant.to_owned(), text.to_owned());
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(&containing("instr"))?;
            let rows = statement.query_map(params![text, limit, tenant], |row| row.get(0))?;
            rows.collect()
        };
        self.readers.read(read).await
    }
}

fn one(connection: &Connection, sql: &str, tenant: &str, id: &str) -> rusqlite::Result<Option<RegisteredCallback>> {
    connection
        .prepare_cached(sql)?
        .query_row([tenant, id], callback_row)
        .optional()
}

fn callback_row(row: &Row<'_>) -> rusqlite::Result<RegisteredCallback> {
    Ok(RegisteredCallback {
        id: row.get(0)?,
        service_name: row.get(1)?,
        environment: row.get(2)?,
        base_url: row.get(3)?,
        path: row.get(4)?,
        registered_at: get(row, 5)?,
        tenant: row.get(6)?,
    })
}

/// All are checked before the first one is written, because the transaction has other members.
fn register(tx: &mut Tx<'_>, callbacks: &[RegisteredCallback]) -> rusqlite::Result<Registration> {
    for callback in callbacks {
        let there = one(tx.connection, CALLBACK_OF_TENANT, &callback.tenant, &callback.id)?;
        if let Some(other) = there.filter(|there| there.service_name != callback.service_name) {
            return Ok(Registration::Taken {
                id: other.id,
                service_name: other.service_name,
            });
        }
    }
    let mut statement = tx.connection.prepare_cached(REGISTER)?;
    for callback in callbacks {
        statement.execute(params![
            callback.id,
            callback.service_name,
            callback.environment,
            callback.base_url,
            callback.path,
            callback.registered_at.0,
            callback.tenant,
        ])?;
    }
    Ok(Registration::Registered)
}
