//! Searchable fields of runs and tags of versions.

use super::{
    PostgresStore,
    columns::{plain, small},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    fields::{ADD_TAG, FieldStore, REMOVE_FIELDS, RunField, SET_FIELD, TAGGED, tags_of_plan},
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use fermata_core::RunId;
use uuid::Uuid;

#[async_trait]
impl FieldStore for PostgresStore {
    async fn set_fields(&self, run: RunId, tenant: &str, fields: Vec<RunField>) -> Result<()> {
        patiently!(self.sessions, |session| set(&mut session, run, tenant, &fields))
    }

    async fn tagged(&self, tags: Vec<String>, limit: u32) -> Result<Vec<Uuid>> {
        patiently!(self.sessions, |session| tagged(&session, &tags, limit))
    }
}

async fn set(session: &mut Object, run: RunId, tenant: &str, fields: &[RunField]) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    tx.execute(&tx.prepare_cached(&dollars(REMOVE_FIELDS)).await?, &[&run.0])
        .await?;
    let statement = tx.prepare_cached(&dollars(SET_FIELD)).await?;
    for field in fields {
        tx.execute(&statement, &[&run.0, &field.field, &field.value, &tenant])
            .await?;
    }
    commit(tx).await
}

/// Adds the tags of a version.
pub(super) async fn add_tags(
    client: &impl GenericClient,
    workflow: Uuid,
    version: u32,
    plan: &str,
) -> Result<(), PgError> {
    for tag in tags_of_plan(plan) {
        let statement = client.prepare_cached(&dollars(ADD_TAG)).await?;
        client.execute(&statement, &[&tag, &workflow, &small(version)]).await?;
    }
    Ok(())
}

async fn tagged(client: &impl GenericClient, tags: &[String], limit: u32) -> Result<Vec<Uuid>, PgError> {
    let mut found: Vec<Uuid> = Vec::new();
    let statement = client.prepare_cached(&dollars(TAGGED)).await?;
    for tag in tags {
        let rows = client.query(&statement, &[tag, &i64::from(limit)]).await?;
        for row in &rows {
            found.push(plain(row, 0)?);
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(limit as usize);
    Ok(found)
}
