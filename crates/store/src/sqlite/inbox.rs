//! `deliver` and `answer`: what comes from outside, and the waits it may answer.
//!
//! What must stay true: a letter and the wake-up it causes are one transaction; a wait is answered once; a run
//! that is over gets no mail.

use super::{
    columns::{count, get, key, run_id, signed},
    writer::Tx,
};
use crate::{
    ChangeHint,
    runs::{Answer, Delivery, InboxMessage, WaitChange, message_text},
};
use fermata_core::{NodeId, RunId, Status, Timestamp};
use rusqlite::{OptionalExtension, params};

const RUN_MAILBOX: &str = "SELECT status, inbox_seq, lease_owner IS NULL FROM workflow_executions WHERE id = ?1";

const INSERT_LETTER: &str = "INSERT INTO run_inbox (workflow_execution_id, seq, ts, letter) VALUES (?1, ?2, ?3, ?4)";

/// A held run keeps its `wake_at`: its owner sees `inbox_seq` at its next commit.
const WAKE: &str = "UPDATE workflow_executions SET inbox_seq = ?2,
    wake_at = CASE WHEN lease_owner IS NULL THEN MIN(COALESCE(wake_at, ?3), ?3) ELSE wake_at END
    WHERE id = ?1";

const WAIT: &str = "SELECT workflow_execution_id, node_id, is_open AND (deadline IS NULL OR deadline > ?2) FROM run_waits WHERE token = ?1";

const ANSWER_WAIT: &str = "UPDATE run_waits SET is_open = 0, payload_json = ?2, answer_seq = ?3 WHERE token = ?1";

const OPEN_WAIT: &str = "INSERT INTO run_waits (token, workflow_execution_id, node_id) VALUES (?1, ?2, ?3)
    ON CONFLICT (token) DO NOTHING";

const CLOSE_WAIT: &str =
    "UPDATE run_waits SET is_open = 0 WHERE workflow_execution_id = ?1 AND node_id = ?2 AND is_open = 1";

const LIMIT_WAIT: &str =
    "UPDATE run_waits SET deadline = ?3 WHERE workflow_execution_id = ?1 AND node_id = ?2 AND is_open = 1";

const CLOSE_WAITS: &str = "UPDATE run_waits SET is_open = 0 WHERE workflow_execution_id = ?1 AND is_open = 1";

const UNSEEN_ANSWER: &str = "SELECT 1 FROM run_waits
    WHERE workflow_execution_id = ?1 AND node_id = ?2 AND answer_seq > ?3 LIMIT 1";

/// Where a run stands, and how to reach it.
struct Inbox {
    status: Status,
    inbox_seq: u64,
    free: bool,
}

fn mailbox(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<Inbox>> {
    let mut statement = tx.connection.prepare_cached(RUN_MAILBOX)?;
    statement
        .query_row([key(&run)], |row| {
            Ok(Inbox {
                status: get(row, 0)?,
                inbox_seq: count(row, 1)?,
                free: row.get(2)?,
            })
        })
        .optional()
}

/// `letter` is the letter's text.
pub(super) fn deliver(tx: &mut Tx<'_>, run: RunId, letter: &str, at: Timestamp) -> rusqlite::Result<Delivery> {
    let Some(mailbox) = mailbox(tx, run)? else {
        return Ok(Delivery::NotFound);
    };
    let status = mailbox.status;
    if status.is_terminal() {
        return Ok(Delivery::Terminal { status });
    }
    put(tx, run, &mailbox, letter, at)?;
    Ok(Delivery::Delivered { status })
}

/// Puts a letter into an inbox and wakes the run; gives the letter's place.
fn put(tx: &mut Tx<'_>, run: RunId, mailbox: &Inbox, letter: &str, at: Timestamp) -> rusqlite::Result<u64> {
    let seq = mailbox.inbox_seq + 1;
    tx.connection
        .prepare_cached(INSERT_LETTER)?
        .execute(params![key(&run), signed(seq), at.0, letter])?;
    tx.connection
        .prepare_cached(WAKE)?
        .execute(params![key(&run), signed(seq), at.0])?;
    tx.news.push(ChangeHint::Inbox(run));
    if mailbox.free {
        tx.news.push(ChangeHint::Due(at));
    }
    Ok(seq)
}

/// Answers the wait behind `token`, once.
pub(super) fn answer(tx: &mut Tx<'_>, token: &str, payload: &str, at: Timestamp) -> rusqlite::Result<Answer> {
    let wait = tx
        .connection
        .prepare_cached(WAIT)?
        .query_row(params![token, at.0], |row| {
            Ok((run_id(row, 0)?, get::<NodeId>(row, 1)?, row.get::<_, bool>(2)?))
        })
        .optional()?;
    let Some((run, node, open)) = wait else {
        return Ok(Answer::NotFound);
    };
    let mailbox = match mailbox(tx, run)? {
        Some(mailbox) if open && !mailbox.status.is_terminal() => mailbox,
        _ => return Ok(Answer::Closed),
    };
    let seq = put(
        tx,
        run,
        &mailbox,
        &message_text(&InboxMessage::Callback { node: node.clone() }),
        at,
    )?;
    tx.connection
        .prepare_cached(ANSWER_WAIT)?
        .execute(params![token, payload, signed(seq)])?;
    Ok(Answer::Accepted { run, node })
}

/// Applies a change to a wait.
pub(super) fn change_wait(tx: &Tx<'_>, run: RunId, change: &WaitChange) -> rusqlite::Result<()> {
    match change {
        WaitChange::Open { node, token } => {
            tx.connection
                .prepare_cached(OPEN_WAIT)?
                .execute(params![token, key(&run), node.as_str()])?
        }
        WaitChange::Limit { node, deadline } => {
            tx.connection
                .prepare_cached(LIMIT_WAIT)?
                .execute(params![key(&run), node.as_str(), deadline.0])?
        }
        WaitChange::Close { node } => tx
            .connection
            .prepare_cached(CLOSE_WAIT)?
            .execute(params![key(&run), node.as_str()])?,
    };
    Ok(())
}

/// Closes whatever is still open.
pub(super) fn close_waits(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(CLOSE_WAITS)?.execute([key(&run)])?;
    Ok(())
}

/// Whether the wait of a node has an answer beyond `seen`.
pub(super) fn has_unseen_answer(tx: &Tx<'_>, run: RunId, node: &NodeId, seen: u64) -> rusqlite::Result<bool> {
    tx.connection
        .prepare_cached(UNSEEN_ANSWER)?
        .exists(params![key(&run), node.as_str(), signed(seen)])
}
