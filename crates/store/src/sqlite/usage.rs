//! The usage of tenants.

use super::{SqliteStore, columns::count, writer::Tx};
use crate::{
    Result,
    usage::{COUNT, USAGE, Usage, UsageStore, month_of},
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

#[async_trait]
impl UsageStore for SqliteStore {
    async fn usage(&self, tenant: &str, month: u32) -> Result<u64> {
        let tenant = tenant.to_owned();
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(USAGE)?;
            let found = statement.query_row(params![tenant, month], |row| count(row, 0));
            Ok(found.optional()?.unwrap_or(0))
        };
        self.readers.read(read).await
    }
}

/// Counts steps that a commit records.
pub(super) fn add(tx: &mut Tx<'_>, usage: Option<&Usage>, at: Timestamp) -> rusqlite::Result<()> {
    if let Some(usage) = usage {
        tx.execute(COUNT, params![usage.tenant, month_of(at), usage.steps])?;
    }
    Ok(())
}
