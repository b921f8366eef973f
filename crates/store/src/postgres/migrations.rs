//! The schema and its growth: embedded SQL files, applied in order, each once.
//!
//! What must stay true: migrations are additive and never edited after a release; a database that needs a newer program
//! is refused before anything is written to it; processes that start together wait for each other at a lock on the
//! table of versions, so each migration is applied once. The names of our bookkeeping begin with `fermata_`: an
//! application may keep its own tables in the same database.

use super::{address::Address, trouble::Trouble};
use crate::{Result, StoreError, program};
use tokio_postgres::{Client, error::SqlState};

/// A step of the schema.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
    /// The oldest program that may use the database afterwards.
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
        name: "sql_functions",
        sql: include_str!("migrations/0002_sql_functions.sql"),
        oldest_program: "0.1.0",
    },
];

const BOOKKEEPING: &str = "
    CREATE TABLE IF NOT EXISTS fermata_meta (
      key text NOT NULL PRIMARY KEY, value text NOT NULL) WITH (fillfactor = 20);
    CREATE TABLE IF NOT EXISTS fermata_schema_version (
      version integer NOT NULL PRIMARY KEY,
      name text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);";

/// Others may read meanwhile, but nobody else migrates.
const LOCK: &str = "LOCK TABLE fermata_schema_version IN SHARE ROW EXCLUSIVE MODE";

const SET_OLDEST_PROGRAM: &str = "INSERT INTO fermata_meta (key, value) VALUES ('oldest_program', $1)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// How often the bookkeeping is tried when others make it at the same moment.
const TRIES: usize = 20;

/// Brings a database up to date, or refuses it.
pub(super) async fn migrate(client: &mut Client, address: &Address) -> Result<()> {
    check_server(client, address).await?;
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let opening = |error| address.unopenable(&Trouble::Server(error));
    if let Some(version) = version(client).await.map_err(opening)? {
        check_compatible(client, &address.place).await?;
        // Most starts find nothing to do, and need no right to change the schema.
        if version >= newest {
            return Ok(());
        }
    }
    keep_books(client).await.map_err(opening)?;
    apply(client).await.map_err(opening)?;
    check_compatible(client, &address.place).await
}

/// Refuses what no statement here is written for.
async fn check_server(client: &Client, address: &Address) -> Result<()> {
    let opening = |error| address.unopenable(&Trouble::Server(error));
    let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
        current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'";
    let row = client.query_one(sql, &[]).await.map_err(opening)?;
    let (version, encoding, durable): (i32, String, bool) = (row.get(0), row.get(1), row.get(2));
    let refuse = |what: String| StoreError::Unopenable {
        path: address.place.clone(),
        what,
    };
    if version < 130_000 {
        return Err(refuse(format!(
            "PostgreSQL 13 or newer is needed, this is {}",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(refuse(format!(
            "its encoding is {encoding}; create it with ENCODING 'UTF8'"
        )));
    }
    if !durable {
        tracing::warn!(place = %address.place, "fsync or full_page_writes is off in this server: a crash of its machine loses data");
    }
    Ok(())
}

/// The newest version of the schema, if there is any.
async fn version(client: &Client) -> Result<Option<i32>, tokio_postgres::Error> {
    let there = "SELECT to_regclass('fermata_schema_version') IS NOT NULL";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let newest = "SELECT COALESCE(MAX(version), 0) FROM fermata_schema_version";
    Ok(Some(client.query_one(newest, &[]).await?.get(0)))
}

/// Refuses a database that needs a newer program. Reads only.
async fn check_compatible(client: &Client, place: &str) -> Result<()> {
    let sql = "SELECT value FROM fermata_meta WHERE key = 'oldest_program'";
    let damaged = |what: String| StoreError::Damaged {
        path: place.to_owned(),
        what,
    };
    let row = client.query_opt(sql, &[]).await;
    let row = row.map_err(|error| damaged(Trouble::Server(error).to_string()))?;
    let needs: Option<String> = row.map(|row| row.get(0));
    match needs {
        Some(needs) => program::check(&needs, place),
        // Somebody is about to make the schema; so are we.
        None => Ok(()),
    }
}

/// Makes the tables that say what was applied.
async fn keep_books(client: &Client) -> Result<(), tokio_postgres::Error> {
    let mut tries = 0;
    loop {
        let error = match client.batch_execute(BOOKKEEPING).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // `IF NOT EXISTS` does not see a table that another process is just making.
        let collision = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::DUPLICATE_TABLE,
            SqlState::DUPLICATE_OBJECT,
        ];
        tries += 1;
        if tries > TRIES || !error.code().is_some_and(|code| collision.contains(code)) {
            return Err(error);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Applies what is missing, in one transaction.
async fn apply(client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    // A big table may take its time, and whoever is before us takes as much.
    tx.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL enable_seqscan = on;")
        .await?;
    tx.batch_execute(LOCK).await?;
    let newest = "SELECT COALESCE(MAX(version), 0) FROM fermata_schema_version";
    let newest: i32 = tx.query_one(newest, &[]).await?.get(0);
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > newest) {
        tx.batch_execute(migration.sql).await?;
        let applied = "INSERT INTO fermata_schema_version (version, name) VALUES ($1, $2)";
        tx.execute(applied, &[&migration.version, &migration.name]).await?;
        tx.execute(SET_OLDEST_PROGRAM, &[&migration.oldest_program]).await?;
    }
    tx.commit().await
}
