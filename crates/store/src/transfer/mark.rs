//! The mark that a transfer leaves in a database, under the key [`KEY`] of its bookkeeping.
//!
//! | the source says | the target says | then |
//! | --- | --- | --- |
//! | nothing | nothing | nothing was begun, or the source was taken back |
//! | nothing | arriving, nothing done | it ended before anything was moved |
//! | leaving | arriving | it was interrupted, and can be resumed |
//! | moved | arriving | it was interrupted at its last step, and can be resumed |
//! | moved | nothing | it is done |
//!
//! What must stay true: a database with a mark is opened by transfers only, so at no moment can both be served, and what
//! was moved is still the same when a transfer is resumed. Both marks have the transfer's id: one that was taken back and
//! changed since cannot be resumed.

use crate::StoreError;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Where the mark stands among the bookkeeping.
pub(crate) const KEY: &str = "transfer";

/// What a transfer says about a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum Mark {
    /// A source that is being read.
    Leaving { transfer: Uuid, to: String },
    /// A source whose runs go on elsewhere.
    Moved { transfer: Uuid, to: String },
    /// A target that does not have everything.
    Arriving {
        transfer: Uuid,
        from: String,
        /// How far it came.
        done: Option<Done>,
    },
}

/// The last row that is there; all before it are there too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) table: String,
    pub(crate) after: Vec<String>,
    /// Rows of this table.
    pub(crate) rows: u64,
}

impl Mark {
    pub(crate) fn to_text(&self) -> String {
        // Texts and numbers cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The mark of the database at `place`, as it was written.
    pub(crate) fn from_text(text: &str, place: &str) -> Result<Mark, StoreError> {
        serde_json::from_str(text).map_err(|error| StoreError::Damaged {
            path: place.to_owned(),
            what: format!("what it says about a transfer cannot be read ({error})"),
        })
    }

    /// Why the database at `place` cannot be used by anybody but a transfer.
    pub(crate) fn refuse(&self, place: &str) -> StoreError {
        let what = match self {
            Mark::Leaving { to, .. } => format!(
                "it is being moved to {to}. Finish that with `fermata transfer --resume`, or give it up with `fermata \
                 transfer --reopen URL`"
            ),
            Mark::Moved { to, .. } => format!(
                "it was moved to {to}, where its runs go on. If they do not, `fermata transfer --reopen URL` takes it back \
                 as it was then"
            ),
            Mark::Arriving { from, .. } => format!(
                "a transfer from {from} into it is not finished. Finish that with `fermata transfer --resume`, or use \
                 another, empty database"
            ),
        };
        StoreError::Unopenable {
            path: place.to_owned(),
            what,
        }
    }
}
