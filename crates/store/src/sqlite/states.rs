//! The cached states of runs.

use super::{columns::key, writer::Tx};
use crate::{runs::CachedState, statements::CACHED_STATE};
use fermata_core::RunId;
use rusqlite::{Connection, OptionalExtension, params};

const SET: &str = "INSERT INTO run_states (workflow_execution_id, state_json) VALUES (?1, ?2)
    ON CONFLICT (workflow_execution_id) DO UPDATE SET state_json = excluded.state_json";

const REMOVE: &str = "DELETE FROM run_states WHERE workflow_execution_id = ?1";

/// Writes or removes the cached state of a run.
pub(super) fn change(tx: &mut Tx<'_>, run: RunId, state: Option<&CachedState>) -> rusqlite::Result<()> {
    match state {
        None => {}
        Some(CachedState::Set(text)) => {
            tx.execute(SET, params![key(&run), text])?;
        }
        Some(CachedState::Remove) => {
            tx.execute(REMOVE, [key(&run)])?;
        }
    }
    Ok(())
}

pub(super) fn read(connection: &Connection, run: RunId) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(CACHED_STATE)?;
    statement.query_row([key(&run)], |row| row.get(0)).optional()
}
