//! The schema and its growth: embedded SQL files, applied in order, each once.
//!
//! What must stay true: migrations are additive and never edited after a release; a file that needs a
//! newer program is refused before anything is written to it.

use crate::{Result, StoreError};
use rusqlite::{Connection, OptionalExtension};

/// `Ferm`: says in the file's header whose it is.
pub(super) const APPLICATION_ID: i32 = 0x4665_726d;

/// A step of the schema.
struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
    /// The oldest program that may use the file afterwards.
    oldest_program: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "first",
        sql: include_str!("migrations/0001_first.sql"),
        oldest_program: "0.1.0",
    },
    Migration {
        version: 2,
        name: "lifecycle and lists",
        sql: include_str!("migrations/0002_lifecycle_and_lists.sql"),
        oldest_program: "0.1.0",
    },
];

const BOOKKEEPING: &str = "
    CREATE TABLE IF NOT EXISTS meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS schema_version (
      version INTEGER NOT NULL PRIMARY KEY,
      name TEXT NOT NULL,
      applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    );";

/// Refuses a file that needs a newer program. Reads only.
pub(super) fn check_compatible(connection: &Connection, path: &str) -> Result<()> {
    let needs: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE key = 'oldest_program'", [], |row| {
            row.get(0)
        })
        .optional()
        .map_err(|error| damaged(path, &error))?;
    let have = env!("CARGO_PKG_VERSION");
    match needs {
        Some(needs) if numbers(&needs) > numbers(have) => Err(StoreError::TooNew {
            path: path.to_owned(),
            needs,
            have: have.to_owned(),
        }),
        Some(_) => Ok(()),
        None => Err(StoreError::Damaged {
            path: path.to_owned(),
            what: "it does not say which program it is for".to_owned(),
        }),
    }
}

/// Applies what is missing. Runs inside the caller's transaction.
pub(super) fn apply(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(BOOKKEEPING)?;
    let newest: u32 = connection.query_row("SELECT COALESCE(MAX(version), 0) FROM schema_version", [], |row| {
        row.get(0)
    })?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > newest) {
        connection.execute_batch(migration.sql)?;
        connection.execute(
            "INSERT INTO schema_version (version, name) VALUES (?1, ?2)",
            (migration.version, migration.name),
        )?;
        connection.execute(
            "INSERT INTO meta (key, value) VALUES ('oldest_program', ?1)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [migration.oldest_program],
        )?;
    }
    Ok(())
}

fn damaged(path: &str, error: &rusqlite::Error) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        what: error.to_string(),
    }
}

/// `1.20.3-rc1` as numbers; what is not a number counts as 0.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version
        .split(['-', '+'])
        .next()
        .unwrap_or("")
        .split('.')
        .map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.12"));
        assert!(numbers("1.0") > numbers("0.99.99"));
        assert_eq!(numbers("1.2.3-rc1"), [1, 2, 3]);
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        apply(&connection).unwrap();
        let schema = |connection: &Connection| -> Vec<String> {
            let mut statement = connection
                .prepare("SELECT COALESCE(sql, name) FROM sqlite_schema ORDER BY name")
                .unwrap();
            statement
                .query_map([], |row| row.get(0))
                .unwrap()
                .map(|row| row.unwrap())
                .collect()
        };
        let before = schema(&connection);
        apply(&connection).unwrap();
        assert_eq!(schema(&connection), before);
    }
}
