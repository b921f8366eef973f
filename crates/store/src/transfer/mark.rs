//! The mark that a transfer writes into both databases, under the key [`KEY`] of the bookkeeping table.
//!
//! | mark of the source | mark of the target | state of the transfer |
//! | --- | --- | --- |
//! | none | none | not started, or the source was reopened |
//! | none | arriving, nothing done | ended before any row was moved |
//! | leaving | arriving | interrupted, can be resumed |
//! | moved | arriving | interrupted at its last step, can be resumed |
//! | moved | none | finished |
//!
//! What must stay true: only transfers open a database with a mark. So source and target are never served at the same
//! time, and the rows already moved are unchanged when a transfer is resumed. Both marks contain the id of the transfer: a
//! source that was reopened, and may have changed since, cannot be resumed.

use crate::StoreError;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The key of the mark in the bookkeeping table.
pub(crate) const KEY: &str = "transfer";

/// The state of a database that takes part in a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum Mark {
    /// A source that is being read.
    Leaving { transfer: Uuid, to: String },
    /// A source whose runs continue in the target.
    Moved { transfer: Uuid, to: String },
    /// A target that is not complete.
    Arriving {
        transfer: Uuid,
        from: String,
        /// The progress so far.
        done: Option<Done>,
    },
}

/// The key of the last row in the target; all rows before it are there as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) table: String,
    pub(crate) after: Vec<String>,
    /// The number of rows of this table.
    pub(crate) rows: u64,
}

impl Mark {
    pub(crate) fn to_text(&self) -> String {
        // Serializing texts and numbers cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the mark of the database at `place`.
    pub(crate) fn from_text(text: &str, place: &str) -> Result<Mark, StoreError> {
        serde_json::from_str(text).map_err(|error| StoreError::Damaged {
            path: place.to_owned(),
            what: format!("its mark of a transfer cannot be read ({error})"),
        })
    }

    /// The error for opening the database at `place` other than by a transfer.
    pub(crate) fn refuse(&self, place: &str) -> StoreError {
        let what = match self {
            Mark::Leaving { to, .. } => format!(
                "it is being moved to {to}. Finish the transfer with `fermata transfer --resume`, or abandon it with \
                 `fermata transfer --reopen URL`"
            ),
            Mark::Moved { to, .. } => format!(
                "it was moved to {to}, where its runs continue. To use this database again as it was before the transfer, \
                 run `fermata transfer --reopen URL`"
            ),
            Mark::Arriving { from, .. } => format!(
                "a transfer from {from} into it is not finished. Finish it with `fermata transfer --resume`, or use \
                 another, empty database"
            ),
        };
        StoreError::Unopenable {
            path: place.to_owned(),
            what,
        }
    }
}
