//! Conversions between column values and the types of this crate. A value that this program does not write is an error.

use super::error::PgError;
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
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use std::borrow::Cow;
use tokio_postgres::{Row, types::FromSql};
use uuid::Uuid;

/// Reads a column with a type of the driver.
pub(super) fn plain<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, PgError> {
    Ok(row.try_get(at)?)
}

/// A type of this crate that is stored in a column.
pub(super) trait Column: Sized {
    type Plain: for<'a> FromSql<'a>;
    fn read(plain: Self::Plain) -> Result<Self, PgError>;
}

macro_rules! columns {
    ($($type:ty: $plain:ty => |$value:ident| $read:expr;)+) => {
        $(impl Column for $type {
            type Plain = $plain;
            fn read($value: $plain) -> Result<Self, PgError> {
                $read
            }
        })+
    };
}

columns! {
    RunId: Uuid => |id| Ok(RunId(id));
    RunnerId: Uuid => |id| Ok(RunnerId(id));
    Timestamp: i64 => |time| Ok(Timestamp(time));
    NodeId: String => |name| Ok(name.into());
    u64: i64 => |number| u64::try_from(number).map_err(|_| unexpected(number));
    u32: i32 => |number| u32::try_from(number).map_err(|_| unexpected(number));
    Status: String => |word| Status::parse(&word).ok_or_else(|| unexpected(word));
    Lifecycle: String => |word| Lifecycle::parse(&word).ok_or_else(|| unexpected(word));
    AttemptStatus: String => |word| AttemptStatus::parse(&word).ok_or_else(|| unexpected(word));
    AuditOutcome: String => |word| AuditOutcome::parse(&word).ok_or_else(|| unexpected(word));
    BulkState: String => |word| BulkState::parse(&word).ok_or_else(|| unexpected(word));
    ItemState: String => |word| ItemState::parse(&word).ok_or_else(|| unexpected(word));
    ItemKind: String => |word| ItemKind::parse(&word).ok_or_else(|| unexpected(word));
    TriggerType: String => |word| TriggerType::parse(&word).ok_or_else(|| unexpected(word));
    DeliveryState: String => |word| DeliveryState::parse(&word).ok_or_else(|| unexpected(word));
    DeadReason: String => |word| DeadReason::parse(&word).ok_or_else(|| unexpected(word));
}

fn unexpected(value: impl std::fmt::Display) -> PgError {
    PgError::UnexpectedValue(format!(
        "the database contains the unknown value `{value}`; a newer version of Fermata may have written it"
    ))
}

/// Reads a column that is not NULL.
pub(super) fn get<T: Column>(row: &Row, at: usize) -> Result<T, PgError> {
    T::read(plain(row, at)?)
}

/// Reads a column that may be NULL.
pub(super) fn maybe<T: Column>(row: &Row, at: usize) -> Result<Option<T>, PgError> {
    plain::<Option<T::Plain>>(row, at)?.map(T::read).transpose()
}

/// A number as a `bigint`. Numbers beyond its range do not occur; they would saturate.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as an `integer`. Numbers beyond its range do not occur; they would saturate.
pub(super) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A text from a user in a form that PostgreSQL can store: NUL characters are replaced by U+FFFD.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    match storable(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace('\0', "\u{fffd}")),
    }
}

/// Whether a `text` column can contain this text. If not, a search for it finds nothing.
pub(super) fn storable(text: &str) -> bool {
    !text.contains('\0')
}

/// Reads three columns from `at` on: user id, email, display name.
pub(super) fn principal(row: &Row, at: usize) -> Result<Principal, PgError> {
    Ok(Principal {
        user_id: plain(row, at)?,
        email: plain(row, at + 1)?,
        display_name: plain(row, at + 2)?,
    })
}

/// Four columns from `at`: how a run is limited, its step, the places that it holds, and the key that it waits for.
pub(super) fn flow(row: &Row, at: usize) -> Result<Option<Box<RunFlow>>, PgError> {
    let step: Option<&str> = plain(row, at + 1)?;
    if step.is_none() {
        return Ok(None);
    }
    RunFlow::read(plain(row, at)?, step, maybe(row, at + 2)?, plain(row, at + 3)?).map_err(PgError::UnexpectedValue)
}

/// The workflows of a run's ancestors.
pub(super) fn lineage(row: &Row, at: usize) -> Result<Vec<Uuid>, PgError> {
    let text: Option<&str> = plain(row, at)?;
    parse_lineage(text).map_err(|_| unexpected(text.unwrap_or_default()))
}
