//! The audit trail. Rows of changes are added in the transaction of the change (`sessions::commit`), those of messages to runs
//! before the change, because committers write the messages of many callers together.

use super::{
    PostgresStore,
    columns::{get, plain, storable, text},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    audit::{
        ADD, AuditFilter, AuditOutcome, AuditPage, AuditRow, AuditStore, PRUNE, ROWS, ROWS_OF_TENANT, current, describe,
    },
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

#[async_trait]
impl AuditStore for PostgresStore {
    async fn add_audit(&self, row: AuditRow) -> Result<()> {
        patiently!(self.sessions, |session| add_alone(&mut session, &row))
    }

    async fn audit(&self, filter: AuditFilter) -> Result<AuditPage> {
        if !filter.tenant.as_deref().is_none_or(storable) {
            return Ok(AuditPage::default());
        }
        patiently!(self.sessions, |session| list(&session, &filter))
    }

    async fn prune_audit(&self, before: Uuid, limit: u32) -> Result<u64> {
        patiently!(self.sessions, |session| prune(&mut session, before, limit))
    }
}

impl PostgresStore {
    /// Makes the row of the current work durable, if it is recorded, before the work is handed to a committer.
    pub(super) async fn record_request(&self) -> Result<()> {
        describe(|row| row.outcome = AuditOutcome::Requested);
        match current() {
            Some(row) => self.add_audit(row).await,
            None => Ok(()),
        }
    }
}

/// Adds a row, unless it is there.
pub(super) async fn add(client: &impl GenericClient, row: &AuditRow) -> Result<(), PgError> {
    let statement = client.prepare_cached(&dollars(ADD)).await?;
    let texts = [&row.tenant, &row.who, &row.credential, &row.action, &row.target].map(|one| text(one).into_owned());
    let [tenant, who, credential, action, target] = &texts;
    let detail = row.detail.as_deref().map(text);
    let (address, outcome) = (&row.address, row.outcome.as_str());
    let params: &[&(dyn ToSql + Sync)] = &[
        &row.id,
        &row.at.0,
        tenant,
        who,
        credential,
        address,
        action,
        target,
        &outcome,
        &detail,
        &row.before,
        &row.after,
    ];
    client.execute(&statement, params).await?;
    Ok(())
}

async fn add_alone(session: &mut Object, row: &AuditRow) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    add(&tx, row).await?;
    Ok(tx.commit().await?)
}

async fn list(client: &impl GenericClient, filter: &AuditFilter) -> Result<AuditPage, PgError> {
    let (before, from) = (filter.before.unwrap_or(Uuid::max()), filter.from.unwrap_or(Uuid::nil()));
    let limit = i64::from(filter.examined());
    let rows = match filter.of_tenant() {
        None => {
            let statement = client.prepare_cached(&dollars(ROWS)).await?;
            client.query(&statement, &[&before, &from, &limit]).await?
        }
        Some(tenant) => {
            let statement = client.prepare_cached(&dollars(ROWS_OF_TENANT)).await?;
            client.query(&statement, &[&before, &from, &limit, &tenant]).await?
        }
    };
    let rows: Result<Vec<AuditRow>, PgError> = rows.iter().map(audit_row).collect();
    Ok(filter.page(rows?))
}

fn audit_row(row: &Row) -> Result<AuditRow, PgError> {
    Ok(AuditRow {
        id: plain(row, 0)?,
        at: get(row, 1)?,
        tenant: plain(row, 2)?,
        who: plain(row, 3)?,
        credential: plain(row, 4)?,
        address: plain(row, 5)?,
        action: plain(row, 6)?,
        target: plain(row, 7)?,
        outcome: get(row, 8)?,
        detail: plain(row, 9)?,
        before: plain(row, 10)?,
        after: plain(row, 11)?,
    })
}

async fn prune(session: &mut Object, before: Uuid, limit: u32) -> Result<u64, PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(PRUNE)).await?;
    let removed = tx.execute(&statement, &[&before, &i64::from(limit)]).await?;
    commit(tx).await?;
    Ok(removed)
}
