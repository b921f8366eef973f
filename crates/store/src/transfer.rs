//! Moves all data from one database to another: SQLite to PostgreSQL, or any other pair of the two.
//!
//! Tables are streamed in the order of their keys. Each transaction that writes rows also stores the progress, so an
//! interrupted transfer can be resumed. At the end each database computes the row count and checksum of every table.
//! Only if they are equal is the source marked as moved and the target opened.
//!
//! What must stay true:
//! * The source is only read, apart from its mark (`mark.rs`).
//! * At no time can both databases be served.
//! * Leases are released and runners are not moved. Epochs are kept, so that they continue to grow. All other data is
//!   the same, including the tokens of waits.
//! * Memory does not grow with the database.

pub(crate) mod end;
pub(crate) mod mark;
mod start;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod value;

use crate::{
    StoreError,
    postgres::{PostgresSettings, transfer::PostgresEnd},
    sqlite::transfer::SqliteEnd,
};
use end::{Arrival, End, Pace, Reading, Side, WAITING, Writing};
use mark::Mark;
use start::{begin, check, decide, replace};
use std::{path::PathBuf, sync::Arc};
use tables::{TABLES, Table};
use tokio::sync::mpsc;
use value::{Sum, Value, check_postgres};

/// At most this many rows that the target cannot store are named.
const SHOWN: usize = 10;

/// A database that can be the source or the target.
#[derive(Clone)]
pub enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres {
        /// Its address, as [`crate::postgres::PostgresStore::connect`] takes it.
        url: String,
        /// The connection settings.
        settings: PostgresSettings,
    },
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A database failed. Moved rows are kept, and the transfer can be resumed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The current state of the two databases does not allow it.
    #[error("{0}")]
    Refused(String),
    /// A table is not the same on both sides.
    #[error(
        "{table} is not the same in both databases: {left} rows with checksum {left_checksum} in the source, {arrived} \
         rows with checksum {arrived_checksum} in the target"
    )]
    Mismatch {
        /// The table.
        table: &'static str,
        /// Its rows in the source.
        left: u64,
        /// Their checksum.
        left_checksum: String,
        /// Its rows in the target.
        arrived: u64,
        /// Their checksum.
        arrived_checksum: String,
    },
}

type Result<T, E = TransferError> = std::result::Result<T, E>;

/// A progress report of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The transfer starts.
    Begins {
        /// All rows of the source.
        rows: u64,
        /// Rows that an earlier, interrupted transfer has moved.
        before: u64,
    },
    /// A table is copied next.
    Table {
        /// Its name.
        name: &'static str,
        /// Its rows in the source.
        rows: u64,
    },
    /// This many more rows are durable in the target.
    Moved(u64),
    /// A table is compared.
    Compares {
        /// Its name.
        name: &'static str,
    },
}

/// The receiver of progress reports.
pub type Watch = Arc<dyn Fn(Step) + Send + Sync>;

/// The row count and checksum of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// Its name.
    pub name: &'static str,
    /// How many rows it has.
    pub rows: u64,
    /// The checksum, the same in both databases; `None` for a dry run.
    pub checksum: Option<String>,
}

/// The result of a transfer or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The source, as shown to users.
    pub from: String,
    /// The target, as shown to users.
    pub to: String,
    /// Every table.
    pub tables: Vec<TableReport>,
    /// How many rows an earlier, interrupted transfer had moved.
    pub before: u64,
}

impl Report {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

/// A transfer from one database to another.
#[derive(Clone)]
pub struct Transfer {
    /// The source.
    pub from: Place,
    /// The target. It must be empty.
    pub to: Place,
    /// Whether to resume an interrupted transfer between the two.
    pub resume: bool,
}

impl Transfer {
    /// Checks whether the transfer is possible, counts the rows, and finds rows that the target cannot store. Changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub async fn dry_run(&self) -> Result<Report> {
        let mut source = self.from.open(Side::Source, true).await?;
        refuse_older_schema(&*source).await?;
        let to = match &self.to {
            Place::Sqlite(path) if !path.exists() => {
                decide(self.resume, source.mark().await?, None).map_err(|reason| reason.explain(&*source, "it"))?;
                format!("sqlite:{}", path.display())
            }
            to => {
                let target = to.open(Side::Target, true).await?;
                check(self.resume, &*source, &*target).await?;
                target.place().to_owned()
            }
        };
        let mut tables = Vec::new();
        for table in TABLES {
            tables.push(TableReport {
                name: table.name,
                rows: source.count(table).await?,
                checksum: None,
            });
        }
        if matches!(self.to, Place::Postgres { .. }) {
            refuse_unholdable(&mut *source, &tables).await?;
        }
        Ok(Report {
            from: source.place().to_owned(),
            to,
            tables,
            before: 0,
        })
    }

    /// Moves all data and marks the source as moved.
    ///
    /// # Errors
    /// [`TransferError`]. After an error other than [`TransferError::Refused`], neither database can be served: resume
    /// the transfer, or reopen the source with [`reopen`].
    pub async fn run(&self, watch: &Watch) -> Result<Report> {
        self.run_at(Pace::default(), watch).await
    }

    pub(crate) async fn run_at(&self, pace: Pace, watch: &Watch) -> Result<Report> {
        let mut source = self.from.open(Side::Source, false).await?;
        let mut target = self.to.open(Side::Target, false).await?;
        let start = check(self.resume, &*source, &*target).await?;
        let arrival = begin(start, &mut *source, &mut *target).await?;
        source.hold().await?;
        let mut counts = Vec::new();
        for table in TABLES {
            counts.push(source.count(table).await?);
        }
        let before = rows_moved_before(&arrival, &counts);
        watch(Step::Begins {
            rows: counts.iter().sum(),
            before,
        });
        let arrival = copy(&mut *source, &mut *target, arrival, &counts, pace, watch).await?;
        let tables = compare(&*source, &*target, watch).await?;
        target.tidy().await?;
        finish(&mut *source, &mut *target, &arrival).await?;
        Ok(Report {
            from: source.place().to_owned(),
            to: target.place().to_owned(),
            tables,
            before,
        })
    }
}

/// Removes the mark of a transfer, so that the database can be served again with the data from before the transfer.
/// Returns whether there was a mark.
///
/// # Errors
/// [`TransferError::Refused`] if the database is the target of an unfinished transfer.
pub async fn reopen(place: &Place) -> Result<bool> {
    let mut end = place.open(Side::Source, false).await?;
    let mark = end.mark().await?;
    match mark {
        None => Ok(false),
        Some(Mark::Leaving { .. } | Mark::Moved { .. }) => {
            replace(&mut *end, mark.as_ref(), None).await?;
            end.tidy().await?;
            Ok(true)
        }
        Some(arriving @ Mark::Arriving { .. }) => Err(arriving.refuse(end.place()).into()),
    }
}

impl Place {
    async fn open(&self, side: Side, dry_run: bool) -> Result<Box<dyn End>> {
        Ok(match self {
            Place::Sqlite(path) => Box::new(SqliteEnd::open(path, side, dry_run)?),
            Place::Postgres { url, settings } => Box::new(PostgresEnd::open(url, settings, dry_run).await?),
        })
    }
}

/// A transfer migrates its source first. A dry run changes nothing, so it cannot read a source with an older schema.
async fn refuse_older_schema(source: &dyn End) -> Result<()> {
    let place = source.place();
    match source.missing_migrations().await? {
        0 => Ok(()),
        missing => Err(TransferError::Refused(format!(
            "{place} has the schema of an earlier release ({missing} migrations are missing), and a dry run cannot read it. Apply \
             them with `fermata migrate up --database URL` and repeat the dry run, or transfer without --dry-run, which applies \
             them first. Nothing was changed"
        ))),
    }
}

/// Refuses a source with rows that PostgreSQL cannot store. The error names some of them.
async fn refuse_unholdable(source: &mut dyn End, counted: &[TableReport]) -> Result<()> {
    let mut found = Vec::new();
    for (table, _) in TABLES.iter().zip(counted).filter(|(_, report)| report.rows > 0) {
        let (into, mut chunks) = mpsc::channel::<end::Chunk>(WAITING);
        let reading = Reading {
            table,
            after: None,
            limit: Pace::default().chunk,
            into,
        };
        let check = async {
            while let Some(chunk) = chunks.recv().await {
                let refused = chunk.rows.iter().filter_map(|row| check_postgres(table, row).err());
                found.extend(refused.map(|error| error.to_string()).take(SHOWN));
            }
        };
        let (read, ()) = tokio::join!(source.read(reading), check);
        read?;
    }
    if found.is_empty() {
        return Ok(());
    }
    found.truncate(SHOWN);
    Err(TransferError::Refused(found.join("\n")))
}

/// How many rows an earlier transfer has moved.
fn rows_moved_before(arrival: &Arrival, counts: &[u64]) -> u64 {
    let Some(done) = &arrival.done else {
        return 0;
    };
    let earlier = TABLES
        .iter()
        .zip(counts)
        .take_while(|(table, _)| table.name != done.table);
    earlier.map(|(_, count)| count).sum::<u64>() + done.rows
}

/// Copies every table, from the progress in `arrival` on.
async fn copy(
    source: &mut dyn End,
    target: &mut dyn End,
    mut arrival: Arrival,
    counts: &[u64],
    pace: Pace,
    watch: &Watch,
) -> Result<Arrival> {
    let at = arrival.done.clone();
    let first = at.as_ref().and_then(|done| Table::named(&done.table));
    let rest = TABLES
        .iter()
        .zip(counts)
        .skip_while(|(table, _)| first.is_some_and(|first| first != *table));
    for (table, rows) in rest {
        watch(Step::Table {
            name: table.name,
            rows: *rows,
        });
        let after = at.as_ref().filter(|done| done.table == table.name);
        let after = after.map(|done| key(table, &done.after)).transpose()?;
        let (into, chunks) = mpsc::channel(WAITING);
        let reading = Reading {
            table,
            after,
            limit: pace.chunk,
            into,
        };
        let report = watch.clone();
        let writing = Writing {
            table,
            chunks,
            limit: pace.transaction,
            arrival,
            on_progress: Box::new(move |rows| report(Step::Moved(rows))),
        };
        let (read, written) = tokio::join!(source.read(reading), target.write(writing));
        arrival = written?;
        read?;
    }
    Ok(arrival)
}

/// The values of a key that a mark stores as texts.
fn key(table: &Table, texts: &[String]) -> Result<Vec<Value>> {
    let values = texts.iter().zip(table.key_columns());
    let values: Option<Vec<Value>> = values
        .map(|(text, column)| Value::from_key(text, column.kind))
        .collect();
    values
        .filter(|values| values.len() == table.key)
        .ok_or_else(|| TransferError::Refused(format!("the target names no row of {}: {texts:?}", table.name)))
}

/// Compares the row count and checksum of every table.
async fn compare(source: &dyn End, target: &dyn End, watch: &Watch) -> Result<Vec<TableReport>> {
    let mut tables = Vec::new();
    for table in TABLES {
        watch(Step::Compares { name: table.name });
        let (left, arrived) = tokio::join!(source.sum(table, Side::Source), target.sum(table, Side::Target));
        let (left, arrived): (Sum, Sum) = (left?, arrived?);
        if left != arrived {
            return Err(TransferError::Mismatch {
                table: table.name,
                left: left.rows,
                left_checksum: left.to_string(),
                arrived: arrived.rows,
                arrived_checksum: arrived.to_string(),
            });
        }
        tables.push(TableReport {
            name: table.name,
            rows: arrived.rows,
            checksum: Some(arrived.to_string()),
        });
    }
    Ok(tables)
}

/// Marks the source as moved, and only then opens the target.
async fn finish(source: &mut dyn End, target: &mut dyn End, arrival: &Arrival) -> Result<()> {
    let moved = Mark::Moved {
        transfer: arrival.transfer,
        to: target.place().to_owned(),
    };
    let left = source.mark().await?;
    replace(source, left.as_ref(), Some(&moved)).await?;
    source.release().await?;
    replace(target, Some(&arrival.mark()), None).await
}
