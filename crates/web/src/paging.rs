//! Pages of lists. A cursor is the position after a page. It is opaque for callers: they send it back as they got it.

use crate::error::ApiError;
use axum::http::StatusCode;
use fermata_core::RunId;
use fermata_runtime::reads::MAX_PAGE;
use std::fmt::Write;
use uuid::Uuid;

/// Items in a page when the request has no `limit`.
const DEFAULT: u32 = 100;

/// The number of items in a page.
pub(crate) fn limit(asked: Option<u32>) -> Result<u32, ApiError> {
    match asked.unwrap_or(DEFAULT) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        limit => Err(ApiError::parameter(format!(
            "`limit` is {limit}; it must be between 1 and {MAX_PAGE}"
        ))),
    }
}

/// The cursor after this id.
pub(crate) fn after_id(id: Uuid) -> String {
    encode(id.as_bytes())
}

/// The id that a cursor is after.
pub(crate) fn id(cursor: &str) -> Result<Uuid, ApiError> {
    let id = decode(cursor).and_then(|bytes| Uuid::from_slice(&bytes).ok());
    id.ok_or_else(invalid)
}

/// The cursor after this run.
pub(crate) fn after_run(run: RunId) -> String {
    after_id(run.0)
}

/// The run that a cursor is after.
pub(crate) fn run(cursor: &str) -> Result<RunId, ApiError> {
    id(cursor).map(RunId)
}

/// Between a name and its tenant. Neither contains it.
const BETWEEN: char = '\0';

/// The cursor after this name of this tenant.
pub(crate) fn after_name(name: &str, tenant: &str) -> String {
    match tenant.is_empty() {
        true => encode(name.as_bytes()),
        false => encode(format!("{name}{BETWEEN}{tenant}").as_bytes()),
    }
}

/// The name and the tenant that a cursor is after.
pub(crate) fn name(cursor: &str) -> Result<(String, String), ApiError> {
    let text = decode(cursor).and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.filter(|name| !name.is_empty()).ok_or_else(invalid)?;
    let (name, tenant) = text.split_once(BETWEEN).unwrap_or((&text, ""));
    Ok((name.to_owned(), tenant.to_owned()))
}

/// The cursor after this version.
pub(crate) fn after_version(version: u32) -> String {
    encode(&version.to_be_bytes())
}

/// The version that a cursor is after.
pub(crate) fn version(cursor: &str) -> Result<u32, ApiError> {
    let bytes = decode(cursor).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or_else(invalid)
}

fn invalid() -> ApiError {
    let message = "`cursor` is not a cursor of this list; send `nextCursor` of the previous page, or no cursor for the first page";
    ApiError::new(StatusCode::BAD_REQUEST, "INVALID_CURSOR", message)
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let pair = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs
        .iter()
        .map(pair)
        .collect::<Option<_>>()
        .filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_others_are_refused() {
        let id = RunId(Uuid::now_v7());
        assert_eq!(run(&after_run(id)).unwrap(), id);
        for key in [("größe", ""), ("w", "acme")] {
            let (id, tenant) = name(&after_name(key.0, key.1)).unwrap();
            assert_eq!((id.as_str(), tenant.as_str()), key);
        }
        assert_eq!(version(&after_version(70_000)).unwrap(), 70_000);
        for bad in ["", "00", "0000000000", "zzzzzzzz"] {
            assert_eq!(version(bad).unwrap_err().code, "INVALID_CURSOR", "{bad}");
        }
        for bad in ["", "0", "zz", "é", "00ff00", "ff", &"0".repeat(33)] {
            assert_eq!(run(bad).unwrap_err().code, "INVALID_CURSOR", "{bad}");
        }
        for bad in ["", "6", "ff", "+1"] {
            assert_eq!(name(bad).unwrap_err().code, "INVALID_CURSOR", "{bad}");
        }
    }
}
