//! How values stand in columns. Reading anything that this program does not write is an error, never a guess.

use super::error::PgError;
use crate::{
    dead_letters::DeadReason,
    definitions::Lifecycle,
    runs::{AttemptStatus, Principal},
};
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use std::borrow::Cow;
use tokio_postgres::{Row, types::FromSql};
use uuid::Uuid;

/// A column as the driver reads it.
pub(super) fn plain<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, PgError> {
    Ok(row.try_get(at)?)
}

/// A value as this crate writes it.
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
    u64: i64 => |number| u64::try_from(number).map_err(|_| strange(number));
    u32: i32 => |number| u32::try_from(number).map_err(|_| strange(number));
    Status: String => |word| Status::parse(&word).ok_or_else(|| strange(word));
    Lifecycle: String => |word| Lifecycle::parse(&word).ok_or_else(|| strange(word));
    AttemptStatus: String => |word| AttemptStatus::parse(&word).ok_or_else(|| strange(word));
    DeadReason: String => |word| DeadReason::parse(&word).ok_or_else(|| strange(word));
}

fn strange(value: impl std::fmt::Display) -> PgError {
    PgError::Strange(format!("`{value}` is not known here"))
}

/// Any [`Column`].
pub(super) fn get<T: Column>(row: &Row, at: usize) -> Result<T, PgError> {
    T::read(plain(row, at)?)
}

/// Any [`Column`], or NULL.
pub(super) fn maybe<T: Column>(row: &Row, at: usize) -> Result<Option<T>, PgError> {
    plain::<Option<T::Plain>>(row, at)?.map(T::read).transpose()
}

/// A number as a bigint. Numbers beyond its range do not happen; they would saturate.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as an integer. Numbers beyond its range do not happen; they would saturate.
pub(super) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A text that people wrote, as it can be stored: PostgreSQL has no zeros in texts.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    match storable(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace('\0', "\u{fffd}")),
    }
}

/// Whether there can be such a text in a column. What is not is found nowhere.
pub(super) fn storable(text: &str) -> bool {
    !text.contains('\0')
}

/// Three columns from `at`: user id, email, display name.
pub(super) fn principal(row: &Row, at: usize) -> Result<Principal, PgError> {
    Ok(Principal {
        user_id: plain(row, at)?,
        email: plain(row, at + 1)?,
        display_name: plain(row, at + 2)?,
    })
}
