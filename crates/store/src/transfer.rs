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
pub(crate) mod tables;
pub(crate) mod value;

use crate::{
    StoreError,
    postgres::{PostgresSettings, transfer::PostgresEnd},
    sqlite::transfer::SqliteEnd,
};
use end::{Arrival, End, Pace, Reading, Side, WAITING, Writing};
use mark::Mark;
use std::{path::PathBuf, sync::Arc};
use tables::{TABLES, Table};
use tokio::sync::mpsc;
use uuid::Uuid;
use value::{Sum, Value};

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
    /// Counts what would be moved, if it can be. Changes nothing.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub async fn dry_run(&self) -> Result<Report> {
        let source = self.from.open(Side::Source, true).await?;
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

/// How a transfer begins.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Into an empty target, whose mark says nothing that counts.
    Anew,
    /// Where another one was interrupted.
    At(Uuid, mark::Done),
}

/// Why it does not.
#[derive(Debug, PartialEq, Eq)]
enum Reason {
    /// What the source says about another transfer.
    Source(Mark),
    /// What the target says about another transfer.
    Target(Mark),
    /// Something is there of which it was not said to go on with it.
    Interrupted,
    /// What was moved may not be true any more.
    Changed,
    /// It was to be resumed.
    Nothing,
}

impl Reason {
    fn explain(self, source: &dyn End, target: &str) -> TransferError {
        let from = source.place();
        TransferError::Refused(match self {
            Reason::Source(mark) => return mark.refuse(from).into(),
            Reason::Target(mark) => return mark.refuse(target).into(),
            Reason::Interrupted => format!(
                "a transfer into {target} was interrupted; go on with it with --resume, or use another, empty database"
            ),
            Reason::Changed => format!(
                "the transfer into {target} cannot be resumed from {from}: that is another database, or was taken back and \
                 may have changed since. Begin again with another, empty database"
            ),
            Reason::Nothing => {
                format!("there is no transfer from {from} to {target} to resume; begin it without --resume")
            }
        })
    }
}

/// What two marks mean for a transfer (the table in `mark.rs`).
fn decide(resume: bool, source: Option<Mark>, target: Option<Mark>) -> Result<Start, Reason> {
    let leaves = match &source {
        Some(Mark::Leaving { transfer, .. } | Mark::Moved { transfer, .. }) => Some(*transfer),
        Some(Mark::Arriving { .. }) | None => None,
    };
    match (target, source) {
        (_, Some(arriving @ Mark::Arriving { .. })) => Err(Reason::Source(arriving)),
        (Some(leaving @ (Mark::Leaving { .. } | Mark::Moved { .. })), _) => Err(Reason::Target(leaving)),
        (Some(Mark::Arriving { done: Some(_), .. }), _) if !resume => Err(Reason::Interrupted),
        (
            Some(Mark::Arriving {
                transfer,
                done: Some(done),
                ..
            }),
            _,
        ) => match leaves == Some(transfer) {
            true => Ok(Start::At(transfer, done)),
            false => Err(Reason::Changed),
        },
        // It ended before anything was moved.
        (Some(Mark::Arriving { transfer, .. }), Some(_)) if leaves == Some(transfer) => Ok(Start::Anew),
        (_, Some(elsewhere)) => Err(Reason::Source(elsewhere)),
        (Some(Mark::Arriving { .. }), None) => Ok(Start::Anew),
        (None, None) if resume => Err(Reason::Nothing),
        (None, None) => Ok(Start::Anew),
    }
}

/// Whether these two can be the ends of a transfer, and how it begins.
async fn check(resume: bool, source: &dyn End, target: &dyn End) -> Result<Start> {
    let place = target.place();
    if source.place() == place {
        return Err(TransferError::Refused(format!("{place} is the source and the target")));
    }
    let start = decide(resume, source.mark().await?, target.mark().await?);
    let start = start.map_err(|reason| reason.explain(source, place))?;
    if start == Start::Anew {
        for table in TABLES {
            if target.has_rows(table).await? {
                return Err(TransferError::Refused(format!(
                    "{place} is not empty: {} has rows. Use another, empty database",
                    table.name
                )));
            }
        }
    }
    Ok(start)
}

/// Marks both databases, the target first: a source that says it leaves has a target to go to.
async fn begin(start: Start, source: &mut dyn End, target: &mut dyn End) -> Result<Arrival> {
    let (from, to) = (source.place().to_owned(), target.place().to_owned());
    let resumed = start != Start::Anew;
    let arrival = match start {
        Start::Anew => Arrival {
            transfer: Uuid::now_v7(),
            from,
            done: None,
        },
        Start::At(transfer, done) => Arrival {
            transfer,
            from,
            done: Some(done),
        },
    };
    let (left, reached) = (source.mark().await?, target.mark().await?);
    replace(target, reached.as_ref(), Some(&arrival.mark())).await?;
    let leaving = Mark::Leaving {
        transfer: arrival.transfer,
        to,
    };
    // One that says it was moved goes on saying so.
    if !resumed {
        replace(source, left.as_ref(), Some(&leaving)).await?;
    }
    let mut users = source.used_by().await?.map(|users| (source.place().to_owned(), users));
    if users.is_none() {
        users = target.used_by().await?.map(|users| (target.place().to_owned(), users));
    }
    let Some((place, users)) = users else {
        return Ok(arrival);
    };
    if !resumed {
        replace(source, Some(&leaving), None).await?;
        replace(target, Some(&arrival.mark()), None).await?;
    }
    Err(TransferError::Refused(format!(
        "{place} is in use: {users}. Stop them first; nothing was moved"
    )))
}

async fn replace(end: &mut dyn End, was: Option<&Mark>, now: Option<&Mark>) -> Result<()> {
    match end.set_mark(was, now).await? {
        true => Ok(()),
        false => Err(TransferError::Refused(format!(
            "another transfer works on {} at the same time",
            end.place()
        ))),
    }
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
            told: Box::new(move |rows| told(Step::Moved(rows))),
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
