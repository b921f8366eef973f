//! What can go wrong with a store as such. Answers about a run are not errors: see [`crate::runs::CommitAnswer`].

/// A store that cannot do what it was asked. Written for the person who has to mend it.
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
    /// The schema of the database is older than this program, which may not bring it up to date by itself.
    #[error(
        "{path} has schema {have} and this program needs {needs}; bring it up to date with `fermata migrate up`, or set \
         database.migrate to \"auto\". Nothing was changed"
    )]
    Outdated {
        /// The database.
        path: String,
        /// The newest migration that was applied; 0 for none.
        have: u32,
        /// The newest that there is.
        needs: u32,
    },
    /// A migration cannot be undone.
    #[error("{path}: {what}. Nothing was changed")]
    NoWayBack {
        /// The database.
        path: String,
        /// Why.
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
    /// The server cannot be reached, or takes no writes at the moment. Nothing was written; it may be tried again.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Somebody else kept locked what is to be changed, for too long. Nothing was written; it may be tried again.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// A write whose outcome is not known. The same write may be sent again.
    #[error("the database did not confirm the write: {0}")]
    Unknown(String),
    /// The database refuses this data, and would refuse it again: a text that it cannot hold, a key that is too long, a
    /// rule of a table. Nothing was written.
    #[error("the database rejected the data: {0}")]
    Rejected(String),
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(String),
    /// The store was closed.
    #[error("the database is closed")]
    Closed,
}
