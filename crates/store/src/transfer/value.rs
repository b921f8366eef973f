//! The values that are copied from one database to the other, and the checksum of a table.
//!
//! The canonical text of a row is the concatenation of its values: `~` for NULL, otherwise the length in bytes, a colon and
//! the text, as in `5:hello`. Numbers are decimal, flags `0` or `1`, ids and bytes lower-case hexadecimal. The hash of a
//! row is the first 60 bits of the SHA-256 of that text. The checksum of a table is the sum of the hashes of its rows: it
//! does not depend on their order, and each database can compute it in SQL.

use super::tables::{Column, Table};
use crate::StoreError;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};
use uuid::Uuid;

/// The type of a column, with the name of the type in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `text`
    Text,
    /// `bytea`
    Bytes,
    /// `bigint`
    Number,
    /// `integer`
    Integer,
    /// `boolean`
    Flag,
    /// `uuid`
    Id,
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Text(String),
    Bytes(Vec<u8>),
    Number(i64),
    Flag(bool),
    Id(Uuid),
}

/// The values of a row, in the order of its table's columns.
pub(crate) type Row = Vec<Value>;

impl Value {
    /// The approximate memory size.
    pub(crate) fn size(&self) -> usize {
        size_of::<Value>()
            + match self {
                Value::Text(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            }
    }

    /// A key value as text, for the progress in the mark.
    pub(crate) fn to_key(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Id(id) => id.to_string(),
            other => format!("{other:?}"),
        }
    }

    /// Parses a text written by [`Value::to_key`].
    pub(crate) fn from_key(text: &str, kind: Kind) -> Option<Value> {
        match kind {
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::Number | Kind::Integer => text.parse().ok().map(Value::Number),
            Kind::Id => text.parse().ok().map(Value::Id),
            Kind::Bytes | Kind::Flag => None,
        }
    }

    fn hash(&self, into: &mut Sha256, buffer: &mut String) {
        buffer.clear();
        let wrote = match self {
            Value::Null => return into.update(b"~"),
            Value::Text(text) => {
                into.update(format!("{}:", text.len()));
                return into.update(text);
            }
            Value::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(buffer, "{byte:02x}")),
            Value::Number(number) => write!(buffer, "{number}"),
            Value::Flag(flag) => write!(buffer, "{}", u8::from(*flag)),
            Value::Id(id) => write!(buffer, "{}", id.simple()),
        };
        // Writing to a `String` cannot fail.
        debug_assert!(wrote.is_ok());
        into.update(format!("{}:", buffer.len()));
        into.update(buffer.as_bytes());
    }
}

/// The number of rows of a table, and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) rows: u64,
    pub(crate) hashes: u128,
}

impl Sum {
    pub(crate) fn add(&mut self, row: &[Value]) {
        let mut hash = Sha256::new();
        let mut buffer = String::new();
        for value in row {
            value.hash(&mut hash, &mut buffer);
        }
        let digest = hash.finalize();
        let first = digest
            .iter()
            .take(8)
            .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        self.rows += 1;
        self.hashes += u128::from(first >> 4);
    }
}

impl fmt::Display for Sum {
    /// Writes the checksum in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hashes)
    }
}

/// Text columns that are part of an index in PostgreSQL, in any table.
const INDEXED: [&str; 10] = [
    "id",
    "workflow_id",
    "token",
    "node_id",
    "system_name",
    "resource_type",
    "resource_id",
    "tenant_id",
    "workflow_request_id",
    "correlation_id",
];

/// The most bytes of indexed texts in one row. An index entry is limited to 2,704 bytes, of which ids and length fields
/// need some.
const MAX_INDEXED: usize = 2600;

/// Refuses a row that PostgreSQL cannot store. The error names the row, which an error of `COPY` would not do.
pub(crate) fn check_postgres(table: &Table, row: &[Value]) -> Result<(), StoreError> {
    let wrong = |column: &Column, what: &str| {
        let key = row[..table.key].iter().map(Value::to_key);
        let key: Vec<String> = key.map(|text| text.chars().take(80).collect()).collect();
        let (name, column) = (table.name, column.name);
        StoreError::Rejected(format!(
            "`{column}` of {name} {key:?} {what}, which PostgreSQL cannot store"
        ))
    };
    let indexed = row.iter().zip(table.columns).filter_map(|(value, column)| match value {
        Value::Text(text) if INDEXED.contains(&column.name) => Some((text.len(), column)),
        _ => None,
    });
    if indexed.clone().map(|(length, _)| length).sum::<usize>() > MAX_INDEXED
        && let Some((length, column)) = indexed.max_by_key(|(length, _)| *length)
    {
        return Err(wrong(column, &format!("is part of an index and has {length} bytes")));
    }
    for (value, column) in row.iter().zip(table.columns) {
        match value {
            Value::Text(text) if text.contains('\0') => return Err(wrong(column, "contains a NUL character")),
            Value::Number(number) if column.kind == Kind::Integer && i32::try_from(*number).is_err() => {
                return Err(wrong(column, &format!("is {number}")));
            }
            _ => {}
        }
    }
    Ok(())
}
