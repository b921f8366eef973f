//! Opens a database file: checks that it is a Fermata database, that no other process uses it, and that this program
//! may use it.
//!
//! What must stay true: nothing is written to a file before it is known to be a usable Fermata database. A file that
//! cannot be used is never reset. The lock is held as long as the store is open.

use super::{
    lock::{self, Lock},
    log_check::{self, Found},
    migrations,
    transfer::read_mark,
};
use crate::{
    Result, StoreError,
    schema::{Applied, Migrate, Program, Schema, Step},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long opening waits for a write of another program.
const OPEN_PATIENCE: Duration = Duration::from_millis(500);
/// How long a batch waits for a write of another program.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// Twice the default, so that rows of up to about 2 KB need no overflow pages. Not measured against other sizes.
const PAGE_SIZE: u32 = 8192;

/// The size to which the log file is truncated when it restarts. It may grow beyond this during a long read.
const LOG_BYTES: u32 = 64 << 20;

/// An open and locked database. The connection is dropped first.
pub(super) struct Opened {
    /// The writing connection.
    pub(super) connection: Connection,
    /// Excludes other processes until it is dropped.
    pub(super) lock: Lock,
}

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To serve it. A database that is part of a transfer is refused, and with [`Migrate::Manual`] one with an old
    /// schema.
    Store(Migrate),
    /// As an end of a transfer, whatever its transfer mark says.
    Transfer,
    /// To inspect it: it is neither created nor migrated.
    Look,
}

/// Opens or creates the database at `path`.
pub(super) fn open(path: &Path, purpose: Purpose) -> Result<Opened> {
    open_as(&migrations::PROGRAM, path, purpose)
}

/// The same, for another list of migrations.
pub(super) fn open_as(program: &Program, path: &Path, purpose: Purpose) -> Result<Opened> {
    let name = path.display().to_string();
    if let Purpose::Store(migrate) = purpose
        && !path.exists()
    {
        program.check_up_to_date(0, migrate, &name)?;
    }
    let unopenable = |what: String| StoreError::Unopenable {
        path: name.clone(),
        what,
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| unopenable(format!("its folder cannot be created: {error}")))?;
    }
    if path.is_dir() {
        return Err(unopenable("it is a folder".to_owned()));
    }
    refuse_emptied(path, &name)?;
    if !path.exists() && purpose != Purpose::Look {
        lock::create(path).map_err(|error| unopenable(error.to_string()))?;
    }
    let mut lock = Lock::take(path, &name)?;
    refuse_emptied(&lock.path, &name)?;
    let cut = check_log(&lock.path, &name)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&lock.path, flags).map_err(|error| opening(&name, &error))?;
    connection
        .busy_timeout(OPEN_PATIENCE)
        .map_err(|error| opening(&name, &error))?;
    let new = inspect(&connection, program, &name)?;
    if let Purpose::Store(migrate) = purpose {
        let number = match new {
            true => 0,
            false => migrations::number(&connection).map_err(|error| opening(&name, &error))?,
        };
        program.check_up_to_date(number, migrate, &name)?;
        if !new {
            refuse_marked(&connection, &name)?;
        }
    }
    if purpose != Purpose::Look {
        prepare(&connection, program, new, cut).map_err(|error| opening(&name, &error))?;
        lock.watch_log();
    }
    Ok(Opened { connection, lock })
}

/// A connection for reading.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(WRITE_PATIENCE)?;
    connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;")?;
    steady(&connection)?;
    Ok(connection)
}

/// Keeps statements prepared. Without the first line, SQLite prepares statements that might use a partial index again
/// for each bound value.
fn steady(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

impl super::SqliteStore {
    /// Deletes the database at `path`; false if there is none. It must be a Fermata database that no process has open.
    pub fn delete(path: &Path) -> Result<bool> {
        let name = path.display().to_string();
        let unopenable = |what: String| StoreError::Unopenable {
            path: name.clone(),
            what,
        };
        if !path.exists() {
            return Ok(false);
        }
        // The lock file stays: processes that wait for it must all find the same file.
        let _lock = Lock::take(path, &name)?;
        if !is_ours(path).map_err(|error| opening(&name, &error))? {
            return Err(StoreError::Damaged {
                path: name,
                what: "it is the database of another application, so it is not deleted".to_owned(),
            });
        }
        // Deleting the log first makes the database older, which is harmless because it is deleted next.
        for file in [beside(path, "-shm"), beside(path, "-wal"), path.to_owned()] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(unopenable(format!("{} cannot be deleted: {error}", file.display())));
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

impl super::SqliteStore {
    /// The schema of the file at `path`. The file may be in use, or missing.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] or [`StoreError::Unopenable`].
    pub fn schema(path: &Path) -> Result<Schema> {
        let name = path.display().to_string();
        let (oldest_program, applied) = match path.exists() {
            true => read_schema(path, &name)?,
            false => (None, Vec::new()),
        };
        Ok(Schema {
            place: name,
            oldest_program,
            steps: migrations::PROGRAM.steps(&applied),
        })
    }

    /// Migrates the file at `path` to the newest schema, or creates the file; returns the steps that were applied. No
    /// process may have it open.
    ///
    /// # Errors
    /// As [`super::SqliteStore::open`].
    pub fn migrate(path: &Path) -> Result<Vec<Step>> {
        let before = Self::schema(path)?;
        open(path, Purpose::Store(Migrate::Auto))?;
        Ok(Self::schema(path)?.applied_since(&before))
    }

    /// Undoes the newest migration of the file at `path`, if no data is lost. No process may have it open.
    ///
    /// # Errors
    /// [`StoreError::NoWayBack`], or as [`super::SqliteStore::open`]. The file is not changed then.
    pub fn migrate_back(path: &Path) -> Result<Step> {
        let name = path.display().to_string();
        if !path.exists() {
            return Err(StoreError::NoWayBack {
                path: name,
                what: "there is no such file".to_owned(),
            });
        }
        let opened = open(path, Purpose::Look)?;
        let failed = |error: rusqlite::Error| opening(&name, &error);
        let tx = rusqlite::Transaction::new_unchecked(&opened.connection, TransactionBehavior::Immediate);
        let tx = tx.map_err(failed)?;
        refuse_marked(&tx, &name)?;
        let step = migrations::take_back(&tx, &migrations::PROGRAM, &name)?;
        tx.commit().map_err(failed)?;
        Ok(step)
    }
}

/// The oldest program that may use a file and the applied migrations, if there are any.
fn read_schema(path: &Path, name: &str) -> Result<(Option<String>, Vec<Applied>)> {
    let failed = |error: rusqlite::Error| opening(name, &error);
    let connection = open_reader(path).map_err(failed)?;
    match whose(&connection).map_err(failed)? {
        (0, 0) => Ok((None, Vec::new())),
        (migrations::APPLICATION_ID, _) => {
            let oldest = migrations::oldest_program(&connection, name)?;
            Ok((Some(oldest), migrations::applied(&connection).map_err(failed)?))
        }
        _ => Err(another(name)),
    }
}

/// Whether a file is empty or a Fermata database of any version.
fn is_ours(path: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    Ok(match whose(&connection)? {
        (0, 0) => true,
        (id, _) => id == migrations::APPLICATION_ID,
    })
}

/// The application id of a database, and its number of tables and indexes.
fn whose(connection: &Connection) -> rusqlite::Result<(i32, i64)> {
    let id = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables = connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((id, tables))
}

/// SQLite drops the log of an empty file. An empty file with a log has lost its contents.
fn refuse_emptied(path: &Path, name: &str) -> Result<()> {
    let length = |path: &Path| fs::metadata(path).map(|data| data.len()).unwrap_or(0);
    if length(path) == 0 && length(&beside(path, "-wal")) > 0 {
        return Err(StoreError::Damaged {
            path: name.to_owned(),
            what: format!("it is empty, but its log {} is not", beside(path, "-wal").display()),
        });
    }
    Ok(())
}

/// Refuses a log with damage before acknowledged transactions, which SQLite would drop silently. Returns whether the
/// last transaction is incomplete.
fn check_log(path: &Path, name: &str) -> Result<bool> {
    let log = beside(path, "-wal");
    let found = log_check::check(&log).map_err(|error| StoreError::Unopenable {
        path: name.to_owned(),
        what: format!("{}: {error}", log.display()),
    })?;
    match found {
        Found::Sound => Ok(false),
        Found::LastCut { frame } => {
            tracing::warn!(
                path = name,
                frame,
                "the last transaction of the log is incomplete, as after a power failure, and is dropped"
            );
            Ok(true)
        }
        Found::Damaged { frame, lost } => Err(StoreError::Damaged {
            path: name.to_owned(),
            what: format!(
                "its log {} is damaged at frame {frame}, and {lost} committed transactions stand behind that. To go on \
                 without them, copy both files and let the sqlite3 shell open the database once",
                log.display()
            ),
        }),
    }
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

/// Whether the file is new; an error if it is not a Fermata database or needs a newer program. Reads only.
fn inspect(connection: &Connection, program: &Program, name: &str) -> Result<bool> {
    match whose(connection).map_err(|error| opening(name, &error))? {
        (0, 0) => Ok(true),
        (migrations::APPLICATION_ID, _) => {
            program.check(&migrations::oldest_program(connection, name)?, name)?;
            Ok(false)
        }
        _ => Err(another(name)),
    }
}

fn another(name: &str) -> StoreError {
    StoreError::Damaged {
        path: name.to_owned(),
        what: "it is the database of another application".to_owned(),
    }
}

/// Refuses a database that is part of a transfer. Reads only.
fn refuse_marked(connection: &Connection, name: &str) -> Result<()> {
    match read_mark(connection, name)? {
        Some(mark) => Err(mark.refuse(name)),
        None => Ok(()),
    }
}

/// Sets up the connection, applies missing migrations and deletes the runners of earlier processes.
fn prepare(connection: &Connection, program: &Program, new: bool, cut: bool) -> rusqlite::Result<()> {
    if new {
        // Must be set before the first table exists. Without `auto_vacuum`, which costs each run about 3 % more processor
        // time: freed pages are used again, and `SqliteStore::vacuum` turns it on for files that shall shrink.
        connection.execute_batch(&format!("PRAGMA page_size = {PAGE_SIZE};"))?;
    }
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.query_row(&format!("PRAGMA journal_size_limit = {LOG_BYTES}"), [], |_| Ok(()))?;
    if cut {
        // The dropped transaction must not be found again.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    // A larger cache makes commits slower: in files below 1 GB, SQLite walks all cached pages at the end of nearly every
    // transaction. (Splitting a page uses the number of the lock page for a moment, and pages with numbers beyond the end
    // of the file are dropped from the cache then.) With 64 MB that was 4 % of the writer's time.
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA foreign_keys = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16384;",
    )?;
    steady(connection)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    if new {
        connection.execute_batch(&format!("PRAGMA application_id = {};", migrations::APPLICATION_ID))?;
    }
    migrations::apply(connection, program)?;
    connection.execute_batch("DELETE FROM runners; COMMIT;")?;
    connection.busy_timeout(WRITE_PATIENCE)
}

/// An error at opening, as text for the operator.
fn opening(path: &str, error: &rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked {
            path,
            holder: String::new(),
        },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::Damaged {
            path,
            what: error.to_string(),
        },
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        _ => StoreError::Unopenable {
            path,
            what: error.to_string(),
        },
    }
}
