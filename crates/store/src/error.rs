//! Errors of a store. Refusals that concern one run are results, not errors: see [`crate::runs::CommitAnswer`].

/// An error of a store, written for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the database.
    #[error("{path} is in use by another process{holder}; stop it first, or use another file")]
    Locked {
        /// The file.
        path: String,
        /// ` (process 123)`, where known.
        holder: String,
    },
    /// The database was written by a newer program.
    #[error("{path} needs Fermata {needs} or newer; this is {have}. Install a newer Fermata; nothing was changed")]
    TooNew {
        /// The file.
        path: String,
        /// The oldest program that may open it.
        needs: String,
        /// This program.
        have: String,
    },
    /// The schema of the database is older than this program, and automatic migration is off.
    #[error(
        "{path} has schema {have} and this program needs {needs}; bring it up to date with `fermata migrate up`, or set \
         database.migrate to \"auto\". Nothing was changed"
    )]
    Outdated {
        /// The database.
        path: String,
        /// The newest migration that was applied; 0 for none.
        have: u32,
        /// The newest migration of this program.
        needs: u32,
    },
    /// A migration cannot be undone.
    #[error("{path}: {what}. Nothing was changed")]
    NoWayBack {
        /// The database.
        path: String,
        /// The reason.
        what: String,
    },
    /// The disk is full.
    #[error("no space is left for {path}; free some and try again. Nothing acknowledged was lost")]
    Full {
        /// The file.
        path: String,
    },
    /// The file is damaged or not a Fermata database. It is never reset.
    #[error("{path} cannot be used: {what}. Nothing was changed; restore a backup, or name another database")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The folder or file cannot be opened.
    #[error("{path} cannot be opened: {what}")]
    Unopenable {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The server cannot be reached, or accepts no writes at the moment. Nothing was written; the call can be repeated.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Another session held a lock for too long. Nothing was written; the call can be repeated.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// A write with unknown outcome. The same write can be sent again.
    #[error("the database did not confirm the write: {0}")]
    Unknown(String),
    /// The database refuses this data and would refuse it again: text that it cannot store, a key that is too long, or
    /// a constraint. Nothing was written.
    #[error("the database rejected the data: {0}")]
    Rejected(String),
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(String),
    /// The store was closed.
    #[error("the database is closed")]
    Closed,
}
