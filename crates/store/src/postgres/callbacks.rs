//! Registered callbacks.

use super::{
    PostgresStore,
    columns::{get, plain, storable, text},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    callbacks::{
        CALLBACK, CALLBACK_OF_TENANT, CALLBACKS, CALLBACKS_OF_TENANT, CallbackFilter, CallbackStore, DELETE, REGISTER,
        RegisteredCallback, Registration, containing,
    },
    reads::Page,
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::{Row, types::ToSql};

#[async_trait]
impl CallbackStore for PostgresStore {
    async fn register_callbacks(&self, mut callbacks: Vec<RegisteredCallback>) -> Result<Registration> {
        // Registrations lock rows in the same order, so they do not deadlock.
        callbacks.sort_by(|a, b| (&a.tenant, &a.id).cmp(&(&b.tenant, &b.id)));
        patiently!(self.sessions, |session| register(&mut session, &callbacks))
    }

    async fn registered_callback(&self, tenant: &str, id: &str) -> Result<Option<RegisteredCallback>> {
        if !storable(id) || !storable(tenant) {
            return Ok(None);
        }
        patiently!(self.sessions, |session| one(&session, CALLBACK, tenant, id))
    }

    async fn registered_callbacks(&self, filter: CallbackFilter) -> Result<Page<RegisteredCallback>> {
        patiently!(self.sessions, |session| list(&session, &filter))
    }

    async fn delete_callback(&self, tenant: &str, id: &str) -> Result<bool> {
        if !storable(id) || !storable(tenant) {
            return Ok(false);
        }
        patiently!(self.sessions, |session| delete(&mut session, tenant, id))
    }

    async fn active_workflows_containing(&self, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>> {
        patiently!(self.sessions, |session| workflows(&session, tenant, text, limit))
    }
}

async fn register(session: &mut Object, callbacks: &[RegisteredCallback]) -> Result<Registration, PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(REGISTER)).await?;
    for callback in callbacks {
        let (id, registered_at) = (&callback.id, callback.registered_at.0);
        let (service, environment) = (&callback.service_name, &callback.environment);
        let (base_url, path) = (&callback.base_url, &callback.path);
        let tenant = &callback.tenant;
        let row: &[&(dyn ToSql + Sync)] = &[id, service, environment, base_url, path, &registered_at, tenant];
        let stored = tx.execute(&statement, row).await?;
        if stored > 0 {
            continue;
        }
        // The row is locked by the statement. Dropping the transaction rolls it back.
        let other = one(&tx, CALLBACK_OF_TENANT, tenant, id).await?;
        return Ok(Registration::Taken {
            id: id.clone(),
            service_name: other.map(|other| other.service_name).unwrap_or_default(),
        });
    }
    commit(tx).await?;
    Ok(Registration::Registered)
}

async fn one(
    client: &impl GenericClient,
    sql: &str,
    tenant: &str,
    id: &str,
) -> Result<Option<RegisteredCallback>, PgError> {
    let statement = client.prepare_cached(&dollars(sql)).await?;
    let row = client.query_opt(&statement, &[&tenant, &id]).await?;
    row.as_ref().map(callback_row).transpose()
}

async fn list(client: &impl GenericClient, filter: &CallbackFilter) -> Result<Page<RegisteredCallback>, PgError> {
    let (id, tenant) = filter.after.as_ref().map_or(("", ""), |(id, tenant)| (id, tenant));
    let (sql, tenant) = match &filter.tenant {
        None => (CALLBACKS, tenant),
        Some(tenant) => (CALLBACKS_OF_TENANT, tenant.as_str()),
    };
    let statement = client.prepare_cached(&dollars(sql)).await?;
    let (id, tenant, limit) = (text(id), text(tenant), i64::from(filter.limit) + 1);
    let rows = client.query(&statement, &[&id, &tenant, &limit]).await?;
    let items = rows.iter().map(callback_row).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, filter.limit))
}

fn callback_row(row: &Row) -> Result<RegisteredCallback, PgError> {
    Ok(RegisteredCallback {
        id: plain(row, 0)?,
        service_name: plain(row, 1)?,
        environment: plain(row, 2)?,
        base_url: plain(row, 3)?,
        path: plain(row, 4)?,
        registered_at: get(row, 5)?,
        tenant: plain(row, 6)?,
    })
}

async fn delete(session: &mut Object, tenant: &str, id: &str) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(DELETE)).await?;
    let removed = tx.execute(&statement, &[&tenant, &id]).await?;
    if removed > 0 {
        commit(tx).await?;
    }
    Ok(removed > 0)
}

async fn workflows(client: &impl GenericClient, tenant: &str, text: &str, limit: u32) -> Result<Vec<String>, PgError> {
    let statement = client.prepare_cached(&dollars(&containing("strpos"))).await?;
    let rows = client.query(&statement, &[&text, &i64::from(limit), &tenant]).await?;
    rows.iter().map(|row| plain(row, 0)).collect()
}
