//! How values are stored in columns. A value that this program does not write is an error, never a guess.

use crate::{
    audit::AuditOutcome,
    bulk::{BulkState, ItemState},
    children::parse_lineage,
    dead_letters::DeadReason,
    definitions::Lifecycle,
    flow::RunFlow,
    inbox::ItemKind,
    runs::{AttemptStatus, Principal},
    triggers::{DeliveryState, TriggerType},
};
use fermata_core::{NodeId, RunId, Status, Timestamp};
use rusqlite::{
    Row,
    types::{FromSql, FromSqlError, FromSqlResult, Type, ValueRef},
};
use uuid::Uuid;

/// The run's id as a column.
pub(super) fn key(run: &RunId) -> &[u8] {
    run.0.as_bytes().as_slice()
}

/// A workflow's uid as a column.
pub(super) fn uid_key(uid: &Uuid) -> &[u8] {
    uid.as_bytes().as_slice()
}

/// A value as this crate writes it.
pub(super) struct Col<T>(pub(super) T);

impl FromSql for Col<Uuid> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Uuid::from_slice(value.as_blob()?)
            .map(Col)
            .map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl FromSql for Col<Status> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, Status::parse).map(Col)
    }
}

impl FromSql for Col<Lifecycle> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, Lifecycle::parse).map(Col)
    }
}

impl FromSql for Col<AttemptStatus> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, AttemptStatus::parse).map(Col)
    }
}

impl FromSql for Col<DeadReason> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, DeadReason::parse).map(Col)
    }
}

impl FromSql for Col<AuditOutcome> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, AuditOutcome::parse).map(Col)
    }
}

impl FromSql for Col<BulkState> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, BulkState::parse).map(Col)
    }
}

impl FromSql for Col<ItemState> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, ItemState::parse).map(Col)
    }
}

impl FromSql for Col<ItemKind> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, ItemKind::parse).map(Col)
    }
}

impl FromSql for Col<TriggerType> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, TriggerType::parse).map(Col)
    }
}

impl FromSql for Col<DeliveryState> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        word(value, DeliveryState::parse).map(Col)
    }
}

impl FromSql for Col<NodeId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Col(value.as_str()?.into()))
    }
}

impl FromSql for Col<Timestamp> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Col(Timestamp(value.as_i64()?)))
    }
}

fn word<T>(value: ValueRef<'_>, parse: impl Fn(&str) -> Option<T>) -> FromSqlResult<T> {
    let text = value.as_str()?;
    parse(text).ok_or_else(|| FromSqlError::Other(format!("`{text}` is not a known value").into()))
}

/// A run's id.
pub(super) fn run_id(row: &Row<'_>, at: usize) -> rusqlite::Result<RunId> {
    Ok(RunId(row.get::<_, Col<Uuid>>(at)?.0))
}

/// Any value of [`Col`].
pub(super) fn get<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<T>
where
    Col<T>: FromSql,
{
    Ok(row.get::<_, Col<T>>(at)?.0)
}

/// Any value of [`Col`], or NULL.
pub(super) fn maybe<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>>
where
    Col<T>: FromSql,
{
    Ok(row.get::<_, Option<Col<T>>>(at)?.map(|col| col.0))
}

/// A count. SQLite stores it as a signed number.
pub(super) fn count(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(at)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, number))
}

/// A number as SQLite stores it. Numbers beyond its range do not occur; they would saturate.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Three columns from `at`: user id, email, display name.
pub(super) fn principal(row: &Row<'_>, at: usize) -> rusqlite::Result<Principal> {
    Ok(Principal {
        user_id: row.get(at)?,
        email: row.get(at + 1)?,
        display_name: row.get(at + 2)?,
    })
}

/// Four columns from `at`: how a run is limited, its step, the places that it holds, and the key that it waits for.
pub(super) fn flow(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Box<RunFlow>>> {
    let step: Option<String> = row.get(at + 1)?;
    if step.is_none() {
        return Ok(None);
    }
    let flow = RunFlow::read(row.get(at)?, step.as_deref(), row.get(at + 2)?, row.get(at + 3)?);
    flow.map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, error.into()))
}

/// The workflows of a run's ancestors.
pub(super) fn lineage(row: &Row<'_>, at: usize) -> rusqlite::Result<Vec<Uuid>> {
    let text: Option<String> = row.get(at)?;
    let lineage = parse_lineage(text.as_deref());
    lineage.map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error)))
}
