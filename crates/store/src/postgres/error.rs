//! Errors of the server and of connections, and how each is handled.
//!
//! What must stay true: messages contain the server's message, but never the password or data. If something may have
//! been written, the error is [`StoreError::Unknown`].

use super::tls;
use crate::StoreError;
use std::{error::Error, fmt};
use tokio_postgres::error::{DbError, SqlState};

/// An error of one call.
#[derive(Debug)]
pub(super) enum PgError {
    /// The server returned an error, or the connection failed.
    Server(tokio_postgres::Error),
    /// No connection is available.
    NoConnection(String),
    /// The server did not respond in time.
    Timeout,
    /// `COMMIT` was sent, and its response was lost for this reason.
    AtCommit(Box<PgError>),
    /// Another transaction made the same change first.
    Collision,
    /// Another transaction holds a lock on the run or its workflow.
    Locked,
    /// A column contains a value that this program does not write.
    UnexpectedValue(String),
    /// The store is closed.
    Closed,
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        PgError::Server(error)
    }
}

/// How to handle an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The connection is lost, or the server is read-only: retry on a new connection.
    Reconnect,
    /// A collision with another transaction: retry at once.
    Retry,
    /// Another transaction holds a lock that is needed: retry later.
    RetryLater,
    /// The data of one member was refused: write the batch without it.
    Exclude,
    /// A retry does not help.
    None,
}

impl PgError {
    pub(super) fn remedy(&self) -> Remedy {
        let error = match self {
            PgError::Server(error) => error,
            PgError::NoConnection(_) | PgError::Timeout => return Remedy::Reconnect,
            PgError::Collision => return Remedy::Retry,
            PgError::Locked => return Remedy::RetryLater,
            PgError::AtCommit(_) | PgError::UnexpectedValue(_) | PgError::Closed => return Remedy::None,
        };
        let Some(state) = error.code() else {
            // An error of the client while encoding or decoding a value concerns the data.
            let about_data = !error.is_closed() && error.source().is_some_and(|source| !source.is::<std::io::Error>());
            return match about_data || was_not_sent(error) {
                true => Remedy::Exclude,
                false => Remedy::Reconnect,
            };
        };
        const COLLISIONS: [SqlState; 3] = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
        ];
        if COLLISIONS.contains(state) {
            return Remedy::Retry;
        }
        if *state == SqlState::LOCK_NOT_AVAILABLE {
            return Remedy::RetryLater;
        }
        match &state.code()[..2] {
            // 57P01 to 57P05: the server stops, restarts, or has terminated this session.
            "57" if state.code().starts_with("57P") => Remedy::Reconnect,
            "08" => Remedy::Reconnect,
            // The server became a standby, or ended an idle transaction, or has no free connection slot.
            "25" if *state == SqlState::READ_ONLY_SQL_TRANSACTION || self.is_idle_timeout() => Remedy::Reconnect,
            "53" if *state == SqlState::TOO_MANY_CONNECTIONS => Remedy::Reconnect,
            class if REJECTED.contains(&class) => Remedy::Exclude,
            _ => Remedy::None,
        }
    }

    /// Whether the server or the client refused the data, and would refuse it again. For a member of a batch this is
    /// certain only if it was the only member.
    fn is_rejection(&self) -> bool {
        let PgError::Server(error) = self else {
            return false;
        };
        match error.code() {
            Some(state) => self.remedy() == Remedy::Exclude && REJECTED.contains(&&state.code()[..2]),
            None => was_not_sent(error),
        }
    }

    /// Whether the server ended the transaction because it was idle. Then it did not receive `COMMIT`.
    pub(super) fn is_idle_timeout(&self) -> bool {
        let idle = &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
        matches!(self, PgError::Server(error) if error.code() == Some(idle))
    }

    /// Whether the session that returned this error must not be used again.
    pub(super) fn needs_another_session(&self) -> bool {
        match self {
            PgError::AtCommit(error) => error.needs_another_session(),
            _ => self.remedy() == Remedy::Reconnect,
        }
    }

    /// The error for callers when nothing was written. `place` names the database.
    pub(super) fn explain(&self, place: &str) -> StoreError {
        match self {
            PgError::Closed => StoreError::Closed,
            PgError::AtCommit(error) => error.unknown(),
            PgError::Server(error) if error.code() == Some(&SqlState::DISK_FULL) => {
                StoreError::Full { path: place.to_owned() }
            }
            _ if self.is_rejection() => StoreError::Rejected(self.to_string()),
            _ => match self.remedy() {
                Remedy::Reconnect => StoreError::Unavailable(format!("{place}: {self}")),
                Remedy::RetryLater => StoreError::Busy(self.to_string()),
                _ => StoreError::Failed(self.to_string()),
            },
        }
    }

    /// The error for callers when it may have been written.
    pub(super) fn unknown(&self) -> StoreError {
        StoreError::Unknown(self.to_string())
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PgError::Server(error) => f.write_str(&describe(error)),
            PgError::NoConnection(what) | PgError::UnexpectedValue(what) => f.write_str(what),
            PgError::AtCommit(error) => error.fmt(f),
            PgError::Collision => f.write_str("another transaction made the same change at the same time"),
            PgError::Locked => f.write_str("another transaction holds a lock on the run or its workflow"),
            PgError::Timeout => f.write_str("the server did not respond in time"),
            PgError::Closed => f.write_str("the database is closed"),
        }
    }
}

/// SQLSTATE classes of refused data: data exception, integrity constraint violation, program limit exceeded.
const REJECTED: [&str; 3] = ["22", "23", "54"];

/// Whether the client could not encode a value. The driver reports this only in the text of the error.
fn was_not_sent(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    !error.is_closed()
        && (text.starts_with("error serializing parameter") || text.starts_with("error encoding message"))
}

/// The message of the server, or the error of the connection. Without the server's DETAIL field, which may contain data.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return describe_db_error(error);
    }
    if let Some(why) = tls::distrust(error) {
        return why;
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn describe_db_error(error: &DbError) -> String {
    let hint = error.hint().map_or(String::new(), |hint| format!("; {hint}"));
    format!("{}{hint} (SQLSTATE {})", error.message(), error.code().code())
}
