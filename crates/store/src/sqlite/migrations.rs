//! The schema and its growth: embedded SQL files, applied in order, each once.
//!
//! What must stay true: migrations are additive and never edited after a release; a file that needs a
//! newer program is refused before anything is written to it.

use crate::{Result, StoreError, program};
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
    Migration {
        version: 3,
        name: "workflows without drafts",
        sql: include_str!("migrations/0003_workflows_without_drafts.sql"),
        oldest_program: "0.1.0",
    },
    Migration {
        version: 4,
        name: "runners and dead letters",
        sql: include_str!("migrations/0004_runners_and_dead_letters.sql"),
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
    match needs {
        Some(needs) => program::check(&needs, path),
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

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Applies the migrations up to this one, as the program of that time did.
    fn apply_up_to(connection: &Connection, version: u32) {
        connection.execute_batch(BOOKKEEPING).unwrap();
        for migration in MIGRATIONS.iter().filter(|migration| migration.version <= version) {
            connection.execute_batch(migration.sql).unwrap();
            let done = "INSERT INTO schema_version (version, name) VALUES (?1, ?2)";
            connection.execute(done, (migration.version, migration.name)).unwrap();
        }
    }

    #[test]
    fn workflows_from_before_get_a_uid_of_their_time() {
        let connection = Connection::open_in_memory().unwrap();
        apply_up_to(&connection, 2);
        let insert =
            "INSERT INTO workflows (id, display_name, dialect, created_at, updated_at) VALUES (?1, 'W', 'd', ?2, 0)";
        for number in 0..200_i64 {
            let created_at = 1_770_000_000_000_000 + number * 1_000_000;
            connection
                .execute(insert, (format!("w{number:03}"), created_at))
                .unwrap();
        }
        apply(&connection).unwrap();
        let mut statement = connection
            .prepare("SELECT uid, created_at, deleted_at FROM workflows ORDER BY id")
            .unwrap();
        let rows = statement.query_map([], |row| {
            let uid = uuid::Uuid::from_slice(&row.get::<_, Vec<u8>>(0)?).unwrap();
            Ok((uid, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?))
        });
        let rows: Vec<_> = rows.unwrap().map(|row| row.unwrap()).collect();
        assert_eq!(rows.len(), 200);
        for (uid, created_at, deleted_at) in &rows {
            assert_eq!(uid.get_version_num(), 7, "{uid}");
            assert_eq!(uid.get_variant(), uuid::Variant::RFC4122, "{uid}");
            let (seconds, nanos) = uid.get_timestamp().unwrap().to_unix();
            assert_eq!(seconds as i64 * 1_000_000 + i64::from(nanos) / 1000, *created_at);
            assert_eq!(*deleted_at, None);
        }
        assert!(rows.is_sorted_by_key(|(uid, ..)| *uid));
    }
}
