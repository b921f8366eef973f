//! The usage of tenants: counters, and the places of HTTP steps that execute.
//!
//! What must stay true: a place is taken under the lock of the tenant's row for month 0, so that processes do not count at the same
//! time. No transaction that holds this lock waits for another one.

use super::{
    PostgresStore,
    columns::{small, storable},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    statements::dollars,
    usage::{COUNT, StepPlace, USAGE, UsageStore},
};
use async_trait::async_trait;
use deadpool_postgres::Object;
use fermata_core::Timestamp;

/// Frees the places of dead runners.
const FREE_DEAD: &str = "DELETE FROM fermata_http_places p WHERE tenant_id = $1 AND NOT EXISTS
    (SELECT 1 FROM runners r WHERE r.id = p.runner_id AND r.heartbeat_at >= $2)";

const TAKE: &str = "INSERT INTO fermata_http_places (tenant_id, workflow_execution_id, node_id, runner_id)
    SELECT $1, $2, $3, $4 WHERE (SELECT COUNT(*) FROM fermata_http_places WHERE tenant_id = $1
      AND (workflow_execution_id, node_id) <> ($2, $3)) < $5
    ON CONFLICT (tenant_id, workflow_execution_id, node_id) DO UPDATE SET runner_id = excluded.runner_id";

/// Another runner may have taken the place over.
const FREE: &str = "DELETE FROM fermata_http_places
    WHERE tenant_id = $1 AND workflow_execution_id = $2 AND node_id = $3 AND runner_id = $4";

#[async_trait]
impl UsageStore for PostgresStore {
    async fn usage(&self, tenant: &str, month: u32) -> Result<u64> {
        if !storable(tenant) {
            return Ok(0);
        }
        patiently!(self.sessions, |session| read(&session, tenant, month))
    }

    async fn take_step(&self, place: &StepPlace, most: u32, dead_before: Timestamp) -> Result<bool> {
        let dead_before = match dead_before {
            Timestamp(0) => 0,
            at => self.clock.theirs(at),
        };
        patiently!(self.sessions, |session| take(&mut session, place, most, dead_before))
    }

    async fn free_step(&self, place: &StepPlace) -> Result<()> {
        patiently!(self.sessions, |session| free(&mut session, place))
    }
}

async fn read(session: &Object, tenant: &str, month: u32) -> Result<u64, PgError> {
    let statement = session.prepare_cached(&dollars(USAGE)).await?;
    let row = session.query_opt(&statement, &[&tenant, &small(month)]).await?;
    let steps: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(steps.and_then(|steps| u64::try_from(steps).ok()).unwrap_or(0))
}

async fn take(session: &mut Object, place: &StepPlace, most: u32, dead_before: i64) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let (tenant, run, node) = (&place.tenant, place.run.0, place.node.as_str());
    let lock = tx.prepare_cached(&dollars(COUNT)).await?;
    tx.execute(&lock, &[tenant, &0i32, &0i64]).await?;
    let free_dead = tx.prepare_cached(FREE_DEAD).await?;
    tx.execute(&free_dead, &[tenant, &dead_before]).await?;
    let take = tx.prepare_cached(TAKE).await?;
    let taken = tx
        .execute(&take, &[tenant, &run, &node, &place.runner.0, &i64::from(most)])
        .await?;
    commit(tx).await?;
    Ok(taken > 0)
}

async fn free(session: &mut Object, place: &StepPlace) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    let free = tx.prepare_cached(FREE).await?;
    let (run, node) = (place.run.0, place.node.as_str());
    tx.execute(&free, &[&place.tenant, &run, &node, &place.runner.0])
        .await?;
    commit(tx).await
}
