//! Searchable fields of runs and tags of versions.

use super::{
    SqliteStore,
    columns::{get, key, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    fields::{ADD_TAG, FieldStore, REMOVE_FIELDS, RunField, SET_FIELD, TAGGED, tags_of_plan},
};
use async_trait::async_trait;
use fermata_core::RunId;
use rusqlite::{Connection, params};
use uuid::Uuid;

#[async_trait]
impl FieldStore for SqliteStore {
    async fn set_fields(&self, run: RunId, tenant: &str, fields: Vec<RunField>) -> Result<()> {
        let tenant = tenant.to_owned();
        let set = move |tx: &mut Tx<'_>| {
            tx.execute(REMOVE_FIELDS, [key(&run)])?;
            add(tx, run, &tenant, &fields)
        };
        self.writer.write(set).await
    }

    async fn tagged(&self, tags: Vec<String>, limit: u32) -> Result<Vec<Uuid>> {
        self.readers
            .read(move |connection| tagged(connection, &tags, limit))
            .await
    }
}

/// Adds the fields of a new run.
pub(super) fn add(tx: &mut Tx<'_>, run: RunId, tenant: &str, fields: &[RunField]) -> rusqlite::Result<()> {
    for field in fields {
        tx.execute(SET_FIELD, params![key(&run), field.field, field.value, tenant])?;
    }
    Ok(())
}

/// Adds the tags of a version.
pub(super) fn add_tags(tx: &Tx<'_>, workflow: Uuid, version: u32, plan: &str) -> rusqlite::Result<()> {
    for tag in tags_of_plan(plan) {
        let mut statement = tx.connection.prepare_cached(ADD_TAG)?;
        statement.execute(params![tag, uid_key(&workflow), version])?;
    }
    Ok(())
}

fn tagged(connection: &Connection, tags: &[String], limit: u32) -> rusqlite::Result<Vec<Uuid>> {
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached(TAGGED)?;
    for tag in tags {
        let rows = statement.query_map(params![tag, limit], |row| get::<Uuid>(row, 0))?;
        found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(limit as usize);
    Ok(found)
}
