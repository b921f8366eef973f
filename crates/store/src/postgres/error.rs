//! What goes wrong between us and the server, and what follows from it.
//!
//! What must stay true: the server's words reach the person who has to mend it, the password and the data do not.
//! Whatever may have been written is [`StoreError::Unknown`].

use super::tls;
use crate::StoreError;
use std::{error::Error, fmt};
use tokio_postgres::error::{DbError, SqlState};

/// Something that failed.
#[derive(Debug)]
pub(super) enum PgError {
    /// The server, or the way to it.
    Server(tokio_postgres::Error),
    /// No connection is to be had.
    NoConnection(String),
    /// The server did not answer in time.
    Silent,
    /// `COMMIT` was sent, and its answer was lost for this reason.
    AtCommit(Box<PgError>),
    /// Somebody else did the same meanwhile.
    Collision,
    /// Somebody else keeps the run or its workflow locked.
    Locked,
    /// A row holds what this program does not write.
    Strange(String),
    /// The store is closed.
    Closed,
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        PgError::Server(error)
    }
}

/// What may be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The connection is gone, or leads to a server that does not take writes: try on another one.
    Reconnect,
    /// It collided with others: try again.
    Again,
    /// Others keep locked what it needs: try again later.
    Later,
    /// It is about the data of one member: the others can go on without it.
    LeaveOut,
    /// Trying again does not help.
    None,
}

impl PgError {
    pub(super) fn remedy(&self) -> Remedy {
        let error = match self {
            PgError::Server(error) => error,
            PgError::NoConnection(_) | PgError::Silent => return Remedy::Reconnect,
            PgError::Collision => return Remedy::Again,
            PgError::Locked => return Remedy::Later,
            PgError::AtCommit(_) | PgError::Strange(_) | PgError::Closed => return Remedy::None,
        };
        let Some(state) = error.code() else {
            // What the client itself refuses to send or to read is about the data.
            let about_data = !error.is_closed() && error.source().is_some_and(|source| !source.is::<std::io::Error>());
            return match about_data || was_not_sent(error) {
                true => Remedy::LeaveOut,
                false => Remedy::Reconnect,
            };
        };
        const COLLISIONS: [SqlState; 3] = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
        ];
        if COLLISIONS.contains(state) {
            return Remedy::Again;
        }
        if *state == SqlState::LOCK_NOT_AVAILABLE {
            return Remedy::Later;
        }
        match &state.code()[..2] {
            // 57P01 to 57P05: the server ends, restarts, or has cut us off.
            "57" if state.code().starts_with("57P") => Remedy::Reconnect,
            "08" => Remedy::Reconnect,
            // A server that became a standby, or waited too long for us, or has no room for connections.
            "25" if *state == SqlState::READ_ONLY_SQL_TRANSACTION || self.came_too_late() => Remedy::Reconnect,
            "53" if *state == SqlState::TOO_MANY_CONNECTIONS => Remedy::Reconnect,
            class if REJECTED.contains(&class) => Remedy::LeaveOut,
            _ => Remedy::None,
        }
    }

    /// Whether the data was refused and would be refused again, by the server or by the client that had to send it. True of
    /// a member of a batch only if it was tried alone.
    fn is_rejection(&self) -> bool {
        let PgError::Server(error) = self else {
            return false;
        };
        match error.code() {
            Some(state) => self.remedy() == Remedy::LeaveOut && REJECTED.contains(&&state.code()[..2]),
            None => was_not_sent(error),
        }
    }

    /// Whether the server ended a transaction because nothing came any more: also no `COMMIT`.
    pub(super) fn came_too_late(&self) -> bool {
        let late = &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
        matches!(self, PgError::Server(error) if error.code() == Some(late))
    }

    /// Whether a session that met it is of no more use.
    pub(super) fn needs_another_session(&self) -> bool {
        match self {
            PgError::AtCommit(error) => error.needs_another_session(),
            _ => self.remedy() == Remedy::Reconnect,
        }
    }

    /// As an answer, when nothing was written. `place` names the database.
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
                Remedy::Later => StoreError::Busy(self.to_string()),
                _ => StoreError::Failed(self.to_string()),
            },
        }
    }

    /// As an answer, when it may have been written.
    pub(super) fn unknown(&self) -> StoreError {
        StoreError::Unknown(self.to_string())
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PgError::Server(error) => f.write_str(&words(error)),
            PgError::NoConnection(what) | PgError::Strange(what) => f.write_str(what),
            PgError::AtCommit(error) => error.fmt(f),
            PgError::Collision => f.write_str("somebody else did the same meanwhile"),
            PgError::Locked => f.write_str("another transaction keeps the run or its workflow locked"),
            PgError::Silent => f.write_str("the server did not answer in time"),
            PgError::Closed => f.write_str("the database is closed"),
        }
    }
}

/// Classes of SQLSTATE that are about the data: exceptions of data, rules of tables, limits of the server.
const REJECTED: [&str; 3] = ["22", "23", "54"];

/// Whether the client refused to send a value. The driver tells this only by its words.
fn was_not_sent(error: &tokio_postgres::Error) -> bool {
    let words = error.to_string();
    !error.is_closed()
        && (words.starts_with("error serializing parameter") || words.starts_with("error encoding message"))
}

/// What the server said, or what happened to the connection. Not the detail, which repeats data.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said_by_server(said);
    }
    if let Some(why) = tls::distrust(error) {
        return why;
    }
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}

fn said_by_server(said: &DbError) -> String {
    let hint = said.hint().map_or(String::new(), |hint| format!("; {hint}"));
    format!("{}{hint} (SQLSTATE {})", said.message(), said.code().code())
}
