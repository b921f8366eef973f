//! Moving everything from one database to another: SQLite to PostgreSQL, or any other pair of the two.
//!
//! Tables are streamed in the order of their keys and written in transactions that also say how far they came, so an
//! interrupted transfer is resumed where it was. Then both databases count and sum up every table by themselves, and only
//! if they agree does the source say that it was moved and the target open.
//!
//! What must stay true:
//! * The source is read only, apart from its mark (`mark.rs`).
//! * At no moment can both be served.
//! * Nothing is kept of who holds a run: leases are released and epochs stay, so that they go on growing. Runners are not
//!   moved. All else is the same, tokens of waits included.
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

/// So many rows that a target cannot hold are named.
const SHOWN: usize = 10;

/// A database that can be moved, or moved to.
#[derive(Clone)]
pub enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres {
        /// Its address, as [`crate::postgres::PostgresStore::connect`] takes it.
        url: String,
        /// How it is connected to.
        settings: PostgresSettings,
    },
}

/// Why nothing was moved, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A database failed. What was moved stays, and the transfer can be resumed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be done with these two databases as they are.
    #[error("{0}")]
    Refused(String),
    /// A table is not the same on both sides.
    #[error(
        "{table} is not the same in both databases: {left} rows with checksum {left_checksum} in the source, {arrived} \
         rows with checksum {arrived_checksum} in the target"
    )]
    Mismatch {
        /// Which one.
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

/// What a transfer tells while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many rows have to be moved, and so many of them were before.
    Begins {
        /// All rows of the source.
        rows: u64,
        /// What an earlier, interrupted transfer moved.
        before: u64,
    },
    /// A table comes next.
    Table {
        /// Its name.
        name: &'static str,
        /// Its rows in the source.
        rows: u64,
    },
    /// So many rows more are durable in the target.
    Moved(u64),
    /// A table is compared.
    Compares {
        /// Its name.
        name: &'static str,
    },
}

/// Who is told.
pub type Watch = Arc<dyn Fn(Step) + Send + Sync>;

/// A table and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// Its name.
    pub name: &'static str,
    /// How many rows it has.
    pub rows: u64,
    /// The checksum that both databases agree on; none if nothing was moved.
    pub checksum: Option<String>,
}

/// What was moved, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The source, in words.
    pub from: String,
    /// The target, in words.
    pub to: String,
    /// Every table.
    pub tables: Vec<TableReport>,
    /// How many rows an earlier transfer, which was interrupted, had moved.
    pub before: u64,
}

impl Report {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

/// From where to where.
#[derive(Clone)]
pub struct Transfer {
    /// The source.
    pub from: Place,
    /// The target, which has to be empty.
    pub to: Place,
    /// Whether to go on with a transfer between the two that was interrupted.
    pub resume: bool,
}

impl Transfer {
    /// Counts what would be moved, if it can be, and looks for rows that the target could not hold. Changes nothing.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub async fn dry_run(&self) -> Result<Report> {
        let mut source = self.from.open(Side::Source, true).await?;
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

    /// Moves everything, and marks the source as moved.
    ///
    /// # Errors
    /// [`TransferError`]. Neither database can be served then, unless it was refused: the transfer can be resumed, or the
    /// source taken back with [`reopen`].
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
        let before = already(&arrival, &counts);
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

/// Takes the mark of a transfer away, so that the database can be served again, as it was when it was moved; whether there
/// was one.
///
/// # Errors
/// [`TransferError::Refused`] if it is a target that does not have everything.
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
    async fn open(&self, side: Side, look: bool) -> Result<Box<dyn End>> {
        Ok(match self {
            Place::Sqlite(path) => Box::new(SqliteEnd::open(path, side, look)?),
            Place::Postgres { url, settings } => Box::new(PostgresEnd::open(url, settings, look).await?),
        })
    }
}

/// Refuses a source with rows that PostgreSQL could not hold; names some of them.
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

/// How many rows were moved before.
fn already(arrival: &Arrival, counts: &[u64]) -> u64 {
    let Some(done) = &arrival.done else {
        return 0;
    };
    let earlier = TABLES
        .iter()
        .zip(counts)
        .take_while(|(table, _)| table.name != done.table);
    earlier.map(|(_, count)| count).sum::<u64>() + done.rows
}

/// Copies every table, from where the arrival stands.
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
        let told = watch.clone();
        let writing = Writing {
            table,
            chunks,
            limit: pace.transaction,
            arrival,
            on_progress: Box::new(move |rows| told(Step::Moved(rows))),
        };
        let (read, written) = tokio::join!(source.read(reading), target.write(writing));
        arrival = written?;
        read?;
    }
    Ok(arrival)
}

/// The key that a mark names.
fn key(table: &Table, texts: &[String]) -> Result<Vec<Value>> {
    let values = texts.iter().zip(table.key_columns());
    let values: Option<Vec<Value>> = values
        .map(|(text, column)| Value::from_key(text, column.kind))
        .collect();
    values
        .filter(|values| values.len() == table.key)
        .ok_or_else(|| TransferError::Refused(format!("the target names no row of {}: {texts:?}", table.name)))
}

/// Counts and sums up every table on both sides.
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

/// Closes the source for good, and only then opens the target.
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
