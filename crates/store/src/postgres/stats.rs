//! Numbers of runs.

use super::{
    PostgresStore,
    columns::{get, plain, storable},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    statements::dollars,
    stats::{BUCKETS, PRUNE, Reading, RunCounts, Stats, StatsFilter, StatsPart, StatsRow, StatsStore, insert},
};
use async_trait::async_trait;
use deadpool_postgres::Object;
use tokio_postgres::{Row, types::ToSql};

#[async_trait]
impl StatsStore for PostgresStore {
    async fn write_stats(&self, rows: Vec<StatsRow>) -> Result<()> {
        patiently!(self.sessions, |session| write(&mut session, &rows))
    }

    async fn stats(&self, filter: &StatsFilter) -> Result<Stats> {
        if filter.tenant.as_deref().is_some_and(|tenant| !storable(tenant)) {
            return Ok(Stats::default());
        }
        patiently!(self.sessions, |session| read(&session, filter))
    }

    async fn prune_stats(&self, before: i64) -> Result<u64> {
        patiently!(self.sessions, |session| prune(&session, before))
    }
}

/// In the order of the key, so that two processes cannot deadlock: each writes rows of its own anyway.
async fn write(session: &mut Object, rows: &[StatsRow]) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(&insert())).await?;
    for row in rows {
        let waiting = row.waiting.map(|waiting| i64::try_from(waiting).unwrap_or(i64::MAX));
        let columns = row.counts.columns();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &row.minute,
            &row.runner.0,
            &row.workflow_uid,
            &row.tenant,
            &row.workflow_id,
            &waiting,
        ];
        values.extend(columns.iter().map(|column| column as &(dyn ToSql + Sync)));
        tx.execute(&statement, &values).await?;
    }
    commit(tx).await
}

async fn read(session: &Object, filter: &StatsFilter) -> Result<Stats, PgError> {
    let reading = Reading::new("CAST(?4 AS uuid)");
    let rows = async |sql: &str, last: Option<&(dyn ToSql + Sync)>| {
        let statement = session.prepare_cached(&dollars(sql)).await?;
        let mut values: Vec<&(dyn ToSql + Sync)> =
            vec![&filter.from, &filter.until, &filter.tenant, &filter.workflow_uid];
        values.extend(last);
        Ok::<_, PgError>(session.query(&statement, &values).await?)
    };
    let all = rows(&reading.all, None).await?;
    let all = all.first().map(|row| counts(row, 0)).transpose()?;
    let workflows = rows(&reading.workflows, Some(&i64::from(filter.limit))).await?;
    let workflow = |row: &Row| Ok((plain(row, 0)?, plain(row, 1)?, counts(row, 2)?));
    let series = rows(&reading.series, Some(&i64::from(filter.step.max(1)))).await?;
    let part = |row: &Row| {
        Ok(StatsPart {
            minute: plain(row, 0)?,
            waiting: get(row, 1)?,
            counts: counts(row, 2)?,
        })
    };
    Ok(Stats {
        all: all.unwrap_or_default(),
        workflows: workflows.iter().map(workflow).collect::<Result<_, PgError>>()?,
        series: series.iter().map(part).collect::<Result<_, PgError>>()?,
    })
}

async fn prune(session: &Object, before: i64) -> Result<u64, PgError> {
    let statement = session.prepare_cached(&dollars(PRUNE)).await?;
    Ok(session.execute(&statement, &[&before]).await?)
}

fn counts(row: &Row, at: usize) -> Result<RunCounts, PgError> {
    let mut columns = [0; 4 + BUCKETS];
    for (number, column) in columns.iter_mut().enumerate() {
        *column = plain(row, at + number)?;
    }
    Ok(RunCounts::of_columns(columns))
}
