//! Numbers of runs.

use super::{
    SqliteStore,
    columns::{get, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    stats::{BUCKETS, PRUNE, Reading, RunCounts, Stats, StatsFilter, StatsPart, StatsRow, StatsStore, insert},
};
use async_trait::async_trait;
use rusqlite::{Connection, Row, ToSql, params};

#[async_trait]
impl StatsStore for SqliteStore {
    async fn write_stats(&self, rows: Vec<StatsRow>) -> Result<()> {
        // Nothing that is watched changes.
        self.writer.write_quietly(move |tx| write(tx, &rows)).await
    }

    async fn stats(&self, filter: &StatsFilter) -> Result<Stats> {
        let filter = filter.clone();
        self.readers.read(move |connection| read(connection, &filter)).await
    }

    async fn prune_stats(&self, before: i64) -> Result<u64> {
        let prune = move |tx: &mut Tx<'_>| tx.connection.prepare_cached(PRUNE)?.execute([before]);
        Ok(self.writer.write_quietly(prune).await? as u64)
    }
}

fn write(tx: &mut Tx<'_>, rows: &[StatsRow]) -> rusqlite::Result<()> {
    let mut statement = tx.connection.prepare_cached(&insert())?;
    for row in rows {
        let waiting = row.waiting.map(|waiting| i64::try_from(waiting).unwrap_or(i64::MAX));
        let (runner, uid, columns) = (row.runner.0, uid_key(&row.workflow_uid), row.counts.columns());
        let runner = runner.as_bytes().as_slice();
        let mut values: Vec<&dyn ToSql> = vec![&row.minute, &runner, &uid, &row.tenant, &row.workflow_id, &waiting];
        values.extend(columns.iter().map(|column| column as &dyn ToSql));
        statement.execute(values.as_slice())?;
    }
    Ok(())
}

fn read(connection: &Connection, filter: &StatsFilter) -> rusqlite::Result<Stats> {
    let reading = Reading::new("?4");
    let uid = filter.workflow_uid.as_ref().map(uid_key);
    let mut all = connection.prepare_cached(&reading.all)?;
    let all = all.query_row(params![filter.from, filter.until, filter.tenant, uid], |row| {
        counts(row, 0)
    })?;
    let mut workflows = connection.prepare_cached(&reading.workflows)?;
    let chosen = params![filter.from, filter.until, filter.tenant, uid, filter.limit];
    let workflows = workflows.query_map(chosen, |row| Ok((get(row, 0)?, row.get(1)?, counts(row, 2)?)))?;
    let workflows = workflows.collect::<rusqlite::Result<_>>()?;
    let mut series = connection.prepare_cached(&reading.series)?;
    let chosen = params![filter.from, filter.until, filter.tenant, uid, filter.step.max(1)];
    let series = series.query_map(chosen, |row| {
        Ok(StatsPart {
            minute: row.get(0)?,
            waiting: row.get(1).map(|count: i64| u64::try_from(count).unwrap_or(0))?,
            counts: counts(row, 2)?,
        })
    })?;
    Ok(Stats {
        all,
        workflows,
        series: series.collect::<rusqlite::Result<_>>()?,
    })
}

fn counts(row: &Row<'_>, at: usize) -> rusqlite::Result<RunCounts> {
    let mut columns = [0; 4 + BUCKETS];
    for (number, column) in columns.iter_mut().enumerate() {
        *column = row.get(at + number)?;
    }
    Ok(RunCounts::of_columns(columns))
}
